"""``decode``: records whose key and value are messages.

What a record is, its key says for the internal topics (the number in front: a kind, though it is
called a version) and its value for the cluster metadata log (the type in the frame around it).
Records of other kinds than the one that is asked for are left out.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

import kafka_wire
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from krammar.broker.metadata_records import TYPES
from krammar.spark.options import Options
from krammar.spark.typed.classes import check_version, decode, find_class, uvarint
from krammar.spark.typed.columns import Decoder
from krammar.wire.errors import DecodeError
from krammar.wire.message import Codec, VersionedCodec

_FRAME_VERSION = 1
_LEGACY = "Legacy"


class RecordDecoder(ABC):
    """Reads one record after the other. ``key_type`` is None where keys stay binary."""

    key_type: DataType | None = None
    value_type: DataType

    def is_other(self, key: bytes | None, value: bytes | None) -> bool:
        """Whether the record is of another kind."""
        return False

    def key(self, data: bytes) -> Any:
        """The key's row, if ``key_type`` is not None. Raises WireError."""
        raise NotImplementedError

    @abstractmethod
    def value(self, data: bytes) -> Any:
        """The value's row. Raises WireError."""


class ValueDecoder(RecordDecoder):
    """Values of any class; keys stay as they are."""

    def __init__(self, cls: type[Codec], version: int | None) -> None:
        self._values = Decoder(cls, version)
        self.value_type = self._values.type

    def value(self, data: bytes) -> Any:
        return self._values.row(data)


class KeyedDecoder(ValueDecoder):
    """Values whose class has a key class beside it: ``OffsetCommitValue``, ``OffsetCommitKey``.

    ``kinds`` are the numbers that such keys begin with.
    """

    def __init__(
        self,
        cls: type[Codec],
        version: int | None,
        key_class: type[VersionedCodec],
        kinds: set[int],
    ) -> None:
        super().__init__(cls, version)
        self._keys = Decoder(key_class, None)
        self.key_type = self._keys.type
        self.kinds = kinds

    def is_other(self, key: bytes | None, value: bytes | None) -> bool:
        # A key that is too short to be of a kind is malformed, not another one.
        return (
            key is not None
            and len(key) >= 2
            and int.from_bytes(key[:2], "big", signed=True) not in self.kinds
        )

    def key(self, data: bytes) -> Any:
        return self._keys.row(data)


class MetadataDecoder(RecordDecoder):
    """Records of the cluster metadata log: one class of them, or with None all, as JSON."""

    def __init__(self, cls: type[Codec] | None) -> None:
        self._wanted = cls
        self._decoders: dict[int, Decoder] = {}
        if cls is None:
            self.value_type = StructType(
                [
                    StructField("type", StringType()),
                    StructField("version", IntegerType()),
                    StructField("message", StringType()),
                ]
            )
        else:
            self.value_type = Decoder(cls, cls.min_version).type

    def is_other(self, key: bytes | None, value: bytes | None) -> bool:
        if self._wanted is None or value is None:
            return False
        try:
            kind, _, _ = _frame(value)
        except DecodeError:
            return False
        return TYPES.get(kind) != self._wanted.__name__

    def value(self, data: bytes) -> Any:
        kind, version, position = _frame(data)
        name = TYPES.get(kind)
        if name is None:
            raise DecodeError(f"unknown type {kind} of metadata records", path="type")
        if self._wanted is None:
            message = decode(getattr(kafka_wire, name), data[position:], version)
            return {"type": name, "version": version, "message": json.dumps(message.to_dict())}
        decoder = self._decoders.get(version)
        if decoder is None:
            decoder = self._decoders[version] = Decoder(self._wanted, version)
        return decoder.row(data[position:])


def _frame(data: bytes) -> tuple[int, int, int]:
    """Type, version and position of the message in a frame of the metadata log. Raises DecodeError."""
    frame_version, position = uvarint(data, 0)
    if frame_version != _FRAME_VERSION:
        raise DecodeError(f"unknown frame version {frame_version}", path="frame_version")
    kind, position = uvarint(data, position)
    version, position = uvarint(data, position)
    return kind, version, position


def record_decoder(options: Options) -> RecordDecoder | None:
    """What ``decode`` asks for; None without it. Raises OptionError."""
    if not options.given("decode"):
        return None
    name = options["decode"].strip()
    if name.lower() == "cluster_metadata":
        return MetadataDecoder(None)
    cls = find_class("decode", name)
    version = options["decodeVersion"]
    if getattr(kafka_wire, name, None) is cls and name in TYPES.values():
        return MetadataDecoder(cls)
    check_version("decodeVersion", cls, version)
    keyed = _key_class(cls)
    if keyed is not None:
        return KeyedDecoder(cls, version, *keyed)
    return ValueDecoder(cls, version)


def _key_class(cls: type[Codec]) -> tuple[type[VersionedCodec], set[int]] | None:
    """The key class beside a value class, and the numbers that its keys begin with."""
    name = cls.__name__
    if not name.endswith("Value") or not issubclass(cls, VersionedCodec):
        return None
    stem = name.removesuffix("Value")
    package = import_module(cls.__module__.rpartition(".")[0])
    kinds: set[int] = set()
    found = None
    for candidate in (stem + "Key", _LEGACY + stem + "Key"):
        key_class = getattr(package, candidate, None)
        if isinstance(key_class, type) and issubclass(key_class, VersionedCodec):
            found = found or key_class
            kinds.add(getattr(key_class(), key_class._version_field))
    return None if found is None else (found, kinds)
