"""The second run of failed tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.run import run

ONCE = """
from pathlib import Path

import pytest

@pytest.mark.xdist_group("alone")
def test_fails_once(tmp_path_factory):
    seen = Path(__file__).with_name("seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError

def test_passes():
    pass
"""
# As in pyproject.toml.
INI = "[pytest]\naddopts = -m 'not sweep'\nmarkers = sweep\n"
MARKED = "import pytest\n\npytestmark = pytest.mark.sweep\n" + ONCE
# Ends only with the process, as a call of a C library that waits for a lock.
HANGS_ONCE = ONCE.replace("raise AssertionError", "import time; time.sleep(60)")
ALWAYS = "\ndef test_always_fails():\n    raise AssertionError\n"


@pytest.mark.parametrize(
    ("source", "allowed", "code"),
    [
        pytest.param(ONCE, "1", 0, id="fails once"),
        pytest.param(MARKED, "1", 0, id="a sweep fails once"),
        pytest.param(ONCE, "", 1, id="not allowed"),
        pytest.param(ALWAYS, "1", 1, id="fails twice"),
        pytest.param(ONCE + ALWAYS, "1", 1, id="more than allowed"),
        pytest.param("1 / 0", "5", 2, id="not a test"),
    ],
)
def test_failed_tests_run_again_only_as_far_as_allowed(
    source: str, allowed: str, code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert outcome(tmp_path, source, allowed) == code
    assert ("Passed only at the second run" in capfd.readouterr().out) == (code == 0)


def test_a_test_that_hangs_runs_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["-pxdist", "-ppytest_timeout", "-n1", "--timeout=2", "--timeout-method=thread"]
    assert outcome(tmp_path, HANGS_ONCE, "1", *options) == 0
    assert "Passed only at the second run" in capfd.readouterr().out


def outcome(folder: Path, source: str, allowed: str, *options: str) -> int:
    """Run a file of tests in a project of its own, and return the exit code."""
    test = folder / "test_it.py"
    test.write_text(source)
    (folder / "pytest.ini").write_text(INI)
    # Imports of plugins that nothing uses here take longer than all the rest.
    env = {**os.environ, "RETRY_FAILED": allowed, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    arguments = [f"--rootdir={folder}", *options, "-m", "", str(test)]
    return run(sys.executable, arguments, folder / "cache", env=env, root=folder)
