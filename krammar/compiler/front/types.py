"""Types that are written as one word (primitive types, texts, enums, named structs), and prefixes of arrays."""

from __future__ import annotations

from collections.abc import Callable

from krammar.compiler import ir
from krammar.compiler.front import type_hints
from krammar.compiler.front.declarations import Declarations
from krammar.compiler.front.reporter import Reporter
from krammar.compiler.front.syntax import NULLABLE_FROM, Word
from krammar.util.diagnostics import meant, most_similar

_TEXT_TYPES = {
    "string": ir.Text("string"),
    "bytes": ir.Text("bytes"),
    "nullable-string": ir.Text("string", ir.ALL_VERSIONS),
    "nullable-bytes": ir.Text("bytes", ir.ALL_VERSIONS),
    "varint-string": ir.Text("string", ir.ALL_VERSIONS, varint=True),
    "varint-bytes": ir.Text("bytes", ir.ALL_VERSIONS, varint=True),
}
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
        for table in (ir.PRIMITIVES, ir.VARINTS, _TEXT_TYPES):
            if text in table:
                return table[text]
        match = NULLABLE_FROM.fullmatch(text)
        if match is not None and match[1]:
            kind = "string" if match[1] == "string" else "bytes"
            first = self._report.in_range(int(match[2]), word, "version")
            return ir.Text(kind, ir.VersionRange(first))  # type: ignore[arg-type]
        if text.startswith("enum-"):
            return self._enum_type(word, text.removeprefix("enum-"))
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

    def _meant_type(self, text: str) -> tuple[str | None, str]:
        """The type that an unknown one may mean, or why there is none."""
        if text in self._enums:
            return f"enum-{text}", ""
        if text.removeprefix("nullable-") in self._headers:
            return (
                None,
                "only an anonymous struct can be null: write `nullable=>` and its fields below",
            )
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


def array_prefix(prefix: Word | None, report: Reporter) -> tuple[ir.VersionRange | None, bool]:
    """Return the versions in which an array is nullable, and whether its length is a varint."""
    nullable: ir.VersionRange | None = None
    varint = False
    if prefix is not None:
        match = NULLABLE_FROM.fullmatch(prefix.text)
        if prefix.text == "varint":
            varint = True
        elif prefix.text == "nullable":
            nullable = ir.ALL_VERSIONS
        elif match is not None and not match[1]:
            nullable = ir.VersionRange(report.in_range(int(match[2]), prefix, "version"))
        else:
            near = most_similar(prefix.text, ("nullable", "nullable-v1+", "varint"))
            report.error(
                "E401",
                f'"{prefix.text}" is not allowed before `[`',
                prefix,
                meant(near) or "`nullable`, `nullable-vN+` and `varint` are allowed",
                near or None,
            )
    return nullable, varint
