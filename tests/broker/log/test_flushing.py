"""Flushes to the disk because of krammar.fsync, flush.messages and flush.ms, and failed flushes."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka_wire import ErrorCode

from krammar.broker.log.environment import Environment
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.log_config import LogConfig
from krammar.broker.log.manager import LogManager
from krammar.logfiles.checkpoints import read_offsets
from krammar.util.turns import finish
from tests.broker.faulty_disk import Disk
from tests.broker.log.support import TOPIC_ID, Clock, batch, refused, sent, values_of

ACTIVE = f"t-0/{0:020}.log"
SMALL = LogConfig(segment_bytes=200)


class Here:
    """A log manager on a disk that records."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self.root = root
        self.disk = disk
        self.clock = Clock()
        self.errors: list[str] = []
        self._managers: list[LogManager] = []

    def start(self, fsync: str = "interval", **options: Any) -> LogManager:
        environment = Environment(
            now_ms=self.clock, error=self.errors.append, fsync=fsync, **options
        )
        self._managers.append(LogManager([self.root], environment))
        return self._managers[-1]

    def open(self, config: LogConfig | None = None, fsync: str = "interval") -> PartitionLog:
        return self.start(fsync).open("t", TOPIC_ID, 0, config or LogConfig())

    @property
    def manager(self) -> LogManager:
        return self._managers[-1]

    def kill(self) -> None:
        """Leave the files as they are."""
        for log in self.manager:
            log.mark_deleted()
        for folder in self.manager.folders:
            folder.unlock()

    def forced(self) -> list[str]:
        """The files and folders that were forced to the disk since the last call."""
        found = [path for call, path in self.disk.calls if call in ("fsync", "fdatasync")]
        self.disk.calls.clear()
        return found

    def close(self) -> None:
        for manager in self._managers:
            manager.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    root = tmp_path / "data"
    here = Here(root, Disk(root, monkeypatch))
    yield here
    here.disk.mend()
    here.close()


# When batches are forced to the disk.


def test_always_forces_each_batch_and_the_names_of_new_files(here: Here) -> None:
    log = here.open(SMALL, "always")
    here.forced()
    log.append(batch(b"1"))
    # A new log is lost with the name of its file, of its folder, or of its topic.
    assert here.forced() == [ACTIVE, "t-0/partition.metadata", "t-0", "."]
    log.append(batch(b"2"))
    assert here.forced() == [ACTIVE]
    log.append(batch(b"3" * 100))
    assert here.forced()[:1] == [f"t-0/{2:020}.log"]


def test_flush_messages_counts_records(here: Here) -> None:
    """As in Kafka, the flush is done before the last record is acknowledged (`UnifiedLog.append`)."""
    log = here.open(LogConfig(flush_messages=3), "never")
    here.forced()
    log.append(batch(b"1"))
    log.append(batch(b"2"))
    assert here.forced() == []
    log.append(batch(b"3", b"4"))
    assert here.forced()[0] == ACTIVE
    log.append(batch(b"5"))
    log.append(batch(b"6"))
    assert here.forced() == []
    log.append(batch(b"7"))
    assert here.forced() == [ACTIVE]
    log.update_config(LogConfig(flush_messages=1))
    log.append(batch(b"8"))
    assert here.forced() == [ACTIVE]
    log.update_config(LogConfig())
    log.append(batch(b"9"))
    assert here.forced() == []


def test_flush_messages_includes_earlier_segments(here: Here) -> None:
    log = here.open(replace(SMALL, flush_messages=4), "never")
    here.forced()
    for number in range(4):
        log.append(batch(b"%d" % number * 80))
    assert len(log.segments) == 4
    forced = here.forced()
    assert forced[:4] == [f"t-0/{base:020}.log" for base in range(4)]
    assert (
        log.durability.recovery_point == 0
    )  # the indexes of complete segments are not on the disk yet


def test_flush_ms_flushes_by_the_clock(here: Here) -> None:
    log = here.open(LogConfig(flush_ms=500), "never")
    here.manager.flush()
    log.append(batch(b"1"))
    here.clock.now += 499
    here.forced()
    here.manager.flush()
    assert ACTIVE not in here.forced()
    here.clock.now += 1
    here.manager.flush()
    assert ACTIVE in here.forced()
    assert log.durability.recovery_point == 1
    here.clock.now += 499
    log.append(batch(b"2"))
    here.manager.flush()
    assert ACTIVE not in here.forced()
    here.clock.now -= 10_000  # set back
    here.manager.flush()
    assert ACTIVE in here.forced()


def test_flush_ms_of_a_topic_does_not_flush_others(here: Here) -> None:
    """A short flush.ms makes flushes frequent; other topics still wait for the interval of krammar.fsync."""
    log = here.open(LogConfig(flush_ms=10))
    other = here.manager.open("u", TOPIC_ID, 0, LogConfig())
    here.manager.flush()
    for each in (log, other):
        each.append(batch(b"1"))
    here.clock.now += 10
    while log.durability.recovery_point == 0:
        here.manager.flusher.in_background(interval=False)
    assert other.durability.recovery_point == 0
    while other.durability.recovery_point == 0:
        here.manager.flusher.in_background()


def test_never_forces_complete_segments_and_a_clean_shutdown(here: Here) -> None:
    """Kafka does the same by default (`UnifiedLog.roll` schedules a flush, `close` flushes)."""
    log = here.open(SMALL, "never")
    here.manager.flush()
    here.forced()
    for number in range(5):
        log.append(batch(b"%d" % number))
    assert here.forced() == []
    here.manager.flush()
    forced = here.forced()
    active = [f"t-0/{log.active.base_offset:020}{ending}" for ending in (".log", ".index")]
    for segment in log.segments[:-1]:
        assert f"t-0/{segment.base_offset:020}.log" in forced
    assert not set(active) & set(forced)
    assert {"t-0", "recovery-point-offset-checkpoint.tmp", "."} <= set(forced)
    assert log.durability.recovery_point == log.active.base_offset > 0
    here.manager.close()
    forced = here.forced()
    assert active[0] in forced
    assert forced[-2:] == [".kafka_cleanshutdown.tmp", "."]


def test_off_forces_nothing(here: Here) -> None:
    log = here.open(replace(SMALL, flush_messages=1, flush_ms=0), "off")
    for number in range(5):
        log.append(batch(b"%d" % number))
    here.manager.flush()
    log.retention.delete_records(2)
    here.manager.close()
    assert here.forced() == []


# Names and checkpoints.


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_checkpoints_are_forced_with_their_folder(here: Here, fsync: str) -> None:
    log = here.open(SMALL, fsync)
    for number in range(5):
        log.append(batch(b"%d" % number))
    here.disk.calls.clear()
    log.retention.delete_records(3)
    name = "log-start-offset-checkpoint"
    assert here.disk.calls[-3:] == [("fsync", f"{name}.tmp"), ("replace", name), ("fsync", ".")]


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_no_checkpoint_of_a_deleted_topic_is_left(here: Here, fsync: str) -> None:
    """Otherwise, a power cut could bring it back, and it would delete records of a topic with the same name."""
    log = here.open(SMALL, fsync)
    for number in range(5):
        log.append(batch(b"%d" % number))
    log.retention.delete_records(4)
    here.manager.flush()
    here.manager.delete("t", 0)
    here.disk.calls.clear()
    again = here.manager.open("t", TOPIC_ID, 0, SMALL)
    for name in ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint"):
        assert read_offsets(here.root / name) == {}
        at = here.disk.calls.index(("replace", name))
        assert here.disk.calls[at - 1 : at + 2 : 2] == [("fsync", f"{name}.tmp"), ("fsync", ".")]
    again.append(batch(b"new"))
    here.kill()
    assert values_of(here.open(SMALL, fsync)) == [b"new"]


def test_the_mark_of_a_clean_shutdown_is_removed_for_good(here: Here) -> None:
    here.open().append(batch(b"x"))
    here.manager.close()
    here.disk.calls.clear()
    here.start()
    mark = here.disk.calls.index(("unlink", ".kafka_cleanshutdown"))
    assert here.disk.calls[mark + 1] == ("fsync", ".")


def test_records_are_only_deleted_if_that_can_be_stored(here: Here) -> None:
    log = here.open()
    for number in range(3):
        log.append(batch(b"%d" % number))
    with (
        here.disk.failing("pwrite", "log-start-offset.*", errno.ENOSPC),
        refused(ErrorCode.KAFKA_STORAGE_ERROR, "cannot be stored.*No space left"),
    ):
        log.retention.delete_records(2)
    assert log.log_start_offset == 0 and len(values_of(log)) == 3
    assert log.retention.delete_records(2) == 2
    here.kill()
    assert values_of(here.open()) == [b"2"]


# Failed flushes.


@pytest.mark.parametrize(
    ("fsync", "config", "call"),
    [
        ("always", LogConfig(), "fdatasync"),
        ("never", LogConfig(flush_messages=1), "fdatasync"),
        ("interval", LogConfig(), "fsync"),
        ("never", LogConfig(flush_ms=0), "fsync"),
    ],
)
def test_a_failed_flush_takes_the_partition_offline(
    here: Here, fsync: str, config: LogConfig, call: str
) -> None:
    manager = here.start(fsync)
    log = manager.open("t", TOPIC_ID, 0, config)
    other = manager.open("u", TOPIC_ID, 0, config)
    log.append(sent(1, 0, b"before"))
    manager.flush()
    heard: list[None] = []
    with here.disk.failing(call, "t-0/.*"):
        if call == "fdatasync":
            with refused(ErrorCode.KAFKA_STORAGE_ERROR, "Input/output error"):
                log.append(sent(1, 1, b"lost"))
        else:
            log.append(sent(1, 1, b"not yet on the disk"))
            log.watchers.add(lambda: heard.append(None))
            manager.flush()
            assert heard  # waiting requests end
    # The next fsync would succeed: the kernel reports an error once, and drops the data.
    for _ in range(2):
        manager.flush()
        with refused(ErrorCode.KAFKA_STORAGE_ERROR, "Input/output error"):
            log.append(sent(1, 2))
        with refused(
            ErrorCode.KAFKA_STORAGE_ERROR, "t-0: the partition is offline: .*Input/output"
        ):
            log.reader.read(0, 100, 1)
        with refused(ErrorCode.KAFKA_STORAGE_ERROR):
            log.retention.delete_records(1)
    assert log.durability.recovery_point <= 1
    assert len(here.errors) == 1
    assert "Input/output error" in here.errors[0] and "restart the broker" in here.errors[0]
    other.append(batch(b"other"))
    manager.flush()
    assert not other.offline
    finish(manager.maintaining())
    assert not manager.cleaner.compact()

    manager.close()
    assert not (here.root / ".kafka_cleanshutdown").exists()
    here.disk.calls.clear()
    log = here.start(fsync).open("t", TOPIC_ID, 0, config)
    assert values_of(log)[0] == b"before"
    assert here.manager.open("u", TOPIC_ID, 0, config).end_offset == 1
    log.append(sent(1, log.end_offset))
    here.manager.flush()
    assert len(here.errors) == 1


def test_the_next_start_writes_again_what_was_not_flushed(here: Here) -> None:
    """The kernel may show bytes that it failed to write, and regard them as written."""
    log = here.open()
    log.append(batch(b"flushed"))
    here.manager.flush()
    flushed = log.size
    log.append(batch(b"in the cache only"))
    with here.disk.failing("fsync", "t-0/.*"):
        here.manager.flush()
    here.kill()
    here.disk.calls.clear()
    log = here.open()
    assert ("pwrite", ACTIVE) in here.disk.calls
    assert log.size > flushed
    assert log.durability.recovery_point == 1
    here.forced()
    here.manager.flush()
    assert ACTIVE in here.forced() and log.durability.recovery_point == 2
    assert values_of(log) == [b"flushed", b"in the cache only"]


def test_a_full_disk_takes_nothing_offline(here: Here) -> None:
    log = here.open()
    log.append(batch(b"1"))
    with here.disk.failing("pwrite.*", "t-0/.*", errno.ENOSPC):
        for _ in range(3):
            with refused(ErrorCode.KAFKA_STORAGE_ERROR, "No space left on device"):
                log.append(batch(b"2"))
        assert values_of(log) == [b"1"]
    assert log.append(batch(b"3")).base_offset == 1
    assert not log.offline
    [line] = here.errors  # one is enough until a write succeeds
    assert "t-0: records are refused until they can be written" in line and "No space left" in line


@pytest.mark.parametrize("call", ["pwritev", "open"])
def test_a_disk_that_fails_takes_the_partition_offline(here: Here, call: str) -> None:
    log = here.open(SMALL)
    log.append(batch(b"1" * 100))
    with (
        here.disk.failing(call, "t-0/.*"),
        refused(ErrorCode.KAFKA_STORAGE_ERROR, "Input/output error"),
    ):
        log.append(batch(b"2" * 100 if call == "open" else b"2"))
    with refused(ErrorCode.KAFKA_STORAGE_ERROR, "Input/output error"):
        log.append(batch(b"3"))
    here.kill()
    assert values_of(here.open(SMALL)) == [b"1" * 100]


def test_a_replacement_that_fails_takes_the_partition_offline(here: Here) -> None:
    config = replace(SMALL, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    log = here.open(config)
    for number in range(8):
        log.append(batch(b"%d" % number, key=b"k"))
    with here.disk.failing("rename", r"t-0/0{20}\.index\.swap"):
        assert not here.manager.cleaner.compact()
    with refused(ErrorCode.KAFKA_STORAGE_ERROR, "Input/output error"):
        log.append(batch(b"more", key=b"k"))
    here.manager.close()
    log = here.open(config)
    assert values_of(log)[-1] == b"7"
    here.manager.cleaner.compact()
    assert len(values_of(log)) < 8
