"""Decides which messages are committed when several tasks each read a part of a journal.

An acknowledgement may follow long after its messages. So the driver first scans the journal, and stores what
sequencing needs: the offsets at which each acknowledged transaction begins and ends, and the clocks between which its
messages are. With that, a task decides for each message of its part whether a sequencer that reads the
whole journal would return it; see ``krammar.journal.Sequencer``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from krammar.journal import Flags, get_clock
from krammar.journal.uuids import NODE_MASK, VERSION_1, VERSION_MASK

_CONTINUE, _ACK = Flags.CONTINUE_TXN.value, Flags.ACK_TXN.value


class CommittedSpan(NamedTuple):
    """A transaction: the messages of one producer with ``begin <= offset < end`` and
    ``floor < clock < ack``."""

    begin: int
    end: int
    floor: int
    ack: int


@dataclass(slots=True)
class CommittedPart:
    """A part of a journal, and what its task must know about the rest.

    Attributes:
        spans: by producer: the transactions that overlap the part
        seen: by producer: the largest clock before the part, if a transaction is open where the part begins
        acked: by producer: the last acknowledged clock before the part, for producers that have messages
            outside of transactions in the part
        free: whether the part has messages outside of transactions
    """

    begin: int
    end: int
    spans: dict[int, list[CommittedSpan]] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=dict)
    free: bool = False


class _Producer:
    """A producer's state; see ``krammar.journal.sequencer``."""

    __slots__ = ("begin", "last_ack", "latest")

    def __init__(self, last_ack: int) -> None:
        self.last_ack = self.latest = last_ack
        self.begin = -1


class Scan:
    """Collects the transactions of a journal, message by message; ``finish`` returns the parts."""

    def __init__(self, begin: int) -> None:
        self.parts = [CommittedPart(begin, begin)]
        self._producers: dict[int, _Producer] = {}
        self._spans: list[tuple[int, CommittedSpan]] = []
        self._acked: dict[int, int] = {}

    def cut(self, offset: int) -> None:
        """Begin a new part at an offset."""
        self.parts[-1].end = offset
        part = CommittedPart(offset, offset)
        part.seen = {node: p.latest for node, p in self._producers.items() if p.begin >= 0}
        self.parts.append(part)
        self._acked = {}

    def add(self, offset: int, uuid: UUID) -> None:
        """Add the next message."""
        number = uuid.int
        flags = number >> 48 & 0x3FF
        part = self.parts[-1]
        if number & VERSION_MASK != VERSION_1 or flags > _ACK:
            part.free = True
            return
        clock = get_clock(uuid)
        node = number & NODE_MASK
        p = self._producers.get(node)
        if p is None:
            if not clock:
                return
            p = self._producers[node] = _Producer(clock - 1)
        if flags == _CONTINUE:
            if clock > p.latest:
                p.latest = clock
                if p.begin < 0:
                    p.begin = offset
            return
        before = self._acked.setdefault(node, p.last_ack)
        if flags == _ACK:
            if p.begin >= 0 and clock > p.last_ack:
                self._spans.append((node, CommittedSpan(p.begin, offset, p.last_ack, clock)))
            p.last_ack = p.latest = clock
            p.begin = -1
            if not clock:  # the producer has ended
                del self._producers[node]
            return
        part.free = True
        part.acked[node] = before
        if clock > p.last_ack:
            p.last_ack = p.latest = clock
            p.begin = -1

    def finish(self, end: int) -> list[CommittedPart]:
        """Return the parts that have committed messages; ``end`` is the journal's end."""
        self.parts[-1].end = end
        spans = sorted(self._spans, key=lambda each: each[1].begin)
        for part in self.parts:
            spans = [each for each in spans if each[1].end > part.begin]
            for node, span in spans:
                if span.begin >= part.end:
                    break
                part.spans.setdefault(node, []).append(span)
            part.seen = {
                node: clock
                for node, clock in part.seen.items()
                if node in part.spans and part.spans[node][0].begin < part.begin
            }
        return [part for part in self.parts if part.free or part.spans]


class Filter:
    """Decides which messages of a part are committed. Messages are passed in the journal's order."""

    def __init__(self, part: CommittedPart) -> None:
        self._spans = {node: iter(spans) for node, spans in part.spans.items()}
        self._open = {node: next(spans) for node, spans in self._spans.items()}
        self._seen = dict(part.seen)
        self._acked = dict(part.acked)
        # Producers that have ended, and have written nothing since.
        self._ended: set[int] = set()

    def passes(self, offset: int, uuid: UUID) -> bool:
        """Return whether the next message is committed."""
        number = uuid.int
        flags = number >> 48 & 0x3FF
        if number & VERSION_MASK != VERSION_1 or flags > _ACK:
            return True
        node = number & NODE_MASK
        clock = get_clock(uuid)
        if self._ended and clock and node in self._ended:
            self._ended.discard(node)
            self._acked[node] = clock - 1
        if flags == _CONTINUE:
            span = self._open.get(node)
            while span is not None and offset >= span.end:
                span = next(self._spans[node], None)
                if span is None:
                    del self._open[node]
                else:
                    self._open[node] = span
            if span is None or offset < span.begin:
                return False
            if offset > span.begin and clock <= self._seen.get(node, 0):
                return False
            self._seen[node] = clock
            return span.floor < clock < span.ack
        before = self._acked.get(node, 0)
        if flags == _ACK:
            self._acked[node] = clock
            if not clock:
                self._ended.add(node)
            return False
        if clock <= before:
            return False
        self._acked[node] = clock
        return True
