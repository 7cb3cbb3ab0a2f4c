"""`krammar check` of files of faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from krammar.cli import main

_RULE = """[[fault]]
name = "{}"
api = "Produce"
principal = "alice"
answer = "{}"
"""
_GOOD = _RULE.format("one", "NOT_LEADER_OR_FOLLOWER")


def _check(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["check", *arguments])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "faults.toml"


def test_a_file_without_mistakes(file: Path, tmp_path: Path) -> None:
    """Rules for the broker, such as those with a principal, are accepted."""
    file.write_text(_GOOD + _RULE.format("two", "REQUEST_TIMED_OUT"))
    result = _check(str(file))
    assert (result.exit_code, result.stdout) == (0, "1 file, 2 faults: no errors\n")
    definitions = tmp_path / "ping.krm"
    definitions.write_text("Ping =>\n  A: int8\n")
    result = _check(str(file), str(definitions))
    assert result.stdout == "2 files, 1 definition, 2 faults: no errors\n"


def test_mistakes_have_places_and_hints(file: Path) -> None:
    file.write_text(_GOOD + _RULE.format("two", "NOT_LEADER"))
    result = _check(str(file))
    assert result.exit_code == 1
    assert f'{file}:10:11: error F201: ErrorCode: "NOT_LEADER" does not exist' in result.output
    assert 'hint: did you mean "NOT_LEADER_OR_FOLLOWER"?' in result.output


def test_mistakes_of_several_files_are_reported_at_once(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "ping.krm"
    file.write_text("fault = 1")
    other.write_text("Ping =>\n  A: int9\n")
    result = _check(str(file), str(other), "--format", "sarif")
    assert result.exit_code == 1
    (run,) = json.loads(result.stdout)["runs"]
    rules = {
        each["id"]: each["shortDescription"]["text"] for each in run["tool"]["driver"]["rules"]
    }
    assert rules["F101"] == "The text cannot be read."
    assert len(rules) == 2


def test_a_package_that_does_not_exist(file: Path) -> None:
    file.write_text(_GOOD)
    result = _check(str(file), "--package", "nowhere")
    assert result.exit_code == 2
    assert "--package: package 'nowhere' cannot be imported" in result.output
