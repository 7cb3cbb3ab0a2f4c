"""`krammar diff`: which changes break peers with the old definitions."""

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


TAGS = """\
Note => not top level, max version 3, flexible v1+
  Text: string
  Colour: int32(7) // tag 0
  Author: => // tag 1
    Name: string
    Home: =>
      City: string(Rome)
    Former: [=>]
      Name: string
    Boss: nullable=>
      Name: string
    Deputy: nullable=>()
      Name: string
  Size: int8 // v2-v3, tag 2
  Place: Place // tag 3
  Stamp: Stamp // tag 4
  Width: int64 // v2+
  reserved tag 5

Place => not top level, no encoding
  Street: string
  Number: int32(1) // tag 0
  reserved tag 1

Stamp => not top level, with version field, max version 1
  Version: int16
  Price: int32
"""


def tagged(diff: Diff, *pairs: tuple[str, str], old: str = TAGS) -> list[tuple[str, str]]:
    """The breaking changes after replacements in ``TAGS``."""
    text = TAGS
    for before, after in pairs:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    code, output = diff.run(text, "--format", "json", old=old)
    found = json.loads(output or "[]")
    assert code == (1 if found else 0)
    return [(each["code"], each["message"]) for each in found]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("Colour: int32(7)", "Colour: int32"), "Note.Colour is 0, it was 7"),
        (("City: string(Rome)", "City: string"), "Note.Author.Home.City is '', it was 'Rome'"),
        (("Deputy: nullable=>()\n      Name: string", "Deputy: nullable=>()\n      Name: string(x)"), "Note.Author.Deputy.Name is 'x', it was ''"),
        (("Deputy: nullable=>()", "Deputy: nullable=>"), "Note.Author.Deputy is None, it was ()"),
        (("Street: string", "Street: string(x)"), "Note.Place.Street is 'x', it was ''"),
        (("Number: int32(1)", "Number: int32"), "Note.Place.Number is 0, it was 1"),
    ],
)  # fmt: skip
def test_defaults_that_decide_whether_a_tag_is_written(
    diff: Diff, change: tuple[str, str], message: str
) -> None:
    assert tagged(diff, change) == [("B105", f"the default of {message} in v1-v3")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("Former: [=>]\n      Name: string", "Former: [=>]\n      Name: string(x)"), "Note.Author.Former[].Name is 'x', it was ''"),
        (("Boss: nullable=>\n      Name: string", "Boss: nullable=>\n      Name: string(x)"), "Note.Author.Boss.Name is 'x', it was ''"),
    ],
)  # fmt: skip
def test_defaults_in_what_is_null_or_empty_by_default(
    diff: Diff, change: tuple[str, str], message: str
) -> None:
    assert tagged(diff, change) == [("B203", f"the default of {message}")]


def test_the_default_of_a_tagged_struct_with_its_own_version(diff: Diff) -> None:
    assert tagged(diff, ("Price: int32", "Price: int32(5)")) == [
        ("B105", "the default of Note.Stamp.Price is 5, it was 0 in v1-v3"),
        ("B203", "the default of Stamp.Price is 5, it was 0"),
    ]


GONE = "  Colour: int32(7) // tag 0\n"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        # A removed field.
        (("  Stamp: Stamp // tag 4\n  Width: int64 // v2+\n  reserved tag 5\n", "  Width: int64 // v2+\n"), [("B107", "tag 4 of Note, which Stamp had, is neither used nor reserved"), ("B107", "tag 5 of Note is no longer reserved"), ("B201", "Note.Stamp is missing")]),
        ((GONE, "  reserved tag 0\n"), [("B201", "Note.Colour is missing")]),
        (("  Number: int32(1) // tag 0\n  reserved tag 1\n", ""), [("B107", "tag 0 of Note.Place, which Number had, is neither used nor reserved"), ("B107", "tag 1 of Note.Place is no longer reserved"), ("B201", "Note.Place.Number is missing")]),
        # A reserved tag.
        (("  reserved tag 5\n", ""), [("B107", "tag 5 of Note is no longer reserved")]),
        (("reserved tag 5", "Why: string // tag 5"), [("B108", "Note.Why has tag 5, which was reserved")]),
        (("reserved tag 5", "Why: string // v3+, tag 5"), [("B108", "Note.Why has tag 5, which was reserved")]),
        (("reserved tag 1", "Why: string // tag 1"), [("B108", "Note.Place.Why has tag 1, which was reserved")]),
        (("reserved tag 5", "reserved tag 5, 6"), []),
        # A tag of another field.
        ((GONE, "  Why: string // tag 0\n"), [("B108", "Note.Why has tag 0, which was the tag of Colour")]),
        ((GONE, "  Why: int32(7) // v2+, tag 0\n"), [("B108", "Note.Why has tag 0, which was the tag of Colour")]),
        ((GONE, "  Why: int32(7) // tag 0\n"), [("B202", "Note.Colour: colour is renamed to why")]),
        ((GONE, "  Why: int32(8) // tag 0\n"), [("B105", "the default of Note.Why is 8, it was 7 in v1-v3"), ("B202", "Note.Colour: colour is renamed to why")]),
        # Another tag of a field.
        ((GONE, "  reserved tag 0\n  Colour: int32(7) // tag 6\n"), [("B104", "Note.Colour has tag 6, it was 0 in v1-v3")]),
        ((GONE, "  Why: int32(7) // tag 0\n  Colour: int32(7) // tag 6\n"), [("B104", "Note.Colour has tag 6, it was 0 in v1-v3"), ("B108", "Note.Why has tag 0, which was the tag of Colour")]),
        (("Width: int64 // v2+", "Width: int64 // v2+, tag 6"), [("B104", "Note.Width is missing in v2-v3")]),
        # Versions of a tag.
        (("v2-v3, tag 2", "v3+, tag 2"), [("B109", "tag 2 of Note.Size is missing in v2")]),
        (("v2-v3, tag 2", "v2-v2, tag 2"), [("B109", "tag 2 of Note.Size is missing in v3")]),
        (("v2-v3, tag 2", "tag 2"), [("B109", "tag 2 of Note.Size is new in v1")]),
        (("v2-v3, tag 2", "v2+, tag 2"), []),
    ],
)  # fmt: skip
def test_tags(diff: Diff, change: tuple[str, str], found: list[tuple[str, str]]) -> None:
    assert sorted(tagged(diff, change)) == sorted(found)


def test_a_tagged_field_without_a_tag(diff: Diff) -> None:
    assert tagged(diff, (GONE, "  Colour: int32(7)\n  reserved tag 0\n")) == [
        ("B104", "Note.Colour is new in v0-v3"),
        ("B104", "Note.Colour has no tag, it had tag 0 in v1-v3"),
    ]


def test_the_tags_of_missing_versions_are_free(diff: Diff) -> None:
    """No peer with an old version can read another value."""
    new = (
        ("max version 3, ", "max version 4, min version 4, "),
        ("v2-v3, tag 2", "tag 2"),
        (GONE, "  Why: string // tag 0\n"),
    )

    assert tagged(diff, *new) == [("B103", "Note v0-v3 are missing")]


def test_a_removed_tag_says_what_to_write(diff: Diff) -> None:
    code, output = diff.run(TAGS.replace("  reserved tag 1\n", ""), old=TAGS)

    assert code == 1
    assert "B107: tag 1 of Note.Place is no longer reserved\n" in output
    assert "= rule: tag-released\n   = hint: restore `reserved tag 1`" in output


IGNORABLE = """\
Note => not top level, max version 3, flexible v2+
  Text: string // v1+, ignorable
  Size: int8 // v1+
  Home: => // v1+
    City: string // v2-v2, ignorable
  Colour: int32 // tag 0
  Always: int8 // ignorable
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("Text: string // v1+, ignorable", "Text: string // v1+"), "Note.Text is no longer ignorable in v0"),
        (("v2-v2, ignorable", "v2-v2"), "Note.Home.City is no longer ignorable in v1, v3"),
        (("Always: int8 // ignorable", "Always: int8"), ""),
    ],
)  # fmt: skip
def test_a_field_that_is_no_longer_ignorable(
    diff: Diff, change: tuple[str, str], message: str
) -> None:
    new = IGNORABLE.replace(*change)
    output = diff.run(new, "--format", "json", old=IGNORABLE)[1]
    found = [(each["code"], each["message"]) for each in json.loads(output or "[]")]

    assert found == ([("B204", message)] if message else [])
    assert diff.run(new, "--wire", old=IGNORABLE)[0] == 0


@pytest.mark.parametrize(
    ("change", "news"),
    [
        (("Size: int8 // v1+", "Size: int8 // v1+, ignorable"), "Note.Size is ignorable: encoding v0 drops its value"),
        (("tag 0", "tag 0, ignorable"), "Note.Colour is ignorable: encoding v0-v1 drops its value"),
    ],
)  # fmt: skip
def test_a_field_that_becomes_ignorable(diff: Diff, change: tuple[str, str], news: str) -> None:
    """Encoding accepts more than before, so no program fails."""
    output = f"new: {news}\nno breaking changes\n"
    assert diff.run(IGNORABLE.replace(*change), old=IGNORABLE) == (0, output)


def test_entities_are_not_on_the_wire(diff: Diff) -> None:
    for entity in ("", "// entity topicName\n", "// entity groupId\n"):
        for other in ("", "// entity topicName\n", "// entity groupId\n"):
            old, new = (
                f"N => not top level\n  A: string {each}".rstrip() + "\n"
                for each in (entity, other)
            )
            assert diff.run(new, old=old) == (0, "no breaking changes\n")


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
