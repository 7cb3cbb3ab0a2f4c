"""Log folders: locks, checkpoints, retention, deletion, and unexpected folders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka_wire import ErrorCode

from krammar.broker.log.environment import Environment
from krammar.broker.log.files import StorageError
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.log_config import LogConfig
from krammar.broker.log.manager import LogManager
from krammar.logfiles.checkpoints import read_offsets
from krammar.util.turns import Budget, finish
from krammar.wire.primitives import NULL_UUID
from tests.broker.log.support import (
    NOW,
    TOPIC_ID,
    Clock,
    batch,
    check_indexes,
    refused,
    sent,
    values_of,
)
from tests.support.waiting import PATIENCE

OTHER_ID = UUID("11111111-2222-3333-4444-555555555555")
COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0, file_delete_delay_ms=500
)


class Managers:
    """Managers of the same folder, one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path / "data"
        self.clock = Clock()
        self.warnings: list[str] = []
        self.all: list[LogManager] = []

    def start(self, *more: Path, **options: Any) -> LogManager:
        environment = Environment(now_ms=self.clock, warn=self.warnings.append, **options)
        manager = LogManager([self.path, *more], environment)
        self.all.append(manager)
        return manager

    def kill(self, manager: LogManager) -> None:
        """Leave the files as they are."""
        for log in manager:
            log.mark_deleted()
        for folder in manager.folders:
            folder.unlock()

    def names(self, folder: str = "") -> set[str]:
        return {path.name for path in (self.path / folder).iterdir()}


@pytest.fixture
def managers(tmp_path: Path) -> Iterator[Managers]:
    managers = Managers(tmp_path)
    yield managers
    for manager in managers.all:
        manager.close()


def opened(manager: LogManager, config: LogConfig | None = None) -> PartitionLog:
    return manager.open("t", TOPIC_ID, 0, config or LogConfig())


def test_a_new_partition_has_the_files_that_kafkas_has(managers: Managers) -> None:
    manager = managers.start()
    log = opened(manager)
    assert manager.get("t", 0) is log is opened(manager)
    assert list(manager) == [log]
    assert managers.names("t-0") == {
        f"{0:020}.log",
        f"{0:020}.index",
        f"{0:020}.timeindex",
        "partition.metadata",
    }
    assert (log.path / "partition.metadata").read_text() == (
        "version: 0\ntopic_id: ASNFZ4mrze8BI0VniavN7w\n"
    )
    assert (log.topic, log.partition, log.topic_id) == ("t", 0, TOPIC_ID)


def test_an_orderly_end_is_written_down(managers: Managers) -> None:
    manager = managers.start()
    log = opened(manager)
    for number in range(5):
        log.append(sent(1, number))
    log.retention.delete_records(2)
    manager.open("t.x-1", TOPIC_ID, 3, LogConfig())
    manager.close()
    manager.close()
    assert json.loads((managers.path / ".kafka_cleanshutdown").read_text())["version"] == 0
    text = (managers.path / "recovery-point-offset-checkpoint").read_text()
    assert text == "0\n2\nt 0 5\nt.x-1 3 0\n"
    assert (managers.path / "replication-offset-checkpoint").read_text() == text
    assert (managers.path / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"

    manager = managers.start()
    assert ".kafka_cleanshutdown" not in managers.names()
    log = opened(manager)
    assert (log.log_start_offset, log.end_offset, log.topic_id) == (2, 5, TOPIC_ID)
    assert manager.open("t.x-1", TOPIC_ID, 3, LogConfig()).end_offset == 0
    assert managers.warnings == []


def test_deleted_records_stay_deleted_after_a_kill(managers: Managers) -> None:
    manager = managers.start()
    log = opened(manager)
    for _ in range(5):
        log.append(batch(b"x"))
    assert log.retention.delete_records(3) == 3
    assert log.retention.delete_records(1) == 3
    managers.kill(manager)
    log = opened(managers.start())
    assert (log.log_start_offset, log.end_offset) == (3, 5)
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        log.reader.read(2, 100, 5)
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        log.retention.delete_records(6)
    assert log.retention.delete_records(-1) == 5
    assert values_of(log) == []
    log.append(batch(b"new"))
    assert values_of(log) == [b"new"]
    log.update_config(COMPACT)
    with refused(ErrorCode.POLICY_VIOLATION):
        log.retention.delete_records(5)


def test_two_brokers_do_not_share_a_folder(managers: Managers) -> None:
    manager = managers.start()
    with pytest.raises(StorageError, match="in use by another broker"):
        managers.start()
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from krammar.broker.log.environment import Environment\n"
        "from krammar.broker.log.manager import LogManager\n"
        "try:\n    LogManager([Path(sys.argv[1])], Environment())\n"
        "except Exception as error:\n    print(type(error).__name__)\n"
    )
    command = [sys.executable, "-c", script, str(managers.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "StorageError\n"
    manager.close()
    managers.start().close()


def test_partitions_are_spread_over_folders(managers: Managers, tmp_path: Path) -> None:
    other = tmp_path / "other"
    manager = managers.start(other)
    for partition in range(4):
        manager.open("t", TOPIC_ID, partition, LogConfig()).append(batch(b"x"))
    assert len([name for name in managers.names() if name.startswith("t-")]) == 2
    manager.close()
    manager = managers.start(other)
    for partition in range(4):
        assert manager.open("t", TOPIC_ID, partition, LogConfig()).end_offset == 1
    manager.close()
    with pytest.raises(StorageError, match=r"data is in use"):
        LogManager([other, managers.path, managers.path], Environment())
    LogManager([other], Environment()).close()  # was unlocked again


@pytest.mark.parametrize("policy", ["always", "interval", "never"])
def test_flushing_tells_where_recovery_begins(managers: Managers, policy: str) -> None:
    manager = managers.start(fsync=policy)
    log = opened(manager, LogConfig(segment_bytes=200))
    for number in range(5):
        log.append(sent(1, number))
    manager.flush()
    manager.flush()
    expected = log.active.base_offset if policy == "never" else 5
    assert read_offsets(managers.path / "recovery-point-offset-checkpoint") == {("t", 0): expected}
    log.append(sent(1, 5))
    managers.kill(manager)
    log = opened(managers.start(fsync=policy), LogConfig(segment_bytes=200))
    assert log.end_offset == 6
    assert log.append(sent(1, 5)).duplicate
    check_indexes(log)


def test_flushing_does_not_wait_for_the_disk(managers: Managers) -> None:
    manager = managers.start()
    log = opened(manager, LogConfig(segment_bytes=200))
    manager.flush()  # the new names
    manager.flusher.in_background()  # nothing to do
    for number in range(5):
        log.append(sent(1, number))
    manager.flusher.in_background()
    assert log.durability.recovery_point == 0
    log.append(sent(1, 5))
    while log.durability.recovery_point == 0:
        manager.flusher.in_background()
    assert log.durability.recovery_point == 5
    checkpoint = managers.path / "recovery-point-offset-checkpoint"
    while read_offsets(checkpoint) != {("t", 0): 5}:
        manager.flusher.in_background()  # the next flush writes the checkpoints
        assert log.durability.recovery_point in (5, 6)
    other = manager.open("u", OTHER_ID, 0, LogConfig())
    other.append(batch(b"x"))
    manager.flusher.in_background()
    manager.delete("u", 0)
    manager.flush()
    assert log.durability.recovery_point == 6
    log.append(sent(1, 6))
    manager.flusher.in_background()
    manager.close()  # waits for it
    assert read_offsets(checkpoint) == {("t", 0): 7}


def test_retention_by_time(managers: Managers) -> None:
    manager = managers.start()
    log = opened(manager, LogConfig(segment_bytes=150, retention_ms=1000, file_delete_delay_ms=50))
    for number in range(6):
        log.append(batch(b"x", timestamp=NOW + number * 100))
    bases = [segment.base_offset for segment in log.segments]
    assert bases == [0, 2, 4]
    managers.clock.now += 1100
    finish(manager.maintaining())
    assert log.log_start_offset == 0
    managers.clock.now += 1
    finish(manager.maintaining())
    assert (log.log_start_offset, [s.base_offset for s in log.segments]) == (2, [2, 4])
    assert f"{0:020}.log.deleted" in managers.names("t-0")
    managers.clock.now += 49
    manager.remove_due()
    assert f"{0:020}.log.deleted" in managers.names("t-0")
    managers.clock.now += 1
    manager.remove_due()
    assert not [name for name in managers.names("t-0") if name.endswith(".deleted")]
    # The last segment is deleted too, and the log continues at the same offset.
    finish(manager.maintaining(NOW + 5000))
    assert (log.log_start_offset, log.end_offset, log.size) == (6, 6, 0)
    assert log.append(batch(b"y")).base_offset == 6
    manager.close()
    log = opened(managers.start())
    assert (log.log_start_offset, log.end_offset) == (6, 7)
    assert values_of(log) == [b"y"]
    assert managers.warnings == []


def test_retention_by_size_and_by_deleted_records(managers: Managers) -> None:
    manager = managers.start()
    log = opened(manager, LogConfig(segment_bytes=150, retention_ms=-1))
    for _ in range(8):
        log.append(batch(b"x"))
    size = log.size
    segment = log.segments[0].size
    finish(manager.maintaining(NOW + 10**12))
    assert log.size == size
    log.update_config(LogConfig(retention_ms=-1, retention_bytes=size - 2 * segment + 1))
    finish(manager.maintaining(NOW))
    assert log.size == size - segment
    log.update_config(LogConfig(retention_ms=-1, retention_bytes=size - 2 * segment))
    finish(manager.maintaining(NOW))
    assert (log.size, log.log_start_offset) == (size - 2 * segment, 4)
    log.retention.delete_records(7)
    finish(manager.maintaining(NOW))
    assert ([s.base_offset for s in log.segments], log.log_start_offset) == ([6], 7)
    assert log.epoch_end_offset(0) == (0, 8)


def test_old_records_without_a_time_go_by_the_files(managers: Managers) -> None:
    manager = managers.start()
    log = opened(manager, LogConfig(retention_ms=1000))
    log.append(batch(b"x", timestamp=-1))
    os.utime(log.active.file(".log"), (NOW / 1000, NOW / 1000))
    finish(manager.maintaining(NOW + 1000))
    assert log.log_start_offset == 0
    finish(manager.maintaining(NOW + 1001))
    assert log.log_start_offset == 1


def test_compaction_is_done_by_the_way(managers: Managers) -> None:
    manager = managers.start()
    log = opened(manager, COMPACT)
    for number in range(100):
        log.append(batch(b"%d" % number, key=b"%d" % (number % 7)))
    log.retention.roll()
    rounds = 1
    while manager.cleaner.compact(NOW, budget=Budget(0)):
        rounds += 1
        assert len(values_of(log)) in (100, 7)
    assert rounds > 100
    assert len(values_of(log)) == 7
    assert log.retention.cleaned_to == 100
    manager.close()
    assert (managers.path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 100\n"
    log = opened(managers.start(), COMPACT)
    assert log.retention.cleaned_to == 100
    assert values_of(log) == [b"%d" % number for number in range(93, 100)]


def test_closing_in_the_middle_of_a_round(managers: Managers) -> None:
    manager = managers.start()
    log = opened(manager, COMPACT)
    for number in range(20):
        log.append(batch(b"%d" % number, key=b"k"))
    log.retention.roll()
    for _ in range(30):
        assert manager.cleaner.compact(NOW, budget=Budget(0))
    assert [name for name in managers.names("t-0") if name.endswith(".cleaned")]
    manager.close()
    assert not [name for name in managers.names("t-0") if name.endswith(".cleaned")]
    manager = managers.start()
    log = opened(manager, COMPACT)
    assert len(values_of(log)) == 20
    manager.cleaner.compact(NOW, budget=Budget(0))
    manager.delete("t", 0)
    assert not manager.cleaner.compact(NOW)
    assert managers.warnings == []


@pytest.mark.parametrize("damage", [b"\xff\xff\xff\xff", b"X"], ids=["four bytes", "one byte"])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_damaged_log_is_not_compacted(managers: Managers, damage: bytes, compacted: bool) -> None:
    """A damaged value still decodes, and a new CRC would hide it."""
    manager = managers.start()
    log = opened(manager, COMPACT)
    log.append(batch(b"value", key=b"other"))
    for number in range(3):
        log.append(batch(b"%d" % number, key=b"k"))
    log.retention.roll()
    if compacted:
        assert not manager.cleaner.compact(NOW)
        log.append(batch(b"new", key=b"other"))
        log.retention.roll()
    segment = log.segments[0]
    before = Path(segment.path).read_bytes()
    at = before.index(b"value")
    spoilt = before[:at] + damage + before[at + len(damage) :]
    Path(segment.path).write_bytes(spoilt)
    for _ in range(3):
        assert not manager.cleaner.compact(NOW)
    (warning,) = managers.warnings
    assert warning == (
        "t-0: compaction failed: the CRC of the batch at byte 0 (offset 0) does not match its bytes"
    )
    assert Path(segment.path).read_bytes() == spoilt
    log.append(batch(b"more", key=b"k"))


def test_a_new_topic_does_not_begin_where_a_deleted_one_did(managers: Managers) -> None:
    manager = managers.start()
    log = opened(manager)
    for number in range(9):
        log.append(batch(b"%d" % number))
    log.retention.delete_records(5)
    manager.flush()
    assert "t 0 5" in (managers.path / "log-start-offset-checkpoint").read_text()
    manager.delete("t", 0)
    manager.open("t", OTHER_ID, 0, LogConfig()).append(batch(b"new"))
    managers.kill(manager)
    log = managers.start().open("t", OTHER_ID, 0, LogConfig())
    assert (log.log_start_offset, values_of(log)) == (0, [b"new"])


def test_a_start_that_fails_after_a_crash_leaves_no_clean_shutdown(managers: Managers) -> None:
    """The logs were not verified, so the next start must do it."""
    manager = managers.start()
    opened(manager).append(batch(b"x"))
    managers.kill(manager)
    managers.start().close()  # before any log is opened
    assert ".kafka_cleanshutdown" not in managers.names()
    manager = managers.start()
    opened(manager)
    manager.close()
    assert ".kafka_cleanshutdown" in managers.names()
    managers.start().close()
    assert ".kafka_cleanshutdown" in managers.names()


def test_deleting_a_partition(managers: Managers) -> None:
    manager = managers.start()
    manager.environment.delete_delay_ms = 500
    log = opened(manager)
    log.append(batch(b"x"))
    heard: list[bool] = []
    log.watchers.add(lambda: heard.append(log.deleted))
    manager.delete("t", 0)
    assert heard == [True]
    assert manager.get("t", 0) is None
    assert list(manager) == []
    (folder,) = (name for name in managers.names() if name.startswith("t-0."))
    assert folder.endswith("-delete")
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        log.append(batch(b"x"))
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        log.reader.read(0, 100, 1)
    # A new one of the same name has nothing to do with it.
    new = manager.open("t", OTHER_ID, 0, LogConfig())
    assert new.end_offset == 0
    managers.clock.now += 499
    manager.remove_due()
    assert folder in managers.names()
    managers.clock.now += 1
    manager.remove_due()
    assert folder not in managers.names()
    manager.delete("t", 1)  # not there
    manager.delete("x" * 249, 0)
    long = manager.open("x" * 249, OTHER_ID, 1, LogConfig())
    manager.delete("x" * 249, 1)
    assert long.deleted


@pytest.mark.parametrize("orderly", [True, False])
def test_the_delay_of_a_deletion_counts_on_after_a_restart(
    managers: Managers, orderly: bool
) -> None:
    managers.clock.now = time.time_ns() // 1_000_000  # files have the system's time
    manager = managers.start()
    opened(manager).append(batch(b"x"))
    manager.delete("t", 0)
    for later, gone in ((59_000, False), (0, False), (61_000, True)):
        if orderly:
            manager.close()
        else:
            managers.kill(manager)
        managers.clock.now += later
        manager = managers.start()
        manager.remove_leftovers()
        manager.remove_due()
        assert any(name.endswith("-delete") for name in managers.names()) is not gone
    assert opened(manager).end_offset == 0


def test_a_folder_of_another_topic_is_set_aside(managers: Managers) -> None:
    manager = managers.start()
    opened(manager).append(batch(b"x"))
    manager.close()
    manager = managers.start()
    log = manager.open("t", OTHER_ID, 0, LogConfig())
    assert log.end_offset == 0
    assert "is renamed to" in managers.warnings[0]
    (stray,) = (name for name in managers.names() if name.endswith("-stray"))
    assert f"{0:020}.log" in managers.names(stray)
    manager.close()
    managers.start()
    assert "is ignored" in managers.warnings[1]


def test_topic_ids(managers: Managers) -> None:
    manager = managers.start()
    opened(manager).append(batch(b"x"))
    manager.close()
    # Without an id from the caller, the folder's id is used.
    manager = managers.start()
    assert manager.open("t", NULL_UUID, 0, LogConfig()).topic_id == TOPIC_ID
    manager.close()
    # Not known to the folder: it is written there.
    path = managers.path / "t-0" / "partition.metadata"
    path.unlink()
    manager = managers.start()
    assert opened(manager).end_offset == 1
    assert "ASNFZ4mrze8BI0VniavN7w" in path.read_text()
    assert managers.warnings == []


@pytest.mark.parametrize(
    "content",
    [
        "version: 0\ntopic_id: ASNFZ4mrze8BI0VniavN7w==\n",
        "version: 0\ntopic_id: ASNFZ4mrze8BI0VniavN7w",
        "version: 1\ntopic_id: ASNFZ4mrze8BI0VniavN7w\n",
        "version:  0\r\ntopic_id:\tASNFZ4mrze8BI0VniavN7w\r\n",
    ],
)
def test_topic_ids_as_other_tools_write_them(managers: Managers, content: str) -> None:
    manager = managers.start()
    opened(manager).append(batch(b"x"))
    manager.close()
    path = managers.path / "t-0" / "partition.metadata"
    path.write_bytes(content.encode())
    manager = managers.start()
    assert opened(manager).end_offset == 1
    assert managers.warnings == []
    manager.close()
    assert path.read_bytes() == content.encode()
    # The folder of another topic is not used for this one.
    manager = managers.start()
    assert manager.open("t", OTHER_ID, 0, LogConfig()).end_offset == 0
    assert "belongs to a deleted topic" in managers.warnings[0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "does not contain a version and a topic_id"),
        (b"rubbish", "does not contain a version and a topic_id"),
        (b"\0" * 43, "does not contain a version and a topic_id"),
        (b"version: -1\ntopic_id: ASNFZ4mrze8BI0VniavN7w\n", "does not contain"),
        (b"version: 0\ntopic_id: ASNFZ4mrze8BI0VniavN7\n", "is not a uuid"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n", "is null"),
    ],
)
def test_a_folder_with_an_unreadable_topic_id_is_set_aside(
    managers: Managers, caplog: pytest.LogCaptureFixture, content: bytes, reason: str
) -> None:
    manager = managers.start()
    opened(manager).append(batch(b"x"))
    manager.close()
    path = managers.path / "t-0" / "partition.metadata"
    path.write_bytes(content)
    manager = managers.start()
    log = opened(manager)
    assert (log.end_offset, log.topic_id) == (0, TOPIC_ID)
    (stray,) = (name for name in managers.names() if name.endswith("-stray"))
    (error,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert error.getMessage().startswith(f"{path}: ")
    assert reason in error.getMessage()
    assert stray in error.getMessage()
    manager.close()
    # Nothing is lost: the message explains how to restore it.
    set_aside = managers.path / stray
    shutil.rmtree(managers.path / "t-0")
    (set_aside / "partition.metadata").write_text("version: 0\ntopic_id: ASNFZ4mrze8BI0VniavN7w\n")
    set_aside.rename(managers.path / "t-0")
    assert values_of(opened(managers.start())) == [b"x"]


def test_a_partition_whose_topic_id_the_disk_cannot_return_is_offline(
    managers: Managers,
) -> None:
    manager = managers.start()
    opened(manager)
    manager.close()
    path = managers.path / "t-0" / "partition.metadata"
    path.unlink()
    path.mkdir()
    log = opened(managers.start())
    assert "Is a directory" in log.offline and str(path) in log.offline


@pytest.mark.parametrize(
    "content", [b"", b"rubbish", b"1\n0\n", b"0\nx\n", b"0\n1\nt 0\n", b"0\n3\nt 0 1\n", b"\xff"]
)
def test_checkpoints_that_cannot_be_read_are_passed_over(
    managers: Managers, content: bytes
) -> None:
    manager = managers.start()
    opened(manager).append(batch(b"x"))
    manager.close()
    for path in managers.path.glob("*-checkpoint"):
        path.write_bytes(content)
    (managers.path / "cleaner-offset-checkpoint").write_bytes(content)
    manager = managers.start()
    assert opened(manager).end_offset == 1
    assert len(managers.warnings) == 3


def test_folders_that_cannot_be_used(managers: Managers, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StorageError, match="file"):
        LogManager([file], Environment())
    with pytest.raises(StorageError, match="log folder"):
        LogManager([file / "below"], Environment())
    manager = managers.start()
    (managers.path / "t-0").write_text("no folder")
    with pytest.raises(StorageError, match="t-0"):
        opened(manager)
    (managers.path / "u-0").mkdir()
    (managers.path / "u-0" / f"{0:020}.log").mkdir()
    manager.close()
    manager = managers.start()
    assert "u-0" in manager.open("u", TOPIC_ID, 0, LogConfig()).offline
    # Folders that are not partitions are ignored.
    (managers.path / "some-folder").mkdir()
    (managers.path / "v-0").mkdir()
    for name in ("notes.txt", "99999999999999999999.log", "x.log", "1.log", f"{5:020}.snapshot"):
        (managers.path / "v-0" / name).write_text("something")
    manager.close()
    manager = managers.start()
    assert manager.open("v", TOPIC_ID, 0, LogConfig()).end_offset == 0


def test_new_settings_hold_at_once(managers: Managers) -> None:
    manager = managers.start()
    log = opened(manager)
    other = manager.open("u", OTHER_ID, 0, LogConfig())
    manager.update_config("t", LogConfig(max_message_bytes=10))
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        log.append(batch(b"x"))
    other.append(batch(b"x"))


def test_files_of_closed_segments_are_given_up(managers: Managers) -> None:
    manager = managers.start()
    log = opened(manager, LogConfig(segment_bytes=100, retention_ms=-1))
    for _ in range(50):
        log.append(batch(b"x"))
    values = values_of(log)
    before = len(os.listdir("/dev/fd"))
    finish(manager.maintaining(NOW))
    assert len(os.listdir("/dev/fd")) <= before - 40
    assert values_of(log) == values
    check_indexes(log)
