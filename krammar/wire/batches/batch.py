"""Reads batches from the field ``records`` of Produce and Fetch, or from a log segment, in the formats v0 to v2."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import TYPE_CHECKING, Any

from krammar.wire.batches.bounds import Bounds, default_bounds
from krammar.wire.batches.compression import Compression, decompress
from krammar.wire.batches.control import ControlRecord
from krammar.wire.batches.crc import check_body
from krammar.wire.batches.header import (
    BODY_AT,
    CODEC,
    CRC_COVERS_FROM,
    LOG_APPEND_TIME,
    MAGIC_AT,
    MIN_SIZE,
    RECORDS_COUNT_AT,
    RECORDS_IN_BODY,
    SIZE_END,
    BatchHeader,
    frames,
    octets,
    read_fields,
)
from krammar.wire.batches.records.model import MIN_RECORD_SIZE, Columns, Record
from krammar.wire.batches.records.read import read_records
from krammar.wire.errors import CorruptRecordError, DecodeError

if TYPE_CHECKING:
    from krammar.wire.batches.compression import Data

# The number of records that are decoded at a time, because a few kilobytes can contain millions.
_STEP = 1024


@dataclass(slots=True)
class RecordBatch(BatchHeader):
    """A batch: its header and its records. Each iteration decodes the records again."""

    _body: bytes = field(repr=False)  # what the CRC covers
    _validate_crc: bool = field(repr=False, compare=False)
    _bounds: Bounds = field(repr=False, compare=False)

    def records(self) -> list[Record]:
        """Decode all records in order. The records of a control batch are not interpreted.

        Raises:
            BatchLimitError: the batch is larger than its limits.
            DecodeError: a record is invalid.
            CorruptRecordError: the CRC of a message in a compressed message set v0 or v1 is wrong.
        """
        pieces = list(self._pieces(self.records_count))
        return pieces[0] if pieces else []

    def __iter__(self) -> Iterator[Record]:
        """Yield the records. They are decoded by the thousand, which bounds memory."""
        for records in self._pieces(_STEP):
            yield from records

    def control_records(self) -> list[ControlRecord]:
        """Decode the records of a control batch. Raises DecodeError."""
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

    def messages(self, columns: Columns, bounds: Bounds) -> int:
        """Append the records of v0 or v1 to ``columns``. Returns the number of decompressed bytes.

        Raises DecodeError, after which ``columns`` must not be used.
        """
        try:
            return _decode_message(
                columns,
                self._body,
                self.base_offset,
                origin=self.position + CRC_COVERS_FROM[0],
                validate_crc=self._validate_crc,
                bounds=bounds,
            )
        except DecodeError as error:
            raise self._placed(error) from None

    def _placed(self, error: DecodeError) -> DecodeError:
        error.args = (f"batch at offset {self.position}: {error}",)
        return error

    def _pieces(self, step: int) -> Iterator[list[Record]]:
        """Decode ``step`` records at a time, or all at once for v0 and v1."""
        if self.magic > 1:
            try:
                yield from self._read(step)
            except DecodeError as error:
                raise self._placed(error) from None
        else:
            columns = Columns()
            self.messages(columns, self._bounds)
            yield columns.records()

    def _read(self, step: int) -> Iterator[list[Record]]:
        count = self.records_count
        bounds = self._bounds
        buf = self._body
        pos = RECORDS_IN_BODY
        origin: int | None = self.position + BODY_AT
        codec = self.attributes & CODEC
        # Compaction can remove all records of a batch and leave its header. Then nothing is compressed.
        if codec and len(buf) > pos:
            compressed = memoryview(buf)[pos:]
            buf = decompress(compressed, codec, bounds=bounds)
            pos = 0
            origin = None
        if not 0 <= count <= (len(buf) - pos) // MIN_RECORD_SIZE:
            raise DecodeError(
                f"{count} records in {len(buf) - pos} bytes",
                path="records_count",
                offset=self.position + RECORDS_COUNT_AT,
            )
        bounds.check_count(count)
        bounds.check_headers(buf, pos, len(buf), count)
        appended_at = self.max_timestamp if self.attributes & LOG_APPEND_TIME else None
        bases = self.base_offset, self.base_timestamp, appended_at
        for first in range(0, count, max(step, 1)):
            n = min(step, count - first)
            records, pos = read_records(buf, pos, n, *bases, first, origin)
            if first + n < count:
                yield records
        if pos != len(buf):
            raise DecodeError(
                f"{len(buf) - pos} bytes after the last record",
                path=f"records[{count}]",
                offset=-1 if origin is None else pos + origin,
            )
        if count:
            yield records


def read_batches(
    data: Data | None,
    *,
    validate_crc: bool = True,
    allow_partial: bool = True,
    max_uncompressed: int | None = None,
    bounds: Bounds | None = None,
) -> Iterator[RecordBatch]:
    """Read the batches in ``data``, as ``read_headers`` does, each with a copy of its bytes.

    Records are decompressed and decoded later, when a caller iterates over a batch.

    Args:
        max_uncompressed: the maximum uncompressed size of a batch in bytes, instead of the limit in ``bounds``.
        bounds: the limits of a batch, by default those of the environment.

    Raises:
        DecodeError: a header is invalid.
        CorruptRecordError: the CRC of a batch is wrong.
    """
    if bounds is None:
        bounds = default_bounds()
    if max_uncompressed is not None:
        bounds = replace(bounds, uncompressed=max_uncompressed)
    data = octets(data)
    for position, end, magic in frames(data, allow_partial):
        header = read_fields(data, position, magic)
        body = bytes(data[position + CRC_COVERS_FROM[magic] : end])
        fields: Any = (position, *header, body, validate_crc, bounds)
        batch = RecordBatch(*fields)
        if validate_crc:
            check_body(body, batch)
        yield batch


# Message sets: the formats v0 and v1, which preceded record batches before Kafka 0.11.
#
# A message set is a sequence of messages, each after its offset and size. A compressed message set is the value
# of another message, the wrapper, whose attributes contain the codec:
#
# - Offsets inside a wrapper v0 are absolute. Inside a wrapper v1 they are relative, and the offset of the wrapper
#   is that of the last inner message (KIP-31).
# - If the timestamp type of a wrapper v1 is LogAppendTime, all inner messages have its timestamp (KIP-32).
# - All messages have the same format, and there is at most one level of compression.

_INT64 = Struct(">q")
_INT32 = Struct(">i")


def _decode_message(
    columns: Columns,
    body: bytes,
    offset: int,
    *,
    origin: int,
    validate_crc: bool,
    bounds: Bounds,
) -> int:
    """Append the record of a message, or the records of a wrapper, to ``columns``.

    Args:
        body: the message from its magic (0 or 1) on.
        offset: the offset before the message.
        origin: the position of ``body`` in its data, for errors.
        validate_crc: check the CRCs of messages inside a wrapper.
        bounds: the limits of a wrapper.

    Returns:
        The number of decompressed bytes.

    Raises:
        DecodeError: the message is invalid. ``columns`` must not be used any more.
    """
    magic = body[0]
    attributes = body[1]
    timestamp = _INT64.unpack_from(body, 2)[0] if magic else -1
    key, value = _key_and_value(body, 10 if magic else 2, len(body), "records[0]", origin)
    codec = attributes & CODEC
    if not codec:
        columns.offsets.append(offset)
        columns.timestamps.append(timestamp)
        columns.keys.append(key)
        columns.values.append(value)
        return 0

    if value is None:
        raise DecodeError("a compressed message has no value", offset=origin)
    if codec >= Compression.ZSTD:
        raise DecodeError(f"messages v{magic} have no compression {codec}", offset=origin)
    inside = decompress(value, codec, bounds=bounds, broken_lz4_checksum=magic == 0)
    start = len(columns)
    _read_messages(columns, inside, magic, validate_crc, bounds)
    if magic:
        distance = offset - columns.offsets[-1]
        columns.offsets[start:] = [relative + distance for relative in columns.offsets[start:]]
        if attributes & LOG_APPEND_TIME:
            columns.timestamps[start:] = [timestamp] * (len(columns) - start)
    return len(inside)


def _read_messages(
    columns: Columns, buf: bytes, magic: int, validate_crc: bool, bounds: Bounds
) -> None:
    """Append the messages of an uncompressed set, which has at least one."""
    view = memoryview(buf)
    smallest = MIN_SIZE[magic]
    key_at = smallest - 8
    pos = 0
    left = len(buf)
    index = 0
    while left or not index:
        path = f"records[{index}]"
        if left < smallest:
            raise _fault(path, f"needs {smallest} bytes at {{place}}, {left} left", pos)
        offset, size, _, _, crc, attributes, _, timestamp, *_ = read_fields(buf, pos, magic)
        inner_magic = buf[pos + MAGIC_AT]
        size += SIZE_END
        if not smallest <= size <= left:
            raise _fault(path, f"message of {size} bytes at {{place}}, {left} left", pos)
        if inner_magic != magic:
            raise _fault(path, f"a message v{inner_magic} inside a message v{magic}", pos)
        if attributes & CODEC:
            raise _fault(path, "compressed a second time", pos)
        end = pos + size
        if validate_crc and zlib.crc32(view[pos + CRC_COVERS_FROM[magic] : end]) != crc:
            raise CorruptRecordError(f"{path}: wrong CRC", path=path)
        key, value = _key_and_value(buf, pos + key_at, end, path, None)
        columns.offsets.append(offset)
        columns.timestamps.append(timestamp)
        columns.keys.append(key)
        columns.values.append(value)
        pos = end
        left -= size
        index += 1
        if index > bounds.records:
            bounds.check_count(index)


def _key_and_value(
    buf: bytes, pos: int, end: int, path: str, origin: int | None
) -> tuple[bytes | None, bytes | None]:
    """Read the last two fields, key and value, of the message that ends at ``end``."""
    key = value = None
    (size,) = _INT32.unpack_from(buf, pos)
    pos += 4
    if size != -1:
        left = end - pos - 4  # the length of the value follows
        if not 0 <= size <= left:
            text = f"length of {size} at {{place}}, {left} bytes left"
            raise _fault(f"{path}.key", text, pos - 4, origin)
        key = buf[pos : pos + size]
        pos += size
    (size,) = _INT32.unpack_from(buf, pos)
    pos += 4
    left = end - pos
    # The value must end at the end of the message.
    if size == left:
        value = buf[pos:end]
    elif size != -1 or left:
        text = f"length of {size} at {{place}}, {left} bytes left"
        raise _fault(f"{path}.value", text, pos - 4, origin)
    return key, value


def _fault(path: str, text: str, at: int, origin: int | None = None) -> DecodeError:
    if origin is None:  # the message was compressed, so it has no offset in the data
        text = text.format(place=f"byte {at} of the uncompressed messages")
        return DecodeError(f"{path}: {text}", path=path)
    at += origin
    return DecodeError(f"{path}: {text.format(place=f'offset {at}')}", path=path, offset=at)
