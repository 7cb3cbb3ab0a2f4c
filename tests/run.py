"""Runs pytest: ``python -m tests.run [PYTEST ARGUMENTS]``, which ``make test`` does.

With ``RETRY_FAILED=N`` in the environment, as in CI, up to N failed tests run a second time, one after another
and alone. Clients in other processes and Spark miss a time-out now and then on a loaded machine; a test that fails
twice is a failure, and so are more than N tests that fail. What passed only at the second run is printed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS_FAILED = 1  # pytest's exit code; others say that it could not run the tests


def run(
    python: str | Path,
    arguments: list[str],
    cache: Path,
    *,
    env: Mapping[str, str] = os.environ,
    root: Path = ROOT,
) -> int:
    """Run pytest in a project's folder, and return its exit code.

    Args:
        python: the executable of the Python to use.
        arguments: pytest's arguments.
        cache: the folder of pytest's cache, which lists the tests that failed.
        env: the environment; ``RETRY_FAILED`` is the highest number of tests to run a second time.
        root: the project's folder.
    """
    failed_list = cache / "v" / "cache" / "lastfailed"
    failed_list.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", "-o", f"cache_dir={cache}"]
    # Without bytecode, which containers tend to turn off, each of hundreds of processes compiles krammar again.
    env = {name: value for name, value in env.items() if name != "PYTHONDONTWRITEBYTECODE"}
    code = subprocess.run([*command, *arguments], cwd=root, env=env, check=False).returncode
    if code != TESTS_FAILED or not failed_list.exists():
        return code
    # pytest-xdist appends the test's group, which pytest without it does not know.
    failed = [re.sub(r"@\w+$", "", test) for test in json.loads(failed_list.read_text("utf-8"))]
    if len(failed) > int(env.get("RETRY_FAILED") or 0):
        return code
    print("A second run, alone, of the tests that failed:", *failed, sep="\n  ", flush=True)
    plugins = [word for word in arguments if word.startswith("-ptests.")]
    # Select each one by its name, even if the first run selected tests by markers.
    again = [*command, *plugins, "-m", "", *failed]
    code = subprocess.run(again, cwd=root, env=env, check=False).returncode
    if code == 0:
        print("Passed only at the second run:", *failed, sep="\n  ", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(run(sys.executable, sys.argv[1:], ROOT / ".pytest_cache"))
