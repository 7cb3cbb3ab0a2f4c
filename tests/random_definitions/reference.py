"""An independent codec: the bytes of a value, as docs/definitions.md describes them.

It shares no code with krammar. Values are plain: a struct is a dictionary with all of its fields by their names in the
definition, and ``unknown_tags``, by number, if it has any.
"""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

from tests.random_definitions.model import (
    Array,
    Counted,
    Enum,
    EnumOf,
    Field,
    Inline,
    Named,
    Number,
    Struct,
    Text,
    Type,
    Versions,
    defaults,
)

Value = dict[str, Any]

FORMATS = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint8": ">B",
    "uint16": ">H",
    "uint32": ">I",
    "uint64": ">Q",
    "float32": ">f",
    "float64": ">d",
}
# Zig-zag varints, and unsigned ones, by their bits.
ZIGZAG = {"varint": 32, "varlong": 64}
UNSIGNED = {"uvarint": 32, "uvarlong": 64}
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, **ZIGZAG}
UNSIGNED_BITS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, **UNSIGNED}


class Invalid(Exception):
    """The bytes, or the value, do not match the definition."""


class UnknownVersion(Invalid):
    """The version field of a struct has a version that the definition does not have."""


class Unbounded(Exception):
    """An array has more elements than there are bytes. Elements without bytes have a limit of krammar's own."""


def bounds(name: str) -> tuple[int, int]:
    """The lowest and the highest value of an integer type."""
    if name in UNSIGNED_BITS:
        return 0, (1 << UNSIGNED_BITS[name]) - 1
    return -(1 << (BITS[name] - 1)), (1 << (BITS[name] - 1)) - 1


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are equal, bit by bit: 0.0 is not -0.0, and False is not 0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack(">d", one) == struct.pack(">d", other)
    return type(one) is type(other) and bool(one == other)


def is_default(value: Any, default: Any) -> bool:
    """Whether a tagged field is left out: its value equals the default. -0.0 equals 0.0, as IEEE 754 says."""
    if isinstance(value, dict) and isinstance(default, dict):
        return value.keys() == default.keys() and all(
            is_default(value[key], default[key]) for key in value
        )
    return type(value) is type(default) and bool(value == default)


def has(item: Field, version: int, flexible: bool) -> bool:
    """Whether the bytes of a struct can contain a field."""
    return version in item.versions and (item.tag is None or flexible)


# ---- encoding -----------------------------------------------------------------------------------


def encode(message: Struct, version: int, value: Value) -> bytes:
    """The bytes of a message, or of another struct that can be encoded alone."""
    return _struct(message, version, message.flexible(version), value)


def _struct(kind: Struct, version: int, flexible: bool, value: Value) -> bytes:
    out = b""
    for item in kind.fields:
        if item.tag is None and has(item, version, flexible):
            out += _value(item.type, version, flexible and not item.classic, value[item.name])
    if not flexible:
        return out
    tags = {
        item.tag: _value(item.type, version, True, value[item.name], tagged=True)
        for item in kind.fields
        if item.tag is not None
        and version in item.versions
        and not is_default(value[item.name], item.default)
    }
    tags |= value.get("unknown_tags", {})
    out += uvarint(len(tags))
    for tag in sorted(tags):
        out += uvarint(tag) + uvarint(len(tags[tag])) + tags[tag]
    return out


def _value(type_: Type, version: int, flexible: bool, value: Any, *, tagged: bool = False) -> bytes:
    match type_:
        case Number(name) | EnumOf(Enum(type=name)):
            return number(name, value)
        case Text(kind, nullable, prefix):
            if value is None:
                return _length(prefix, flexible, kind, None, _nulls(nullable, prefix, version))
            data = value.encode() if kind == "string" else value
            return _length(prefix, flexible, kind, len(data), False) + data
        case Array(element, nullable, prefix):
            if value is None:
                return _length(prefix, flexible, "array", None, _nulls(nullable, "", version))
            return _length(prefix, flexible, "array", len(value), False) + b"".join(
                _value(element, version, flexible, each) for each in value
            )
        case Counted():
            return bytes(value)
        case Inline(kind, nullable) | Named(kind, nullable):
            if value is None:
                return _absent(type_, tagged)
            before = b"\x01" if nullable else b""
            if kind.role == "versioned":
                return before + encode(kind, value[kind.fields[0].name], value)
            return before + _struct(kind, version, flexible, value)
    raise AssertionError(type_)


def _absent(type_: Inline | Named, tagged: bool) -> bytes:
    """The byte of a struct that is null."""
    return b"\x00" if tagged or type_.flag else b"\xff"


def _nulls(nullable: Versions | None, prefix: str, version: int) -> bool:
    return prefix == "varint" or (nullable is not None and version in nullable)


def _length(prefix: str, flexible: bool, kind: str, length: int | None, null: bool) -> bytes:
    if length is None and not null:
        raise Invalid("null is not allowed")
    if prefix:
        return number(prefix, -1 if length is None else length)
    if flexible:
        return uvarint(0 if length is None else length + 1)
    return number("int16" if kind == "string" else "int32", -1 if length is None else length)


def number(name: str, value: Any) -> bytes:
    """The bytes of a number, bool or uuid."""
    if name == "uuid":
        return UUID.bytes.fget(value)  # type: ignore[no-any-return, attr-defined]
    if name in ZIGZAG:
        return uvarint((value << 1) ^ (value >> (ZIGZAG[name] - 1)))
    if name in UNSIGNED:
        return uvarint(value)
    return struct.pack(FORMATS[name], value)


def uvarint(value: int) -> bytes:
    """An unsigned base-128 integer, the lowest seven bits first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def empty_elements(kind: Struct, version: int, flexible: bool, value: Value) -> int:
    """The number of array elements that have no bytes."""
    if kind.role == "versioned":
        version = value[kind.fields[0].name]
        flexible = kind.flexible(version)
    return sum(
        _empty_in(item.type, version, flexible and not item.classic, value[item.name])
        for item in kind.fields
        if has(item, version, flexible)
    )


def _empty_in(type_: Type, version: int, flexible: bool, value: Any) -> int:
    if isinstance(type_, Array) and value is not None:
        # Whether an element has bytes depends on its type alone.
        empty = (
            len(value) if value and not _value(type_.element, version, flexible, value[0]) else 0
        )
        return empty + sum(_empty_in(type_.element, version, flexible, each) for each in value)
    if isinstance(type_, (Inline, Named)) and value is not None:
        return empty_elements(type_.struct, version, flexible, value)
    return 0


# ---- decoding -----------------------------------------------------------------------------------


def decode(message: Struct, data: bytes, version: int) -> Value:
    """The value of all of ``data``. A struct with a version field has its own version. Raises Invalid."""
    reader = _Reader(data)
    if is_newer(message, data):
        assert message.highest is not None
        value = reader.struct(message, message.highest, message.flexible(message.highest))
        return {**value, message.fields[0].name: message.highest}
    value = reader.value(Named(message), version, message.flexible(version))
    if reader.at != len(data):
        raise Invalid("bytes are left over")
    return value


def is_newer(message: Struct, data: bytes) -> bool:
    """Whether the bytes have a version above the last one, and are read like it."""
    if not message.reads_newer or len(data) < 2:
        return False
    assert message.highest is not None
    return int.from_bytes(data[:2], "big", signed=True) > message.highest


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise Invalid(f"{size} bytes at {self.at}")
        self.at += size
        return self.data[self.at - size : self.at]

    def struct(self, kind: Struct, version: int, flexible: bool) -> Value:
        value: Value = {}
        for item in kind.fields:
            if item.tag is not None or not has(item, version, flexible):
                continue
            inside = flexible and not item.classic
            if isinstance(item.type, Counted):
                value[item.name] = self.take(value[item.type.length] - item.type.minus)
                continue
            value[item.name] = self.value(item.type, version, inside)
        value = {**defaults(kind), **value}
        if flexible:
            self.tags(kind, version, value)
        return value

    def tags(self, kind: Struct, version: int, value: Value) -> None:
        known = {item.tag: item for item in kind.fields if item.tag is not None}
        last = -1
        unknown = {}
        for _ in range(self.uvarint()):
            tag, size = self.uvarint(), self.uvarint()
            if tag <= last:
                raise Invalid(f"tag {tag} after {last}")
            last = tag
            end = self.at + size
            item = known.get(tag)
            if item is None or version not in item.versions:
                unknown[tag] = self.take(size)
            else:
                value[item.name] = self.value(item.type, version, True, tagged=True)
                if self.at != end:
                    raise Invalid(f"tag {tag} has another size")
        if unknown:
            value["unknown_tags"] = unknown

    def value(self, type_: Type, version: int, flexible: bool, *, tagged: bool = False) -> Any:
        match type_:
            case Number(name) | EnumOf(Enum(type=name)):
                return self.number(name)
            case Text(kind, nullable, prefix):
                size = self.length(prefix, flexible, kind, _nulls(nullable, prefix, version))
                if size is None:
                    return None
                data = self.take(size)
                try:
                    return data.decode() if kind == "string" else data
                except UnicodeDecodeError as error:
                    raise Invalid(str(error)) from None
            case Array(element, nullable, prefix):
                count = self.length(prefix, flexible, "array", _nulls(nullable, "", version))
                if count is None:
                    return None
                if count > len(self.data):
                    raise Unbounded
                return [self.value(element, version, flexible) for _ in range(count)]
            case Inline(kind, nullable) | Named(kind, nullable):
                if nullable:
                    present = self.take(1)
                    if present == _absent(type_, tagged):
                        return None
                    if present != b"\x01":
                        raise Invalid("the presence byte")
                if kind.role == "versioned":
                    own = self.number("int16")
                    self.at -= 2
                    if kind.highest is not None and not kind.lowest <= own <= kind.highest:
                        raise UnknownVersion(f"version {own}")
                    return self.struct(kind, own, kind.flexible(own))
                return self.struct(kind, version, flexible)
        raise AssertionError(type_)

    def length(self, prefix: str, flexible: bool, kind: str, null: bool) -> int | None:
        if prefix:
            size = self.number(prefix)
        elif flexible:
            size = self.uvarint() - 1
        else:
            size = self.number("int16" if kind == "string" else "int32")
        if size >= 0:
            return int(size)
        if not null:
            raise Invalid(f"a length of {size}")
        return None

    def number(self, name: str) -> Any:
        if name == "uuid":
            return UUID(bytes=self.take(16))
        if name in ZIGZAG:
            value = self.uvarint(ZIGZAG[name])
            return (value >> 1) ^ -(value & 1)
        if name in UNSIGNED:
            return self.uvarint(UNSIGNED[name])
        return struct.unpack(FORMATS[name], self.take(struct.calcsize(FORMATS[name])))[0]

    def uvarint(self, bits: int = 32) -> int:
        value = 0
        for shift in range(0, bits, 7):
            (byte,) = self.take(1)
            value |= (byte & 127) << shift
            if byte < 128:
                break
        else:
            raise Invalid("a varint is too long")
        if value >> bits:
            raise Invalid(f"a varint of more than {bits} bits")
        return value
