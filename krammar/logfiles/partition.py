"""A partition's folder, ``<log dir>/<topic>-<partition>``: its segments, its offsets, and offsets by time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from krammar.logfiles.checkpoints import read_offsets
from krammar.logfiles.damage import DamageError, raise_damage
from krammar.logfiles.names import LOG_STARTS, parse_partition, segment_bases
from krammar.logfiles.segment import Segment


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """The folder of a partition.

    Attributes:
        start_offset: the log start offset: records before it were deleted (DeleteRecords)
    """

    topic: str
    partition: int
    path: str
    start_offset: int = 0

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.partition


def partitions_in(path: str) -> Iterator[PartitionFolder]:
    """Find the partitions in a log folder, or in a partition's folder. Raises OSError."""
    path = os.path.abspath(path)
    entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    parent, name = os.path.split(path)
    itself = parse_partition(name)
    if itself and segment_bases(entry.name for entry in entries):
        yield _folder(itself, path, _start_offsets(parent))
        return
    starts = _start_offsets(path)
    for entry in entries:
        key = parse_partition(entry.name)
        if key and entry.is_dir():
            yield _folder(key, entry.path, starts)


def _folder(key: tuple[str, int], path: str, starts: dict[tuple[str, int], int]) -> PartitionFolder:
    return PartitionFolder(*key, path, starts.get(key, 0))


def _start_offsets(log_dir: str) -> dict[tuple[str, int], int]:
    """The log start offsets in the checkpoint. Empty if it is missing or invalid: all records count then."""
    try:
        return read_offsets(Path(log_dir, LOG_STARTS))
    except (OSError, DamageError):
        return {}


class PartitionFiles:
    """The files of a partition, as they are when first read. ``damaged`` is as for ``Segment``."""

    def __init__(
        self, folder: PartitionFolder, *, damaged: Callable[[DamageError], None] = raise_damage
    ) -> None:
        """List the segments. Raises OSError."""
        self.folder = folder
        self.damaged = damaged
        # Files that are being deleted, cleaned or swapped have other suffixes.
        self.bases = segment_bases(os.listdir(folder.path))

    @property
    def name(self) -> str:
        return f"{self.folder.topic}-{self.folder.partition}"

    @cached_property
    def earliest(self) -> int:
        """The first offset, or the next offset if there are no segments."""
        return max(self.bases[0] if self.bases else 0, self.folder.start_offset)

    @cached_property
    def latest(self) -> int:
        """The offset after the last record. Raises OSError and DamageError."""
        if not self.bases:
            return self.earliest
        with self.segment(self.bases[-1]) as segment:
            return max(segment.end_offset(), self.earliest)

    def segment(self, base: int) -> Segment:
        """Open a segment. Raises OSError."""
        return Segment(self.folder.path, base, damaged=self.damaged)

    def between(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the segments with offsets from ``start`` up to but not including ``end``.

        Each has its base offset, and the first and the end of the wanted offsets in it.
        """
        ends = [*self.bases[1:], end]
        for base, next_base in zip(self.bases, ends, strict=False):
            first, last = max(base, start), min(next_base, end)
            if first < last:
                yield base, first, last

    def offset_at(self, timestamp: int) -> int | None:
        """Find the offset of the first record at or after ``timestamp``, in milliseconds since 1970.

        None if there is no such record. Raises OSError and DecodeError.
        """
        for base in self.bases:
            with self.segment(base) as segment:
                if segment.latest_timestamp(is_newest=base == self.bases[-1]) < timestamp:
                    continue
                found = segment.first_at(timestamp, self.earliest)
                if found is not None:
                    return found[1]
        return None
