"""The engine's loops over records and those in pure Python return the same records, bytes and errors."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import numpy
import pytest

from krammar.wire import engine_loading
from krammar.wire.batches import Bounds, Compression, TimestampType, encode_batch, read_batches
from krammar.wire.batches.arrow import iter_arrow, to_arrow
from krammar.wire.batches.encode import encode_records
from krammar.wire.batches.records.check import check_records
from krammar.wire.batches.records.model import Record
from krammar.wire.batches.records.read import read_records
from krammar.wire.errors import BatchLimitError, EncodeError, WireError
from krammar.wire.primitives import FAILURES
from tests.attack.batches import empty_records, raw_batch, with_headers
from tests.generated.mutations import mutations
from tests.odd_values import Index, Odd, OddPair, Plain

if TYPE_CHECKING:
    from krammar.wire.batches.records.model import Header

engine: Any = pytest.importorskip("krammar.wire._engine")

INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)
ENDS = (INT64_MIN, INT64_MIN + 1, -1, 0, 1, 1 << 31, INT64_MAX - 1, INT64_MAX)
Both = Callable[[Callable[..., Any]], Any]


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Both:
    """Run a function with and without the engine, and compare the results."""

    def run(what: Callable[[], Any]) -> Any:
        found = []
        for loops in (None, engine):
            monkeypatch.setattr(engine_loading, "ENGINE", loops)
            found.append(_outcome(what))
        assert found[0] == found[1]
        return found[1]

    return run


def _outcome(what: Callable[[], Any]) -> Any:
    try:
        return what()
    except (WireError, AttributeError, ValueError) as error:
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


def few_records() -> list[bytes]:
    """The bytes of up to 70 records."""
    return [encode_records(records, 0, 0)[0] for records in lists_of_records() if len(records) < 71]


def encoded(records: Any, base_offset: Any, base_timestamp: Any) -> tuple[Any, ...]:
    data, last, latest = encode_records(records, base_offset, base_timestamp)
    return data, last, latest, type(data), type(last), type(latest)


def decoded(
    data: bytes, count: int, base: int = 7, appended_at: int | None = None, timestamp: int = 1000
) -> tuple[Any, ...]:
    records, end = read_records(data, 0, count, base, timestamp, appended_at)
    assert [type(record) for record in records] == [Record] * count
    return end, [repr(record) for record in records]


def arrow(data: bytes, **options: Any) -> Any:
    batch = to_arrow(data, **options)
    batch.validate(full=True)
    return batch.to_pydict()


def spoilt_batch(batch: bytes, records: bytes) -> bytes:
    """The header of a batch, with its length corrected, before other records."""
    whole = batch[:61] + records
    return whole[:8] + (len(whole) - 12).to_bytes(4, "big") + whole[12:]


# -- what runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("setting", "runs"), [(None, True), ("0", True), ("1", False)])
def test_the_environment_turns_the_engine_off(setting: str | None, runs: bool) -> None:
    env = {name: value for name, value in os.environ.items() if name != "KRAMMAR_PURE_PYTHON"}
    code = "from krammar.wire.engine_loading import ENGINE; print(ENGINE is not None)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=env if setting is None else {**env, "KRAMMAR_PURE_PYTHON": setting},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(runs)


def test_the_engine_takes_all_that_is_right() -> None:
    """It declines none of it, so that none of these tests compares pure Python with itself."""
    for records in lists_of_records():
        data, last, latest = engine.encode_records(Record, records, 0, 0)
        read, end = engine.decode_records(Record, data, 0, len(records), 0, 0, True)
        assert end == len(data) and not any(map(gc.is_tracked, read)) and gc.is_tracked(read)
        assert last == len(records) - 1 and max(record.timestamp for record in read) == latest
        assert engine.check_records(data, 0, len(records), 1 << 40)[1] == latest
        ends, *_ = engine.decode_arrow(data, [(0, len(records), 0, 0, False)], True)
        assert ends == [len(data)]
        headers = sum(len(record.headers) for record in records)
        assert engine.count_headers(data, 0, len(records), 1 << 40) == headers


def test_octets_of_other_types_are_taken() -> None:
    """bytearrays, and memoryviews whose bytes are in order."""
    plain = [Record(0, 1, b"key", b"value", [("name", b"content")])]
    other = [
        Record(0, 1, bytearray(b"key"), memoryview(b"-value")[1:], [("name", memoryview(b"content"))])  # type: ignore[arg-type,list-item]
    ]
    assert engine.encode_records(Record, other, 0, 0) == engine.encode_records(Record, plain, 0, 0)


def test_objects_are_shared() -> None:
    """Timestamps of records in a row, and all equal names of headers."""
    names = [f"name {n}" for n in range(20)] + ["é"]
    records = [
        Record(-1, 1 << 40, headers=[(f"{name}", b"") for name in names[: 1 + n % 21]])
        for n in range(50)
    ]
    data, _, _ = engine.encode_records(Record, records, 0, 0)
    read, _ = engine.decode_records(Record, data, 0, 50, 0, 0, True)
    assert len({id(record.timestamp) for record in read}) == 1
    found = {(name, id(name)) for record in read for name, _ in record.headers}
    assert sorted(name for name, _ in found) == sorted(names)
    appended = 1 << 50
    read, _ = engine.decode_records(Record, data, 0, 50, 0, appended, False)
    assert all(record.timestamp is appended for record in read)


GOOD = engine.encode_records(Record, [Record(0, 1, b"k", b"v", [("h", None)])], 0, 0)[0]


@pytest.mark.parametrize(
    ("name", "arguments", "others"),
    [
        (
            "decode_records",
            (Record, GOOD, 0, 1, 0, 0, True),
            {
                0: (None, object, "Record", type("Other", (), {}), int),
                1: (bytearray(GOOD), memoryview(GOOD), None, b""),
                2: (-1, 1, len(GOOD) + 1, 1 << 62, 1 << 64, 0.0, None, Index(0), True),
                3: (-1, 2, 1 << 31, 1 << 62, INT64_MAX, 1 << 64, None, 1.0, Index(1)),
                4: (1 << 63, -(1 << 64), None, Index(1)),
                5: (1 << 63, -(1 << 64), None, INT64_MAX, Index(1)),
                6: (0, 1, None, ""),
            },
        ),
        (
            "decode_arrow",
            (GOOD, [(0, 1, 0, 0, False)], True),
            {
                0: (bytearray(GOOD), None, b""),
                1: (
                    None,
                    ((0, 1, 0, 0, False),),
                    [[0, 1, 0, 0, False]],
                    [(0, 1, 0, 0)],
                    [(0, 1, 0, 0, None)],
                    [(-1, 1, 0, 0, False)],
                    [(1 << 62, 1, 0, 0, False)],
                    [(0, -1, 0, 0, False)],
                    [(0, 1 << 62, 0, 0, False)],
                    [(0, 1, 1 << 64, 0, False)],
                    [(0, 1, 0, INT64_MAX, False)],
                    [(0, 1, 0, 0, False), (len(GOOD), 1, 0, 0, False)],
                ),
                2: (1, None),
            },
        ),
        (
            "count_headers",
            (GOOD, 0, 1, 9),
            {
                0: (bytearray(GOOD), None, b""),
                1: (-1, 1 << 62, 1 << 64, None),
                2: (2, 1 << 62, 1 << 64, None),
                3: (1 << 64, None, 1.5),
            },
        ),
        (
            "check_records",
            (GOOD, 0, 1, 9),
            {
                0: (bytearray(GOOD), None, b"", GOOD + b"\0"),
                1: (-1, 1 << 62, 1 << 64, None),
                2: (-1, 0, 2, 1 << 62, 1 << 64, None),
                3: (1 << 64, None, 1.5),
            },
        ),
        (
            "encode_records",
            (Record, [Record(0, 1)], 0, 0),
            {
                0: (None, object, int),
                1: (None, [], (Record(0, 1),), [None], [Record(timestamp=None)]),  # type: ignore[arg-type]
                2: (1, 1 << 64, None, Index(0), True),
                3: (1 << 64, None, Index(0), True),
            },
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_engine_declines(
    name: str, arguments: tuple[Any, ...], others: dict[int, tuple[Any, ...]]
) -> None:
    """Each argument of another type, or beyond its range, raises what callers expect."""
    function = getattr(engine, name)
    function(*arguments)
    for wrong in (arguments[:-1], (*arguments, 0), ()):
        with pytest.raises(FAILURES):
            function(*wrong)
    for place, values in others.items():
        for value in values:
            changed = (*arguments[:place], value, *arguments[place + 1 :])
            with pytest.raises(FAILURES):
                function(*changed)
    function(*arguments)


# -- encoding ------------------------------------------------------------------------------------


def test_encode(both: Both) -> None:
    for records in lists_of_records():
        data, last, latest, *_ = both(partial(encoded, records, 0, 3))
        assert len(data) > 6 * len(records) and last == len(records) - 1 and latest >= 0


class Kind(IntEnum):
    SEVEN = 7


class OddInt(int):
    """An int that calculates in its own way."""

    def __sub__(self, other: int) -> int:
        return 3

    def __lt__(self, other: int) -> bool:
        return True


class OddBytes(bytes):
    """Bytes with a length of their own."""

    def __len__(self) -> int:
        return 1


class OddText(str):
    """A text that is encoded in its own way."""

    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        return b"odd"


class OddRecord(Record):
    """A record with an offset of its own."""

    @property
    def offset(self) -> int:
        return 9

    @offset.setter
    def offset(self, value: int) -> None: ...


def without(name: str) -> Record:
    """A record that lacks an attribute."""
    record = Record()
    delattr(record, name)
    return record


def released() -> memoryview:
    view = memoryview(b"v")
    view.release()
    return view


@pytest.mark.filterwarnings("ignore:overflow")  # numpy's
@pytest.mark.parametrize(
    "record",
    [
        Record(offset=5),
        Record(offset=4),
        Record(offset=1 << 40),
        Record(offset=1 << 70),
        Record(offset=INT64_MIN),
        Record(offset=(1 << 31) + 4),
        Record(offset=1 << 31),
        Record(timestamp=INT64_MAX),
        Record(timestamp=INT64_MIN),
        Record(timestamp=1 << 64),
        Record(timestamp="x"),  # type: ignore[arg-type]
        Record(key="x"),  # type: ignore[arg-type]
        Record(value=7),  # type: ignore[arg-type]
        Record(key=bytearray(b"k"), value=memoryview(b"v")),  # type: ignore[arg-type]
        Record(key=OddBytes(b"key"), value=OddBytes(b"value")),
        Record(value=memoryview(b"value")[::2]),  # type: ignore[arg-type]
        Record(value=memoryview(numpy.arange(6, dtype="int32").reshape(2, 3).T)),  # type: ignore[arg-type]
        Record(value=memoryview(numpy.arange(6, dtype="int32"))),  # type: ignore[arg-type]
        Record(value=released()),  # type: ignore[arg-type]
        Record(value=numpy.arange(6)),  # type: ignore[arg-type]
        Record(headers=[("a", b"")] * 200),
        Record(headers=[("\ud800", b"")]),
        Record(headers=[("é\U0001f600", b"")]),
        Record(headers=[("a",)]),  # type: ignore[list-item]
        Record(headers=[("a", b"", b"")]),  # type: ignore[list-item]
        Record(headers=[("a", "b")]),  # type: ignore[list-item]
        Record(headers=[(b"a", b"b")]),  # type: ignore[list-item]
        Record(headers=[(None, b"b")]),  # type: ignore[list-item]
        Record(headers=[None]),  # type: ignore[list-item]
        Record(headers=[["a", bytearray(b"b")]]),  # type: ignore[list-item]
        Record(headers=[("a", memoryview(b"b"))]),  # type: ignore[list-item]
        Record(headers=[(OddText("a"), b"b")]),
        Record(headers=("ab",)),  # type: ignore[arg-type]
        Record(headers=(("a", b"b"),)),  # type: ignore[arg-type]
        Record(headers=()),  # type: ignore[arg-type]
        Record(headers={}),  # type: ignore[arg-type]
        Record(headers="ab"),  # type: ignore[arg-type]
        Record(headers=7),  # type: ignore[arg-type]
        Record(headers=Odd([("a", b""), ("b", b"")])),
        Record(headers=[OddPair(("a", b""))]),
        Record(headers=Plain([("a", b""), ("b", b"")])),
        Record(offset=Index(7)),  # type: ignore[arg-type]
        Record(timestamp=Index(7)),  # type: ignore[arg-type]
        Record(timestamp=numpy.int64(7)),  # type: ignore[arg-type]
        Record(timestamp=None),  # type: ignore[arg-type]
        Record(offset=None),  # type: ignore[arg-type]
        Record(offset=True),
        Record(timestamp=True),
        Record(offset=Kind.SEVEN, timestamp=Kind.SEVEN),
        Record(offset=OddInt(8), timestamp=OddInt(8)),
        OddRecord(timestamp=3),
        without("offset"),
        without("timestamp"),
        without("key"),
        without("value"),
        without("_headers"),
        None,
        "x",
    ],
)
def test_encode_what_is_rare_or_wrong(both: Both, record: Any) -> None:
    for base_offset in (0, 5):
        for base_timestamp in (0, -5, INT64_MAX, INT64_MIN):
            for records in ([Record(base_offset), record], [record, Record(base_offset + 9)]):
                both(partial(encoded, records, base_offset, base_timestamp))


def test_encode_what_is_no_list_or_int(both: Both) -> None:
    """The same bytes or the same EncodeError, even for values that C code could accept."""
    records = [Record(5, 6, b"k", b"v"), Record(6, 7, b"k", b"v")]
    plain = both(partial(encoded, records, 0, 0))
    for other in (Plain(records), tuple(records)):
        assert both(partial(encoded, other, 0, 0)) == plain
    odd: list[Any] = [Odd(records), None, iter(records), {}]
    for wrong in odd:
        assert both(partial(encoded, wrong, 0, 0))[2] == "records"
    for bases, path in (((Index(0), 0), "base_offset"), ((0, Index(0)), "base_timestamp")):
        assert both(partial(encoded, records, *bases))[2] == path
    for numbers in ((True, False), (Kind.SEVEN, 1), (-(1 << 64), 0), (0, 1 << 64)):
        both(partial(encoded, records, *numbers))
    for record in (Record(timestamp=None), Record(timestamp=Index(5)), Record(Index(5))):  # type: ignore[arg-type]
        kind, _, path, _ = both(partial(encode_batch, [record]))
        assert kind is EncodeError and path


def test_sizes_around_those_where_lengths_grow(both: Both) -> None:
    """Lengths of one to four bytes, in an order in which each record's differs from that of the one before."""
    rng = Random(11)
    sizes = [0, 50, 51, 52, 53, 54, 55, 56, 57, 58, 8000, 8178, 8190, 8200, 1 << 20, (1 << 20) + 30]
    headed: list[Header] = [("name", b"content")]
    records = [
        Record(-1, 5, None, bytes(size), headers) for headers in (None, headed) for size in sizes
    ]
    for _ in range(3):
        rng.shuffle(records)
        data, *_ = both(partial(encoded, records, 0, 0))
        assert both(partial(decoded, data, len(records)))[0] == len(data)


def test_random_numbers_at_the_ends_of_64_bits(both: Both) -> None:
    rng = Random(12)
    kinds = set()

    def number() -> int:
        return rng.choice(ENDS) + rng.choice((0, 0, rng.randrange(-3, 4)))

    for _ in range(1500):
        base_offset, base_timestamp = number(), rng.choice((number(), 0))
        records = [
            Record(rng.choice((-1, base_offset + rng.randrange(4), number())), number())
            for _ in range(rng.randrange(1, 4))
        ]
        kinds.add(type(both(partial(encoded, records, base_offset, base_timestamp))[0]))
        data, *_ = encode_records([Record(n, rng.choice(ENDS)) for n in range(2)], 0, 0)
        both(partial(decoded, data, 2, number(), timestamp=number()))
        both(partial(decoded, data, 2, number(), rng.choice(ENDS), number()))
    assert kinds == {bytes, type}


# -- decoding ------------------------------------------------------------------------------------


def test_decode(both: Both) -> None:
    for records in lists_of_records():
        data, _, _ = encode_records(records, 0, 0)
        assert both(partial(decoded, data, len(records)))[0] == len(data)
        both(partial(check_records, data, 0, len(records)))
        both(partial(decoded, data, len(records), appended_at=5))
        both(partial(decoded, data, len(records), INT64_MAX))


def test_more_records_and_headers_than_lists_have_room_for_at_first(both: Both) -> None:
    headers: list[Header] = [(f"{n}", b"") for n in range(5000)]
    data, _, _ = encode_records([Record(0, 1, headers=headers)] + [Record(-1, 1)] * 9_000, 0, 0)
    assert both(partial(decoded, data, 9_001))[0] == len(data)
    assert both(partial(decoded, data, 9_002))[0] is not None
    both(partial(decoded, data[:-1], 9_001))


def test_truncated_at_every_byte(both: Both) -> None:
    records = [
        Record(-1, 1 << 40, b"key", bytes(70), [("name", b"content"), ("\u00e9", None)]),
        Record(-1, -1 << 40, None, None),
        Record(70, 3, b"", b"", [("", b"")]),
    ]
    data, _, _ = encode_records(records, 0, 0)
    batch = encode_batch(records)
    assert both(partial(decoded, data, 3))[0] == len(data)
    for end in range(len(data)):
        short = data[:end]
        for count in (1, 2, 3):
            both(partial(decoded, short, count))
            both(partial(check_records, short, 0, count))
            both(partial(check_records, short, 0, count, bounds=Bounds(headers=1)))
        assert both(partial(decoded, short, 3))[0] not in range(len(data))
        both(partial(arrow, spoilt_batch(batch, batch[61 : 61 + end]), validate_crc=False))


MANY = pytest.mark.parametrize("number", [1000, pytest.param(100_000, marks=pytest.mark.sweep)])


@MANY
def test_hostile_records(both: Both, number: int) -> None:
    seeds = few_records()
    kinds = set()
    for data in mutations([seed[:400] for seed in seeds] + seeds[:2], Random(8), number):
        for count in (1, 3, 60):
            kinds.add(type(both(partial(decoded, data, count))[0]))
            both(partial(check_records, data, 0, count))
            both(partial(check_records, data, 0, count, bounds=Bounds(headers=3)))
    assert kinds == {int, type}


# -- Arrow ---------------------------------------------------------------------------------------


def test_arrow(both: Both) -> None:
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


@MANY
def test_hostile_arrow(both: Both, number: int) -> None:
    records = [
        Record(-1, n, b"k%d" % n, b"v" * (n % 7), [("\u00e9", None)] * (n % 2)) for n in range(200)
    ]
    batch = encode_batch(records)
    kinds = set()
    for spoilt in mutations([batch[61:]], Random(9), number // 4):
        whole = spoilt_batch(batch, spoilt)
        kinds.add(type(both(partial(arrow, whole, validate_crc=False))))
    assert kinds == {dict, tuple}


# -- limits --------------------------------------------------------------------------------------


def rows_of(data: bytes, bounds: Bounds) -> list[int]:
    return [piece.num_rows for piece in iter_arrow(data, bounds=bounds)]


def records_of(data: bytes, bounds: Bounds) -> list[list[Record]]:
    return [each.records() for each in read_batches(data, bounds=bounds)]


def test_limits(both: Both) -> None:
    """Both loops count headers, and stop at the same number."""
    for headers in (0, 10, 11, 3000):
        records = with_headers(headers) if headers else empty_records(1)
        data = raw_batch(records, 1, Compression.LZ4)
        for most in (10, 3000, 1 << 70):
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


@MANY
def test_hostile_headers_are_counted_alike(both: Both, number: int) -> None:
    seeds = [seed for seed in few_records() if len(seed) < 4000] + [with_headers(40)]
    few = Bounds(headers=3)
    kinds = set()
    for data in mutations(seeds, Random(10), number):
        for count in (-1, 0, 1, 2, 60):
            kinds.add(both(lambda d=data, c=count: few.check_headers(d, 0, len(d), c)) is None)
    assert kinds == {True, False}


# -- memory --------------------------------------------------------------------------------------


def calls() -> list[tuple[str, tuple[Any, ...]]]:
    """Calls of all functions, which accept or decline their arguments."""
    headed = [("trace", b"x" * 40), ("\u00e9", None)]
    records = [Record(-1, n // 2 + 5000, b"k" * n, None, headed * (n % 3)) for n in range(60)]
    data, *_ = engine.encode_records(Record, records, 0, 0)
    found: list[tuple[str, tuple[Any, ...]]] = []
    for given in (data, data[:-1], data.replace("\u00e9".encode(), b"\xff\xff")):
        found.append(("decode_records", (Record, given, 0, 60, 0, 1000, True)))
        found.append(("decode_arrow", (given, [(0, 60, 0, 1000, False)], True)))
        found.append(("check_records", (given, 0, 60, 1000)))
        found.append(("count_headers", (given, 0, 60, 1000)))
    found.append(("encode_records", (Record, records, 0, 0)))
    found.append(("encode_records", (Record, [*records, Record(0)], 0, 0)))
    found.append(("encode_records", (Record, [*records, Record(headers=[("a", 1)])], 0, 0)))  # type: ignore[list-item]
    return found


def result_of(name: str, arguments: tuple[Any, ...]) -> Any:
    try:
        return getattr(engine, name)(*arguments)
    except FAILURES:
        return None


def test_nothing_leaks() -> None:
    grown = {}
    for name, arguments in calls():
        result_of(name, arguments)
        before = sys.getallocatedblocks()
        for _ in range(300):
            result_of(name, arguments)
        grown[name] = max(grown.get(name, 0), sys.getallocatedblocks() - before)
    assert max(grown.values()) < 100, grown


@pytest.fixture
def uncollected() -> Iterator[None]:
    """The garbage collector does not run: it cannot tell its listeners that there is no memory."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_memory_that_is_not_there_raises_memory_error() -> None:
    """For each of the first allocations that fails. Anything else would have pure Python run out of memory again."""
    testing = pytest.importorskip("_testcapi")
    failed = dict.fromkeys((name for name, _ in calls()), 0)
    for name, arguments in calls():
        function, expected = getattr(engine, name), result_of(name, arguments)
        for number in range(120):
            result: Any = None
            testing.set_nomemory(number, number + 1)
            try:
                result = function(*arguments)
            except MemoryError:
                failed[name] += 1
                continue
            except FAILURES:
                pass
            finally:
                testing.remove_mem_hooks()
            assert result == expected
    # Those two allocate nothing but what CPython keeps ready.
    assert {name for name, times in failed.items() if not times} <= {
        "check_records",
        "count_headers",
    }
