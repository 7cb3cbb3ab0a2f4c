"""The option ``decode``: records whose key and value are messages.

In internal topics, the first number of a record's key is its kind, although Kafka calls it a version. In the cluster
metadata log, the frame around a record's value contains its type. Records of other kinds than the
requested one are skipped.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection
from importlib import import_module
from typing import Any

import kafka_wire
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from krammar.logfiles.metadata_frame import TYPES, read_frame
from krammar.spark.errors import OptionError
from krammar.spark.options import Options
from krammar.spark.typed.classes import check_version, named_class
from krammar.spark.typed.columns import Decoder
from krammar.util.diagnostics import did_you_mean
from krammar.wire.classes import decode_as, key_class
from krammar.wire.errors import DecodeError
from krammar.wire.message import Codec
from krammar.wire.versioned import VersionedCodec

# The fields to decode, of keys and values; None means all.
Fields = Collection[str] | None


class RecordDecoder(ABC):
    """Decodes keys and values of records; ``key_type`` is None if keys stay binary."""

    key_type: DataType | None = None
    value_type: DataType

    def is_other(self, key: bytes | None, value: bytes | None) -> bool:
        """Return whether the record is of another kind, and skipped."""
        return False

    def unknown_kind(self, key: bytes | None, value: bytes | None) -> str:
        """Describe the kind of a skipped record if no definition knows it; otherwise return nothing.

        The topic probably has other contents than the user expects.
        """
        return ""

    def key(self, data: bytes) -> Any:
        """Decode a key; called only if ``key_type`` is not None.

        Raises:
            WireError: the key is malformed.
        """
        raise NotImplementedError

    @abstractmethod
    def value(self, data: bytes) -> Any:
        """Decode a value.

        Raises:
            WireError: the value is malformed.
        """


class ValueDecoder(RecordDecoder):
    """Decodes values of any class; keys stay binary."""

    def __init__(self, cls: type[Codec], version: int | None, fields: Fields) -> None:
        self._values = Decoder(cls, version, fields)
        self.value_type = self._values.type

    def value(self, data: bytes) -> Any:
        return self._values.row(data)


class KeyedDecoder(ValueDecoder):
    """Decodes values whose class has a key class: ``OffsetCommitValue`` and ``OffsetCommitKey``.

    ``kinds`` are the numbers with which such keys begin.
    """

    def __init__(
        self,
        cls: type[Codec],
        version: int | None,
        fields: Fields,
        key_class: type[VersionedCodec],
        kinds: set[int],
    ) -> None:
        super().__init__(cls, version, fields)
        self._keys = Decoder(key_class, None, fields)
        self.key_type = self._keys.type
        self.kinds = kinds
        self._known = _kinds_beside(cls)

    def is_other(self, key: bytes | None, value: bytes | None) -> bool:
        # A key that is too short to contain a kind is malformed; it does not count as another kind.
        return key is not None and len(key) >= 2 and _kind(key) not in self.kinds

    def unknown_kind(self, key: bytes | None, value: bytes | None) -> str:
        if key is None or _kind(key) in self._known:
            return ""
        name = self._values.cls.__name__
        own = " or ".join(map(str, sorted(self.kinds)))
        return (
            f"the key is of kind {_kind(key)}, which no class beside {name} has ({name} has {own}): "
            f"the topic has records that decode={name} cannot read"
        )

    def key(self, data: bytes) -> Any:
        return self._keys.row(data)


def _kind(key: bytes) -> int:
    return int.from_bytes(key[:2], "big", signed=True)


def _kinds_beside(cls: type[Codec]) -> set[int]:
    """The kinds of all records that share a topic: their classes share a module."""
    members = vars(import_module(cls.__module__)).items()
    return {
        int(getattr(member(), member._version_field))
        for name, member in members
        if name.endswith("Key") and isinstance(member, type) and issubclass(member, VersionedCodec)
    }


class MetadataDecoder(RecordDecoder):
    """Decodes the cluster metadata log: the records of one class, or all records as JSON."""

    def __init__(self, cls: type[Codec] | None, fields: Fields) -> None:
        self._wanted = cls
        self._fields = fields
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
            self.value_type = Decoder(cls, cls.min_version, fields).type

    def is_other(self, key: bytes | None, value: bytes | None) -> bool:
        if self._wanted is None or value is None:
            return False
        try:
            kind, _, _ = read_frame(value)
        except DecodeError:
            return False
        return TYPES.get(kind) != self._wanted.__name__

    def unknown_kind(self, key: bytes | None, value: bytes | None) -> str:
        kind = -1 if value is None else read_frame(value)[0]
        return "" if kind in TYPES else f"unknown metadata record type {kind}"

    def value(self, data: bytes) -> Any:
        kind, version, position = read_frame(data)
        name = TYPES.get(kind)
        if name is None:
            raise DecodeError(f"unknown metadata record type {kind}", path="type")
        if self._wanted is None:
            message = decode_as(getattr(kafka_wire, name), data[position:], version)
            return {"type": name, "version": version, "message": json.dumps(message.to_dict())}
        decoder = self._decoders.get(version)
        if decoder is None:
            decoder = Decoder(self._wanted, version, self._fields)
            self._decoders[version] = decoder
        return decoder.row(data[position:])


def record_decoder(options: Options) -> RecordDecoder:
    """Return the decoder that the option ``decode`` requests.

    Raises:
        OptionError: ``decode`` names no message, its version is unknown or missing, or ``fields`` names
            a field that it does not have.
    """
    name = options["decode"].strip()
    fields: Fields = options["fields"]
    if name.lower() == "cluster_metadata":
        if fields is not None:
            raise OptionError("fields", "has no meaning with decode=cluster_metadata")
        return MetadataDecoder(None, None)
    cls = named_class("decode", name)
    version = options["decodeVersion"]
    if getattr(kafka_wire, name, None) is cls and name in TYPES.values():
        _check_fields(fields, cls)
        return MetadataDecoder(cls, fields)
    check_version("decodeVersion", cls, version)
    keyed = key_class(cls)
    if keyed is not None:
        _check_fields(fields, keyed[0], cls)
        return KeyedDecoder(cls, version, fields, *keyed)
    _check_fields(fields, cls)
    return ValueDecoder(cls, version, fields)


def _check_fields(fields: Fields, *classes: type[Codec]) -> None:
    known = [name for cls in classes for name in cls._fields]
    for name in fields or ():
        if name not in known:
            owners = " or ".join(cls.__name__ for cls in classes)
            hint = did_you_mean(name, known) or f"there are: {', '.join(known)}"
            raise OptionError("fields", f"{name!r} is not a field of {owners}; {hint}")
