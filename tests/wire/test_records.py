"""Record batches v2: compared with kafka-python and aiokafka, and with corrupt bytes."""

from __future__ import annotations

import copy
import pickle
import random
import struct
import subprocess
import sys
import tracemalloc
from typing import Any

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_oracles import (
    CODECS,
    PEERS,
    Row,
    missing_codec,
    our_read,
    peer_header,
    peer_read,
    peer_write,
    row,
    rows_strategy,
)

from krammar.wire.batches import (
    BatchHeader,
    Bounds,
    Compression,
    ControlRecord,
    ControlRecordType,
    CorruptRecordError,
    Record,
    RecordBatch,
    TimestampType,
    crc32c,
    encode_batch,
    encode_control_batch,
    read_batches,
    read_headers,
)
from krammar.wire.batches.records.explain import explain_read
from krammar.wire.batches.records.model import Columns
from krammar.wire.batches.records.read import _decode_records
from krammar.wire.errors import DecodeError, EncodeError
from krammar.wire.primitives import FAILURES
from tests.odd_values import Index, Odd, Plain

HEADER_SIZE = 61

PEER_CODECS = [
    pytest.param(
        peer,
        codec,
        id=f"{peer}-{name}",
        marks=pytest.mark.skipif(
            missing_codec(peer, codec) is not None, reason=str(missing_codec(peer, codec))
        ),
    )
    for peer in PEERS
    for name, codec in CODECS.items()
]


def only(data: Any, **options: Any) -> RecordBatch:
    (batch,) = read_batches(data, allow_partial=False, **options)
    return batch


def records_of(rows: list[Row]) -> list[Record]:
    return [Record(*fields) for fields in rows]


def with_crc(data: bytes | bytearray) -> bytes:
    """The batch with the CRC that its bytes have."""
    out = bytearray(data)
    struct.pack_into(">I", out, 17, google_crc32c.value(bytes(out[21:])))
    return bytes(out)


def sample(count: int = 40, **options: Any) -> bytes:
    """A batch with records of all shapes."""
    records = [
        Record(
            100 + 3 * i,
            1_700_000_000_000 + 40 * i - (i == 5) * 100,
            None if i % 7 == 1 else b"key-%d" % i,
            None if i % 11 == 3 else b"value of record %d " % i * (i % 13),
            [(f"name-{j}", None if j == 2 else b"x" * j) for j in range(i % 5)],
        )
        for i in range(count)
    ]
    return encode_batch(records, **options)


# Both ways with the peers.


@pytest.mark.parametrize(("peer", "codec"), PEER_CODECS)
@settings(max_examples=60)
@given(rows=rows_strategy())
def test_reads_what_peers_write(peer: str, codec: int, rows: list[Row]) -> None:
    data = peer_write(peer, rows, codec)
    assert our_read(data) == rows
    batch = only(data)
    for name, value in peer_header(peer, data).items():
        assert getattr(batch, name) == value, name


@pytest.mark.parametrize(("peer", "codec"), PEER_CODECS)
@settings(max_examples=60)
@given(rows=rows_strategy())
def test_peers_read_what_we_write(peer: str, codec: int, rows: list[Row]) -> None:
    data = encode_batch(records_of(rows), compression=codec)
    assert peer_read(peer, data) == rows
    assert our_read(data) == rows


@pytest.mark.parametrize("peer", PEERS)
@settings(max_examples=60)
@given(rows=rows_strategy())
def test_uncompressed_bytes_are_the_peers_bytes(peer: str, rows: list[Row]) -> None:
    theirs = bytearray(peer_write(peer, rows, 0))
    struct.pack_into(">i", theirs, 12, -1)  # the leader's epoch, which they leave at 0
    assert encode_batch(records_of(rows)) == bytes(theirs)


@pytest.mark.parametrize("peer", PEERS)
def test_producer_state(peer: str) -> None:
    state = {"producer_id": 2**62, "producer_epoch": 32767, "base_sequence": 2**31 - 1}
    rows: list[Row] = [(0, 5, b"k", b"v", [])]
    theirs = peer_write(peer, rows, 0, is_transactional=True, **state)
    ours = encode_batch(records_of(rows), is_transactional=True, partition_leader_epoch=0, **state)
    batch = only(theirs)
    assert batch.is_transactional
    assert not batch.is_control
    for name, value in peer_header(peer, ours).items():
        assert getattr(batch, name) == value, name


@settings(max_examples=100)
@given(
    rows=rows_strategy(),
    codec=st.sampled_from(Compression),
    base=st.integers(0, 2**62),
    epoch=st.integers(-1, 2**31 - 1),
)
def test_header_fields_survive(rows: list[Row], codec: int, base: int, epoch: int) -> None:
    records = [Record(offset + base, *rest) for offset, *rest in rows]
    last = records[-1].offset - base + 1000
    fields = {
        "base_offset": base,
        "partition_leader_epoch": epoch,
        "last_offset_delta": last,
        "base_timestamp": 5,
        "max_timestamp": -(2**63),
        "producer_id": 2**63 - 1,
        "producer_epoch": -(2**15),
        "base_sequence": -(2**31),
        "is_transactional": True,
        "is_control": True,
        "has_delete_horizon": True,
    }
    data = encode_batch(records, compression=codec, **fields)
    batch = only(data)
    assert batch.records() == records
    assert list(batch) == records
    for name, value in fields.items():
        assert getattr(batch, name) == value, name
    assert batch.compression is Compression(codec)
    assert batch.last_offset == base + last
    assert batch.next_offset == base + last + 1
    assert batch.size_in_bytes == len(data)
    assert batch.records_count == len(records)


def test_many_records_of_every_width() -> None:
    """Offsets and lengths of one to three bytes and more, more records than are decoded at once."""
    records = [
        Record(offset, 1000 + offset, b"%d" % offset, bytes(offset % 300))
        for offset in range(0, 70_000, 3)
    ] + [Record(2**31 - 1, 2**63 - 1, b"", b"")]
    batch = only(encode_batch(records, base_offset=0))
    assert batch.records() == records
    assert list(batch) == records


# What producers leave open.


def test_offsets_are_counted_where_they_are_left_open() -> None:
    batch = only(encode_batch([Record(value=b"a"), Record(value=b"b"), Record(value=b"c")]))
    assert [record.offset for record in batch] == [0, 1, 2]
    assert (batch.base_offset, batch.last_offset_delta, batch.records_count) == (0, 2, 3)
    batch = only(encode_batch([Record(7), Record(), Record(20), Record()]))
    assert [record.offset for record in batch] == [7, 8, 20, 21]
    batch = only(encode_batch([Record(), Record()], base_offset=50))
    assert [record.offset for record in batch] == [50, 51]


def test_timestamps_are_those_of_the_records() -> None:
    batch = only(encode_batch([Record(timestamp=50), Record(timestamp=70), Record(timestamp=10)]))
    assert (batch.base_timestamp, batch.max_timestamp) == (50, 70)
    assert [record.timestamp for record in batch] == [50, 70, 10]
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    batch = only(encode_batch([Record(), Record()]))
    assert (batch.base_timestamp, batch.max_timestamp) == (-1, -1)


@pytest.mark.parametrize("peer", PEERS)
def test_log_append_time_is_that_of_all_records(peer: str) -> None:
    data = encode_batch(
        [Record(timestamp=50), Record(timestamp=70)],
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=1234,
    )
    batch = only(data)
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in batch.records()] == [1234, 1234]
    assert [record.timestamp for record in batch] == [1234, 1234]
    assert our_read(data) == peer_read(peer, data)


def test_values_of_any_buffer() -> None:
    words = memoryview(bytes(8)).cast("I")
    data = encode_batch(
        [
            Record(key=bytearray(b"k"), value=memoryview(b"abc")[1:]),  # type: ignore[arg-type]
            Record(key=words, value=b"", headers=[("h", bytearray(b"v"))]),  # type: ignore
        ]
    )
    assert [(r.key, r.value, r.headers) for r in only(data)] == [
        (b"k", b"bc", []),
        (bytes(8), b"", [("h", b"v")]),
    ]


# Fetch responses and log segments: batches end to end.


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_batches_end_to_end(kind: Any) -> None:
    parts = [sample(3, base_offset=90), sample(2, compression=Compression.ZSTD), sample(1)]
    data = kind(b"".join(parts))
    batches = list(read_batches(data))
    assert [batch.position for batch in batches] == [0, len(parts[0]), len(parts[0] + parts[1])]
    assert [len(batch.records()) for batch in batches] == [3, 2, 1]
    headers = list(read_headers(data))
    assert all(type(header) is BatchHeader for header in headers)
    for header, batch, part in zip(headers, batches, parts, strict=True):
        assert header.size_in_bytes == len(part)
        for name in BatchHeader.__slots__:
            assert getattr(header, name) == getattr(batch, name)


def test_no_batches() -> None:
    assert list(read_batches(None)) == []
    assert list(read_batches(b"")) == []
    assert list(read_headers(b"", allow_partial=False)) == []


def test_memoryviews_of_other_items() -> None:
    data = sample(4)
    data += bytes(-len(data) % 4)  # a partial batch
    assert len(list(read_batches(memoryview(data).cast("I")))) == 1
    wide = memoryview(b"".join(bytes((byte, 0)) for byte in data))[::2]
    assert len(list(read_batches(wide))) == 1


def test_partial_batch_at_the_end_is_left_out() -> None:
    first, second = sample(3), sample(5)
    assert len(second) > 61
    for size in range(len(second)):
        data = first + second[:size]
        assert len(list(read_batches(data))) == 1
        assert len(list(read_headers(data))) == 1
        if size:
            batches = read_batches(data, allow_partial=False)
            next(batches)
            with pytest.raises(DecodeError) as caught:
                next(batches)
            assert caught.value.offset == len(first)


def test_batch_without_records() -> None:
    """Compaction keeps the header of a batch without records, for the producer's sequence."""
    data = encode_batch(
        [],
        base_offset=40,
        last_offset_delta=9,
        producer_id=5,
        producer_epoch=1,
        base_sequence=3,
        compression=Compression.GZIP,
    )
    assert len(data) == HEADER_SIZE
    batch = only(data)
    assert batch.records() == list(batch) == []
    assert (batch.next_offset, batch.producer_id, batch.records_count) == (50, 5, 0)
    # Older brokers left the codec in the attributes.
    data = bytearray(data)
    data[22] |= Compression.ZSTD
    assert only(with_crc(data)).records() == []


def test_gaps_of_compaction() -> None:
    records = [Record(1005, 5, b"a"), Record(1900, 6, b"b")]
    batch = only(encode_batch(records, base_offset=1000, last_offset_delta=999))
    assert batch.records() == records
    assert (batch.base_offset, batch.next_offset) == (1000, 2000)


# Control batches.


@pytest.mark.parametrize("kind", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
def test_end_of_transaction(kind: ControlRecordType) -> None:
    control = ControlRecord(kind, coordinator_epoch=77, offset=30, timestamp=123)
    data = encode_control_batch([control], producer_id=9, producer_epoch=4)
    batch = only(data)
    assert batch.is_control
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 4, -1)
    assert batch.control_records() == [control]
    (record,) = batch
    assert record.key == struct.pack(">hh", 0, kind)
    assert record.value == struct.pack(">hi", 0, 77)

    from kafka.record.memory_records import MemoryRecords

    (theirs,) = MemoryRecords(data).next_batch()
    assert (theirs.version, theirs.commit) == (0, kind == ControlRecordType.COMMIT)

    from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER
    from aiokafka.record.control_record import ControlRecord as AiokafkaControlRecord

    expected = COMMIT_MARKER if kind == ControlRecordType.COMMIT else ABORT_MARKER
    assert AiokafkaControlRecord.parse(record.key) == expected


def test_control_records_of_kraft_and_of_the_future() -> None:
    leader = ControlRecord(ControlRecordType.LEADER_CHANGE, value=b"message", offset=0)
    later = ControlRecord(99, value=None, offset=1, version=3)
    batch = only(encode_control_batch([leader, later]))
    assert batch.is_control
    assert not batch.is_transactional
    assert batch.control_records() == [leader, later]
    # A marker with more fields than are known.
    record = Record(5, 6, struct.pack(">hhb", 1, 1, 9), struct.pack(">hiq", 2, 77, 5))
    assert ControlRecord.from_record(record) == ControlRecord(1, 77, None, 5, 6, 1, 2)


@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        (None, b"", "records[1].key"),
        (b"\0\0\0", b"", "records[1].key"),
        (b"\0\0\0\1", None, "records[1].value"),
        (b"\0\0\0\0", b"\0\0\0\0\0", "records[1].value"),
    ],
)
def test_control_records_that_are_cut(key: bytes | None, value: bytes | None, path: str) -> None:
    good = ControlRecord(1, 2).to_record()
    batch = only(encode_batch([good, Record(key=key, value=value)], is_control=True))
    with pytest.raises(DecodeError) as caught:
        batch.control_records()
    assert caught.value.path == path


def test_control_records_out_of_range() -> None:
    for control in (
        ControlRecord(2**15),
        ControlRecord(1, coordinator_epoch=2**31),
        ControlRecord(1, version=-(2**15) - 1),
    ):
        with pytest.raises(EncodeError):
            encode_control_batch([control])


# The CRC.


@pytest.mark.parametrize(
    ("data", "crc"),
    [  # RFC 3720, appendix B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (
            bytes.fromhex(
                "01c00000000000000000000000000000140000000000040000000014"
                "0000001828000000000000000200000000000000"
            ),
            0xD9963A56,
        ),
    ],
)
def test_crc32c_of_the_rfc(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc
    assert crc32c(data[7:], crc32c(data[:7])) == crc


def test_crc32c_is_computed_in_c() -> None:
    assert google_crc32c.implementation == "c"


def test_wrong_crc() -> None:
    good = sample(4)
    assert len(good) > 61
    for position in range(21, len(good)):
        data = bytearray(good)
        data[position] ^= 1 << position % 8
        with pytest.raises(CorruptRecordError) as caught:
            list(read_batches(good + data))
        assert caught.value.path == "crc"
        assert caught.value.offset == len(good) + 17


def test_wrong_crc_can_be_overlooked() -> None:
    data = bytearray(sample(4))
    data[17] ^= 1
    assert only(data, validate_crc=False).records() == only(sample(4)).records()


# Corrupt bytes.


def body(*records: bytes, **options: Any) -> bytes:
    """A batch of records given as bytes, with a fitting CRC."""
    data = bytearray(encode_batch([Record()] * len(records), **options))[:HEADER_SIZE]
    data += b"".join(records)
    struct.pack_into(">i", data, 8, len(data) - 12)
    return with_crc(data)


# A record of one byte more than the smallest: length 7, attributes, timestamp, offset, null key,
# value of one byte, no headers.
GOOD = bytes((14, 0, 0, 0, 1, 2, 65, 0))


@pytest.mark.parametrize(
    ("record", "path", "position", "text"),
    [
        (bytes((16,)) + GOOD[1:], "records[1]", 70, "needs 8 bytes at offset 70, 7 left"),
        (bytes((12,)) + GOOD[1:], "records[1]", 69, "says 6 bytes at offset 69 but has 7"),
        (bytes((1,)) + GOOD[1:], "records[1]", 70, "needs -1 bytes"),
        (b"\xff" * 8, "records[1]", 69, "number too large"),
        (bytes((14, 0)) + b"\xff" * 20, "records[1].timestamp", 71, "number too large"),
        (bytes((14, 0, 0)) + b"\xff" * 9, "records[1].offset", 72, "number too large"),
        (bytes((14, 0, 0, 0, 3, 2, 65, 0)), "records[1].key", 73, "length of -2"),
        (
            bytes((14, 0, 0, 0, 40, 2, 65, 0)),
            "records[1].key",
            74,
            "needs 20 bytes at offset 74, 3",
        ),
        (bytes((14, 0, 0, 0, 1, 3, 65, 0)), "records[1].value", 74, "length of -2"),
        (
            bytes((14, 0, 0, 0, 1, 6, 65, 0)),
            "records[1].value",
            75,
            "needs 3 bytes at offset 75, 2",
        ),
        (bytes((14, 0, 0, 0, 1, 4, 65, 0)), "records[1].headers", 77, "the bytes end in a number"),
        (bytes((14, 0, 0, 0, 1, 2, 65, 2)), "records[1].headers", 76, "1 headers at offset 76, 0"),
        (bytes((14, 0, 0, 0, 1, 2, 65, 1)), "records[1].headers", 76, "-1 headers at offset 76"),
        (
            bytes((18, 0, 0, 0, 1, 2, 65, 2, 1, 1)),
            "records[1].headers[0].key",
            77,
            "length of -1",
        ),
        (
            bytes((20, 0, 0, 0, 1, 2, 65, 2, 8, 255, 1)),
            "records[1].headers[0].key",
            78,
            "needs 4 bytes at offset 78, 2 left",
        ),
        (
            bytes((18, 0, 0, 0, 1, 2, 65, 2, 0, 9)),
            "records[1].headers[0].value",
            78,
            "length of -5",
        ),
        (
            bytes((18, 0, 0, 0, 1, 2, 65, 2, 0, 8)),
            "records[1].headers[0].value",
            79,
            "needs 4 bytes at offset 79, 0 left",
        ),
    ],
)
def test_says_what_is_wrong_and_where(record: bytes, path: str, position: int, text: str) -> None:
    batch = only(body(GOOD, record))
    for read in (batch.records, lambda: list(batch)):
        with pytest.raises(DecodeError) as caught:
            read()
        assert (caught.value.path, caught.value.offset) == (path, position)
        assert str(caught.value).startswith("batch at offset 0: " + path)
        assert text in str(caught.value)

    # The same, compressed: there is no offset in the bytes given to speak of.
    inside = encode_batch([Record()], compression=Compression.SNAPPY)
    from krammar.wire.batches.compression import compress

    data = bytearray(inside[:HEADER_SIZE]) + compress(GOOD + record, Compression.SNAPPY)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 57, 2)
    with pytest.raises(DecodeError) as caught:
        only(with_crc(data)).records()
    assert (caught.value.path, caught.value.offset) == (path, -1)


def test_positions_count_from_the_data() -> None:
    first = sample(5)
    batch = list(read_batches(first + body(GOOD, GOOD[:-1] + b"\1")))[1]
    with pytest.raises(DecodeError) as caught:
        batch.records()
    assert caught.value.offset == len(first) + 76


def test_bytes_behind_the_last_record() -> None:
    data = bytearray(body(GOOD, GOOD))
    struct.pack_into(">i", data, 57, 1)
    with pytest.raises(DecodeError, match="8 bytes after the last record") as caught:
        only(with_crc(data)).records()
    assert caught.value.offset == HEADER_SIZE + len(GOOD)


@pytest.mark.parametrize(
    ("position", "form", "value", "path"),
    [
        (8, ">i", 48, "batch_length"),
        (8, ">i", -1, "batch_length"),
        (8, ">i", -(2**31), "batch_length"),
        (16, ">b", 3, "magic"),
        (16, ">b", -1, "magic"),
        (57, ">i", -1, "records_count"),
        (57, ">i", 2**31 - 1, "records_count"),
        (57, ">i", 1000, "records_count"),
    ],
)
def test_headers_that_cannot_be(position: int, form: str, value: int, path: str) -> None:
    data = bytearray(sample(3))
    struct.pack_into(form, data, position, value)
    with pytest.raises(DecodeError) as caught:
        only(data, validate_crc=False).records()
    assert caught.value.path == path
    assert caught.value.offset == position


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    data = bytearray(sample(3))
    data[22] |= codec
    batch = only(with_crc(data))
    with pytest.raises(DecodeError, match=f"unknown compression {codec}"):
        batch.records()
    with pytest.raises(DecodeError, match=f"unknown compression {codec}"):
        _ = batch.compression


def test_numbers_may_be_longer_than_needed() -> None:
    """As for Kafka: bytes without bits at the end of a varint change nothing."""
    rest = bytes((0, 0x80, 0x80, 0, 0x80, 0, 0x81, 0, 0x82, 0, 65, 0x80, 0))
    record = bytes((len(rest) * 2 | 128, 0)) + rest
    assert only(body(record)).records() == [Record(0, -1, None, b"A")]
    rest = bytes((0, 0x80, 0, 0x80, 0x80, 0, 0x82, 0x80, 0, 65, 0x81, 0, 0x80, 0))
    record = bytes((len(rest) * 2 | 128, 0x80, 0)) + rest
    assert only(body(record)).records() == [Record(0, -1, b"A", None)]


def test_negative_deltas() -> None:
    """Kafka writes no negative offset deltas but reads them."""
    (record,) = only(body(bytes((14, 0, 3, 1, 1, 2, 65, 0)), base_offset=50)).records()
    assert (record.offset, record.timestamp) == (49, -3)


def test_every_truncation() -> None:
    """Records cut anywhere fail, with a place: both readers of them agree that they do."""
    data = sample(12)
    batch = only(data)
    assert len(batch.records()) == 12
    payload = data[HEADER_SIZE:]
    for size in range(len(payload)):
        columns = Columns()
        with pytest.raises(FAILURES):
            _decode_records(columns, payload[:size], 0, 12, 0, 0)
        error = explain_read(payload[:size], 0, 12, 0, 0)
        assert "cannot be decoded" not in str(error)
        assert 0 <= error.offset <= size


def test_both_readers_agree_on_mutations() -> None:
    """The fast loop fails where, and only where, the plain walk finds a fault."""
    rng = random.Random(1)
    payload = sample(12)[HEADER_SIZE:]
    failures = 0
    for _ in range(20_000):
        data = mutate(rng, payload)
        try:
            _decode_records(Columns(), data, 0, 12, 0, 0)
        except FAILURES:
            failures += 1
            failed = True
        else:
            failed = False
        error = explain_read(data, 0, 12, 0, 0)
        assert ("cannot be decoded" not in str(error)) == failed, str(error)
    assert failures > 500


def mutate(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(out))
        kind = rng.randrange(5)
        if kind == 0:
            out[at] = rng.choice((0, 1, 2, 3, 126, 127, 128, 129, 254, 255))
        elif kind == 1:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            out[at : at + rng.randint(1, 8)] = b""
        elif kind == 3:
            out[at:at] = rng.randbytes(rng.randint(1, 8))
        else:
            out[at : at + 4] = rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", bytes(4)))
        if not out:
            return b"\0"
    return bytes(out)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_mutations_give_values_or_decode_errors(codec: int) -> None:
    rng = random.Random(codec)
    data = sample(30, compression=codec) + sample(2, compression=codec)
    values = errors = 0
    for _ in range(1500):
        mutated = mutate(rng, data)
        try:
            list(read_headers(mutated))
            for batch in read_batches(mutated, validate_crc=False, max_uncompressed=1 << 18):
                repr(batch)
                batch.timestamp_type  # noqa: B018
                batch.records()
            values += 1
        except DecodeError:
            errors += 1
    assert values > 20
    assert errors > 100


def test_claims_of_billions_cost_nothing() -> None:
    data = bytearray(body(GOOD))
    struct.pack_into(">i", data, 57, 2**31 - 1)
    count = with_crc(data)
    two_billion = b"\xfe\xff\xff\xff\x0f"
    size = body(two_billion + GOOD[1:])
    key = body(bytes((14, 0, 0, 0)) + two_billion + bytes(10))
    headers = body(bytes((14, 0, 0, 0, 1, 1)) + two_billion + bytes(10))
    for claim in (count, size, key, headers):
        batch = only(claim)
        tracemalloc.start()
        try:
            with pytest.raises(DecodeError):
                batch.records()
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_bombs(codec: Compression) -> None:
    """A few kilobytes of 64 MiB: decompressing stops at the limit."""
    data = encode_batch([Record(value=bytes(1 << 26))], compression=codec)
    batch = only(data, max_uncompressed=1 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="max_uncompressed"):
            batch.records()
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()
    (record,) = only(data, bounds=Bounds(uncompressed=1 << 27, ratio=1_000_000)).records()
    assert len(record.value or b"") == 1 << 26


def test_iterating_keeps_memory_small() -> None:
    """Records can be many times larger as objects than as bytes; they are not made all at once."""
    data = encode_batch([Record()] * 50_000, compression=Compression.ZSTD)
    batch = only(data)
    tracemalloc.start()
    try:
        assert sum(1 for _ in batch) == 50_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50_000 * 40  # 10 bytes each decompressed, in buffers twice; 200 as records


# Values that cannot be carried.


@pytest.mark.parametrize(
    ("record", "path"),
    [
        ("record", ""),
        (None, ""),
        (Record("5"), ".offset"),  # type: ignore[arg-type]
        (Record(1.5), ".offset"),  # type: ignore[arg-type]
        (Record(10), ".offset"),
        (Record(-2), ".offset"),
        (Record(2**31 + 20), ".offset"),
        (Record(2**63), ".offset"),
        (Record(timestamp=None), ".timestamp"),  # type: ignore[arg-type]
        (Record(timestamp=2.5), ".timestamp"),  # type: ignore[arg-type]
        (Record(timestamp=2**63), ".timestamp"),
        (Record(timestamp=-(2**63) - 1), ".timestamp"),
        (Record(key="key"), ".key"),  # type: ignore[arg-type]
        (Record(key=5), ".key"),  # type: ignore[arg-type]
        (Record(value=[1, 2]), ".value"),  # type: ignore[arg-type,list-item]
        (Record(value="v"), ".value"),  # type: ignore[arg-type]
        (Record(headers={"a": b"b"}), ".headers"),  # type: ignore[arg-type]
        (Record(headers="ab"), ".headers"),  # type: ignore[arg-type]
        (Record(headers=[("a", b"b", 1)]), ".headers[0]"),  # type: ignore[list-item]
        (Record(headers=[("a", b""), None]), ".headers[1]"),  # type: ignore[list-item]
        (Record(headers=["ab"]), ".headers[0]"),  # type: ignore[list-item]
        (Record(headers=[(b"a", b"b")]), ".headers[0].key"),  # type: ignore[list-item]
        (Record(headers=[(None, b"b")]), ".headers[0].key"),  # type: ignore[list-item]
        (Record(headers=[("\ud800", b"b")]), ".headers[0].key"),
        (Record(headers=[("a", "b")]), ".headers[0].value"),  # type: ignore[list-item]
        (Record(headers=[("a", None), ("b", 1)]), ".headers[1].value"),  # type: ignore[list-item]
    ],
)
def test_refuses_records(record: Any, path: str) -> None:
    records = [Record(20, 5, b"k", b"v"), record, Record(2**40)]
    with pytest.raises(EncodeError) as caught:
        encode_batch(records)
    assert caught.value.path == "records[1]" + path
    assert str(caught.value).startswith("records[1]" + path + ": ")


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"base_offset": 21}, "records[0].offset"),
        ({"base_offset": 2**63}, "base_offset"),
        ({"base_offset": "5"}, "base_offset"),
        ({"base_timestamp": 2**63}, "base_timestamp"),
        ({"base_timestamp": -(2**63)}, "records[0].timestamp"),
        ({"max_timestamp": -(2**63) - 1}, "max_timestamp"),
        ({"partition_leader_epoch": 2**31}, "partition_leader_epoch"),
        ({"last_offset_delta": 2**31}, "last_offset_delta"),
        ({"last_offset_delta": 0}, "last_offset_delta"),
        ({"producer_id": 2**63}, "producer_id"),
        ({"producer_epoch": 2**15}, "producer_epoch"),
        ({"producer_epoch": None}, "producer_epoch"),
        ({"base_sequence": -(2**31) - 1}, "base_sequence"),
        ({"timestamp_type": -1}, "timestamp_type"),
        ({"compression": 5}, "compression"),
        ({"compression": "gzip"}, "compression"),
        ({"compression": None}, "compression"),
        ({"compression": Compression.GZIP, "compression_level": 10}, "compression_level"),
        ({"compression": Compression.ZSTD, "compression_level": "3"}, "compression_level"),
        ({"compression": Compression.SNAPPY, "compression_level": 1}, "compression_level"),
    ],
)
def test_refuses_header_fields(options: dict[str, Any], path: str) -> None:
    with pytest.raises(EncodeError) as caught:
        encode_batch([Record(20, 5), Record(21, 6)], **options)
    assert caught.value.path == path


@pytest.mark.parametrize("field", ["offset", "timestamp"])
@pytest.mark.parametrize("value", [None, "5", 5.0, Index(5)], ids=repr)
def test_refuses_numbers_that_are_no_ints(field: str, value: Any) -> None:
    for records in ([Record(**{field: value})], [Record(4, 4), Record(**{field: value})]):
        with pytest.raises(EncodeError) as caught:
            encode_batch(records)
        assert caught.value.path == f"records[{len(records) - 1}].{field}"
        assert f": needs an int, not {_name(value)}" in str(caught.value)


def _name(value: Any) -> str:
    return "None" if value is None else type(value).__name__


@pytest.mark.parametrize("name", ["base_offset", "last_offset_delta", "base_timestamp"])
def test_refuses_header_numbers_that_are_no_ints(name: str) -> None:
    with pytest.raises(EncodeError, match=f"{name}: needs an int, not Index"):
        encode_batch([Record(), Record()], **{name: Index(5)})


def test_refuses_lists_that_iterate_in_their_own_way() -> None:
    for records, path in (
        (Odd([Record(), Record()]), "records"),
        ([Record(headers=Odd([("a", b""), ("b", b"")]))], "records[0].headers"),
    ):
        with pytest.raises(EncodeError, match=r"Odd has an __iter__ .* list\(") as caught:
            encode_batch(records)
        assert caught.value.path == path
    headers = [("a", b""), ("b", b"")]
    assert encode_batch(Plain([Record(headers=Plain(headers))])) == encode_batch(
        [Record(headers=headers)]
    )


def test_refuses_what_is_not_records() -> None:
    for records in (None, 5, [], ()):
        with pytest.raises(EncodeError) as caught:
            encode_batch(records)  # type: ignore[arg-type]
        assert caught.value.path == "records"
    with pytest.raises(EncodeError) as caught:
        encode_batch("ab")  # type: ignore[arg-type]
    assert caught.value.path == "records[0]"


def test_takes_any_iterable() -> None:
    records = [Record(value=b"%d" % i) for i in range(5)]
    assert encode_batch(iter(records)) == encode_batch(tuple(records)) == encode_batch(records)


# Records as values.


def test_records_are_values() -> None:
    record = Record(1, 2, b"k", b"v", [("h", None)])
    assert record == Record(offset=1, timestamp=2, key=b"k", value=b"v", headers=[("h", None)])
    assert record != Record(1, 2, b"k", b"v")
    assert record != row(record)
    assert eval(repr(record)) == record
    assert Record() == Record(-1, -1, None, None, [])
    first, second = Record(), Record()
    first.headers.append(("h", b""))
    assert second.headers == []
    assert first != second
    first.headers = []
    assert first == second
    assert pickle.loads(pickle.dumps(record)) == copy.copy(record) == record
    with pytest.raises(AttributeError):
        record.other = 1  # type: ignore[attr-defined]


def test_libraries_are_loaded_when_they_are_needed() -> None:
    code = (
        "import sys; from krammar.wire.batches import *; "
        "print([m for m in ('cramjam', 'google_crc32c', 'pyarrow') if m in sys.modules]); "
        "encode_batch([Record()]); print('google_crc32c' in sys.modules, 'cramjam' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[:2] == ["[]", "True False"]
