"""Finds frame boundaries in the files of a journal without reading the frames before.

Tasks read ranges of bytes, and both ends of a range may be inside of a frame. A task reads the frames from the
first boundary after the beginning of its range to the first boundary after its end. The task before and the task
after a range find the same boundary, so that no frame is lost or read twice.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path
from struct import Struct as Format
from typing import Any

from krammar.journal import FixedFraming, FrameError, Framing
from krammar.journal.fixed_framing import MAGIC_WORD

_HEADER = Format("<4sI")
_CHUNK = 1 << 18
# A magic word may also occur inside of a message. It counts as the beginning of a frame if a message follows it,
# and after that frames without a gap, for this many bytes or up to the end of the file's frames. A message that
# contains whole frames does not end where they end, unless it is constructed to do so.
VERIFIED = 1 << 20


def boundary(folder: Path, framing: Framing, cls: type[Any], target: int, end: int) -> int:
    """Return the offset, at or after ``target``, at which a frame begins.

    It is not always the first such offset, but always the same one for the same target.

    Args:
        folder: the journal's folder.
        cls: the class of the journal's messages.
        end: the end of the journal, returned if no frame begins in between.
    """
    begins = sorted(int(path.stem) for path in folder.glob("*.fragment") if path.stem.isdecimal())
    index = bisect_right(begins, target) - 1
    if target >= end or not begins:
        return end
    if index < 0 or begins[index] == target:
        # Every fragment begins with a frame.
        return begins[max(index, 0)]
    begin = begins[index]
    following = begins[index + 1] if index + 1 < len(begins) else end
    limit = min(following, end)
    with open(folder / f"{begin:020}.fragment", "rb", buffering=0) as file:
        size = min(limit - begin, os.fstat(file.fileno()).st_size)
        fragment = _Fragment(file.fileno(), size)
        if isinstance(framing, FixedFraming):
            at = fragment.frame(target - begin, framing, cls)
        else:
            at = fragment.line(target - begin)
    return limit if at < 0 else begin + at


class _Fragment:
    """Searches the first ``size`` bytes of a file; -1 means that nothing was found."""

    def __init__(self, file: int, size: int) -> None:
        self.file = file
        self.size = size

    def line(self, target: int) -> int:
        """Return where the first line begins at or after ``target``."""
        found = self._find(b"\n", target - 1)
        return found + 1 if 0 <= found < self.size - 1 else -1

    def frame(self, target: int, framing: FixedFraming, cls: type[Any]) -> int:
        """Return where the first frame begins at or after ``target``."""
        at = self._find(MAGIC_WORD, target)
        while at >= 0 and not (
            self._is_chain(at, framing.max_length) and self._is_message(at, framing, cls)
        ):
            at = self._find(MAGIC_WORD, at + 1)
        return at

    def _is_message(self, at: int, framing: FixedFraming, cls: type[Any]) -> bool:
        header = os.pread(self.file, _HEADER.size, at)
        data = os.pread(self.file, _HEADER.size + _HEADER.unpack(header)[1], at)
        try:
            framing.unmarshal(data, cls)
        except FrameError:
            return False
        return True

    def _is_chain(self, begin: int, max_length: int) -> bool:
        """Return whether frames without gaps follow; see ``VERIFIED``."""
        at = begin
        while at < self.size:
            header = os.pread(self.file, _HEADER.size, at)
            if len(header) < _HEADER.size or at + _HEADER.size > self.size:
                return False
            word, length = _HEADER.unpack(header)
            if word != MAGIC_WORD or length > max_length:
                return False
            if at - begin >= VERIFIED:
                return True
            at += _HEADER.size + length
        return at == self.size

    def _find(self, what: bytes, begin: int) -> int:
        overlap = len(what) - 1
        while begin < self.size:
            data = os.pread(self.file, min(_CHUNK, self.size - begin), begin)
            if not data:
                break
            at = data.find(what)
            if at >= 0:
                return begin + at
            begin += max(len(data) - overlap, 1)
        return -1
