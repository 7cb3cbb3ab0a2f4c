"""Frames of a journal as columns, so that all frames of a batch are handled at once."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from krammar.journal import JournalSpec
from krammar.journal.file_reader import FileReader
from krammar.journal.journals import Frame, FrameBlock, FrameReader


@dataclass(frozen=True, slots=True)
class FrameColumns:
    """Frames, at least one: their offsets, the second one exclusive, and their bytes, of which none are null.

    ``source`` has the same frames as they were read, if not as columns.
    """

    begins: pa.Array
    ends: pa.Array
    frames: pa.Array
    source: FrameBlock | list[Frame] | None = None

    @classmethod
    def of(cls, frames: list[Frame]) -> FrameColumns:
        """Return frames as columns."""
        begins, ends, parts = zip(*frames, strict=True)
        offsets = pa.array(accumulate(map(len, parts), initial=0), pa.int32())
        data = pa.py_buffer(b"".join(parts))
        values = pa.Array.from_buffers(pa.binary(), len(frames), [None, offsets.buffers()[1], data])
        return cls(pa.array(begins, pa.int64()), pa.array(ends, pa.int64()), values, frames)

    @classmethod
    def of_block(cls, block: FrameBlock) -> FrameColumns:
        """Return the frames of a block, without copying their bytes."""
        count = len(block.ends)
        places = array("i", [0])
        places.extend(block.ends)
        buffers = [None, pa.py_buffer(places), pa.py_buffer(block.data)]
        frames = pa.Array.from_buffers(pa.binary(), count, buffers)
        offsets = pa.Array.from_buffers(pa.int32(), count + 1, buffers[:2]).cast(pa.int64())
        offsets = pc.add(offsets, block.begin)
        return cls(offsets[:-1], offsets[1:], frames, block)

    def rows(self) -> list[Frame]:
        """Return the frames one by one."""
        if isinstance(self.source, FrameBlock):
            return self.source.frames()
        if self.source is not None:
            return self.source
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
        if isinstance(self._reader, FileReader):
            block = self._reader.read_block()
            return None if block is None else FrameColumns.of_block(block)
        frames = self._reader.read()
        return FrameColumns.of(frames) if frames else None

    def close(self) -> None:
        self._reader.close()
