"""Segments read by themselves: each case of damage is distinguished from the others, in every reader."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from krammar.logfiles import damage
from krammar.logfiles.damage import Damage, DamageError
from krammar.logfiles.index import OffsetIndex, TimeIndex, TransactionIndex
from krammar.logfiles.names import parse_partition, segment_bases, snapshot_offsets, stem
from krammar.logfiles.segment import Segment
from krammar.wire.batches import Record, encode_batch

BASE = 100
COUNT = 20


def write(folder: Path, sizes: list[int], *, index: bool = True) -> list[int]:
    """A segment with a batch of two records per size; returns the positions of the batches."""
    data = b""
    positions = []
    entries = b""
    times = b""
    for number, size in enumerate(sizes):
        offset = BASE + 2 * number
        positions.append(len(data))
        if number % 3 == 2:
            entries += struct.pack(">ii", offset + 1 - BASE, len(data))
            times += struct.pack(">qi", 1000 + number, offset + 1 - BASE)
        data += encode_batch(
            [Record(offset + each, 1000 + number, None, bytes(size)) for each in range(2)],
            base_offset=offset,
        )
    folder.mkdir(exist_ok=True)
    (folder / f"{stem(BASE)}.log").write_bytes(data)
    if index:
        (folder / f"{stem(BASE)}.index").write_bytes(entries)
        (folder / f"{stem(BASE)}.timeindex").write_bytes(times)
    return positions


@pytest.mark.parametrize("size", [1, 30_000, 300_000])
@pytest.mark.parametrize("index", [True, False])
def test_every_offset_and_time_is_found(tmp_path: Path, size: int, index: bool) -> None:
    positions = write(tmp_path, [size] * COUNT, index=index)
    with Segment(str(tmp_path), BASE) as segment:
        assert [header.position for header in segment.scan()] == positions
        ends = [*positions[1:], segment.size]
        assert segment.end_offset() == BASE + 2 * COUNT
        assert segment.latest_timestamp(is_newest=True) == 1000 + COUNT - 1
        for number, position in enumerate(positions):
            for offset in (BASE + 2 * number, BASE + 2 * number + 1):
                assert segment.locate(offset) == position
                assert segment.position_before(offset) <= position
                assert segment.position_after(offset) >= ends[number]
            assert segment.first_at(1000 + number, BASE) == (1000 + number, BASE + 2 * number)
        assert segment.first_at(0, BASE + 7) == (1003, BASE + 7)
        assert segment.locate(BASE + 2 * COUNT) is None
        assert segment.first_at(1000 + COUNT, BASE) is None
        middle = list(segment.scan(positions[3], positions[5]))
        assert [header.position for header in middle] == positions[3:5]


def cut(data: bytearray, at: int) -> None:
    del data[at + 70 :]


def cut_in_header(data: bytearray, at: int) -> None:
    del data[at + 5 :]


def zeros(data: bytearray, at: int) -> None:
    data[at:] = bytes(5000)


def no_magic(data: bytearray, at: int) -> None:
    data[at + 16] = 9


def too_small(data: bytearray, at: int) -> None:
    data[at + 8 : at + 12] = bytes([0, 0, 0, 7])


def negative_count(data: bytearray, at: int) -> None:
    data[at + 57] = 0xFF


def lower_offset(data: bytearray, at: int) -> None:
    data[at : at + 8] = bytes(8)


HARM: list[tuple[Callable[[bytearray, int], None], Damage, bool]] = [
    (cut, Damage.TORN, False),
    (cut_in_header, Damage.TORN, False),
    (zeros, Damage.ZEROS, False),
    (no_magic, Damage.NO_BATCH, False),
    (too_small, Damage.NO_BATCH, False),
    (negative_count, Damage.HEADER, True),
    (lower_offset, Damage.OFFSETS, True),
]


@pytest.mark.parametrize("size", [1, 300_000])
@pytest.mark.parametrize(("harm", "case", "goes_on"), HARM)
def test_damage_is_classified(
    tmp_path: Path,
    size: int,
    harm: Callable[[bytearray, int], None],
    case: Damage,
    goes_on: bool,
) -> None:
    positions = write(tmp_path, [size] * COUNT, index=False)
    at = positions[11]
    path = tmp_path / f"{stem(BASE)}.log"
    data = bytearray(path.read_bytes())
    harm(data, at)
    path.write_bytes(data)

    with Segment(str(tmp_path), BASE) as segment:
        walk = segment.scan()
        assert [next(walk).position for _ in range(11)] == positions[:11]
        with pytest.raises(DamageError) as raised:
            next(walk)
    assert (raised.value.damage, raised.value.position) == (case, at)
    assert str(at) in str(raised.value)

    found: list[DamageError] = []
    with Segment(str(tmp_path), BASE, damaged=found.append) as segment:
        left = [header.position for header in segment.scan()]
    assert [error.damage for error in found] == [case]
    assert left == positions[:11] + (positions[12:] if goes_on else [])


def test_a_file_that_became_shorter_ends_the_walk(tmp_path: Path) -> None:
    positions = write(tmp_path, [1] * COUNT, index=False)
    with Segment(str(tmp_path), BASE) as segment:
        with open(segment.path, "r+b") as file:
            file.truncate(positions[4])
        with pytest.raises(DamageError) as raised:
            list(segment.scan())
        assert (raised.value.damage, raised.value.position) == (Damage.TORN, positions[4])


def test_indexes_of_a_live_segment_are_read_as_far_as_the_file_was_opened(tmp_path: Path) -> None:
    positions = write(tmp_path, [1] * COUNT)
    segment = Segment(str(tmp_path), BASE, positions[9])
    assert list(segment.indexes[0].values) == [positions[2], positions[5], positions[8]]
    assert segment.end_offset() == BASE + 18
    segment.close()


def test_a_wrong_index_is_not_believed(tmp_path: Path) -> None:
    positions = write(tmp_path, [1] * COUNT)
    (tmp_path / f"{stem(BASE)}.index").write_bytes(struct.pack(">ii", 3, 7))
    with Segment(str(tmp_path), BASE) as segment:
        assert segment.position_before(BASE + 9) == 0
        assert segment.locate(BASE + 9) == positions[4]


@pytest.mark.parametrize(
    ("data", "position"),
    [
        (struct.pack(">iiii", 1, 10, 2, 20) + b"\1", 16),
        (struct.pack(">iiii", 1, 10, 1, 20), 8),
        (struct.pack(">iiiiii", 1, 10, 2, 20, 3, 20), 16),
        (struct.pack(">ii", -1, 10), 0),
    ],
)
def test_damaged_indexes_say_where(tmp_path: Path, data: bytes, position: int) -> None:
    path = tmp_path / f"{stem(BASE)}.index"
    path.write_bytes(data)
    index = OffsetIndex(path)
    with pytest.raises(DamageError) as raised:
        index.read()
    assert (raised.value.damage, raised.value.position) == (Damage.INDEX, position)
    assert not index
    path.write_bytes(struct.pack(">qiqi", 5, 1, 6, 0))
    with pytest.raises(DamageError) as raised:
        TimeIndex(path).read()
    assert raised.value.position == 12


def test_a_damaged_transaction_index_says_where(tmp_path: Path) -> None:
    path = tmp_path / f"{stem(BASE)}.txnindex"
    entry = struct.pack(">hqqqq", 0, 1, 5, 9, 10)
    path.write_bytes(entry + entry)
    with pytest.raises(DamageError) as raised:
        TransactionIndex(path).read()
    assert (raised.value.damage, raised.value.position) == (Damage.TRANSACTION_INDEX, len(entry))


def test_names() -> None:
    names = [stem(7) + ".log", stem(3) + ".log", stem(3) + ".index", stem(5) + ".log.deleted"]
    names += [stem(9) + ".snapshot", "7.log", "9" * 20 + ".log"]
    assert segment_bases(names) == [3, 7]
    assert snapshot_offsets(names) == [9]
    assert parse_partition("a-b-7") == ("a-b", 7)
    assert parse_partition("a-07") is None


def test_the_table_of_damage_has_every_case() -> None:
    table = [line for line in (damage.__doc__ or "").splitlines() if line.startswith("| ``")]
    assert [row.split("``")[1] for row in table] == [case.name for case in Damage]
