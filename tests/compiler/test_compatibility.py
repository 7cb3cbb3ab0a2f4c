"""`krammar diff`: what breaks those who have the old definitions, and what does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from krammar.cli import main
from tests.compiler.conftest import Files, write_files

OLD = """\
// How it is doing.
Health int8 (
  0: OK
  1: DEGRADED
)

ReportRequest => key 0, max version 3, flexible v2+
  Serial: string
  Readings: [=>]
    Timestamp: int64
    Celsius: float64 // v1+
    Health: enum-Health // v1+
  Note: nullable-string(null) // tag 0

ReportResponse =>
  Accepted: int32

Kept => not top level, with version field, max version 1
  Version: int16
  Where: string
"""


class Diff:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, new: Files, *options: str, old: Files = OLD) -> tuple[int, str]:
        before = write_files(self.folder / "old", old)
        after = write_files(self.folder / "new", new)
        done = CliRunner().invoke(main, ["diff", str(before), str(after), *options])
        return done.exit_code, done.output

    def codes(self, new: str, *options: str) -> list[tuple[str, str]]:
        code, output = self.run(new, "--format", "json", *options)
        found = json.loads(output or "[]")
        assert code == (1 if found else 0)
        return [(each["code"], each["message"]) for each in found]


@pytest.fixture
def diff(tmp_path: Path) -> Diff:
    return Diff(tmp_path)


def changed(*pairs: tuple[str, str]) -> str:
    text = OLD
    for before, after in pairs:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


def test_no_breaking_changes(diff: Diff) -> None:
    assert diff.run(OLD) == (0, "no breaking changes\n")
    comment = changed(("// How it is doing.", "// How it does."))
    assert diff.run(comment) == (0, "no breaking changes\n")


@pytest.mark.parametrize(
    ("change", "news"),
    [
        (("max version 3", "max version 4"), ["ReportRequest v4", "ReportResponse v4"]),
        (("  1: DEGRADED\n", "  1: DEGRADED\n  2: BROKEN\n"), ["Health.BROKEN"]),
        (("  Accepted: int32\n", "  Accepted: int32\n  Why: string // v2+, tag 0\n"), []),
        (
            (
                "not top level, with version field, max version 1",
                "not top level, with version field, max version 2",
            ),
            ["Kept v2"],
        ),
        (("Kept =>", "New => not top level\n  A: int8\n\nKept =>"), ["New"]),
    ],
)
def test_additions_break_nobody(diff: Diff, change: tuple[str, str], news: list[str]) -> None:
    code, output = diff.run(changed(change))
    assert code == 0, output
    assert output == "".join(f"new: {name} is new\n" for name in news) + "no breaking changes\n"


def test_a_field_in_a_version_that_is_new(diff: Diff) -> None:
    more = changed(
        ("max version 3", "max version 4"),
        ("  Accepted: int32\n", "  Accepted: int32\n  Why: string // v4+\n"),
    )
    assert diff.codes(more) == []


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("Kept =>", "Held =>"), "B101", "Kept is missing"),
        (("key 0", "key 7"), "B102", "ReportRequest has key 7, it was 0"),
        (("max version 3, flexible", "max version 3, min version 1, flexible"), "B103", "ReportRequest v0 is missing"),
        (("  Serial: string\n", "  Serial: string\n  Model: string\n"), "B104", "ReportRequest.Model is new in v0-v3"),
        (("  Serial: string\n", "  Serial: string\n  Model: string // v3+\n"), "B104", "ReportRequest.Model is new in v3"),
        (("    Timestamp: int64\n", ""), "B104", "ReportRequest.Readings[].Timestamp is missing in v0-v3"),
        (("Timestamp: int64", "Timestamp: int32"), "B104", "ReportRequest.Readings[].Timestamp is int32, it was int64 in v0-v3"),
        (("Celsius: float64 // v1+", "Celsius: float64 // v2+"), "B104", "ReportRequest.Readings[].Celsius is missing in v1"),
        (("Celsius: float64 // v1+\n    Health: enum-Health // v1+", "Health: enum-Health // v1+\n    Celsius: float64 // v1+"), "B104", "ReportRequest.Readings[].Health has moved in v1-v3"),
        (("Serial: string", "Serial: nullable-string-v2+"), "B104", "ReportRequest.Serial is nullable string with uvarint length, it was string with uvarint length in v2-v3"),
        (("Readings: [=>]", "Readings: nullable[=>]"), "B104", "ReportRequest.Readings is nullable array of struct with int32 count, it was array of struct with int32 count in v0-v1"),
        (("flexible v2+", "flexible v3+"), "B104", "ReportRequest is no longer flexible in v2"),
        (("// tag 0", "// tag 1\n  Why: int8 // tag 0"), "B104", "ReportRequest.Note has tag 1, it was 0 in v2-v3"),
        (("nullable-string(null)", "nullable-string"), "B105", "the default of ReportRequest.Note is '', it was None in v2-v3"),
        (("1: DEGRADED", "2: DEGRADED"), "B106", "Health.DEGRADED is 2, it was 1"),
        (("Health int8", "Health int16"), "B106", "Health is int16, it was int8"),
        (("with version field, max version 1", "max version 1"), "B104", "Kept no longer begins with a version field"),
    ],
)  # fmt: skip
def test_changes_that_break_peers(
    diff: Diff, change: tuple[str, str], code: str, message: str
) -> None:
    assert (code, message) in diff.codes(changed(change), "--wire")


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("  1: DEGRADED\n", ""), "B201", "Health.DEGRADED (1) is missing"),
        (("1: DEGRADED", "1: WORSE"), "B202", "Health.DEGRADED (1) is renamed to WORSE"),
        (("Serial: string", "Number: string"), "B202", "ReportRequest.Serial: serial is renamed to number"),
        (("Readings: [=>]", "Readings: [=>]Value"), "B202", "ReportRequest.Readings[]: the class ReportRequest.Reading is renamed to ReportRequest.Value"),
        (("Accepted: int32", "Accepted: int32(-1)"), "B203", "the default of ReportResponse.Accepted is -1, it was 0"),
    ],
)  # fmt: skip
def test_changes_that_break_code(
    diff: Diff, change: tuple[str, str], code: str, message: str
) -> None:
    assert diff.codes(changed(change)) == [(code, message)]
    assert diff.codes(changed(change), "--wire") == []


def test_an_enum_that_is_gone(diff: Diff) -> None:
    text = changed(("Health: enum-Health", "Health: int8"))
    text = text[text.index("ReportRequest") :]
    assert diff.codes(text) == [("B201", "the enum Health is missing")]


def test_positions_are_printed(diff: Diff) -> None:
    code, output = diff.run(changed(("Timestamp: int64", "Timestamp: int32")))
    assert code == 1
    assert "new/a.krm:10:5: error B104: ReportRequest.Readings[].Timestamp is int32" in output
    assert "10 |     Timestamp: int32\n   |     ^^^^^^^^^" in output
    assert "hint: released versions must not change; add a new version" in output


def test_packages(diff: Diff) -> None:
    code, output = diff.run({"b/a.krm": OLD}, old={"a/a.krm": OLD})
    assert code == 1
    assert "B101: a is missing" in output
    assert "new: b is new" in output


def test_definitions_with_errors(diff: Diff) -> None:
    code, output = diff.run("Nonsense")
    assert code == 1
    assert "error E1" in output
    assert "B1" not in output


def test_missing_folders(diff: Diff, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["diff", str(tmp_path / "a"), str(tmp_path / "b")])
    assert done.exit_code == 2
