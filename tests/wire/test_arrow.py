"""Records as Arrow columns: the same records that ``read_batches`` gives."""

from __future__ import annotations

import struct
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_oracles import CODECS, Row, peer_write, peer_write_legacy, rows_strategy

from krammar.wire.batches import (
    Compression,
    ControlRecord,
    Record,
    TimestampType,
    arrow,
    encode_batch,
    encode_control_batch,
    read_batches,
)
from krammar.wire.batches.arrow import FEW, SCHEMA, iter_arrow, to_arrow
from krammar.wire.errors import CorruptRecordError, DecodeError


def rows_of(table: pa.RecordBatch) -> list[Row]:
    table.validate(full=True)
    assert table.schema == SCHEMA
    return [
        (
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"]],
        )
        for row in table.to_pylist()
    ]


@settings(max_examples=100)
@given(
    rows=rows_strategy(),
    codec=st.sampled_from(sorted(CODECS.values())),
    few=st.sampled_from((1, FEW)),
    plain=st.booleans(),
)
def test_one_batch(rows: list[Row], codec: int, few: int, plain: bool) -> None:
    if plain:
        rows = [(*row[:4], []) for row in rows]
    with patch.object(arrow, "FEW", few):
        assert rows_of(to_arrow(peer_write("aiokafka", rows, codec))) == rows


@pytest.mark.parametrize("size", [0, 1, 50, 63, 64, 8191, 8192, 70_000])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_records_of_all_sizes(size: int, codec: Compression) -> None:
    """Lengths, differences of timestamps and of offsets take from one byte to several."""
    records = [
        Record(
            offset=7 + i * 3,
            timestamp=5 + (i * 7 - 300) * 10 ** (i % 12),
            key=None if i % 5 == 0 else bytes(i % 70),
            value=None if i % 7 == 0 else b"%d" % i + bytes(size + i % 3),
        )
        for i in range(FEW + 5)
    ]
    data = encode_batch(records, compression=codec)
    # Three batches, and pieces that end within one.
    for rows in (10_000, FEW + 50, FEW):
        found = [row for piece in iter_arrow(data * 3, rows=rows) for row in rows_of(piece)]
        assert found == [(r.offset, r.timestamp, r.key, r.value, []) for r in records] * 3


@settings(max_examples=200)
@given(at=st.integers(0, 10_000), byte=st.integers(0, 255), rows=st.sampled_from((100, 1000)))
def test_broken_records_are_the_same_error(at: int, byte: int, rows: int) -> None:
    """Whether they are decoded together or one by one."""
    data = bytearray(encode_batch([Record(i, i, b"k", b"v%d" % i) for i in range(400)]))
    data[61 + at % (len(data) - 61)] = byte
    found = []
    for few in (1, 10_000):
        with patch.object(arrow, "FEW", few):
            try:
                pieces = list(iter_arrow(data, rows=rows, validate_crc=False))
                found.append([row for piece in pieces for row in rows_of(piece)])
            except DecodeError as error:
                found.append([str(error)])
    assert found[0] == found[1]


def test_many_batches_of_all_formats() -> None:
    rows: list[Row] = [(i, 1000 + i, b"k", b"v%d" % i, []) for i in range(20)]
    with_headers = [(*row[:4], [("h", b"%d" % row[0]), ("n", None)]) for row in rows]
    data = (
        peer_write_legacy("aiokafka", 0, rows, 0)
        + peer_write_legacy("aiokafka", 1, rows, 1)
        + peer_write("aiokafka", rows, 2)
        + peer_write("aiokafka", with_headers, 4)  # type: ignore[arg-type]
        + peer_write("aiokafka", rows, 0)
    )
    records = [record for batch in read_batches(data) for record in batch]
    assert [Record(*row) for row in rows_of(to_arrow(data))] == records
    pieces = list(iter_arrow(data, rows=7))
    assert [Record(*row) for piece in pieces for row in rows_of(piece)] == records
    # 20 single messages; 20 in one message, which come at once; three batches of 20.
    assert [piece.num_rows for piece in pieces] == [7, 7, 26, *[7] * 8, 4]


def test_more_records_than_one_piece() -> None:
    """One batch of more rows than are made into arrays at a time."""
    records = [Record(value=b"%d" % i, headers=[("h", b"")] * (i % 2)) for i in range(150_000)]
    table = to_arrow(encode_batch(records, compression=Compression.ZSTD))
    assert table.num_rows == 150_000
    assert table["offset"].to_pylist() == list(range(150_000))
    assert table["value"].to_pylist() == [record.value for record in records]


def test_nothing() -> None:
    empty = encode_batch([], base_offset=5, last_offset_delta=2)
    for data in (None, b"", b"\0" * 16, empty):
        assert rows_of(to_arrow(data)) == []
        assert list(iter_arrow(data)) == []


def test_control_batches_are_left_out() -> None:
    data = encode_batch([Record(5, 6, b"a")]) + encode_control_batch(
        [ControlRecord(1, 7, offset=6)], producer_id=1, producer_epoch=0
    )
    assert [row[0] for row in rows_of(to_arrow(data))] == [5]
    assert [row[0] for row in rows_of(to_arrow(data, include_control=True))] == [5, 6]


def test_log_append_time() -> None:
    data = encode_batch([Record(timestamp=1)]) + encode_batch(
        [Record(timestamp=1), Record(timestamp=2)],
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=99,
    )
    assert [row[1] for row in rows_of(to_arrow(data))] == [1, 99, 99]


def test_errors() -> None:
    data = bytearray(encode_batch([Record(value=b"a"), Record(value=b"b")]))
    data[-2] ^= 1
    with pytest.raises(CorruptRecordError):
        to_arrow(data)
    assert [row[3] for row in rows_of(to_arrow(data, validate_crc=False))] == [b"a", b"c"]
    data[-1] = 1
    with pytest.raises(DecodeError) as caught:
        to_arrow(data, validate_crc=False)
    assert caught.value.path == "records[1].headers"
    with pytest.raises(DecodeError, match="needs"):
        to_arrow(data[:-1], validate_crc=False, allow_partial=False)
    assert to_arrow(data[:-1], validate_crc=False).num_rows == 0


def test_numbers_beyond_64_bits() -> None:
    """Offsets and timestamps are sums of two numbers each of which fits."""
    good = encode_batch([Record(0, 0), Record(1, 1)])
    for position in (0, 27):  # base_offset, base_timestamp
        data = bytearray(good)
        struct.pack_into(">q", data, position, 2**63 - 1)
        with pytest.raises(DecodeError, match="Arrow column"):
            to_arrow(data, validate_crc=False)


def test_the_limit_is_for_all_batches_together() -> None:
    batch = encode_batch([Record(value=bytes(60_000))], compression=Compression.GZIP)
    message = peer_write_legacy("aiokafka", 1, [(0, 0, None, bytes(60_000), [])], 1)
    plain = encode_batch([Record(value=bytes(200_000))])
    for one in (batch, message):
        assert to_arrow(one + one + plain, max_uncompressed=130_000).num_rows == 3
        with pytest.raises(DecodeError, match="max_uncompressed"):
            to_arrow(one + one + one, max_uncompressed=130_000)
    # A batch that is handed out in pieces counts once.
    many = encode_batch([Record()] * 1000, compression=Compression.GZIP)
    assert (
        sum(piece.num_rows for piece in iter_arrow(many, rows=10, max_uncompressed=10_000)) == 1000
    )
