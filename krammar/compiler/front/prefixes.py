"""Words before a type that say how its length is written, and where it can be null.

Strings, bytes, arrays and structs share them: ``nullable-int16-string-v3+``, ``nullable-int16-v3+[int8]``,
``nullable-bool-Name``. ``nullable`` comes first, then the form of the length (or of a struct's presence), and the
versions in which null is allowed come last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from krammar.compiler import ir
from krammar.compiler.front.reporter import Reporter
from krammar.compiler.front.syntax import Word

# The forms of lengths. All of them are the same in classic and in flexible versions.
LENGTHS = ("int16", "int32", "varint", "uvarint")
TEXTS = ("string", "bytes")
_PARTS = (
    r"(?P<nullable>nullable(?:-|$))?"
    rf"(?:(?P<length>{'|'.join(LENGTHS)})(?:-|$))?"
    r"{kind}"
    r"(?:v(?P<low>\d+)(?:\+|-v(?P<high>\d+)))?"
)
_TEXT = re.compile(_PARTS.replace("{kind}", r"(?P<kind>string|bytes)(?:-(?=v)|$)"))
_ARRAY = re.compile(_PARTS.replace("{kind}", ""))
_STRUCT = re.compile(r"nullable-(?P<presence>bool-)?(?P<name>[A-Z]\w*(?:\.\w+)?)")


@dataclass(frozen=True, slots=True)
class TypePrefix:
    """A prefix. ``nullable`` are the versions that allow null, or None. ``length`` is empty for Kafka's form."""

    nullable: ir.VersionRange | None = None
    length: ir.LengthForm = ""
    kind: str = ""


def read_text_type(word: Word, report: Reporter) -> TypePrefix | None:
    """Read a string or bytes with its prefixes. None if the word is another type."""
    match = _TEXT.fullmatch(word.text)
    return None if match is None else _read(match, word, report)


def read_array_prefix(word: Word, report: Reporter) -> TypePrefix | None:
    """Read the word before a bracket. None if it is no prefix."""
    match = _ARRAY.fullmatch(word.text)
    return None if match is None else _read(match, word, report)


def read_nullable_struct(text: str) -> tuple[str, bool] | None:
    """Split ``nullable-bool-Name`` into the name, and whether a bool precedes the struct. None for other words."""
    match = _STRUCT.fullmatch(text)
    return None if match is None else (match["name"], match["presence"] is not None)


def _read(match: re.Match[str], word: Word, report: Reporter) -> TypePrefix | None:
    length: ir.LengthForm = match["length"] or ""  # type: ignore[assignment]
    kind = match.groupdict().get("kind") or ""
    if match["nullable"] is None:
        if match["low"] is not None:
            return None
        # franz-go's `varint-string` is null if its length is negative.
        always = ir.ALL_VERSIONS if length == "varint" and kind else None
        return TypePrefix(always, length, kind)
    if length == "uvarint":
        report.error(
            "E405",
            "an unsigned length has no number for null",
            word,
            f"a signed length can be -1, which is null: write `{word.text.replace('uvarint', 'int32')}`, or a bool before it",
        )
        return TypePrefix(None, length, kind)
    if length == "varint" and kind:
        report.error(
            "E405",
            f"a `varint-{kind}` can always be null",
            word,
            f"write `varint-{kind}`",
            f"varint-{kind}",
        )
        return TypePrefix(ir.ALL_VERSIONS, length, kind)
    if match["low"] is None:
        return TypePrefix(ir.ALL_VERSIONS, length, kind)
    first = report.in_range(int(match["low"]), word, "version")
    last = report.in_range(int(match["high"]), word, "version") if match["high"] else None
    if last is not None and first > last:
        report.error("E302", f"v{first} is higher than v{last}", word)
        last = first
    return TypePrefix(ir.VersionRange(first, last), length, kind)
