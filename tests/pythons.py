"""The tests on other Pythons: ``python -m tests.pythons [PYTEST ARGUMENTS]``.

Looks for CPython 3.11 to 3.14 in pyenv's folders and on the PATH, says what it found, and runs the tests on
the newest release of each. Each has a virtual environment under ``build/``.

``--newest`` is for CI, beside the tests on CI's own Python: it runs them on the newest Python alone, without
Spark's and without those that every Python passes or fails (``LEFT_OUT``), and not at all if none is newer than its
own.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.run import run

ROOT = Path(__file__).parents[1]
VERSIONS = ((3, 11), (3, 12), (3, 13), (3, 14))
# A Python without these cannot make a virtual environment or install into it.
PROBE = """
import ensurepip, ssl, sys, sysconfig
free_threaded = sysconfig.get_config_var("Py_GIL_DISABLED") or 0
print(sys.implementation.name, sys.version_info.releaselevel, free_threaded, *sys.version_info[:3])
"""
NOT_FOUND = 127  # pyenv's shims exit so where the version that they name is not selected
SPARK_ONLY = ("matplotlib", "pandas", "pyspark")
EXTRAS_WITHOUT_SPARK = "arrow,compiler,lsp,oauth,re2,testing,uvloop"
# Left out with --newest: they take most of the time and find mistakes that every Python shows.
LEFT_OUT = (
    # Programs beside krammar: clients, browsers, tshark, bash, pip, and what runs the tests.
    "tests/broker/clients/",
    "tests/cli/test_ci.py",
    "tests/compiler/test_reference_browser.py",
    "tests/compiler/test_wireshark.py",
    "tests/faults/test_gallery.py",
    "tests/gallery/",
    "tests/generated/test_checked.py",
    "tests/generated/test_oracles.py",
    "tests/tap/test_page.py",
    "tests/test_run.py",
    "tests/test_wheel.py",
    "tests/wire/test_message_sets.py::test_reads_what_peers_write",
    "tests/wire/test_records.py::test_peers_read_what_we_write",
    "tests/wire/test_records.py::test_reads_what_peers_write",
    # Texts that the compiler writes from the same layouts as the Python code.
    "tests/compiler/test_backends.py",
    "tests/compiler/test_guide.py",
    "tests/compiler/test_reference.py",
    "tests/compiler/test_uses.py",
    # Long searches: for damage, crashes, hostile input, and orders of events.
    "tests/attack/",
    "tests/broker/log/test_compaction_crashes.py",
    "tests/broker/log/test_damage.py",
    "tests/broker/test_attacks.py",
    "tests/broker/test_bad_input.py::test_bad_frames",
    "tests/broker/test_crashes.py",
    "tests/broker/test_disk_faults.py",
    "tests/broker/test_power_cuts.py",
    "tests/broker/transactions/test_power_cuts.py",
    "tests/compiler/test_emitter.py::test_damaged_output_is_mended",
    "tests/compiler/test_hostile_definitions.py",
    "tests/fuzz/",
    "tests/generated/test_hostile.py",
    "tests/journal/test_iterators.py::test_replays_read_what_is_committed_and_no_more",
    "tests/journal/test_kills.py",
    "tests/journal/test_model.py",
    "tests/powercut/",
)
PARALLEL = ("-n", "auto", "--dist", "loadgroup")


class Python(NamedTuple):
    version: tuple[int, int, int]
    path: Path

    def __str__(self) -> str:
        return "CPython " + ".".join(map(str, self.version))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.pythons", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--newest", action="store_true", help="what CI adds to its own Python")
    given, arguments = parser.parse_known_args()
    found = find()
    for python in found:
        print(f"{python} found: {python.path}")
    missing = [f"3.{minor}" for _, minor in VERSIONS if minor not in {p.version[1] for p in found}]
    if missing:
        print(f"CPython {', '.join(missing)} not found in {pyenv_versions()} and on the PATH")
    if given.newest:
        found = [python for python in found[-1:] if python.version[:2] > sys.version_info[:2]]
        if not found:
            print("no newer CPython than this one: tests on other Pythons skipped", flush=True)
            return 0
        # Files that are ignored are not imported either.
        left_out = [
            f"--deselect={each}" if "::" in each else f"--ignore={each}" for each in LEFT_OUT
        ]
        arguments = ["--ignore=tests/spark", *left_out, *arguments]
    lines, failed = [], False
    for python in found:
        print(f"{python}: installing", flush=True)
        begin = time.monotonic()
        executable = environment(python, with_spark=not given.newest)
        ready = time.monotonic()
        code = run(executable, [*PARALLEL, *arguments], executable.parents[1] / "pytest")
        failed |= code != 0
        verdict = "FAILED" if code else "passed"
        end = time.monotonic()
        lines.append(
            f"{python} {verdict} (set up in {ready - begin:.0f} s, tests in {end - ready:.0f} s)"
        )
    print(*lines, sep="\n", flush=True)
    return int(failed or not found)


def find() -> list[Python]:
    """The newest release of each version, oldest version first."""
    newest: dict[tuple[int, int], Python] = {}
    for path in _candidates():
        python = _probe(path)
        if python is None or python.version[:2] not in VERSIONS:
            continue
        known = newest.setdefault(python.version[:2], python)
        if python.version > known.version:
            newest[python.version[:2]] = python
    return [newest[version] for version in sorted(newest)]


def pyenv_versions() -> Path:
    """Where pyenv has its versions, whether pyenv is installed or not."""
    return Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"


def _candidates() -> Iterator[Path]:
    for major, minor in VERSIONS:
        yield from sorted(pyenv_versions().glob(f"{major}.{minor}*/bin/python"))
        for folder in os.get_exec_path():
            if found := shutil.which(f"python{major}.{minor}", path=folder):
                yield Path(found)


def _probe(path: Path) -> Python | None:
    """The Python at a path; None unless it is a release of CPython that can install packages."""
    try:
        done = subprocess.run(
            [str(path), "-I", "-c", PROBE], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError as error:
        print(f"{path} ignored: {error.strerror}")
        return None
    if done.returncode:
        if done.returncode != NOT_FOUND:
            print(f"{path} ignored: {(done.stderr.strip().splitlines() or ['it fails'])[-1]}")
        return None
    name, level, free_threaded, *numbers = done.stdout.split()
    if (name, level, free_threaded) != ("cpython", "final", "0"):
        return None
    major, minor, micro = map(int, numbers)
    return Python((major, minor, micro), path)


def environment(python: Python, *, with_spark: bool) -> Path:
    """The Python of a virtual environment with the packages that the tests need."""
    project = (ROOT / "pyproject.toml").read_bytes()
    kind = "" if with_spark else "-without-spark"
    folder = ROOT / "build" / f"python-{python.version[0]}.{python.version[1]}{kind}"
    executable = folder / "bin" / "python"
    stamp = folder / "installed"
    wanted = f"{python.path} {python.version} {hashlib.sha256(project).hexdigest()}"
    if stamp.exists() and stamp.read_text() == wanted:
        return executable
    subprocess.run([str(python.path), "-m", "venv", "--clear", str(folder)], check=True)
    group: list[str] = tomllib.loads(project.decode())["dependency-groups"]["dev"]
    if not with_spark:
        group = [need for need in group if re.split(r"[^\w-]", need)[0] not in SPARK_ONLY]
    pip = [str(executable), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    extras = "all" if with_spark else EXTRAS_WITHOUT_SPARK
    subprocess.run([*pip, "--editable", f"{ROOT}[{extras}]", *group], check=True)
    stamp.write_text(wanted)
    return executable


if __name__ == "__main__":
    sys.exit(main())
