"""The option ``decode``: records whose key and value are messages, and the rows that they become.

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
import pyarrow as pa
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from krammar.logfiles.metadata_frame import TYPES, read_frame
from krammar.spark.errors import MalformedRecordError, OptionError
from krammar.spark.options import Options
from krammar.spark.rows import Rows
from krammar.spark.schema import record_schema
from krammar.spark.typed.messages import Decoder, check_version, named_class, to_array
from krammar.util.diagnostics import did_you_mean
from krammar.wire.classes import decode_as, key_class
from krammar.wire.errors import DecodeError, WireError
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


def typed_schema(options: Options) -> StructType:
    """Return the columns of decoded records.

    Raises:
        OptionError: ``decode`` names no message, or its version is unknown or missing.
    """
    decoder = record_decoder(options)
    schema = record_schema(
        options["includeHeaders"], decoder.key_type, decoder.value_type, _corrupt_column(options)
    )
    # The option ``fields`` may name no field of the key, or none of the value.
    return StructType([field for field in schema if field.dataType != StructType([])])


def _corrupt_column(options: Options) -> str | None:
    return options["columnNameOfCorruptRecord"] if options["mode"] == "PERMISSIVE" else None


class TypedRows(Rows):
    """Builds rows with decoded ``key`` and ``value``.

    A malformed record raises an error in mode FAILFAST, and is skipped in DROPMALFORMED. In PERMISSIVE its malformed
    parts are null, and one column has its bytes and the reason.
    """

    def __init__(self, schema: pa.Schema, topic: str, partition: int, options: Options) -> None:
        super().__init__(schema, topic, partition)
        self.decoder = record_decoder(options)
        self.mode = options["mode"]
        self.has_key = self.decoder.key_type is not None and "key" in schema.names
        self.has_value = "value" in schema.names
        corrupt_column = _corrupt_column(options)
        self.corrupt_column = corrupt_column if corrupt_column in schema.names else None

    def build(self, batch: pa.RecordBatch, timestamp_type: int) -> pa.RecordBatch:
        """Build the rows of a batch; see ``Rows.build``.

        Raises:
            MalformedRecordError: in mode FAILFAST, a record is malformed.
        """
        indexes: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        corrupt: list[dict[str, Any] | None] = []
        pairs = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
        for index, (key, value) in enumerate(pairs):
            if self.decoder.is_other(key, value):
                if self.mode == "FAILFAST" and (found := self.decoder.unknown_kind(key, value)):
                    raise self._malformed(batch, index, found)
                continue
            key_row, value_row, error = self._decode(key, value)
            if error:
                if self.mode == "DROPMALFORMED":
                    continue
                if self.mode == "FAILFAST":
                    raise self._malformed(batch, index, error)
            indexes.append(index)
            keys.append(key_row)
            values.append(value_row)
            corrupt.append({"key": key, "value": value, "error": error} if error else None)
        if len(indexes) < batch.num_rows:
            batch = batch.take(pa.array(indexes, pa.int64()))
        columns = self.columns(batch, timestamp_type)
        if self.has_key:
            columns["key"] = to_array(keys, self.schema.field("key").type)
        if self.has_value:
            columns["value"] = to_array(values, self.schema.field("value").type)
        if self.corrupt_column is not None:
            name = self.corrupt_column
            columns[name] = to_array(corrupt, self.schema.field(name).type)
        return self.join(columns)

    def _malformed(self, batch: pa.RecordBatch, index: int, error: str) -> MalformedRecordError:
        offset = batch.column("offset")[index]
        return MalformedRecordError(f"{self.topic}-{self.partition}, offset {offset}: {error}")

    def _decode(self, key: bytes | None, value: bytes | None) -> tuple[Any, Any, str]:
        """Decode key and value, if they are columns.

        Returns:
            Both, with None for a malformed one, and the error.
        """
        key_row = value_row = None
        errors = []
        if key is not None and self.has_key:
            try:
                key_row = self.decoder.key(key)
            except WireError as error:
                errors.append(f"key: {error}")
        if value is not None and self.has_value:
            try:
                value_row = self.decoder.value(value)
            except WireError as error:
                errors.append(f"value: {error}")
        return key_row, value_row, "; ".join(errors)
