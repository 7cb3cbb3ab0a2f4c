"""Opening a partition's folder: what a crash, or another broker, has left there is put in order."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_wire import AbortedTxn

from krammar.broker.storage.environment import Environment
from krammar.broker.storage.epochs import LeaderEpochs
from krammar.broker.storage.files import (
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
    create,
    stem,
)
from krammar.broker.storage.index import IndexFault
from krammar.broker.storage.log_config import INT64_MAX
from krammar.broker.storage.producers import Completed, Producers
from krammar.broker.storage.segment import Damage, Segment, segment_bases
from krammar.broker.storage.validation import one_batch
from krammar.wire.errors import WireError
from krammar.wire.records import BatchHeader, ControlRecordType

# How far back, in entries of the index, producers' last batches are looked for: some 100 kB, or as many
# batches if they are larger.
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
    """Open what is in a partition's folder. Raises OSError.

    ``clean`` says that the broker before was shut down in order, so that all of the log is whole.
    Otherwise it is verified from ``recovery_point`` on, and cut where it ends to be batches.
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
    except ValueError as error:
        warn(f"{name}: {LEADER_EPOCHS}: {error}; made anew from the log")
        epochs_known = False

    end = log_start_offset
    if segments:
        verify_from = None if clean else recovery_point
        end = _recover(segments, verify_from, epochs, name, environment)
        if end < log_start_offset:
            warn(
                f"{name}: the log ends at offset {end}, before {log_start_offset}, where it is to"
                " begin; it is begun anew there"
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
            segment.indexes  # noqa: B018  made anew
            for file in missing:
                if not (folder / file).exists():
                    create(folder / file)
            if segment is not segments[-1]:
                segment.write_indexes()
    if not epochs_known and end > log_start_offset:
        for segment in segments:
            with contextlib.suppress(Damage):
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
    """Remove leftovers, and end a replacement of segments that compaction had begun.

    Segments that are being written are ``.cleaned``; when they are whole all become ``.swap``, and
    then the segments that they replace are removed. So next to a ``.cleaned`` no ``.swap`` counts.
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
        f"{warn_prefix}: {len(leftovers)} files of unfinished work removed,"
        f" {len(swaps)} put in their place"
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
        with contextlib.suppress(Damage):
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
    """Verify from an offset on, or, with None, just find the log's end. Returns the end offset."""
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
        except Damage as damage:
            lost = segment.size - damage.position
            behind = segments[number + 1 :]
            del segments[number + 1 :]
            environment.warn(
                f"{name}: cut at offset {next_offset}: no whole batch in the last {lost} bytes of"
                f" {os.path.basename(segment.file(LOG))}"
                + (f", and {len(behind)} segments behind it" if behind else "")
            )
            segment.truncate(damage.position)
            for other in behind:
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
    """Read the newest snapshot that serves, and the log from there on. Returns the snapshots' offsets."""
    snapshots = sorted(
        int(name[:20])
        for name in names
        if name.endswith(SNAPSHOT) and len(name) == 29 and name[:20].isdecimal()
    )
    # From which segment on the transaction indexes have to be made anew.
    anew = len(segments)
    if not clean:
        bases = [segment.base_offset for segment in segments]
        anew = max(bisect_right(bases, recovery_point) - 1, 0)
    for number, segment in enumerate(segments[:anew]):
        if stem(segment.base_offset) + TRANSACTION_INDEX in names:
            try:
                segment.transactions  # noqa: B018  read
            except (IndexFault, OSError) as error:
                environment.warn(f"{segment.file(TRANSACTION_INDEX)}: {error}; made anew")
                anew = number
                break
    serves = segments[anew].base_offset if anew < len(segments) else end
    kept = []
    start = -1
    for offset in reversed(snapshots):
        file = folder / f"{stem(offset)}{SNAPSHOT}"
        if offset > end:
            file.unlink(missing_ok=True)
            continue
        if start < 0 and offset <= serves:
            try:
                producers.load(
                    file.read_bytes(),
                    now_ms=environment.now_ms(),
                    expiry_ms=environment.producer_expiry_ms,
                )
                start = offset
                producers.recall(_headers_before(segments, offset))
            except (OSError, WireError) as error:
                environment.warn(f"{file}: {error}; passed over")
                file.unlink(missing_ok=True)
                continue
        kept.append(offset)
    try:
        _replay(producers, segments, start, end)
    except (Damage, WireError) as error:
        environment.warn(f"{folder.name}: the producers' state is not complete: {error}")
    return sorted(kept)


def _headers_before(segments: list[Segment], offset: int) -> Iterator[BatchHeader]:
    """Headers of the batches that are shortly before ``offset``, in this segment and the one before."""
    number = bisect_left([segment.base_offset for segment in segments], offset) - 1
    for segment in segments[max(number - 1, 0) : number + 1]:
        with contextlib.suppress(Damage):
            for header in segment.scan(segment.position_before(offset, _RECALLED_ENTRIES)):
                if header.base_offset >= offset:
                    break
                yield header


def _replay(producers: Producers, segments: list[Segment], start: int, end: int) -> None:
    """Take in all batches from ``start`` on. Raises OSError, Damage."""
    for number, segment in enumerate(segments):
        behind = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if behind <= start or not segment.size:
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
                    segment.transactions.add(aborted_entry(completed))
        if whole:
            segment.write_indexes()


def aborted_entry(completed: Completed) -> AbortedTxn:
    return AbortedTxn(
        producer_id=completed.producer_id,
        first_offset=completed.first_offset,
        last_offset=completed.last_offset,
        last_stable_offset=completed.last_stable_offset,
    )


def read_markers(producers: Producers, segment: Segment, header: BatchHeader) -> list[Completed]:
    """Take in the markers of a control batch; the transactions that they end."""
    batch = one_batch(segment.read(header.position, header.size_in_bytes))
    ended = []
    for record in batch.control_records():
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
