"""The log folders of a broker, and the partitions in them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from uuid import UUID

from krammar.broker.errors import ApiError
from krammar.broker.log.compaction import Cleaner
from krammar.broker.log.environment import Environment
from krammar.broker.log.files import StorageError, can_continue, remove
from krammar.broker.log.flusher import Flusher
from krammar.broker.log.folder import LogFolder
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.log_config import INT64_MAX, LogConfig
from krammar.logfiles.checkpoints import read_topic_id
from krammar.logfiles.damage import DamageError
from krammar.logfiles.names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    DELETE_SUFFIX,
    HIGH_WATERMARKS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    RUNNING,
    STRAY_SUFFIX,
    partition_folder,
)
from krammar.logfiles.uuids import format_uuid
from krammar.util.durable import write_atomically
from krammar.util.turns import Steps, finish
from krammar.wire.primitives import NULL_UUID

_OTHERS = {("__cluster_metadata", 0)}  # not opened here; others that were not opened are unverified


class LogManager:
    """The logs of all partitions, spread over one or more folders.

    Attributes:
        cleaner: compacts the logs
        flusher: flushes the logs without waiting for the disk
    """

    def __init__(self, dirs: Sequence[Path], environment: Environment) -> None:
        """Lock the folders, and create missing ones. Raises StorageError."""
        self.environment = environment
        environment.log_start_moved = self._checkpoint_start
        environment.flush_failed = self._note_loss
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        self.folders: list[LogFolder] = []
        self.cleaner = Cleaner(self, environment, self._checkpoint_cleaner)
        self.flusher = Flusher(self, self.folders, environment, self._note_offsets)
        # Deleted partitions whose folders still have their names.
        self._doomed: set[tuple[str, int]] = set()
        self._closed = False
        try:
            for path in dirs:
                self.folders.append(LogFolder(Path(path), environment))
        except StorageError:
            for folder in self.folders:
                folder.unlock()
            raise

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def lost_power(self) -> bool:
        """Whether a power cut, or a flush that failed in an earlier run, may have lost acknowledged records, and
        ``repaired`` was not called since.
        """
        return any(folder.lost_power for folder in self.folders)

    def repaired(self) -> None:
        """Note that no producer can continue a transaction from before the power cut.

        Until then, each start finds the power cut again, even after a kill.
        """
        for folder in self.folders:
            if folder.lost_power:
                with self.environment.warning(f"{folder.path / RUNNING}: cannot be written"):
                    folder.note_running()

    def _note_loss(self, path: Path) -> None:
        for folder in self.folders:
            if folder.path == path.parent:
                with self.environment.warning(f"{folder.path / RUNNING}: cannot be removed"):
                    folder.note_loss()

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    follow = get  # for a single node, which leads all partitions

    def open(self, topic: str, topic_id: UUID, partition: int, config: LogConfig) -> PartitionLog:
        """Return the log of a partition; open its folder, or create it.

        A log that the disk cannot return is offline until the next start.

        Raises:
            StorageError: the log cannot be created, or the disk or a limit is full.
        """
        key = topic, partition
        log = self._logs.get(key)
        if log is not None:
            return log
        self._set_aside(key)  # of a deleted topic with this name
        known_in = (each for each in self.folders if key in each.partitions)
        folder = next(known_in, None) or min(self.folders, key=lambda each: len(each.partitions))
        try:
            # The only place where names and numbers of the metadata log become a path.
            path = folder.path / partition_folder(topic, partition)
        except ValueError as error:
            raise StorageError(f"no folder in {folder.path} can be created: {error}") from None
        known = key in folder.partitions
        try:
            if known:
                topic_id = self._check_topic_id(folder, key, topic_id)
                known = key in folder.partitions
            if not known:
                folder.forget(key)
                # Of a deleted log with this name. After a power cut, they would delete records of
                # the new one.
                for name in (RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS):
                    folder.write(name)
                path.mkdir(exist_ok=True)
                self._write_topic_id(path, topic_id)
                folder.partitions[key] = path
            log = self._load(folder, key, topic_id, config, clean=folder.clean or not known)
        except OSError as error:
            if key not in folder.partitions or not known or can_continue(error):
                raise StorageError(f"{error.filename or path}: {error.strerror or error}") from None
            log = self._load(folder, key, topic_id, config, failed=error)
        self._logs[key] = log
        if config.flush_ms < INT64_MAX:
            self.environment.flush_planned()
        return log

    def _load(
        self,
        folder: LogFolder,
        key: tuple[str, int],
        topic_id: UUID,
        config: LogConfig,
        *,
        clean: bool = False,
        failed: OSError | None = None,
    ) -> PartitionLog:
        return PartitionLog(
            folder.partitions[key],
            *key,
            topic_id,
            config,
            self.environment,
            clean=clean,
            recovery_point=folder.offsets[RECOVERY_POINTS].get(key, 0),
            log_start_offset=folder.offsets[LOG_STARTS].get(key, 0),
            cleaned_to=folder.offsets[CLEANER_OFFSETS].get(key, 0),
            failed=failed,
        )

    def _check_topic_id(self, folder: LogFolder, key: tuple[str, int], topic_id: UUID) -> UUID:
        """Set aside a folder that belongs to another topic with the same name, or to an unknown one."""
        path = folder.partitions[key]
        try:
            found = read_topic_id(path)
        except DamageError as error:
            stray = folder.rename(key, STRAY_SUFFIX)
            self.environment.error(
                f"{path / PARTITION_METADATA}: {error}. {path} may belong to another topic: it is renamed"
                f" to {stray.name}, and the partition begins empty. To restore its records, stop the"
                f" broker, correct the file, and rename the folder to {path.name}"
            )
            return topic_id
        if topic_id == NULL_UUID:
            return found or NULL_UUID
        if found is None:
            self._write_topic_id(path, topic_id)
        elif found != topic_id:
            stray = folder.rename(key, STRAY_SUFFIX)
            text = f"{path} belongs to a deleted topic; it is renamed to {stray.name}"
            self.environment.warn(text)
        return topic_id

    def _write_topic_id(self, path: Path, topic_id: UUID) -> None:
        text = f"version: 0\ntopic_id: {format_uuid(topic_id)}\n"
        # The file is forced to the disk with the first batches of the log.
        write_atomically(path / PARTITION_METADATA, text.encode(), durable=False)

    def delete(self, topic: str, partition: int) -> None:
        """Delete a partition."""
        finish(self.deleting(topic, [partition]))

    def deleting(self, topic: str, partitions: Iterable[int]) -> Steps[None]:
        """Delete partitions: close their logs at once, and rename their folders in steps.

        The renamed folders are removed after a delay.
        """
        keys = [(topic, partition) for partition in partitions]
        for key in keys:
            log = self._logs.pop(key, None)
            if log is not None:
                log.mark_deleted()
        self._doomed.update(keys)
        for key in keys:
            self._set_aside(key)
            yield None

    def _set_aside(self, key: tuple[str, int]) -> None:
        """Rename the folder of a deleted partition, unless that is done."""
        if key not in self._doomed:
            return
        self._doomed.remove(key)
        for folder in self.folders:
            path = folder.partitions.get(key)
            if path is None:
                continue
            try:
                target = folder.rename(key, DELETE_SUFFIX)
                self.environment.remove_later([os.fspath(target)], self.environment.delete_delay_ms)
            except OSError as error:
                folder.forget(key)
                self.environment.warn(f"{path}: cannot be deleted: {error.strerror}")

    def delete_removed(self, topic_ids: Set[UUID]) -> None:
        """Delete the folders of deleted topics, in case a crash has interrupted their deletion."""
        for folder in self.folders if topic_ids else ():
            for (topic, partition), path in list(folder.partitions.items()):
                with contextlib.suppress(OSError, DamageError):
                    if read_topic_id(path) in topic_ids:
                        self.delete(topic, partition)

    def remove_leftovers(self) -> None:
        """Schedule the removal of folders that an earlier run has deleted, with the usual delay."""
        environment = self.environment
        for folder in self.folders:
            for path in folder.leftovers:
                with contextlib.suppress(OSError):
                    # The rename has set the ctime.
                    deleted_ms = min(os.stat(path).st_ctime_ns // 1_000_000, environment.now_ms())
                    environment.remove_later([path], environment.delete_delay_ms, deleted_ms)
            folder.leftovers = []

    def remove_due(self) -> None:
        """Remove the deleted files and folders that are due."""
        remove(self.environment.take_due(self.environment.now_ms()))

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Apply new settings to all partitions of a topic."""
        for log in self:
            if log.topic == topic:
                log.update_config(config)
        if config.flush_ms < INT64_MAX:
            self.environment.flush_planned()

    def maintaining(self, now_ms: int | None = None) -> Steps[None]:
        """Apply retention to all logs, and remove expired producers, in steps."""
        now = self.environment.now_ms() if now_ms is None else now_ms
        for log in self:
            if log.closed:
                continue
            text = f"{log.path.name}: retention failed"
            with self.environment.warning(text, (ApiError, OSError)):
                log.retention.apply(now)
            log.producers.expire(now, self.environment.producer_expiry_ms)
            log.release()
            yield None

    def truncate(self, log: PartitionLog, offset: int) -> int:
        """Remove the records of a log from ``offset`` on, in whole batches. Returns its new end offset.

        Raises ApiError if the offset is out of range or the disk has failed, and OSError.
        """
        self.flusher.finish()  # it uses the segments
        self.cleaner.stop(log)
        end = log.retention.truncate_to(offset)
        self._checkpoint()
        return end

    def _checkpoint_cleaner(self, log: PartitionLog) -> None:
        for folder in self.folders:
            key = log.topic, log.partition
            if folder.partitions.get(key) == log.path:
                folder.offsets[CLEANER_OFFSETS][key] = log.retention.cleaned_to
                with self.environment.warning(
                    f"{folder.path / CLEANER_OFFSETS}: cannot be written"
                ):
                    folder.write(CLEANER_OFFSETS)

    def flush(self) -> None:
        """Force what is due to the disk, then write the recovery points. Raises OSError."""
        self.flusher.flush()
        self._checkpoint()

    def _checkpoint_start(self, topic: str, partition: int) -> None:
        log = self._logs.get((topic, partition))
        self._note_offsets([] if log is None else [log])
        for folder in self.folders:
            folder.write(LOG_STARTS)

    def _note_offsets(self, logs: Iterable[PartitionLog]) -> None:
        """Note the offsets of logs for the checkpoint files."""
        for log in logs:
            key = log.topic, log.partition
            if self._logs.get(key) is not log:
                continue
            offsets = next(each.offsets for each in self.folders if key in each.partitions)
            offsets[RECOVERY_POINTS][key] = log.durability.recovery_point
            offsets[HIGH_WATERMARKS][key] = log.end_offset
            if log.log_start_offset > log.segments[0].base_offset:
                offsets[LOG_STARTS][key] = log.log_start_offset
            else:
                offsets[LOG_STARTS].pop(key, None)

    def _checkpoint(self) -> None:
        self._note_offsets(self)
        for folder in self.folders:
            folder.write_all()

    def close(self) -> None:
        """Close all logs, so that they can be opened without verification. Never raises."""
        if self._closed:
            return
        self._closed = True
        self.cleaner.stop()
        # One log after another would take minutes for thousands of partitions.
        for flush in (self.flusher.finish, self.flusher.flush_completely):
            with self.environment.warning("cannot force the logs to the disk"):
                flush()
        clean = not self.lost_power and not any(log.offline for log in self)
        clean &= all(f.clean or f.partitions.keys() - self._logs <= _OTHERS for f in self.folders)
        for key in list(self._doomed):
            self._set_aside(key)
        for log in self:
            try:
                log.close()
            except OSError as error:
                clean = False
                self.environment.warn(f"{log.path.name}: cannot be closed cleanly: {error}")
        self.remove_due()
        with self.environment.warning("checkpoints could not be written"):
            self._checkpoint()
            for folder in self.folders if clean else ():
                write_atomically(
                    folder.path / CLEAN_SHUTDOWN,
                    b'{"version":0,"brokerEpoch":-1}',
                    durable=self.environment.durable,
                )
        for folder in self.folders:
            folder.unlock()
        self._logs.clear()
