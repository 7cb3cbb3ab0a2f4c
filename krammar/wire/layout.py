"""Layouts at run time: they describe the fields of a struct at a version, and locate errors.

Like Kafka's ``Schema`` and ``Struct``, a layout lists the fields and their types, and decodes to dictionaries.
Generated packages contain layouts in separate modules, which are imported on first use: by
``kafka_wire.layout(cls, version)``, by ``krammar inspect``, and to find the invalid field after a codec has
failed.

```python
layout = kafka_wire.layout(kafka_wire.MetadataRequest, 12)
print(layout)                                    # the notation of Kafka's protocol guide
layout.field("topics").default, layout.field(0).type
layout.size_of({"topics": [{"name": "orders"}]})
layout.validate({"topics": [{"name": 5}]})       # EncodeError: … topics[0].name: needs a str
```

This module makes no decisions. The generated layouts contain which fields exist, how lengths are written, and
what is nullable.
"""

from __future__ import annotations

import operator
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, ClassVar, cast
from uuid import UUID

from krammar.wire.errors import DecodeError, EncodeError, UnsupportedVersionError
from krammar.wire.primitives import (
    FAILURES,
    MAX_ZERO_WIDTH,
    UVARINT,
    Malformed,
    as_list,
    encode_varint,
    encode_varlong,
    list_fault,
)

Buffer = bytes | bytearray | memoryview


class _Type:
    """The base class of types. ``nullable`` is whether None is a value."""

    __slots__ = ()

    def write(self, value: Any, writer: Writer) -> None:
        raise NotImplementedError

    def validate(self, value: Any) -> Any:
        """Return ``value`` if it can be written as this type.

        Raises:
            EncodeError: the value is invalid. It contains the path in arrays and structs.
        """
        self.write(value, Writer(str(self)))
        return value

    def size_of(self, value: Any) -> int:
        """Return the number of bytes of ``value``. Raises EncodeError as ``validate`` does."""
        writer = Writer(str(self))
        self.write(value, writer)
        return len(writer.out)


@dataclass(frozen=True, slots=True)
class Scalar(_Type):
    """A value of fixed width. ``enum`` is the name of the enum of its values."""

    name: str
    code: str
    width: int
    enum: str = ""
    nullable: ClassVar[bool] = False

    def __str__(self) -> str:
        return "BOOLEAN" if self.code == "?" else self.name.upper()

    @property
    def min_size(self) -> int:
        return self.width

    def read(self, reader: Reader) -> Any:
        data = reader.take(self.width)
        if self.code == "16s":
            return UUID(bytes=data)
        return struct.unpack(">" + self.code, data)[0]

    def write(self, value: Any, writer: Writer) -> None:
        if self.code == "16s":
            if not isinstance(value, UUID):
                raise writer.error(f"needs a uuid.UUID, not {_what(value)}")
            number = getattr(value, "int", None)
            if not isinstance(number, int) or not 0 <= number < 1 << 128:
                raise writer.error(
                    f"needs a uuid.UUID, whose int is a number of 128 bits, not {_what(number)}"
                )
            writer.out += number.to_bytes(16, "big")
        elif self.code == "?":
            if not isinstance(value, (bool, int)) or value not in (0, 1):
                raise writer.error(f"needs a bool, not {_what(value)}")
            writer.out += b"\x01" if value else b"\x00"
        elif self.code == "d":
            try:
                writer.out += struct.pack(">d", value)
            except (struct.error, TypeError, OverflowError):
                raise writer.error(f"needs a float, not {_what(value)}") from None
        else:
            bits = self.width * 8
            low, high = (
                (0, 2**bits - 1)
                if self.code.isupper()
                else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            )
            writer.out += struct.pack(">" + self.code, writer.integer(value, low, high))


BOOL = Scalar("bool", "?", 1)
INT8 = Scalar("int8", "b", 1)
INT16 = Scalar("int16", "h", 2)
INT32 = Scalar("int32", "i", 4)
INT64 = Scalar("int64", "q", 8)
UINT16 = Scalar("uint16", "H", 2)
UINT32 = Scalar("uint32", "I", 4)
FLOAT64 = Scalar("float64", "d", 8)
UUID_ = Scalar("uuid", "16s", 16)


@dataclass(frozen=True, slots=True)
class VarInteger(_Type):
    """A zig-zag varint of 32 (``varint``) or 64 (``varlong``) bits."""

    name: str
    min_size: ClassVar[int] = 1
    nullable: ClassVar[bool] = False

    def __str__(self) -> str:
        return self.name.upper()

    def read(self, reader: Reader) -> int:
        return reader.zigzag(32 if self.name == "varint" else 64)

    def write(self, value: Any, writer: Writer) -> None:
        bits = 32 if self.name == "varint" else 64
        if not isinstance(value, int):
            raise writer.error(f"needs an int, not {_what(value)}")
        writer.integer(value, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        writer.out += encode_varint(value) if bits == 32 else encode_varlong(value)


VARINT = VarInteger("varint")
VARLONG = VarInteger("varlong")

_WIDTHS = {"int16": 2, "int32": 4, "uvarint": 1, "varint": 1}
_LIMITS = {
    "int16": 0x7FFF,
    "int32": 0x7FFFFFFF,
    "uvarint": 0xFFFFFFFE,
    "varint": 0x7FFFFFFF,
}


@dataclass(frozen=True, slots=True)
class Text(_Type):
    """A string or bytes.

    ``prefix`` is the form of the length in bytes: int16, int32, uvarint (length plus one) or varint (zig-zag).
    ``records`` is whether the bytes contain record batches.
    """

    kind: str
    prefix: str
    nullable: bool
    records: bool = False

    def __str__(self) -> str:
        if self.records:
            return "COMPACT_RECORDS" if self.prefix == "uvarint" else "RECORDS"
        name = f"{'NULLABLE_' if self.nullable else ''}{self.kind.upper()}"
        return {"uvarint": "COMPACT_", "varint": "VARINT_"}.get(self.prefix, "") + name

    @property
    def min_size(self) -> int:
        return _WIDTHS[self.prefix]

    def read(self, reader: Reader) -> str | bytes | None:
        length = reader.length(self.prefix, self.nullable)
        if length is None:
            return None
        begin = reader.pos
        if self.kind == "bytes":
            return reader.slice(length)
        data = reader.take(length)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            at = begin + error.start
            raise reader.error(
                f"byte 0x{data[error.start]:02x} at offset {at} is not UTF-8", at
            ) from None

    def write(self, value: Any, writer: Writer) -> None:
        if value is None:
            writer.null(self.prefix, self.nullable)
            return
        if self.kind == "string":
            if not isinstance(value, str):
                raise writer.error(f"needs a str, not {_what(value)}")
            try:
                data = value.encode()
            except UnicodeEncodeError as error:
                raise writer.error(
                    f"character {error.start} is a lone surrogate, which UTF-8 cannot carry"
                ) from None
        elif isinstance(value, (bytes, bytearray, memoryview)):
            data = bytes(value)
        else:
            raise writer.error(f"needs bytes, not {_what(value)}")
        writer.length(self.prefix, len(data), f"{self.kind} of {len(data)} bytes")
        writer.out += data


@dataclass(frozen=True, slots=True)
class Array(_Type):
    """An array: its count, in the form ``prefix``, and its elements."""

    element: Type
    prefix: str
    nullable: bool

    def __str__(self) -> str:
        mark = {"uvarint": "COMPACT_", "varint": "VARINT_"}.get(self.prefix, "")
        mark += "NULLABLE_" if self.nullable else ""
        return f"{mark}[{self.element}]"

    @property
    def min_size(self) -> int:
        return _WIDTHS[self.prefix]

    def read(self, reader: Reader) -> list[Any] | None:
        begin = reader.pos
        number = reader.length(self.prefix, self.nullable)
        if number is None:
            return None
        least = self.element.min_size
        # If data of this size can contain so many elements, the data may be truncated, and reading continues
        # up to the missing field. Otherwise the count is invalid.
        if least and number > len(reader.data):
            raise reader.error(
                f"{number} elements need at least {number * least} bytes at offset {reader.pos}, "
                f"{reader.left} left",
                begin,
            )
        if not least and number > MAX_ZERO_WIDTH:
            raise reader.error(
                f"{number} elements that take no bytes; {MAX_ZERO_WIDTH} at most", begin
            )
        values = []
        for index in range(number):
            with reader.at(f"[{index}]", self.element):
                value = self.element.read(reader)
                reader.note(value)
            if reader.keep:
                values.append(value)
        return values

    def write(self, value: Any, writer: Writer) -> None:
        if value is None:
            writer.null(self.prefix, self.nullable)
            return
        try:
            as_list(value)
        except Malformed:
            raise writer.error(list_fault(value, _what(value))) from None
        if not self.element.min_size and len(value) > MAX_ZERO_WIDTH:
            raise writer.error(
                f"{len(value)} elements that take no bytes; {MAX_ZERO_WIDTH} at most"
            )
        writer.length(self.prefix, len(value), f"array of {len(value)} elements")
        for index, element in enumerate(value):
            with writer.at(f"[{index}]"):
                self.element.write(element, writer)


@dataclass(frozen=True, slots=True)
class Nested(_Type):
    """A struct in place.

    A byte precedes a nullable struct: 1, or an int8 of -1 for null. In a tagged field, null is an unsigned
    varint of 0.
    """

    layout: Layout
    nullable: bool
    tagged: bool = False

    def __str__(self) -> str:
        return f"{'NULLABLE ' if self.nullable else ''}{self.layout.name}"

    @property
    def min_size(self) -> int:
        return 1 if self.nullable else self.layout.min_size

    def read(self, reader: Reader) -> dict[str, Any] | None:
        if self.nullable:
            begin = reader.pos
            presence = reader.take(1)[0]
            null = 0 if self.tagged else 0xFF
            if presence == null:
                return None
            if presence != 1:
                raise reader.error(
                    f"presence byte 0x{presence:02x} at offset {begin} is neither 0x{null:02x} (null) "
                    "nor 0x01",
                    begin,
                )
        return self.layout._read(reader)

    def write(self, value: Any, writer: Writer) -> None:
        if self.nullable:
            if value is None:
                writer.out += b"\x00" if self.tagged else b"\xff"
                return
            writer.out += b"\x01"
        self.layout._write(value, writer)


@dataclass(frozen=True, slots=True)
class Versioned(_Type):
    """A struct whose version field selects its layout."""

    name: str
    module: str
    min_size: ClassVar[int] = 2
    nullable: ClassVar[bool] = False

    def __str__(self) -> str:
        return self.name

    def _class(self) -> Any:
        package = self.module.rpartition(".layouts.")[0]
        return getattr(sys.modules[package], self.name)

    def read(self, reader: Reader) -> dict[str, Any]:
        cls = self._class()
        version = int.from_bytes(reader.peek(2), "big", signed=True)
        try:
            layout: Layout = cls._layout(version)
        except UnsupportedVersionError as error:
            raise reader.error(str(error)) from None
        return layout._read(reader)

    def write(self, value: Any, writer: Writer) -> None:
        cls = self._class()
        name = cls._version_field
        if isinstance(value, Mapping):
            version = value.get(name, 0)
        elif isinstance(value, cls):
            version = getattr(value, name)
        else:
            raise writer.error(f"needs {self.name}, not {_what(value)}")
        with writer.at(f".{name}"):
            writer.integer(version, -32768, 32767)
        try:
            layout: Layout = cls._layout(version)
        except UnsupportedVersionError as error:
            raise writer.error(str(error)) from None
        layout._write(value, writer)


@dataclass(frozen=True, slots=True)
class Sized(_Type):
    """Raw bytes. Their number is the value of the field ``length_field``, minus ``minus``."""

    length_field: str
    minus: int
    min_size: ClassVar[int] = 0
    nullable: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"BYTES[{self.length_field} - {self.minus}]"

    def read(self, reader: Reader) -> bytes:
        raise NotImplementedError  # the layout reads it, because only the layout knows the length field

    def write(self, value: Any, writer: Writer) -> None:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise writer.error(f"needs bytes, not {_what(value)}")
        writer.out += bytes(value)


Type = Scalar | VarInteger | Text | Array | Nested | Versioned | Sized


class _Default(Enum):
    DEFAULTS = auto()
    NO_DEFAULT = auto()

    def __repr__(self) -> str:
        return self.name


# The default of a field that is a struct with default values.
DEFAULTS = _Default.DEFAULTS
# The default of a field that every dictionary must contain. Generated layouts have no such fields, because
# definitions have the default 0, false or empty for every field.
NO_DEFAULT = _Default.NO_DEFAULT


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a layout: its attribute, its type, and the versions of its definition.

    ``default`` is a value, () for an empty array, ``DEFAULTS`` or ``NO_DEFAULT``. ``tag`` is the number of a tagged
    field; it is written only if its value is not the default. For a length field, ``length_of`` is the counted
    field, and ``plus`` is added to its length in bytes. ``index`` is the place in the layout, tagged fields last; -1
    outside of a layout. ``ignorable`` is whether a version without the field may drop its value. ``entity`` is what
    the value names, such as ``topicName``.
    """

    name: str
    type: Type
    versions: str
    default: Any = NO_DEFAULT
    tag: int | None = None
    length_of: str = ""
    plus: int = 0
    index: int = -1
    ignorable: bool = False
    entity: str = ""


@dataclass(slots=True)
class Node:
    """A value and its bytes, from ``offset`` up to but not including ``end``."""

    name: str
    type: str
    offset: int
    end: int
    value: Any = None
    enum: str = ""
    children: list[Node] = field(default_factory=list)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Node]]:
        """Yield this node and all nodes below it, with their depths."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


@dataclass(frozen=True)
class Layout:
    """The bytes of a struct at a version: its fields in order, then its tagged fields.

    ``flexible`` is whether tagged fields follow (KIP-482). ``absent`` are the fields that other versions have, with
    their types there.

    Raises:
        ValueError: two fields have the same name or tag, or a tagged field has no default.
    """

    name: str
    version: int
    flexible: bool
    fields: tuple[Field, ...]
    tags: tuple[Field, ...] = ()
    absent: tuple[Field, ...] = ()

    def __post_init__(self) -> None:
        names: set[str] = set()
        numbers: set[int | None] = set()
        for item in (*self.fields, *self.tags, *self.absent):
            if item.name in names:
                raise ValueError(
                    f"{self.name} v{self.version}: two fields have the name {item.name!r} (rename one)"
                )
            names.add(item.name)
        for item in self.tags:
            if item.tag in numbers:
                raise ValueError(
                    f"{self.name} v{self.version}: another field has the tag {item.tag} of "
                    f"{item.name!r} too (give it another tag)"
                )
            numbers.add(item.tag)
            if item.default is NO_DEFAULT:
                raise ValueError(
                    f"{self.name} v{self.version}: the tagged field {item.name!r} needs a default, for "
                    "when it is not written"
                )
        first = len(self.fields)
        fields = tuple(_placed(item, i) for i, item in enumerate(self.fields))
        tags = tuple(_placed(item, i) for i, item in enumerate(self.tags, first))
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "tags", tags)

    def field(self, key: str | int) -> Field:
        """Return a field by its attribute or by its ``index``.

        Raises:
            KeyError: no field has that name.
            IndexError: no field has that index.
        """
        fields = (*self.fields, *self.tags)
        title = f"{self.name} v{self.version}"
        if isinstance(key, int):
            if not 0 <= key < len(fields):
                raise IndexError(f"{title} has no field {key}: it has {len(fields)} fields, from 0")
            return fields[key]
        for item in fields:
            if item.name == key:
                return item
        raise KeyError(f"{title} has no field {key!r}: it has {', '.join(f.name for f in fields)}")

    def at(self, version: int) -> Layout:
        """Return the layout with the number of another version that shares it."""
        return self if version == self.version else replace(self, version=version)

    @property
    def min_size(self) -> int:
        """The minimum number of bytes of a value."""
        return sum(f.type.min_size for f in self.fields) + (1 if self.flexible else 0)

    def __str__(self) -> str:
        return self.notation(f"{self.name} (Version: {self.version})")

    def notation(self, title: str, tags: str = "_tagged_fields") -> str:
        """Return the layout in the notation of Kafka's protocol guide, one line per field.

        The guide does not show which arrays and structs can be null. Here they are ``nullable[topics]`` and
        ``nullable(cursor)``. A tagged field has a line that begins with its tag.

        Args:
            tags: the word at the end of structs with tagged fields; ``TAG_BUFFER`` in older guides.
        """
        return "\n".join(_notation(title, self, "", tags))

    def read(self, data: Buffer, copy: bool = True) -> dict[str, Any]:
        """Decode ``data`` to dictionaries with attributes as keys.

        Unknown tagged fields are under ``"unknown_tags"``.

        Args:
            copy: False makes fields of bytes memoryviews, as for ``Codec.decode``.

        Raises:
            DecodeError: the bytes do not match the layout, or bytes are left over.
        """
        value, end = self.read_from(data, 0, copy)
        if end != len(data):
            raise DecodeError(_trailing(self, len(data), end), offset=end)
        return value

    def read_from(self, data: Buffer, offset: int, copy: bool = True) -> tuple[dict[str, Any], int]:
        """Decode one value at ``offset``, in bytes. Returns it and the offset after it."""
        reader = Reader(self, bytes(data), offset, copy)
        return self._read(reader), reader.pos

    def write(self, values: Mapping[str, Any]) -> bytes:
        """Encode a dictionary as ``read`` returns it. Absent fields get their defaults.

        Raises:
            EncodeError: a value is invalid. It contains the path.
        """
        writer = Writer(f"{self.name} v{self.version}")
        self._write(values, writer)
        return bytes(writer.out)

    def validate(self, values: Any) -> Any:
        """Return ``values``, a dictionary or a message of this class, if they can be written.

        Raises:
            EncodeError: a value is invalid. It contains the path.
        """
        self.write(values)
        return values

    def size_of(self, values: Any) -> int:
        """Return the number of bytes of ``values``. Raises EncodeError as ``validate`` does."""
        return len(self.write(values))

    def trace(self, data: Buffer) -> Node:
        """Decode ``data`` to a tree of nodes, which contain the bytes of each value.

        Raises:
            DecodeError: the bytes do not match the layout. Its attribute ``node`` is the tree up to the error.
        """
        reader = Reader(self, bytes(data), 0)
        root = Node(self.name, self.name, 0, 0)
        reader.nodes = [root]
        try:
            root.value = self._read(reader)
            if reader.pos != len(data):
                raise DecodeError(_trailing(self, len(data), reader.pos), offset=reader.pos)
        except DecodeError as error:
            error.node = root  # type: ignore[attr-defined]
            raise
        finally:
            root.end = reader.pos
        return root

    def _read(self, reader: Reader) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for item in self.fields:
            with reader.at(f".{item.name}", item.type):
                if isinstance(item.type, Sized):
                    length = values[item.type.length_field] - item.type.minus
                    if length < 0:
                        raise reader.error(
                            f"{item.type.length_field} is {values[item.type.length_field]}, "
                            f"less than {item.type.minus}"
                        )
                    value: Any = reader.slice(length)
                else:
                    value = item.type.read(reader)
                reader.note(value)
            values[item.name] = value
        if self.flexible:
            for item in self.tags:
                values[item.name] = default_of(item)
            self._read_tags(reader, values)
        return values

    def _read_tags(self, reader: Reader, values: dict[str, Any]) -> None:
        with reader.at(".unknown_tags", None):
            number = reader.unsigned()
            if number > len(reader.data):
                raise reader.error(
                    f"{number} tagged fields need at least {number * 2} bytes at offset "
                    f"{reader.pos}, {reader.left} left"
                )
            reader.note(number)
        known = {item.tag: item for item in self.tags}
        unknown: dict[int, bytes] = {}
        before = -1
        for _ in range(number):
            begin = reader.pos
            with reader.at(".unknown_tags", None):
                tag = reader.unsigned()
                size = reader.unsigned()
                if tag <= before:
                    raise reader.error(
                        f"tag {tag} at offset {begin} does not ascend: {before} stood before it",
                        begin,
                    )
                if size > reader.left:
                    raise reader.error(
                        f"tag {tag} needs {size} bytes at offset {reader.pos}, {reader.left} left"
                    )
                reader.note(f"tag {tag}, {size} bytes")
            before = tag
            end = reader.pos + size
            item = known.get(tag)
            if item is None:
                with reader.at(f".unknown_tags[{tag}]", None):
                    unknown[tag] = reader.take(size)
                    reader.note(unknown[tag])
                continue
            with reader.at(f".{item.name}", item.type):
                values[item.name] = item.type.read(reader)
                reader.note(values[item.name])
                if reader.pos != end:
                    raise reader.error(
                        f"tag {tag} takes {reader.pos - end + size} bytes, but its size says {size}",
                        reader.pos,
                    )
        if unknown:
            values["unknown_tags"] = unknown

    def _write(self, value: Any, writer: Writer) -> None:
        mapping = isinstance(value, Mapping)
        if not hasattr(value, "_fields") and not (mapping and writer.plain):
            raise writer.error(f"needs {self.name}, not {_what(value)}")
        # Codecs accept every object with the right attributes. Here, another class is probably a mistake.
        if (
            writer.plain
            and not mapping
            and self.name not in [c.__qualname__ for c in type(value).__mro__]
        ):
            raise writer.error(f"needs {self.name}, not {_what(value)}")
        if mapping:
            known = (*self.fields, *self.tags, *self.absent)
            strange = set(value) - {item.name for item in known} - {"unknown_tags"}
            if strange:
                with writer.at(f".{min(map(str, strange))}"):
                    raise writer.error(f"{self.name} v{self.version} has no such field")

        def get(item: Field) -> Any:
            """The value of a field. The path must contain the field, for errors."""
            if mapping:
                if item.name in value:
                    return value[item.name]
                if item.default is NO_DEFAULT:
                    raise writer.error("needs a value, since the field has no default")
                return default_of(item)
            try:
                return getattr(value, item.name)
            except AttributeError:
                raise writer.error(f"{_what(value)} has no such field") from None

        for item in self.absent:
            found = get(item)
            if not item.ignorable and not _is_default(item, found):
                with writer.at(f".{item.name}"):
                    raise writer.error(
                        f"version {self.version} has no such field, so it cannot carry {_what(found)} "
                        f"(the field exists in {item.versions}; encode such a version, or leave the "
                        f"default)"
                    )
        for item in self.fields:
            if item.length_of:
                with writer.at(f".{item.length_of}"):
                    data = get(next(f for f in self.fields if f.name == item.length_of))
                    if not hasattr(data, "__len__"):
                        raise writer.error(f"needs bytes, not {_what(data)}")
            with writer.at(f".{item.name}"):
                item.type.write(len(data) + item.plus if item.length_of else get(item), writer)
        if not self.flexible:
            return
        fields: dict[int, bytes] = {}
        for item in self.tags:
            with writer.at(f".{item.name}"):
                found = get(item)
                if (writer.plain or not isinstance(found, Mapping)) and _is_default(item, found):
                    continue
                inner = writer.inner()
                item.type.write(found, inner)
                assert item.tag is not None
                fields[item.tag] = bytes(inner.out)
        unknown = value.get("unknown_tags") if mapping else value._unknown_tags
        with writer.at(".unknown_tags"):
            self._add_unknown(fields, unknown, writer)
        writer.out += UVARINT[len(fields)]
        for tag, data in sorted(fields.items()):
            writer.out += UVARINT[tag] + UVARINT[len(data)] + data

    def _add_unknown(self, fields: dict[int, bytes], unknown: Any, writer: Writer) -> None:
        if not unknown:
            return
        if not isinstance(unknown, Mapping):
            raise writer.error(f"needs a dict of tags to bytes, not {_what(unknown)}")
        for tag, data in unknown.items():
            writer.integer(tag, 0, 0xFFFFFFFF)
            with writer.at(f"[{tag}]"):
                named = next((item for item in self.tags if item.tag == tag), None)
                if named is not None:
                    raise writer.error(f"tag {tag} is the field {named.name}")
                if not isinstance(data, (bytes, bytearray, memoryview)):
                    raise writer.error(f"needs bytes, not {_what(data)}")
            fields[tag] = bytes(data)


def default_of(item: Field) -> Any:
    """Return the default of a field for a dictionary: a new list, or a dictionary with default values."""
    if item.default is DEFAULTS:
        return _struct_defaults(item.type)
    return [] if item.default == () else item.default


def _struct_defaults(type_: Type) -> dict[str, Any]:
    if isinstance(type_, Versioned):
        return {}
    assert isinstance(type_, Nested)
    fields = (*type_.layout.fields, *type_.layout.tags)
    return {f.name: default_of(f) for f in fields if f.default is not NO_DEFAULT}


def _placed(item: Field, index: int) -> Field:
    """The field with its index in a layout: a copy if it already has another index in another layout."""
    if item.index not in (-1, index):
        item = replace(item)
    if item.index != index:
        # Set it in place although fields are frozen, because copies of all fields would double the time to
        # build a layout.
        object.__setattr__(item, "index", index)
    return item


def _notation(label: str, layout: Layout, indent: str, tags: str) -> Iterator[str]:
    words = [_word(item) for item in layout.fields]
    if layout.flexible:
        words.append(tags)
    yield f"{indent}{label} => {' '.join(words)}".rstrip()
    indent += "  "
    for item in (*layout.fields, *layout.tags):
        label = item.name if item.tag is None else f"<tag {item.tag}> {_word(item)}"
        type_ = item.type
        while isinstance(type_, Array):
            type_ = type_.element
        if isinstance(type_, Nested):
            yield from _notation(label, type_.layout, indent, tags)
        else:
            yield f"{indent}{label} => {type_}"


def _word(item: Field) -> str:
    """The name of a field in the line of its struct."""
    type_ = item.type
    if isinstance(type_, Nested):
        return f"nullable({item.name})" if type_.nullable else item.name
    word, outer = item.name, type_
    while isinstance(type_, Array):
        word = f"[{word}]"
        type_ = type_.element
    if not isinstance(outer, Array):
        return word
    return ("varint" if outer.prefix == "varint" else "nullable" if outer.nullable else "") + word


def _is_default(item: Field, value: Any) -> bool:
    default = item.default
    if default is DEFAULTS:
        if isinstance(item.type, Versioned):
            # The default contains its version, and so has the fields of that version.
            cls = item.type._class()
            usual = cls()
            if isinstance(value, cls):
                return bool(value == usual)
            layout: Layout = cls._layout(getattr(usual, cls._version_field))
        elif isinstance(item.type, Nested):
            layout = item.type.layout
        else:
            return False
        fields = (*layout.fields, *layout.tags, *layout.absent)
        if isinstance(value, Mapping):
            return not value.get("unknown_tags") and all(
                f.name not in value or _is_default(f, value[f.name]) for f in fields
            )
        if not hasattr(value, "_fields"):
            return False
        return not value._unknown_tags and all(
            _is_default(f, getattr(value, f.name, None)) for f in fields
        )
    if default == () and default is not None:
        return isinstance(value, list | tuple) and not value
    if default is None or value is None:
        return default is value
    return bool(value == default)


class Reader:
    """The position in the bytes, and the path of the current field."""

    def __init__(self, layout: Layout, data: bytes, offset: int, copy: bool = True) -> None:
        self.title = f"{layout.name} v{layout.version}"
        self.data = data
        self.view = data if copy else cast(bytes, memoryview(data))
        self.pos = offset
        self.path: list[str] = []
        self.keep = True
        self.nodes: list[Node] | None = None

    @property
    def left(self) -> int:
        return len(self.data) - self.pos

    def at(self, step: str, type_: Type | None) -> _Step:
        return _Step(self, step, type_)

    def note(self, value: Any) -> None:
        """Store the value that was just read in the tree, if there is one."""
        if self.nodes is not None:
            self.nodes[-1].value = value

    def error(self, message: str, offset: int | None = None) -> DecodeError:
        path = _join(self.path)
        place = f"{path}: " if path else ""
        return DecodeError(
            f"{self.title}: {place}{message}",
            path=path,
            offset=self.pos if offset is None else offset,
        )

    def need(self, size: int) -> None:
        if size > self.left:
            unit = "byte" if size == 1 else "bytes"
            raise self.error(f"needs {size} {unit} at offset {self.pos}, {max(0, self.left)} left")

    def peek(self, size: int) -> bytes:
        self.need(size)
        return self.data[self.pos : self.pos + size]

    def take(self, size: int) -> bytes:
        data = self.peek(size)
        self.pos += size
        return data

    def slice(self, size: int) -> bytes:
        """Read a field of bytes, as bytes or as a memoryview."""
        self.need(size)
        self.pos += size
        return self.view[self.pos - size : self.pos]

    def unsigned(self, bits: int = 32) -> int:
        begin = self.pos
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift >= (35 if bits == 32 else 70):
                break
        if byte > 127 or value >= 1 << bits:
            raise self.error(f"the varint at offset {begin} does not fit into {bits} bits", begin)
        return value

    def zigzag(self, bits: int) -> int:
        value = self.unsigned(bits)
        return (value >> 1) ^ -(value & 1)

    def length(self, prefix: str, nullable: bool) -> int | None:
        """Read a length or count. None for null."""
        begin = self.pos
        if prefix == "uvarint":
            length = self.unsigned() - 1
        elif prefix == "varint":
            length = self.zigzag(32)
        else:
            length = int.from_bytes(self.take(_WIDTHS[prefix]), "big", signed=True)
        if length >= 0:
            return length
        if nullable:
            return None
        if length == -1:
            raise self.error(f"null at offset {begin}, which this version does not allow", begin)
        raise self.error(f"a negative length of {length} at offset {begin}", begin)


class _Step:
    """A step of a reader's path. It is a class because a generator would be twice as slow."""

    __slots__ = ("node", "reader", "step", "type")

    def __init__(self, reader: Reader, step: str, type_: Type | None) -> None:
        self.reader = reader
        self.step = step
        self.type = type_

    def __enter__(self) -> None:
        reader = self.reader
        reader.path.append(self.step)
        if reader.nodes is not None:
            name = self.step.lstrip(".")
            type_ = self.type
            self.node = Node(
                name,
                "" if type_ is None else str(type_),
                reader.pos,
                reader.pos,
                None,
                getattr(type_, "enum", ""),
            )
            reader.nodes[-1].children.append(self.node)
            reader.nodes.append(self.node)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        reader = self.reader
        reader.path.pop()
        if reader.nodes is not None:
            reader.nodes.pop()
            self.node.end = reader.pos


class Writer:
    """The written bytes, and the path of the current field."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.out = bytearray()
        self.path: list[str] = []
        # Whether dictionaries are accepted as structs, as generated codecs do not.
        self.plain = True

    def inner(self) -> Writer:
        """Return a writer with the same path, for bytes whose size is written before them."""
        inner = object.__new__(Writer)
        inner.title, inner.out, inner.path = self.title, bytearray(), self.path
        inner.plain = self.plain
        return inner

    def at(self, step: str) -> _WriteStep:
        return _WriteStep(self.path, step)

    def error(self, message: str) -> EncodeError:
        path = _join(self.path)
        place = f"{path}: " if path else ""
        return EncodeError(f"{self.title}: {place}{message}", path=path)

    def integer(self, value: Any, low: int, high: int) -> int:
        try:
            number = operator.index(value)
        except TypeError:
            raise self.error(f"needs an integer, not {_what(value)}") from None
        if not low <= number <= high:
            raise self.error(f"{number} is outside of {low} to {high}")
        return number

    def null(self, prefix: str, nullable: bool) -> None:
        if not nullable:
            raise self.error("must not be null in this version")
        self.out += {
            "int16": b"\xff\xff",
            "int32": b"\xff\xff\xff\xff",
            "uvarint": b"\x00",
            "varint": b"\x01",
        }[prefix]

    def length(self, prefix: str, length: int, what: str) -> None:
        if length > _LIMITS[prefix]:
            raise self.error(f"a {what} is too long: {_LIMITS[prefix]} at most")
        if prefix == "uvarint":
            self.out += UVARINT[length + 1]
        elif prefix == "varint":
            self.out += encode_varint(length)
        else:
            self.out += length.to_bytes(_WIDTHS[prefix], "big")


class _WriteStep:
    __slots__ = ("path", "step")

    def __init__(self, path: list[str], step: str) -> None:
        self.path = path
        self.step = step

    def __enter__(self) -> None:
        self.path.append(self.step)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.path.pop()


def _join(path: list[str]) -> str:
    return "".join(path).removeprefix(".")


def _what(value: Any) -> str:
    if value is None:
        return "None"
    try:
        text = repr(value)
    except Exception:  # the caller's class can raise anything
        return f"an object of {type(value).__name__}"
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"


def _trailing(layout: Layout, size: int, end: int) -> str:
    return f"{layout.name} v{layout.version}: {size - end} bytes left over at offset {end}"


def explain_decode(
    layout: Layout, data: bytes, version: int, offset: int, whole: bool, shift: int = 0
) -> DecodeError:
    """Return the error for ``data`` that a codec could not decode, by decoding it again field by field."""
    reader = Reader(layout, data, offset)
    reader.title = f"{layout.name} v{version}"
    reader.keep = False
    try:
        layout._read(reader)
    except DecodeError as error:
        if shift and error.offset >= 0:
            error.offset += shift
        return error
    except (Malformed, ValueError) as error:
        return DecodeError(f"{reader.title}: {error}", offset=reader.pos + shift)
    if whole and reader.pos != len(data):
        return DecodeError(
            f"{reader.title}: {len(data) - reader.pos} bytes left over at offset {reader.pos}",
            offset=reader.pos,
        )
    return DecodeError(f"{reader.title}: the bytes do not match the layout", offset=offset + shift)


def explain_encode(value: Any, layout: Layout, version: int, cause: BaseException) -> EncodeError:
    """Return the error for ``value`` that a codec could not encode, by encoding it again field by field."""
    writer = Writer(f"{layout.name} v{version}")
    writer.plain = False
    try:
        layout._write(value, writer)
    except EncodeError as error:
        return error
    except FAILURES as error:
        return writer.error(f"cannot be encoded: {error}")
    return EncodeError(f"{writer.title}: cannot be encoded: {cause!r}")
