"""Every finding, as it is shown: code, place, source line, caret and hint."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Protocol

import pytest

from krammar.compiler.findings import Findings, Position, format_github, format_json, format_text

Files = str | bytes | Mapping[str, str]


class Report(Protocol):
    def __call__(self, files: Files, *, strict: bool = False) -> str: ...


@dataclass(frozen=True)
class Case:
    """Definition files (a text alone is ``a.krm``) and all that is said of them."""

    code: str
    label: str
    files: Files
    shown: str

    def __str__(self) -> str:
        return f"{self.code}: {self.label}"


S = "S => not top level\n"
F = "S => not top level, flexible v0+\n"

# fmt: off
CASES = [
    # text and syntax
    Case("E101", "not UTF-8", S.encode() + b"  A: int8 // \xff\n", """\
p/a.krm:2:14: error E101: byte 0xff is not UTF-8
  |
2 |   A: int8 // �
  |              ^
  = hint: definition files are UTF-8 text"""),
    Case("E102", "a tab as indent", S + "\tA: int8\n", """\
p/a.krm:2:1: error E102: a tab
  |
2 |  A: int8
  | ^
  = hint: definitions are indented with two spaces a level"""),
    Case("E102", "a tab inside a line", S + "  A:\tint8\n", """\
p/a.krm:2:5: error E102: a tab
  |
2 |   A: int8
  |     ^
  = hint: definitions are indented with two spaces a level"""),
    Case("E103", "an odd indent", S + "   A: int8\n", """\
p/a.krm:2:1: error E103: an indent of 3 spaces
  |
2 |    A: int8
  | ^^^
  = hint: a level is two spaces"""),
    Case("E104", "a jump of two levels", S + "  A: =>\n      B: int8\n", """\
p/a.krm:3:1: error E104: an indent that jumps over a level
  |
3 |       B: int8
  | ^^^^^^
  = hint: at most 4 spaces can stand here"""),
    Case("E104", "a field without a definition", "  A: int8\n", """\
p/a.krm:1:1: error E104: an indent that jumps over a level
  |
1 |   A: int8
  | ^^
  = hint: a definition begins at column 1"""),
    Case("E105", "a double space", S + "  A:  int8\n", """\
p/a.krm:2:5: error E105: two spaces where one belongs
  |
2 |   A:  int8
  |     ^^"""),
    Case("E106", "no space after the colon", S + "  A:int8\n", """\
p/a.krm:2:4: error E106: unexpected ":int8": expected ` // ` and an annotation, `: ` and a type, a default in parentheses or the end of the line
  |
2 |   A:int8
  |    ^^^^^
  = hint: a field is written `Name: type`, with one space behind the colon"""),
    Case("E106", "no space before the arrow", "S=> not top level\n  A: int8\n", """\
p/a.krm:1:2: error E106: unexpected "=>": expected ` =>` behind one space or one space
  |
1 | S=> not top level
  |  ^^"""),
    Case("E106", "a type is missing", S + "  A: \n", """\
p/a.krm:2:4: error E106: unexpected ":": expected ` // ` and an annotation, `: ` and a type, a default in parentheses or the end of the line
  |
2 |   A:\x20
  |    ^
  = hint: a field is written `Name: type`, with one space behind the colon

p/a.krm:2:5: warning W901: trailing spaces
  |
2 |   A:\x20
  |     ^"""),
    Case("E106", "an unknown modifier", "S => not top-level\n  A: int8\n", """\
p/a.krm:1:6: error E106: unexpected "not": expected `admin` or a coordinator, `flexible`, `key`, `max version`, `min version`, `no encoding`, `not top level` or `with version field`
  |
1 | S => not top-level
  |      ^^^
  = hint: did you mean "not top level"?"""),
    Case("E106", "a response with a modifier", "ARequest => key 0, max version 0\n\nAResponse => from ARequest\n  A: int8\n", """\
p/a.krm:3:14: error E106: unexpected "from": expected `admin` or a coordinator, `flexible`, `key`, `max version`, `min version`, `no encoding`, `not top level` or `with version field`
  |
3 | AResponse => from ARequest
  |              ^^^^
  = hint: a response has no modifier: it directly follows its request"""),
    Case("E106", "prose behind a type", S + "  A: int8 // the first\n", """\
p/a.krm:2:14: error E106: unexpected "the": expected `not flexible`, `tag` or versions such as `v3+` or `v3-v5`
  |
2 |   A: int8 // the first
  |              ^^^
  = hint: behind a type stands `v3+`, `v3-v5`, `tag 0`, `v8+, tag 0` or `not flexible`; prose goes on a line above"""),
    Case("E106", "no space before an annotation", S + "  A: int8// v1+\n", """\
p/a.krm:2:10: error E106: unexpected "//": expected ` // ` and an annotation, `=>`, `[`, a default in parentheses or the end of the line
  |
2 |   A: int8// v1+
  |          ^^
  = hint: behind a type stands `v3+`, `v3-v5`, `tag 0`, `v8+, tag 0` or `not flexible`; prose goes on a line above"""),
    Case("E106", "a version without a plus", S + "  A: int8 // v3\n", """\
p/a.krm:2:14: error E106: unexpected "v3": expected `not flexible`, `tag` or versions such as `v3+` or `v3-v5`
  |
2 |   A: int8 // v3
  |              ^^
  = hint: behind a type stands `v3+`, `v3-v5`, `tag 0`, `v8+, tag 0` or `not flexible`; prose goes on a line above"""),
    Case("E106", "a default that is not closed", S + "  A: int8(3\n", """\
p/a.krm:2:10: error E106: unexpected "(3": expected ` // ` and an annotation, `=>`, `[`, a default in parentheses or the end of the line
  |
2 |   A: int8(3
  |          ^^"""),
    Case("E106", "an array that is not closed", S + "  A: [int8\n", """\
p/a.krm:2:11: error E106: the line ends too early: expected `]`
  |
2 |   A: [int8
  |           ^"""),
    Case("E106", "an enum that is not closed", "E int8 (\n  0: A\n", """\
p/a.krm:2:7: error E106: the enum ends without its `)`
  |
2 |   0: A
  |       ^
  = hint: it stands on a line of its own, at column 1"""),
    Case("E106", "an enum that is not closed, and more behind it",
         "E int8 (\n  // A.\n  0: A\n\nS => not top level\n  A: enum-E\n\nT => not top level\n  A: strin\n", """\
p/a.krm:3:7: error E106: the enum ends without its `)`
  |
3 |   0: A
  |       ^
  = hint: it stands on a line of its own, at column 1

p/a.krm:9:6: error E204: unknown type "strin"
  |
9 |   A: strin
  |      ^^^^^
  = hint: did you mean "string"?"""),
    Case("E106", "an enum without members", "E int8 (\n)\n", """\
p/a.krm:1:1: error E106: no deeper lines below a line that needs them
  |
1 | E int8 (
  | ^^^^^^^^
  = hint: an enum has members: `0: NAME`"""),
    Case("E106", "a name with a leading underscore", S + "  _A: int8\n", """\
p/a.krm:2:3: error E106: unexpected "_A:": expected a name
  |
2 |   _A: int8
  |   ^^^"""),
    Case("E107", "deeper lines below an enum member", "E int8 (\n  0: A\n    1: B\n  2: C\n)\n", """\
p/a.krm:2:3: error E107: deeper lines below a line that cannot have any
  |
2 |   0: A
  |   ^^^^
  = hint: only a struct field (`=>`, `[=>]`) or a header has deeper lines"""),
    Case("E108", "a leading zero", "ARequest => key 007, max version 0\n", """\
p/a.krm:1:17: error E108: the number 007 begins with 0
  |
1 | ARequest => key 007, max version 0
  |                 ^^^
  = hint: write 7"""),
    Case("E108", "a number that no type holds", F + "  A: int8 // tag 12345678901234567890\n", """\
p/a.krm:2:18: error E108: a number of 20 digits
  |
2 |   A: int8 // tag 12345678901234567890
  |                  ^^^^^^^^^^^^^^^^^^^^"""),
    Case("E109", "brackets nested too deeply", S + "  A: " + "[" * 17 + "int8" + "]" * 17 + "\n", """\
p/a.krm:2:3: error E109: nesting deeper than 16 levels
  |
2 |   A: [[[[[[[[[[[[[[[[[int8]]]]]]]]]]]]]]]]]
  |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = hint: give an inner struct a name of its own"""),
    Case("E106", "a field at the indent of a definition", S + "  A: int8\n\nB: int8\n  C: int8\n", """\
p/a.krm:4:2: error E106: unexpected ":": expected ` =>` behind one space or one space
  |
4 | B: int8
  |  ^"""),
    # names
    Case("E201", "a name defined twice", {"a.krm": S + "  A: int8\n", "b.krm": "S int8 (\n  0: A\n)\n"}, """\
p/b.krm:1:1: error E201: "S" is already defined at a.krm:1
  |
1 | S int8 (
  | ^
  = hint: rename one"""),
    Case("E202", "a field twice", S + "  A: int8\n  A: int16\n", """\
p/a.krm:3:3: error E202: "A" is already a field, at line 2
  |
3 |   A: int16
  |   ^"""),
    Case("E202", "two fields that are one in Python", S + "  TopicID: int8\n  TopicId: int16\n", """\
p/a.krm:3:3: error E202: "TopicId" is already a field, at line 2 (both are `topic_id` in Python)
  |
3 |   TopicId: int16
  |   ^^^^^^^"""),
    Case("E202", "an enum value twice", "E int8 (\n  0: A\n  0: B\n)\n", """\
p/a.krm:3:3: error E202: value 0 is already A
  |
3 |   0: B
  |   ^"""),
    Case("E202", "an enum member twice", "E int8 (\n  0: A\n  1: A\n)\n", """\
p/a.krm:3:6: error E202: "A" is already a member of E
  |
3 |   1: A
  |      ^"""),
    Case("E202", "two members that are one in Python", "E int8 camelcase (\n  0: FooBar\n  1: Foo_Bar\n)\n", """\
p/a.krm:3:6: error E202: "Foo_Bar" and "FooBar" are both FOO_BAR in Python
  |
3 |   1: Foo_Bar
  |      ^^^^^^^"""),
    Case("E202", "a remark that is a member", "E int8 (\n  0: A // retriable\n  1: retriable\n)\n", """\
p/a.krm:2:11: error E202: "retriable" is already a member of E
  |
2 |   0: A // retriable
  |           ^^^^^^^^^"""),
    Case("E203", "a key twice", "ARequest => key 3, max version 0\n\nBRequest => key 3, max version 1\n", """\
p/a.krm:3:17: error E203: key 3 is already that of ARequest (a.krm:1)
  |
3 | BRequest => key 3, max version 1
  |                 ^"""),
    Case("E203", "a tag twice", F + "  A: int8 // tag 0\n  B: int8 // tag 0\n", """\
p/a.krm:3:3: error E203: tag 0 is already that of A (line 2)
  |
3 |   B: int8 // tag 0
  |   ^"""),
    Case("E204", "an unknown type", S + "  A: nullable-sting\n", """\
p/a.krm:2:6: error E204: unknown type "nullable-sting"
  |
2 |   A: nullable-sting
  |      ^^^^^^^^^^^^^^
  = hint: did you mean "nullable-string"?"""),
    Case("E204", "an unknown type that nothing is like", S + "  A: [Xyzzy]\n", """\
p/a.krm:2:7: error E204: unknown type "Xyzzy"
  |
2 |   A: [Xyzzy]
  |       ^^^^^"""),
    Case("E204", "an enum without its prefix", S + "  A: Colour\n\nColour int8 (\n  0: RED\n)\n", """\
p/a.krm:2:6: error E204: unknown type "Colour"
  |
2 |   A: Colour
  |      ^^^^^^
  = hint: did you mean "enum-Colour"?"""),
    Case("E204", "an unknown enum", S + "  A: enum-Color\n\nColour int8 (\n  0: RED\n)\n", """\
p/a.krm:2:6: error E204: unknown enum "Color"
  |
2 |   A: enum-Color
  |      ^^^^^^^^^^
  = hint: did you mean "Colour"?"""),
    Case("E205", "anonymous structs with one name", S + "  Topics: [=>]\n    A: int8\n  Topic: =>\n    A: int8\n", """\
p/a.krm:4:3: error E205: the class "STopic" of this struct is already that of a.krm:2
  |
4 |   Topic: =>
  |   ^^^^^
  = hint: give one of them a name of its own with a hint: `[=>]Hint`"""),
    Case("E205", "an anonymous struct with a definition's name", S + "  Topics: [=>]\n    A: int8\n\nSTopic => not top level\n  A: int8\n", """\
p/a.krm:2:3: error E205: the class "STopic" of this struct is already that of a.krm:5
  |
2 |   Topics: [=>]
  |   ^^^^^^
  = hint: give one of them a name of its own with a hint: `[=>]Hint`"""),
    Case("E206", "a definition called ApiKey", "ARequest => key 0, max version 0\n\nApiKey => not top level\n  A: int8\n", """\
p/a.krm:3:1: error E206: "ApiKey" is the enum of request keys in the generated package
  |
3 | ApiKey => not top level
  | ^^^^^^
  = hint: rename it"""),
    Case("E207", "two files for one module", {"00_a": S + "  A: int8\n", "a.krm": "T => not top level\n  A: int8\n"}, """\
p/a.krm:1:1: error E207: the module of this file, a.py, is already that of 00_a
  |
1 | T => not top level
  | ^
  = hint: rename one of the files"""),
    Case("E208", "a definition in lower case", "point => not top level\n  A: int8\n", """\
p/a.krm:1:1: error E208: "point" cannot be the name of a definition
  |
1 | point => not top level
  | ^^^^^
  = hint: it becomes a Python class: it begins with a capital letter and is no keyword"""),
    Case("E208", "a definition that is a keyword", "None => not top level\n  A: int8\n", """\
p/a.krm:1:1: error E208: "None" cannot be the name of a definition
  |
1 | None => not top level
  | ^^^^
  = hint: it becomes a Python class: it begins with a capital letter and is no keyword"""),
    # versions
    Case("E301", "a negative key", "ARequest => key -1, max version 0\n", """\
p/a.krm:1:17: error E301: a key of -1: it is an int16 that is not negative
  |
1 | ARequest => key -1, max version 0
  |                 ^^"""),
    Case("E301", "a version beyond int16", "ARequest => key 0, max version 32768\n", """\
p/a.krm:1:32: error E301: a version of 32768: it is an int16 that is not negative
  |
1 | ARequest => key 0, max version 32768
  |                                ^^^^^"""),
    Case("E301", "a field's version beyond int16", S + "  A: int8 // v40000+\n", """\
p/a.krm:2:14: error E301: a version of 40000: it is an int16 that is not negative
  |
2 |   A: int8 // v40000+
  |              ^^^^^^^"""),
    Case("E302", "min version above max version", "ARequest => key 0, max version 2, min version 3\n", """\
p/a.krm:1:1: error E302: min version 3 is above max version 2
  |
1 | ARequest => key 0, max version 2, min version 3
  | ^^^^^^^^"""),
    Case("E302", "a field's versions the wrong way round", S + "  A: int8 // v5-v3\n", """\
p/a.krm:2:14: error E302: v5 is above v3
  |
2 |   A: int8 // v5-v3
  |              ^^^^^"""),
    Case("E303", "flexible beyond the highest version", "ARequest => key 0, max version 2, flexible v3+\n", """\
p/a.krm:1:1: error E303: flexible from version 3, but the highest is 2
  |
1 | ARequest => key 0, max version 2, flexible v3+
  | ^^^^^^^^"""),
    Case("E304", "two ranges", S + "  A: int8 // v1+, v2+\n", """\
p/a.krm:2:19: error E304: two annotations of one kind: v2+
  |
2 |   A: int8 // v1+, v2+
  |                   ^^^"""),
    Case("E305", "a negative tag", F + "  A: int8 // tag -1\n", """\
p/a.krm:2:18: error E305: a tag of -1: tags run from 0
  |
2 |   A: int8 // tag -1
  |                  ^^"""),
    Case("E306", "a field beyond its struct", "ARequest => key 0, max version 2\n  A: int8 // v3+\n", """\
p/a.krm:2:14: error E306: v3+ is beyond ARequest, whose highest version is 2
  |
2 |   A: int8 // v3+
  |              ^^^
  = hint: raise `max version`, or end the field's versions there"""),
    Case("E306", "a field that ends beyond its struct", "ARequest => key 0, max version 2\n  A: int8 // v1-v3\n", """\
p/a.krm:2:14: error E306: v1-v3 is beyond ARequest, whose highest version is 2
  |
2 |   A: int8 // v1-v3
  |              ^^^^^
  = hint: raise `max version`, or end the field's versions there"""),
    Case("E306", "a field outside of its holder", S + "  A: [=>] // v3-v5\n    B: int8 // v6+\n", """\
p/a.krm:3:16: error E306: v6+ has no version in common with v3-v5 of the field that holds it
  |
3 |     B: int8 // v6+
  |                ^^^"""),
    Case("E307", "nullable from beyond the field's end", S + "  A: nullable-v5+[int8] // v1-v4\n", """\
p/a.krm:2:6: error E307: nullable from v5, but the field exists only in v1-v4
  |
2 |   A: nullable-v5+[int8] // v1-v4
  |      ^^^^^^^^^^^^
  = hint: the nullable versions must be among the field's"""),
    Case("E307", "nullable from beyond the struct's versions", "ARequest => key 0, max version 2\n  A: nullable-string-v3+\n", """\
p/a.krm:2:6: error E307: nullable from v3, but the field exists only in v0-v2
  |
2 |   A: nullable-string-v3+
  |      ^^^^^^^^^^^^^^^^^^^
  = hint: the nullable versions must be among the field's"""),
    Case("E308", "a tag without flexibility", S + "  A: int8 // tag 0\n", """\
p/a.krm:2:3: error E308: "A" has a tag, but S is flexible in no version
  |
2 |   A: int8 // tag 0
  |   ^
  = hint: add `flexible vN+` to the header"""),
    Case("E309", "a tag that is not flexible", F + "  A: int8 // tag 0, not flexible\n", """\
p/a.krm:2:3: error E309: "A" is tagged and not flexible
  |
2 |   A: int8 // tag 0, not flexible
  |   ^"""),
    Case("E310", "a gap in tags", F + "  A: int8 // tag 0\n  B: int8 // tag 2\n", """\
p/a.krm:3:3: error E310: tag 1 is missing: tags run from 0 without a gap
  |
3 |   B: int8 // tag 2
  |   ^"""),
    # types and defaults
    Case("E401", "a name without a type", S + "  ThrottelMillis\n", """\
p/a.krm:2:3: error E401: "ThrottelMillis" has no type
  |
2 |   ThrottelMillis
  |   ^^^^^^^^^^^^^^
  = hint: did you mean "ThrottleMillis"?"""),
    Case("E401", "a name like no shorthand", S + "  Name\n", """\
p/a.krm:2:3: error E401: "Name" has no type
  |
2 |   Name
  |   ^^^^
  = hint: write `Name: type`"""),
    Case("E401", "a prefix that arrays do not have", S + "  A: nulable[int8]\n", """\
p/a.krm:2:6: error E401: "nulable" cannot stand before `[`
  |
2 |   A: nulable[int8]
  |      ^^^^^^^
  = hint: did you mean "nullable"?"""),
    Case("E401", "a prefix that structs do not have", S + "  A: varint=>\n    B: int8\n", """\
p/a.krm:2:6: error E401: "varint" cannot stand before `=>`
  |
2 |   A: varint=>
  |      ^^^^^^
  = hint: only `nullable=>` exists"""),
    Case("E401", "a hint where nothing is anonymous", S + "  A: [int8]Hint\n", """\
p/a.krm:2:12: error E401: a hint belongs to an array of anonymous structs
  |
2 |   A: [int8]Hint
  |            ^^^^"""),
    Case("E402", "a default beyond its integer", S + "  A: int8(128)\n", """\
p/a.krm:2:10: error E402: the default "128" does not fit int8
  |
2 |   A: int8(128)
  |          ^^^^^
  = hint: it holds -128 to 127"""),
    Case("E402", "a default that is no integer", S + "  A: varint(1.5)\n", """\
p/a.krm:2:12: error E402: the default "1.5" does not fit varint
  |
2 |   A: varint(1.5)
  |            ^^^^^
  = hint: it holds -2147483648 to 2147483647"""),
    Case("E402", "a default that is no bool", S + "  A: bool(yes)\n", """\
p/a.krm:2:10: error E402: the default "yes" does not fit bool
  |
2 |   A: bool(yes)
  |          ^^^^^
  = hint: it is true or false"""),
    Case("E402", "null where there is none", S + "  A: string(null)\n", """\
p/a.krm:2:12: error E402: the default "null" does not fit string
  |
2 |   A: string(null)
  |            ^^^^^^
  = hint: only a nullable type has null"""),
    Case("E402", "a default of an array", S + "  A: [int8](1)\n", """\
p/a.krm:2:12: error E402: the default "1" does not fit an array
  |
2 |   A: [int8](1)
  |            ^^^
  = hint: an array's default is empty, or null"""),
    Case("E402", "a default of a struct", S + "  A: =>(1)\n    B: int8\n", """\
p/a.krm:2:8: error E402: the default "1" does not fit the struct SA
  |
2 |   A: =>(1)
  |        ^^^"""),
    Case("E402", "a default of a nullable struct", S + "  A: nullable=>(1)\n    B: int8\n", """\
p/a.krm:2:16: error E402: the default "1" does not fit the struct SA
  |
2 |   A: nullable=>(1)
  |                ^^^
  = hint: it is `(null)`, or `()` for a struct of defaults"""),
    Case("E402", "a default of bytes", S + "  A: bytes(abc)\n", """\
p/a.krm:2:11: error E402: the default "abc" does not fit bytes
  |
2 |   A: bytes(abc)
  |           ^^^^^"""),
    Case("E402", "a default of a uuid", S + "  A: uuid(abc)\n", """\
p/a.krm:2:10: error E402: the default "abc" does not fit uuid
  |
2 |   A: uuid(abc)
  |          ^^^^^"""),
    Case("E402", "a default beyond its enum's type", S + "  A: enum-E(200)\n\nE int8 (\n  0: A\n)\n", """\
p/a.krm:2:12: error E402: the default "200" does not fit enum-E (int8)
  |
2 |   A: enum-E(200)
  |            ^^^^^"""),
    Case("E402", "an enum value beyond its type", "E int8 (\n  128: A\n)\n", """\
p/a.krm:2:3: error E402: 128 does not fit into int8
  |
2 |   128: A
  |   ^^^"""),
    Case("E403", "an enum of no integer", "E string (\n  0: A\n)\n", """\
p/a.krm:1:3: error E403: "string" cannot be the type of an enum
  |
1 | E string (
  |   ^^^^^^
  = hint: it is one of int8, int16, int32, int64, uint16, uint32"""),
    Case("E403", "an enum of a misspelt integer", "E init8 (\n  0: A\n)\n", """\
p/a.krm:1:3: error E403: "init8" cannot be the type of an enum
  |
1 | E init8 (
  |   ^^^^^
  = hint: did you mean "int8"?"""),
    # structure
    Case("E501", "a version field that is not first", "S => not top level, with version field\n  A: int8\n  Version: int16\n", """\
p/a.krm:2:3: error E501: the first field is not the version
  |
2 |   A: int8
  |   ^
  = hint: its first field is `Version: int16`, in every version"""),
    Case("E501", "a version field that is not int16", "S => not top level, with version field\n  Version: int32\n", """\
p/a.krm:2:3: error E501: the version field is not a plain int16
  |
2 |   Version: int32
  |   ^^^^^^^
  = hint: its first field is `Version: int16`, in every version"""),
    Case("E501", "no version field", "S => not top level, with version field\n\nT => not top level\n  A: int8\n", """\
p/a.krm:1:1: error E501: S has no version field
  |
1 | S => not top level, with version field
  | ^
  = hint: its first field is `Version: int16`, in every version"""),
    Case("E502", "a modifier twice", "ARequest => key 0, max version 0, max version 1\n", """\
p/a.krm:1:47: error E502: `max version` stands twice
  |
1 | ARequest => key 0, max version 0, max version 1
  |                                               ^"""),
    Case("E502", "top level and not", "S => not top level, key 0, max version 0\n  A: int8\n", """\
p/a.krm:1:1: error E502: `not top level` and `key` exclude each other: a request is top level
  |
1 | S => not top level, key 0, max version 0
  | ^"""),
    Case("E502", "not top level, but not first", "S => no encoding, not top level\n  A: int8\n", """\
p/a.krm:1:1: error E502: `not top level` is the first modifier
  |
1 | S => no encoding, not top level
  | ^"""),
    Case("E502", "a version field without encoding", "S => not top level, with version field, no encoding\n  Version: int16\n", """\
p/a.krm:1:1: error E502: `with version field` and `no encoding` exclude each other
  |
1 | S => not top level, with version field, no encoding
  | ^"""),
    Case("E502", "routing of no request", "S => not top level, admin\n  A: int8\n", """\
p/a.krm:1:1: error E502: `admin` belongs to a request
  |
1 | S => not top level, admin
  | ^"""),
    Case("E502", "neither key nor not top level", "S => flexible v1+\n  A: int8\n", """\
p/a.krm:1:1: error E502: modifiers without `key` or `not top level`
  |
1 | S => flexible v1+
  | ^
  = hint: a request has `key N, max version N`; any other struct says `not top level` first"""),
    Case("E502", "max version before key", "ARequest => max version 1, key 0\n", """\
p/a.krm:1:1: error E502: a request's first two modifiers are `key` and `max version`
  |
1 | ARequest => max version 1, key 0
  | ^^^^^^^^
  = hint: write `key N, max version N`, then the others"""),
    Case("E502", "a request without max version", "ARequest => key 0\n", """\
p/a.krm:1:1: error E502: a request's first two modifiers are `key` and `max version`
  |
1 | ARequest => key 0
  | ^^^^^^^^
  = hint: write `key N, max version N`, then the others"""),
    Case("E502", "a request without encoding", "ARequest => key 0, max version 0, no encoding\n", """\
p/a.krm:1:1: error E502: `with version field` and `no encoding` need `not top level`
  |
1 | ARequest => key 0, max version 0, no encoding
  | ^^^^^^^^"""),
    Case("E503", "a response without request", "AResponse =>\n  A: int8\n", """\
p/a.krm:1:1: error E503: "AResponse" is a response without its request "ARequest"
  |
1 | AResponse =>
  | ^^^^^^^^^
  = hint: say `not top level` if it is no response"""),
    Case("E503", "a response of a misspelt request", "FetchRequest => key 0, max version 0\n\nFecthResponse =>\n  A: int8\n", """\
p/a.krm:3:1: error E503: "FecthResponse" is a response without its request "FecthRequest"
  |
3 | FecthResponse =>
  | ^^^^^^^^^^^^^
  = hint: did you mean "FetchRequest"?"""),
    Case("E503", "a response not right behind its request", "ARequest => key 0, max version 0\n\nS => not top level\n  A: int8\n\nAResponse =>\n  A: int8\n", """\
p/a.krm:6:1: error E503: "AResponse" does not directly follow "ARequest"
  |
6 | AResponse =>
  | ^^^^^^^^^
  = hint: put it right behind ARequest (a.krm:1)"""),
    Case("E503", "a response in another file", {"a.krm": "ARequest => key 0, max version 0\n", "b.krm": "AResponse =>\n  A: int8\n"}, """\
p/b.krm:1:1: error E503: "AResponse" does not directly follow "ARequest"
  |
1 | AResponse =>
  | ^^^^^^^^^
  = hint: put it right behind ARequest (a.krm:1)"""),
    Case("E504", "a struct in itself", S + "  A: [S]\n", """\
p/a.krm:1:1: error E504: S contains itself: S → S
  |
1 | S => not top level
  | ^"""),
    Case("E504", "a struct in itself by another", "A => not top level\n  B: B\n\nB => not top level\n  C: nullable[C]\n\nC => not top level\n  A: A\n", """\
p/a.krm:1:1: error E504: A contains itself: A → B → C → A
  |
1 | A => not top level
  | ^"""),
    Case("E505", "a struct without fields", S + "  A: [=>]\n  B: int8\n", """\
p/a.krm:2:7: error E505: the struct of "A" has no fields
  |
2 |   A: [=>]
  |       ^^"""),
    Case("E505", "deeper lines below a field that has none", S + "  A: int8\n    B: int8\n  C: int8\n", """\
p/a.krm:2:3: error E505: "A" has deeper fields, but its type is no anonymous struct
  |
2 |   A: int8
  |   ^
  = hint: write `=>` or `[=>]` as the type"""),
    Case("E505", "deeper lines below a shorthand", S + "  TimeoutMillis\n    B: int8\n", """\
p/a.krm:2:3: error E505: "TimeoutMillis" has deeper fields, but its type is no anonymous struct
  |
2 |   TimeoutMillis
  |   ^^^^^^^^^^^^^
  = hint: write `=>` or `[=>]` as the type"""),
    Case("E306", "a shorthand beyond its struct", "ARequest => key 0, max version 2\n  ThrottleMillis // v3+\n", """\
p/a.krm:2:21: error E306: v3+ is beyond ARequest, whose highest version is 2
  |
2 |   ThrottleMillis // v3+
  |                     ^^^
  = hint: raise `max version`, or end the field's versions there"""),
    Case("E506", "a length that is not there", S + "  A: length-field-minus => Length - 4\n", """\
p/a.krm:2:3: error E506: "A" takes its length from a field that does not stand before it
  |
2 |   A: length-field-minus => Length - 4
  |   ^
  = hint: name an earlier integer field of the same struct"""),
    Case("E506", "a length that comes later", S + "  A: length-field-minus => Length - 4\n  Length: int32\n", """\
p/a.krm:2:3: error E506: "A" takes its length from a field that does not stand before it
  |
2 |   A: length-field-minus => Length - 4
  |   ^
  = hint: name an earlier integer field of the same struct"""),
    Case("E506", "a length that is no integer", S + "  Length: string\n  A: length-field-minus => Length - 4\n", """\
p/a.krm:3:3: error E506: "A" takes its length from "Length", which is no integer
  |
3 |   A: length-field-minus => Length - 4
  |   ^"""),
    Case("E506", "a length that is not in every version", S + "  Length: int32 // v1+\n  A: length-field-minus => Length - 4\n", """\
p/a.krm:3:3: error E506: "Length" is not in every version of "A"
  |
3 |   A: length-field-minus => Length - 4
  |   ^"""),
    Case("E506", "a length of two fields", S + "  Length: int32\n  A: length-field-minus => Length - 4\n  B: length-field-minus => Length - 4\n", """\
p/a.krm:4:3: error E506: "Length" is already the length of "A"
  |
4 |   B: length-field-minus => Length - 4
  |   ^"""),
    Case("E506", "a tagged one", F + "  Length: int32\n  A: length-field-minus => Length - 4 // tag 0\n", """\
p/a.krm:3:3: error E506: a length-field-minus field cannot be tagged
  |
3 |   A: length-field-minus => Length - 4 // tag 0
  |   ^"""),
    Case("E507", "arrays within arrays by way of named structs", S + "  A: " + "[" * 9 + "T" + "]" * 9 + "\n\nT => not top level\n  B: " + "[" * 9 + "int8" + "]" * 9 + "\n", """\
p/a.krm:2:3: error E507: "A" holds more than 16 arrays or nullable structs in each other
  |
2 |   A: [[[[[[[[[T]]]]]]]]]
  |   ^"""),
    Case("E507", "a long chain of structs", "".join(f"S{i} => not top level\n  A: S{i + 1}\n\n" for i in range(40)) + "S40 => not top level\n  A: int8\n", """\
p/a.krm:100:1: error E507: structs hold each other 32 deep: S0 → S1 → S2 → …
    |
100 | S33 => not top level
    | ^^^"""),
    # style
    Case("W901", "trailing spaces", S + "  A: int8  \n", """\
p/a.krm:2:10: warning W901: trailing spaces
  |
2 |   A: int8 \x20
  |          ^^"""),
    Case("W902", "two blank lines", S + "  A: int8\n\n\nT => not top level\n  A: int8\n", """\
p/a.krm:4:1: warning W902: more than one blank line
  |
4 |\x20
  | ^"""),
    Case("W903", "a blank line at the start", "\n" + S + "  A: int8\n", """\
p/a.krm:1:1: warning W903: a blank line at the start of the file
  |
1 |\x20
  | ^"""),
    Case("W903", "a blank line at the end", S + "  A: int8\n\n", """\
p/a.krm:3:1: warning W903: a blank line at the end of the file
  |
3 |\x20
  | ^"""),
    Case("W904", "no final newline", S + "  A: int8", """\
p/a.krm:2:10: warning W904: the file does not end with a newline
  |
2 |   A: int8
  |          ^"""),
    Case("W905", "no blank line between definitions", S + "  A: int8\nT => not top level\n  A: int8\n", """\
p/a.krm:3:1: warning W905: no blank line between two definitions
  |
3 | T => not top level
  | ^"""),
    Case("W906", "a blank line inside of a definition", S + "  A: int8\n\n  B: int8\n", """\
p/a.krm:3:1: warning W906: a blank line inside a definition
  |
3 |\x20
  | ^"""),
    Case("W907", "a byte order mark", b"\xef\xbb\xbf" + (S + "  A: int8\n").encode(), """\
p/a.krm:1:1: warning W907: the file begins with a byte order mark
  |
1 | S => not top level
  | ^"""),
    Case("W908", "Windows' line ends", (S + "  A: int8\n").replace("\n", "\r\n"), """\
p/a.krm:1:1: warning W908: lines end in \\r\\n, not \\n
  |
1 | S => not top level
  | ^"""),
    Case("W909", "a comment that is not aligned", S + "// The first.\n  A: int8\n", """\
p/a.krm:2:1: warning W909: a comment that is not aligned with what it documents
  |
2 | // The first.
  | ^^"""),
]
# fmt: on


@pytest.mark.parametrize("case", CASES, ids=str)
def test_finding(report: Report, case: Case) -> None:
    assert report(case.files) == case.shown
    assert f" {case.code}: " in case.shown


def test_every_code_is_shown_above() -> None:
    folder = Path(str(resources.files("krammar.compiler")))
    sources = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    codes = set(re.findall(r'"([EW]\d{3})"', sources))

    assert codes == {case.code for case in CASES}


def test_all_findings_of_a_run_are_reported(report: Report) -> None:
    shown = report(
        {
            "a.krm": (
                "ARequest => key 0, max version 1\n"
                "  A: strin\n"
                "  B: int8(300)\n"
                "  C int8\n"
                "  D: [=>] // v2+\n"
                "    E:  int8\n"
                "\n"
                "\n"
                "BRequest => key 0, max version x\n"
                "  A: int8\n"
            ),
            "b.krm": "C => not top level\n  A: D\n  B: int8\n  B: int8",
        }
    )

    assert re.findall(r"^p/(\S+): (?:error|warning) (\w+)", shown, re.MULTILINE) == [
        ("a.krm:2:6", "E204"),
        ("a.krm:3:10", "E402"),
        ("a.krm:4:4", "E106"),
        ("a.krm:5:14", "E306"),
        ("a.krm:6:7", "E105"),
        ("a.krm:8:1", "W902"),
        ("a.krm:9:32", "E106"),
        ("b.krm:2:6", "E204"),
        ("b.krm:4:3", "E202"),
        ("b.krm:4:10", "W904"),
    ]


def test_a_broken_line_is_reported_once(report: Report) -> None:
    """Neither what holds it nor what uses it is reported as well."""
    shown = report(
        "A => not top levl\n"
        "  A: int8\n"
        "\n"
        "B => not top level\n"
        "  A: A\n"
        "  B: [=>]\n"
        "    // Broken.\n"
        "    C int8\n"
        "\n"
        "Colour int8 (\n"
        "  red\n"
        ")\n"
        "\n"
        "ERequest => key 0 max version 0\n"
        "  A: int8\n"
        "\n"
        "EResponse =>\n"
        "  A: enum-Colour\n"
    )

    places = re.findall(r"^p/a.krm:(\d+):\d+: error (\w+)", shown, re.MULTILINE)
    assert places == [("1", "E106"), ("8", "E106"), ("11", "E106"), ("14", "E106")]


def test_strict_makes_style_an_error(report: Report) -> None:
    text = S + "  A: int8"

    assert "p/a.krm:2:10: warning W904" in report(text)
    assert "p/a.krm:2:10: error W904" in report(text, strict=True)


def found() -> Findings:
    findings = Findings()
    findings.add_source(Path("p/a,b.krm"), "S => not top level\n  A: nullable-sting\n")
    findings.add(
        "E204",
        'unknown type "nullable-sting" (100%)',
        Position(Path("p/a,b.krm"), 2, 6, 14),
        'did you mean "nullable-string"?',
    )
    findings.add("W904", "the file does not end\nwith a newline", Position(Path("b"), 9, 3))
    return findings


def test_json_format() -> None:
    assert json.loads(format_json(found().sorted())) == [
        {
            "code": "W904",
            "severity": "warning",
            "path": "b",
            "line": 9,
            "column": 3,
            "length": 1,
            "message": "the file does not end\nwith a newline",
            "source": "",
            "hint": None,
        },
        {
            "code": "E204",
            "severity": "error",
            "path": "p/a,b.krm",
            "line": 2,
            "column": 6,
            "length": 14,
            "message": 'unknown type "nullable-sting" (100%)',
            "source": "  A: nullable-sting",
            "hint": 'did you mean "nullable-string"?',
        },
    ]
    assert json.loads(format_json(found().sorted(), strict=True))[0]["severity"] == "error"
    assert json.loads(format_json([])) == []


def test_github_format() -> None:
    assert format_github(found().sorted()).split("\n") == [
        "::warning file=b,line=9,col=3,endColumn=3,title=krammar W904"
        "::the file does not end%0Awith a newline",
        "::error file=p/a%2Cb.krm,line=2,col=6,endColumn=19,title=krammar E204"
        '::unknown type "nullable-sting" (100%25) (did you mean "nullable-string"?)',
    ]
    assert format_github(found().sorted(), strict=True).startswith("::error file=b,")


def test_a_finding_is_listed_once() -> None:
    findings = found()
    findings.merge(found())

    assert len(findings.found) == 2
    assert findings.has_errors
    assert findings.has_style
    findings.keep_errors()
    assert not findings.has_style


def test_text_format_lines_up_below_long_line_numbers() -> None:
    findings = Findings()
    findings.add_source(Path("a"), "\n" * 99 + "S =>  x\n")
    findings.add("E105", "two spaces", Position(Path("a"), 100, 5, 2), "one")

    assert format_text(findings.sorted()) == (
        "a:100:5: error E105: two spaces\n"
        "    |\n"
        "100 | S =>  x\n"
        "    |     ^^\n"
        "    = hint: one"
    )
