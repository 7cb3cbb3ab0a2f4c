"""Reads batches from the field ``records`` of Produce and Fetch, or from a log segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from krammar.wire.batches.bounds import Bounds, default_bounds
from krammar.wire.batches.compression import decompress
from krammar.wire.batches.control import ControlRecord
from krammar.wire.batches.crc import check_body
from krammar.wire.batches.header import (
    BODY_AT,
    CODEC,
    CRC_COVERS_FROM,
    LOG_APPEND_TIME,
    RECORDS_COUNT_AT,
    RECORDS_IN_BODY,
    BatchHeader,
    frames,
    octets,
    read_fields,
)
from krammar.wire.batches.message_sets import decode_message
from krammar.wire.batches.records.model import MIN_RECORD_SIZE, Columns, Record
from krammar.wire.batches.records.read import read_records
from krammar.wire.errors import DecodeError

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
            return decode_message(
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
