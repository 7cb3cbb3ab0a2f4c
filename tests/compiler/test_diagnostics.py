"""Every diagnostic, as it is shown: code, place, source line, caret and hint."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pytest

from krammar.util.diagnostics import (
    Diagnostics,
    Position,
    format_github,
    format_json,
    format_text,
)
from tests.compiler.conftest import Report

Files = str | bytes | Mapping[str, str]


@dataclass(frozen=True)
class Case:
    """Definition files (a single text is ``a.krm``) and their complete diagnostics."""

    code: str
    label: str
    files: Files
    shown: str

    def __str__(self) -> str:
        return f"{self.code}: {self.label}"


S = "S => not top level\n"
F = "S => not top level, flexible v0+\n"
P = "PingRequest => key 0, max version 0\n  A: int8\n"

# fmt: off
CASES = [
    # text and syntax
    Case("E101", "not UTF-8", S.encode() + b"  A: int8 // \xff\n", """\
p/a.krm:2:14: error E101: byte 0xff is not UTF-8
  |
2 |   A: int8 // �
  |              ^
  = hint: save the file as UTF-8"""),
    Case("E102", "a tab as indent", S + "\tA: int8\n", """\
p/a.krm:2:1: error E102: a tab
  |
2 |  A: int8
  | ^
  = hint: indent each level with two spaces"""),
    Case("E102", "a tab inside a line", S + "  A:\tint8\n", """\
p/a.krm:2:5: error E102: a tab
  |
2 |   A: int8
  |     ^
  = hint: indent each level with two spaces"""),
    Case("E103", "an odd indent", S + "   A: int8\n", """\
p/a.krm:2:1: error E103: an indent of 3 spaces
  |
2 |    A: int8
  | ^^^
  = hint: indent each level with two spaces"""),
    Case("E104", "a jump of two levels", S + "  A: =>\n      B: int8\n", """\
p/a.krm:3:1: error E104: an indent of more than one level at once
  |
3 |       B: int8
  | ^^^^^^
  = hint: at most 4 spaces are allowed here"""),
    Case("E104", "a field without a definition", "  A: int8\n", """\
p/a.krm:1:1: error E104: an indent of more than one level at once
  |
1 |   A: int8
  | ^^
  = hint: a definition begins at column 1"""),
    Case("E105", "a double space", S + "  A:  int8\n", """\
p/a.krm:2:5: error E105: two spaces in a row
  |
2 |   A:  int8
  |     ^^
  = hint: write one space"""),
    Case("E106", "no space after the colon", S + "  A:int8\n", """\
p/a.krm:2:4: error E106: unexpected ":int8": expected ` // ` and an annotation, `: ` and a type, a default in parentheses or the end of the line
  |
2 |   A:int8
  |    ^^^^^
  = hint: a field is written `Name: type`: write `A: int8`"""),
    Case("E106", "no space before the arrow", "S=> not top level\n  A: int8\n", """\
p/a.krm:1:2: error E106: unexpected "=>": expected ` =>` or one space
  |
1 | S=> not top level
  |  ^^
  = hint: the arrow is `=>`: write `S => not top level`"""),
    Case("E106", "a type is missing", S + "  A: \n", """\
p/a.krm:2:4: error E106: unexpected ":": expected ` // ` and an annotation, `: ` and a type, a default in parentheses or the end of the line
  |
2 |   A:\x20
  |    ^
  = hint: a field is written `Name: type`, with one space after the colon

p/a.krm:2:5: warning W901: trailing spaces
  |
2 |   A:\x20
  |     ^"""),
    Case("E106", "an unknown modifier", "S => not top-level\n  A: int8\n", """\
p/a.krm:1:6: error E106: unexpected "not": expected `admin` or a coordinator such as `group coordinator`, `cluster action`, `flexible`, `header`, `key`, `max version`, `min version`, `newer versions read as the newest`, `no encoding`, `not top level`, `one way`, `push`, `response header`, `response key` or `with version field`
  |
1 | S => not top-level
  |      ^^^
  = hint: write `S => not top level`"""),
    Case("E106", "a response with a modifier", "ARequest => key 0, max version 0\n\nAResponse => from ARequest\n  A: int8\n", """\
p/a.krm:3:14: error E106: unexpected "from": expected `admin` or a coordinator such as `group coordinator`, `cluster action`, `flexible`, `header`, `key`, `max version`, `min version`, `newer versions read as the newest`, `no encoding`, `not top level`, `one way`, `push`, `response header`, `response key` or `with version field`
  |
3 | AResponse => from ARequest
  |              ^^^^
  = hint: a response has no modifiers and directly follows its request"""),
    Case("E106", "prose behind a type", S + "  A: int8 // the first\n", """\
p/a.krm:2:14: error E106: unexpected "the": expected `entity`, `ignorable`, `not flexible`, `tag` or versions such as `v3+` or `v3-v5`
  |
2 |   A: int8 // the first
  |              ^^^
  = hint: annotations are `v3+`, `v3-v5`, `tag 0`, `not flexible`, `ignorable` and `entity topicName`, separated by `, `; write comments on the lines above the field"""),
    Case("E106", "no space before an annotation", S + "  A: int8// v1+\n", """\
p/a.krm:2:10: error E106: unexpected "//": expected ` // ` and an annotation, `=>`, `[`, a default in parentheses or the end of the line
  |
2 |   A: int8// v1+
  |          ^^
  = hint: annotations follow ` // `: write `A: int8 // v1+`"""),
    Case("E106", "a version without a plus", S + "  A: int8 // v3\n", """\
p/a.krm:2:14: error E106: unexpected "v3": expected `entity`, `ignorable`, `not flexible`, `tag` or versions such as `v3+` or `v3-v5`
  |
2 |   A: int8 // v3
  |              ^^
  = hint: write `v3-v3` for version 3 only, or `v3+` for all from 3"""),
    Case("E106", "a reserved tag without a number", F + "  reserved tag Colour\n", """\
p/a.krm:2:16: error E106: unexpected "Colour": expected a number
  |
2 |   reserved tag Colour
  |                ^^^^^^
  = hint: tags of removed fields are on lines of their own: `reserved tag 3` or `reserved tag 3, 5`"""),
    Case("E106", "a reserved tag after a field", F + "  A: int8 // reserved tag 0\n", """\
p/a.krm:2:14: error E106: unexpected "reserved": expected `entity`, `ignorable`, `not flexible`, `tag` or versions such as `v3+` or `v3-v5`
  |
2 |   A: int8 // reserved tag 0
  |              ^^^^^^^^
  = hint: tags of removed fields are on lines of their own: `reserved tag 3` or `reserved tag 3, 5`"""),
    Case("E106", "reserved tags, not tag", F + "  reserved tags 1\n", """\
p/a.krm:2:11: error E106: unexpected " tags 1": expected ` // ` and an annotation, `: ` and a type, a default in parentheses or the end of the line
  |
2 |   reserved tags 1
  |           ^^^^^^^
  = hint: tags of removed fields are on lines of their own: `reserved tag 3` or `reserved tag 3, 5`"""),
    Case("E106", "a default that is not closed", S + "  A: int8(3\n", """\
p/a.krm:2:10: error E106: unexpected "(3": expected ` // ` and an annotation, `=>`, `[`, a default in parentheses or the end of the line
  |
2 |   A: int8(3
  |          ^^"""),
    Case("E106", "an array that is not closed", S + "  A: [int8\n", """\
p/a.krm:2:11: error E106: the line is incomplete: expected `]`
  |
2 |   A: [int8
  |           ^"""),
    Case("E106", "an enum that is not closed", "E int8 (\n  0: A\n", """\
p/a.krm:2:7: error E106: the enum ends without `)`
  |
2 |   0: A
  |       ^
  = hint: write `)` on a separate line, at column 1"""),
    Case("E106", "an enum that is not closed, and more behind it",
         "E int8 (\n  // A.\n  0: A\n\nS => not top level\n  A: enum-E\n\nT => not top level\n  A: strin\n", """\
p/a.krm:3:7: error E106: the enum ends without `)`
  |
3 |   0: A
  |       ^
  = hint: write `)` on a separate line, at column 1

p/a.krm:9:6: error E204: unknown type "strin"
  |
9 |   A: strin
  |      ^^^^^
  = hint: did you mean "string"?"""),
    Case("E106", "an enum without members", "E int8 (\n)\n", """\
p/a.krm:1:1: error E106: the enum has no members
  |
1 | E int8 (
  | ^^^^^^^^
  = hint: write each member on an indented line: `  0: NAME`"""),
    Case("E106", "a name with a leading underscore", S + "  _A: int8\n", """\
p/a.krm:2:3: error E106: unexpected "_A:": expected a name
  |
2 |   _A: int8
  |   ^^^"""),
    Case("E107", "deeper lines below an enum member", "E int8 (\n  0: A\n    1: B\n  2: C\n)\n", """\
p/a.krm:2:3: error E107: indented lines below a line that cannot contain fields or members
  |
2 |   0: A
  |   ^^^^
  = hint: only a header, and a field with the type `=>` or `[=>]`, can be followed by indented lines"""),
    Case("E108", "a leading zero", "ARequest => key 007, max version 0\n", """\
p/a.krm:1:17: error E108: the number 007 has leading zeros
  |
1 | ARequest => key 007, max version 0
  |                 ^^^
  = hint: write 7"""),
    Case("E108", "a number that no type holds", F + "  A: int8 // tag 123456789012345678901\n", """\
p/a.krm:2:18: error E108: a number with 21 digits is too long for every type
  |
2 |   A: int8 // tag 123456789012345678901
  |                  ^^^^^^^^^^^^^^^^^^^^^"""),
    Case("E109", "brackets nested too deeply", S + "  A: " + "[" * 17 + "int8" + "]" * 17 + "\n", """\
p/a.krm:2:3: error E109: nesting deeper than 16 levels
  |
2 |   A: [[[[[[[[[[[[[[[[[int8]]]]]]]]]]]]]]]]]
  |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = hint: define an inner struct separately, with a name"""),
    Case("E110", "a comment that reverses text", "// \u202eevil\n" + S + "  A: int8\n", """\
p/a.krm:1:4: error E110: U+202E, which changes the direction of the text after it
  |
1 | // \\u202eevil
  |    ^^^^^^
  = hint: remove it: the line can read as something else than it says"""),
    Case("E106", "a field at the indent of a definition", S + "  A: int8\n\nB: int8\n  C: int8\n", """\
p/a.krm:4:2: error E106: unexpected ":": expected ` =>` or one space
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
p/a.krm:3:3: error E202: the field "A" already exists at line 2
  |
3 |   A: int16
  |   ^
  = hint: rename one of the fields"""),
    Case("E202", "two fields that are one in Python", S + "  TopicID: int8\n  TopicId: int16\n", """\
p/a.krm:3:3: error E202: "TopicId" and "TopicID" (line 2) would both be `topic_id` in Python
  |
3 |   TopicId: int16
  |   ^^^^^^^
  = hint: rename one of the fields"""),
    Case("E202", "an enum value twice", "E int8 (\n  0: A\n  0: B\n)\n", """\
p/a.krm:3:3: error E202: "A" already has the value 0
  |
3 |   0: B
  |   ^"""),
    Case("E202", "an enum member twice", "E int8 (\n  0: A\n  1: A\n)\n", """\
p/a.krm:3:6: error E202: "A" is already a member of E
  |
3 |   1: A
  |      ^"""),
    Case("E202", "two members that are one in Python", "E int8 camelcase (\n  0: FooBar\n  1: Foo_Bar\n)\n", """\
p/a.krm:3:6: error E202: "Foo_Bar" and "FooBar" would both be FOO_BAR in Python
  |
3 |   1: Foo_Bar
  |      ^^^^^^^"""),
    Case("E202", "a remark that is a member", "E int8 (\n  0: A // retriable\n  1: retriable\n)\n", """\
p/a.krm:2:11: error E202: "retriable" is already a member of E
  |
2 |   0: A // retriable
  |           ^^^^^^^^^"""),
    Case("E203", "a key twice", "ARequest => key 3, max version 0\n\nBRequest => key 3, max version 1\n", """\
p/a.krm:3:17: error E203: "ARequest" (a.krm:1) already has key 3
  |
3 | BRequest => key 3, max version 1
  |                 ^
  = hint: give each request another key"""),
    Case("E203", "a tag twice", F + "  A: int8 // tag 0\n  B: int8 // tag 0\n", """\
p/a.krm:3:3: error E203: "A" (line 2) already has tag 0
  |
3 |   B: int8 // tag 0
  |   ^
  = hint: give each field another tag"""),
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
p/a.krm:4:3: error E205: this struct and the one at a.krm:2 would both be the class "S.Topic"
  |
4 |   Topic: =>
  |   ^^^^^
  = hint: choose another class name for one of them with a hint: `=>Hint` or `[=>]Hint`"""),
    Case("E205", "an anonymous struct with a definition's name", S + "  Topics: [=>]\n    A: int8\n\nS.Topic => not top level, no encoding\n  A: int8\n", """\
p/a.krm:2:3: error E205: this struct and the one at a.krm:5 would both be the class "S.Topic"
  |
2 |   Topics: [=>]
  |   ^^^^^^
  = hint: choose another class name for one of them with a hint: `=>Hint` or `[=>]Hint`"""),
    Case("E206", "a definition called ApiKey", "ARequest => key 0, max version 0\n\nApiKey => not top level\n  A: int8\n", """\
p/a.krm:3:1: error E206: the generated package already has an enum "ApiKey" with the keys of requests
  |
3 | ApiKey => not top level
  | ^^^^^^
  = hint: rename it"""),
    Case("E207", "two files for one module", {"00_a.krm": S + "  A: int8\n", "a.krm": "T => not top level\n  A: int8\n"}, """\
p/a.krm:1:1: error E207: this file and 00_a.krm would both become the module a.py
  |
1 | T => not top level
  | ^
  = hint: rename one of the files"""),
    Case("E208", "a definition in lower case", "point => not top level\n  A: int8\n", """\
p/a.krm:1:1: error E208: "point" cannot be the name of a definition
  |
1 | point => not top level
  | ^^^^^
  = hint: it becomes a Python class: begin it with a capital letter, and avoid Python's keywords"""),
    Case("E208", "a definition that is a keyword", "None => not top level\n  A: int8\n", """\
p/a.krm:1:1: error E208: "None" cannot be the name of a definition
  |
1 | None => not top level
  | ^^^^
  = hint: it becomes a Python class: begin it with a capital letter, and avoid Python's keywords"""),
    Case("E209", "a package that does not exist", "use kafka_wir: ErrorCode\n", """\
p/a.krm:1:5: error E209: no package has the name "kafka_wir"
  |
1 | use kafka_wir: ErrorCode
  |     ^^^^^^^^^
  = hint: did you mean "kafka_wire"?"""),
    Case("E210", "a definition that the package does not have", "use kafka_wire: ErrorCod\n", """\
p/a.krm:1:17: error E210: the package kafka_wire has no definition "ErrorCod"
  |
1 | use kafka_wire: ErrorCod
  |                 ^^^^^^^^
  = hint: did you mean "ErrorCode"?"""),
    Case("E212", "a struct of a message in another one", S + "  A: int8\n\nT => not top level\n  B: S.Row\n\nS.Row => not top level, no encoding\n  C: int8\n", """\
p/a.krm:5:6: error E212: "S.Row" belongs to S, so T cannot contain it
  |
5 |   B: S.Row
  |      ^^^^^
  = hint: define a struct without a message in its name: `Row => not top level, no encoding`"""),
    Case("E212", "a struct of no message", "S.Row => not top level, no encoding\n  C: int8\n", """\
p/a.krm:1:1: error E212: this file does not define "S", to which "Row" would belong
  |
1 | S.Row => not top level, no encoding
  | ^^^^^
  = hint: define both in one file"""),
    Case("E211", "packages that use each other", {
        "a.krm": "use two: Two\n",
        "../two/b.krm": "use p: One\n\nTwo => not top level\n  A: One\n",
    }, """\
two/b.krm:1:5: error E211: packages use each other: p → two → p
  |
1 | use p: One
  |     ^
  = hint: move the common definitions to a package of their own"""),
    Case("E212", "a struct of a message of another file", {"a.krm": S + "  A: int8\n", "b.krm": "S.Part => not top level, no encoding\n  A: int8\n"}, """\
p/b.krm:1:1: error E212: this file does not define "S", to which "Part" would belong
  |
1 | S.Part => not top level, no encoding
  | ^^^^^^
  = hint: define both in one file"""),
    Case("E212", "a struct of a message in another message", S + "  A: S.Part\n\nT => not top level\n  B: S.Part\n\nS.Part => not top level, no encoding\n  A: int8\n", """\
p/a.krm:5:6: error E212: "S.Part" belongs to S, so T cannot contain it
  |
5 |   B: S.Part
  |      ^^^^^^
  = hint: define a struct without a message in its name: `Part => not top level, no encoding`"""),
    # versions
    Case("E301", "a negative key", "ARequest => key -1, max version 0\n", """\
p/a.krm:1:17: error E301: the key -1 is not between 0 and 65535
  |
1 | ARequest => key -1, max version 0
  |                 ^^"""),
    Case("E301", "a version beyond int16", "ARequest => key 0, max version 32768\n", """\
p/a.krm:1:32: error E301: the version 32768 is not between 0 and 32767
  |
1 | ARequest => key 0, max version 32768
  |                                ^^^^^"""),
    Case("E301", "a field's version beyond int16", S + "  A: int8 // v40000+\n", """\
p/a.krm:2:14: error E301: the version 40000 is not between 0 and 32767
  |
2 |   A: int8 // v40000+
  |              ^^^^^^^"""),
    Case("E302", "min version above max version", "ARequest => key 0, max version 2, min version 3\n", """\
p/a.krm:1:1: error E302: min version 3 is higher than max version 2
  |
1 | ARequest => key 0, max version 2, min version 3
  | ^^^^^^^^"""),
    Case("E302", "a field's versions the wrong way round", S + "  A: int8 // v5-v3\n", """\
p/a.krm:2:14: error E302: v5 is higher than v3
  |
2 |   A: int8 // v5-v3
  |              ^^^^^"""),
    Case("E303", "flexible beyond the highest version", "ARequest => key 0, max version 2, flexible v3+\n", """\
p/a.krm:1:35: error E303: flexible from version 3, but the last version is 2
  |
1 | ARequest => key 0, max version 2, flexible v3+
  |                                   ^^^^^^^^^^^^"""),
    Case("E304", "two ranges", S + "  A: int8 // v1+, v2+\n", """\
p/a.krm:2:19: error E304: a second annotation of the same kind: v2+
  |
2 |   A: int8 // v1+, v2+
  |                   ^^^"""),
    Case("E305", "a negative tag", F + "  A: int8 // tag -1\n", """\
p/a.krm:2:18: error E305: the tag -1 is negative
  |
2 |   A: int8 // tag -1
  |                  ^^
  = hint: number tags from 0"""),
    Case("E305", "a negative reserved tag", F + "  reserved tag 0, -1\n", """\
p/a.krm:2:19: error E305: the tag -1 is negative
  |
2 |   reserved tag 0, -1
  |                   ^^
  = hint: number tags from 0"""),
    Case("E306", "a field beyond its struct", "ARequest => key 0, max version 2\n  A: int8 // v3+\n", """\
p/a.krm:2:14: error E306: v3+ exceeds the last version of ARequest, 2
  |
2 |   A: int8 // v3+
  |              ^^^
  = hint: raise `max version`, or lower the versions of the field"""),
    Case("E306", "a field that ends beyond its struct", "ARequest => key 0, max version 2\n  A: int8 // v1-v3\n", """\
p/a.krm:2:14: error E306: v1-v3 exceeds the last version of ARequest, 2
  |
2 |   A: int8 // v1-v3
  |              ^^^^^
  = hint: raise `max version`, or lower the versions of the field"""),
    Case("E306", "a field outside of its holder", S + "  A: [=>] // v3-v5\n    B: int8 // v6+\n", """\
p/a.krm:3:16: error E306: v6+ has no version in common with v3-v5 of the field that contains it
  |
3 |     B: int8 // v6+
  |                ^^^"""),
    Case("E307", "nullable from beyond the field's end", S + "  A: nullable-v5+[int8] // v1-v4\n", """\
p/a.krm:2:6: error E307: nullable in v5+, but the field exists only in v1-v4
  |
2 |   A: nullable-v5+[int8] // v1-v4
  |      ^^^^^^^^^^^^
  = hint: choose a version that the field has"""),
    Case("E307", "nullable from beyond the struct's versions", "ARequest => key 0, max version 2\n  A: nullable-string-v3+\n", """\
p/a.krm:2:6: error E307: nullable in v3+, but the field exists only in v0-v2
  |
2 |   A: nullable-string-v3+
  |      ^^^^^^^^^^^^^^^^^^^
  = hint: choose a version that the field has"""),
    Case("E307", "null after the only version", "S => not top level, max version 2\n  A: nullable-string-v1+ // v0-v0\n", """\
p/a.krm:2:6: error E307: nullable in v1+, but the field exists only in v0-v0
  |
2 |   A: nullable-string-v1+ // v0-v0
  |      ^^^^^^^^^^^^^^^^^^^
  = hint: choose a version that the field has"""),
    Case("E308", "a tag without flexibility", S + "  A: int8 // tag 0\n", """\
p/a.krm:2:14: error E308: "A" has a tag, but no version of S is flexible
  |
2 |   A: int8 // tag 0
  |              ^^^^^
  = hint: add `flexible vN+` to the header"""),
    Case("E308", "a tag in classic versions", "S => not top level, max version 2, flexible v1+\n  A: int8 // v0-v0, tag 0\n  B: => // v0-v0\n    C: int8 // tag 0\n", """\
p/a.krm:2:21: error E308: a tag in v0-v0, but S is flexible only from v1
  |
2 |   A: int8 // v0-v0, tag 0
  |                     ^^^^^

p/a.krm:4:16: error E308: a tag in v0-v0, but S is flexible only from v1
  |
4 |     C: int8 // tag 0
  |                ^^^^^"""),
    Case("E308", "a reserved tag without flexibility", S + "  A: int8\n  reserved tag 0\n", """\
p/a.krm:3:16: error E308: tag 0 is reserved, but no version of S is flexible
  |
3 |   reserved tag 0
  |                ^
  = hint: add `flexible vN+` to the header"""),
    Case("E309", "a tag that is not flexible", F + "  A: int8 // tag 0, not flexible\n", """\
p/a.krm:2:3: error E309: "A" has a tag, so it cannot be `not flexible`
  |
2 |   A: int8 // tag 0, not flexible
  |   ^
  = hint: remove one of the annotations"""),
    Case("E310", "a gap in tags", F + "  A: int8 // tag 0\n  B: int8 // tag 2\n", """\
p/a.krm:3:14: error E310: tag 1 is missing
  |
3 |   B: int8 // tag 2
  |              ^^^^^
  = hint: number tags from 0 without gaps; if a removed field had the tag, write `reserved tag 1`"""),
    Case("E310", "a gap below a reserved tag", F + "  A: int8 // tag 0\n  reserved tag 2\n", """\
p/a.krm:3:16: error E310: tag 1 is missing
  |
3 |   reserved tag 2
  |                ^
  = hint: number tags from 0 without gaps; if a removed field had the tag, write `reserved tag 1`"""),
    Case("E311", "a field with a reserved tag", F + "  A: int8 // tag 0\n  B: int8 // tag 1\n  reserved tag 1\n", """\
p/a.krm:3:14: error E311: tag 1 is reserved (line 4)
  |
3 |   B: int8 // tag 1
  |              ^^^^^
  = hint: give the field another tag: old peers would read its value as that of a removed field"""),
    Case("E311", "a tag reserved twice", F + "  A: =>\n    B: int8\n    reserved tag 0, 1, 0\n", """\
p/a.krm:4:24: error E311: tag 0 is already reserved at line 4
  |
4 |     reserved tag 0, 1, 0
  |                        ^
  = hint: remove one of the two"""),
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
p/a.krm:2:6: error E401: "nulable" is not allowed before `[`
  |
2 |   A: nulable[int8]
  |      ^^^^^^^
  = hint: did you mean "nullable"?"""),
    Case("E401", "a prefix that structs do not have", S + "  A: varint=>\n    B: int8\n", """\
p/a.krm:2:6: error E401: "varint" is not allowed before `=>`
  |
2 |   A: varint=>
  |      ^^^^^^
  = hint: write `=>`, `nullable=>` or `nullable-bool=>`"""),
    Case("E401", "a hint where nothing is anonymous", S + "  A: [int8]Hint\n", """\
p/a.krm:2:12: error E401: a hint is only allowed after an array of anonymous structs
  |
2 |   A: [int8]Hint
  |            ^^^^"""),
    Case("E402", "a default beyond its integer", S + "  A: int8(128)\n", """\
p/a.krm:2:10: error E402: the default "128" does not fit int8
  |
2 |   A: int8(128)
  |          ^^^^^
  = hint: the value must be between -128 and 127"""),
    Case("E402", "a default that is no integer", S + "  A: varint(1.5)\n", """\
p/a.krm:2:12: error E402: the default "1.5" does not fit varint
  |
2 |   A: varint(1.5)
  |            ^^^^^
  = hint: the value must be between -2147483648 and 2147483647"""),
    Case("E402", "a default that is no bool", S + "  A: bool(yes)\n", """\
p/a.krm:2:10: error E402: the default "yes" does not fit bool
  |
2 |   A: bool(yes)
  |          ^^^^^
  = hint: write `(true)` or `(false)`"""),
    Case("E402", "null where there is none", S + "  A: string(null)\n", """\
p/a.krm:2:12: error E402: the default "null" does not fit string
  |
2 |   A: string(null)
  |            ^^^^^^
  = hint: only a nullable type can have the default null"""),
    Case("E402", "a default in quotes", S + "  A: string(\"x\")\n  B: nullable-string('')\n", """\
p/a.krm:2:12: error E402: the default "x" has quotes, which would be part of the value
  |
2 |   A: string("x")
  |            ^^^^^
  = hint: write `(x)`

p/a.krm:3:21: error E402: the default '' has quotes, which would be part of the value
  |
3 |   B: nullable-string('')
  |                     ^^^^
  = hint: write `()`"""),
    Case("E402", "a default of an array", S + "  A: [int8](1)\n", """\
p/a.krm:2:12: error E402: the default "1" does not fit an array
  |
2 |   A: [int8](1)
  |            ^^^
  = hint: an array can only have the default `()`, or `(null)` if it is nullable"""),
    Case("E402", "a default of a struct", S + "  A: =>(1)\n    B: int8\n", """\
p/a.krm:2:8: error E402: the default "1" does not fit the struct S.A
  |
2 |   A: =>(1)
  |        ^^^"""),
    Case("E402", "a default of a nullable struct", S + "  A: nullable=>(1)\n    B: int8\n", """\
p/a.krm:2:16: error E402: the default "1" does not fit the struct S.A
  |
2 |   A: nullable=>(1)
  |                ^^^
  = hint: write `(null)`, or `()` for a struct with default values"""),
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
p/a.krm:2:3: error E402: 128 is outside of int8 (-128 to 127)
  |
2 |   128: A
  |   ^^^"""),
    Case("E403", "an enum of no integer", "E string (\n  0: A\n)\n", """\
p/a.krm:1:3: error E403: "string" cannot be the type of an enum
  |
1 | E string (
  |   ^^^^^^
  = hint: use one of int8, int16, int32, int64, uint8, uint16, uint32, uint64"""),
    Case("E403", "an enum of a misspelt integer", "E init8 (\n  0: A\n)\n", """\
p/a.krm:1:3: error E403: "init8" cannot be the type of an enum
  |
1 | E init8 (
  |   ^^^^^
  = hint: did you mean "int8"?"""),
    Case("E404", "an entity of no name or number", S + "  A: [bool] // v0+, entity topicName\n", """\
p/a.krm:2:28: error E404: "A" cannot have an entity, because it is bool
  |
2 |   A: [bool] // v0+, entity topicName
  |                            ^^^^^^^^^
  = hint: only strings, bytes, integers, uuids and arrays of them can have one"""),
    # structure
    Case("E404", "an entity of a bool", S + "  A: bool // entity topicName\n", """\
p/a.krm:2:21: error E404: "A" cannot have an entity, because it is bool
  |
2 |   A: bool // entity topicName
  |                     ^^^^^^^^^
  = hint: only strings, bytes, integers, uuids and arrays of them can have one"""),
    Case("E405", "an unsigned length and null", S + "  A: nullable-uvarint-string\n", """\
p/a.krm:2:6: error E405: an unsigned length has no number for null
  |
2 |   A: nullable-uvarint-string
  |      ^^^^^^^^^^^^^^^^^^^^^^^
  = hint: a signed length can be -1, which is null: write `nullable-int32-string`, or a bool before it"""),
    Case("E405", "a form that is null already", S + "  A: nullable-varint-bytes\n", """\
p/a.krm:2:6: error E405: a `varint-bytes` can always be null
  |
2 |   A: nullable-varint-bytes
  |      ^^^^^^^^^^^^^^^^^^^^^
  = hint: write `varint-bytes`"""),
    Case("E406", "an address without a port", S + "  Id: int32 // entity brokerId\n  Host: string // entity brokerHost\n", """\
p/a.krm:3:3: error E406: S has no brokerPort in all versions of Host
  |
3 |   Host: string // entity brokerHost
  |   ^^^^
  = hint: mark host, port and id of the broker in one struct: `entity brokerHost`, `brokerPort`, `brokerId`"""),
    Case("E406", "a port that is too narrow", S + "  Id: int32 // entity brokerId\n  Host: string // entity brokerHost\n  Port: int16 // entity brokerPort\n", """\
p/a.krm:4:3: error E406: Port cannot be the brokerPort of an address
  |
4 |   Port: int16 // entity brokerPort
  |   ^^^^
  = hint: choose one of int32, int64, uint16, uint32, uint64"""),
    Case("E501", "a version field that is not first", "S => not top level, with version field\n  A: int8\n  Version: int16\n", """\
p/a.krm:2:3: error E501: the first field is not "Version"
  |
2 |   A: int8
  |   ^
  = hint: the first field must be `Version: int16`, without annotations"""),
    Case("E501", "a version field that is not int16", "S => not top level, with version field\n  Version: int32\n", """\
p/a.krm:2:3: error E501: the version field is not a plain int16
  |
2 |   Version: int32
  |   ^^^^^^^
  = hint: the first field must be `Version: int16`, without annotations"""),
    Case("E501", "no version field", "S => not top level, with version field\n\nT => not top level\n  A: int8\n", """\
p/a.krm:1:1: error E501: S has no version field
  |
1 | S => not top level, with version field
  | ^
  = hint: the first field must be `Version: int16`, without annotations"""),
    Case("E502", "a modifier twice", "ARequest => key 0, max version 0, max version 1\n", """\
p/a.krm:1:47: error E502: the modifier `max version` appears twice
  |
1 | ARequest => key 0, max version 0, max version 1
  |                                               ^"""),
    Case("E502", "a request to two kinds of brokers", "ARequest => key 0, max version 0, admin, group coordinator\n", """\
p/a.krm:1:42: error E502: a request goes to one kind of broker, not to both `admin` and `group coordinator`
  |
1 | ARequest => key 0, max version 0, admin, group coordinator
  |                                          ^^^^^^^^^^^^^^^^^
  = hint: remove one of them"""),
    Case("E502", "a response with a key", "ARequest => key 0, max version 0\n\nAResponse => key 0\n", """\
p/a.krm:3:1: error E502: a response has no modifiers
  |
3 | AResponse => key 0
  | ^^^^^^^^^
  = hint: write `AResponse =>` directly after its request, which has the key and the versions"""),
    Case("E502", "top level and not", "S => not top level, key 0, max version 0\n  A: int8\n", """\
p/a.krm:1:1: error E502: `not top level` and `key` cannot be combined
  |
1 | S => not top level, key 0, max version 0
  | ^
  = hint: remove `not top level` if it is a request, or else `key`"""),
    Case("E502", "not top level, but not first", "S => no encoding, not top level\n  A: int8\n", """\
p/a.krm:1:1: error E502: `not top level` must be the first modifier
  |
1 | S => no encoding, not top level
  | ^"""),
    Case("E502", "a version field without encoding", "S => not top level, with version field, no encoding\n  Version: int16\n", """\
p/a.krm:1:1: error E502: `with version field` and `no encoding` cannot be combined
  |
1 | S => not top level, with version field, no encoding
  | ^"""),
    Case("E502", "routing of no request", "S => not top level, admin\n  A: int8\n", """\
p/a.krm:1:1: error E502: only a request can have `admin`
  |
1 | S => not top level, admin
  | ^"""),
    Case("E502", "a cluster action of no request", "S => not top level, cluster action\n  A: int8\n", """\
p/a.krm:1:1: error E502: only a request can have `cluster action`
  |
1 | S => not top level, cluster action
  | ^"""),
    Case("E502", "a cluster action twice", "ARequest => key 0, max version 0, cluster action, cluster action\n", """\
p/a.krm:1:1: error E502: the modifier `cluster action` appears twice
  |
1 | ARequest => key 0, max version 0, cluster action, cluster action
  | ^^^^^^^^"""),
    Case("E502", "a message's struct that is encoded alone", S + "  A: S.Part\n\nS.Part => not top level\n  A: int8\n", """\
p/a.krm:4:1: error E502: "Part" belongs to S, so it cannot be encoded alone
  |
4 | S.Part => not top level
  | ^^^^^^
  = hint: begin its modifiers with `not top level, no encoding`"""),
    Case("E502", "neither key nor not top level", "S => flexible v1+\n  A: int8\n", """\
p/a.krm:1:1: error E502: the header has neither `key` nor `not top level`
  |
1 | S => flexible v1+
  | ^
  = hint: begin the modifiers of a request with `key N, max version N`, and those of any other struct with `not top level`"""),
    Case("E502", "max version before key", "ARequest => max version 1, key 0\n", """\
p/a.krm:1:1: error E502: the first two modifiers of a request must be `key` and `max version`
  |
1 | ARequest => max version 1, key 0
  | ^^^^^^^^
  = hint: write `key N, max version N`, then the other modifiers"""),
    Case("E502", "a request without max version", "ARequest => key 0\n", """\
p/a.krm:1:1: error E502: the first two modifiers of a request must be `key` and `max version`
  |
1 | ARequest => key 0
  | ^^^^^^^^
  = hint: write `key N, max version N`, then the other modifiers"""),
    Case("E502", "a request without encoding", "ARequest => key 0, max version 0, no encoding\n", """\
p/a.krm:1:1: error E502: a request cannot have `with version field` or `no encoding`
  |
1 | ARequest => key 0, max version 0, no encoding
  | ^^^^^^^^
  = hint: only a struct with `not top level` can have them"""),
    Case("E503", "a response without request", "AResponse =>\n  A: int8\n", """\
p/a.krm:1:1: error E503: the response "AResponse" has no request "ARequest"
  |
1 | AResponse =>
  | ^^^^^^^^^
  = hint: add `not top level` if it is not a response"""),
    Case("E503", "a response of a misspelt request", "FetchRequest => key 0, max version 0\n\nFecthResponse =>\n  A: int8\n", """\
p/a.krm:3:1: error E503: the response "FecthResponse" has no request "FecthRequest"
  |
3 | FecthResponse =>
  | ^^^^^^^^^^^^^
  = hint: did you mean "FetchRequest"?"""),
    Case("E503", "a response not right behind its request", "ARequest => key 0, max version 0\n\nS => not top level\n  A: int8\n\nAResponse =>\n  A: int8\n", """\
p/a.krm:6:1: error E503: "AResponse" does not directly follow "ARequest"
  |
6 | AResponse =>
  | ^^^^^^^^^
  = hint: move it directly after ARequest (a.krm:1)"""),
    Case("E503", "a response in another file", {"a.krm": "ARequest => key 0, max version 0\n", "b.krm": "AResponse =>\n  A: int8\n"}, """\
p/b.krm:1:1: error E503: "AResponse" does not directly follow "ARequest"
  |
1 | AResponse =>
  | ^^^^^^^^^
  = hint: move it directly after ARequest (a.krm:1)"""),
    Case("E504", "a struct in itself", S + "  A: [S]\n", """\
p/a.krm:1:1: error E504: S contains itself: S → S
  |
1 | S => not top level
  | ^
  = hint: recursive structs are not supported; encode the inner struct separately and store it in a `bytes` field"""),
    Case("E504", "a struct in itself by another", "A => not top level\n  B: B\n\nB => not top level\n  C: nullable[C]\n\nC => not top level\n  A: A\n", """\
p/a.krm:1:1: error E504: A contains itself: A → B → C → A
  |
1 | A => not top level
  | ^
  = hint: recursive structs are not supported; encode the inner struct separately and store it in a `bytes` field"""),
    Case("E505", "a struct without fields", S + "  A: [=>]\n  B: int8\n", """\
p/a.krm:2:7: error E505: the struct of "A" has no fields
  |
2 |   A: [=>]
  |       ^^"""),
    Case("E505", "deeper lines below a field that has none", S + "  A: int8\n    B: int8\n  C: int8\n", """\
p/a.krm:2:3: error E505: "A" contains fields, but its type is not an anonymous struct
  |
2 |   A: int8
  |   ^
  = hint: change the type to `=>` or `[=>]`"""),
    Case("E505", "deeper lines below a shorthand", S + "  TimeoutMillis\n    B: int8\n", """\
p/a.krm:2:3: error E505: "TimeoutMillis" contains fields, but its type is not an anonymous struct
  |
2 |   TimeoutMillis
  |   ^^^^^^^^^^^^^
  = hint: change the type to `=>` or `[=>]`"""),
    Case("E306", "a shorthand beyond its struct", "ARequest => key 0, max version 2\n  ThrottleMillis // v3+\n", """\
p/a.krm:2:21: error E306: v3+ exceeds the last version of ARequest, 2
  |
2 |   ThrottleMillis // v3+
  |                     ^^^
  = hint: raise `max version`, or lower the versions of the field"""),
    Case("E506", "a length that is not there", S + "  A: length-field-minus => Length - 4\n", """\
p/a.krm:2:28: error E506: no field before "A" has the name of its length field
  |
2 |   A: length-field-minus => Length - 4
  |                            ^^^^^^
  = hint: give the name of an integer field that precedes it in the same struct"""),
    Case("E506", "a length that comes later", S + "  A: length-field-minus => Length - 4\n  Length: int32\n", """\
p/a.krm:2:28: error E506: no field before "A" has the name of its length field
  |
2 |   A: length-field-minus => Length - 4
  |                            ^^^^^^
  = hint: give the name of an integer field that precedes it in the same struct"""),
    Case("E506", "a length that is no integer", S + "  Length: string\n  A: length-field-minus => Length - 4\n", """\
p/a.krm:3:28: error E506: the length field "Length" of "A" is not an integer
  |
3 |   A: length-field-minus => Length - 4
  |                            ^^^^^^
  = hint: give it a fixed-width type such as int32"""),
    Case("E506", "a length that is not in every version", S + "  Length: int32 // v1+\n  A: length-field-minus => Length - 4\n", """\
p/a.krm:3:3: error E506: "A" exists in versions without its length field "Length"
  |
3 |   A: length-field-minus => Length - 4
  |   ^
  = hint: give both fields the same versions, and no tags"""),
    Case("E506", "a length in versions without its bytes", S + "  Length: int32\n  A: length-field-minus => Length - 4 // v1+\n", """\
p/a.krm:2:3: error E506: "Length" exists in versions without "A", whose bytes it counts
  |
2 |   Length: int32
  |   ^^^^^^
  = hint: give both fields the same versions"""),
    Case("E506", "a length with a default", S + "  Length: int32(7)\n  A: length-field-minus => Length - 4\n", """\
p/a.krm:2:16: error E506: "Length" cannot have a default, because it counts the bytes of "A"
  |
2 |   Length: int32(7)
  |                ^^^
  = hint: remove the default: encoding writes the length"""),
    Case("E506", "a length of two fields", S + "  Length: int32\n  A: length-field-minus => Length - 4\n  B: length-field-minus => Length - 4\n", """\
p/a.krm:4:3: error E506: "Length" is already the length field of "A"
  |
4 |   B: length-field-minus => Length - 4
  |   ^
  = hint: add a length field for each `length-field-minus`"""),
    Case("E506", "a tagged one", F + "  Length: int32\n  A: length-field-minus => Length - 4 // tag 0\n", """\
p/a.krm:3:3: error E506: a `length-field-minus` field cannot have a tag
  |
3 |   A: length-field-minus => Length - 4 // tag 0
  |   ^"""),
    Case("E507", "arrays within arrays by way of named structs", S + "  A: " + "[" * 9 + "T" + "]" * 9 + "\n\nT => not top level\n  B: " + "[" * 9 + "int8" + "]" * 9 + "\n", """\
p/a.krm:2:3: error E507: "A" contains more than 16 nested arrays or nullable structs
  |
2 |   A: [[[[[[[[[T]]]]]]]]]
  |   ^"""),
    Case("E507", "a long chain of structs", "".join(f"S{i} => not top level\n  A: S{i + 1}\n\n" for i in range(40)) + "S40 => not top level\n  A: int8\n", """\
p/a.krm:100:1: error E507: structs are nested more than 32 levels deep: S0 → S1 → S2 → …
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
p/a.krm:1:1: warning W908: lines end with \\r\\n, not \\n
  |
1 | S => not top level
  | ^"""),
    Case("W909", "a comment that is not aligned", S + "// The first.\n  A: int8\n", """\
p/a.krm:2:1: warning W909: a comment that is not aligned with the line that it documents
  |
2 | // The first.
  | ^^"""),
    # almost valid definitions
    Case("E106", "an array as in other languages", S + "  A: string[]\n", """\
p/a.krm:2:13: error E106: unexpected "]": expected `=>`, `[` or a type
  |
2 |   A: string[]
  |             ^
  = hint: write `A: [string]`"""),
    Case("E106", "a comment as in a shell", S + "  # A comment.\n  A: int8\n", """\
p/a.krm:2:3: error E106: unexpected "#": expected a name or the end of the line
  |
2 |   # A comment.
  |   ^
  = hint: a comment begins with `//`"""),
    Case("E106", "a field without a colon", S + "  A int8\n", """\
p/a.krm:2:4: error E106: unexpected " int8": expected ` // ` and an annotation, `: ` and a type, a default in parentheses or the end of the line
  |
2 |   A int8
  |    ^^^^^
  = hint: a field is written `Name: type`: write `A: int8`"""),
    Case("E106", "a member without a colon", "E int8 (\n  0 A\n)\n", """\
p/a.krm:2:4: error E106: unexpected " A": expected `: ` and a type
  |
2 |   0 A
  |    ^^
  = hint: a member is written `0: NAME`: write `0: A`"""),
    Case("E106", "escape sequences and marks of direction", S + "  A: \x1b[31mint8\n  B: \u202eint8\n", """\
p/a.krm:2:6: error E106: unexpected "\\x1b[31mint8": expected `=>`, `[`, a type or the end of the line
  |
2 |   A: \\x1b[31mint8
  |      ^^^^^^^^^^^^

p/a.krm:3:6: error E110: U+202E, which changes the direction of the text after it
  |
3 |   B: \\u202eint8
  |      ^^^^^^
  = hint: remove it: the line can read as something else than it says"""),
    Case("E204", "types of other languages", S + "  A: int\n  B: long\n  C: short\n  D: double\n", """\
p/a.krm:2:6: error E204: unknown type "int"
  |
2 |   A: int
  |      ^^^
  = hint: did you mean "int32"?

p/a.krm:3:6: error E204: unknown type "long"
  |
3 |   B: long
  |      ^^^^
  = hint: did you mean "int64"?

p/a.krm:4:6: error E204: unknown type "short"
  |
4 |   C: short
  |      ^^^^^
  = hint: did you mean "int16"?

p/a.krm:5:6: error E204: unknown type "double"
  |
5 |   D: double
  |      ^^^^^^
  = hint: did you mean "float64"?"""),
    Case("E402", "a default of an enum by name", S + "  A: enum-E(OK)\n  B: enum-E(KO)\n\nE int8 (\n  4: OK\n)\n", """\
p/a.krm:2:12: error E402: the default "OK" does not fit enum-E (int8)
  |
2 |   A: enum-E(OK)
  |            ^^^^
  = hint: write the number of the member: `enum-E(4)`

p/a.krm:3:12: error E402: the default "KO" does not fit enum-E (int8)
  |
3 |   B: enum-E(KO)
  |            ^^^^
  = hint: write the number of a member, as in `enum-Name(2)`"""),
    Case("E503", "a misspelt response", P + "\nPingRespons =>\n  A: int8\n", """\
p/a.krm:4:1: error E503: the name "PingRespons" is similar to the missing response of "PingRequest"
  |
4 | PingRespons =>
  | ^^^^^^^^^^^
  = hint: did you mean "PingResponse"? If it is not a response, add `not top level`"""),
    Case("E503", "a response with modifiers", P + "\nPingResponse => not top level\n  A: int8\n", """\
p/a.krm:4:1: error E503: "PingResponse" has modifiers, so it is not the response of "PingRequest"
  |
4 | PingResponse => not top level
  | ^^^^^^^^^^^^
  = hint: remove them: `PingResponse =>`"""),
    Case("E503", "a response of a misspelt request with a key", "PingReqest => key 0, max version 0\n\nPingResponse =>\n  A: int8\n", """\
p/a.krm:3:1: error E503: the response "PingResponse" has no request "PingRequest"
  |
3 | PingResponse =>
  | ^^^^^^^^^^^^
  = hint: did you mean "PingReqest"?"""),
    Case("E503", "a response of a request that is not called one", "Ping => key 0, max version 0\n\nPingResponse =>\n  A: int8\n", """\
p/a.krm:3:1: error E503: the response "PingResponse" has no request "PingRequest"
  |
3 | PingResponse =>
  | ^^^^^^^^^^^^
  = hint: rename "Ping" to "PingRequest" if it is the request"""),
    Case("E506", "a misspelt length", S + "  Length: int32\n  A: length-field-minus => Lenght - 4\n", """\
p/a.krm:3:28: error E506: no field before "A" has the name of its length field
  |
3 |   A: length-field-minus => Lenght - 4
  |                            ^^^^^^
  = hint: did you mean "Length"?"""),
    Case("E508", "structs that hold two of the next", "".join(f"S{i} => not top level\n  A: S{i + 1}\n  B: S{i + 1}\n\n" for i in range(30)) + "S30 => not top level\n  A: int8\n", """\
p/a.krm:81:1: error E508: the code of S20 would be too long: it would read more than 2,000 fields, because every layout, and every field that contains a struct, repeats the fields of the struct
   |
81 | S20 => not top level
   | ^^^
   = hint: use the struct in fewer fields, reduce the number of layouts, or encode an inner struct separately and store it in a `bytes` field"""),
    Case("E508", "fields of many versions", S + "".join(f"  A{i}: int8 // v{i}+\n" for i in range(300)), """\
p/a.krm:1:1: error E508: the code of S would be too long: it would read more than 3,000 fields, because every layout, and every field that contains a struct, repeats the fields of the struct
  |
1 | S => not top level
  | ^
  = hint: use the struct in fewer fields, reduce the number of layouts, or encode an inner struct separately and store it in a `bytes` field"""),
    Case("E508", "too many versions", P.replace("max version 0", "max version 32767"), """\
p/a.krm:1:1: error E508: PingRequest has 32,768 versions; at most 4,096 are allowed, because the generated code lists them all
  |
1 | PingRequest => key 0, max version 32767
  | ^^^^^^^^^^^
  = hint: lower `max version`, or raise `min version`

p/a.krm:1:1: warning W501: "PingRequest" has no response
  |
1 | PingRequest => key 0, max version 32767
  | ^^^^^^^^^^^
  = hint: define `PingResponse =>` directly after it, or write `one way`"""),
    Case("E509", "a request that is not called one", "Ping => key 0, max version 0\n  A: int8\n", """\
p/a.krm:1:1: error E509: "Ping" has a key, but its name does not end with "Request"
  |
1 | Ping => key 0, max version 0
  | ^^^^
  = hint: rename it to "PingRequest", or replace its key by `not top level`"""),
    Case("E509", "a misspelt request", "PingReqest => key 0, max version 0\n  A: int8\n", """\
p/a.krm:1:1: error E509: "PingReqest" has a key, but its name does not end with "Request"
  |
1 | PingReqest => key 0, max version 0
  | ^^^^^^^^^^
  = hint: rename it to "PingRequest", or replace its key by `not top level`"""),
    Case("E510", "a header without a field that frames are recognised by", "RequestHeader => not top level\n  RequestApiKey: int16\n  RequestApiVersion: int16\n\nResponseHeader => not top level\n  CorrelationId: int32\n\n" + P + "\nPingResponse =>\n  A: int8\n", """\
p/a.krm:1:1: error E510: RequestHeader needs a field `CorrelationId: int32`
  |
1 | RequestHeader => not top level
  | ^^^^^^^^^^^^^
  = hint: a RequestHeader needs `RequestApiKey: int16`, `RequestApiVersion: int16`, `CorrelationId: int32`, and can have other fields"""),
    Case("E510", "a field of a header that moves", "RequestHeader => not top level, max version 1\n  RequestApiKey: int16\n  RequestApiVersion: int16\n  ClientId: string // v1+\n  CorrelationId: int32\n\nResponseHeader => not top level\n  CorrelationId: int32\n\n" + P + "\nPingResponse =>\n  A: int8\n", """\
p/a.krm:5:3: error E510: "CorrelationId" is not at the same place in all versions of RequestHeader
  |
5 |   CorrelationId: int32
  |   ^^^^^^^^^^^^^
  = hint: write it before all fields that have no fixed width or are not in all versions"""),
    Case("E511", "a header that does not exist", P.replace("max version 0", "max version 0, one way, header 3"), """\
p/a.krm:1:1: error E511: PingRequest has header 3, but RequestHeader has the versions 0 to 2
  |
1 | PingRequest => key 0, max version 0, one way, header 3
  | ^^^^^^^^^^^
  = hint: define that version of RequestHeader, or choose another one"""),
    Case("E510", "a push that looks like a response", "Deliver => key 1, max version 0, push\n  A: int8\n", """\
p/a.krm:1:1: error E510: ResponseHeader has no api key at the same place in all versions, which a push needs
  |
1 | Deliver => key 1, max version 0, push
  | ^^^^^^^
  = hint: define a ResponseHeader that begins with an integer `Key`"""),
    Case("E512", "a field that reads newer versions", S + "  A: Plan\n\nPlan => not top level, with version field, max version 1, newer versions read as the newest\n  Version: int16\n", """\
p/a.krm:2:3: error E512: "A" cannot be Plan, which reads newer versions: where one ends is unknown
  |
2 |   A: Plan
  |   ^
  = hint: write `bytes`, and encode the struct into it"""),
    Case("W501", "a request without a response", P, """\
p/a.krm:1:1: warning W501: "PingRequest" has no response
  |
1 | PingRequest => key 0, max version 0
  | ^^^^^^^^^^^
  = hint: define `PingResponse =>` directly after it, or write `one way`"""),
    Case("W502", "a modifier without effect", "A => not top level, frequent\n  X: int8\n", """\
p/a.krm:1:21: warning W502: `frequent` has no effect any more
  |
1 | A => not top level, frequent
  |                     ^^^^^^^^
  = hint: remove it"""),
]
# fmt: on


@pytest.mark.parametrize("case", CASES, ids=str)
def test_diagnostic(report: Report, case: Case) -> None:
    assert report(case.files) == case.shown
    assert f" {case.code}: " in case.shown


def test_every_code_is_shown_above() -> None:
    folder = Path(str(resources.files("krammar.compiler")))
    sources = "".join(path.read_text("utf-8") for path in folder.rglob("*.py"))
    # Those of protocol guides are in test_guide.
    codes = set(re.findall(r'"([EW](?!6)\d{3})"', sources))

    assert codes == {case.code for case in CASES}


def test_all_diagnostics_of_a_run_are_reported(report: Report) -> None:
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
    """Its owner and its users are not reported too."""
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


def found() -> Diagnostics:
    diagnostics = Diagnostics()
    diagnostics.add_source(Path("p/a,b.krm"), "S => not top level\n  A: nullable-sting\n")
    diagnostics.add(
        "E204",
        'unknown type "nullable-sting" (100%)',
        Position(Path("p/a,b.krm"), 2, 6, 14),
        'did you mean "nullable-string"?',
    )
    diagnostics.add("W904", "the file does not end\nwith a newline", Position(Path("b"), 9, 3))
    return diagnostics


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


def test_a_diagnostic_is_listed_once() -> None:
    diagnostics = found()
    diagnostics.merge(found())

    assert len(diagnostics.found) == 2
    assert diagnostics.has_errors
    assert diagnostics.has_style
    diagnostics.keep_errors()
    assert not diagnostics.has_style


def test_text_format_lines_up_below_long_line_numbers() -> None:
    diagnostics = Diagnostics()
    diagnostics.add_source(Path("a"), "\n" * 99 + "S =>  x\n")
    diagnostics.add("E105", "two spaces", Position(Path("a"), 100, 5, 2), "one")

    assert format_text(diagnostics.sorted()) == (
        "a:100:5: error E105: two spaces\n"
        "    |\n"
        "100 | S =>  x\n"
        "    |     ^^\n"
        "    = hint: one"
    )


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (300, 300, "…" + "x" * 100 + "HERE" + "y" * 96 + "…"),
        (0, 300, "HERE" + "y" * 196 + "…"),
        (50, 300, "x" * 50 + "HERE" + "y" * 146 + "…"),
        (300, 0, "…" + "x" * 196 + "HERE"),
        (300, 10, "…" + "x" * 186 + "HERE" + "y" * 10),
        (96, 100, "x" * 96 + "HERE" + "y" * 100),
    ],
)
def test_a_long_source_line_is_cut_around_the_caret(before: int, after: int, shown: str) -> None:
    diagnostics = Diagnostics()
    diagnostics.add_source(Path("a"), "x" * before + "HERE" + "y" * after)
    diagnostics.add("E204", "unknown type", Position(Path("a"), 1, before + 1, 4))

    *_, line, carets = format_text(diagnostics.sorted()).split("\n")

    assert line == f"1 | {shown}"
    assert carets == "  | " + " " * shown.index("HERE") + "^^^^"
