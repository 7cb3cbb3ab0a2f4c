"""Opens a partition's folder, and repairs what a crash or another broker has left."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_wire import AbortedTxn

from krammar.broker.log.environment import Environment
from krammar.broker.log.epochs import LeaderEpochs
from krammar.broker.log.files import create
from krammar.broker.log.log_config import INT64_MAX
from krammar.broker.log.producers import Completed, Producers
from krammar.broker.log.segment import Segment
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
from krammar.wire.batches import BatchHeader, ControlRecordType
from krammar.wire.errors import WireError

# How far back the last batches of producers are searched, in entries of the index: some 100 kB, or this
# number of batches if they are larger.
_RECALLED_ENTRIES = 24
_MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


@dataclass(slots=True)
class Loaded:
    segments: list[Segment]
    end_offset: int
    log_start_offset: int
    producers: Producers
    epochs: LeaderEpochs
    snapshots: list[int]


def load(
    folder: Path,
    interval: int,
    environment: Environment,
    *,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
) -> Loaded:
    """Open a partition's folder.

    Args:
        folder: the folder
        interval: bytes per index entry
        environment: clock, warnings and removals
        clean: whether the last broker was shut down cleanly. Otherwise the log is verified from
            ``recovery_point`` on, and truncated at the first corrupt batch.
        recovery_point: offsets before this one are on the disk
        log_start_offset: the first offset that can be read

    Raises:
        OSError: a file cannot be read or written.
    """
    warn = environment.warn
    name = folder.name
    names = _tidy(folder, interval, os.listdir(folder), warn_prefix=name, environment=environment)
    bases = segment_bases(names)
    path = os.fspath(folder)
    segments = [
        Segment(path, base, interval, os.path.getsize(f"{path}/{stem(base)}{LOG}"))
        for base in bases
    ]
    for segment in segments:
        segment.created_ms = environment.now_ms()
    epochs = LeaderEpochs(folder)
    epochs_known = LEADER_EPOCHS in names
    try:
        epochs.read()
    except DamageError as error:
        warn(f"{name}: {LEADER_EPOCHS}: {error}; rebuilt from the log")
        epochs_known = False

    end = log_start_offset
    if segments:
        verify_from = None if clean else recovery_point
        end = _recover(segments, verify_from, epochs, name, environment)
        if end < log_start_offset:
            warn(
                f"{name}: the log ends at offset {end}, before its start offset {log_start_offset};"
                " a new log begins there"
            )
            for segment in segments:
                environment.remove_later(segment.mark_deleted(), 0)
            segments = []
            end = log_start_offset
    if not segments:
        segments = [Segment.create(path, log_start_offset, interval)]
    log_start_offset = max(log_start_offset, segments[0].base_offset)

    present = set(names)
    for segment in segments:
        missing = {stem(segment.base_offset) + ending for ending in (INDEX, TIME_INDEX)} - present
        if missing:
            segment.indexes  # noqa: B018  rebuilds them
            for file in missing:
                if not (folder / file).exists():
                    create(folder / file)
            if segment is not segments[-1]:
                segment.write_indexes()
    if not epochs_known and end > log_start_offset:
        for segment in segments:
            with contextlib.suppress(DamageError):
                for header in segment.scan():
                    epochs.begin(header.partition_leader_epoch, header.base_offset)
    epochs.cut(end + 1)
    epochs.cut_before(log_start_offset)

    producers = Producers(name)
    snapshots = _load_producers(
        folder, names, producers, segments, end, environment, clean, recovery_point
    )
    for segment in segments:
        segment.close()
    return Loaded(segments, end, log_start_offset, producers, epochs, snapshots)


def _tidy(
    folder: Path,
    interval: int,
    names: list[str],
    *,
    warn_prefix: str,
    environment: Environment,
) -> list[str]:
    """Remove leftovers, and finish a replacement of segments by compaction.

    New segments are ``.cleaned`` while they are written. When they are complete, all become ``.swap``, and then the
    old segments are removed. So ``.swap`` files next to ``.cleaned`` files are incomplete.
    """
    deleted = [name for name in names if name.endswith((DELETED, ".tmp"))]
    leftovers = [name for name in names if name.endswith(CLEANED)]
    swaps = [name for name in names if name.endswith(SWAP)]
    if leftovers:
        leftovers += swaps
        swaps = []
    for name in deleted + leftovers:
        with contextlib.suppress(OSError):
            os.unlink(folder / name)
    if not leftovers and not swaps:
        return [name for name in names if name not in set(deleted)]
    _finish_swap(folder, interval, sorted(swaps))
    environment.warn(
        f"{warn_prefix}: an interrupted compaction: {len(leftovers)} incomplete files removed,"
        f" {len(swaps)} complete files put in place"
    )
    return os.listdir(folder)


def _finish_swap(folder: Path, interval: int, swaps: Sequence[str]) -> None:
    path = os.fspath(folder)
    for name in swaps:
        if not name.endswith(LOG + SWAP):
            continue
        base = int(name[:20])
        new = Segment(path, base, interval, os.path.getsize(folder / name), SWAP)
        end = base + 1
        with contextlib.suppress(DamageError):
            for header in new.scan():
                end = header.next_offset
        new.close()
        for other in segment_bases(os.listdir(folder)):
            if base <= other < end:
                Segment(path, other, interval).remove()
    for name in swaps:
        if name.endswith(tuple(ending + SWAP for ending in SEGMENT_FILES)):
            os.rename(folder / name, folder / name.removesuffix(SWAP))
        else:
            os.unlink(folder / name)


def _recover(
    segments: list[Segment],
    verify_from: int | None,
    epochs: LeaderEpochs,
    name: str,
    environment: Environment,
) -> int:
    """Verify the log from an offset on; with None, only find its end. Returns the end offset."""
    first = len(segments) - 1
    if verify_from is not None:
        bases = [segment.base_offset for segment in segments]
        first = max(bisect_right(bases, verify_from) - 1, 0)
    next_offset = segments[first].base_offset
    for number in range(first, len(segments)):
        segment = segments[number]
        position, next_offset = segment.resume(INT64_MAX if verify_from is None else verify_from)
        batches = (
            segment.scan(position) if verify_from is None else segment.verify(position, next_offset)
        )
        try:
            for header in batches:
                segment.note(header)
                epochs.begin(header.partition_leader_epoch, header.base_offset)
                next_offset = header.next_offset
        except DamageError as damage:
            lost = segment.size - damage.position
            following = segments[number + 1 :]
            del segments[number + 1 :]
            environment.warn(
                f"{name}: truncated at offset {next_offset}: the last {lost} bytes of"
                f" {os.path.basename(segment.file(LOG))} are no valid batch"
                + (f"; {len(following)} later segments removed" if following else "")
            )
            segment.truncate(damage.position)
            for other in following:
                other.remove()
            break
        if number < len(segments) - 1:
            segment.finish_time_index()
            segment.write_indexes()
    return max(next_offset, segments[-1].base_offset)


def _load_producers(
    folder: Path,
    names: Sequence[str],
    producers: Producers,
    segments: list[Segment],
    end: int,
    environment: Environment,
    clean: bool,
    recovery_point: int,
) -> list[int]:
    """Read the newest usable snapshot, and the log from there on. Returns the offsets of all snapshots."""
    snapshots = snapshot_offsets(names)
    # The first segment whose transaction index must be rebuilt.
    rebuild = len(segments)
    if not clean:
        bases = [segment.base_offset for segment in segments]
        rebuild = max(bisect_right(bases, recovery_point) - 1, 0)
    for number, segment in enumerate(segments[:rebuild]):
        if stem(segment.base_offset) + TRANSACTION_INDEX in names:
            try:
                segment.transactions  # noqa: B018  reads it
            except (DamageError, OSError) as error:
                environment.warn(
                    f"{segment.file(TRANSACTION_INDEX)}: {error}; rebuilt from the log"
                )
                rebuild = number
                break
    latest_usable = segments[rebuild].base_offset if rebuild < len(segments) else end
    kept = []
    start = -1
    for offset in reversed(snapshots):
        file = folder / f"{stem(offset)}{SNAPSHOT}"
        if offset > end:
            file.unlink(missing_ok=True)
            continue
        if start < 0 and offset <= latest_usable:
            try:
                producers.load(
                    file.read_bytes(),
                    now_ms=environment.now_ms(),
                    expiry_ms=environment.producer_expiry_ms,
                )
                start = offset
                producers.recall(_headers_before(segments, offset))
            except (OSError, DamageError) as error:
                environment.warn(f"{file}: {error}; the snapshot is skipped")
                file.unlink(missing_ok=True)
                continue
        kept.append(offset)
    try:
        _replay(producers, segments, start, end)
    except WireError as error:
        environment.warn(f"{folder.name}: the state of producers is incomplete: {error}")
    return sorted(kept)


def _headers_before(segments: list[Segment], offset: int) -> Iterator[BatchHeader]:
    """Yield the headers of the batches shortly before ``offset``, in its segment and the previous one."""
    number = bisect_left([segment.base_offset for segment in segments], offset) - 1
    for segment in segments[max(number - 1, 0) : number + 1]:
        with contextlib.suppress(DamageError):
            for header in segment.scan(segment.position_before(offset, _RECALLED_ENTRIES)):
                if header.base_offset >= offset:
                    break
                yield header


def _replay(producers: Producers, segments: list[Segment], start: int, end: int) -> None:
    """Add all batches from ``start`` on to the producers' state. Raises OSError and WireError."""
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if next_base <= start or not segment.size:
            continue
        position = 0
        whole = start <= segment.base_offset
        if whole:
            segment.reset_transactions()
        else:
            position = segment.locate(start) or 0
        for header in segment.scan(position):
            if header.producer_id < 0 or header.base_offset < start:
                continue
            if not header.is_control:
                producers.add_batch(header)
                continue
            for completed in read_markers(producers, segment, header):
                if completed.aborted and whole:
                    segment.transactions.entries.append(aborted_entry(completed))
        if whole:
            segment.write_indexes()


def aborted_entry(completed: Completed) -> AbortedTxn:
    """Build the entry of the transaction index for an aborted transaction."""
    return AbortedTxn(
        producer_id=completed.producer_id,
        first_offset=completed.first_offset,
        last_offset=completed.last_offset,
        last_stable_offset=completed.last_stable_offset,
    )


def read_markers(producers: Producers, segment: Segment, header: BatchHeader) -> list[Completed]:
    """Add the markers of a control batch to the producers' state. Returns the ended transactions."""
    ended = []
    for record in segment.batch(header).control_records():
        if record.type in _MARKERS:
            completed = producers.add_marker(
                header.producer_id,
                header.producer_epoch,
                record.coordinator_epoch,
                record.offset,
                record.timestamp,
                commit=record.type == ControlRecordType.COMMIT,
            )
            if completed is not None:
                ended.append(completed)
    return ended
