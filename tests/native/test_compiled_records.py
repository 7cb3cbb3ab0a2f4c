"""The compiled and the pure loops of record batches give the same records, bytes and errors."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import numpy
import pytest

from krammar.util.native_files import FOLDER, RECORDS
from krammar.wire import native
from krammar.wire.batches import Bounds, Compression, TimestampType, encode_batch, read_batches
from krammar.wire.batches.arrow import iter_arrow, to_arrow
from krammar.wire.batches.records import compiled
from krammar.wire.batches.records.check import check_records
from krammar.wire.batches.records.model import Record
from krammar.wire.batches.records.read import read_records
from krammar.wire.batches.records.write import encode_records
from krammar.wire.errors import BatchLimitError, EncodeError, WireError
from tests.attack.batches import empty_records, raw_batch, with_headers
from tests.generated.mutations import mutations
from tests.native.support import COMPILED, Builds
from tests.odd_values import Index, Odd, OddPair, Plain

pytestmark = pytest.mark.xdist_group("native")

INT64_MAX = (1 << 63) - 1


@pytest.fixture(scope="module")
def loops(builds: Builds) -> Any:
    """The extension module."""
    (path,) = (builds.folder / "out" / COMPILED / FOLDER).glob(f"{RECORDS}-*")
    return native._load(RECORDS, str(path))


@pytest.fixture
def both(loops: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Run a function with and without the compiled loops, and compare the results."""

    def run(what: Callable[[], Any]) -> Any:
        found = []
        for build in (None, loops):
            monkeypatch.setattr(compiled, "_loops", build)
            found.append(_outcome(what))
        assert found[0] == found[1]
        return found[1]

    return run


def _outcome(what: Callable[[], Any]) -> Any:
    try:
        return what()
    except WireError as error:
        return type(error), str(error), getattr(error, "path", ""), getattr(error, "offset", None)


def lists_of_records() -> list[list[Record]]:
    """Ten lists of one to 9,000 records, with and without headers."""
    found = []
    rng = Random(5)
    sizes = (0, 1, 63, 64, 127, 128, 8191, 8192)
    for count in (1, 2, 70, 200, 9000):
        for headed in (False, True):
            records = []
            for n in range(count):
                key = (
                    None
                    if rng.random() < 0.2
                    else rng.randbytes(rng.choice(sizes[: 6 if count < 99 else 3]))
                )
                value = (
                    None
                    if rng.random() < 0.2
                    else rng.randbytes(rng.choice(sizes[: 8 if count < 9 else 4]))
                )
                record = Record(-1, rng.choice((0, 5, 1 << 40)) + n // 3, key, value)
                if headed and rng.random() < 0.5:
                    record.headers = [
                        (rng.choice(("", "trace", "é")), rng.choice((None, b"", b"x" * 99)))
                    ] * rng.choice((1, 2, 9))
                records.append(record)
            found.append(records)
    assert len(found) == 10
    return found


def decoded(
    data: bytes, count: int, base: int = 7, appended_at: int | None = None
) -> tuple[Any, ...]:
    records, end = read_records(data, 0, count, base, 1000, appended_at)
    assert [type(record) for record in records] == [Record] * count
    return end, [repr(record) for record in records]


def test_the_compiled_loops_take_all_that_is_right(loops: Any) -> None:
    """They raise for none of it, so that none of these tests compares pure Python with itself."""
    for records in lists_of_records():
        data, last, latest = loops.encode(Record, records, 0, 0)
        read, end = loops.decode_records(Record, data, 0, len(records), 0, 0, True)
        assert end == len(data) and not any(map(gc.is_tracked, read))
        assert last == len(records) - 1 and max(record.timestamp for record in read) == latest
        assert loops.check(data, 0, len(records), 1 << 40)[1] == latest
        ends, *_ = loops.decode_arrow(data, [(0, len(records), 0, 0, False)], True)
        assert ends == [len(data)]


def test_encode(both: Callable[..., Any]) -> None:
    for records in lists_of_records():
        data, last, latest = both(partial(encode_records, records, 0, 3))
        assert len(data) > 6 * len(records) and last == len(records) - 1 and latest >= 0


@pytest.mark.parametrize(
    "record",
    [
        Record(offset=5),
        Record(offset=4),
        Record(offset=1 << 40),
        Record(offset=1 << 70),
        Record(timestamp=INT64_MAX),
        Record(timestamp=-INT64_MAX - 1),
        Record(timestamp=1 << 64),
        Record(timestamp="x"),  # type: ignore[arg-type]
        Record(key="x"),  # type: ignore[arg-type]
        Record(key=bytearray(b"k"), value=memoryview(b"v")),  # type: ignore[arg-type]
        Record(headers=[("a", b"")] * 200),
        Record(headers=[("\ud800", b"")]),
        Record(headers=[("a",)]),  # type: ignore[list-item]
        Record(headers=[["a", bytearray(b"b")]]),  # type: ignore[list-item]
        Record(headers=("ab",)),  # type: ignore[arg-type]
        Record(headers=Odd([("a", b""), ("b", b"")])),
        Record(headers=[OddPair(("a", b""))]),
        Record(headers=Plain([("a", b""), ("b", b"")])),
        Record(offset=Index(7)),  # type: ignore[arg-type]
        Record(timestamp=Index(7)),  # type: ignore[arg-type]
        Record(timestamp=numpy.int64(7)),  # type: ignore[arg-type]
        Record(timestamp=None),  # type: ignore[arg-type]
        Record(offset=True),
        "x",
    ],
    # The repr of a memoryview is another one in each process of pytest-xdist.
    ids=lambda record: re.sub(r" at 0x\w+", "", repr(record))[:120],
)
def test_encode_what_is_rare_or_wrong(both: Callable[..., Any], record: Any) -> None:
    for base_offset in (0, 5):
        for base_timestamp in (0, -5, INT64_MAX):
            both(
                partial(encode_records, [Record(base_offset), record], base_offset, base_timestamp)
            )


def test_encode_what_is_no_list_or_int(both: Callable[..., Any]) -> None:
    """The same bytes or the same EncodeError, even for values that compiled code would accept."""
    records = [Record(5, 6, b"k", b"v"), Record(6, 7, b"k", b"v")]
    plain = both(partial(encode_records, records, 0, 0))
    assert both(partial(encode_records, Plain(records), 0, 0)) == plain
    assert both(partial(encode_records, Odd(records), 0, 0))[2] == "records"
    for bases, path in (((Index(0), 0), "base_offset"), ((0, Index(0)), "base_timestamp")):
        assert both(partial(encode_records, records, *bases))[2] == path
    for record in (Record(timestamp=None), Record(timestamp=Index(5)), Record(Index(5))):
        kind, _, path, _ = both(partial(encode_batch, [record]))
        assert kind is EncodeError and path


def test_decode(both: Callable[..., Any]) -> None:
    for records in lists_of_records():
        data, _, _ = encode_records(records, 0, 0)
        assert both(partial(decoded, data, len(records)))[0] == len(data)
        both(partial(check_records, data, 0, len(records)))
        both(partial(decoded, data, len(records), appended_at=5))
        both(partial(decoded, data, len(records), INT64_MAX))


def test_hostile_records(both: Callable[..., Any]) -> None:
    seeds = [
        encode_records(records, 0, 0)[0] for records in lists_of_records() if len(records) < 71
    ]
    kinds = set()
    for data in mutations([seed[:400] for seed in seeds] + seeds[:2], Random(8), 3000):
        for count in (1, 3, 60):
            kinds.add(type(both(partial(decoded, data, count))[0]))
            both(partial(check_records, data, 0, count))
    assert kinds == {int, type}


def arrow(data: bytes, **options: Any) -> Any:
    batch = to_arrow(data, **options)
    batch.validate(full=True)
    return batch.to_pydict()


def test_arrow(both: Callable[..., Any]) -> None:
    """Batches in a row, compressed or not, with headers, nulls, and timestamps of the log."""
    for records in lists_of_records():
        for codec in (Compression.NONE, Compression.LZ4):
            data = encode_batch(records, compression=codec) + encode_batch(
                records,
                base_offset=50_000,
                timestamp_type=TimestampType.LOG_APPEND_TIME,
                compression=codec,
            )
            found = both(partial(arrow, data))
            seen = [record for batch in read_batches(data) for record in batch]
            assert found["value"] == [record.value for record in seen]
            assert found["timestamp"] == [record.timestamp for record in seen]
            names = [[(h["key"], h["value"]) for h in row] for row in found["headers"]]
            assert names == [record.headers for record in seen]
            sizes = both(lambda d=data: [piece.num_rows for piece in iter_arrow(d, rows=150)])
            assert sum(sizes) == len(seen)


def test_hostile_arrow(both: Callable[..., Any]) -> None:
    records = [
        Record(-1, n, b"k%d" % n, b"v" * (n % 7), [("h", None)] * (n % 2)) for n in range(200)
    ]
    data = encode_batch(records)
    kinds = set()
    for spoilt in mutations([data], Random(9), 400):
        # The bytes after the header; neither loop reads the header itself.
        whole = data[:61] + spoilt[61:]
        whole = whole[:8] + (len(whole) - 12).to_bytes(4, "big") + whole[12:]
        kinds.add(type(both(partial(arrow, whole, validate_crc=False))))
    assert kinds == {dict, tuple}


def rows_of(data: bytes, bounds: Bounds) -> list[int]:
    return [piece.num_rows for piece in iter_arrow(data, bounds=bounds)]


def records_of(data: bytes, bounds: Bounds) -> list[list[Record]]:
    return [each.records() for each in read_batches(data, bounds=bounds)]


def test_limits(both: Callable[[Callable[[], Any]], Any]) -> None:
    """Both loops count headers, and stop at the same number."""
    for headers in (0, 10, 11, 3000):
        records = with_headers(headers) if headers else empty_records(1)
        data = raw_batch(records, 1, Compression.LZ4)
        for most in (10, 3000):
            bounds = Bounds(headers=most)
            for what in (
                partial(check_records, records, 0, 1, bounds=bounds),
                partial(records_of, data, bounds),
                partial(rows_of, data, bounds),
            ):
                assert (both(what)[0] is BatchLimitError) == (headers > most)
    # A number of headers below zero, and records that end too early, are errors of their own.
    negative = b"\x0e\0\0\0\1\1\1" + bytes(5)
    few = Bounds(headers=3)
    for broken in (negative, with_headers(50)[:-3], b"\xff" * 30):
        both(partial(check_records, broken, 0, 1, bounds=few))
        both(partial(rows_of, raw_batch(broken, 1), few))
