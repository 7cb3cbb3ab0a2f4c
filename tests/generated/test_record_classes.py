"""The classes of record batches and messages against kio's and kafka-python's builders and readers.

``krammar.wire.batches`` has a faster reader and writer of its own; these are the plain structs that
the definitions describe.
"""

from __future__ import annotations

import datetime
import io
from random import Random
from typing import Any
from zlib import crc32

import pytest
from google_crc32c import value as crc32c
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords
from kafka_wire import Header, MessageV0, MessageV1, Record, RecordBatch
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch
from kio.records.schema import Record as KioRecord
from kio.records.schema import RecordHeader as KioHeader
from kio.records.writers import write_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

# Whole seconds: kio has no other timestamps.
BASE = 1_700_000_000_000
BEFORE_CRC = 17  # bytes of base offset, length, leader epoch and magic
AFTER_LENGTH = 12  # bytes of offset and size of a message


def records(seed: int) -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, Any]]]]:
    """Timestamp deltas, keys, values and headers of a few records, nulls and long ones among them."""
    rng = Random(seed)

    def data() -> bytes | None:
        size = rng.choice((None, 0, 1, 62, 63, 64, 127, 128, 9000))
        return None if size is None else rng.randbytes(size)

    found: list[tuple[int, bytes | None, bytes | None, list[tuple[str, Any]]]] = [
        (0, b"k", b"v", [])
    ]
    for _ in range(8):
        headers = [("é" * rng.randrange(40), data()) for _ in range(rng.randrange(3))]
        found.append((rng.randrange(0, 1 << 33) * 1000, data(), data(), headers))
    return found


def our_record(index: int, item: tuple[int, Any, Any, list[tuple[str, Any]]]) -> Record:
    delta, key, value, headers = item
    record = Record(
        timestamp_delta=delta,
        offset_delta=index,
        key=key,
        value=value,
        headers=[Header(key=name, value=data) for name, data in headers],
    )
    record.length = len(record.encode(0)) - 1  # the length field itself takes one byte yet
    return record


def our_batch(seed: int, producer_id: int = -1) -> RecordBatch:
    items = records(seed)
    batch = RecordBatch(
        partition_leader_epoch=0,
        base_timestamp=BASE,
        max_timestamp=BASE + max(item[0] for item in items),
        last_offset_delta=len(items) - 1,
        producer_id=producer_id,
        producer_epoch=3 if producer_id >= 0 else -1,
        base_sequence=7 if producer_id >= 0 else -1,
        records_count=len(items),
        records=b"".join(our_record(index, item).encode(0) for index, item in enumerate(items)),
    )
    batch.crc = crc32c(batch.encode(0)[BEFORE_CRC + 4 :])
    return batch


def unpack(batch: RecordBatch) -> list[Record]:
    found = []
    position = 0
    while position < len(batch.records):
        begin = position
        record, position = Record.decode_from(batch.records, position, 0)
        assert record.encode(0) == batch.records[begin:position]
        found.append(record)
    return found


@pytest.mark.parametrize("producer_id", [-1, 1 << 40])
@pytest.mark.parametrize("seed", range(5))
def test_batches_of_kafka_python(seed: int, producer_id: int) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, producer_id, 3, 7, 1 << 30)
    if producer_id < 0:
        builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
    for index, (delta, key, value, headers) in enumerate(records(seed)):
        assert builder.append(index, BASE + delta, key, value, headers)
    theirs = bytes(builder.build())

    ours = our_batch(seed, producer_id)
    assert ours.encode(0) == theirs
    again = RecordBatch.decode(theirs, 0)
    assert again.length == len(theirs) - AFTER_LENGTH
    ours.length = again.length
    assert again == ours
    assert unpack(again) == [our_record(i, item) for i, item in enumerate(records(seed))]

    reader = DefaultRecordBatch(ours.encode(0))
    assert reader.validate_crc()
    assert (reader.producer_id, reader.base_sequence) == (ours.producer_id, ours.base_sequence)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in reader] == [
        (BASE + delta, key, value, headers) for delta, key, value, headers in records(seed)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_batches_of_kio(seed: int) -> None:
    items = [
        (delta % 10**9 * 1000, key, value, headers) for delta, key, value, headers in records(seed)
    ]

    def date(delta: int) -> TZAwareMicros:
        second = (BASE + delta) // 1000
        return TZAwareMicros.parse(datetime.datetime.fromtimestamp(second, datetime.UTC))

    new = NewRecordBatch(
        producer_id=i64(5),
        producer_epoch=i16(1),
        base_sequence=i32(0),
        attributes=i16(0x10),
        records=tuple(
            KioRecord(
                attributes=i8(0),
                timestamp=date(delta),
                offset=i64(100 + index),
                key=key,
                value=value,
                headers=tuple(KioHeader(key=name.encode(), value=data) for name, data in headers),
            )
            for index, (delta, key, value, headers) in enumerate(items)
        ),
    )
    out = io.BytesIO()
    write_batch(out, new)
    theirs = out.getvalue()

    ours = RecordBatch.decode(theirs, 0)
    assert ours.encode(0) == theirs
    assert (ours.base_offset, ours.producer_id, ours.producer_epoch) == (100, 5, 1)
    assert (ours.attributes, ours.magic, ours.records_count) == (0x10, 2, len(items))
    assert ours.crc == crc32c(theirs[BEFORE_CRC + 4 :])
    assert unpack(ours) == [our_record(index, item) for index, item in enumerate(items)]
    read, end = read_batch(ours.encode(0), 0)
    assert end == len(theirs)
    assert [(r.offset, r.key, r.value) for r in read.records] == [
        (100 + index, key, value) for index, (_, key, value, _) in enumerate(items)
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_kafka_python(magic: int) -> None:
    items = [(None, b"v"), (b"", b""), (b"key", None), (b"k" * 300, b"v" * 70000)]
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 30)
    for index, (key, value) in enumerate(items):
        assert builder.append(index, BASE + index, key, value)
    theirs = bytes(builder.build())

    position = 0
    made = b""
    for index, (key, value) in enumerate(items):
        begin = position
        message: Any
        if magic == 0:
            message, position = MessageV0.decode_from(theirs, position, 0)
            ours: Any = MessageV0(offset=index, key=key, value=value)
        else:
            message, position = MessageV1.decode_from(theirs, position, 0)
            ours = MessageV1(offset=index, timestamp=BASE + index, key=key, value=value)
        assert message.message_size == position - begin - AFTER_LENGTH
        ours.message_size = message.message_size
        ours.crc = crc32(ours.encode(0)[AFTER_LENGTH + 4 :])
        assert message == ours
        made += ours.encode(0)
    assert position == len(theirs)
    assert made == theirs
    reader = MemoryRecords(made)
    read = []
    while (batch := reader.next_batch()) is not None:
        assert batch.validate_crc()
        read += [(r.offset, r.key, r.value) for r in batch]
    assert read == [(index, key, value) for index, (key, value) in enumerate(items)]
