"""Reads the messages of journals, many at once: the driver reads runs of messages, and tasks read rows.

Rows of ``journal_wire`` are decoded as columns. Frames that cannot be decoded so, and other classes, are decoded one by
one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Any

import journal_wire as wire
import pyarrow as pa
import pyarrow.compute as pc

from krammar.journal import Envelope, FixedFraming, Framing, JournalSpec
from krammar.journal.fixed_framing import MAGIC_WORD
from krammar.journal.iterators import envelopes_of, uuid_position
from krammar.spark.journal.committed import CommittedPart, Filter
from krammar.spark.journal.frame_columns import ColumnReader, FrameColumns
from krammar.spark.journal.row_columns import RowColumns
from krammar.spark.journal.rows_in import JournalRows
from krammar.spark.journal.runs import MessageColumns, MessageRun
from krammar.spark.journal.uuid_columns import UuidColumns, fixed_bytes


def read_runs(reader: ColumnReader, cls: type[Any]) -> Generator[MessageRun]:
    """Yield the messages of a journal, and close the reader.

    Messages of transactions are not decoded if possible. Frames that are not messages are skipped with a warning.
    Errors of the reader are raised.
    """
    spec = reader.spec
    position = uuid_position(spec.framing, cls)
    with closing(reader):
        while (columns := reader.read()) is not None:
            yield from _messages(spec, columns, cls, position).runs()


def _messages(
    spec: JournalSpec, columns: FrameColumns, cls: type[Any], position: int
) -> MessageColumns:
    rows = _row_columns(spec.framing, columns, cls)
    if rows is not None:
        return MessageColumns(columns.begins, columns.ends, rows.uuids)
    if position >= 0:
        return _unread_messages(spec, columns, cls, position)
    envelopes = list(envelopes_of(spec, columns.rows(), cls))
    begins, ends = (
        pa.array(offsets, pa.int64())
        for offsets in ([each.begin for each in envelopes], [each.end for each in envelopes])
    )
    uuids = UuidColumns.of(envelope.message.get_uuid() for envelope in envelopes)
    return MessageColumns(begins, ends, uuids)


def _unread_messages(
    spec: JournalSpec, columns: FrameColumns, cls: type[Any], position: int
) -> MessageColumns:
    """Return the messages of frames with their UUIDs at a position; only others than those of transactions are decoded."""
    frames = columns.frames
    parts = pc.binary_slice(frames, position, position + 16)
    is_long = pc.equal(pc.binary_length(parts), 16)
    uuids = UuidColumns(fixed_bytes(pc.if_else(is_long, parts, bytes(16)), 16))
    is_unread = pc.and_(
        pc.and_(is_long, uuids.continues), pc.equal(pc.binary_slice(frames, 0, 4), MAGIC_WORD)
    )
    if pc.all(is_unread).as_py():
        return MessageColumns(columns.begins, columns.ends, uuids)
    others = columns.filter(pc.invert(is_unread)).rows()
    found = pa.array([envelope.begin for envelope in envelopes_of(spec, others, cls)], pa.int64())
    mask = pc.or_(is_unread, pc.is_in(columns.begins, found))
    return MessageColumns(
        columns.begins.filter(mask), columns.ends.filter(mask), uuids.filter(mask)
    )


def read_rows(
    rows: JournalRows, reader: ColumnReader, cls: type[Any], part: CommittedPart | None
) -> Iterator[pa.RecordBatch]:
    """Yield the committed messages of a part of a journal, or all if ``part`` is None, and close the reader."""
    spec = reader.spec
    chosen = None if part is None else Filter(part)
    with closing(reader):
        while (columns := reader.read()) is not None:
            found = None if rows.is_typed else _row_columns(spec.framing, columns, cls)
            if found is None:
                envelopes = envelopes_of(spec, columns.rows(), cls)
                yield from rows.of_envelopes(_passing(envelopes, chosen))
                continue
            begins, ends = columns.begins, columns.ends
            if chosen is not None:
                mask = _mask(MessageColumns(begins, ends, found.uuids), chosen)
                if mask is not None:
                    begins, ends, found = begins.filter(mask), ends.filter(mask), found.filter(mask)
            if len(begins):
                yield rows.of_columns(spec.name, begins, ends, found)


def _row_columns(framing: Framing, columns: FrameColumns, cls: type[Any]) -> RowColumns | None:
    if cls is not wire.Row or not isinstance(framing, FixedFraming):
        return None
    return RowColumns.of(columns.frames)


def _passing(envelopes: Iterable[Envelope], chosen: Filter | None) -> Iterator[Envelope]:
    for envelope in envelopes:
        if chosen is None or chosen.passes(envelope.begin, envelope.message.get_uuid().int):
            yield envelope


def _mask(messages: MessageColumns, chosen: Filter) -> pa.Array | None:
    """Return which messages are committed; None if all are."""
    count = len(messages.begins)
    mask = bytearray(count)
    passed = 0
    for run in messages.runs():
        for first, stop in chosen.passing(run):
            mask[first:stop] = b"\x01" * (stop - first)
            passed += stop - first
    if passed == count:
        return None
    return pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(mask)]).cast(pa.bool_())
