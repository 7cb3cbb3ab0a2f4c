"""The log of one partition: its segments in a row, its ends, and offsets by time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import cached_property

from krammar.spark.logs.folders import PartitionFolder
from krammar.spark.logs.segment import Segment
from krammar.wire.errors import DecodeError
from krammar.wire.records import read_batches


class PartitionLog:
    """What the files of a partition say when they are first looked at; see ``Segment`` for errors and
    ``tolerant``."""

    def __init__(self, folder: PartitionFolder, *, tolerant: bool = False) -> None:
        self.tolerant = tolerant
        self.folder = folder
        self.bases = folder.bases()

    @property
    def name(self) -> str:
        return f"{self.folder.topic}-{self.folder.partition}"

    @cached_property
    def earliest(self) -> int:
        """The first offset that there is, or 0 without segments."""
        return max(self.bases[0] if self.bases else 0, self.folder.start_offset)

    @cached_property
    def latest(self) -> int:
        """The offset behind the last record."""
        if not self.bases:
            return self.earliest
        with self.segment(self.bases[-1]) as segment:
            return max(segment.end_offset(), self.earliest)

    def segment(self, base: int) -> Segment:
        """A segment, opened. Raises OSError."""
        return Segment(self.folder.path, base, tolerant=self.tolerant)

    def between(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The segments with offsets from ``start`` to before ``end``: first offset of the segment,
        and which of its offsets these are."""
        ends = [*self.bases[1:], end]
        for base, behind in zip(self.bases, ends, strict=False):
            first, last = max(base, start), min(behind, end)
            if first < last:
                yield base, first, last

    def offset_at(self, timestamp: int) -> int | None:
        """The offset of the first record at or after ``timestamp``, in milliseconds since 1970; None
        if there is none. Raises DecodeError for a batch that is broken."""
        for base in self.bases:
            with closing(self.segment(base)) as segment:
                if segment.latest_timestamp(is_newest=base == self.bases[-1]) < timestamp:
                    continue
                for header in segment.headers(segment.position_of_time(timestamp)):
                    if header.max_timestamp < timestamp or header.last_offset < self.earliest:
                        continue
                    data = segment.read(header.position, header.size_in_bytes)
                    try:
                        for record in next(read_batches(data)):
                            if record.timestamp >= timestamp and record.offset >= self.earliest:
                                return record.offset
                    except DecodeError as error:
                        raise type(error)(
                            f"{segment.path}, byte {header.position}: {error}"
                        ) from None
        return None
