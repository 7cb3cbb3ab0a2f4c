"""Finds the records of a log that belong to aborted or open transactions.

The ``.txnindex`` of a segment contains the aborted transactions whose markers are in the segment. The open
transactions at the end result from the newest snapshot of producers and the batches after it, or from all batches
if there is no snapshot. Markers in these batches count like the index, which can lack the newest ones after a
crash. If an index is invalid, the batches of its segment are read instead, as the broker does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kafka_wire import AbortedTxn

from krammar.logfiles.damage import DamageError
from krammar.logfiles.index import TransactionIndex
from krammar.logfiles.names import DELETED, SNAPSHOT, TRANSACTION_INDEX, snapshot_offsets, stem
from krammar.logfiles.partition import PartitionFiles
from krammar.logfiles.segment import Segment
from krammar.logfiles.snapshot import read_snapshot_file
from krammar.wire.batches import BatchHeader, ControlRecordType, RecordBatch

_log = logging.getLogger(__name__)


class Aborted(NamedTuple):
    """An aborted transaction, from its first offset to that of its marker, both included."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions of a log. ``stable_end`` is the end offset for readers of committed records."""

    aborted: tuple[Aborted, ...]
    stable_end: int

    def within(self, start: int, end: int) -> tuple[Aborted, ...]:
        """Return the transactions with offsets from ``start`` up to but not including ``end``."""
        return tuple(a for a in self.aborted if a.first_offset < end and a.last_offset >= start)


def is_aborted(batch: BatchHeader | RecordBatch, aborted: Iterable[Aborted | AbortedTxn]) -> bool:
    """Return whether a batch belongs to one of these transactions."""
    return batch.is_transactional and any(
        entry.producer_id == batch.producer_id
        and entry.first_offset <= batch.base_offset <= entry.last_offset
        for entry in aborted
    )


def transactions_of(log: PartitionFiles) -> Transactions:
    """Find the aborted and open transactions of a log. Raises OSError, and DecodeError if it is damaged."""
    aborted: set[Aborted] = set()
    needed = log.latest  # from this offset on, the batches show what was aborted
    for base in log.bases:
        index = TransactionIndex(f"{log.folder.path}/{stem(base)}{TRANSACTION_INDEX}")
        try:
            index.read()
            if not index.entries:  # retention may have renamed the files of the segment
                index.path = f"{index.path}{DELETED}"
                index.read()
        except (DamageError, OSError) as error:
            _log.warning("%s: %s; the segment's batches are read instead", index.path, error)
            needed = min(needed, base)
        aborted.update(
            Aborted(entry.producer_id, entry.first_offset, entry.last_offset)
            for entry in index.entries
        )
    begin, open_since = _newest_snapshot(log, needed)
    for base, _, _ in log.between(begin, log.latest):
        with log.segment(base) as segment:
            for header in segment.scan(segment.position_before(begin)):
                if header.base_offset < begin or not header.is_transactional:
                    continue
                if not header.is_control:
                    open_since.setdefault(header.producer_id, header.base_offset)
                    continue
                first = open_since.pop(header.producer_id, None)
                if first is not None and _aborts(segment, header):
                    aborted.add(Aborted(header.producer_id, first, header.last_offset))
    return Transactions(
        tuple(sorted(aborted, key=lambda entry: entry.last_offset)),
        # The log may begin after the start of an open transaction.
        max(min(open_since.values(), default=log.latest), log.earliest),
    )


def _aborts(segment: Segment, header: BatchHeader) -> bool:
    records = segment.batch(header).control_records()
    return any(record.type == ControlRecordType.ABORT for record in records)


def _newest_snapshot(log: PartitionFiles, latest: int) -> tuple[int, dict[int, int]]:
    """The offset of the newest valid snapshot up to ``latest``, and the first offset of each open transaction.

    The transactions are by producer id.
    """
    for offset in reversed(snapshot_offsets(os.listdir(log.folder.path))):
        if not log.earliest <= offset <= latest:
            continue
        try:
            snapshot = read_snapshot_file(f"{log.folder.path}/{stem(offset)}{SNAPSHOT}")
        except (OSError, DamageError):
            continue
        return offset, {
            entry.producer_id: entry.current_txn_first_offset
            for entry in snapshot.producer_entries
            if entry.current_txn_first_offset >= 0
        }
    return log.earliest, {}
