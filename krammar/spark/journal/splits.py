"""Where the frames of a journal in files begin, found without reading what is before.

Tasks read ranges of bytes, and both ends of a range may be anywhere in a frame. A task reads the frames from
the first boundary behind the beginning of its range up to the first boundary behind its end. Two tasks
find the same boundary for the end of the one and the beginning of the other: no frame is lost or read twice.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path
from struct import Struct as Format
from typing import Any

from krammar.journal import FixedFraming, FrameError, Framing
from krammar.journal.framing import MAGIC_WORD

_HEADER = Format("<4sI")
_CHUNK = 1 << 18
# A magic word may be part of a message. One is believed if a message follows it, and frames follow that
# without a gap for so many bytes, or up to where the file's frames end. A message that has whole frames in
# itself does not end as they do, unless it was made to.
VERIFIED = 1 << 20


def boundary(folder: Path, framing: Framing, cls: type[Any], target: int, end: int) -> int:
    """The offset, ``target`` or behind it, at which a frame of the journal in ``folder`` begins; not always
    the first one, but always the same one. ``end`` is that of the journal, and returned where there is none.
    """
    begins = sorted(int(path.stem) for path in folder.glob("*.fragment") if path.stem.isdecimal())
    index = bisect_right(begins, target) - 1
    if target >= end or not begins:
        return end
    if index < 0 or begins[index] == target:
        # Fragments begin with a frame.
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
    """Positions in a file of ``size`` bytes; -1 is none."""

    def __init__(self, file: int, size: int) -> None:
        self.file = file
        self.size = size

    def line(self, target: int) -> int:
        """Of the first line that begins at ``target`` or behind it."""
        found = self._find(b"\n", target - 1)
        return found + 1 if 0 <= found < self.size - 1 else -1

    def frame(self, target: int, framing: FixedFraming, cls: type[Any]) -> int:
        """Of the first frame of a row of them."""
        at = self._find(MAGIC_WORD, target)
        while at >= 0 and not (
            self._is_row(at, framing.max_length) and self._is_message(at, framing, cls)
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

    def _is_row(self, begin: int, max_length: int) -> bool:
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
