"""`reserved tag 3`: the tags of removed fields."""

from __future__ import annotations

from pathlib import Path

from krammar.compiler import ir
from krammar.compiler.formatter import format_source
from krammar.compiler.front.source import compile_source
from krammar.util.diagnostics import Diagnostics
from tests.compiler.conftest import Build, write_files

TEXT = """\
Note => not top level, max version 1, flexible v1+
  // Was the colour of the note.
  reserved tag 0
  Text: string
  Author: =>
    Name: string
    Age: int8 // tag 1
    // Were names in other scripts.
    reserved tag 0, 0x2
  Lines: [Line]
  reserved tag 2
  Size: int32 // tag 1

Line => not top level, no encoding
  reserved: int8
  reserved tag 0
"""


def reserved(struct: ir.Struct | None) -> list[int]:
    assert struct is not None
    return [each.tag for each in struct.reserved_tags]


def test_in_every_struct(tmp_path: Path) -> None:
    diagnostics = Diagnostics()
    (found,) = compile_source(write_files(tmp_path, TEXT), diagnostics)

    assert diagnostics.found == []
    note, line = found.files[0].structs
    assert reserved(note) == [0, 2]
    assert reserved(ir.struct_of(note.fields[1].type)) == [0, 2]
    assert reserved(line) == [0]
    assert [each.name for each in line.fields] == ["reserved"]
    assert (note.fields[0].doc, note.fields[1].doc) == ("", "")


def test_the_formatter_leaves_the_lines_in_place() -> None:
    assert format_source(TEXT) == TEXT
    assert format_source(TEXT.replace("  // Was", "// Was").replace("tag 2\n", "tag 2 \n")) == TEXT


def test_a_reserved_tag_of_an_old_peer_is_kept_as_unknown(build: Build) -> None:
    package = build(TEXT)
    # Text "a", author without tags, no lines; then tag 0 with one byte, and tag 1.
    data = bytes.fromhex("02 61  01 00  01  02  00 01 07  01 04 00 00 00 09")
    note = package.Note.decode(data, 1)

    assert (note.text, note.size, note.unknown_tags) == ("a", 9, {0: b"\x07"})
    assert note.encode(1) == data
