"""Records as Arrow columns: the same records that ``read_batches`` gives."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_oracles import CODECS, Row, peer_write, peer_write_legacy, rows_strategy

from krammar.wire.arrow import SCHEMA, iter_arrow, to_arrow
from krammar.wire.errors import CorruptRecordError, DecodeError
from krammar.wire.records import (
    Compression,
    ControlRecord,
    Record,
    TimestampType,
    encode_batch,
    encode_control_batch,
    read_batches,
)


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


@settings(max_examples=100, deadline=None)
@given(rows=rows_strategy(), codec=st.sampled_from(sorted(CODECS.values())))
def test_one_batch(rows: list[Row], codec: int) -> None:
    assert rows_of(to_arrow(peer_write("aiokafka", rows, codec))) == rows


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
    # 20 single messages; 20 in one message, which come at once; three batches of 20 by 7, 7 and 6,
    # the 6 together with the next 7.
    assert [piece.num_rows for piece in pieces] == [7, 7, 26, 7, 7, 13, 7, 13, 7, 6]


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
