"""Full disks: no operation is half done, and the log continues when there is space again."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka_wire import ErrorCode

from krammar.broker.log.environment import Environment
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.log_config import LogConfig
from krammar.broker.log.manager import LogManager
from tests.broker.log.support import (
    NOW,
    TOPIC_ID,
    Clock,
    Setting,
    batch,
    check_indexes,
    headers_of,
    refused,
    sent,
    values_of,
)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process can grow beyond ``size`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open no file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened: list[int] = []
    highest = max(int(fd) for fd in os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                opened.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def state(log: PartitionLog) -> list[object]:
    return [
        log.end_offset,
        log.last_stable_offset,
        log.size,
        log.producers.entries(),
        log.reader.aborted_transactions(0, 1000),
        [segment.base_offset for segment in log.segments],
        [(list(i.keys), list(i.values)) for s in log.segments for i in s.indexes],
        [path.stat().st_size for path in sorted(log.path.glob("*.log"))],
    ]


@pytest.mark.parametrize("room", [0, 1, 40, 100])
@pytest.mark.parametrize("fsync", ["always", "never"])
def test_an_append_that_does_not_fit(tmp_path: Path, room: int, fsync: str) -> None:
    setting = Setting(tmp_path, fsync=fsync)
    log = setting.open(LogConfig(index_interval_bytes=0))
    log.append(sent(1, 0, transactional=True))
    log.append(sent(2, 0))
    before = state(log)
    heard: list[None] = []
    log.watchers.add(lambda: heard.append(None))
    with largest_file(log.size + room):
        with refused(ErrorCode.KAFKA_STORAGE_ERROR, "File too large"):
            log.append(sent(2, 1, b"x" * 200))
        with refused(ErrorCode.KAFKA_STORAGE_ERROR):
            log.append(sent(3, 0, b"x" * 200, transactional=True))
        if room < 60:
            with refused(ErrorCode.KAFKA_STORAGE_ERROR):
                log.append_marker(1, 0, commit=False, coordinator_epoch=4)
        assert state(log) == before
        assert log.reader.read(0, 1 << 20, 2) == b"".join(
            log.reader.read(offset, 1, offset + 1) for offset in (0, 1)
        )
    assert heard == []
    assert log.append(sent(2, 1, b"x" * 200)).base_offset == 2
    log.append_marker(1, 0, commit=False, coordinator_epoch=0)
    for open_again in (setting.crash, setting.reopen):
        log = open_again(log)
        assert [header.base_offset for header in headers_of(log)] == [0, 1, 2, 3]
        assert log.reader.aborted_transactions(0, 10) == [(1, 0)]
        check_indexes(log)
    assert setting.warnings == []


@pytest.mark.parametrize("room", [0, 10, 65_000, 66_000, 150_000, 299_000])
def test_a_large_append_that_does_not_fit(setting: Setting, room: int) -> None:
    """It is written by pieces."""
    log = setting.open()
    log.append(batch(b"small"))
    large = [os.urandom(300_000), os.urandom(300_000)]
    with largest_file(log.size + room), refused(ErrorCode.KAFKA_STORAGE_ERROR):
        log.append(batch(large[0]))
    assert os.path.getsize(log.active.file(".log")) == log.size
    for value in large:
        log.append(batch(value))
    assert values_of(log) == [b"small", *large]
    log = setting.crash(log)
    assert values_of(log) == [b"small", *large]
    assert setting.warnings == []


def test_indexes_that_do_not_fit_are_written_later(setting: Setting) -> None:
    log = setting.open(LogConfig(index_interval_bytes=0))
    with largest_file(1000):
        for number in range(12):
            log.append(sent(1, number, transactional=True))
    with largest_file(5):
        log.retention.roll()  # neither index nor snapshot can be written
        assert len(log.segments) == 2
        with pytest.raises(OSError, match="File too large"):
            log.durability.flush()
        with refused(ErrorCode.KAFKA_STORAGE_ERROR):
            log.append(sent(1, 12, transactional=True))
    assert len(setting.warnings) == 1
    log.append(sent(1, 12, transactional=True))
    log.append_marker(1, 0, commit=False, coordinator_epoch=0)
    log.durability.flush()
    log = setting.crash(log)
    check_indexes(log)
    assert log.reader.aborted_transactions(0, 100) == [(1, 0)]
    for path in log.path.glob("*.index"):
        assert path.stat().st_size > 0
    assert len(values_of(log)) == 13


def test_a_segment_that_cannot_be_begun(setting: Setting) -> None:
    log = setting.open(LogConfig(segment_bytes=100))
    log.append(sent(1, 0, b"x" * 30))
    before = state(log)
    # As on a disk without a free inode; real calls all the same.
    with no_descriptors():
        with refused(ErrorCode.KAFKA_STORAGE_ERROR, "Too many open files"):
            log.append(sent(1, 1, b"x" * 30))
        with refused(ErrorCode.KAFKA_STORAGE_ERROR, "Too many open files"):
            log.retention.roll()
    assert state(log) == before
    assert sorted(p.name for p in log.path.iterdir()) == sorted(
        f"{0:020}{ending}" for ending in (".log", ".index", ".timeindex")
    )
    assert log.append(sent(1, 1, b"x" * 30)).base_offset == 1
    assert len(log.segments) == 2


def test_a_forced_append_without_descriptors_can_be_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Setting(tmp_path, fsync="always") as setting:
        log = setting.open()
        assert log.active.fd >= 0  # so that the append opens nothing, and its flush does
        before = state(log)
        with no_descriptors(), refused(ErrorCode.KAFKA_STORAGE_ERROR, "Too many open files"):
            log.append(sent(1, 0))
        assert not log.offline and state(log) == before
        (line,) = caplog.messages
        assert "records are refused until they can be written" in line
        assert "(raise the limit: ulimit -n)" in line
        assert log.append(sent(1, 0)).base_offset == 0
        log = setting.crash(log)
        assert values_of(log) == [b"v"]


@pytest.mark.parametrize("background", [False, True])
def test_a_flush_without_descriptors_is_repeated(tmp_path: Path, background: bool) -> None:
    environment = Environment(now_ms=Clock(), fsync="interval")
    manager = LogManager([tmp_path], environment)
    log = manager.open("t", TOPIC_ID, 0, LogConfig())
    log.append(batch(b"value"))
    log.durability.flush()
    log.append(batch(b"another"))
    flush = manager.flush if background else log.durability.flush
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        flush()
    assert not log.offline and log.durability.recovery_point == 1
    manager.flush()
    assert log.durability.recovery_point == 2
    manager.close()


def test_compaction_that_does_not_fit(tmp_path: Path) -> None:
    warnings: list[str] = []
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}), segment_bytes=4000, min_cleanable_dirty_ratio=0.1
    )
    manager = LogManager([tmp_path], Environment(now_ms=Clock(), warn=warnings.append))
    log = manager.open("t", TOPIC_ID, 0, config)
    for number in range(200):
        log.append(batch(b"value %d" % number, key=b"%d" % (number % 150)))
    before = values_of(log)
    with largest_file(1000):
        assert not manager.cleaner.compact(NOW)
    assert len(warnings) == 1 and "compaction failed" in warnings[0]
    assert values_of(log) == before
    assert not list(log.path.glob("*.cleaned"))
    manager.cleaner.compact(NOW)
    assert len(values_of(log)) < len(before)
    check_indexes(log)
    manager.close()


def test_a_manager_closes_even_so(tmp_path: Path) -> None:
    warnings: list[str] = []
    manager = LogManager([tmp_path], Environment(now_ms=Clock(), warn=warnings.append))
    log = manager.open("t", TOPIC_ID, 0, LogConfig(index_interval_bytes=0))
    for number in range(10):
        log.append(sent(1, number))
    with largest_file(10):
        manager.close()
    assert warnings
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    manager = LogManager([tmp_path], Environment(now_ms=Clock(), warn=warnings.append))
    log = manager.open("t", TOPIC_ID, 0, LogConfig(index_interval_bytes=0))
    assert log.end_offset == 10
    check_indexes(log)
    assert log.append(sent(1, 9)).duplicate
    manager.close()
