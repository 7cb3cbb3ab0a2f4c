"""Reports syntax errors (E106, E107), and removes the lines that cannot be parsed."""

from __future__ import annotations

import re

from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.lexer import PatternStr

from krammar.compiler.front import habits
from krammar.compiler.front.grammar import grammar, is_valid
from krammar.compiler.front.lines import SourceLines, indent_of, is_content
from krammar.util.diagnostics import Fix, meant, most_similar

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
    in_enum = above > 0 and habits.is_enum(source.written[above - 1].rstrip())
    if line == "}":
        if in_enum:
            return "`)` ends an enum", Fix(source.at(number, 1, 1), ")")
        return "the indent shows where a struct ends: remove the brace", None
    if text.startswith(("#", "/*")):
        return "a comment begins with `//`", None
    if not indent:
        rewritten = habits.rewrite_header(text)
        around = "{}\n  0: A\n)" if habits.is_enum(rewritten.text) else "{}"
    elif in_enum:
        rewritten, around = habits.rewrite_member(text), "A int8 (\n  {}\n)"
    else:
        rewritten, around = habits.rewrite_field(text), "A =>\n  {}"
    advice = habits.field_advice(rewritten.text) if around == "A =>\n  {}" else ""
    if advice or rewritten.text == text or not is_valid(around.format(rewritten.text)):
        return advice, None
    hint = f"write `{rewritten.text}`"
    if rewritten.reasons:
        hint = f"{', and '.join(rewritten.reasons[-2:])}: {hint}"
    start, end, right = habits.difference(text, rewritten.text)
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
