"""Record batches: what the ``records`` field of Produce and Fetch holds, and a log segment.

```python
for batch in read_batches(partition.records):
    if not batch.is_control:
        for record in batch:
            print(record.offset, record.key, record.value)

records = encode_batch([Record(value=b"one"), Record(value=b"two")], compression=Compression.LZ4)
```

Batches of format v2 (KIP-98) are read and written, message sets v0 and v1 only read. A batch is its
header and, behind it, its records, compressed as a whole; reading gives batches whose records are
decompressed and decoded when they are asked for.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any

from krammar.wire.compression import (
    DEFAULT_MAX_UNCOMPRESSED,
    Compression,
    compress,
    decompress,
)
from krammar.wire.errors import CorruptRecordError, DecodeError, EncodeError
from krammar.wire.message_set import MIN_SIZE, decode_message
from krammar.wire.record_format import (
    INT32_MAX,
    MIN_RECORD_SIZE,
    Columns,
    Record,
    encode_records,
    read_records,
)

if TYPE_CHECKING:
    from typing import Protocol

    from krammar.wire.compression import Data

    class _Extend(Protocol):
        def __call__(self, crc: int, chunk: bytes, /) -> int: ...


__all__ = [
    "DEFAULT_MAX_UNCOMPRESSED",
    "BatchHeader",
    "Compression",
    "ControlRecord",
    "ControlRecordType",
    "CorruptRecordError",
    "Record",
    "RecordBatch",
    "TimestampType",
    "crc32c",
    "encode_batch",
    "encode_control_batch",
    "read_batches",
    "read_headers",
]

_CODEC = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40

# Of all formats: offset, size of the rest, four bytes that differ, magic.
_FRAME = Struct(">qiib")
_SIZE_END = 12
# v2 up to its CRC, which covers all that follows it.
_BEFORE_CRC = Struct(">qiibI")
# attributes, last_offset_delta, base_timestamp, max_timestamp, producer_id, producer_epoch,
# base_sequence, records_count
_AFTER_CRC = Struct(">hiqqqhii")
_HEADER = Struct(">qiibIhiqqqhii")
# v0 and v1: offset, size, crc, magic, attributes, and in v1 a timestamp.
_MESSAGE_V0 = Struct(">qiIbb")
_MESSAGE_V1 = Struct(">qiIbbq")
_BEFORE_MAGIC = 16
# Records decoded at a time while a batch is iterated over: few kilobytes can expand to millions.
_STEP = 1024


class TimestampType(IntEnum):
    """What the timestamps of a batch say (KIP-32)."""

    NO_TIMESTAMP_TYPE = -1  # message sets v0
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ControlRecordType(IntEnum):
    """What a control record says."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@cache
def _crc32c() -> _Extend:
    from google_crc32c import extend  # loading it takes 2 ms

    return extend  # type: ignore[no-any-return]


def crc32c(data: bytes, value: int = 0) -> int:
    """The CRC-32C (Castagnoli, RFC 3720 appendix B.4) of ``data``, going on from ``value``."""
    return _crc32c()(value, data)


@dataclass(slots=True)
class BatchHeader:
    """The header of a batch, with the names of Kafka's protocol guide.

    ``position`` is where the batch begins in the bytes it was read from.

    Each message of a message set v0 or v1 is a batch of its own. What its format lacks is -1, and
    three fields say less: ``base_offset`` of a compressed one is the offset that stands before it
    (in v1 the last record's), ``last_offset_delta`` is 0, and ``records_count`` of a compressed one
    is -1, unknown.
    """

    position: int
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_in_bytes(self) -> int:
        """Of the whole batch, with ``base_offset`` and ``batch_length``."""
        return self.batch_length + _SIZE_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset to go on from behind this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """Raises DecodeError if it is none that Kafka has."""
        codec = self.attributes & _CODEC
        if codec > Compression.ZSTD:
            raise DecodeError(f"unknown compression {codec}", path="attributes")
        return Compression(codec)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType(self.attributes >> 3 & 1)

    @property
    def is_transactional(self) -> bool:
        return self.magic > 1 and self.attributes & _TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.magic > 1 and self.attributes & _CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether ``base_timestamp`` is the time, in milliseconds, from which compaction may remove
        the batch's tombstones or markers (KIP-534)."""
        return self.magic > 1 and self.attributes & _DELETE_HORIZON != 0


@dataclass(slots=True)
class RecordBatch(BatchHeader):
    """A batch: its header, and its records, which are decoded anew each time they are asked for."""

    _body: bytes = field(repr=False)  # what the CRC covers
    _validate_crc: bool = field(repr=False, compare=False)
    _max_uncompressed: int = field(repr=False, compare=False)

    def records(self) -> list[Record]:
        """All records, in order; those of a control batch too, as they are.

        Raises DecodeError for whatever they are not, CorruptRecordError among it if the messages
        inside a compressed one of v0 or v1 have a wrong CRC.
        """
        pieces = list(self._pieces(self.records_count))
        return pieces[0] if pieces else []

    def __iter__(self) -> Iterator[Record]:
        """The records one by one; they are decoded by the thousand, so that memory stays small."""
        for records in self._pieces(_STEP):
            yield from records

    def control_records(self) -> list[ControlRecord]:
        """The records of a control batch. Raises DecodeError."""
        control = []
        for index, record in enumerate(self.records()):
            try:
                control.append(ControlRecord.from_record(record))
            except DecodeError as error:
                path = f"records[{index}].{error.path}"
                raise DecodeError(
                    f"batch at offset {self.position}: {path}: {error}", path=path
                ) from None
        return control

    def messages(self, columns: Columns, max_uncompressed: int) -> int:
        """Append the records of v0 or v1 to ``columns``; returns how many bytes were decompressed.
        Raises DecodeError; ``columns`` is not to be used then."""
        try:
            return decode_message(
                columns,
                self._body,
                self.base_offset,
                origin=self.position + _BEFORE_MAGIC,
                validate_crc=self._validate_crc,
                max_uncompressed=max_uncompressed,
            )
        except DecodeError as error:
            raise self._placed(error) from None

    def _placed(self, error: DecodeError) -> DecodeError:
        error.args = (f"batch at offset {self.position}: {error}",)
        return error

    def _pieces(self, step: int) -> Iterator[list[Record]]:
        """The records, ``step`` at a time; those of v0 or v1 at once."""
        if self.magic > 1:
            try:
                yield from self._read(step)
            except DecodeError as error:
                raise self._placed(error) from None
        else:
            columns = Columns()
            self.messages(columns, self._max_uncompressed)
            yield columns.records()

    def _read(self, step: int) -> Iterator[list[Record]]:
        count = self.records_count
        buf = self._body
        pos = _AFTER_CRC.size
        origin: int | None = self.position + _BEFORE_CRC.size
        codec = self.attributes & _CODEC
        # Where compaction left no record of a batch, its header remains, and nothing to expand.
        if codec and len(buf) > pos:
            compressed = memoryview(buf)[pos:]
            buf = decompress(compressed, codec, max_uncompressed=self._max_uncompressed)
            pos = 0
            origin = None
        if not 0 <= count <= (len(buf) - pos) // MIN_RECORD_SIZE:
            raise DecodeError(
                f"{count} records in {len(buf) - pos} bytes",
                path="records_count",
                offset=self.position + _HEADER.size - 4,
            )
        appended_at = self.max_timestamp if self.attributes & _LOG_APPEND_TIME else None
        bases = self.base_offset, self.base_timestamp, appended_at
        for first in range(0, count, max(step, 1)):
            n = min(step, count - first)
            records, pos = read_records(buf, pos, n, *bases, first, origin)
            if first + n < count:
                yield records
        if pos != len(buf):
            raise DecodeError(
                f"{len(buf) - pos} bytes behind the last record",
                path=f"records[{count}]",
                offset=-1 if origin is None else pos + origin,
            )
        if count:
            yield records


def read_headers(data: Data | None, *, allow_partial: bool = True) -> Iterator[BatchHeader]:
    """The headers of the batches in ``data``, without a look at their CRCs and records.

    Formats may be mixed. A last batch that is cut off is left out, as brokers cut a Fetch response
    wherever its size limit falls; with ``allow_partial=False`` it is an error. None, a null
    ``records`` field, has no batches. Raises DecodeError.
    """
    data = _octets(data)
    for position, _, magic in _frames(data, allow_partial):
        yield BatchHeader(position, *_read_header(data, position, magic))


def read_batches(
    data: Data | None,
    *,
    validate_crc: bool = True,
    allow_partial: bool = True,
    max_uncompressed: int = DEFAULT_MAX_UNCOMPRESSED,
) -> Iterator[RecordBatch]:
    """The batches in ``data``, as ``read_headers`` finds them, each with a copy of its bytes.

    Records are neither decompressed nor decoded yet; when they are, one batch may expand to
    ``max_uncompressed`` bytes. Raises DecodeError, CorruptRecordError among it for a wrong CRC.
    """
    data = _octets(data)
    for position, end, magic in _frames(data, allow_partial):
        header = _read_header(data, position, magic)
        if magic > 1:
            body = bytes(data[position + _BEFORE_CRC.size : end])
            crc = crc32c(body) if validate_crc else 0
        else:
            body = bytes(data[position + _BEFORE_MAGIC : end])
            crc = zlib.crc32(body) if validate_crc else 0
        if validate_crc and crc != header[4]:
            raise CorruptRecordError(
                f"batch at offset {position}: CRC {header[4]:#010x}, but its bytes have {crc:#010x}",
                path="crc",
                offset=position + (_BEFORE_CRC.size - 4 if magic > 1 else _SIZE_END),
            )
        fields: Any = (position, *header, body, validate_crc, max_uncompressed)
        yield RecordBatch(*fields)


def _octets(data: Data | None) -> Data:
    if data is None:
        return b""
    if isinstance(data, memoryview):
        if not data.c_contiguous:
            return data.tobytes()
        if data.ndim != 1 or data.format != "B":
            return data.cast("B")
    return data


def _frames(data: Data, allow_partial: bool) -> Iterator[tuple[int, int, int]]:
    """Where each batch begins and ends, and its magic."""
    size = len(data)
    pos = 0
    while pos < size:
        left = size - pos
        # Too short for the magic, which says how long the batch must be at least.
        if left < _FRAME.size:
            needed = _FRAME.size
        else:
            _, length, _, magic = _FRAME.unpack_from(data, pos)
            if not 0 <= magic <= 2:
                raise DecodeError(
                    f"batch at offset {pos}: unknown magic {magic}",
                    path="magic",
                    offset=pos + _BEFORE_MAGIC,
                )
            smallest = _HEADER.size - _SIZE_END if magic == 2 else MIN_SIZE[magic]
            if length < smallest:
                raise DecodeError(
                    f"batch at offset {pos}: batch_length of {length}, at least {smallest} needed",
                    path="batch_length",
                    offset=pos + 8,
                )
            needed = length + _SIZE_END
        if needed > left:
            if allow_partial:
                return
            raise DecodeError(
                f"batch at offset {pos}: needs {needed} bytes, {left} left", offset=pos
            )
        yield pos, pos + needed, magic
        pos += needed


def _read_header(data: Data, pos: int, magic: int) -> tuple[int, ...]:
    """The fields of BatchHeader behind ``position``."""
    if magic > 1:
        return _HEADER.unpack_from(data, pos)
    if magic:
        offset, size, crc, _, attributes, timestamp = _MESSAGE_V1.unpack_from(data, pos)
    else:
        offset, size, crc, _, attributes = _MESSAGE_V0.unpack_from(data, pos)
        timestamp = -1
    count = -1 if attributes & _CODEC else 1
    return offset, size, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, count


def encode_batch(
    records: Iterable[Record],
    *,
    compression: int = Compression.NONE,
    compression_level: int | None = None,
    base_offset: int | None = None,
    last_offset_delta: int | None = None,
    partition_leader_epoch: int = -1,
    timestamp_type: int = TimestampType.CREATE_TIME,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    has_delete_horizon: bool = False,
) -> bytes:
    """One record batch of format v2.

    Offsets of the records must rise; -1 stands for the one behind the predecessor's. Producers
    leave all of them at -1, for brokers want them without gaps, and assign ``base_offset``
    themselves. Left as None,

    ``base_offset``        is the first record's offset, or 0 if that is -1
    ``last_offset_delta``  is the last record's; a batch without records needs it
    ``base_timestamp``     is the first record's timestamp
    ``max_timestamp``      is the latest of the records' (all of them get it when they are read,
                           if ``timestamp_type`` is LOG_APPEND_TIME)

    ``compression_level`` as in ``krammar.wire.compression.compress``. Raises EncodeError, with the
    path of what is wrong: ``records[3].headers[0].key``, ``producer_id``.
    """
    if not isinstance(records, (list, tuple)):
        try:
            records = list(records)
        except TypeError:
            raise EncodeError("records: needs Records", path="records") from None
    if records and isinstance(records[0], Record):
        first = records[0]
        if base_offset is None:
            base_offset = 0 if first.offset == -1 else first.offset
        if base_timestamp is None:
            base_timestamp = first.timestamp
    if base_offset is None:
        base_offset = 0
    if base_timestamp is None:
        base_timestamp = -1
    numbers = (
        base_offset,
        partition_leader_epoch,
        0 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        0 if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
    )
    try:
        _NUMBERS.pack(*numbers)
    except struct_error:
        raise _header_fault(numbers) from None

    if records:
        payload, last, latest = encode_records(records, base_offset, base_timestamp)
        if last_offset_delta is None:
            last_offset_delta = last
        elif last_offset_delta < last:
            raise EncodeError(
                f"last_offset_delta: {last_offset_delta}, but the last record's is {last}",
                path="last_offset_delta",
            )
        if max_timestamp is None:
            max_timestamp = latest
        payload = compress(payload, compression, compression_level)
    else:
        if last_offset_delta is None:
            raise EncodeError("records: none, and no last_offset_delta", path="records")
        payload = b""
        compression = Compression.NONE
        if max_timestamp is None:
            max_timestamp = base_timestamp

    attributes = int(compression)
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        attributes |= _LOG_APPEND_TIME
    elif timestamp_type != TimestampType.CREATE_TIME:
        raise EncodeError(f"timestamp_type: {timestamp_type!r}", path="timestamp_type")
    if is_transactional:
        attributes |= _TRANSACTIONAL
    if is_control:
        attributes |= _CONTROL
    if has_delete_horizon:
        attributes |= _DELETE_HORIZON
    rest = _AFTER_CRC.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    length = _HEADER.size - _SIZE_END + len(payload)
    if length > INT32_MAX:
        raise EncodeError(f"records: {length} bytes do not fit into a batch", path="records")
    crc = crc32c(payload, crc32c(rest))
    start = _BEFORE_CRC.pack(base_offset, length, partition_leader_epoch, 2, crc)
    return b"".join((start, rest, payload))


_NUMBERS = Struct(">qiiqqqhi")
_NUMBER_NAMES = (
    ("base_offset", 64),
    ("partition_leader_epoch", 32),
    ("last_offset_delta", 32),
    ("base_timestamp", 64),
    ("max_timestamp", 64),
    ("producer_id", 64),
    ("producer_epoch", 16),
    ("base_sequence", 32),
)


def _header_fault(numbers: tuple[Any, ...]) -> EncodeError:
    for (name, bits), value in zip(_NUMBER_NAMES, numbers, strict=True):
        if not isinstance(value, int):
            return EncodeError(f"{name}: needs an int, not {type(value).__name__}", path=name)
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            return EncodeError(f"{name}: {value} is not within {bits} bits", path=name)
    return EncodeError("the batch's header cannot be written")


@dataclass(slots=True)
class ControlRecord:
    """A record of a control batch: the end of a transaction in a partition, or news of KRaft.

    ``type``               a ControlRecordType, or a number that it does not have
    ``coordinator_epoch``  of ABORT and COMMIT: that of the transaction's coordinator
    ``value``              of the other types: the bytes of their message, such as LeaderChangeMessage
    ``version``            of the key; ``value_version`` that of ABORT's and COMMIT's value
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
        """Read a record of a control batch. Raises DecodeError.

        Bytes behind the fields that are known are left alone: newer versions may have more.
        """
        key, value = record.key or b"", record.value
        if len(key) < _CONTROL_KEY.size:
            raise DecodeError(f"a control record needs 4 bytes, has {len(key)}", path="key")
        version, kind = _CONTROL_KEY.unpack_from(key)
        control = cls(kind, -1, value, record.offset, record.timestamp, version)
        if kind in _END_OF_TRANSACTION:
            if value is None or len(value) < _END_MARKER.size:
                size = len(value or b"")
                raise DecodeError(f"an end of transaction needs 6 bytes, has {size}", path="value")
            control.value_version, control.coordinator_epoch = _END_MARKER.unpack_from(value)
            control.value = None
        return control

    def to_record(self) -> Record:
        """The record as it stands in a batch. Raises EncodeError."""
        value = self.value
        try:
            key = _CONTROL_KEY.pack(self.version, self.type)
            if self.type in _END_OF_TRANSACTION:
                value = _END_MARKER.pack(self.value_version, self.coordinator_epoch)
        except struct_error as error:
            raise EncodeError(f"control record: {error}") from None
        return Record(self.offset, self.timestamp, key, value)


_CONTROL_KEY = Struct(">hh")  # version, type
_END_MARKER = Struct(">hi")  # version, coordinator epoch
_END_OF_TRANSACTION = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


def encode_control_batch(
    records: Sequence[ControlRecord],
    *,
    base_offset: int | None = None,
    partition_leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytes:
    """A control batch: transactional if it ends a transaction, never compressed.

    Arguments and errors are those of ``encode_batch``.
    """
    return encode_batch(
        [record.to_record() for record in records],
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=any(record.type in _END_OF_TRANSACTION for record in records),
        is_control=True,
    )
