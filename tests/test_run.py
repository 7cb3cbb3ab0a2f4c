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
    test = tmp_path / "test_it.py"
    test.write_text(source)
    env = {**os.environ, "RETRY_FAILED": allowed}
    (tmp_path / "pytest.ini").write_text(INI)
    arguments = [f"--rootdir={tmp_path}", "-m", "", str(test)]
    assert run(sys.executable, arguments, tmp_path / "cache", env=env, root=tmp_path) == code
    assert ("Passed only at the second run" in capfd.readouterr().out) == (code == 0)
