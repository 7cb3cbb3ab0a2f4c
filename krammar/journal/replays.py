"""Reads the messages of a committed transaction again that are not in the ring buffer of a sequencer any more."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from krammar.journal.errors import MustStartReplayError, SequencerError
from krammar.journal.messages import Envelope
from krammar.journal.uuids import NODE_MASK, VERSION_1, VERSION_MASK, Flags, get_clock

# Producer, flags, version and variant of a UUID: the mask of their bits, and those of messages of transactions.
_WHOSE = NODE_MASK | 0x3FF << 48 | VERSION_MASK
_CONTINUES = Flags.CONTINUE_TXN.value << 48 | VERSION_1

# The number of messages that a replay reads at a time.
_AT_ONCE = 256


@dataclass(slots=True, eq=False)
class Replay:
    """A committed transaction of which some ``ranges`` must be read again.

    Its messages there are those of the producer ``node`` with ``floor < clock < ack``. The ``held`` ones follow.
    """

    journal: str
    node: int
    ranges: list[tuple[int, int]]
    floor: int
    ack: int
    held: deque[Envelope]
    requested: bool = False
    iterator: Iterator[Envelope] | None = None

    @property
    def begin(self) -> int:
        return self.ranges[0][0]

    @property
    def end(self) -> int:
        return self.ranges[-1][1]

    def read(self, ready: deque[Envelope]) -> bool:
        """Add the next messages to ``ready``; at the end, those in the ring buffer too.

        Returns whether the transaction is complete. Raises MustStartReplayError, and errors of the iterator.
        """
        iterator = self.iterator
        if iterator is None:
            self.requested = True
            raise MustStartReplayError(
                f"{self.journal}: offsets {self.begin} to {self.end} must be read again"
            )
        self.iterator = None  # set again below if the replay continues
        journal, begin, end, ack = self.journal, self.begin, self.end, self.ack
        wanted = self.node | _CONTINUES
        add = ready.append
        left = _AT_ONCE
        try:
            for envelope in iterator:
                if envelope.journal != journal or envelope.begin < begin:
                    raise SequencerError(
                        f"offset {envelope.begin} of {envelope.journal} is not in the replay of "
                        f"{journal} from {begin} to {end}"
                    )
                if envelope.begin >= end:
                    break
                number = envelope.message.get_uuid().int
                if number & _WHOSE != wanted:
                    continue
                clock = (
                    number >> 92 & 0xFFFFFFFF0
                    | number >> 44 & 0xFFFF000000000
                    | number >> 12 & 0xFFF0000000000000
                    | number >> 58 & 0xF
                )
                if clock > self.floor:
                    self.floor = clock
                    if clock < ack:
                        add(envelope)
                        left -= 1
                        if not left:
                            self.iterator = iterator
                            return False
        except Exception as error:
            if left == _AT_ONCE:
                raise
            # Return the messages before the error first.
            self.iterator = map(_raise, (error,))
            return False
        for envelope in self.held:
            # After a restart, messages in the ring buffer may repeat messages from before the restart.
            clock = get_clock(envelope.message.get_uuid())
            if clock > self.floor:
                self.floor = clock
                add(envelope)
        return True


def _raise(error: Exception) -> Envelope:
    raise error
