"""The start offsets of leader epochs: the file ``leader-epoch-checkpoint`` (KIP-101)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import Path

from krammar.broker.log.files import write_checkpoint
from krammar.logfiles.checkpoints import read_leader_epochs
from krammar.logfiles.names import LEADER_EPOCHS


class LeaderEpochs:
    """Leader epochs and their start offsets, both ascending."""

    __slots__ = ("_epochs", "_folder", "_starts", "changed")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.changed = False  # whether the file has to be written

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else -1

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def read(self) -> None:
        """Read the file.

        Raises:
            OSError, DamageError: the file cannot be read; the state is unchanged.
        """
        entries = read_leader_epochs(self._folder)
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]

    def write(self, *, sync: bool = False) -> None:
        """Write the file if the epochs have changed. Raises OSError."""
        if self.changed:
            write_checkpoint(self._folder / LEADER_EPOCHS, self.entries(), sync=sync)
            self.changed = False

    def begin(self, epoch: int, offset: int) -> None:
        """Begin an epoch at ``offset``, if it is newer than the latest."""
        if epoch <= self.latest:
            return
        # Epochs without records are dropped.
        keep = bisect_left(self._starts, offset)
        del self._epochs[keep:], self._starts[keep:]
        self._epochs.append(epoch)
        self._starts.append(offset)
        self.changed = True

    def cut(self, end: int) -> None:
        """Remove epochs that begin at ``end`` or later."""
        keep = bisect_right(self._starts, end - 1) if end > 0 else 0
        if keep < len(self._starts):
            del self._epochs[keep:], self._starts[keep:]
            self.changed = True

    def cut_before(self, start: int) -> None:
        """Remove epochs that end before ``start``; the epoch of ``start`` begins there."""
        after = bisect_right(self._starts, start)
        if after and (after > 1 or self._starts[0] < start):
            del self._epochs[: after - 1], self._starts[: after - 1]
            self._starts[0] = start
            self.changed = True

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return the largest epoch up to ``epoch`` and its end offset; (-1, -1) if it is unknown."""
        if epoch < 0 or epoch > self.latest:
            return -1, -1
        if epoch == self.latest:
            return epoch, log_end
        after = bisect_right(self._epochs, epoch)
        floor = self._epochs[after - 1] if after else epoch
        return floor, self._starts[after]
