"""What a sequencer knows of the producers of a journal, and what checkpoints store of it."""

from __future__ import annotations

from array import array
from collections import deque
from datetime import timedelta
from itertools import chain
from typing import NamedTuple

from krammar.journal.errors import CheckpointError
from krammar.journal.messages import Envelope
from krammar.journal.uuids import ProducerID


class JournalProducer(NamedTuple):
    """A producer in a journal."""

    journal: str
    producer: ProducerID


class ProducerState(NamedTuple):
    """The state of a producer in a journal.

    Attributes:
        last_ack: the clock of its last ACK_TXN or OUTSIDE_TXN; without one, the clock of its first message minus one
        begin: the offset of its first CONTINUE_TXN with a larger clock; -1 if there is none
    """

    journal: str
    producer: ProducerID
    last_ack: int
    begin: int = -1

    @property
    def journal_producer(self) -> JournalProducer:
        """Journal and producer, as a key."""
        return JournalProducer(self.journal, self.producer)


class OpenTransaction:
    """The messages of an open transaction.

    Attributes:
        held: its messages in the ring buffer
        evicted: the offsets of its other messages: begin and end of each range, one after the other
    """

    __slots__ = ("begin", "evicted", "held")

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.held: deque[Envelope] = deque()
        self.evicted = array("q")

    def join_ranges(self) -> int:
        """Join each two ranges of ``evicted``. Returns by how many there are less."""
        before = len(self.evicted)
        begins, ends = self.evicted[::4], self.evicted[3::4]
        if len(ends) < len(begins):
            ends.append(self.evicted[-1])
        self.evicted = array("q", chain.from_iterable(zip(begins, ends, strict=True)))
        return (before - len(self.evicted)) // 2


class ProducerProgress:
    """A producer in a journal. ``latest`` is the largest clock since its last acknowledgement, or since the restart."""

    __slots__ = ("last_ack", "latest", "sequence")

    def __init__(self, last_ack: int = 0, begin: int = -1) -> None:
        self.last_ack = last_ack
        self.latest = last_ack
        self.sequence = OpenTransaction(begin) if begin >= 0 else None

    @classmethod
    def restored(cls, state: ProducerState) -> ProducerProgress:
        """Continue from the state of a checkpoint. Raises CheckpointError."""
        journal, producer, last_ack, begin = state
        if begin < -1 or not 0 <= last_ack < 1 << 64:
            raise CheckpointError(
                f"{journal}: the producer {producer} has the invalid clock {last_ack} or offset {begin}"
            )
        return cls(last_ack, begin)


def oldest_remembered(newest: int, horizon: timedelta) -> int:
    """Return the clock before which producers are forgotten, if ``newest`` is that of the newest message."""
    # Clocks are sixteenths of 100 ns.
    return newest - horizon // timedelta(microseconds=1) * 160


def id_of(node: int) -> ProducerID:
    """Return the id of a producer by its node in UUIDs."""
    return ProducerID(node.to_bytes(6, "big"))
