"""Binary Arrow columns to typed ones, and what becomes of records that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from krammar.spark.errors import MalformedRecordError
from krammar.spark.typed.classes import decode, encode
from krammar.spark.typed.types import mapped_class
from krammar.wire.errors import WireError
from krammar.wire.message import Codec


class Decoder:
    """Reads the messages of a class. ``type`` is their Spark type; errors are WireErrors."""

    def __init__(self, cls: type[Codec], version: int | None) -> None:
        self.cls = cls
        self.version = version
        self.mapped = mapped_class(cls)
        self.type = self.mapped.type

    def row(self, data: bytes) -> dict[str, Any]:
        """A message as a dictionary for Arrow. Raises WireError."""
        assert self.mapped.to_spark is not None
        row: dict[str, Any] = self.mapped.to_spark(decode(self.cls, data, self.version))
        return row


class Encoder:
    """Writes the messages of a class."""

    def __init__(self, cls: type[Codec], version: int | None) -> None:
        self.version = version
        self.mapped = mapped_class(cls)

    def bytes_of(self, row: dict[str, Any]) -> bytes:
        """Of a dictionary as Arrow gives it; fields that it lacks have their defaults. Raises
        WireError, and MalformedRecordError for a field that the class does not have."""
        assert self.mapped.from_spark is not None
        try:
            value = self.mapped.from_spark(row)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MalformedRecordError(f"{error!r} in {row!r}") from None
        return encode(value, self.version)


def decode_column(values: Sequence[bytes | None], decoder: Decoder, permissive: bool) -> list[Any]:
    """Rows, null for null and, if ``permissive``, for what cannot be read; otherwise that raises
    MalformedRecordError."""
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
    """Dictionaries as an Arrow array. Raises MalformedRecordError for what it cannot hold."""
    try:
        return pa.array(rows, kind)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise MalformedRecordError(f"values that a column of {kind} cannot hold: {error}") from None
