"""Decides which messages are committed when several tasks each read a part of a journal.

An acknowledgement may follow long after its messages. So the driver first scans the journal, and stores what
sequencing needs: the offsets at which each acknowledged transaction begins and ends, and the clocks between which its
messages are. With that, a task decides for each message of its part whether a sequencer that reads the
whole journal would return it; see ``krammar.journal.Sequencer``.

A batch scans each journal once, from its beginning. A stream scans on from where it has stopped, and takes the parts
that are complete for each micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from krammar.journal import Flags
from krammar.journal.producers import oldest_remembered
from krammar.journal.uuids import NODE_MASK, VERSION_1, VERSION_MASK
from krammar.spark.journal.runs import MessageRun

# As in the sequencer, clocks are extracted from UUIDs inline: a call of get_clock takes a third of the time.
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
        free: whether the part has messages outside of transactions that may be committed
    """

    begin: int
    end: int
    spans: dict[int, list[CommittedSpan]] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=dict)
    free: bool = False


class ScannedProducer(NamedTuple):
    """The state of a producer at an offset.

    Attributes:
        node: its id
        last_ack: see ``krammar.journal.ProducerState``
        latest: the largest clock of its messages; the same as ``last_ack`` without an open transaction
        begin: the offset of the first message of its open transaction; -1 if there is none
    """

    node: int
    last_ack: int
    latest: int
    begin: int = -1


class _Producer:
    """A producer's state; see ``krammar.journal.sequencer``.

    ``first`` is the smallest clock of the open transaction, or less if it is unknown.
    """

    __slots__ = ("begin", "first", "last_ack", "latest")

    def __init__(self, last_ack: int, latest: int, begin: int = -1) -> None:
        self.last_ack = self.first = last_ack
        self.latest = latest
        self.begin = begin


class Scan:
    """Collects the transactions of a journal, message by message; ``take`` returns the parts.

    Attributes:
        end: the offset after the last acknowledgement or message outside of transactions. Everything up to it is
            decided. Messages that follow belong to open transactions
        has_committed: whether there may be committed messages before ``end`` that were not taken

    Args:
        begin: the offset of the first message.
        producers: the states of producers at ``begin``.
    """

    def __init__(self, begin: int, producers: Iterable[ScannedProducer] = ()) -> None:
        self.end = begin
        self.has_committed = False
        self._producers = {p.node: _Producer(*p[1:]) for p in producers}
        # The states at ``end`` of producers that have changed since; None if a producer was unknown.
        self._changed: dict[int, ScannedProducer | None] = {}
        self._spans: list[tuple[int, CommittedSpan]] = []
        self._parts = [CommittedPart(begin, begin, seen=self._seen())]
        self._acked: dict[int, int] = {}

    @property
    def part_begin(self) -> int:
        """The offset at which the current part begins."""
        return self._parts[-1].begin

    def cut(self, offset: int) -> None:
        """Begin a new part at an offset."""
        self._parts[-1].end = offset
        self._parts.append(CommittedPart(offset, offset, seen=self._seen()))
        self._acked = {}

    def _seen(self) -> dict[int, int]:
        return {node: p.latest for node, p in self._producers.items() if p.begin >= 0}

    def add(self, begin: int, end: int, number: int) -> None:
        """Add the next message.

        Args:
            begin, end: its offsets.
            number: its UUID, as ``uuid.UUID.int``.
        """
        flags = number >> 48 & 0x3FF
        part = self._parts[-1]
        if number & VERSION_MASK != VERSION_1 or flags > _ACK:
            part.free = self.has_committed = True
            self._decide(end)
            return
        clock = (
            number >> 92 & 0xFFFFFFFF0
            | number >> 44 & 0xFFFF000000000
            | number >> 12 & 0xFFF0000000000000
            | number >> 58 & 0xF
        )
        node = number & NODE_MASK
        p = self._producers.get(node)
        if p is None:
            if not clock:
                return
            p = self._producers[node] = _Producer(clock - 1, clock - 1)
            self._changed[node] = None
        if flags == _CONTINUE:
            if clock > p.latest:
                if node not in self._changed:
                    self._changed[node] = ScannedProducer(node, p.last_ack, p.latest, p.begin)
                p.latest = clock
                if p.begin < 0:
                    p.begin = begin
                    p.first = clock
            return
        before = self._acked.setdefault(node, p.last_ack)
        if flags == _ACK:
            if p.begin >= 0 and clock > p.first:
                self._spans.append((node, CommittedSpan(p.begin, begin, p.last_ack, clock)))
                self.has_committed = True
            p.last_ack = p.latest = clock
            p.begin = -1
            if not clock:  # the producer has ended
                del self._producers[node]
        else:
            part.free = True
            part.acked[node] = before
            if clock > p.last_ack:
                self.has_committed = True
                p.last_ack = p.latest = clock
                p.begin = -1
        self._decide(end)

    def add_run(self, run: MessageRun) -> None:
        """Add the next messages."""
        if run.count > 1:
            node = run.number & NODE_MASK
            p = self._producers.get(node)
            if run.lowest > (0 if p is None else p.latest):
                # The messages after the first one only have larger clocks.
                self.add(run.begin, run.end, run.number)
                self._producers[node].latest = run.highest
                return
        for message in run.messages():
            self.add(*message)

    def _decide(self, end: int) -> None:
        self.end = end
        if self._changed:
            self._changed = {}

    def take(self) -> list[CommittedPart]:
        """Return the parts before ``end`` that have committed messages, and continue after it.

        If transactions had begun before the scan, the first part is that of their first messages.
        """
        end = self.end
        parts = [part for part in self._parts if part.begin < end]
        following = [part for part in self._parts if part.begin >= end]
        if parts:
            rest = CommittedPart(
                end,
                following[0].begin if following else end,
                seen={p.node: p.latest for p in self._at_end() if p.begin >= 0},
            )
            if not following:
                self._acked = {}
            if not following or following[0].begin > end:
                following.insert(0, rest)
            parts[-1].end = end
        spans, self._spans = self._spans, []
        self._parts = following
        self.has_committed = False
        return list(_committed(parts, spans))

    def _at_end(self) -> list[ScannedProducer]:
        """Return the states of producers at ``end``."""
        changed = self._changed
        found = [
            (
                changed[node]
                if node in changed
                else ScannedProducer(node, p.last_ack, p.latest, p.begin)
            )
            for node, p in sorted(self._producers.items())
        ]
        return [p for p in found if p is not None]

    def producers(self, horizon: timedelta, first: int) -> list[ScannedProducer]:
        """Return the states of producers at ``end``, sorted, without those that are forgotten.

        A producer is forgotten if its last message is older than the newest message of all by more than the
        horizon, and it has no open transaction, or one of which messages were deleted.

        Args:
            first: the first offset of the journal that exists.
        """
        found = self._at_end()
        newest = max((p.latest for p in found), default=0)
        oldest = oldest_remembered(newest, horizon)
        kept = []
        for p in found:
            if p.latest >= oldest or p.begin >= first or p.node in self._changed:
                kept.append(p)
            else:
                del self._producers[p.node]
        return kept


def _committed(
    parts: Sequence[CommittedPart], spans: list[tuple[int, CommittedSpan]]
) -> Iterator[CommittedPart]:
    """Yield the parts that have committed messages, with the transactions that overlap them."""
    if not parts:
        return
    spans = sorted(spans, key=lambda each: each[1].begin)
    begin = parts[0].begin
    if spans and spans[0][1].begin < begin:
        earlier = CommittedPart(spans[0][1].begin, begin)
        for node, span in spans:
            if span.begin < begin:
                earlier.spans.setdefault(node, []).append(span)
        yield earlier
    for part in parts:
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
        if part.free or part.spans:
            yield part


class Filter:
    """Decides which messages of a part are committed. Messages are passed in the journal's order."""

    def __init__(self, part: CommittedPart) -> None:
        self._spans = {node: iter(spans) for node, spans in part.spans.items()}
        self._open = {node: next(spans) for node, spans in self._spans.items()}
        self._seen = dict(part.seen)
        self._acked = dict(part.acked)
        self._free = part.free
        # Producers that have ended, and have written nothing since.
        self._ended: set[int] = set()

    def passes(self, offset: int, number: int) -> bool:
        """Return whether the next message is committed; ``number`` is its UUID, as ``uuid.UUID.int``."""
        flags = number >> 48 & 0x3FF
        if number & VERSION_MASK != VERSION_1 or flags > _ACK:
            return self._free
        node = number & NODE_MASK
        clock = (
            number >> 92 & 0xFFFFFFFF0
            | number >> 44 & 0xFFFF000000000
            | number >> 12 & 0xFFF0000000000000
            | number >> 58 & 0xF
        )
        if self._ended and clock and node in self._ended:
            self._ended.discard(node)
            self._acked[node] = clock - 1
        if flags == _CONTINUE:
            span = self._span(node, offset)
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
        if clock <= before or not self._free:
            return False
        self._acked[node] = clock
        return True

    def _span(self, node: int, offset: int) -> CommittedSpan | None:
        """Return the first transaction of a producer that ends after an offset."""
        span = self._open.get(node)
        while span is not None and offset >= span.end:
            span = next(self._spans[node], None)
            if span is None:
                del self._open[node]
            else:
                self._open[node] = span
        return span

    def passing(self, run: MessageRun) -> Iterator[tuple[int, int]]:
        """Yield which of the next messages are committed: the first index, and the one after the last index."""
        passes = self._whole(run)
        if passes is None:
            for index, (begin, _, number) in enumerate(run.messages(), run.first):
                if self.passes(begin, number):
                    yield index, index + 1
        elif passes:
            yield run.first, run.stop

    def _whole(self, run: MessageRun) -> bool | None:
        """Return whether all messages of a run are committed, or none; None if they must be looked at one by one."""
        if run.count == 1 or self._ended:
            return None
        node = run.number & NODE_MASK
        span = self._span(node, run.begin)
        if span is None or run.last < span.begin:
            return False
        in_span = span.begin <= run.begin and run.last < span.end
        is_new = run.begin == span.begin or run.lowest > self._seen.get(node, 0)
        if in_span and is_new and span.floor < run.lowest and run.highest < span.ack:
            self._seen[node] = run.highest
            return True
        return None
