"""Recovery of logs after a crash, a full disk, or another broker."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from pathlib import Path

import pytest
from kafka_wire import ErrorCode

from krammar.broker.log.log import PartitionLog
from krammar.broker.log.log_config import LogConfig
from krammar.wire.batches import read_headers
from krammar.wire.batches.compression import Compression, compress
from tests.broker.log.support import (
    NOW,
    Setting,
    batch,
    check_indexes,
    headers_of,
    records_of,
    refused,
    sent,
    values_of,
)

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


def name(offset: int, ending: str) -> str:
    return f"{offset:020}{ending}"


def test_a_log_that_is_cut_at_every_byte_of_its_last_batch(tmp_path: Path) -> None:
    origin = Setting(tmp_path / "origin")
    origin.path.parent.mkdir()
    log = origin.open(LogConfig(index_interval_bytes=60))
    log.append(batch(b"plain"))
    log.append(sent(1, 0, b"a", b"b", transactional=True))
    log.append(sent(2, 0, transactional=True))
    log.durability.flush()
    log.append_marker(2, 0, commit=False, coordinator_epoch=0)
    before = log.size
    log.append(sent(1, 2, b"c" * 30, b"d", transactional=True))
    log.mark_deleted()
    last = log.size - before
    assert last > 0

    for kept in range(last + 1):
        for recovery_point in (0, 4):
            setting = Setting(tmp_path / f"{kept}")
            setting.path.parent.mkdir(exist_ok=True)
            shutil.copytree(origin.path, setting.path, dirs_exist_ok=True)
            os.truncate(setting.path / name(0, ".log"), before + kept)
            cut = setting.open(log.config, recovery_point=recovery_point)
            whole = kept == last
            assert cut.end_offset == (7 if whole else 5)
            assert cut.size == (log.size if whole else before)
            assert len(setting.warnings) == (0 if kept in (0, last) else 1)
            check_indexes(cut)
            assert cut.last_stable_offset == 1
            assert cut.reader.aborted_transactions(0, 100) == [(2, 3)]
            assert cut.append(sent(1, 0, b"a", b"b", transactional=True)).duplicate
            again = cut.append(sent(1, 2, b"c" * 30, b"d", transactional=True))
            assert (again.base_offset, again.duplicate) == (5, whole)
            cut.close()
            check_indexes(setting.open(log.config, clean=True))
            shutil.rmtree(setting.path.parent)


def test_a_changed_byte_ends_the_log_there(tmp_path: Path) -> None:
    origin = Setting(tmp_path / "origin")
    origin.path.parent.mkdir()
    log = origin.open()
    for number in range(3):
        log.append(batch(b"%d" % number))
    log.mark_deleted()
    size = log.size // 3
    assert size > 16
    data = (origin.path / name(0, ".log")).read_bytes()
    setting = Setting(tmp_path)
    for at in range(size, 2 * size):
        if 12 <= at - size < 16:
            continue  # the leader epoch is not covered by the CRC
        shutil.rmtree(setting.path, ignore_errors=True)
        setting.path.mkdir()
        mutated = bytearray(data)
        mutated[at] ^= 0x80
        (setting.path / name(0, ".log")).write_bytes(mutated)
        log = setting.open()
        if at - size < 8:
            # The CRC does not cover offsets either: they only must ascend.
            assert log.end_offset in (1, 1 + 0x80 + 1, 1 + 0x8000 + 1, 1 + 0x800000 + 1)
        else:
            assert (log.end_offset, log.size) == (1, size)
        log.mark_deleted()


def test_only_what_is_behind_the_recovery_point_is_verified(setting: Setting) -> None:
    log = setting.open(LogConfig(index_interval_bytes=0))
    for number in range(9):
        log.append(batch(b"%d" % number))
    log.durability.flush()
    assert log.durability.recovery_point == 9
    log.append(batch(b"9"))
    path = setting.path / name(0, ".log")
    data = bytearray(path.read_bytes())
    size = len(data) // 10
    data[3 * size - 2] ^= 1  # a record before it, which Kafka would ignore too
    path.write_bytes(data)
    log = setting.crash(log)
    assert (log.end_offset, setting.warnings) == (10, [])
    log.mark_deleted()
    data[-2] ^= 1
    path.write_bytes(data)
    log = setting.open(log.config, recovery_point=9)
    assert log.end_offset == 9
    assert setting.warnings == [
        f"t-0: truncated at offset 9: the last {size} bytes of {name(0, '.log')} are no valid batch"
    ]


def test_segments_behind_damage_go(setting: Setting) -> None:
    log = setting.open(SMALL)
    for number in range(20):
        log.append(sent(1, number, b"some value"))
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 3
    log.mark_deleted()
    path = setting.path / name(bases[1], ".log")
    os.truncate(path, path.stat().st_size - 1)
    log = setting.open(SMALL)
    assert [segment.base_offset for segment in log.segments] == bases[:2]
    assert log.end_offset == bases[2] - 1
    assert sorted(p.name for p in setting.path.glob("*.log")) == [
        name(base, ".log") for base in bases[:2]
    ]
    assert "later segments removed" in setting.warnings[0]
    check_indexes(log)
    assert log.append(sent(1, bases[2] - 1, b"some value")).base_offset == bases[2] - 1
    assert len(values_of(log)) == log.end_offset


def filled(setting: Setting) -> PartitionLog:
    log = setting.open(SMALL)
    for number in range(30):
        log.append(batch(b"value %d" % number, timestamp=NOW + (number * 7) % 30))
    return log


def lookups(log: PartitionLog) -> list[object]:
    return [
        [log.reader.offset_for_timestamp(NOW + at) for at in range(32)],
        log.reader.offset_of_max_timestamp(),
        [bytes(log.reader.read(at, 300, log.end_offset)) for at in range(30)],
    ]


DAMAGES = {
    "missing": None,
    "empty": lambda data: b"",
    "odd": lambda data: data[:-1],
    "rubbish": lambda data: b"\xff" * len(data),
    "reversed": lambda data: data[::-1],
    "beyond": lambda data: data + struct.pack(">ii", 999, 99999),
    "other": lambda data: data[:-1] + bytes((data[-1] ^ 1,)),
    "shifted": lambda data: bytes(byte ^ (1 if at % 8 == 7 else 0) for at, byte in enumerate(data)),
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("ending", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", list(DAMAGES))
def test_indexes_are_made_again(setting: Setting, ending: str, damage: str, clean: bool) -> None:
    log = filled(setting)
    expected = lookups(log)
    log.close()
    for path in sorted(setting.path.glob(f"*{ending}")):
        change = DAMAGES[damage]
        if change is None:
            path.unlink()
        elif (ending, damage) != (".timeindex", "shifted") and (ending, damage) != (
            ".timeindex",
            "other",
        ):
            path.write_bytes(change(path.read_bytes()))
    log = setting.open(SMALL, clean=clean)
    assert lookups(log) == expected
    check_indexes(log)
    assert setting.warnings == []
    log.close()
    log = setting.open(SMALL, clean=True)
    for segment in log.segments:
        assert segment.indexes[0].is_written
    check_indexes(log)


def test_room_that_kafka_left_in_its_files(setting: Setting) -> None:
    """After a crash of a broker with log.preallocate files end in zeros, and indexes always do."""
    log = filled(setting)
    expected = lookups(log)
    log.close()
    for ending, room in ((".index", 4096), (".timeindex", 4092)):
        for path in setting.path.glob(f"*{ending}"):
            with path.open("ab") as file:
                file.write(bytes(room))
    last = sorted(setting.path.glob("*.log"))[-1]
    for clean in (True, False):
        with last.open("ab") as file:
            file.write(bytes(5000))
        log = setting.open(SMALL, clean=clean)
        assert log.end_offset == 30
        assert lookups(log) == expected
        assert last.stat().st_size == log.active.size
        log.mark_deleted()


def test_a_folder_with_nothing_but_logs(setting: Setting) -> None:
    log = filled(setting)
    log.append(sent(4, 0, transactional=True), leader_epoch=2)
    expected = lookups(log)
    log.close()
    for path in setting.path.iterdir():
        if path.suffix != ".log":
            path.unlink()
    log = setting.open(SMALL)
    assert lookups(log) == expected
    assert log.latest_epoch == 2
    assert log.epoch_end_offset(0) == (0, 30)
    assert log.last_stable_offset == 30
    assert setting.warnings == []
    log.close()
    names = {path.suffix for path in setting.path.iterdir()}
    assert {".log", ".index", ".timeindex", ".snapshot"} <= names
    assert len(list(setting.path.glob("*.index"))) == len(log.segments)


def message_v1(offset: int, value: bytes, *, attributes: int = 0, timestamp: int = NOW) -> bytes:
    """Encode a message of the old format, magic 1."""
    rest = struct.pack(">bbqii", 1, attributes, timestamp, -1, len(value)) + value
    return struct.pack(">qiI", offset, len(rest) + 4, zlib.crc32(rest)) + rest


def message_v0(offset: int, value: bytes) -> bytes:
    rest = struct.pack(">bbii", 0, 0, -1, len(value)) + value
    return struct.pack(">qiI", offset, len(rest) + 4, zlib.crc32(rest)) + rest


@pytest.mark.parametrize("clean", [True, False])
def test_message_sets_of_old_brokers_are_served(setting: Setting, clean: bool) -> None:
    inner = b"".join(message_v1(i, b"in %d" % i, timestamp=NOW + i) for i in range(3))
    data = b"".join(
        [
            message_v0(0, b"v0"),
            message_v1(1, b"v1"),
            message_v1(4, compress(inner, Compression.GZIP), attributes=1, timestamp=NOW + 2),
            message_v1(7, b"behind a gap", timestamp=NOW + 3),
        ]
    )
    setting.path.mkdir()
    (setting.path / name(0, ".log")).write_bytes(data)
    log = setting.open(LogConfig(index_interval_bytes=50), clean=clean)
    assert (log.end_offset, setting.warnings) == (8, [])
    assert log.reader.read(0, 1 << 20, 8) == data
    assert [(r.offset, r.value) for r in records_of(log)] == [
        (0, b"v0"),
        (1, b"v1"),
        (2, b"in 0"),
        (3, b"in 1"),
        (4, b"in 2"),
        (7, b"behind a gap"),
    ]
    # Reads continue correctly from within a compressed message, and from a gap.
    assert next(read_headers(log.reader.read(3, 1 << 20, 8))).base_offset == 4
    assert next(read_headers(log.reader.read(5, 1 << 20, 8))).base_offset == 7
    assert log.reader.offset_for_timestamp(NOW + 1) == (NOW + 1, 3)
    assert log.reader.offset_of_max_timestamp() == (NOW + 3, 7)
    log.append(batch(b"new"))
    log = setting.crash(log)
    assert values_of(log)[-2:] == [b"behind a gap", b"new"]
    check_indexes(log)
    log.close()
    with (setting.path / name(0, ".log")).open("r+b") as file:
        file.seek(40)
        file.write(b"\xff")
    damaged = setting.open(log.config)
    assert damaged.end_offset == 1


@pytest.mark.parametrize(
    "point",
    ["cleaned", "swap", "swap, one replaced", "swap and cleaned", "swap, cleaned later"],
)
def test_a_replacement_that_was_interrupted(setting: Setting, point: str) -> None:
    log = setting.open(SMALL)
    for number in range(20):
        log.append(batch(b"value %d" % number))
    bases = [segment.base_offset for segment in log.segments]
    values = values_of(log)
    log.close()
    first, second = (setting.path / name(base, ".log") for base in bases[:2])
    whole = first.read_bytes() + second.read_bytes()
    headers = list(read_headers(whole))
    compacted = b"".join(
        whole[h.position : h.position + h.size_in_bytes] for h in headers if h.base_offset % 2
    )
    suffix = ".cleaned" if point == "cleaned" else ".swap"
    (setting.path / (name(0, ".log") + suffix)).write_bytes(compacted)
    for ending in (".index", ".timeindex"):
        (setting.path / (name(0, ending) + suffix)).write_bytes(b"")
    if point == "swap, one replaced":
        first.rename(first.with_name(first.name + ".deleted"))
    if point == "swap and cleaned":
        (setting.path / (name(0, ".txnindex") + ".cleaned")).write_bytes(b"")
    if point == "swap, cleaned later":
        (setting.path / (name(bases[2], ".log") + ".cleaned")).write_bytes(b"half")
    log = setting.open(SMALL)
    if point in ("cleaned", "swap and cleaned"):
        assert values_of(log) == values
    else:
        replaced = [values[h.base_offset] for h in headers if h.base_offset % 2]
        assert values_of(log) == replaced + values[bases[2] :]
        assert [segment.base_offset for segment in log.segments] == [0, *bases[2:]]
    check_indexes(log)
    leftovers = [p for p in setting.path.iterdir() if p.suffix in (".cleaned", ".swap", ".deleted")]
    assert leftovers == []


def test_a_log_that_ends_before_its_start_begins_anew(setting: Setting) -> None:
    log = setting.open()
    log.append(batch(b"x"))
    log.close()
    log = setting.open(log_start_offset=10)
    assert (log.log_start_offset, log.end_offset) == (10, 10)
    assert log.append(batch(b"y")).base_offset == 10
    assert [header.base_offset for header in headers_of(log)] == [10]
    assert "before its start offset 10" in setting.warnings[0]


def test_damage_in_a_closed_segment_is_an_error_to_readers(setting: Setting) -> None:
    log = filled(setting)
    log.close()
    path = setting.path / name(0, ".log")
    size = path.stat().st_size
    whole = len(batch(b"value 0"))
    path.write_bytes(path.read_bytes()[:whole] + b"\xff" * (size - whole))
    log = setting.open(SMALL, clean=True, recovery_point=30)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        log.reader.read(2, 1000, 30)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        log.reader.bytes_from(2, 30, 1 << 20)
    assert records_of(log, log.segments[1].base_offset)


def test_leader_epochs_that_cannot_be_read_are_made_again(setting: Setting) -> None:
    log = setting.open()
    log.append(batch(b"x"), leader_epoch=1)
    log.append(batch(b"x"), leader_epoch=4)
    for content in (
        b"rubbish",
        b"0\n2\n4 1\n1 0\n",
        b"0\n5\n1 0\n",
        b"\xff",
        b"0\n1\nx y\n",
        b"0\n1\n1\n",
    ):
        log.close()
        (setting.path / "leader-epoch-checkpoint").write_bytes(content)
        log = setting.open(clean=True)
        assert [log.epoch_end_offset(epoch) for epoch in (1, 4)] == [(1, 1), (4, 2)]
        assert len(setting.warnings) == 1
        setting.warnings.clear()
