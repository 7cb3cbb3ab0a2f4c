"""Types without a length: integers, floats, booleans and uuids."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from krammar.wire.layout.reader import Reader
from krammar.wire.layout.writer import Writer, value_text
from krammar.wire.primitives import (
    encode_uvarint,
    encode_uvarlong,
    encode_varint,
    encode_varlong,
)


class Type:
    """The base class of types. ``nullable`` is whether None is a value."""

    __slots__ = ()

    @property
    def nullable(self) -> bool:
        raise NotImplementedError

    @property
    def min_size(self) -> int:
        raise NotImplementedError

    def read(self, reader: Reader) -> Any:
        raise NotImplementedError

    def write(self, value: Any, writer: Writer) -> None:
        raise NotImplementedError

    def word(self, name: str) -> str:
        """Return a field with this type in the line of its struct, in the notation of Kafka's protocol guide."""
        return name

    def defaults(self) -> dict[str, Any]:
        """Return the default values of the fields of a struct."""
        return {}

    def holds_defaults(self, value: Any) -> bool:
        """Return whether ``value`` is a struct with default values."""
        return False

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
class Scalar(Type):
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
                raise writer.error(f"needs a uuid.UUID, not {value_text(value)}")
            number = getattr(value, "int", None)
            if not isinstance(number, int) or not 0 <= number < 1 << 128:
                raise writer.error(
                    f"needs a uuid.UUID, whose int is a number of 128 bits, not {value_text(number)}"
                )
            writer.out += number.to_bytes(16, "big")
        elif self.code == "?":
            if not isinstance(value, (bool, int)) or value not in (0, 1):
                raise writer.error(f"needs a bool, not {value_text(value)}")
            writer.out += b"\x01" if value else b"\x00"
        elif self.code in ("f", "d"):
            try:
                writer.out += struct.pack(">" + self.code, value)
            except OverflowError:
                raise writer.error(f"{value_text(value)} is too large for {self.name}") from None
            except (struct.error, TypeError):
                raise writer.error(f"needs a float, not {value_text(value)}") from None
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
UINT8 = Scalar("uint8", "B", 1)
UINT16 = Scalar("uint16", "H", 2)
UINT32 = Scalar("uint32", "I", 4)
UINT64 = Scalar("uint64", "Q", 8)
FLOAT32 = Scalar("float32", "f", 4)
FLOAT64 = Scalar("float64", "d", 8)
UUID_ = Scalar("uuid", "16s", 16)


@dataclass(frozen=True, slots=True)
class VarInteger(Type):
    """A varint of 32 or 64 bits: zig-zag (``varint``, ``varlong``), or unsigned (``uvarint``, ``uvarlong``)."""

    name: str
    min_size: ClassVar[int] = 1
    nullable: ClassVar[bool] = False

    def __str__(self) -> str:
        return self.name.upper()

    @property
    def bits(self) -> int:
        """The number of bits of a value."""
        return 64 if self.name.endswith("varlong") else 32

    @property
    def is_signed(self) -> bool:
        return not self.name.startswith("u")

    def read(self, reader: Reader) -> int:
        return reader.zigzag(self.bits) if self.is_signed else reader.unsigned(self.bits)

    def write(self, value: Any, writer: Writer) -> None:
        if not isinstance(value, int):
            raise writer.error(f"needs an int, not {value_text(value)}")
        half = 2 ** (self.bits - 1)
        writer.integer(value, *((-half, half - 1) if self.is_signed else (0, 2 * half - 1)))
        writer.out += _VARINTS[self.name](value)


_VARINTS = {
    "varint": encode_varint,
    "varlong": encode_varlong,
    "uvarint": encode_uvarint,
    "uvarlong": encode_uvarlong,
}
VARINT = VarInteger("varint")
VARLONG = VarInteger("varlong")
UVARINT = VarInteger("uvarint")
UVARLONG = VarInteger("uvarlong")
