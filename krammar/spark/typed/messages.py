"""Messages of generated classes: finds the class that an option names, and converts columns of bytes to typed ones
and back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from krammar.spark.errors import MalformedRecordError, OptionError
from krammar.spark.typed.types import mapped_class
from krammar.wire import classes
from krammar.wire.classes import decode_as, encode_as
from krammar.wire.errors import UnsupportedVersionError, WireError
from krammar.wire.message import Codec


def named_class(option: str, name: str) -> type[Codec]:
    """Find ``OffsetCommitValue`` (in kafka_wire) or ``mypkg.orders.OrderPlaced``.

    Only generated packages are imported.

    Args:
        option: the option's name, for errors.

    Raises:
        OptionError: ``name`` is not a message that can be decoded by itself.
    """
    try:
        return classes.find_class(name, generated_only=True)
    except classes.NotFound as error:
        raise OptionError(option, str(error)) from None


def check_version(option: str, cls: type[Codec], version: int | None) -> None:
    """Raise OptionError if ``version`` is unknown, or missing although the bytes do not contain it."""
    if version is None:
        if classes.needs_version(cls):
            raise OptionError(
                option,
                f"is required: the bytes of {cls.__name__} do not contain their version; "
                f"versions {cls.min_version} to {cls.max_version} are known",
            )
        return
    try:
        cls._known_version(version)
    except UnsupportedVersionError as error:
        raise OptionError(option, str(error)) from None


class Decoder:
    """Decodes the messages of a class, or some ``fields`` of them; ``type`` is their Spark type."""

    def __init__(
        self, cls: type[Codec], version: int | None, fields: Collection[str] | None = None
    ) -> None:
        self.cls = cls
        self.version = version
        self.mapped = mapped_class(cls, fields)
        self.type = self.mapped.type

    def row(self, data: bytes) -> dict[str, Any]:
        """Decode a message to a dictionary for Arrow.

        Raises:
            WireError: the bytes are not such a message.
        """
        assert self.mapped.to_spark is not None
        row: dict[str, Any] = self.mapped.to_spark(decode_as(self.cls, data, self.version))
        return row


class Encoder:
    """Encodes the messages of a class."""

    def __init__(self, cls: type[Codec], version: int | None) -> None:
        self.name = cls.__name__
        self.version = version
        self.mapped = mapped_class(cls)

    def bytes_of(self, row: dict[str, Any]) -> bytes:
        """Encode a dictionary from Arrow; missing fields have their defaults.

        Raises:
            MalformedRecordError: the class does not have a field, or a value has the wrong type.
            WireError: the message cannot carry a value.
        """
        assert self.mapped.from_spark is not None
        try:
            value = self.mapped.from_spark(row)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MalformedRecordError(f"{row!r} is not a {self.name}: {error!r}") from None
        return encode_as(value, self.version)


def decode_column(values: Sequence[bytes | None], decoder: Decoder, permissive: bool) -> list[Any]:
    """Decode a column; null stays null.

    Args:
        permissive: decode malformed messages to null.

    Raises:
        MalformedRecordError: a message is malformed, and ``permissive`` is false.
    """
    rows: list[Any] = []
    for value in values:
        try:
            rows.append(None if value is None else decoder.row(value))
        except WireError as error:
            if not permissive:
                raise MalformedRecordError(f"{decoder.cls.__name__}: {error}") from None
            rows.append(None)
    return rows


def to_array(rows: list[Any], kind: pa.DataType) -> pa.Array:
    """Convert values to an Arrow array.

    Raises:
        MalformedRecordError: a value does not fit the type.
    """
    try:
        return pa.array(rows, kind)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise MalformedRecordError(f"a value does not fit a column of {kind}: {error}") from None
