"""The start offsets of leader epochs: the file ``leader-epoch-checkpoint`` (KIP-101)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from pathlib import Path

from krammar.broker.log.files import write_checkpoint
from krammar.logfiles.checkpoints import read_leader_epochs
from krammar.logfiles.names import LEADER_EPOCHS

_epoch, _start = itemgetter(0), itemgetter(1)


class LeaderEpochs:
    """Leader epochs and their start offsets, both ascending."""

    __slots__ = ("_entries", "_folder", "changed", "latest")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entries: list[tuple[int, int]] = []
        self.changed = False  # whether the file has to be written
        self.latest = -1

    def read(self) -> None:
        """Read the file. Raises OSError and DamageError; the state is unchanged then."""
        self._entries = read_leader_epochs(self._folder)
        self._note_latest()

    def _note_latest(self) -> None:
        self.latest = self._entries[-1][0] if self._entries else -1

    def write(self) -> None:
        """Write the file if the epochs have changed. Raises OSError."""
        if self.changed:
            # Without force: a flush does that, and the log replaces a file that a power cut has
            # emptied.
            write_checkpoint(self._folder / LEADER_EPOCHS, self._entries, durable=False)
            self.changed = False

    def begin(self, epoch: int, offset: int) -> None:
        """Begin an epoch at ``offset``, if it is newer than the latest."""
        if epoch > self.latest:
            # Epochs without records are dropped.
            self.cut(offset)
            self._entries.append((epoch, offset))
            self.latest = epoch
            self.changed = True

    def cut(self, end: int) -> None:
        """Remove epochs that begin at ``end`` or later."""
        keep = bisect_left(self._entries, end, key=_start)
        if keep < len(self._entries):
            del self._entries[keep:]
            self._note_latest()
            self.changed = True

    def cut_before(self, start: int) -> None:
        """Remove epochs that end before ``start``; the epoch of ``start`` begins there."""
        current = bisect_right(self._entries, start, key=_start) - 1
        if current >= 0 and (current or self._entries[0][1] < start):
            self._entries[: current + 1] = [(self._entries[current][0], start)]
            self.changed = True

    def at(self, offset: int) -> int:
        """Return the epoch of an offset; -1 if it is unknown."""
        after = bisect_right(self._entries, offset, key=_start)
        return self._entries[after - 1][0] if after else -1

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return the largest epoch up to ``epoch`` and its end offset; (-1, -1) if it is unknown."""
        if epoch < 0 or epoch > self.latest:
            return -1, -1
        if epoch == self.latest:
            return epoch, log_end
        after = bisect_right(self._entries, epoch, key=_epoch)
        floor = self._entries[after - 1][0] if after else epoch
        return floor, self._entries[after][1]
