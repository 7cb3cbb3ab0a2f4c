"""Opens a partition's folder, and repairs what a crash or another broker has left."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from krammar.broker.log.environment import Environment
from krammar.broker.log.epochs import LeaderEpochs
from krammar.broker.log.files import remove
from krammar.broker.log.log_config import INT64_MAX
from krammar.broker.log.producers import Producers
from krammar.broker.log.segment import LogSegment, segment_of
from krammar.logfiles.damage import DamageError
from krammar.logfiles.names import (
    CLEANED,
    DELETED,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    SEGMENT_FILES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    segment_bases,
    snapshot_offsets,
    stem,
)
from krammar.logfiles.snapshot import read_snapshot_file
from krammar.util.durable import sync, write_again, write_from
from krammar.wire.batches import BatchHeader
from krammar.wire.errors import WireError

# How far back the last batches of producers are searched, in entries of the index: some 100 kB, or
# this number of batches if they are larger.
_RECALLED_ENTRIES = 24


class Loaded:
    """The content of a partition's folder."""

    def __init__(
        self,
        folder: Path,
        interval: int,
        environment: Environment,
        *,
        verify_from: int | None,
        log_start_offset: int,
    ) -> None:
        """Open a folder. Raises OSError.

        Args:
            interval: bytes per index entry
            verify_from: the log is verified from this offset on, and truncated at the first corrupt
                batch; None after a clean shutdown
            log_start_offset: the first offset that can be read
        """
        self._folder = folder
        self._interval = interval
        self._environment = environment
        self._verify_from = verify_from
        self._names = self._tidy(os.listdir(folder))
        path = os.fspath(folder)
        self.segments = [
            LogSegment(path, base, interval, os.path.getsize(f"{path}/{stem(base)}{LOG}"))
            for base in segment_bases(self._names)
        ]
        try:
            self._read(log_start_offset)
        finally:
            for segment in self.segments:
                segment.close()

    def _read(self, log_start_offset: int) -> None:
        folder, environment = self._folder, self._environment
        self.epochs = LeaderEpochs(folder)
        epochs_known = LEADER_EPOCHS in self._names
        try:
            self.epochs.read()
        except DamageError as error:
            self._warn(f"{LEADER_EPOCHS}: {error}; rebuilt from the log")
            epochs_known = False
        self.end_offset = self._recover() if self.segments else log_start_offset
        if self.end_offset < log_start_offset:
            self._warn(
                f"the log ends at offset {self.end_offset}, before its start offset"
                f" {log_start_offset}; a new log begins there"
            )
            for segment in self.segments:
                environment.remove_later(segment.mark_deleted(), 0)
            self.segments = []
            self.end_offset = log_start_offset
        if not self.segments:
            self.segments = [LogSegment.create(os.fspath(folder), log_start_offset, self._interval)]
        for segment in self.segments:
            segment.created_ms = environment.now_ms()
        self.log_start_offset = max(log_start_offset, self.segments[0].base_offset)
        self._add_indexes()
        if not epochs_known and self.end_offset > self.log_start_offset:
            for segment in self.segments:
                with contextlib.suppress(DamageError):
                    for header in segment.scan():
                        self.epochs.begin(header.partition_leader_epoch, header.base_offset)
        self.epochs.cut(self.end_offset + 1)
        self.epochs.cut_before(self.log_start_offset)
        self.producers = Producers(folder.name)
        self._load_producers()

    def _warn(self, text: str) -> None:
        self._environment.warn(f"{self._folder.name}: {text}")

    def _tidy(self, names: list[str]) -> set[str]:
        """Remove leftovers, and finish a replacement of segments by compaction. Returns the names of all files.

        A new segment's files are ``.cleaned`` while they are written. When they are complete, all
        become ``.swap``, and then the old segments are removed. So ``.swap`` files are incomplete
        if files of the same segment are still ``.cleaned``; those of an earlier one too, because
        Kafka replaces one segment by several, the last one first.
        """
        deleted = [name for name in names if name.endswith((DELETED, ".tmp"))]
        leftovers = [name for name in names if name.endswith(CLEANED)]
        incomplete = min((name[:20] for name in leftovers), default="~")
        swaps: list[str] = []
        for name in names:
            if name.endswith(SWAP):
                (leftovers if name[:20] >= incomplete else swaps).append(name)
        remove(os.fspath(self._folder / name) for name in deleted + leftovers)
        if not leftovers and not swaps:
            return set(names).difference(deleted)
        self._finish_swap(sorted(swaps))
        if self._environment.durable:
            sync(self._folder)
        self._warn(
            f"an interrupted compaction: {len(leftovers)} incomplete files removed, {len(swaps)}"
            " complete files put in place"
        )
        return set(os.listdir(self._folder))

    def _finish_swap(self, swaps: list[str]) -> None:
        folder = self._folder
        path = os.fspath(folder)
        for name in swaps:
            if not name.endswith(LOG + SWAP):
                continue
            base = int(name[:20])
            new = LogSegment(path, base, self._interval, os.path.getsize(folder / name), SWAP)
            end = base + 1
            with contextlib.suppress(DamageError):
                for header in new.scan():
                    end = header.next_offset
            new.close()
            for other in segment_bases(os.listdir(folder)):
                if base <= other < end:
                    LogSegment(path, other, self._interval).remove()
        for name in swaps:
            if name.endswith(tuple(ending + SWAP for ending in SEGMENT_FILES)):
                os.rename(folder / name, folder / name.removesuffix(SWAP))
            else:
                os.unlink(folder / name)

    def _recover(self) -> int:
        """Verify the log, or only find its end after a clean shutdown. Returns the end offset."""
        segments = self.segments
        verify_from = self._verify_from
        first = len(segments) - 1 if verify_from is None else segment_of(segments, verify_from)
        next_offset = segments[first].base_offset
        for number in range(first, len(segments)):
            segment = segments[number]
            if verify_from is None:
                position, next_offset = segment.resume(INT64_MAX)
                batches = segment.scan(position)
            else:
                position, next_offset = segment.resume(verify_from)
                batches = segment.verify(position, next_offset)
            try:
                for header in batches:
                    segment.note(header)
                    self.epochs.begin(header.partition_leader_epoch, header.base_offset)
                    next_offset = header.next_offset
            except DamageError as damage:
                lost = segment.size - damage.position
                following = segments[number + 1 :]
                del segments[number + 1 :]
                self._warn(
                    f"truncated at offset {next_offset}: the last {lost} bytes of"
                    f" {os.path.basename(segment.path)} are no valid batch"
                    + (f"; {len(following)} later segments removed" if following else "")
                )
                segment.truncate(damage.position)
                for other in following:
                    other.remove()
                self._force_again(segment, position)
                break
            if verify_from is not None:
                self._force_again(segment, position)
            if number < len(segments) - 1:
                segment.finish_time_index()
                segment.write_indexes()
        return max(next_offset, segments[-1].base_offset)

    def _force_again(self, segment: LogSegment, position: int) -> None:
        """Write the verified bytes from ``position`` on again, so that the next flush stores them."""
        if self._environment.durable:
            with self._environment.warning(f"{segment.path}: cannot be written again"):
                write_again(segment.fd, position, segment.size)

    def _add_indexes(self) -> None:
        """Create the missing index files."""
        for segment in self.segments:
            endings = [
                ending
                for ending in (INDEX, TIME_INDEX)
                if stem(segment.base_offset) + ending not in self._names
            ]
            if endings:
                segment.indexes  # noqa: B018  rebuilds them
                for file in map(segment.file, endings):
                    if not os.path.exists(file):
                        write_from(file, 0, b"")
                if segment is not self.segments[-1]:
                    segment.write_indexes()

    def _load_producers(self) -> None:
        """Read the newest usable snapshot, and the log from there on."""
        environment = self._environment
        segments = self.segments
        # The first segment whose transaction index must be rebuilt.
        rebuild = len(segments)
        if self._verify_from is not None:
            rebuild = segment_of(segments, self._verify_from)
        for number, segment in enumerate(segments[:rebuild]):
            if stem(segment.base_offset) + TRANSACTION_INDEX in self._names:
                try:
                    segment.transactions  # noqa: B018  reads it
                except (DamageError, OSError) as error:
                    file = segment.file(TRANSACTION_INDEX)
                    environment.warn(f"{file}: {error}; rebuilt from the log")
                    rebuild = number
                    break
        usable = segments[rebuild].base_offset if rebuild < len(segments) else self.end_offset
        start = -1
        for offset in reversed(snapshot_offsets(self._names)):
            snapshot = self._folder / f"{stem(offset)}{SNAPSHOT}"
            if offset > self.end_offset:
                snapshot.unlink(missing_ok=True)
            elif start < 0 and offset <= usable:
                try:
                    expired_ms = environment.now_ms() - environment.producer_expiry_ms
                    self.producers.load(read_snapshot_file(snapshot), expired_ms)
                except (OSError, DamageError) as error:
                    environment.warn(f"{snapshot}: {error}; the snapshot is skipped")
                    snapshot.unlink(missing_ok=True)
                else:
                    start = offset
                    self.producers.recall(self._headers_before(offset))
        try:
            self._replay(start)
        except WireError as error:
            self._warn(f"the state of producers is incomplete: {error}")

    def _headers_before(self, offset: int) -> Iterator[BatchHeader]:
        """Yield the headers of the batches shortly before ``offset``, in its segment and the previous one."""
        if offset <= self.segments[0].base_offset:
            return
        number = segment_of(self.segments, offset - 1)
        for segment in self.segments[max(number - 1, 0) : number + 1]:
            with contextlib.suppress(DamageError):
                for header in segment.scan(segment.position_before(offset, _RECALLED_ENTRIES)):
                    if header.base_offset >= offset:
                        break
                    yield header

    def _replay(self, start: int) -> None:
        """Add all batches from ``start`` on to the producers' state. Raises OSError and WireError."""
        ends = [segment.base_offset for segment in self.segments[1:]]
        for segment, end in zip(self.segments, [*ends, self.end_offset], strict=True):
            if end <= start or not segment.size:
                continue
            whole = start <= segment.base_offset
            if whole:
                segment.reset_transactions()
            position = segment.locate(start)
            for header in () if position is None else segment.scan(position):
                if header.producer_id < 0 or header.base_offset < start:
                    continue
                if not header.is_control:
                    self.producers.add_batch(header)
                    continue
                for record in segment.batch(header).control_records():
                    aborted = self.producers.add_marker(header, record)
                    if aborted is not None and whole:
                        segment.transactions.entries.append(aborted)
            if whole:
                segment.write_indexes()


class UnreadableLog(Loaded):
    """Stands for the content of a folder that cannot be read, and changes no file."""

    def __init__(self, folder: Path, interval: int, log_start_offset: int) -> None:
        self.segments = [LogSegment(os.fspath(folder), 0, interval)]
        self.end_offset = self.log_start_offset = log_start_offset
        self.epochs = LeaderEpochs(folder)
        self.producers = Producers(folder.name)
