"""Reads the frames of journals in files."""

from __future__ import annotations

import logging
import os
import threading
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from krammar.journal.errors import created_again
from krammar.journal.frames import Framing
from krammar.journal.heads import Head, fragment_path, fragments, read_head, readable_end
from krammar.journal.journals import Frame, FrameBlock
from krammar.journal.specs import JournalSpec
from krammar.journal.uuids import NULL_UUID
from krammar.util.closing import Closing

log = logging.getLogger("krammar.journal")


class FileReader(Closing):
    """Reads a journal's frames; see Reader. Any thread may call ``close``."""

    # The pause between checks for new frames at the end of a journal, in seconds.
    _PAUSE = 0.01

    def __init__(
        self,
        folder: Path,
        spec: JournalSpec,
        journal_id: UUID,
        begin: int,
        end: int | None,
        synchronise: bool,
        chunk_bytes: int,
    ) -> None:
        if begin < 0:
            raise ValueError(f"{spec.name}: offset {begin} is negative")
        self.spec = spec
        self.journal_id = journal_id
        self.offset = begin
        self._folder = folder
        self._framing: Framing = spec.framing
        self._end = end
        self._chunk = chunk_bytes
        self._synchronise = synchronise and begin > 0
        # One byte earlier: a line begins after a newline.
        self._position = begin - 1 if self._synchronise else begin
        # The bytes of an incomplete frame, up to the position.
        self._rest = b""
        self._written = 0
        self._file = -1
        self._fragment = (0, 0)
        self._warned = -1
        self._closed = threading.Event()

    def read(self) -> list[Frame]:
        """Return the next frames, or an empty list at the end.

        Raises:
            UnknownJournalError: the journal was deleted, or deleted and created again.
            CorruptJournalError: the journal's head is damaged.
            OSError: a file cannot be read.
        """
        block = self.read_block()
        return [] if block is None else block.frames()

    def read_block(self) -> FrameBlock | None:
        """Return the next frames without a copy of each one; None at the end. Raises the errors of ``read``."""
        while not self._closed.is_set() and (self._end is None or self.offset < self._end):
            data = self._more()
            if data is None:  # the position has jumped
                if (rest := self._abandon_rest()) is not None:
                    return rest
                continue
            if not data:
                if self._end is not None:
                    self._warn_of_rest()
                    return None
                self._closed.wait(self._PAUSE)
                continue
            if self._rest:
                data = self._rest + data
            if self._synchronise:
                if not self._find_frame(data):
                    continue
                data = self._rest
            if (block := self._split(data)) is not None:
                return block
        return None

    def _split(self, data: bytes) -> FrameBlock | None:
        """Return the complete frames at the beginning of ``data``, which begins at ``offset``, if there are any."""
        ends: list[int] = []
        unpack = self._framing.unpack
        base = self.offset
        begin = 0
        end = unpack(data, 0)
        limit = len(data) if self._end is None else min(len(data), self._end - base)
        while end > begin:
            ends.append(end)
            begin = end
            if begin >= limit:
                break
            end = unpack(data, begin)
        self.offset = base + begin
        self._rest = data[begin:]
        # Grow the chunk, so that the parts of a large frame are not copied for each chunk.
        self._chunk = max(self._chunk, 2 * len(self._rest))
        return FrameBlock(base, data, ends) if ends else None

    def _find_frame(self, data: bytes) -> bool:
        """Start at the first frame in ``data``, which ends at the position; return whether there is one."""
        start = self._position - len(data)
        ends = self._end is not None and self._position >= self._end
        at = self._framing.synchronise(data, self.offset - start)
        if at == len(data) and not ends:
            self._rest = data
            return False
        self._synchronise = False
        self.offset = start + at
        self._rest = data[at:]
        return True

    def _abandon_rest(self) -> FrameBlock | None:
        """Return the rest of a frame whose end is lost; decoding it reports the loss."""
        rest, begin = self._rest, self.offset
        self._rest = b""
        self.offset = self._position
        return FrameBlock(begin, rest, [len(rest)]) if rest and not self._synchronise else None

    def _warn_of_rest(self) -> None:
        if self._rest and self._warned != self.offset:
            self._warned = self.offset
            log.warning(
                "%s: the %d bytes at the end, from offset %d, are not a complete frame",
                self.spec.name,
                len(self._rest),
                self.offset,
            )

    def _more(self) -> bytes | None:
        """Return the next bytes, empty at the end of the journal; None if the position has jumped instead."""
        position = self._position
        if position >= self._written:
            self._written = readable_end(self._folder, self._current_head())
            if position >= self._written:
                return b""
        begin, limit = self._fragment
        if self._file < 0 or not begin <= position < min(limit, self._written):
            if not self._locate():
                return None if self._position != position else b""
            begin, limit = self._fragment
        size = min(limit, self._written) - position
        if self._end is not None and position < self._end:
            # A frame usually ends there. If one does not, the next call reads more.
            size = min(size, self._end - position)
        data = os.pread(self._file, min(size, self._chunk), position - begin)
        if data:
            self._position += len(data)
            return data
        # Either the fragment has a successor now, or it is too short.
        self._fragment = (0, 0)
        if not self._locate():
            return None
        if self._fragment[0] != begin:
            return self._more()
        limit = self._fragment[1]
        if limit > self._written:
            return b""
        self._jump(limit)
        return None

    def _current_head(self) -> Head:
        """Return the journal's head. Raises UnknownJournalError if it belongs to another journal."""
        head = read_head(self._folder)
        if not head.is_of(self.journal_id):
            raise created_again(self.spec.name, head.journal_id)
        if self.journal_id == NULL_UUID:
            self.journal_id = head.journal_id
        return head

    def _locate(self) -> bool:
        """Open the fragment that contains the position.

        Returns False if there is none. The position then jumps to the next fragment, if there is one.
        """
        position = self._position
        begins = fragments(self._folder)
        index = bisect_right(begins, position) - 1
        if index < 0:
            if begins and begins[0] < self._written:
                self._jump(begins[0])
            else:
                self._jump(self._written)
            return False
        begin = begins[index]
        following = begins[index + 1 : index + 2]
        try:
            file = os.open(fragment_path(self._folder, begin), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # the fragment was just deleted
            return self._locate()
        try:
            # If the journal was created again before this file was opened, the file belongs to the new one.
            self._current_head()
        except BaseException:
            os.close(file)
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file = file
        self._fragment = begin, following[0] if following else 1 << 63
        return True

    def _jump(self, position: int) -> None:
        log.warning(
            "%s: offsets %d to %d do not exist any more; skipping them",
            self.spec.name,
            self._position,
            position,
        )
        self._position = position

    def between(self, begin: int, end: int) -> FileReader:
        """Return another reader of the same journal for these offsets."""
        return FileReader(self._folder, self.spec, self.journal_id, begin, end, False, self._chunk)

    def ranges(self, ranges: Sequence[tuple[int, int]]) -> FileReader:
        """Return another reader of the same journal for some ranges of offsets; see ``Reader``."""
        return _FileRangesReader(self._folder, self.spec, self.journal_id, ranges, self._chunk)

    def close(self) -> None:
        """End reading: a ``read`` that waits returns."""
        self._closed.set()

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            os.close(self._file)


# A read of small ranges returns after this many bytes.
_ENOUGH = 1 << 13


class _FileRangesReader(FileReader):
    """Reads the frames in some ranges of offsets; many small ranges at a time."""

    def __init__(
        self,
        folder: Path,
        spec: JournalSpec,
        journal_id: UUID,
        ranges: Sequence[tuple[int, int]],
        chunk_bytes: int,
    ) -> None:
        super().__init__(folder, spec, journal_id, 0, 0, False, chunk_bytes)
        self._ranges = iter(ranges)

    def read(self) -> list[Frame]:
        frames = super().read()
        if frames or self._closed.is_set():
            return frames
        # Hot if transactions are interleaved message by message: 1.1 µs for a range of one frame.
        unpack = self._framing.unpack
        most = self._chunk
        size = 0
        fragment, limit, file, position = self._opened()
        for begin, end in self._ranges:
            length = end - begin
            size += length
            if fragment <= begin and end <= limit and length <= most and begin >= position:
                data = os.pread(file, length, begin - fragment)
                if unpack(data) == length:
                    frames.append((begin, end, data))
                else:
                    self.offset, self._position, self._end = begin, begin + len(data), end
                    block = self._split(data)
                    frames += [] if block is None else block.frames()
                    if self.offset < end:
                        break
            elif end > position:
                # The range is large, or in another fragment, or partly deleted.
                self.offset = self._position = max(begin, position)
                self._end = end
                self._rest = b""
                frames += super().read()
                if self.offset < end:
                    break
                fragment, limit, file, position = self._opened()
            if frames and size >= _ENOUGH:
                break
        return frames

    def _opened(self) -> tuple[int, int, int, int]:
        """Return the offsets in the open file, the file, and the position before which nothing exists."""
        begin, limit = self._fragment
        return begin, min(limit, self._written), self._file, self._position
