"""Which messages of a journal are committed, told to several tasks that read a part of it each.

An acknowledgement may be far behind its messages. So the driver first goes through the journal, and keeps
of it only what sequencing needs: for each transaction that was acknowledged the offsets at which it begins and
ends, and the clocks between which its messages are. Then a task can tell of each message in its part
whether it would come out of a sequencer that reads all of the journal, see ``krammar.journal.Sequencer``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from krammar.journal import Flags, get_clock

_FIXED = 1 << 76 | 1 << 63
_FIXED_MASK = 0xF << 76 | 0b11 << 62
_NODE = (1 << 48) - 1
_CONTINUE, _ACK = Flags.CONTINUE_TXN.value, Flags.ACK_TXN.value


class Span(NamedTuple):
    """A transaction: messages of a producer at offsets from ``begin`` to before ``end``, with clocks above
    ``floor`` and below ``ack``."""

    begin: int
    end: int
    floor: int
    ack: int


@dataclass(slots=True)
class Part:
    """A part of a journal, and what is to be known of what is before and behind it.

    ``spans``  by producer the transactions that have something in it
    ``seen``   by producer the largest clock, before it, of a transaction that is open where it begins
    ``acked``  by producer the last acknowledgement before it, of producers of messages outside of
               transactions in it
    ``free``   whether there are messages in it that are in no transaction
    """

    begin: int
    end: int
    spans: dict[int, list[Span]] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=dict)
    free: bool = False


class _Producer:
    """See the sequencer's."""

    __slots__ = ("begin", "last_ack", "latest")

    def __init__(self) -> None:
        self.last_ack = self.latest = 0
        self.begin = -1


class Scan:
    """Goes through the messages of a journal; ``parts`` are complete after ``finish``."""

    def __init__(self, begin: int) -> None:
        self.parts = [Part(begin, begin)]
        self._producers: dict[int, _Producer] = {}
        self._spans: list[tuple[int, Span]] = []
        self._acked: dict[int, int] = {}

    def cut(self, offset: int) -> None:
        """Begin a new part."""
        self.parts[-1].end = offset
        part = Part(offset, offset)
        part.seen = {node: p.latest for node, p in self._producers.items() if p.begin >= 0}
        self.parts.append(part)
        self._acked = {}

    def add(self, offset: int, uuid: UUID) -> None:
        """The next message."""
        number = uuid.int
        flags = number >> 48 & 0x3FF
        part = self.parts[-1]
        if number & _FIXED_MASK != _FIXED or flags > _ACK:
            part.free = True
            return
        clock = get_clock(uuid)
        node = number & _NODE
        p = self._producers.get(node)
        if p is None:
            p = self._producers[node] = _Producer()
        if flags == _CONTINUE:
            if clock > p.latest:
                p.latest = clock
                if p.begin < 0:
                    p.begin = offset
            return
        before = self._acked.setdefault(node, p.last_ack)
        if flags == _ACK:
            if p.begin >= 0 and clock > p.last_ack:
                self._spans.append((node, Span(p.begin, offset, p.last_ack, clock)))
            p.last_ack = p.latest = clock
            p.begin = -1
            return
        part.free = True
        part.acked[node] = before
        if clock > p.last_ack:
            p.last_ack = clock
            if p.latest <= clock:
                p.latest = clock
                p.begin = -1

    def finish(self, end: int) -> list[Part]:
        """The parts in which something is committed."""
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
    """Tells of the messages of a part, in order, which are committed."""

    def __init__(self, part: Part) -> None:
        self._spans = {node: iter(spans) for node, spans in part.spans.items()}
        self._open = {node: next(spans) for node, spans in self._spans.items()}
        self._seen = dict(part.seen)
        self._acked = dict(part.acked)

    def passes(self, offset: int, uuid: UUID) -> bool:
        number = uuid.int
        flags = number >> 48 & 0x3FF
        if number & _FIXED_MASK != _FIXED or flags > _ACK:
            return True
        node = number & _NODE
        clock = get_clock(uuid)
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
            return False
        if clock <= before:
            return False
        self._acked[node] = clock
        return True
