"""Finding a generated class by its name, and the bytes that it reads and writes."""

from __future__ import annotations

from importlib import import_module

import kafka_wire

from krammar.spark.errors import OptionError
from krammar.wire.errors import DecodeError, UnsupportedVersionError
from krammar.wire.message import Codec, VersionedCodec


def find_class(option: str, name: str) -> type[Codec]:
    """The class of ``OffsetCommitValue`` (kafka_wire's) or ``mypkg.orders.OrderPlaced``.

    Raises OptionError, which blames ``option``, for a name that is no message which can be read alone.
    """
    package, _, simple = name.strip().rpartition(".")
    try:
        module = import_module(package) if package else kafka_wire
    except ImportError as error:
        raise OptionError(option, f"{name!r}: {error}") from None
    found = getattr(module, simple, None)
    if found is None:
        raise OptionError(option, f"{module.__name__} has no {simple!r}")
    if not isinstance(found, type) or not issubclass(found, Codec):
        raise OptionError(option, f"{name!r} is no message that can be read alone")
    return found


def check_version(option: str, cls: type[Codec], version: int | None) -> None:
    """Raises OptionError if ``version`` is missing, where the bytes do not say it, or not known."""
    if version is None:
        if not issubclass(cls, VersionedCodec) and cls.min_version != cls.max_version:
            raise OptionError(
                option,
                f"is needed: the bytes of {cls.__name__} do not say their version, "
                f"{cls.min_version} to {cls.max_version} are known",
            )
        return
    try:
        cls._known_version(version)
    except UnsupportedVersionError as error:
        raise OptionError(option, str(error)) from None


def decode(cls: type[Codec], data: bytes, version: int | None) -> Codec:
    """Read a message. ``version`` None is what the bytes say, or the only one. Raises WireError."""
    if issubclass(cls, VersionedCodec):
        return cls.decode(data, version)
    return cls.decode(data, cls.min_version if version is None else version)


def encode(value: Codec, version: int | None) -> bytes:
    """Write a message; the inverse of ``decode``. Raises WireError."""
    if isinstance(value, VersionedCodec):
        return value.encode(version)
    return value.encode(type(value).min_version if version is None else version)


def uvarint(data: bytes, position: int) -> tuple[int, int]:
    """The unsigned varint at a position, and the position behind it. Raises DecodeError."""
    result = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            raise DecodeError("ends within a number", offset=position)
        byte = data[position]
        position += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, position
    raise DecodeError("a number of more than five bytes", offset=position)
