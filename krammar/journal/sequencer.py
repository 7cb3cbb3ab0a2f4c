"""From messages as they were written to messages that are committed, each once.

Producers write uncommitted messages, may write some of them twice, and acknowledge them later, or never.
The sequencer is fed with all that is read, in the order of the journal, and hands out what was acknowledged.

For each producer of a journal it knows the clock of its last acknowledgement and where its open sequence
begins. The messages of open sequences are kept in a ring buffer. Where an acknowledgement is for messages
that have been pushed out of it, or were read before the last restart, a part of the journal has to be read
again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

from krammar.journal.errors import CheckpointError, MustStartReplayError, SequencerError
from krammar.journal.messages import Envelope
from krammar.journal.uuids import ProducerID, get_clock

log = logging.getLogger("krammar.journal")

# Parts of a UUID's number; see uuids.py. They are taken apart in line: calls of get_clock, get_flags and
# get_producer_id take 4 µs a message, all that is done here 0.65 µs.
_FIXED = 1 << 76 | 1 << 63
_FIXED_MASK = 0xF << 76 | 0b11 << 62
_NODE = (1 << 48) - 1
_OUTSIDE, _CONTINUE, _ACK = 0, 1, 2


class JournalProducer(NamedTuple):
    """A producer in a journal."""

    journal: str
    producer: ProducerID


class ProducerState(NamedTuple):
    """How far a producer's messages in a journal have been sequenced.

    ``last_ack``  the clock of its last ACK_TXN or OUTSIDE_TXN; 0 if it has none
    ``begin``     the offset of its first CONTINUE_TXN with a larger clock; -1 if there is none
    """

    journal: str
    producer: ProducerID
    last_ack: int
    begin: int = -1

    @property
    def journal_producer(self) -> JournalProducer:
        return JournalProducer(self.journal, self.producer)


class _Producer:
    """A producer in a journal. ``held`` are the messages of its open sequence that are in the ring buffer, a
    new deque for each sequence; ``latest`` is the largest clock since the last acknowledgement, as far as
    is known: not if the sequence was ``restored``. ``seen`` is the clock by which its age is told.
    """

    __slots__ = ("begin", "held", "last_ack", "latest", "node", "restored", "seen")

    def __init__(self, node: int, last_ack: int = 0, begin: int = -1) -> None:
        self.node = node
        self.last_ack = last_ack
        self.latest = last_ack
        self.begin = begin
        self.held: deque[Envelope] = deque()
        self.restored = begin >= 0
        self.seen = last_ack

    def reset(self, last_ack: int) -> None:
        """Drop the open sequence and go on behind a clock."""
        self.last_ack = self.latest = last_ack
        if self.begin >= 0:
            self.begin = -1
            self.restored = False
            # The ring buffer still has the old deque, which must stay empty from now on.
            self.held.clear()
            self.held = deque()


class _Replay:
    """Messages to be handed out after ``begin`` up to ``end`` was read again: those there of a producer
    that continue with clocks above ``floor`` and below ``ack``, and then ``held``."""

    __slots__ = ("ack", "asked", "begin", "end", "floor", "held", "iterator", "journal", "node")

    def __init__(
        self,
        journal: str,
        node: int,
        begin: int,
        end: int,
        floor: int,
        ack: int,
        held: deque[Envelope],
    ) -> None:
        self.journal = journal
        self.node = node
        self.begin = begin
        self.end = end
        self.floor = floor
        self.ack = ack
        self.held = held
        self.asked = False
        self.iterator: Iterator[Envelope] | None = None


class Sequencer:
    """Sequences the messages of journals.

    ``states`` are those of a checkpoint, if there is one; the first message to be queued is then the first
    behind those that were queued before the checkpoint. ``buffer`` is the number of uncommitted messages
    that the ring buffer holds, of all producers together.

    After each ``queue_uncommitted``, ``deque_committed`` is called until it returns None. It may raise
    MustStartReplayError: then ``replay_range`` of ``replay_journal`` has to be read again and given to
    ``start_replay``. ``ReadCommittedIter`` does all that.

    What a message does, by its flags and its clock, among those of its producer in its journal:

    ``OUTSIDE_TXN``   is handed out at once; but dropped if its clock is not larger than the last
                      acknowledgement's, for it is a duplicate. It counts as an acknowledgement that
                      commits nothing: uncommitted messages with smaller clocks are dropped.
    ``CONTINUE_TXN``  is kept; but dropped if its clock is not larger than that of a message before it.
    ``ACK_TXN``       releases what is kept with smaller clocks and drops the rest. One whose clock is that
                      of the last acknowledgement, or smaller, drops all that is kept. A smaller one says
                      that the producer has gone back to an older checkpoint and may write things
                      anew: until it has caught up, they are handed out again. It is not handed out itself.

    A message that has no UUID of version 1, or flags that are none of these, is handed out at once and
    has no part in all this.
    """

    def __init__(self, states: Iterable[ProducerState] = (), buffer: int = 8192) -> None:
        """Raises ValueError for a buffer smaller than 1, CheckpointError for contradictory states."""
        if buffer < 1:
            raise ValueError(f"the buffer holds at least 1 message, not {buffer}")
        self._size = buffer
        # The deque that a message was put in, for each of the last messages that were kept. What was
        # handed out or dropped since has left its deque, which is replaced when its sequence ends.
        self._ring: deque[deque[Envelope]] = deque()
        self._journals: dict[str, dict[int, _Producer]] = {}
        self._ready: deque[Envelope] = deque()
        self._replay: _Replay | None = None
        self._restore(states)

    def _restore(self, states: Iterable[ProducerState]) -> None:
        for journal, producer, last_ack, begin in states:
            producers = self._journals.setdefault(journal, {})
            node = ProducerID(producer).node
            if node in producers:
                raise CheckpointError(f"{journal}: two states of the producer {producer}")
            if begin < -1 or not 0 <= last_ack < 1 << 64:
                raise CheckpointError(
                    f"{journal}: the producer {producer} cannot be at clock {last_ack} and offset {begin}"
                )
            producers[node] = _Producer(node, last_ack, begin)
        for producers in self._journals.values():
            newest = max(p.last_ack for p in producers.values())
            for p in producers.values():
                if p.begin >= 0:
                    # The state does not say when its open sequence was written: not as long ago as its
                    # last acknowledgement, which may be none at all.
                    p.seen = newest

    # Hot: 0.65 µs for a message that is kept, with handing it out.
    def queue_uncommitted(self, envelope: Envelope) -> None:
        """Take a message in. Raises SequencerError while there are messages to be handed out."""
        if self._ready or self._replay is not None:
            self._require_drained()
        number = envelope.message.get_uuid().int
        flags = number >> 48 & 0x3FF
        if number & _FIXED_MASK != _FIXED or flags > _ACK:
            self._ready.append(envelope)
            return
        clock = (
            number >> 92 & 0xFFFFFFFF0
            | number >> 44 & 0xFFFF000000000
            | number >> 12 & 0xFFF0000000000000
            | number >> 58 & 0xF
        )
        journal = envelope.journal
        node = number & _NODE
        try:
            p = self._journals[journal][node]
        except KeyError:
            p = self._journals.setdefault(journal, {}).setdefault(node, _Producer(node))
        if flags == _CONTINUE:
            if clock <= p.latest:
                return
            p.latest = p.seen = clock
            if p.begin < 0:
                p.begin = envelope.begin
            held = p.held
            held.append(envelope)
            ring = self._ring
            ring.append(held)
            if len(ring) > self._size:
                oldest = ring.popleft()
                if oldest:
                    oldest.popleft()
        elif flags == _ACK:
            self._acknowledge(p, clock, envelope)
        elif clock > p.last_ack:
            self._outside(p, clock, envelope)

    def _acknowledge(self, p: _Producer, clock: int, envelope: Envelope) -> None:
        floor = p.last_ack
        if clock < floor:
            log.warning(
                "%s: at offset %d the producer %s goes back from clock %#x to %#x: messages may come again",
                envelope.journal,
                envelope.begin,
                ProducerID(p.node.to_bytes(6, "big")),
                floor,
                clock,
            )
        p.seen = clock
        if clock <= floor or p.begin < 0:
            p.reset(clock)
            return
        held = p.held
        gap_end = held[0].begin if held else envelope.begin
        if p.latest >= clock:
            while held and get_clock(held[-1].message.get_uuid()) >= clock:
                held.pop()
        if gap_end > p.begin:
            self._replay = _Replay(envelope.journal, p.node, p.begin, gap_end, floor, clock, held)
        else:
            self._ready = held
        p.last_ack = p.latest = clock
        p.begin = -1
        p.restored = False
        p.held = deque()

    def _outside(self, p: _Producer, clock: int, envelope: Envelope) -> None:
        p.seen = max(p.seen, clock)
        if p.begin >= 0:
            log.warning(
                "%s: at offset %d the producer %s writes outside of its open transaction: what the "
                "transaction has so far is rolled back",
                envelope.journal,
                envelope.begin,
                ProducerID(p.node.to_bytes(6, "big")),
            )
        if p.latest <= clock and not p.restored:
            p.reset(clock)
        else:
            # Some of the sequence has larger clocks, or may have: a replay will leave out the rest.
            p.last_ack = clock
            p.latest = max(p.latest, clock)
            held = p.held
            if held and held[0].begin == p.begin:
                while get_clock(held[0].message.get_uuid()) <= clock:
                    held.popleft()
                p.begin = held[0].begin
        self._ready.append(envelope)

    # Handing out.

    def deque_committed(self) -> Envelope | None:
        """The next acknowledged message; None if there is none until more are queued.

        Raises MustStartReplayError, and what the iterator given to ``start_replay`` raises; a replay
        that failed is to be started anew.
        """
        if self._ready:
            return self._ready.popleft()
        if self._replay is None:
            return None
        self._read_again(self._replay)
        return self._ready.popleft() if self._ready else None

    @property
    def drained(self) -> bool:
        """Whether no message is left to be handed out. May read on in a replay, and raise what that
        raises."""
        if not self._ready and self._replay is not None and self._replay.iterator is not None:
            self._read_again(self._replay)
        return not self._ready and self._replay is None

    def _require_drained(self) -> None:
        if not self.drained:
            raise SequencerError("there are committed messages left to be dequeued")

    def _read_again(self, replay: _Replay) -> None:
        """Find the next message of a replay; at its end, go on with those in the ring buffer."""
        iterator = replay.iterator
        if iterator is None:
            replay.asked = True
            raise MustStartReplayError(
                f"{replay.journal}: offsets {replay.begin} to {replay.end} must be read again"
            )
        replay.iterator = None  # unless it gets to the end of this function
        for envelope in iterator:
            if envelope.journal != replay.journal or envelope.begin < replay.begin:
                raise SequencerError(
                    f"offset {envelope.begin} of {envelope.journal} is not in the replay of "
                    f"{replay.journal} from {replay.begin} to {replay.end}"
                )
            if envelope.begin >= replay.end:
                break
            number = envelope.message.get_uuid().int
            if (
                number & _NODE != replay.node
                or number & _FIXED_MASK != _FIXED
                or number >> 48 & 0x3FF != _CONTINUE
            ):
                continue
            clock = get_clock(envelope.message.get_uuid())
            if clock > replay.floor:
                replay.floor = clock
                if clock < replay.ack:
                    replay.iterator = iterator
                    self._ready.append(envelope)
                    return
        self._replay = None
        for envelope in replay.held:
            # After a restart, the ring buffer may have what was read before it too.
            clock = get_clock(envelope.message.get_uuid())
            if clock > replay.floor:
                replay.floor = clock
                self._ready.append(envelope)

    # Replays.

    @property
    def replay_journal(self) -> str:
        """The journal that ``replay_range`` is of. Raises SequencerError as it does."""
        return self._asked().journal

    def replay_range(self) -> tuple[int, int]:
        """The offsets to be read again, from the first up to but without the second.

        Raises SequencerError unless ``deque_committed`` has raised MustStartReplayError.
        """
        replay = self._asked()
        return replay.begin, replay.end

    def start_replay(self, envelopes: Iterable[Envelope]) -> None:
        """Go on with what is read, uncommitted, of ``replay_range``. Raises SequencerError as it does."""
        self._asked().iterator = iter(envelopes)

    def _asked(self) -> _Replay:
        replay = self._replay
        if replay is None or not replay.asked or replay.iterator is not None:
            raise SequencerError("no replay was asked for")
        return replay

    # States.

    def has_pending(self, since: Mapping[str, int]) -> bool:
        """Whether a sequence is open that begins behind the offset that ``since`` gives for its journal; at
        any offset for journals that are not in it. It hints that more is to come."""
        for journal, producers in self._journals.items():
            offset = since.get(journal, -1)
            if any(p.begin > offset for p in producers.values()):
                return True
        return False

    def producer_states(self, prune_horizon: timedelta | None = None) -> list[ProducerState]:
        """The states of all producers, by journal and producer, for a checkpoint.

        Producers whose last message is older by more than ``prune_horizon`` than the newest of their journal
        are forgotten first, with what they have not committed; none are without a horizon, or with 0.
        Raises SequencerError while there are messages to be handed out.
        """
        if self._ready or self._replay is not None:
            self._require_drained()
        if prune_horizon:
            # Clocks are sixteenths of 100 ns.
            horizon = prune_horizon // timedelta(microseconds=1) * 160
            for producers in self._journals.values():
                oldest = max(p.seen for p in producers.values()) - horizon
                for node in [node for node, p in producers.items() if p.seen < oldest]:
                    producers.pop(node).reset(0)
        return [
            ProducerState(journal, ProducerID(node.to_bytes(6, "big")), p.last_ack, p.begin)
            for journal, producers in sorted(self._journals.items())
            for node, p in sorted(producers.items())
        ]
