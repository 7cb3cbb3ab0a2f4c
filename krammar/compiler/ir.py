"""The intermediate representation: what definitions mean, with every name resolved.

Everything is immutable. A struct holds the types that it uses, so an IR without findings has no
cycles and no name that would still have to be looked up.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from krammar.compiler.findings import Position


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions ``min`` to ``max``, both included; ``max`` None is open-ended."""

    min: int = 0
    max: int | None = None

    def __contains__(self, version: int) -> bool:
        return version >= self.min and (self.max is None or version <= self.max)

    def __str__(self) -> str:
        return f"v{self.min}+" if self.max is None else f"v{self.min}-v{self.max}"

    def intersect(self, other: VersionRange) -> VersionRange | None:
        """The versions of both, or None where they have none in common."""
        low = max(self.min, other.min)
        ends = [end for end in (self.max, other.max) if end is not None]
        high = min(ends) if ends else None
        return None if high is not None and high < low else VersionRange(low, high)

    def covers(self, other: VersionRange) -> bool:
        return self.intersect(other) == other


ALL_VERSIONS = VersionRange()


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type of a fixed width. ``code`` is its letter in Python's ``struct`` module."""

    name: str
    code: str
    width: int

    @property
    def is_integer(self) -> bool:
        return self.code in "bhiqBHI"

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value of an integer type."""
        bits = self.width * 8
        return (
            (0, 2**bits - 1) if self.code.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )


PRIMITIVES = {
    primitive.name: primitive
    for primitive in (
        Primitive("bool", "?", 1),
        Primitive("int8", "b", 1),
        Primitive("int16", "h", 2),
        Primitive("int32", "i", 4),
        Primitive("int64", "q", 8),
        Primitive("uint16", "H", 2),
        Primitive("uint32", "I", 4),
        Primitive("float64", "d", 8),
        Primitive("uuid", "16s", 16),
    )
}


@dataclass(frozen=True, slots=True)
class Varint:
    """A zig-zag base-128 integer of 32 (``varint``) or 64 bits (``varlong``)."""

    name: str
    bits: int

    @property
    def bounds(self) -> tuple[int, int]:
        return (-(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1)


VARINTS = {varint.name: varint for varint in (Varint("varint", 32), Varint("varlong", 64))}


@dataclass(frozen=True, slots=True)
class Text:
    """``string`` and ``bytes`` in all spellings. ``nullable`` is None where null is never allowed;
    ``varint`` marks the forms whose length is a zig-zag varint."""

    kind: Literal["string", "bytes"]
    nullable: VersionRange | None = None
    varint: bool = False


@dataclass(frozen=True, slots=True)
class Array:
    element: Type
    nullable: VersionRange | None = None
    varint: bool = False


@dataclass(frozen=True, slots=True)
class StructType:
    struct: Struct
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class EnumType:
    enum: Enum


@dataclass(frozen=True, slots=True)
class LengthFieldMinus:
    """Raw bytes, as many as the field called ``length_field`` says, minus ``minus``."""

    length_field: str
    minus: int


Type = Primitive | Varint | Text | Array | StructType | EnumType | LengthFieldMinus

# A default: a scalar, None for null, or () for an empty array and for a nullable struct whose default
# is a struct of defaults. Any other struct's default is that too, and needs no value here.
Default = bool | int | float | str | bytes | uuid.UUID | tuple[()] | None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct.

    ``versions`` are those of its annotation (of its struct's own numbering). ``tag`` is None for an
    ordinary field. ``flexible`` is False for a field that keeps its classic encoding.
    ``throttle_from`` is the version from which a broker throttles after the response (KIP-219).
    """

    name: str
    python_name: str
    type: Type
    versions: VersionRange
    tag: int | None
    flexible: bool
    default: Default
    doc: str
    position: Position
    throttle_from: int | None = None


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct: a message, a named struct, or an anonymous one that got its class's name.

    ``max_version`` is None where nothing bounds the version. ``version_field`` is the attribute of
    the leading version field, if the struct has one. ``encoding`` is whether it can be encoded alone.
    """

    name: str
    fields: tuple[Field, ...]
    doc: str
    position: Position
    anonymous: bool = False
    encoding: bool = True
    version_field: str | None = None
    min_version: int = 0
    max_version: int | None = None
    flexible_from: int | None = None

    @property
    def versions(self) -> VersionRange:
        return VersionRange(self.min_version, self.max_version)

    def flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from


@dataclass(frozen=True, slots=True)
class EnumMember:
    value: int
    name: str
    remarks: tuple[str, ...]
    doc: str
    position: Position


@dataclass(frozen=True, slots=True)
class Enum:
    name: str
    type: Primitive
    camelcase: bool
    members: tuple[EnumMember, ...]
    doc: str
    position: Position


@dataclass(frozen=True, slots=True)
class Request:
    """A request, its key, where it goes (empty: to any broker), and its response, if it has one."""

    struct: Struct
    key: int
    routing: str
    response: Struct | None


@dataclass(frozen=True, slots=True)
class DefinitionFile:
    """One definition file: ``structs`` are those that it names, in order; anonymous ones are in them."""

    path: Path
    module: str
    structs: tuple[Struct, ...]
    enums: tuple[Enum, ...]


@dataclass(frozen=True, slots=True)
class Protocol:
    """All definition files of one folder, and the package that they become.

    ``package`` is the folder's place below the source, with ``/`` between names; empty for the root.
    """

    package: str
    files: tuple[DefinitionFile, ...]
    requests: tuple[Request, ...]
