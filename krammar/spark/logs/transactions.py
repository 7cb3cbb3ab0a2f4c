"""Which records of a log belong to transactions that were aborted or are still open.

Each segment's ``.txnindex`` has the aborted transactions whose markers are in the segment. What is
open at the end follows from the snapshot of producers that is next to it and the batches after it;
where there is no snapshot, from all batches. Markers found on the way count as the index does: after
a crash it may lack the newest.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from kafka_wire import ProducerSnapshot

from krammar.spark.logs.partition import PartitionLog
from krammar.spark.logs.segment import Segment
from krammar.wire.errors import DecodeError, WireError
from krammar.wire.records import BatchHeader, ControlRecordType, crc32c, read_batches

_ENTRY = Struct(">hqqqq")  # version, producer id, first offset, last offset, last stable offset
_SNAPSHOT = re.compile(r"([0-9]{20})\.snapshot")
_CRC_COVERS_FROM = 6


class Aborted(NamedTuple):
    """An aborted transaction: from its first record to its marker, both offsets included."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Transactions:
    """``stable_end`` is the offset that reading of committed records ends at."""

    aborted: tuple[Aborted, ...]
    stable_end: int

    def within(self, start: int, end: int) -> tuple[Aborted, ...]:
        """Those with records from ``start`` to before ``end``."""
        return tuple(a for a in self.aborted if a.first_offset < end and a.last_offset >= start)


def is_aborted(header: BatchHeader, aborted: tuple[Aborted, ...]) -> bool:
    """Whether a batch belongs to one of these transactions."""
    return header.is_transactional and any(
        entry.producer_id == header.producer_id
        and entry.first_offset <= header.base_offset <= entry.last_offset
        for entry in aborted
    )


def transactions_of(log: PartitionLog) -> Transactions:
    """Raises DecodeError for a log that cannot be walked through, and OSError."""
    aborted: set[Aborted] = set()
    for base in log.bases:
        aborted.update(_read_index(f"{log.folder.path}/{base:020d}.txnindex"))
    begin, open_since = _newest_snapshot(log)
    for base, _, _ in log.between(begin, log.latest):
        with log.segment(base) as segment:
            for header in segment.headers(segment.position_before(begin)):
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
        min(open_since.values(), default=log.latest),
    )


def _aborts(segment: Segment, header: BatchHeader) -> bool:
    batch = next(read_batches(segment.read(header.position, header.size_in_bytes)))
    return any(record.type == ControlRecordType.ABORT for record in batch.control_records())


def _read_index(path: str) -> list[Aborted]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    if len(data) % _ENTRY.size:
        raise DecodeError(f"{path}: {len(data)} bytes are no multiple of {_ENTRY.size}")
    return [
        Aborted(producer, first, last) for _, producer, first, last, _ in _ENTRY.iter_unpack(data)
    ]


def _newest_snapshot(log: PartitionLog) -> tuple[int, dict[int, int]]:
    """The offset of the newest snapshot that can be read, and the transactions open there: the first
    offset of each, by producer."""
    offsets = sorted(
        (
            int(found[1])
            for name in os.listdir(log.folder.path)
            if (found := _SNAPSHOT.fullmatch(name))
        ),
        reverse=True,
    )
    for offset in offsets:
        if not log.earliest <= offset <= log.latest:
            continue
        try:
            with open(f"{log.folder.path}/{offset:020d}.snapshot", "rb") as file:
                data = file.read()
            snapshot = ProducerSnapshot.decode(data)
        except (OSError, WireError):
            continue
        if crc32c(data[_CRC_COVERS_FROM:]) == snapshot.crc:
            return offset, {
                entry.producer_id: entry.current_txn_first_offset
                for entry in snapshot.producer_entries
                if entry.current_txn_first_offset >= 0
            }
    return log.earliest, {}
