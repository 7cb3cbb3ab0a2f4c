"""The walk over records that a broker does, against the decoder."""

from __future__ import annotations

import functools
from contextlib import nullcontext

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from krammar.wire.batches.encode import encode_records
from krammar.wire.batches.records.check import check_records
from krammar.wire.batches.records.model import Columns, Record
from krammar.wire.batches.records.read import decode_records
from krammar.wire.errors import DecodeError

SIZES = st.one_of(st.binary(max_size=20), st.integers(0, 20_000).map(bytes))
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3)
RECORDS = st.lists(
    st.builds(
        Record,
        timestamp=st.integers(0, 300) | st.integers(-(2**40), 2**40),
        key=st.none() | SIZES,
        value=st.none() | SIZES,
        headers=HEADERS,
    ),
    min_size=1,
    max_size=80,
)


@settings(max_examples=60)
@given(records=RECORDS, before=st.binary(max_size=3))
def test_what_is_told_of_records(records: list[Record], before: bytes) -> None:
    data, _, _ = encode_records(records, 0, 100)
    lowest, highest, without_key = check_records(before + data, len(before), len(records))

    times = [record.timestamp for record in records]
    assert (lowest + 100, highest + 100) == (min(times), max(times))
    keyless = [i for i, record in enumerate(records) if record.key is None]
    assert without_key in keyless if keyless else without_key == -1


@settings(max_examples=300)
@given(
    records=st.lists(
        st.builds(
            Record,
            timestamp=st.integers(0, 300),
            key=st.none() | st.binary(max_size=3),
            value=st.none() | st.binary(max_size=70),
            headers=st.lists(
                st.tuples(st.text("ab", max_size=2), st.none() | st.binary(max_size=2)), max_size=2
            ),
        ),
        min_size=1,
        max_size=4,
    ),
    data=st.data(),
)
def test_it_takes_what_the_decoder_takes(records: list[Record], data: st.DataObject) -> None:
    encoded = bytearray(encode_records(records, 0, 0)[0])
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 127) | st.integers(0, 255))
    if data.draw(st.booleans()):
        del encoded[data.draw(st.integers(0, len(encoded))) :]
    mutated = bytes(encoded)
    columns = Columns()
    try:
        end = decode_records(columns, mutated, 0, len(records), 0, 0)
        taken = end == len(mutated) and columns.offsets == list(range(len(records)))
    except DecodeError as error:
        assume("UTF-8" not in str(error))  # the walk does not decode names
        taken = False
    with nullcontext() if taken else pytest.raises(DecodeError, match=r"^records") as caught:
        check_records(mutated, 0, len(records))
    assert (caught is None) == taken


@pytest.mark.parametrize(
    ("mutate", "message"),
    [
        (lambda d: d + b"x", r"records\[2\]: 1 bytes after the last record"),
        (lambda d: d[:3] + b"\2" + d[4:], r"records\[0\].offset: 1, not 0"),
        (lambda d: d[:-1], r"records\[1\]: needs 7 bytes at offset \d+, 6 left"),
        (lambda d: b"\x10" + d[1:], r"records\[0\]: says 8 bytes at offset 0 but has 7"),
    ],
)
def test_errors_say_what_and_where(mutate: object, message: str) -> None:
    data, _, _ = encode_records(
        [Record(timestamp=0, value=b"a"), Record(value=b"b", timestamp=0)], 0, 0
    )
    assert callable(mutate)
    with pytest.raises(DecodeError, match=message):
        check_records(mutate(data), 0, 2)


def test_names_of_headers_may_be_any_bytes() -> None:
    data, _, _ = encode_records([Record(timestamp=0, headers=[("é", b"x")])], 0, 0)
    other = data.replace("é".encode(), b"\xff\xff")
    assert other != data
    assert check_records(other, 0, 1) == check_records(data, 0, 1)


@functools.cache
def alike(count: int, key: bytes | None, every: int) -> bytes:
    records = [Record(timestamp=i // every, key=key, value=b"%08d" % i) for i in range(count)]
    return encode_records(records, 0, 0)[0]


@pytest.mark.parametrize("count", [1, 7, 8, 63, 64, 65, 72, 200, 8191, 8192, 8193, 8200, 16400])
@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("every", [7, 90, 1 << 20])
def test_records_that_are_alike(count: int, key: bytes | None, every: int) -> None:
    last = (count - 1) // every
    expected = count - 1 if key is None else -1
    assert check_records(alike(count, key, every), 0, count) == (0, last, expected)
    with pytest.raises(DecodeError):
        check_records(alike(count, key, every), 0, count + 1)


@settings(max_examples=150)
@given(
    count=st.sampled_from([40, 70, 150, 400, 8300]),
    every=st.sampled_from([50, 1 << 20]),
    where=st.floats(0, 1, exclude_max=True),
    bits=st.integers(1, 255),
)
def test_a_changed_byte_among_records_that_are_alike(
    count: int, every: int, where: float, bits: int
) -> None:
    encoded = bytearray(alike(count, b"k", every))
    encoded[int(len(encoded) * where)] ^= bits
    mutated = bytes(encoded)
    columns = Columns()
    try:
        end = decode_records(columns, mutated, 0, count, 0, 0)
    except DecodeError:
        taken = False
    else:
        taken = end == len(mutated) and columns.offsets == list(range(count))
    if taken:
        lowest, highest, without_key = check_records(mutated, 0, count)
        assert (lowest, highest) == (min(columns.timestamps), max(columns.timestamps))
        assert without_key == (columns.keys.index(None) if None in columns.keys else -1)
    else:
        with pytest.raises(DecodeError, match=r"^records"):
            check_records(mutated, 0, count)


def test_runs_of_records_that_are_alike() -> None:
    records = [
        Record(timestamp=i // 100, key=None if i // 300 % 2 else b"k", value=bytes(i // 200 + 60))
        for i in range(1500)
    ]
    data, _, _ = encode_records(records, 0, 0)
    assert check_records(data, 0, 1500) == (0, 14, 1499 if 1499 // 300 % 2 else 1199)
