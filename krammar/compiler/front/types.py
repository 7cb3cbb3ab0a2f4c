"""Types that are written as one word: primitive types, texts, enums and named structs, with the prefixes before them.

Strings, bytes, arrays and structs share the prefixes: ``nullable-int16-string-v3+``, ``nullable-int16-v3+[int8]``,
``nullable-bool-Name``. ``nullable`` comes first, then the form of the length (or of a struct's presence), and the
versions in which null is allowed come last.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from krammar.compiler import ir
from krammar.compiler.front import type_hints
from krammar.compiler.front.declarations import Declarations
from krammar.compiler.front.reporter import Reporter
from krammar.compiler.front.syntax import Word
from krammar.util.diagnostics import meant, most_similar

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
            f"a signed length can be -1, which is null: write `{word.text.replace('uvarint', 'int32')}`, "
            "or a bool before it",
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


_TEXT_TYPES = (
    *TEXTS,
    *(f"nullable-{text}" for text in TEXTS),
    *(f"{length}-{text}" for length in LENGTHS for text in TEXTS),
)
# Fields that are written without a type, and their defaults in milliseconds.
MILLIS = {"ThrottleMillis": 0, "TimeoutMillis": 15000}


class NamedTypes:
    """Resolves words to types.

    Args:
        struct: returns a named struct, or None if it has errors.
    """

    def __init__(
        self, declarations: Declarations, struct: Callable[[str], ir.Struct | None]
    ) -> None:
        self._headers = declarations.headers
        self._enums = declarations.enums
        self._unread = declarations.unread
        self._report = declarations.report
        self._struct = struct

    def resolve(self, word: Word, owner: str) -> ir.Type | None:
        """Return a type, for a field of the message or named struct ``owner``."""
        text = word.text
        if text in MILLIS:
            return ir.PRIMITIVES["int32"]
        for table in (ir.PRIMITIVES, ir.VARINTS):
            if text in table:
                return table[text]
        read = read_text_type(word, self._report)
        if read is not None:
            return ir.Text(
                "string" if read.kind == "string" else "bytes", read.nullable, read.length
            )
        if text.startswith("enum-"):
            return self._enum_type(word, text.removeprefix("enum-"))
        presence = read_nullable_struct(text)
        if presence is not None:
            return self._nullable_struct(word, owner, *presence)
        if text in self._headers:
            belongs_to, _, short = text.rpartition(".")
            if belongs_to and belongs_to != owner:
                self._report.error(
                    "E212",
                    f'"{text}" belongs to {belongs_to}, so {owner} cannot contain it',
                    word,
                    f"define a struct without a message in its name: `{short} => not top level, no encoding`",
                )
                return None
            struct = self._struct(text)
            return None if struct is None else ir.StructType(struct)
        if text in self._unread:
            return None
        near, why = self._meant_type(text)
        self._report.error("E204", f'unknown type "{text}"', word, why or meant(near), near)
        return None

    def _nullable_struct(
        self, word: Word, owner: str, name: str, presence_bool: bool
    ) -> ir.Type | None:
        if name in self._enums:
            self._report.error("E405", "an enum cannot be null", word, type_hints.NO_NULL)
            return None
        at = word.position
        skipped = len(word.text) - len(name)
        named = Word(name, replace(at, column=at.column + skipped, length=len(name)))
        found = self.resolve(named, owner)
        if not isinstance(found, ir.StructType):
            return None
        return ir.StructType(found.struct, True, presence_bool)

    def _meant_type(self, text: str) -> tuple[str | None, str]:
        """The type that an unknown one may mean, or why there is none."""
        if text in self._enums:
            return f"enum-{text}", ""
        if why := type_hints.explain(text):
            return None, why
        right = type_hints.spelled(text)
        if right is not None and right != text:
            return right, ""
        known = [*ir.PRIMITIVES, *ir.VARINTS, *_TEXT_TYPES, *MILLIS, *self._headers]
        known += [f"enum-{name}" for name in self._enums]
        return self._report.similar_type(text, known), ""

    def _enum_type(self, word: Word, name: str) -> ir.EnumType | None:
        if name in self._enums:
            return ir.EnumType(self._enums[name])
        # Types are resolved after all declarations, so every enum is known here.
        if name not in self._unread:
            near = self._report.most_similar(name, self._enums)
            self._report.error(
                "E204",
                f'unknown enum "{name}"',
                word,
                meant(near),
                f"enum-{near}" if near else None,
            )
        return None


def array_prefix(prefix: Word | None, report: Reporter) -> TypePrefix:
    """Return the prefix of an array. Words that are none are reported."""
    if prefix is None:
        return TypePrefix()
    found = read_array_prefix(prefix, report)
    if found is not None:
        return found
    near = most_similar(prefix.text, ("nullable", "nullable-v1+", *LENGTHS))
    report.error(
        "E401",
        f'"{prefix.text}" is not allowed before `[`',
        prefix,
        meant(near)
        or "`nullable`, `nullable-vN+`, and the forms of a count are allowed: "
        + ", ".join(f"`{each}`" for each in LENGTHS),
        near or None,
    )
    return TypePrefix()
