"""The log folders of a broker and the partitions in them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from threading import Thread
from uuid import UUID, uuid4
from weakref import WeakSet

from krammar.broker.errors import ApiError
from krammar.broker.storage.compaction import Compaction
from krammar.broker.storage.environment import Environment, system_ms
from krammar.broker.storage.files import (
    CLEAN_SHUTDOWN,
    DELETE_SUFFIX,
    LOCK,
    STRAY_SUFFIX,
    StorageError,
    read_offsets,
    read_topic_id,
    sync,
    write_atomically,
    write_offsets,
    write_topic_id,
)
from krammar.broker.storage.index import IndexFault
from krammar.broker.storage.log import PartitionLog
from krammar.broker.storage.log_config import INT64_MAX, LogConfig
from krammar.broker.storage.segment import Damage
from krammar.wire.errors import WireError
from krammar.wire.primitives import NULL_UUID

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

_PARTITION = re.compile(r"(.+)-(0|[1-9][0-9]*)")
_MARKED = re.compile(r".+\.[0-9a-f]{32}-(delete|stray|future)")


class LogFolder:
    """One of ``log.dirs``: held by a lock, with its checkpoint files."""

    def __init__(self, path: Path, environment: Environment) -> None:
        self.path = path
        self._environment = environment
        self._written: dict[str, dict[tuple[str, int], int]] = {}
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StorageError(f"log folder {path}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Kafka locks the file by another call.
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise StorageError(f"log folder {path} is in use by another broker") from None
        try:
            self.clean = (path / CLEAN_SHUTDOWN).exists()
            (path / CLEAN_SHUTDOWN).unlink(missing_ok=True)
            self.recovery_points = self._read(RECOVERY_POINTS)
            self.log_starts = self._read(LOG_STARTS)
            self.cleaner_offsets = self._read(CLEANER_OFFSETS)
            self.partitions = self._find_partitions()
        except OSError as error:
            self.unlock()
            raise StorageError(
                f"log folder {path}: {error.filename or ''}: {error.strerror}"
            ) from None

    def _read(self, name: str) -> dict[tuple[str, int], int]:
        try:
            return read_offsets(self.path / name)
        except ValueError as error:
            self._environment.warn(f"{self.path / name}: {error}; passed over")
            return {}

    def _find_partitions(self) -> dict[tuple[str, int], Path]:
        """The folders of partitions. Those of deleted ones are removed."""
        found = {}
        with os.scandir(self.path) as entries:
            folders = [entry.name for entry in entries if entry.is_dir()]
        for name in folders:
            if name.endswith(DELETE_SUFFIX) and _MARKED.fullmatch(name):
                self._environment.later.append((0, os.fspath(self.path / name)))
            elif _MARKED.fullmatch(name):
                self._environment.warn(f"{self.path / name}: left alone")
            elif match := _PARTITION.fullmatch(name):
                found[match[1], int(match[2])] = self.path / name
        return found

    def write(self, name: str, offsets: dict[tuple[str, int], int], *, sync: bool = False) -> None:
        """Write a checkpoint file, unless it says the same already. Raises OSError."""
        if self._written.get(name) != offsets:
            write_offsets(self.path / name, offsets.items(), sync=sync)
            self._written[name] = dict(offsets)

    def unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class _Flushing(Thread):
    """Waits for the disk. It touches nothing but files, and logs are told by the one who joins it."""

    def __init__(self) -> None:
        super().__init__(name="krammar-flush", daemon=True)
        self.logs: list[tuple[PartitionLog, int, list[str]]] = []
        self.done = 0
        self.error: OSError | None = None

    def run(self) -> None:
        for _, _, paths in self.logs:
            for path in paths:
                try:
                    sync(path)
                except FileNotFoundError:
                    pass  # deleted in the meantime, or there never was one
                except OSError as error:
                    self.error = error
                    return
            self.done += 1


class LogManager:
    """Partitions by topic and number, spread over one or several folders."""

    def __init__(
        self,
        dirs: Sequence[Path],
        *,
        fsync: str = "interval",
        now_ms: Callable[[], int] = system_ms,
        warn: Callable[[str], None] | None = None,
        producer_expiry_ms: int = 86_400_000,
    ) -> None:
        """Lock the folders, which are made where there are none. Raises StorageError."""
        self.environment = Environment(
            now_ms=now_ms, fsync=fsync, producer_expiry_ms=producer_expiry_ms
        )
        if warn is not None:
            self.environment.warn = warn
        self.environment.log_start_moved = self._checkpoint_starts
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        self.folders: list[LogFolder] = []
        self._closed = False
        self._flushing: _Flushing | None = None
        # The round of compaction under way, and what is left of it.
        self._round: Compaction | None = None
        self._steps: Iterator[None] = iter(())
        self._uncleanable: WeakSet[PartitionLog] = WeakSet()
        try:
            for path in dirs:
                self.folders.append(LogFolder(Path(path), self.environment))
        except StorageError:
            for folder in self.folders:
                folder.unlock()
            raise

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def open(self, topic: str, topic_id: UUID, partition: int, config: LogConfig) -> PartitionLog:
        """The log of a partition: that of an existing folder, in order again, or a new one. Raises
        StorageError."""
        key = topic, partition
        log = self._logs.get(key)
        if log is not None:
            return log
        folder = self._folder_of(key)
        path = folder.path / f"{topic}-{partition}"
        try:
            if key in folder.partitions:
                topic_id = self._check_topic_id(folder, key, topic_id)
            known = key in folder.partitions
            if not known:
                path.mkdir(exist_ok=True)
                write_topic_id(path, topic_id)
                folder.partitions[key] = path
            log = PartitionLog(
                path,
                topic,
                partition,
                topic_id,
                config,
                self.environment,
                clean=folder.clean or not known,
                recovery_point=folder.recovery_points.get(key, 0) if known else 0,
                log_start_offset=folder.log_starts.get(key, 0) if known else 0,
                cleaned_to=folder.cleaner_offsets.get(key, 0) if known else 0,
            )
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror or error}") from None
        self._logs[key] = log
        return log

    def _folder_of(self, key: tuple[str, int]) -> LogFolder:
        for folder in self.folders:
            if key in folder.partitions:
                return folder
        return min(self.folders, key=lambda folder: len(folder.partitions))

    def _check_topic_id(self, folder: LogFolder, key: tuple[str, int], topic_id: UUID) -> UUID:
        """Set a folder aside that belongs to another topic of the same name."""
        path = folder.partitions[key]
        try:
            found = read_topic_id(path)
        except ValueError as error:
            self.environment.warn(f"{path}: {error}")
            found = NULL_UUID
        if topic_id == NULL_UUID:
            return found
        if found == NULL_UUID:
            write_topic_id(path, topic_id)
        elif found != topic_id:
            stray = path.with_name(f"{path.name}.{uuid4().hex}{STRAY_SUFFIX}")
            self.environment.warn(
                f"{path} is of a topic that was deleted; it is set aside as {stray.name}"
            )
            path.rename(stray)
            del folder.partitions[key]
        return topic_id

    def delete(self, topic: str, partition: int) -> None:
        """Delete a partition: its folder is renamed now and removed a while later."""
        key = topic, partition
        log = self._logs.pop(key, None)
        for folder in self.folders:
            path = folder.partitions.pop(key, None)
            if path is None:
                continue
            for offsets in (folder.recovery_points, folder.log_starts, folder.cleaner_offsets):
                offsets.pop(key, None)
            # A file name has 255 bytes at most.
            ending = f".{uuid4().hex}{DELETE_SUFFIX}"
            target = path.with_name(path.name[: 255 - len(ending)] + ending)
            try:
                path.rename(target)
            except OSError as error:
                self.environment.warn(f"{path}: cannot be deleted: {error.strerror}")
                continue
            delay = log.config.file_delete_delay_ms if log is not None else 0
            self.environment.remove_later([os.fspath(target)], delay)
        if log is not None:
            log.mark_deleted()

    def update_config(self, topic: str, config: LogConfig) -> None:
        """New settings for all partitions of a topic."""
        for log in self:
            if log.topic == topic:
                log.update_config(config)

    def maintain(self, now_ms: int | None = None) -> None:
        """One sweep: segments that are old enough are deleted, producers that were quiet for long are
        forgotten, and deleted files are removed."""
        now = self.environment.now_ms() if now_ms is None else now_ms
        for log in self:
            try:
                log.apply_retention(now)
            except (ApiError, OSError) as error:
                self.environment.warn(f"{log.path.name}: retention failed: {error}")
            log.producer_states.expire(now, self.environment.producer_expiry_ms)
            log.release()
        self._remove_due(now)

    def compact(self, now_ms: int | None = None, *, budget_ms: float = 100) -> bool:
        """Compact logs, the dirtiest first, for ``budget_ms`` milliseconds of time. Returns whether
        there is more to do, so that it should be called again soon."""
        now = self.environment.now_ms() if now_ms is None else now_ms
        until = time.monotonic() + budget_ms / 1000
        failed: set[PartitionLog] = set()
        while True:
            if self._round is None:
                self._round = self._next_round(now, failed)
                if self._round is None:
                    return False
                self._steps = self._round.run()
            log = self._round.log
            try:
                for _ in self._steps:
                    if time.monotonic() >= until:
                        return True
            except (OSError, WireError, Damage, IndexFault) as error:
                failed.add(log)
                if not isinstance(error, OSError):
                    self._uncleanable.add(log)
                if not log.closed:
                    self.environment.warn(f"{log.path.name}: compaction failed: {error}")
            self._checkpoint_cleaner(log)
            self._round = None

    def _next_round(self, now_ms: int, failed: set[PartitionLog]) -> Compaction | None:
        """Of the logs that are due, a round of the dirtiest one. One whose batches could not be read
        is not tried again, as in Kafka."""
        best: Compaction | None = None
        for log in self:
            if not log.config.compacts or log in failed or log in self._uncleanable:
                continue
            try:
                found = log.compaction(now_ms)
            except (OSError, Damage) as error:
                self.environment.warn(f"{log.path.name}: compaction failed: {error}")
                continue
            if found is not None and (best is None or found.dirt.ratio > best.dirt.ratio):
                best = found
        return best

    def _checkpoint_cleaner(self, log: PartitionLog) -> None:
        for folder in self.folders:
            key = log.topic, log.partition
            if folder.partitions.get(key) == log.path:
                folder.cleaner_offsets[key] = log.cleaned_to
                try:
                    folder.write(CLEANER_OFFSETS, folder.cleaner_offsets)
                except OSError as error:
                    self.environment.warn(f"{folder.path / CLEANER_OFFSETS}: {error}")

    def _remove_due(self, now_ms: int) -> None:
        later = self.environment.later
        due = [path for at, path in later if at <= now_ms]
        if due:
            later[:] = [entry for entry in later if entry[0] > now_ms]
            for path in due:
                if os.path.isdir(path):
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    with contextlib.suppress(OSError):
                        os.unlink(path)

    def flush(self) -> None:
        """Bring all logs to the disk, then note how far, which is where recovery will begin. Raises
        OSError."""
        self._finish_flush()
        flushing = self._begin_flush()
        flushing.run()
        self._flushing = flushing
        self._finish_flush()

    def flush_in_background(self) -> None:
        """The same without waiting for the disk: what one call has begun, a later one ends. Raises
        OSError for what went wrong since the last call."""
        if self._flushing is not None:
            if self._flushing.is_alive():
                return
            self._finish_flush()
        flushing = self._begin_flush()
        if flushing.logs:
            self._flushing = flushing
            flushing.start()

    def _begin_flush(self) -> _Flushing:
        flushing = _Flushing()
        for log in self:
            try:
                paths = log.begin_flush()
            except OSError as error:
                flushing.error = error
                continue
            if paths is not None:
                flushing.logs.append((log, log.end_offset, paths))
        return flushing

    def _finish_flush(self) -> None:
        flushing, self._flushing = self._flushing, None
        if flushing is None:
            return
        if flushing.is_alive():
            flushing.join()
        for log, end_offset, _ in flushing.logs[: flushing.done]:
            log.finish_flush(end_offset)
        self._checkpoint()
        if flushing.error is not None:
            raise flushing.error

    def _checkpoint_starts(self) -> None:
        try:
            for folder in self.folders:
                self._write_starts(folder)
        except OSError as error:
            self.environment.warn(f"{LOG_STARTS} could not be written: {error}")

    def _write_starts(self, folder: LogFolder) -> None:
        for key in folder.partitions:
            log = self._logs.get(key)
            if log is None:
                continue
            if log.log_start_offset > log.segments[0].base_offset:
                folder.log_starts[key] = log.log_start_offset
            else:
                folder.log_starts.pop(key, None)
        folder.write(LOG_STARTS, folder.log_starts, sync=self.environment.fsync != "never")

    def _checkpoint(self) -> None:
        sync = self.environment.fsync != "never"
        for folder in self.folders:
            logs = [
                (key, log) for key in folder.partitions if (log := self._logs.get(key)) is not None
            ]
            for key, log in logs:
                folder.recovery_points[key] = log.recovery_point
            folder.write(RECOVERY_POINTS, folder.recovery_points, sync=sync)
            self._write_starts(folder)
            folder.write(HIGH_WATERMARKS, {key: log.end_offset for key, log in logs})

    def close(self) -> None:
        """Close all logs such that they open without being verified. Never raises."""
        if self._closed:
            return
        self._closed = True
        if isinstance(self._steps, Generator):
            self._steps.close()
        self._round = None
        clean = True
        try:
            self._finish_flush()
        except OSError as error:
            self.environment.warn(f"logs could not be written through to disk: {error}")
        for log in self:
            try:
                log.close()
            except OSError as error:
                clean = False
                self.environment.warn(f"{log.path.name}: not closed in order: {error}")
        self._remove_due(INT64_MAX)
        try:
            self._checkpoint()
            for folder in self.folders:
                if clean:
                    text = json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":"))
                    write_atomically(folder.path / CLEAN_SHUTDOWN, text.encode())
        except OSError as error:
            self.environment.warn(f"checkpoints could not be written: {error}")
        for folder in self.folders:
            folder.unlock()
        self._logs.clear()
