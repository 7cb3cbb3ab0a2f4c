"""Turns the messages of a journal into committed messages, each once.

Producers write uncommitted messages, possibly twice, and acknowledge them later, or never. The sequencer receives all
messages in the order of the journal, and returns the acknowledged ones.

For each producer of a journal, it stores the clock of the last acknowledgement and the beginning of the open
transaction. A ring buffer holds the latest messages of open transactions. For older messages, only their offsets are
stored; exactly these messages are read again when they are acknowledged. If a transaction was open at the last restart,
everything from its first message to the restart is read again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from krammar.journal.errors import CheckpointError, MustStartReplayError, SequencerError
from krammar.journal.messages import Envelope
from krammar.journal.producers import (
    OpenTransaction,
    ProducerProgress,
    ProducerState,
    id_of,
    oldest_remembered,
)
from krammar.journal.uuids import NODE_MASK, VERSION_1, VERSION_MASK, Flags, ProducerID, get_clock

# Replays: reading the messages of a committed transaction again that are not in the ring buffer any more.

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


log = logging.getLogger("krammar.journal")

# Sequencing.

# Clock, flags and producer are extracted from UUIDs inline: calls of get_clock, get_flags and
# get_producer_id take 4 µs per message, the whole sequencing takes 0.65 µs.
_CONTINUE, _ACK = 1, 2


class Sequencer:
    """Sequences the messages of journals.

    After each ``queue_uncommitted``, call ``deque_committed`` until it returns None. If it raises
    MustStartReplayError, read ``replay_range`` of ``replay_journal`` again, or only its parts
    ``replay_ranges``, and pass the messages to ``start_replay``. ``ReadCommittedIter`` does all that.

    The effect of a message depends on its flags and on its clock among the messages of its producer in its journal:

    Attributes:
        OUTSIDE_TXN: The message is returned immediately. It is dropped as a duplicate if its clock is not larger than
            the last acknowledgement's. It counts as an acknowledgement that commits nothing, so
            an open transaction of the producer is rolled back.
        CONTINUE_TXN: The message is held. It is dropped if its clock is not larger than that of an earlier message.
        ACK_TXN: The held messages with smaller clocks are returned, the others dropped. The acknowledgement
            itself is not returned. If its clock is not larger than the last acknowledgement's, all held
            messages are dropped. A smaller clock means that the producer has restarted from an older
            checkpoint and may write messages again; they are returned again until it has caught up. Clock 0
            means that the producer has ended, and it is forgotten.

    Before its first message, a producer's last acknowledgement counts as the clock of that message minus one.

    A message without a UUID of version 1, or with other flags, is returned immediately and has no other effect.

    Args:
        states: the states of a checkpoint. The first message to be queued is then the first one after the checkpoint.
        buffer: the number of uncommitted messages in the ring buffer, of all producers together.

    Raises:
        ValueError: the buffer is smaller than 1.
        CheckpointError: the states contradict each other.
    """

    # The most ranges of offsets that are stored, of 16 bytes each. If transactions are interleaved
    # message by message, each range has one message. If there are more, ranges are joined, and
    # replays read what is between them too.
    _most_stored = 1 << 20

    def __init__(self, states: Iterable[ProducerState] = (), buffer: int = 8192) -> None:
        if buffer < 1:
            raise ValueError(f"buffer must be at least 1, not {buffer}")
        self._size = buffer
        # The transactions of the latest messages, oldest first. A transaction that was returned or dropped holds no
        # messages any more.
        self._ring: deque[OpenTransaction] = deque()
        self._journals: dict[str, dict[int, ProducerProgress]] = {}
        self._ready: deque[Envelope] = deque()
        self._replay: Replay | None = None
        # The number of stored ranges of offsets, of all transactions together.
        self._ranges = 0
        self._most_ranges = self._most_stored
        # Journals with open transactions of a checkpoint, until their first message is queued.
        self._restored: set[str] = set()
        self._restore(states)

    def _restore(self, states: Iterable[ProducerState]) -> None:
        for state in states:
            producers = self._journals.setdefault(state.journal, {})
            node = ProducerID(state.producer).node
            if node in producers:
                raise CheckpointError(
                    f"{state.journal}: the producer {state.producer} has two states"
                )
            producers[node] = ProducerProgress.restored(state)
            if state.begin >= 0:
                self._restored.add(state.journal)

    def _resume(self, journal: str, offset: int) -> None:
        """Handle the first message after a restart: open transactions lie before ``offset``."""
        self._restored.discard(journal)
        for p in self._journals[journal].values():
            if p.sequence is not None and p.sequence.begin < offset:
                p.sequence.evicted.extend((p.sequence.begin, offset))
                self._ranges += 1

    # Hot: 0.65 µs per held message, including its return.
    def queue_uncommitted(self, envelope: Envelope) -> None:
        """Add a message. Raises SequencerError while committed messages are left to be dequeued."""
        if self._ready or self._replay is not None:
            self._require_drained()
        journal = envelope.journal
        if self._restored and journal in self._restored:
            self._resume(journal, envelope.begin)
        number = envelope.message.get_uuid().int
        flags = number >> 48 & 0x3FF
        if number & VERSION_MASK != VERSION_1 or flags > _ACK:
            self._ready.append(envelope)
            return
        clock = (
            number >> 92 & 0xFFFFFFFF0
            | number >> 44 & 0xFFFF000000000
            | number >> 12 & 0xFFF0000000000000
            | number >> 58 & 0xF
        )
        node = number & NODE_MASK
        try:
            p = self._journals[journal][node]
        except KeyError:
            if not clock:  # the producer has ended
                return
            # As in Gazette, messages before the first one that was read count as acknowledged.
            p = self._journals.setdefault(journal, {})[node] = ProducerProgress(clock - 1)
        if flags == _CONTINUE:
            if clock <= p.latest:
                return
            p.latest = clock
            sequence = p.sequence
            if sequence is None:
                sequence = p.sequence = OpenTransaction(envelope.begin)
            sequence.held.append(envelope)
            ring = self._ring
            ring.append(sequence)
            if len(ring) > self._size:
                oldest = ring.popleft()
                if oldest.held:
                    out = oldest.held.popleft()
                    evicted = oldest.evicted
                    if evicted and evicted[-1] == out.begin:
                        evicted[-1] = out.end
                    else:
                        evicted.append(out.begin)
                        evicted.append(out.end)
                        self._ranges += 1
                        if self._ranges > self._most_ranges:
                            self._join_ranges()
        elif flags == _ACK:
            self._acknowledge(p, clock, envelope, node)
        elif clock > p.last_ack:
            if p.sequence is not None:
                self._end(p.sequence)
                p.sequence = None
                log.warning(
                    "%s: at offset %d, the producer %s writes outside of its open transaction, which is "
                    "rolled back",
                    journal,
                    envelope.begin,
                    id_of(node),
                )
            p.last_ack = p.latest = clock
            self._ready.append(envelope)

    def queue_until_committed(self, read: deque[Envelope]) -> Envelope:
        """Add messages from the left of ``read`` until one commits messages, or none is left.

        Args:
            read: at least one message; added ones are removed.

        Returns:
            The last message that was added.
        """
        queue = self.queue_uncommitted
        while True:
            envelope = read.popleft()
            queue(envelope)
            if self._ready or self._replay is not None or not read:
                return envelope

    def _acknowledge(self, p: ProducerProgress, clock: int, envelope: Envelope, node: int) -> None:
        floor, latest, sequence = p.last_ack, p.latest, p.sequence
        if clock == 0:
            # The producer has ended; from now on it counts as unknown.
            del self._journals[envelope.journal][node]
        elif clock < floor:
            log.warning(
                "%s: at offset %d, the producer %s goes back from clock %#x to %#x: messages may be repeated",
                envelope.journal,
                envelope.begin,
                id_of(node),
                floor,
                clock,
            )
        p.last_ack = p.latest = clock
        p.sequence = None
        if sequence is None:
            return
        evicted, held = sequence.evicted, sequence.held
        if clock <= floor:
            self._end(sequence)
            return
        if latest >= clock:
            while held and get_clock(held[-1].message.get_uuid()) >= clock:
                held.pop()
        if not evicted:
            self._ready = held
        else:
            ranges = list(zip(evicted[::2], evicted[1::2], strict=True))
            self._ranges -= len(ranges)
            self._replay = Replay(envelope.journal, node, ranges, floor, clock, held)

    def _join_ranges(self) -> None:
        """Join each two ranges of a transaction; a replay then also reads what is between them."""
        for producers in self._journals.values():
            for p in producers.values():
                if p.sequence is not None:
                    self._ranges -= p.sequence.join_ranges()
        # If most transactions already have one range, don't try again for each new range.
        self._most_ranges = max(self._most_stored, self._ranges * 3 // 2)

    def _end(self, sequence: OpenTransaction) -> None:
        """Drop a transaction."""
        sequence.held.clear()
        self._ranges -= len(sequence.evicted) // 2

    # Committed messages.

    def deque_committed(self) -> Envelope | None:
        """Return the next acknowledged message, or None if more messages must be queued first.

        Raises:
            MustStartReplayError: messages must be read again; see ``start_replay``. Errors of the iterator that was
                passed to ``start_replay`` are raised unchanged; start the replay again after one.
        """
        if self._ready:
            return self._ready.popleft()
        if self._replay is None:
            return None
        self._read_again(self._replay)
        return self._ready.popleft() if self._ready else None

    @property
    def drained(self) -> bool:
        """Whether no committed message is left. This may read on in a replay, and raise the replay's errors."""
        if not self._ready and self._replay is not None and self._replay.iterator is not None:
            self._read_again(self._replay)
        return not self._ready and self._replay is None

    def _read_again(self, replay: Replay) -> None:
        if replay.read(self._ready):
            self._replay = None

    def _require_drained(self) -> None:
        if not self.drained:
            raise SequencerError("committed messages are left to be dequeued")

    # Replays.

    @property
    def replay_journal(self) -> str:
        """The journal of ``replay_range``. Raises the same error."""
        return self._requested().journal

    def replay_range(self) -> tuple[int, int]:
        """Return the offsets that must be read again; the second one is exclusive.

        Raises SequencerError if ``deque_committed`` has not raised MustStartReplayError.
        """
        replay = self._requested()
        return replay.begin, replay.end

    def replay_ranges(self) -> list[tuple[int, int]]:
        """Return the parts of ``replay_range`` that contain messages of the transaction; no others are needed.

        Raises the same error as ``replay_range``.
        """
        return self._requested().ranges

    def start_replay(self, envelopes: Iterable[Envelope]) -> None:
        """Continue with the uncommitted messages of ``replay_range`` or of ``replay_ranges``.

        Raises the same error as ``replay_range``.
        """
        self._requested().iterator = iter(envelopes)

    def _requested(self) -> Replay:
        replay = self._replay
        if replay is None or not replay.requested or replay.iterator is not None:
            raise SequencerError("no replay was requested")
        return replay

    # States.

    def has_pending(self, since: Mapping[str, int]) -> bool:
        """Return whether an open transaction began at or after an offset of its journal.

        With a checkpoint's ``read_through``, it says whether a transaction began after the checkpoint.

        Args:
            since: the offsets by journal; the default for a journal is 0.
        """
        return any(
            p.sequence is not None and p.sequence.begin >= since.get(journal, 0)
            for journal, producers in self._journals.items()
            for p in producers.values()
        )

    def producer_states(self, prune_horizon: timedelta | None = None) -> list[ProducerState]:
        """Return the states of all producers, sorted by journal and producer, for a checkpoint.

        Args:
            prune_horizon: first forget producers whose last acknowledgement is older than the newest message of their
                journal by more than this. None or 0 forgets none. Producers with an open transaction
                are never forgotten. If a forgotten producer repeats messages, they may be returned again. Ages are
                computed from clocks in messages: if one writer's clock is 8 days ahead, all other
                writers of the journal seem to be 8 days old.

        Raises:
            SequencerError: committed messages are left to be dequeued.
        """
        if self._ready or self._replay is not None:
            self._require_drained()
        if prune_horizon:
            for producers in self._journals.values():
                newest = max((p.latest for p in producers.values()), default=0)
                oldest = oldest_remembered(newest, prune_horizon)
                closed = [(node, p) for node, p in producers.items() if p.sequence is None]
                for node, p in closed:
                    if p.last_ack < oldest:
                        del producers[node]
        return [
            ProducerState(
                journal, id_of(node), p.last_ack, -1 if p.sequence is None else p.sequence.begin
            )
            for journal, producers in sorted(self._journals.items())
            for node, p in sorted(producers.items())
        ]
