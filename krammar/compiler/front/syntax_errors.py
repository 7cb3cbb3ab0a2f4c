"""Reports syntax errors (E106, E107) with corrections, and removes the lines that cannot be parsed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.lexer import PatternStr

from krammar.compiler.front.grammar import grammar, is_valid
from krammar.compiler.front.lines import SourceLines, indent_of, is_content
from krammar.compiler.front.type_hints import explain, is_type, spelled
from krammar.util.diagnostics import Fix, meant, most_similar

# Habits: lines as people write them who know other languages, and how definitions spell them.
#
# A habit is a rule that rewrites a part of a line, with the reason to show. All rules of a kind of line run, one after
# the other, because habits come together: `int8 = 3;`. The caller offers the result only if the grammar accepts it.


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
            r"\b(?:valid ?)?(?<!min )(?<!max )versions?(?: ?[:=] ?| )"
            r"(?:v?(?P<low>\d+) ?(?:-|\.\.|to) ?)?v?(?P<high>\d+)\b(?!\+)",
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


_EXPECTED = {
    "NAME": "a name",
    "WORD": "a type",
    "INT": "a number",
    "FROM": "a version such as `v3+`",
    "RANGE": "versions such as `v3+` or `v3-v5`",
    "DEFAULT": "a default in parentheses",
    "ANONYMOUS": "`=>`",
    "LOWER": "a word in lower case",
    "ROUTING": "`admin` or a coordinator such as `group coordinator`",
    "DOTTED": "the name of a message's struct",
    "CAMELCASE": "`camelcase`",
    "_ARROW": "` =>`",
    "_COLON": "`: ` and a type",
    "_COMMA": "`, `",
    "_MINUS": "` - ` and a number",
    "_COMMENT": "` // ` and an annotation",
    "_OPEN": "` (`",
    "_OF": "`: ` and names",
    "PACKAGE": "the name of a package",
    "_SP": "one space",
    "_NL": "the end of the line",
}

_MODIFIERS = (
    "not top level",
    "with version field",
    "no encoding",
    "key",
    "max version",
    "min version",
    "flexible",
    "admin",
    "group coordinator",
    "txn coordinator",
    "share coordinator",
    "cluster action",
    "newer versions read as the newest",
    "one way",
    "push",
    "header",
    "response header",
    "response key",
)


def report_syntax_error(error: UnexpectedInput, source: SourceLines, start: int, end: int) -> None:
    """Report an error in lines ``start`` to ``end``, and remove the line with the error, if it can be found."""
    number = start + min(error.line - 1, end - start)
    column = max(1, error.column)
    token = error.token if isinstance(error, UnexpectedToken) else None
    if token is not None and token.type == "_INDENT" and number <= start:
        # The header of these lines has been removed.
        for index in range(start, end):
            if is_content(source.lines[index]) and not indent_of(source.lines[index]):
                break
            source.lines[index] = "//"
        return
    if token is not None and token.type == "_INDENT":
        indent = indent_of(source.lines[number - 1])
        source.diagnostics.add(
            "E107",
            "indented lines below a line that cannot contain fields or members",
            source.at(number, indent + 1, len(source.lines[number - 1]) - indent),
            "only a header, and a field with the type `=>` or `[=>]`, can be followed by indented lines",
        )
        source.take_out(number, below_only=True)
        return
    if token is not None and token.type == "$END":
        number = end + 1
    wanted = _wanted(error)
    if wanted == {"RPAR"}:
        # An enum is not closed. Remove it, so that the following lines can be parsed.
        number = source.content_above(number)
        source.diagnostics.add(
            "E106",
            "the enum ends without `)`",
            source.at(number, len(source.lines[number - 1]) + 1),
            "write `)` on a separate line, at column 1",
        )
        while indent_of(source.lines[number - 1]) and number > 1:
            number = source.content_above(number)
        source.take_out(number)
        return
    if wanted == {"_INDENT"}:
        # An indented line is missing, so report the line above.
        number = source.content_above(number)
        if number not in source.gutted:
            source.diagnostics.add(
                "E106",
                "the enum has no members",
                source.at(number, 1, len(source.lines[number - 1])),
                "write each member on an indented line: `  0: NAME`",
            )
        source.take_out(number)
        return
    if not start < number <= end or not is_content(source.lines[number - 1]):
        # A definition is incomplete, and the error is at the next line. Report its last line.
        number = source.content_above(min(number, end) + 1)
        column = len(source.lines[number - 1]) + 1
    line = source.lines[number - 1]
    rest = line[column - 1 :]
    expected = _expected(error)
    word = rest.split(" ")[0] if not rest.startswith(" ") else rest
    what = f'unexpected "{word}"' if rest else "the line is incomplete"
    message = f"{what}: expected {expected}" if expected else what
    hint, fix = _habit(source, number)
    if not hint:
        hint, wrong, right = _syntax_hint(line, rest)
        if wrong:
            fix = Fix(source.at(number, column + rest.index(wrong), len(wrong)), right)
    at = source.at(number, column, max(1, len(word)))
    source.diagnostics.add("E106", message, at, hint, fix=fix)
    source.take_out(number)


def _habit(source: SourceLines, number: int) -> tuple[str, Fix | None]:
    """The hint, and its replacement, for a line in the style of another language."""
    line = source.lines[number - 1]
    indent, text = indent_of(line), line.strip()
    above = number - 1
    while above and (
        indent_of(source.written[above - 1]) or not is_content(source.written[above - 1])
    ):
        above -= 1
    in_enum = above > 0 and is_enum(source.written[above - 1].rstrip())
    if line == "}":
        if in_enum:
            return "`)` ends an enum", Fix(source.at(number, 1, 1), ")")
        return "the indent shows where a struct ends: remove the brace", None
    if text.startswith(("#", "/*")):
        return "a comment begins with `//`", None
    if not indent:
        rewritten = rewrite_header(text)
        around = "{}\n  0: A\n)" if is_enum(rewritten.text) else "{}"
    elif in_enum:
        rewritten, around = rewrite_member(text), "A int8 (\n  {}\n)"
    else:
        rewritten, around = rewrite_field(text), "A =>\n  {}"
    advice = field_advice(rewritten.text) if around == "A =>\n  {}" else ""
    if advice or rewritten.text == text or not is_valid(around.format(rewritten.text)):
        return advice, None
    hint = f"write `{rewritten.text}`"
    if rewritten.reasons:
        hint = f"{', and '.join(rewritten.reasons[-2:])}: {hint}"
    start, end, right = difference(text, rewritten.text)
    return hint, Fix(source.at(number, indent + start + 1, end - start), right)


def _expected(error: UnexpectedInput) -> str:
    shown = []
    for name in _wanted(error) - {"_DEDENT", "_INDENT", "_USE", "_RESERVED", "FREQUENT", "$END"}:
        if name in _EXPECTED:
            shown.append(_EXPECTED[name])
        else:
            pattern = grammar().get_terminal(name).pattern
            shown.append(f"`{pattern.value}`" if isinstance(pattern, PatternStr) else name)
    shown.sort()
    return (
        shown[0]
        if len(shown) == 1
        else ", ".join(shown[:-1]) + (f" or {shown[-1]}" if shown else "")
    )


def _wanted(error: UnexpectedInput) -> set[str]:
    """The names of the terminals that the parser accepts at the error."""
    if isinstance(error, UnexpectedCharacters):
        return set(error.allowed or ())
    if isinstance(error, UnexpectedToken):
        return set(error.accepts or error.expected or ())
    return set()


def _syntax_hint(line: str, rest: str) -> tuple[str, str, str]:
    """A hint, and the part of ``rest`` that the hint recommends to replace, with its replacement."""
    if " => " in line and not line.startswith(" ") and not rest.startswith("from "):
        wanted = rest.strip(" ,").split(",")[0]
        near = most_similar(wanted, _MODIFIERS)
        if near and not rest.lstrip().startswith("#"):
            # `flexibl v9+` is replaced without its version.
            words = wanted.split(" ")[: len(near.split(" "))]
            while len(words) > 1 and words[-1].lstrip("v")[:1].isdigit():
                words.pop()
            return meant(near), " ".join(words), near
    return _general_hint(line, rest), "", ""


def _general_hint(line: str, rest: str) -> str:
    if rest.lstrip().startswith("#"):
        return "a comment begins with `//`"
    if " => " in line and not line.startswith(" "):
        if rest.startswith("from "):
            return "a response has no modifiers and directly follows its request"
        return "the modifiers are " + ", ".join(_MODIFIERS)
    alone = re.match(r"v(\d+)(,|$)", rest)
    if alone is not None and " // " in line:
        number = alone[1]
        return f"write `v{number}-v{number}` for version {number} only, or `v{number}+` for all from {number}"
    if re.match(" +reserved ", line, re.I) or rest.startswith("reserved "):
        return "tags of removed fields are on lines of their own: `reserved tag 3` or `reserved tag 3, 5`"
    if line.startswith(" ") and (
        "//" in line[: len(line) - len(rest) + 3] or rest.startswith(" /")
    ):
        return (
            "annotations are `v3+`, `v3-v5`, `tag 0`, `not flexible`, `ignorable` and `entity topicName`, "
            "separated by `, `; "
            "write comments on the lines above the field"
        )
    if line.startswith(" ") and ":" in line and ": " not in line:
        return "a field is written `Name: type`, with one space after the colon"
    if re.match(r" +[A-Za-z]\w* [^ /(]", line):
        return "a field is written `Name: type`, with a colon"
    if re.match(r" +-?\d+ \w", line):
        return "a member of an enum is written `0: NAME`, with a colon"
    return ""
