"""Where each leader's epoch begins in a partition: the file ``leader-epoch-checkpoint`` (KIP-101)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import Path

from krammar.broker.storage.files import LEADER_EPOCHS, read_checkpoint, write_checkpoint


class LeaderEpochs:
    """Epochs and the offsets at which they begin, both rising."""

    __slots__ = ("_epochs", "_path", "_starts", "changed")

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEADER_EPOCHS
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.changed = False  # whether the file has to be written

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else -1

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def read(self) -> None:
        """Raises ValueError, and changes nothing then, if the file is no list of epochs."""
        rows = [(int(epoch), int(start)) for epoch, start in read_checkpoint(self._path)]
        epochs = [epoch for epoch, _ in rows]
        starts = [start for _, start in rows]
        if sorted(set(epochs)) != epochs or sorted(starts) != starts:
            raise ValueError("its epochs do not rise")
        self._epochs = epochs
        self._starts = starts

    def write(self, *, sync: bool = False) -> None:
        """Bring the file up to date. Raises OSError."""
        if self.changed:
            write_checkpoint(self._path, self.entries(), sync=sync)
            self.changed = False

    def begin(self, epoch: int, offset: int) -> None:
        """Batches from ``offset`` on are of ``epoch``; nothing if it is not newer than the latest."""
        if epoch <= self.latest:
            return
        # An epoch in which nothing was written has no offsets.
        keep = bisect_left(self._starts, offset)
        del self._epochs[keep:], self._starts[keep:]
        self._epochs.append(epoch)
        self._starts.append(offset)
        self.changed = True

    def cut(self, end: int) -> None:
        """The log ends before ``end`` now."""
        keep = bisect_right(self._starts, end - 1) if end > 0 else 0
        if keep < len(self._starts):
            del self._epochs[keep:], self._starts[keep:]
            self.changed = True

    def cut_before(self, start: int) -> None:
        """The log begins at ``start`` now; the epoch that holds it begins there."""
        behind = bisect_right(self._starts, start)
        if behind and (behind > 1 or self._starts[0] < start):
            del self._epochs[: behind - 1], self._starts[: behind - 1]
            self._starts[0] = start
            self.changed = True

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The epoch at or before ``epoch`` and where it ends, as OffsetForLeaderEpoch answers;
        (-1, -1) if the log knows nothing of it."""
        if epoch < 0 or epoch > self.latest:
            return -1, -1
        if epoch == self.latest:
            return epoch, log_end
        behind = bisect_right(self._epochs, epoch)
        floor = self._epochs[behind - 1] if behind else epoch
        return floor, self._starts[behind]
