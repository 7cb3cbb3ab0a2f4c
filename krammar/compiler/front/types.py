"""Types that are written as one word (primitive types, texts, enums, named structs), and prefixes of arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from krammar.compiler import ir
from krammar.compiler.front import type_hints
from krammar.compiler.front.declarations import Declarations
from krammar.compiler.front.prefixes import (
    LENGTHS,
    TEXTS,
    TypePrefix,
    read_array_prefix,
    read_nullable_struct,
    read_text_type,
)
from krammar.compiler.front.reporter import Reporter
from krammar.compiler.front.syntax import Word
from krammar.util.diagnostics import meant, most_similar

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
