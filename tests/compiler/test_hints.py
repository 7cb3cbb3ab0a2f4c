"""Hints for habits from other languages: the line as definitions spell it, and its quick fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from krammar.compiler import ir
from krammar.compiler.front import type_hints
from krammar.compiler.front.source import compile_texts
from krammar.util.diagnostics import Diagnostic, Diagnostics

HEADER = "PingRequest => key 0, max version 3, flexible v1+"
ENUM = "Kind int8 ("


def text(
    field: str = "  A: int8", header: str = HEADER, enum: str = ENUM, member: str = "  0: A"
) -> str:
    return f"{enum}\n{member}\n)\n\n{header}\n{field}\n\nPingResponse =>\n  Kind: enum-Kind\n"


def errors(definitions: str) -> list[Diagnostic]:
    diagnostics = Diagnostics()
    compile_texts("p", {Path("a.krm"): definitions.encode()}, diagnostics)
    return [each for each in diagnostics.sorted() if each.code.startswith("E")]


def fixed(definitions: str, error: Diagnostic) -> str:
    """The definitions after the quick fix of an error."""
    assert error.fix is not None, error
    at = error.fix.position
    lines = definitions.split("\n")
    line = lines[at.line - 1]
    lines[at.line - 1] = line[: at.column - 1] + error.fix.text + line[at.column - 1 + at.length :]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("A: []int32", "A: [int32]"),
        ("A: int32[]", "A: [int32]"),
        ("A: list<int32>", "A: [int32]"),
        ("A: List<String> // v1+", "A: [string] // v1+"),
        ("A: array<[]long>", "A: [[int64]]"),
        ("A: repeated string", "A: [string]"),
        ("A: string?", "A: nullable-string"),
        ("A: ?string", "A: nullable-string"),
        ("A: nullable string", "A: nullable-string"),
        ("A: optional bytes", "A: nullable-bytes"),
        ("A: string | null", "A: nullable-string"),
        ("A: nullable<list<int32>>", "A: nullable[int32]"),
        ("A: [string]?", "A: nullable[string]"),
        ("A: nullable-[string]", "A: nullable[string]"),
        ("A: int8 = 3", "A: int8(3)"),
        ("A: string = 'abc' // v1+", "A: string(abc) // v1+"),
        ("A: nullable-string default null", "A: nullable-string(null)"),
        ("A: short = 3;", "A: int16(3)"),
        ("A: int8;", "A: int8"),
        ("A: int8, // v1+", "A: int8 // v1+"),
        ("A:int8", "A: int8"),
        ("A : int8", "A: int8"),
        ("A int8", "A: int8"),
        ("A = int8", "A: int8"),
        ("A => int8", "A: int8"),
        ("A -> int8", "A: int8"),
        ("int8 A", "A: int8"),
        ("long A", "A: int64"),
        ("string name", "name: string"),
        ('"A": int8', "A: int8"),
        ("A: int8 # v1+", "A: int8 // v1+"),
        ("A: int8 /* v1+ */", "A: int8 // v1+"),
        ("A: int8 //v1+", "A: int8 // v1+"),
        ("A: int8 <tag: 0>", "A: int8 // tag 0"),
        ("A: int8 // 1+", "A: int8 // v1+"),
        ("A: int8 // since 1", "A: int8 // v1+"),
        ("A: int8 // versions: 1-2", "A: int8 // v1-v2"),
        ("A: int8 // v1..v2", "A: int8 // v1-v2"),
        ("A: int8 // tag: 0", "A: int8 // tag 0"),
        ("A: int8 // v1+, ignoreable", "A: int8 // v1+, ignorable"),
        ("A: string // entityType=topicName", "A: string // entity topicName"),
        ("A: string // non-flexible", "A: string // not flexible"),
    ],
)
def test_fields(wrong: str, right: str) -> None:
    definitions = text(f"  {wrong}")
    first = errors(definitions)[0]
    assert (first.code, first.hint.endswith(f"write `{right}`")) == ("E106", True), first.hint
    assert fixed(definitions, first) == text(f"  {right}")
    # What is left is at most a type of another language.
    assert {each.code for each in errors(text(f"  {right}"))} <= {"E204"}


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("A: [->]", "A: [=>]"),
        ("A: ⇒", "A: =>"),
        ("A =>", "A: =>"),
        ("A: {", "A: =>"),
        ("A: => Part", "A: =>Part"),
        ("A: [=>] Part", "A: [=>]Part"),
        ("A: [=> Part]", "A: [=>Part]"),
    ],
)
def test_structs_in_fields(wrong: str, right: str) -> None:
    definitions = text(f"  {wrong}\n    B: int8")
    assert errors(fixed(definitions, errors(definitions)[0])) == []
    assert fixed(definitions, errors(definitions)[0]) == text(f"  {right}\n    B: int8")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("PingRequest -> key 0, max version 2", "PingRequest => key 0, max version 2"),
        ("PingRequest ⇒ key 0, max version 2", "PingRequest => key 0, max version 2"),
        ("PingRequest = key 0, max version 2", "PingRequest => key 0, max version 2"),
        ("PingRequest: key 0, max version 2", "PingRequest => key 0, max version 2"),
        ("PingRequest=> key 0, max version 2", "PingRequest => key 0, max version 2"),
        ("struct PingRequest => key 0, max version 2 {", "PingRequest => key 0, max version 2"),
        ("PingRequest => key 0, Version: 0-2", "PingRequest => key 0, max version 2"),
        (
            "PingRequest => key 0, versions 1-2",
            "PingRequest => key 0, max version 2, min version 1",
        ),
        ("PingRequest => apiKey: 0, maxVersion=2", "PingRequest => key 0, max version 2"),
        ("PingRequest => key 0, max version v2;", "PingRequest => key 0, max version 2"),
        (
            "PingRequest => key 0, max version 2, flexibleVersions: 1+",
            "PingRequest => key 0, max version 2, flexible v1+",
        ),
        (
            "PingRequest => key 0, max version 2, flexible v1",
            "PingRequest => key 0, max version 2, flexible v1+",
        ),
        (
            "PingRequest => key 0, max version 2, admni",
            "PingRequest => key 0, max version 2, admin",
        ),
    ],
)
def test_headers(wrong: str, right: str) -> None:
    definitions = text(header=wrong)
    first = errors(definitions)[0]
    assert fixed(definitions, first) == text(header=right)
    assert errors(text(header=right)) == []


@pytest.mark.parametrize("wrong", ["A = 0", "A: 0", "A 0", "0 = A", "0 A", "0: A,", "0:A"])
def test_members(wrong: str) -> None:
    definitions = text(member=f"  {wrong}")
    first = errors(definitions)[0]
    assert first.hint.endswith("write `0: A`")
    assert fixed(definitions, first) == text()


@pytest.mark.parametrize(
    "wrong", ["enum Kind int8 (", "Kind: int8 (", "Kind int8 {", "enum Kind : int8 {"]
)
def test_enums(wrong: str) -> None:
    definitions = text(enum=wrong)
    assert fixed(definitions, errors(definitions)[0]) == text()


@pytest.mark.parametrize(
    ("type", "hint"),
    [
        ("byte", 'did you mean "int8"?'),
        ("Uint16", 'did you mean "uint16"?'),
        ("u64", 'did you mean "uint64"?'),
        ("uint128", "no type has this size"),
        ("string", "use one of int8, int16, int32, int64, uint8, uint16, uint32, uint64"),
    ],
)
def test_types_of_enums(type: str, hint: str) -> None:
    (error,) = errors(text(enum=f"Kind {type} ("))
    assert (error.code, error.hint.startswith(hint)) == ("E403", True)


def test_braces_below_a_definition() -> None:
    hints = [each.hint for each in errors(text(enum="Kind int8 {").replace("\n)\n", "\n}\n"))]
    assert "`)` ends an enum" in hints
    hints = [each.hint for each in errors(text() + "\nPart => not top level {\n  A: int8\n}\n")]
    assert hints == [
        "no brace opens a struct: write `Part => not top level`",
        "the indent shows where a struct ends: remove the brace",
    ]


@pytest.mark.parametrize(
    ("type", "hint"),
    [
        ("half", "no type is a float of 16 bits"),
        ("uint128", "no type has this size"),
        ("[]uint128", "no type has this size"),
        ("int32?", "only strings, bytes, arrays and structs can be null"),
        ("nullable-uuid", "only strings, bytes, arrays and structs can be null"),
        ("map<string, int32>", "write an array of structs"),
        ("timestamp", "a time is an integer"),
        ("object", "write `=>`, and the fields on deeper lines"),
        ("int48", ""),
    ],
)
def test_types_that_do_not_exist_get_no_other_type(type: str, hint: str) -> None:
    (error,) = errors(text(f"  A: {type}"))
    assert error.hint.startswith(hint) and bool(error.hint) == bool(hint)
    assert error.fix is None


@pytest.mark.parametrize(
    ("type", "right"),
    [
        ("byte", "int8"),
        ("INT32", "int32"),
        ("Long", "int64"),
        ("u8", "uint8"),
        ("UBYTE", "uint8"),
        ("u16", "uint16"),
        ("ulong", "uint64"),
        ("FLOAT32", "float32"),
        ("float", "float32"),
        ("f32", "float32"),
        ("double", "float64"),
        ("unsigned_varint", "uvarint"),
        ("varuint64", "uvarlong"),
        ("Boolean", "bool"),
        ("str", "string"),
        ("COMPACT_NULLABLE_STRING", "nullable-string"),
        ("NULLABLE_BYTES", "nullable-bytes"),
        ("records", "bytes"),
        ("GUID", "uuid"),
        ("itn32", "int32"),
        ("int9", "int8"),
        ("Kind", "enum-Kind"),
    ],
)
def test_types_of_other_languages(type: str, right: str) -> None:
    definitions = text(f"  A: {type}")
    (error,) = errors(definitions)
    assert error.hint == f'did you mean "{right}"?'
    assert fixed(definitions, error) == text(f"  A: {right}")


@pytest.mark.parametrize(
    "line", ["int32 a = 1;", "optional string A = 2", "A: int32 // v3, the size"]
)
def test_lines_with_several_meanings_have_no_replacement(line: str) -> None:
    (error,) = errors(text(f"  {line}"))
    assert (error.code, error.fix) == ("E106", None)


def test_a_nullable_struct_with_a_name() -> None:
    part = "\nPart => not top level\n  B: int8\n"
    assert errors(text("  A: nullable-Part") + part) == []
    (error,) = errors(text("  A: nullable-Prt") + part)
    assert (error.code, error.hint) == ("E204", 'did you mean "Part"?')
    assert fixed(text("  A: nullable-Prt") + part, error) == text("  A: nullable-Part") + part
    (error,) = errors(text("  A: nullable-Kind"))
    assert error.code == "E405"


@pytest.mark.parametrize(
    ("type", "hint"),
    [
        ("union", "no field has one of several types"),
        ("oneof", "no field has one of several types"),
        ("bits", "fields begin at bytes"),
        ("bitfield", "fields begin at bytes"),
        ("cstring", "no string ends with a zero byte"),
        ("c_string", "no string ends with a zero byte"),
        ("int32le", "numbers are big-endian"),
        ("u16_le", "numbers are big-endian"),
        ("uint16-string", "a length is an int16, an int32, a varint or a uvarint"),
        ("int8-bytes", "a length is an int16, an int32, a varint or a uvarint"),
        ("int16-string-v3+", "only null can depend on the version"),
    ],
)
def test_forms_that_are_left_out(type: str, hint: str) -> None:
    (error,) = errors(text(f"  A: {type}"))
    assert error.hint.startswith(hint), error.hint


def test_annotations_that_are_part_of_the_type() -> None:
    (error,) = errors(text("  A: string // nullable v3+"))
    assert error.hint.startswith("null is a part of the type")
    (error,) = errors(text("  A: int8 // default 3"))
    assert error.hint.startswith("a default is in parentheses")


def test_a_hint_never_changes_the_size_of_a_type() -> None:
    widths = {name: type_.width for name, type_ in ir.PRIMITIVES.items()}
    known = [*ir.PRIMITIVES, *ir.VARINTS]
    hinted = []
    for bits in range(8, 130, 8):
        for word in (
            f"int{bits}",
            f"uint{bits}",
            f"Int{bits}",
            f"UINT{bits}",
            f"float{bits}",
            f"u{bits}",
            f"i{bits}",
        ):
            right = type_hints.spelled(word) or type_hints.similar_type(word, known)
            if right in widths:
                assert widths[right] * 8 == bits, (word, right)
                assert right.startswith("u") == word.lower().startswith("u"), (word, right)
                hinted.append(word)
    assert {"i32", "Int64", "float64", "UINT32"} <= set(hinted)


@pytest.mark.parametrize(
    "line",
    [
        "  A: " + "list<" * 5000,
        "  A: " + "[" * 15 + "x",
        "  " + "A = " * 5000,
        "  A: " + "?" * 5000,
    ],
)
def test_hostile_lines(line: str) -> None:
    assert errors(text(line))
