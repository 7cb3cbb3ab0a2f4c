"""The limits of batches, in every reader."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import pytest

from krammar.wire.batches import (
    BatchLimitError,
    Bounds,
    Compression,
    Record,
    RecordBatch,
    encode_batch,
    read_batches,
)
from krammar.wire.batches.arrow import iter_arrow, to_arrow
from krammar.wire.batches.bounds import bounds_of, default_bounds, variable
from krammar.wire.batches.compression import compress
from krammar.wire.batches.records.check import check_records
from tests.attack.batches import raw_batch, with_headers

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


READERS: dict[str, Callable[[bytes, Bounds], object]] = {
    "records": lambda data, bounds: [b.records() for b in read_batches(data, bounds=bounds)],
    "iteration": lambda data, bounds: [list(b) for b in read_batches(data, bounds=bounds)],
    "to_arrow": lambda data, bounds: to_arrow(data, bounds=bounds),
    "iter_arrow": lambda data, bounds: list(iter_arrow(data, bounds=bounds)),
}


@pytest.mark.parametrize("codec", [0, *CODECS])
@pytest.mark.parametrize("reader", READERS)
def test_each_limit_is_exact(reader: str, codec: int) -> None:
    read = READERS[reader]
    one = with_headers(700)
    read(raw_batch(one, 1, codec), Bounds(headers=700))
    with pytest.raises(BatchLimitError, match="more than 699 headers in a batch") as caught:
        read(raw_batch(one, 1, codec), Bounds(headers=699))
    assert caught.value.limit == "headers"
    assert "KRAMMAR_MAX_HEADERS" in str(caught.value)
    many = encode_batch([Record(value=b"v")] * 300, compression=codec)
    read(many, Bounds(records=300))
    with pytest.raises(BatchLimitError, match="300 records in a batch, more than 299"):
        read(many, Bounds(records=299))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("reader", READERS)
def test_bombs(reader: str, codec: int) -> None:
    """A few kilobytes with 63 million headers are refused before they take memory."""
    data = raw_batch(with_headers(8_000_000), 1, codec)
    tracemalloc.start()
    try:
        with pytest.raises(BatchLimitError):
            READERS[reader](data, default_bounds())
        assert tracemalloc.get_traced_memory()[1] < 80 << 20
    finally:
        tracemalloc.stop()


def test_the_ratio_counts_above_a_size() -> None:
    small = raw_batch(with_headers(0), 1, Compression.ZSTD)
    assert next(read_batches(small)).records()
    data = encode_batch([Record(value=bytes(17 << 20))], compression=Compression.ZSTD)
    assert len(data) < 10_000
    with pytest.raises(BatchLimitError, match="expand more than 1000 times"):
        next(read_batches(data)).records()
    assert next(read_batches(data, bounds=Bounds(ratio=10_000_000))).records()


def test_the_check_of_a_broker() -> None:
    one = with_headers(10)
    assert check_records(one, 0, 1, bounds=Bounds(headers=10)) == (0, 0, 0)
    with pytest.raises(BatchLimitError):
        check_records(one, 0, 1, bounds=Bounds(headers=9))
    with pytest.raises(BatchLimitError):
        check_records(one * 3, 0, 3, bounds=Bounds(records=2))


def test_message_sets() -> None:
    from tests.wire.test_message_sets import message

    inside = b"".join(message(1, b"v", offset=n) for n in range(5))
    data = message(1, compress(inside, 1), attributes=1)
    assert len(next(read_batches(data, bounds=Bounds(records=5))).records()) == 5
    with pytest.raises(BatchLimitError, match="5 records in a batch, more than 4"):
        next(read_batches(data, bounds=Bounds(records=4))).records()


def test_the_environment_sets_limits() -> None:
    assert bounds_of({}) == Bounds()
    values = {variable(name): str(10 + n) for n, name in enumerate(Bounds.__slots__)}
    assert set(values) == {
        "KRAMMAR_MAX_UNCOMPRESSED",
        "KRAMMAR_MAX_RECORDS",
        "KRAMMAR_MAX_HEADERS",
        "KRAMMAR_MAX_RATIO",
    }
    found = bounds_of(values)
    assert [getattr(found, name) for name in Bounds.__slots__] == [10, 11, 12, 13]
    for text in ("0", "-1", "many", "1e6", "9" * 30, "²"):
        with pytest.raises(
            ValueError, match=r"KRAMMAR_MAX_RECORDS is .*; set it to a whole number"
        ):
            bounds_of({"KRAMMAR_MAX_RECORDS": text})


def test_batches_keep_their_own_limits() -> None:
    data = encode_batch([Record(value=b"v")] * 3)
    strict, loose = (next(read_batches(data, bounds=Bounds(records=n))) for n in (2, 3))
    assert isinstance(strict, RecordBatch) and strict == loose
    assert len(loose.records()) == 3
    with pytest.raises(BatchLimitError):
        strict.records()
    assert all(a.offset + 1 == b.offset for a, b in pairwise(loose))
