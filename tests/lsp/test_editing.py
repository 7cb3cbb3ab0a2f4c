from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types as lsp

from krammar.compiler.formatter import format_source
from krammar.lsp.editing import RenameError, formatting, quick_fixes, rename_edit, renameable
from krammar.lsp.project import SourceFile
from tests.lsp.sheets import FOLDER, PING, SHARED, Sheet, ping

ENUM = "Colour int8 (\n  0: RED\n)\n\n"


def applied(file: SourceFile, edits: Sequence[lsp.TextEdit]) -> str:
    """The text after edits, as an editor applies them."""
    text = file.text.text
    spans = [(file.text.offset(e.range.start), file.text.offset(e.range.end), e) for e in edits]
    for start, end, edit in sorted(spans, key=lambda span: span[:2], reverse=True):
        text = text[:start] + edit.new_text + text[end:]
    return text


def corrected(text: str) -> str:
    """The text after all quick fixes."""
    sheet = Sheet(a=text)
    found = sheet.analysis.diagnostics()[sheet.path]
    edits = [
        edit
        for action in quick_fixes(sheet.file, found, sheet.file.text.everything)
        for edit in (action.edit.changes or {})[sheet.file.uri]  # type: ignore[union-attr]
    ]
    return applied(sheet.file, edits)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("nullable-sting(null)", "nullable-string(null)"),
        ("long", "int64"),
        ("Colour", "enum-Colour"),
        ("enum-Color", "enum-Colour"),
        ("enum-Colour(RED)", "enum-Colour(0)"),
        ("[in32]", "[int32]"),
        ("nulable[int8]", "nullable[int8]"),
        ("int8 // v007+", "int8 // v7+"),
        ("int8(007)", "int8(007)"),
        ('string("x")', "string(x)"),
        ("nullable-string('a b')", "nullable-string(a b)"),
        (" int8", "int8"),
    ],
)
def test_quick_fixes_of_fields(wrong: str, right: str) -> None:
    text = ENUM + "A => not top level\n  B: {}\n"
    assert corrected(text.format(wrong)) == text.format(right)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("ARequest => key 0, max version 3, flexibl v2+", "flexible v2+"),
        ("ARequest => key 0, max version 3, group cordinator", "group coordinator"),
        ("ARequest => key 0, max verson 3", "max version 3"),
        ("A => not toplevel", "not top level"),
    ],
)
def test_quick_fixes_of_headers(wrong: str, right: str) -> None:
    text = corrected(wrong + "\n  B: int8\n")
    assert text.partition("\n")[0].endswith(", " + right if "," in wrong else right)


def test_quick_fixes_of_names() -> None:
    pair = "PingRequest => key 0, max version 0\n  A: int8\n\n{} =>\n  B: int8\n"
    assert corrected(pair.format("PingRespons")) == pair.format("PingResponse")
    enum = "Colour {} (\n  0: RED\n)\n"
    assert corrected(enum.format("in8")) == enum.format("int8")
    struct = "A => not top level\n  Size: int32\n  B: length-field-minus => {} - 4\n"
    assert corrected(struct.format("Siz")) == struct.format("Size")
    assert corrected("A => not top level\n  ThrottleMilis\n") == (
        "A => not top level\n  ThrottleMillis\n"
    )
    assert corrected("Ping => key 0, max version 0\n  A: int8\n") == (
        "PingRequest => key 0, max version 0\n  A: int8\n"
    )


def test_style_is_corrected_by_formatting_the_file() -> None:
    assert corrected("A => not top level \n\n  B: int8") == "A => not top level\n  B: int8\n"


def test_only_diagnostics_of_the_range_are_corrected() -> None:
    sheet = Sheet(a="A => not top level\n  B: strin\n  C: strin\n")
    found = sheet.analysis.diagnostics()[sheet.path]
    area = lsp.Range(lsp.Position(2, 5), lsp.Position(2, 5))
    [action] = quick_fixes(sheet.file, found, area)
    assert action.title == 'replace "strin" with "string"'
    assert action.is_preferred
    [edit] = (action.edit.changes or {})[sheet.file.uri]  # type: ignore[union-attr]
    assert edit.range == lsp.Range(lsp.Position(2, 5), lsp.Position(2, 10))


LINES = st.lists(
    st.sampled_from(
        ["A => not top level", "  B: int8", "// é😋", "  // x", "", " ", "\r", "C int8 ("]
    ),
    max_size=8,
)


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_formatting_gives_the_text_of_krammar_fmt(lines: list[str], end: str, bom: bool) -> None:
    text = "\ufeff" * bom + end.join(lines)
    sheet = Sheet(a=text)
    edits = formatting(sheet.file)
    if sheet.file.diagnostics.has_errors:
        assert edits == []
    else:
        assert applied(sheet.file, edits) == format_source(text)


def test_formatting_changes_only_lines_that_differ() -> None:
    sheet = Sheet(a="A => not top level\n  B: int8 \n  C: int8\n")
    [edit] = formatting(sheet.file)
    assert (edit.range.start.line, edit.range.end.line) == (1, 2)


# Renaming


def renamed(sheet: Sheet, name: str) -> dict[Path, str]:
    edit = rename_edit(sheet.project, sheet.file, sheet.cursor, name)
    files = {file.uri: file for file in sheet.analysis.files.values()}
    return {
        files[uri].path: applied(files[uri], edits) for uri, edits in (edit.changes or {}).items()
    }


def test_rename_an_enum_in_all_files() -> None:
    found = renamed(ping("enum-Pi", "ngKind(1)"), "Urgency")
    assert found[FOLDER / "ping.krm"] == PING.replace("enum-PingKind", "enum-Urgency")
    assert found[FOLDER / "shared.krm"].count("Urgency int8 (") == 1


def test_rename_a_request_with_its_response() -> None:
    [(_, text)] = renamed(ping("Ping", "Request"), "EchoRequest").items()
    assert text == PING.replace("PingRe", "EchoRe")
    [(_, text)] = renamed(ping("PingRes", "ponse"), "EchoResponse").items()
    assert text == PING.replace("PingRe", "EchoRe")


def test_rename_a_message_with_its_structs() -> None:
    part = "\nPingRequest.Part => not top level, no encoding\n  A: int8\n"
    text = PING.replace(
        "  Kind: enum-PingKind(1)", "  Part: PingRequest.Part\n  Kind: enum-PingKind(1)", 1
    )
    sheet = Sheet(ping=text.replace("PingRequest", "Ping‸Request", 1) + part, shared=SHARED)
    found = renamed(sheet, "EchoRequest")[FOLDER / "ping.krm"]
    assert found == (text + part).replace("PingRe", "EchoRe")


@pytest.mark.parametrize("name", ["Piece", "PingRequest.Piece"])
def test_rename_a_struct_of_a_message(name: str) -> None:
    part = "\nPingRequest.Part => not top level, no encoding\n  A: int8\n"
    text = PING.replace(
        "  Kind: enum-PingKind(1)", "  Part: PingRequest.P‸art\n  Kind: enum-PingKind(1)", 1
    )
    found = renamed(Sheet(ping=text + part, shared=SHARED), name)[FOLDER / "ping.krm"]
    assert found == (text + part).replace("‸", "").replace("PingRequest.Part", "PingRequest.Piece")


def test_rename_a_field_with_its_uses() -> None:
    [(_, text)] = renamed(ping("    Siz", "e: int32"), "Count").items()
    assert "    Count: int32\n    Data: length-field-minus => Count - 4\n" in text
    [(_, text)] = renamed(ping("-minus => Si", "ze"), "Count").items()
    assert "    Count: int32\n    Data: length-field-minus => Count - 4\n" in text


def test_rename_a_member() -> None:
    [(path, text)] = renamed(ping("0: SL", "OW"), "CALM").items()
    assert path == FOLDER / "shared.krm" and "  0: CALM\n" in text


@pytest.mark.parametrize(
    ("before", "after", "name", "message"),
    [
        (
            "enum-Pi",
            "ngKind(1)",
            "two words",
            '"two words" is not a name: use letters, digits and `_`',
        ),
        ("enum-Pi", "ngKind(1)", "", '"" is not a name'),
        ("enum-Pi", "ngKind(1)", "lower", '"lower" cannot be the name of a definition'),
        ("enum-Pi", "ngKind(1)", "None", '"None" cannot be the name of a definition'),
        ("enum-Pi", "ngKind(1)", "Shared", '"Shared" is already defined at shared.krm:1'),
        ("Ping", "Request", "Echo", '"Echo" must end with "Request"'),
        ("  Te", "xt:", "Kind", 'the field "Kind" already exists at line 4 (E202, ping.krm:5)'),
        ("0: SL", "OW", "FAST", '"FAST" is already a member of PingKind (E202, shared.krm:8)'),
        ("  Te", "xt:", "kind", '"Kind" and "kind" (line 4) would both be `kind` in Python'),
        ("// Any", " text", "Other", "there is no name to rename here"),
        ("PingKind(", "1)", "2", "there is no name to rename here"),
    ],
)
def test_refused_names(before: str, after: str, name: str, message: str) -> None:
    with pytest.raises(RenameError) as error:
        renamed(ping(before, after), name)
    assert message in str(error.value)


def test_a_name_that_is_not_defined_cannot_be_renamed() -> None:
    with pytest.raises(RenameError, match='"Nowhere" is not defined in this folder'):
        renamed(Sheet(a="A => not top level\n  B: No‸where\n"), "There")


def test_an_error_elsewhere_does_not_prevent_renaming() -> None:
    text = "A => not top level\n  B: No‸w\n  C: Unknown\n\nNow => not top level\n  D: int8\n"
    [(_, changed)] = renamed(Sheet(a=text), "Then").items()
    assert changed == text.replace("No‸w", "Then").replace("Now", "Then")


def test_where_renaming_starts() -> None:
    sheet = ping("Ping", "Request")
    found = renameable(sheet.file, sheet.cursor)
    assert found is not None and found.target.path == ("PingRequest",)
