"""Appends and reads of a log, compared with a list."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka_wire import ErrorCode

from krammar.broker.log.log_config import LogConfig
from krammar.wire.batches import (
    Compression,
    Record,
    TimestampType,
    encode_batch,
    read_batches,
    read_headers,
)
from tests.broker.log.support import (
    NOW,
    Setting,
    batch,
    check_indexes,
    records_of,
    refused,
    values_of,
)

QUICK = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_an_append_changes_nothing_but_offset_and_epoch(setting: Setting) -> None:
    log = setting.open()
    first = batch(b"one", b"two", compression=Compression.ZSTD)
    second = batch(b"three")

    assert log.append(first, leader_epoch=3).base_offset == 0
    appended = log.append(memoryview(second), leader_epoch=3)

    assert (appended.base_offset, appended.last_offset) == (2, 2)
    assert (appended.append_time, appended.duplicate) == (-1, False)
    assert log.end_offset == log.last_stable_offset == 3
    data = log.reader.read(0, 1 << 20, log.end_offset)
    assert len(data) == log.size == len(first) + len(second)
    stored = data[len(first) :]
    assert stored[:8] == (2).to_bytes(8, "big")
    assert stored[12:16] == (3).to_bytes(4, "big")
    assert (stored[8:12], stored[16:]) == (second[8:12], second[16:])
    assert data[16 : len(first)] == first[16:]


def test_log_append_time_is_put_in(setting: Setting) -> None:
    log = setting.open(LogConfig(message_timestamp_type="LogAppendTime"))
    appended = log.append(batch(b"one", b"two", timestamp=5, compression=Compression.GZIP))

    assert appended.append_time == NOW
    (stored,) = read_batches(log.reader.read(0, 1000, 2))  # with the right CRC
    assert stored.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in stored] == [NOW, NOW]


def test_a_wrong_max_timestamp_is_put_right(setting: Setting) -> None:
    log = setting.open()
    log.append(batch(b"one", timestamp=NOW - 5, max_timestamp=NOW + 99))

    (stored,) = read_batches(log.reader.read(0, 1000, 1))
    assert stored.max_timestamp == NOW - 5


@pytest.mark.parametrize("codec", [*Compression])
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_has_its_own_compression(setting: Setting, codec: Compression, wanted: str) -> None:
    log = setting.open(LogConfig(compression_type=wanted))
    log.append(
        batch(
            b"one" * 50,
            b"two" * 50,
            compression=codec,
            producer_id=7,
            producer_epoch=1,
            base_sequence=4,
        )
    )

    (stored,) = read_batches(log.reader.read(0, 1000, 2))
    assert stored.compression.name.lower() == wanted.replace("uncompressed", "none")
    assert (stored.producer_id, stored.producer_epoch, stored.base_sequence) == (7, 1, 4)
    assert [record.value for record in stored] == [b"one" * 50, b"two" * 50]
    assert log.size == len(log.reader.read(0, 1000, 2))
    check_indexes(log)


def test_records_of_a_coordinator(setting: Setting) -> None:
    log = setting.open()
    log.append(batch(b"before"))
    appended = log.append_records(
        [Record(key=b"a", value=b"1"), Record(key=b"b", value=None, timestamp=12)]
    )

    assert (appended.base_offset, appended.last_offset) == (1, 2)
    stored = [record for one in log.reader.batches(1) for record in one]
    assert [(r.offset, r.timestamp, r.key, r.value) for r in stored] == [
        (1, NOW, b"a", b"1"),
        (2, 12, b"b", None),
    ]


def test_watchers_hear_of_every_move(setting: Setting) -> None:
    log = setting.open()
    heard: list[int] = []
    log.watchers.add(lambda: heard.append(log.end_offset))
    log.append(batch(b"one"))
    log.append_records([Record(value=b"x")])
    log.retention.delete_records(1)
    log.close()
    assert heard == [1, 2, 2, 2]


def test_reads_are_bounded(setting: Setting) -> None:
    log = setting.open()
    sizes = [len(batch(b"x" * 100)), len(batch(b"y" * 5000)), len(batch(b"z"))]
    for value in (b"x" * 100, b"y" * 5000, b"z"):
        log.append(batch(value))

    assert len(log.reader.read(0, 1 << 20, 3)) == sum(sizes)
    assert len(log.reader.read(0, 1 << 20, 2)) == sizes[0] + sizes[1]
    assert log.reader.read(3, 1 << 20, 3) == b""
    assert log.reader.read(2, 1 << 20, 2) == b""
    # The first batch is complete; the last one may be cut off.
    assert len(log.reader.read(0, 1, 3)) == sizes[0]
    assert len(log.reader.read(0, sizes[0] + 10, 3)) == sizes[0] + 10
    assert len(log.reader.read(1, 10, 3)) == sizes[1]
    assert log.reader.read(1, sizes[1] - 1, 3, first=0) == b""
    assert len(log.reader.read(1, sizes[1], 3, first=0)) == sizes[1]
    for offset in (-1, 4):
        with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
            log.reader.read(offset, 100, 3)


def test_what_could_be_read(setting: Setting) -> None:
    log = setting.open(LogConfig(segment_bytes=700))
    for _ in range(20):
        log.append(batch(b"x" * 100))
    assert len(log.segments) > 3
    size = len(batch(b"x" * 100))
    assert log.reader.bytes_from(0, 20, 1 << 20) == 20 * size
    assert log.reader.bytes_from(5, 20, 1 << 20) == 15 * size
    assert log.reader.bytes_from(5, 9, 1 << 20) == 4 * size
    assert log.reader.bytes_from(5, 20, 200) == 200
    assert log.reader.bytes_from(20, 20, 200) == 0
    assert log.reader.bytes_from(21, 20, 200) == 0


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.binary(max_size=90), min_size=1, max_size=6)),
        st.tuples(st.sampled_from(["reopen", "crash", "roll", "flush"]), st.none()),
    ),
    max_size=25,
)


@QUICK
@given(operations=OPERATIONS, step=st.integers(1, 500), where=st.floats(0, 1))
def test_a_log_is_a_list(
    operations: list[tuple[str, list[bytes]]], step: int, where: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(Path(folder))
        log = setting.open(LogConfig(segment_bytes=600, index_interval_bytes=100))
        model: list[bytes] = []
        ends = [0]
        for number, (what, values) in enumerate(operations):
            if what == "append":
                codec = number % 5
                log.append(batch(*values, timestamp=NOW + number, compression=codec))
                model += values
                ends.append(len(model))
            elif what == "roll":
                log.retention.roll()
            elif what == "flush":
                log.durability.flush()
            else:
                log = setting.reopen(log) if what == "reopen" else setting.crash(log)
        assert log.end_offset == len(model)
        assert values_of(log) == model
        assert [r.offset for r in records_of(log, step=step)] == list(range(len(model)))
        offset = int(where * len(model))
        assert [r.value for r in records_of(log, offset, step)] == model[offset:]
        # The batch with the offset comes first; nothing from the end on is returned.
        for end in ends:
            data = log.reader.read(offset, 1 << 20, end)
            headers = list(read_headers(data, allow_partial=False))
            if offset < end:
                assert headers[0].base_offset <= offset <= headers[0].last_offset
                assert headers[-1].last_offset < end
            else:
                assert not headers
        check_indexes(log)
        assert log.size == sum(p.stat().st_size for p in setting.path.glob("*.log"))
        assert setting.warnings == []
        log.close()


@QUICK
@given(
    times=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=12),
    wanted=st.integers(0, 45),
    start=st.integers(0, 20),
)
def test_offsets_by_time(times: list[list[int]], wanted: int, start: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(Path(folder))
        log = setting.open(LogConfig(segment_bytes=300, index_interval_bytes=80))
        model: list[tuple[int, int]] = []
        for some in times:
            records = [Record(timestamp=NOW + at, value=b"some value") for at in some]
            model += [(NOW + at, len(model) + i) for i, at in enumerate(some)]
            log.append(encode_batch(records, base_offset=0))
        for _ in range(2):
            begin = log.log_start_offset
            expected = next((e for e in model if e[0] >= NOW + wanted and e[1] >= begin), None)
            assert log.reader.offset_for_timestamp(NOW + wanted) == expected
            highest = max(at for at, _ in model)
            if begin == 0:
                first = next(entry for entry in model if entry[0] == highest)
                assert log.reader.offset_of_max_timestamp() == first
            log.retention.delete_records(min(start, log.end_offset))
            log = setting.reopen(log)
        log.close()


def test_an_empty_log_has_no_times(setting: Setting) -> None:
    log = setting.open()
    assert log.reader.offset_for_timestamp(0) is None
    assert log.reader.offset_of_max_timestamp() is None
    assert log.latest_epoch == -1
    assert log.epoch_end_offset(0) == (-1, -1)


def test_epochs(setting: Setting) -> None:
    log = setting.open()
    for epoch in (2, 2, 5, 5, 5, 9):
        log.append(batch(b"x"), leader_epoch=epoch)
    for _ in range(2):
        assert log.latest_epoch == 9
        assert log.epoch_end_offset(9) == (9, 6)
        assert log.epoch_end_offset(10) == (-1, -1)
        assert log.epoch_end_offset(6) == (5, 5)
        assert log.epoch_end_offset(5) == (5, 5)
        assert log.epoch_end_offset(2) == (2, 2)
        assert log.epoch_end_offset(1) == (1, 0)
        log = setting.reopen(log)
    assert (setting.path / "leader-epoch-checkpoint").read_text() == "0\n3\n2 0\n5 2\n9 5\n"
    log.retention.delete_records(3)
    log = setting.crash(log)
    log = setting.reopen(log)
    assert (setting.path / "leader-epoch-checkpoint").read_text() == "0\n2\n5 3\n9 5\n"
    log.append(batch(b"x"), leader_epoch=11)
    assert log.epoch_end_offset(11) == (11, 7)


def test_a_batch_without_timestamps_counts_the_age_of_the_first_segment_from_its_creation(
    setting: Setting,
) -> None:
    log = setting.open(LogConfig(segment_ms=5000))
    log.append(batch(b"x", timestamp=-1))
    setting.clock.now += 5000
    log.append(batch(b"x", timestamp=-1))
    assert len(log.segments) == 1
    setting.clock.now += 1
    log.append(batch(b"x", timestamp=-1))
    assert len(log.segments) == 2


def test_segments_end_by_size_age_index_and_distance(setting: Setting) -> None:
    log = setting.open(LogConfig(segment_bytes=1000, segment_ms=5000))
    log.append(batch(b"x" * 800))
    log.append(batch(b"x" * 800))  # too large for the first
    assert [s.base_offset for s in log.segments] == [0, 1]
    log.append(batch(b"x", timestamp=NOW + 5000))
    assert len(log.segments) == 2
    log.append(batch(b"x", timestamp=NOW + 5001))
    assert [s.base_offset for s in log.segments] == [0, 1, 3]
    # Offsets in the index have 32 bits.
    log.state.end_offset += 2**31 - 1
    log.append(batch(b"x", timestamp=NOW + 5001))
    assert [s.base_offset for s in log.segments] == [0, 1, 3, 3 + 2**31]

    log.update_config(LogConfig(segment_index_bytes=24, index_interval_bytes=0))
    log.append(batch(b"a"))
    log.retention.roll()
    before = len(log.segments)
    for _ in range(6):
        log.append(batch(b"x"))
    assert len(log.segments) == before + 1
    check_indexes(log)
    assert len(values_of(log)) == 12
