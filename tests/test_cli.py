"""The command line: exit codes, messages for misuse, and help with examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from krammar.cli import main

GOOD = "PingRequest => key 0, max version 1\n  Text: string\n\nPingResponse =>\n  Text: string\n"
BAD = GOOD.replace("string", "sting", 1)
STYLE = GOOD + "\n"


def krammar(*arguments: object) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "ping"
    folder.mkdir()
    (folder / "ping.krm").write_text(GOOD)
    return folder


@pytest.mark.parametrize("verb", sorted(main.commands))
def test_every_verb_helps_with_examples(verb: str) -> None:
    result = krammar(verb, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.output
    assert f"krammar {verb}" in result.output


def test_check(source: Path) -> None:
    assert krammar("check", source).exit_code == 0
    (source / "ping.krm").write_text(STYLE)
    warned = krammar("check", source)
    assert warned.exit_code == 0
    assert "warning W903" in warned.output
    strict = krammar("check", source, "--strict")
    assert strict.exit_code == 1
    assert "error W903" in strict.output


def test_findings_end_with_1_in_every_format(source: Path) -> None:
    (source / "ping.krm").write_text(BAD)
    text = krammar("check", source)
    assert text.exit_code == 1
    assert 'did you mean "string"?' in text.output
    found = krammar("check", source, "--format", "json")
    assert found.exit_code == 1
    assert [finding["code"] for finding in json.loads(found.stdout)] == ["E204"]
    github = krammar("check", source, "--format", "github")
    assert github.exit_code == 1
    assert github.stdout.startswith("::error file=")


def test_gen_writes_nothing_with_findings(source: Path, tmp_path: Path) -> None:
    (source / "ping.krm").write_text(BAD)
    result = krammar("gen", source, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert "nothing was written" in result.output
    assert not (tmp_path / "out").exists()


def test_fmt(source: Path) -> None:
    path = source / "ping.krm"
    path.write_text(STYLE)
    assert krammar("fmt", path, "--check").exit_code == 1
    assert path.read_text() == STYLE
    assert krammar("fmt", path).exit_code == 0
    assert path.read_text() == GOOD
    assert krammar("fmt", path, "--check").exit_code == 0


def test_import_reports_a_broken_schema(tmp_path: Path) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "Foo.json").write_text("{")
    result = krammar("import", tmp_path / "json", "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert "Foo.json" in result.output
    assert not (tmp_path / "out").exists()


def test_inspect_shows_how_far_it_came() -> None:
    result = krammar("inspect", "kafka_wire", "MetadataRequest", "1", "--hex", "00000001000261")
    assert result.exit_code == 1
    assert "MetadataRequest v1: topics[0].name: needs 2 bytes at offset 6, 1 left" in result.output
    assert "[0]" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gen", "nowhere", "-o", "out"], "nowhere"),
        (["gen"], "Missing argument"),
        (["check", "{empty}"], "no definition files"),
        (["inspect", "nowhere", "Foo", "1"], "cannot be imported"),
        (["inspect", "kafka_wire", "Foo", "1"], "no message 'Foo'"),
        (["inspect", "kafka_wire", "MetadataRequest", "99"], "has no version 99"),
        (["inspect", "kafka_wire", "MetadataRequest", "1", "--hex", "zz"], "--hex"),
        (["import", "{empty}", "--release", "1", "--release", "2", "-o", "out"], "--release"),
        (["frobnicate"], "No such command"),
    ],
)
def test_misuse_ends_with_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = krammar(*(part.replace("{empty}", str(tmp_path / "empty")) for part in arguments))
    assert result.exit_code == 2, result.output
    assert message in result.output


def test_an_output_that_cannot_be_written(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    result = krammar("gen", source, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "out" in result.output
