"""Lines as people write them who know other languages, and how definitions spell them.

A habit is a rule that rewrites a part of a line, with the reason to show. All rules of a kind of line run, one after
the other, because habits come together: ``int8 = 3;``. The caller offers the result only if the grammar accepts it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from krammar.compiler.front.type_hints import explain, is_type, spelled


@dataclass(frozen=True, slots=True)
class RewrittenLine:
    """A line in the spelling of definitions, without its indent, and the reasons of the changes."""

    text: str
    reasons: tuple[str, ...]


_Rule = Callable[[str], str]


def _sub(pattern: str, replacement: str | Callable[[re.Match[str]], str], flags: int = 0) -> _Rule:
    compiled = re.compile(pattern, flags)
    return lambda line: compiled.sub(replacement, line)


def rewrite_field(line: str) -> RewrittenLine:
    """Rewrite the line of a field. ``line`` has no indent."""
    return _apply(_FIELD, line)


def rewrite_header(line: str) -> RewrittenLine:
    """Rewrite the first line of a struct or an enum."""
    return _apply(_ENUM if _ENUM_HEADER.match(line) else _HEADER, line)


def rewrite_member(line: str) -> RewrittenLine:
    """Rewrite the line of a member of an enum. ``line`` has no indent."""
    return _apply(_MEMBER, line)


def field_advice(line: str) -> str:
    """Return what to say about a field that no rule can rewrite, or an empty text."""
    code, _, annotations = line.partition(" //")
    if re.search(r"\bnullable\b", annotations):
        return "null is a part of the type: `nullable-string`, or `nullable-string-v3+` from version 3 on"
    if re.search(r"\bdefault\b", annotations):
        return "a default is in parentheses after the type, as in `int8(3)`"
    field = _FIELD_PARTS.fullmatch(_apply(_FIELD[:2], code).text)
    return explain(field["type"].strip()) if field else ""


def is_enum(header: str) -> bool:
    """Whether a line looks like the header of an enum."""
    return _ENUM_HEADER.match(header) is not None


def difference(old: str, new: str) -> tuple[int, int, str]:
    """Return the part of ``old`` from start to end that differs, and its replacement."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = len(old)
    right = len(new)
    while min(end, right) > start and old[end - 1] == new[right - 1]:
        end, right = end - 1, right - 1
    return start, end, new[start:right]


def _apply(rules: Sequence[tuple[str, _Rule]], line: str) -> RewrittenLine:
    reasons: list[str] = []
    for reason, rule in rules:
        changed = rule(line)
        if changed != line and reason and reason not in reasons:
            reasons.append(reason)
        line = changed
    return RewrittenLine(line.rstrip(), tuple(reasons))


_INT = r"-?(?:0x[0-9a-fA-F]+|\d+)"
_ENUM_HEADER = re.compile(
    r"enum |(?!(?:struct|message|record|type|class) )\w+ ?:? ?\w+(?: camelcase)? ?[({]$"
)
_ARROW = ("the arrow is `=>`", _sub(r"-+>|= >|==+>|[⇒→➜⟹]", "=>"))
_END = ("lines end without `;` and `,`", _sub(r"(?<=\S) ?[;,]+(?= ?(?://|#|$))", ""))
_COMMENT = (
    "annotations follow ` // `",
    _sub(r"\s*(?:#|//|/\*)\s*(?P<text>\S.*?)(?:\s*\*/)?$", r" // \g<text>"),
)

# -- fields -------------------------------------------------------------------------------------------------

_FIELD_PARTS = re.compile(r"(?P<name>[A-Za-z]\w*): (?P<type>[^/(]+?)(?P<rest>\(.*| // .*|)")
_TYPE_FIRST = re.compile(r"(?P<type>[a-z]\w*) (?P<name>[A-Za-z]\w*)(?P<rest>(?: // .*)?)")
_SEPARATOR = re.compile(
    r"(?P<name>[A-Za-z]\w*)(?: ?: ?| ?(?:=|-+>|=>|[⇒→]) ?| )(?P<rest>(?![\s/=(:>-]).+)"
)
_STRUCT = re.compile(r"(?P<name>[A-Za-z]\w*)(?: ?: ?| )(?:=>|->|[⇒→])(?P<rest>.*)")


def _separate(line: str) -> str:
    first = _TYPE_FIRST.fullmatch(line)
    if first and is_type(first["type"]):
        return f"{first['name']}: {first['type']}{first['rest']}"
    match = _SEPARATOR.fullmatch(line)
    if match and match["name"][0].islower() and is_type(match["name"]):
        # In `int32 a = 1`, the number is a default in C, and a tag in other languages.
        return line
    if match:
        return f"{match['name']}: {match['rest']}"
    match = _STRUCT.fullmatch(line)
    return f"{match['name']}: =>{match['rest']}" if match else line


_DEFAULT = re.compile(
    r" ?(?:= ?|\bdefault(?:s? to)?[ :=] ?)(?!>)(?P<quote>[\"']?)(?P<value>[^\s\"'/=>()]+)(?P=quote)$"
)


def _parenthesize(line: str) -> str:
    code, mark, annotations = line.partition(" // ")
    return _DEFAULT.sub(r"(\g<value>)", code) + mark + annotations


def _retype(line: str) -> str:
    match = _FIELD_PARTS.fullmatch(line)
    right = spelled(match["type"]) if match else None
    return line if match is None or right is None else f"{match['name']}: {right}{match['rest']}"


def _annotate(line: str) -> str:
    code, mark, annotations = line.partition(" // ")
    if not mark:
        return line
    listed = [_annotation(each.strip()) for each in re.split(r",|;", annotations)]
    return f"{code}{mark}{', '.join(listed)}"


def _annotation(text: str) -> str:
    for pattern, replacement in _ANNOTATIONS:
        if match := pattern.fullmatch(text):
            return match.expand(replacement)
    return text


_V = r"(?:versions?[ :=]*|since |from )?v?"
_ANNOTATIONS = tuple(
    (re.compile(pattern, re.I), replacement)
    for pattern, replacement in (
        (rf"{_V}(\d+)\+", r"v\1+"),
        (r"(?:since|from) (?:version )?v?(\d+)", r"v\1+"),
        (rf"{_V}(\d+) ?(?:-|\.\.|to) ?v?(\d+)", r"v\1-v\2"),
        (r"<?tag(?:ged)?[ :=]+(\d+)>?", r"tag \1"),
        (r"(?:not|non|un)[ -]?flexible|inflexible", "not flexible"),
        (r"ignor(?:e|ed|eable|ible)", "ignorable"),
        (r"entity(?:type)?[ :=]+(\w+)", r"entity \1"),
    )
)

_FIELD = (
    ("names have no quotes", _sub(r"^(['\"`])(\w+)\1", r"\2")),
    _END,
    ("annotations follow ` // `", _sub(r" ?<tag:? ?(\d+)>(?: // )?", r" // tag \1, ")),
    ("annotations follow ` // `", _sub(r", $", "")),
    _COMMENT,
    ("a field is written `Name: type`", _separate),
    _ARROW,
    ("a default is in parentheses", _parenthesize),
    ("a struct is `=>`", _sub(r"(?<=: )(\w*)\{$", r"\1=>")),
    (
        "a class name directly follows the arrow or the array",
        _sub(r"(?<==>|>\]) (?=[A-Z]\w*\]?(?:$| //))", ""),
    ),
    ("", _retype),
    ("", _annotate),
)

# -- headers ------------------------------------------------------------------------------------------------


def _versions(match: re.Match[str]) -> str:
    low, high = int(match["low"] or 0), int(match["high"])
    return f"max version {high}" + (f", min version {low}" if low else "")


_HEADER = (
    (
        "a definition begins with its name",
        _sub(r"^(?:struct|message|record|type|class) (?=\w+)", ""),
    ),
    ("no brace opens a struct", _sub(r" ?\{$", "")),
    _END,
    _ARROW,
    ("the arrow is `=>`", _sub(r"^(\w+)(?: ?: ?| ?=(?!>) ?|$)", r"\1 => ")),
    ("the arrow is `=>`", _sub(r"^(\w+)(?:=> ?| =>(?=\S))", r"\1 => ")),
    ("", _sub(r"\bapi[ _-]?key\b", "key", re.I)),
    ("", _sub(rf"\b(key)(?: ?[:=] ?)({_INT})", r"\1 \2", re.I)),
    (
        "",
        _sub(r"\b(max|min)(?:imum)?[ _-]?version(?: ?[:=] ?| )v?(\d+)", r"\1 version \2", re.I),
    ),
    (
        "the versions are `max version` and `min version`",
        _sub(
            r"\b(?:valid ?)?(?<!min )(?<!max )versions?(?: ?[:=] ?| )(?:v?(?P<low>\d+) ?(?:-|\.\.|to) ?)?v?(?P<high>\d+)\b(?!\+)",
            _versions,
            re.I,
        ),
    ),
    (
        "the first flexible version is `flexible vN+`",
        _sub(
            r"\bflexible(?:[ _-]?versions?)?(?: ?[:=] ?| )(?:from |since )?v?(\d+)\+?(?![\w-])",
            r"flexible v\1+",
            re.I,
        ),
    ),
    ("", _sub(r"\bnot[ _-]?top[ _-]?level\b", "not top level", re.I)),
)
_ENUM = (
    ("a definition begins with its name", _sub(r"^enum (?:class )?", "")),
    ("the type follows the name", _sub(r"^(\w+) ?(?:: ?|\((?=\w+\)))(\w+)\)?", r"\1 \2")),
    ("parentheses enclose the members", _sub(r" ?[{(]$", " (")),
    (
        "",
        _sub(r"^(\w+) (\w+)", lambda m: f"{m[1]} {spelled(m[2]) or m[2]}"),
    ),
)

# -- members ------------------------------------------------------------------------------------------------

_MEMBER = (
    _END,
    _COMMENT,
    ("the value precedes the name", _sub(rf"^(\w+)(?: ?[=:] ?| )({_INT})(?=$| //)", r"\2: \1")),
    (
        "a member is written `0: NAME`",
        _sub(rf"^({_INT})(?: ?[=:-] ?| ?=> ?| )(?=[A-Za-z])", r"\1: "),
    ),
)
