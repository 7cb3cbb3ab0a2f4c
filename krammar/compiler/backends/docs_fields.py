"""The fields in the HTML reference, with their types in the words of definitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from krammar.compiler import ir


@dataclass(frozen=True, slots=True)
class FieldRow:
    """A field in the table of a message.

    ``depth`` is the nesting level of its struct, ``path`` the attributes that lead to it. ``versions`` are the
    versions in which the field and its struct exist.
    """

    depth: int
    path: str
    field: ir.Field
    versions: ir.VersionRange
    type: str
    named: str
    default: str


def field_rows(struct: ir.Struct) -> Iterator[FieldRow]:
    """Yield the rows of all fields that a version of the struct has."""
    for row in _rows(struct, ir.ALL_VERSIONS, 0, struct.name):
        if row.versions.intersect(struct.versions) is not None:
            yield row


def _rows(struct: ir.Struct, held: ir.VersionRange, depth: int, path: str) -> Iterator[FieldRow]:
    for member in struct.fields:
        versions = member.versions.intersect(held)
        if versions is None:
            continue
        inner = ir.struct_of(member.type)
        inside = f"{path}.{member.python_name}"
        yield FieldRow(
            depth,
            inside,
            member,
            versions,
            _type(member.type),
            _named(member.type),
            _default(member),
        )
        if inner is not None and inner.anonymous:
            yield from _rows(inner, versions, depth + 1, inside)


def _named(type_: ir.Type) -> str:
    """The struct or the enum with a name of its own in a type, or an empty text."""
    match ir.innermost_type(type_):
        case ir.EnumType(enum):
            return enum.name
        case ir.StructType(struct) if not struct.anonymous:
            return struct.name
        case _:
            return ""


def _type(type_: ir.Type) -> str:
    """A type as in definition files."""
    match type_:
        case ir.Primitive(name=name) | ir.Varint(name=name):
            return name
        case ir.Text(kind, nullable, length):
            words: list[str] = [word for word in (length, kind) if word]
            if nullable is None or length == "varint":
                return "-".join(words)
            return "-".join(["nullable", *words]) + ir.spelled_nulls(nullable)
        case ir.Array(element, nullable, length):
            words = [word for word in ("nullable" if nullable else "", length) if word]
            nulls = ir.spelled_nulls(nullable) if nullable is not None else ""
            return f"{'-'.join(words)}{nulls}[{_type(element)}]"
        case ir.StructType(struct, nullable, is_bool):
            null = "" if not nullable else "nullable-bool" if is_bool else "nullable"
            if struct.anonymous:
                return f"{null} struct".lstrip()
            return f"{null}-{struct.name}".lstrip("-")
        case ir.EnumType(enum):
            return f"{enum.name} ({enum.type.name})"
        case ir.LengthFieldMinus(length_field, minus):
            return f"{length_field} - {minus} bytes"


def _default(member: ir.Field) -> str:
    if isinstance(member.type, ir.StructType) and not member.type.nullable:
        return ""  # a struct with default values
    if member.default is None:
        return "null"
    if isinstance(member.default, bool):
        return str(member.default).lower()
    return str(member.default) if member.default not in (0, "", b"", ()) else ""
