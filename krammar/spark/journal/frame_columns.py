"""Frames of a journal as columns, so that all frames of a batch are handled at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import pyarrow as pa

from krammar.journal import JournalSpec
from krammar.journal.journals import Frame, FrameReader


@dataclass(frozen=True, slots=True)
class FrameColumns:
    """Frames, at least one: their offsets, the second one exclusive, and their bytes, of which none are null."""

    begins: pa.Array
    ends: pa.Array
    frames: pa.Array

    @classmethod
    def of(cls, frames: list[Frame]) -> FrameColumns:
        """Return frames as columns."""
        begins, ends, parts = zip(*frames, strict=True)
        offsets = pa.array(accumulate(map(len, parts), initial=0), pa.int32())
        data = pa.py_buffer(b"".join(parts))
        values = pa.Array.from_buffers(pa.binary(), len(frames), [None, offsets.buffers()[1], data])
        return cls(pa.array(begins, pa.int64()), pa.array(ends, pa.int64()), values)

    def rows(self) -> list[Frame]:
        """Return the frames one by one."""
        columns = (self.begins, self.ends, self.frames)
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    def filter(self, mask: pa.Array) -> FrameColumns:
        """Return some of the frames."""
        return FrameColumns(*(c.filter(mask) for c in (self.begins, self.ends, self.frames)))


class ColumnReader(Protocol):
    """Reads the frames of a journal as columns."""

    @property
    def spec(self) -> JournalSpec: ...

    def read(self) -> FrameColumns | None:
        """Return the next frames; None at the end. Raises the errors of ``FrameReader.read``."""

    def close(self) -> None: ...


class FramesInColumns:
    """Reads the frames of another reader as columns."""

    def __init__(self, reader: FrameReader) -> None:
        self._reader = reader

    @property
    def spec(self) -> JournalSpec:
        return self._reader.spec

    def read(self) -> FrameColumns | None:
        frames = self._reader.read()
        return FrameColumns.of(frames) if frames else None

    def close(self) -> None:
        self._reader.close()
