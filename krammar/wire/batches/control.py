"""The records of control batches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from struct import error as struct_error

from krammar.wire.batches.records.model import Record
from krammar.wire.errors import DecodeError, EncodeError


class ControlRecordType(IntEnum):
    """The type of a control record."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(slots=True)
class ControlRecord:
    """A record of a control batch: the end of a transaction in a partition, or a KRaft message.

    Attributes:
        type: a ControlRecordType, or an unknown number
        coordinator_epoch: for ABORT and COMMIT: the epoch of the transaction's coordinator
        value: for other types: the bytes of their message, such as LeaderChangeMessage
        version: the version of the key
        value_version: for ABORT and COMMIT: the version of the value
    """

    type: int
    coordinator_epoch: int = -1
    value: bytes | None = None
    offset: int = -1
    timestamp: int = -1
    version: int = 0
    value_version: int = 0

    @classmethod
    def from_record(cls, record: Record) -> ControlRecord:
        """Decode a record of a control batch. Raises DecodeError.

        Bytes after the known fields are ignored, because newer versions can have more fields.
        """
        key, value = record.key or b"", record.value
        if len(key) < _CONTROL_KEY.size:
            raise DecodeError(f"a control record needs 4 bytes, has {len(key)}", path="key")
        version, kind = _CONTROL_KEY.unpack_from(key)
        control = cls(kind, -1, value, record.offset, record.timestamp, version)
        if kind in END_OF_TRANSACTION:
            if value is None or len(value) < _END_MARKER.size:
                size = len(value or b"")
                raise DecodeError(f"an end of transaction needs 6 bytes, has {size}", path="value")
            control.value_version, control.coordinator_epoch = _END_MARKER.unpack_from(value)
            control.value = None
        return control

    def to_record(self) -> Record:
        """Encode it as a record of a batch. Raises EncodeError."""
        value = self.value
        try:
            key = _CONTROL_KEY.pack(self.version, self.type)
            if self.type in END_OF_TRANSACTION:
                value = _END_MARKER.pack(self.value_version, self.coordinator_epoch)
        except struct_error as error:
            raise EncodeError(f"control record: {error}") from None
        return Record(self.offset, self.timestamp, key, value)


_CONTROL_KEY = Struct(">hh")  # version, type
_END_MARKER = Struct(">hi")  # version, coordinator epoch
END_OF_TRANSACTION = (ControlRecordType.ABORT, ControlRecordType.COMMIT)
