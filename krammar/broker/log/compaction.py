"""Compaction (``cleanup.policy=compact``): retains the newest record of each key, dirtiest logs first.

A round reads the dirty part of a log, from the end of the last round to the last offset that may be
compacted, and collects the newest offset of each key. Then it rewrites all segments up to there
without outdated records. Offsets never change.

- Tombstones (records without a value) are removed ``delete.retention.ms`` after the first round
  that reads them. That time, the delete horizon, is stored in their batch (KIP-534).
- Records of aborted transactions are removed. Markers without remaining records are removed after
  the delete horizon.
- The batch with the last sequence number of each known producer stays, without records if
  necessary, and so does the last batch of the round.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from weakref import WeakSet

from kafka_wire import AbortedTxn

from krammar.broker.log.environment import Environment
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.log_config import INT64_MAX
from krammar.broker.log.segment import LogSegment, one_batch
from krammar.logfiles.damage import DamageError
from krammar.logfiles.index import INT32_MAX
from krammar.logfiles.names import CLEANED
from krammar.util.turns import Budget, Steps, finish
from krammar.wire.batches import (
    BatchHeader,
    ControlRecord,
    ControlRecordType,
    Record,
    RecordBatch,
    TimestampType,
    encode_batch,
)
from krammar.wire.batches.control import END_OF_TRANSACTION
from krammar.wire.batches.header import CODEC, header_at
from krammar.wire.errors import WireError


@dataclass(frozen=True, slots=True)
class Dirt:
    """The part of a log to compact, from offset ``begin`` to before ``end``.

    Attributes:
        ratio: its share of all bytes before ``end``
        overdue: whether it has waited for longer than ``max.compaction.lag.ms``
    """

    begin: int
    end: int
    size: int
    ratio: float
    overdue: bool


@dataclass(slots=True)
class _Transactions:
    """The open transactions during a pass over batches in order.

    Attributes:
        pending: aborted transactions that begin later, the next one last
        aborted: aborted transactions by producer id
        observed: the producer ids of transactions with at least one batch
    """

    pending: list[AbortedTxn]
    aborted: dict[int, AbortedTxn] = field(default_factory=dict)
    observed: set[int] = field(default_factory=set)

    def _advance(self, offset: int) -> None:
        while self.pending and self.pending[-1].first_offset <= offset:
            entry = self.pending.pop()
            self.aborted.setdefault(entry.producer_id, entry)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether a data batch belongs to an aborted transaction."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        self.observed.add(header.producer_id)
        return header.producer_id in self.aborted

    def end(self, batch: RecordBatch) -> tuple[bool, AbortedTxn | None]:
        """Handle a control batch.

        Returns whether no batch of its transaction is left, so that the marker can be removed; and
        the aborted transaction that it ends, if a batch is left.
        """
        self._advance(batch.last_offset)
        producer_id = batch.producer_id
        records = batch.records()
        if not records:
            return True, None
        kind = ControlRecord.from_record(records[0]).type
        if kind not in END_OF_TRANSACTION:
            return False, None
        aborts = kind == ControlRecordType.ABORT
        entry = self.aborted.pop(producer_id, None) if aborts else None
        if producer_id not in self.observed or (aborts and entry is None):
            return True, None
        self.observed.discard(producer_id)
        return False, entry


class Compaction:
    """One round of compaction.

    Attributes:
        end: batches before this offset are compacted by this round
        max_keys: of one round, some 200 bytes each. The next round handles the rest.
    """

    max_keys = 250_000

    def __init__(self, log: PartitionLog, dirt: Dirt, now_ms: int) -> None:
        self.log = log
        self.dirt = dirt
        self.now_ms = now_ms
        self.end = dirt.begin
        self._offsets: dict[bytes, int] = {}
        self._cleaned: LogSegment | None = None
        # The offset of the last data record and the epoch of each producer.
        self._last_of_producers: dict[int, tuple[int, int]] = {}

    def run(self) -> Iterator[None]:
        """Run the round; pauses after each batch.

        Raises OSError, and DecodeError for a damaged batch; the log is unchanged or partly
        compacted then.
        """
        log = self.log
        segments = log.segments.copy()
        try:
            cleaned_to = yield from self._collect_offsets(segments[:-1])
            chosen = [segment for segment in segments[:-1] if segment.base_offset < self.end]
            if self.end > self.dirt.begin:
                self._last_of_producers = log.producers.last_batches()
                transactions = self._transactions(chosen[0].base_offset, self.end)
                # Batches before v2 have no delete horizon. The age of compacted segments determines
                # whether their tombstones can be removed.
                compacted = [each for each in chosen if each.base_offset < self.dirt.begin]
                legacy_horizon = -1
                if compacted:
                    legacy_horizon = compacted[-1].modified_ms() - log.config.delete_retention_ms
                for group in self._groups(segments[: len(chosen) + 1]):
                    yield from self._rewrite(group, transactions, legacy_horizon)
            log.retention.cleaned_to = cleaned_to
        finally:
            self._discard()

    def _discard(self) -> None:
        """Remove an unfinished segment."""
        if self._cleaned is not None:
            self._cleaned.remove()
            self._cleaned = None

    def _transactions(self, begin: int, end: int) -> _Transactions:
        entries = self.log.reader.aborted_entries(begin, end)
        return _Transactions(sorted(entries, key=lambda entry: -entry.first_offset))

    def _collect_offsets(self, segments: list[LogSegment]) -> Generator[None, None, int]:
        """Collect the newest offset of each key in the dirty part, up to ``max_keys``.

        Returns where the next round begins.
        """
        begin = self.dirt.begin
        transactions = self._transactions(begin, self.dirt.end)
        offsets = self._offsets
        for segment in segments:
            position = segment.locate(begin)
            if position is None or segment.base_offset >= self.dirt.end:
                continue
            for header in segment.verify(position, 0):
                if header.base_offset >= self.dirt.end:
                    return self.end
                if header.is_control:
                    transactions.end(segment.batch(header))
                elif not transactions.is_aborted(header):
                    if len(offsets) + max(header.records_count, 1) > self.max_keys and offsets:
                        return self.end
                    for record in segment.batch(header):
                        if record.key is not None and record.offset >= begin:
                            offsets[record.key] = record.offset
                self.end = header.next_offset
                yield
        # An earlier round may have removed all batches after the last one.
        return self.dirt.end

    def _groups(self, segments: list[LogSegment]) -> Iterator[list[LogSegment]]:
        """Yield groups of consecutive segments, but the last one, that fit into one segment."""
        config = self.log.config
        group: list[LogSegment] = []
        size = entries = 0
        for segment, following in pairwise(segments):
            count = len(segment.indexes[0])
            if group and (
                size + segment.size > config.segment_bytes
                or (entries + count + 1) * 12 > config.segment_index_bytes
                or following.base_offset - group[0].base_offset > INT32_MAX
            ):
                yield group
                group, size, entries = [], 0, 0
            group.append(segment)
            size += segment.size
            entries += count
        yield group

    def _rewrite(
        self, group: list[LogSegment], transactions: _Transactions, legacy_horizon: int
    ) -> Iterator[None]:
        """Rewrite the segments of a group as one, and replace them by it."""
        log = self.log
        new = LogSegment.create(
            os.fspath(log.path), group[0].base_offset, log.config.index_interval_bytes, CLEANED
        )
        self._cleaned = new
        for segment in group:
            legacy_tombstones = segment.modified_ms() > legacy_horizon
            for header in segment.verify(0, 0):  # a new CRC would hide damage
                whole = segment.read(header.position, header.size_in_bytes)
                data: bytes | None = whole
                if header.base_offset < self.end:
                    data = self._filter(whole, header, transactions, legacy_tombstones, new)
                if data is not None:
                    written = header_at(data, 0, new.size)
                    assert written is not None
                    new.append(b"", memoryview(data))
                    new.note(written)
                yield
            for entry in segment.transactions.entries:
                if entry.last_offset >= self.end:
                    new.transactions.entries.append(entry)
        if log.closed or any(segment not in log.segments for segment in group):
            # The segments were deleted in the meantime. If the new one stayed, the next start would
            # discard every replacement that a crash interrupts, and with it the only copy of its
            # records.
            self._discard()
            return
        modified = os.stat(group[-1].path)
        new.finish_time_index()
        new.write_indexes()
        os.utime(new.path, ns=(modified.st_atime_ns, modified.st_mtime_ns))
        log.retention.prepare_replacement(new)
        self._cleaned = None
        log.retention.replace_segments(group, new)

    def _filter(
        self,
        data: bytes,
        header: BatchHeader,
        transactions: _Transactions,
        legacy_tombstones: bool,
        new: LogSegment,
    ) -> bytes | None:
        """Return the batch without the removed records; None if the whole batch is removed."""
        batch = one_batch(data)
        horizon = header.base_timestamp if header.has_delete_horizon else None
        empty_transaction = False
        if header.is_control:
            empty_transaction, entry = transactions.end(batch)
            if entry is not None:
                new.transactions.entries.append(entry)
            drop = empty_transaction and horizon is not None and horizon <= self.now_ms
            records = batch.records()
            kept = [] if drop else records
        else:
            drop = transactions.is_aborted(header)
            records = [] if drop else batch.records()
            kept = [
                record
                for record in records
                if self._stays(record, header, horizon, legacy_tombstones)
            ]
        if not kept:
            if header.magic == 2 and self._header_stays(header):
                return _encode(header, [], header.base_timestamp if horizon is not None else None)
            return None
        tombstone = not header.is_control and any(record.value is None for record in kept)
        if header.magic == 2 and horizon is None and (tombstone or empty_transaction):
            horizon = self.now_ms + self.log.config.delete_retention_ms
        elif len(kept) == len(records):
            return data
        return _encode(header, kept, horizon)

    def _stays(
        self, record: Record, header: BatchHeader, horizon: int | None, legacy_tombstones: bool
    ) -> bool:
        if record.offset >= self.end:
            return True
        if record.key is None or record.offset < self._offsets.get(record.key, -1):
            return False
        if record.value is not None:
            return True
        if header.magic < 2:
            return legacy_tombstones
        return horizon is None or self.now_ms < horizon

    def _header_stays(self, header: BatchHeader) -> bool:
        if header.next_offset == self.end:
            return True
        last = self._last_of_producers.get(header.producer_id)
        if header.producer_id < 0 or last is None:
            return False
        offset, epoch = last
        if offset >= 0:
            return header.last_offset == offset
        return header.is_control and header.producer_epoch == epoch


def _encode(header: BatchHeader, records: list[Record], horizon: int | None) -> bytes:
    """Encode a batch with its remaining records. Old message sets become v2."""
    # Message sets v0 have no timestamps.
    timestamp_type = max(header.timestamp_type, TimestampType.CREATE_TIME)
    appended = timestamp_type == TimestampType.LOG_APPEND_TIME
    base_offset = records[0].offset if header.magic < 2 and records else header.base_offset
    return encode_batch(
        records,
        compression=header.attributes & CODEC,
        base_offset=base_offset,
        last_offset_delta=header.last_offset - base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        timestamp_type=timestamp_type,
        base_timestamp=header.base_timestamp if horizon is None and not records else horizon,
        max_timestamp=header.max_timestamp if appended or not records else None,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        has_delete_horizon=horizon is not None or header.has_delete_horizon,
    )


def find_dirt(log: PartitionLog, now_ms: int) -> Dirt:
    """Return the part of a log to compact. Raises OSError."""
    config = log.config
    segments = log.segments
    begin = log.retention.cleaned_to
    if not segments[0].base_offset <= begin <= log.active.base_offset:
        begin = segments[0].base_offset
    begin = max(begin, log.log_start_offset)
    end = min(log.last_stable_offset, log.active.base_offset)
    clean = dirty = 0
    oldest = INT64_MAX
    for segment, following in pairwise(segments):
        if following.base_offset <= begin:
            clean += segment.size
            continue
        if segment.base_offset >= end:
            break
        if (
            config.min_compaction_lag_ms
            and segment.size
            and segment.newest_ms() > now_ms - config.min_compaction_lag_ms
        ):
            end = max(begin, segment.base_offset)
            break
        dirty += segment.size
        first = segment.header(0)
        if first is not None:
            oldest = min(oldest, first.max_timestamp)
    end = max(begin, end)
    overdue = dirty > 0 and now_ms - oldest > config.max_compaction_lag_ms
    total = clean + dirty
    return Dirt(begin, end, dirty, dirty / total if total else 0.0, overdue)


def due_round(log: PartitionLog, now_ms: int) -> Compaction | None:
    """Return a round for ``log`` if enough of it is dirty, or has waited too long. Raises OSError."""
    if not log.config.compacts or log.closed:
        return None
    dirt = find_dirt(log, now_ms)
    urgent = dirt.overdue or dirt.ratio > log.config.min_cleanable_dirty_ratio
    due = urgent and dirt.size and dirt.begin < dirt.end
    return Compaction(log, dirt, now_ms) if due else None


@dataclass(eq=False)
class Cleaner:
    """Chooses the logs to compact, and compacts them in portions, the dirtiest first.

    Args:
        logs: all logs
        cleaned: called with each log that was compacted, or whose compaction has failed
    """

    _logs: Iterable[PartitionLog]
    _environment: Environment
    _cleaned: Callable[[PartitionLog], None]
    # The current round of compaction, and the remaining steps of all rounds.
    _round: Compaction | None = field(init=False, default=None)
    _steps: Steps[None] | None = field(init=False, default=None)
    _uncleanable: WeakSet[PartitionLog] = field(init=False, default_factory=WeakSet)

    def compact(self, now_ms: int | None = None, *, budget: Budget | None = None) -> bool:
        """Compact logs, the dirtiest first, for one slice of a budget.

        Without a budget, it ends when no log is due. Returns whether more work is left, so that it
        should be called again soon.
        """
        if self._steps is None:
            self._steps = self._compacting(self._environment.now_ms() if now_ms is None else now_ms)
        if budget is None:
            finish(self._steps)
        elif not budget.advance(self._steps).done:
            return True
        self._steps = None
        return False

    def compact_now(self, log: PartitionLog) -> None:
        """Begin a new segment, and compact all records before it, whatever share of the log is dirty.

        It reads the log from its begin, so that tombstones after their delete horizon are removed too. Records younger
        than ``min.compaction.lag.ms`` and those of open transactions stay.

        Raises ApiError and OSError, and DecodeError for a damaged batch.
        """
        self.stop(log)
        log.retention.roll()
        now_ms = self._environment.now_ms()
        begin = max(log.segments[0].base_offset, log.log_start_offset)
        while True:
            dirt = replace(find_dirt(log, now_ms), begin=begin)
            for _ in Compaction(log, dirt, now_ms).run():
                pass
            if log.retention.cleaned_to <= begin:
                break
            begin = log.retention.cleaned_to  # it had more than ``max_keys``
        self._cleaned(log)

    def _compacting(self, now_ms: int) -> Steps[None]:
        """Compact logs in steps, until none is due."""
        failed: set[PartitionLog] = set()
        while True:
            due: list[tuple[float, PartitionLog]] = []
            for log in self._logs:
                found = None if log in failed else self._round_of(log, now_ms)
                if found is not None:
                    due.append((found.dirt.ratio, log))
                yield None
            if not due:
                return
            for _, log in sorted(due, key=itemgetter(0), reverse=True):
                self._round = self._round_of(log, now_ms)
                if self._round is None:
                    continue
                try:
                    yield from self._round.run()
                except (OSError, WireError) as error:
                    failed.add(log)
                    if not isinstance(error, OSError):
                        self._uncleanable.add(log)
                    if not log.closed:
                        self._environment.warn(f"{log.path.name}: compaction failed: {error}")
                self._round = None
                self._cleaned(log)
                yield None

    def _round_of(self, log: PartitionLog, now_ms: int) -> Compaction | None:
        """Return the round that is due for a log. As in Kafka, unreadable logs are not retried."""
        if log not in self._uncleanable:
            with self._environment.warning(
                f"{log.path.name}: compaction failed", (OSError, DamageError)
            ):
                return due_round(log, now_ms)
        return None

    def stop(self, log: PartitionLog | None = None) -> None:
        """Give up the current round, if it is about this log; the next call of ``compact`` begins again."""
        if log is not None and (self._round is None or self._round.log is not log):
            return
        if self._steps is not None:
            self._steps.close()
        self._round = self._steps = None
