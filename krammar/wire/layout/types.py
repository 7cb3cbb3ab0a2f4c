"""Types with a length or a version: texts, arrays, versioned structs, and counted bytes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from krammar.wire.errors import UnsupportedVersionError
from krammar.wire.layout.fields import default_of
from krammar.wire.layout.reader import Reader
from krammar.wire.layout.scalars import Type
from krammar.wire.layout.writer import Writer, value_text
from krammar.wire.primitives import LENGTH_SIZES, Malformed, as_list

# What precedes a type in the notation of protocol guides, for each form of its length.
_FORMS = {
    "int16": "INT16_",
    "int32": "INT32_",
    "uvarint": "COMPACT_",
    "unsigned": "UVARINT_",
    "varint": "VARINT_",
}


@dataclass(frozen=True, slots=True)
class Text(Type):
    """A string or bytes.

    ``prefix`` is the form of the length in bytes: int16, int32, uvarint (length plus one), unsigned (a varint of the
    length) or varint (zig-zag).
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
        usual = "int16" if self.kind == "string" else "int32"
        return ("" if self.prefix == usual else _FORMS[self.prefix]) + name

    @property
    def min_size(self) -> int:
        return LENGTH_SIZES[self.prefix]

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
                raise writer.error(f"needs a str, not {value_text(value)}")
            try:
                data = value.encode()
            except UnicodeEncodeError as error:
                raise writer.error(
                    f"character {error.start} is a lone surrogate, which UTF-8 cannot carry"
                ) from None
        elif isinstance(value, (bytes, bytearray, memoryview)):
            data = bytes(value)
        else:
            raise writer.error(f"needs bytes, not {value_text(value)}")
        writer.length(self.prefix, len(data), f"{self.kind} of {len(data)} bytes")
        writer.out += data


@dataclass(frozen=True, slots=True)
class Array(Type):
    """An array: its count, in the form ``prefix``, and its elements."""

    element: Type
    prefix: str
    nullable: bool

    def __str__(self) -> str:
        mark = "" if self.prefix == "int32" else _FORMS[self.prefix]
        mark += "NULLABLE_" if self.nullable else ""
        return f"{mark}[{self.element}]"

    def word(self, name: str) -> str:
        type_: Type = self
        depth = 0
        while isinstance(type_, Array):
            depth, type_ = depth + 1, type_.element
        name = f"{'[' * depth}{type_.word(name)}{']' * depth}"
        words = ["nullable"] if self.nullable else []
        if self.prefix not in ("int32", "uvarint"):
            words.append(_FORMS[self.prefix].lower().rstrip("_"))
        return "-".join(words) + name

    @property
    def min_size(self) -> int:
        return LENGTH_SIZES[self.prefix]

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
        if not least:
            reader.count_empty(number, begin)
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
            raise writer.error(list_fault(value, value_text(value))) from None
        if not self.element.min_size:
            writer.count_empty(len(value))
        writer.length(self.prefix, len(value), f"array of {len(value)} elements")
        for index, element in enumerate(value):
            with writer.at(f"[{index}]"):
                self.element.write(element, writer)


@dataclass(frozen=True, slots=True)
class Versioned(Type):
    """A struct whose version field selects its layout. ``nullable`` and ``tagged`` are as for ``Nested``."""

    name: str
    module: str
    nullable: bool = False
    tagged: bool = False

    def __str__(self) -> str:
        return self.name

    def word(self, name: str) -> str:
        return null_word(name, self.tagged) if self.nullable else name

    @property
    def min_size(self) -> int:
        return 1 if self.nullable else 2

    @property
    def cls(self) -> Any:
        """The class of the struct."""
        package = self.module.rpartition(".layouts.")[0]
        return getattr(sys.modules[package], self.name)

    def read(self, reader: Reader) -> dict[str, Any] | None:
        if self.nullable and not read_presence(reader, self.tagged):
            return None
        cls = self.cls
        version = int.from_bytes(reader.peek(2), "big", signed=True)
        try:
            layout = cls._layout(version)
        except UnsupportedVersionError as error:
            raise reader.error(str(error)) from None
        found: dict[str, Any] = layout.read_fields(reader)
        return found

    def write(self, value: Any, writer: Writer) -> None:
        if self.nullable:
            if value is None:
                writer.out += b"\x00" if self.tagged else b"\xff"
                return
            writer.out += b"\x01"
        cls = self.cls
        name = cls._version_field
        if isinstance(value, Mapping):
            version = value[name] if name in value else getattr(cls(), name)
        elif isinstance(value, cls):
            version = getattr(value, name)
        else:
            raise writer.error(f"needs {self.name}, not {value_text(value)}")
        with writer.at(f".{name}"):
            writer.integer(version, -32768, 32767)
        try:
            layout = cls._layout(version)
        except UnsupportedVersionError as error:
            raise writer.error(str(error)) from None
        layout.write_fields(value, writer)

    def defaults(self) -> dict[str, Any]:
        # The default contains its version, and so has the fields of that version.
        cls = self.cls
        version = getattr(cls(), cls._version_field)
        try:
            layout = cls._layout(version)
        except UnsupportedVersionError:
            return {cls._version_field: version}  # such a default cannot be encoded
        return {item.name: default_of(item) for item in (*layout.fields, *layout.tags)}

    def holds_defaults(self, value: Any) -> bool:
        cls = self.cls
        usual = cls()
        if isinstance(value, cls):
            return bool(value == usual)
        version = getattr(usual, cls._version_field)
        try:
            layout = cls._layout(version)
        except UnsupportedVersionError:
            return isinstance(value, Mapping) and value.get(cls._version_field, version) == version
        return bool(layout.holds_defaults(value))


@dataclass(frozen=True, slots=True)
class Sized(Type):
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
            raise writer.error(f"needs bytes, not {value_text(value)}")
        writer.out += bytes(value)


def null_word(name: str, is_bool: bool) -> str:
    """Return the word of a nullable struct in the notation of protocol guides."""
    return f"nullable-bool({name})" if is_bool else f"nullable({name})"


def read_presence(reader: Reader, is_bool: bool) -> bool:
    """Read the byte before a nullable struct, and return whether the struct follows."""
    begin = reader.pos
    presence = reader.take(1)[0]
    null = 0 if is_bool else 0xFF
    if presence not in (null, 1):
        raise reader.error(
            f"presence byte 0x{presence:02x} at offset {begin} is neither 0x{null:02x} (null) nor 0x01",
            begin,
        )
    return presence == 1


def list_fault(value: object, shown: str) -> str:
    """Return why ``as_list`` refuses a value. ``shown`` is the name of the value in the message."""
    if isinstance(value, (list, tuple)):
        name = type(value).__name__
        return f"needs a list; {name} has an __iter__ or __len__ of its own (pass a copy: list(…))"
    return f"needs a list, not {shown}"
