"""Maps generated classes to Spark types, and converts values in both directions.

A struct has the fields of all versions of its definition. Fields that a version lacks have the definition's default.
``docs/spark-typed.md`` has the table of types.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from krammar.wire.layout import (
    Array,
    Field,
    Layout,
    Nested,
    Scalar,
    Sized,
    Text,
    Type,
    VarInteger,
    Versioned,
)
from krammar.wire.message import Codec, Struct
from krammar.wire.representation import named

Convert = Callable[[Any], Any]

_SCALARS: dict[str, DataType] = {
    "?": BooleanType(),
    "b": ByteType(),
    "h": ShortType(),
    "i": IntegerType(),
    "q": LongType(),
    "B": ShortType(),
    "H": IntegerType(),
    "I": LongType(),
    "f": FloatType(),
    "d": DoubleType(),
    "16s": StringType(),
}


@dataclass(frozen=True, slots=True)
class Mapped:
    """A Spark type, and the conversion of values.

    Attributes:
        to_spark, from_spark: convert a value that is not None; None if values need no conversion
    """

    type: DataType
    to_spark: Convert | None = None
    from_spark: Convert | None = None


def mapped_class(cls: type[Codec], only: Collection[str] | None = None) -> Mapped:
    """Map a message to a StructType; its rows are dictionaries, as Arrow uses them.

    Args:
        only: the fields to map; None means all. Names of other messages' fields are ignored.
    """
    return _struct(
        cls,
        [
            [field for field in _fields(layout) if only is None or field.name in only]
            for layout in _layouts(cls)
        ],
    )


def _layouts(cls: type[Codec]) -> Iterator[Layout]:
    for version in range(cls.min_version, cls.max_version + 1):
        yield cls._layout(version)


def _fields(layout: Layout) -> Iterator[Field]:
    yield from layout.fields
    yield from layout.tags


def _struct(cls: type[Struct], versions: list[list[Field]]) -> Mapped:
    types: dict[str, list[Type]] = {}
    for fields in versions:
        for field in fields:
            types.setdefault(field.name, []).append(field.type)
    members = {name: _merged(types[name], cls, name) for name in cls._fields if name in types}
    to_spark = [(name, member.to_spark) for name, member in members.items()]
    from_spark = {name: member.from_spark for name, member in members.items()}

    def row(value: Any) -> dict[str, Any]:
        result = {}
        for name, convert in to_spark:
            field = getattr(value, name)
            result[name] = field if convert is None or field is None else convert(field)
        return result

    def message(values: dict[str, Any]) -> Any:
        arguments = {}
        for name, field in values.items():
            convert = from_spark[name]
            arguments[name] = field if convert is None or field is None else convert(field)
        return cls(**arguments)

    schema = StructType([StructField(name, member.type) for name, member in members.items()])
    return Mapped(schema, row, message)


def _merged(types: list[Type], cls: type[Struct], name: str) -> Mapped:
    """Merge the types that a field has in all versions: the widest integer, or all fields of a struct."""
    first = types[0]
    if isinstance(first, Array):
        elements = [each.element for each in types if isinstance(each, Array)]
        return _array(_merged(elements, cls, name))
    if isinstance(first, Nested):
        nested = named(cls, first.layout.name)
        layouts = [each.layout for each in types if isinstance(each, Nested)]
        return _struct(nested, [list(_fields(layout)) for layout in layouts])
    if isinstance(first, Versioned):
        return mapped_class(named(cls, first.name))
    found = [_plain(each) for each in types]
    widths = [_INTEGERS.index(each.type) for each in found if each.type in _INTEGERS]
    if len(widths) == len(found):
        return Mapped(_INTEGERS[max(widths)], int)
    return found[0]


# Spark has no unsigned integers: one of 64 bits does not fit into a bigint.
_UINT64 = DecimalType(20, 0)
_INTEGERS: list[DataType] = [ByteType(), ShortType(), IntegerType(), LongType()]


def _plain(kind: Type) -> Mapped:
    if isinstance(kind, Scalar):
        if kind.code == "16s":
            return Mapped(StringType(), str, UUID)
        if kind.code == "Q":
            return Mapped(_UINT64, Decimal, int)
        return Mapped(_SCALARS[kind.code])
    if isinstance(kind, VarInteger):
        if kind.name == "uvarlong":
            return Mapped(_UINT64, Decimal, int)
        return Mapped(IntegerType() if kind.name == "varint" else LongType())
    if isinstance(kind, Text) and kind.kind == "string":
        return Mapped(StringType())
    if isinstance(kind, (Text, Sized)):
        return Mapped(BinaryType(), bytes)
    raise TypeError(f"no Spark type for {kind}")


def _array(element: Mapped) -> Mapped:
    return Mapped(
        ArrayType(element.type), _each(element.to_spark), _each(element.from_spark) or list
    )


def _each(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None

    def every(values: Any) -> list[Any]:
        return [None if value is None else convert(value) for value in values]

    return every
