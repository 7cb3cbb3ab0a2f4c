"""``krammar inspect PATH``: the files of a log folder, as Kafka's ``kafka-dump-log`` prints them.

Each line of the output is an ``Item``: a kind, and fields with Kafka's names. Only one batch at a time is in
memory.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator

from krammar.inspect.items import Item, damage_item
from krammar.inspect.segments import segment_items
from krammar.logfiles.damage import Damage, DamageError
from krammar.logfiles.index import OffsetIndex, SparseIndex, TimeIndex, TransactionIndex
from krammar.logfiles.names import (
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_partition,
)
from krammar.logfiles.segment import Segment
from krammar.logfiles.snapshot import read_snapshot_file

_NAME = re.compile(r"([0-9]{20})(?:-[0-9]{10})?(\.[a-z]+)")


class FilesError(Exception):
    """The path contains no file of a log, or a file cannot be read."""


def inspect_path(path: str, *, records: bool = False) -> Iterator[Item]:
    """Yield the content of a file, a partition's folder or a log folder.

    Damage is an item of its own, with its position. Reading continues at the next batch that can be found.

    Args:
        records: yield the records of each batch too.

    Raises:
        FilesError: the path contains no file of a log, or a file cannot be read.
    """
    try:
        yield from _inspect(path, records)
    except OSError as error:
        raise FilesError(f"{error.filename or path}: {error.strerror}") from None


def _inspect(path: str, records: bool) -> Iterator[Item]:
    if not os.path.isdir(path):
        yield from _inspect_file(path, records)
        return
    found = False
    for folder in _partition_folders(path):
        for name in sorted(os.listdir(folder), key=_order):
            match = _NAME.fullmatch(name)
            if match is not None and match[2] in _READERS:
                found = True
                yield from _inspect_file(os.path.join(folder, name), records)
    if not found:
        raise FilesError(
            f"{path} contains no file of a log, and no folder of a partition "
            f"(krammar can read {_ENDINGS} files)"
        )


def _partition_folders(path: str) -> list[str]:
    names = sorted(os.listdir(path))
    if any(_NAME.fullmatch(name) for name in names):
        return [path]
    folders = [os.path.join(path, name) for name in names if parse_partition(name)]
    return [folder for folder in folders if os.path.isdir(folder)]


def _order(name: str) -> tuple[str, int]:
    """Sort by offset, and a segment before its indexes."""
    ending = os.path.splitext(name)[1]
    return name[:20], list(_READERS).index(ending) if ending in _READERS else -1


def _inspect_file(path: str, records: bool) -> Iterator[Item]:
    match = _NAME.fullmatch(os.path.basename(path))
    reader = None if match is None else _READERS.get(match[2])
    if match is None or reader is None:
        raise FilesError(
            f"{path} is not a file of a log (krammar can read {_ENDINGS} files, with Kafka's names)"
        )
    yield Item("file", {"path": path})
    try:
        yield from reader(path, int(match[1]), records)
    except DamageError as error:
        yield damage_item(error)


# Segments.


# Indexes and snapshots.


def _index(path: str, base: int, records: bool) -> Iterator[Item]:
    index = OffsetIndex(path)
    index.read()
    segment = None
    # Positions can only be checked if the segment exists.
    with contextlib.suppress(OSError):
        segment = Segment(os.path.dirname(path), base)
    for number, (key, position) in enumerate(zip(index.keys, index.values, strict=True)):
        yield Item("entry", {"offset": base + key, "position": position})
        if segment is not None and not segment.is_at(base + key, position):
            text = f"no batch with the last offset {base + key} begins at byte {position}"
            yield damage_item(DamageError(Damage.INDEX, text, number * index.entry.size))
    if segment is not None:
        segment.close()


def _time_index(path: str, base: int, records: bool) -> Iterator[Item]:
    index: SparseIndex = TimeIndex(path)
    index.read()
    for timestamp, offset in zip(index.keys, index.values, strict=True):
        yield Item("entry", {"timestamp": timestamp, "offset": base + offset})


def _transaction_index(path: str, base: int, records: bool) -> Iterator[Item]:
    index = TransactionIndex(path)
    index.read()
    for entry in index.entries:
        fields = {
            "version": entry.version,
            "producerId": entry.producer_id,
            "firstOffset": entry.first_offset,
            "lastOffset": entry.last_offset,
            "lastStableOffset": entry.last_stable_offset,
        }
        yield Item("transaction", fields)


def _snapshot(path: str, base: int, records: bool) -> Iterator[Item]:
    snapshot = read_snapshot_file(path)
    for entry in snapshot.producer_entries:
        first = entry.current_txn_first_offset
        fields = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": None if first < 0 else first,
            "lastTimestamp": entry.timestamp,
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_offset,
            "offsetDelta": entry.offset_delta,
        }
        yield Item("producer", fields)


_READERS: dict[str, Callable[[str, int, bool], Iterator[Item]]] = {
    LOG: segment_items,
    ".checkpoint": segment_items,
    INDEX: _index,
    TIME_INDEX: _time_index,
    TRANSACTION_INDEX: _transaction_index,
    SNAPSHOT: _snapshot,
}
_ENDINGS = ", ".join(_READERS)
