"""Reading journals message by message."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Self

from krammar.journal.checkpoints import Checkpoint
from krammar.journal.errors import FrameError, MustStartReplayError
from krammar.journal.journals import Reader
from krammar.journal.messages import Envelope, MessageClass, class_for
from krammar.journal.sequencer import Sequencer

log = logging.getLogger("krammar.journal")


class ReadUncommittedIter(Iterator[Envelope]):
    """All messages of a journal, acknowledgements too, as envelopes in the order in which they were written.

    ``messages`` is the class of the messages, or a function that gives it for the journal's spec. Frames
    that cannot be read as one are logged and skipped; offsets at which nothing is left, for it was deleted,
    are logged and skipped by the reader. Ends at the end of what ``reader`` reads. An error of the
    reader's is raised, and the next call goes on where it happened.
    """

    def __init__(self, reader: Reader, messages: MessageClass) -> None:
        self.reader = reader
        self.messages = messages
        self._class = class_for(messages, reader.spec)
        self._read: deque[Envelope] = deque()
        self.offset = reader.offset

    def __next__(self) -> Envelope:
        while not self._read:
            if not self._fill():
                raise StopIteration
        envelope = self._read.popleft()
        self.offset = envelope.end
        return envelope

    def _fill(self) -> bool:
        """Read some frames; whether there were any, be it such that are no messages."""
        frames = self.reader.read()
        journal = self.reader.spec.name
        unmarshal = self.reader.spec.framing.unmarshal
        cls = self._class
        add = self._read.append
        for begin, end, frame in frames:
            try:
                message = unmarshal(frame, cls)
            except FrameError as error:
                log.warning("%s: skipping offsets %d to %d: %s", journal, begin, end, error)
                continue
            add(Envelope(journal, begin, end, message))
        return bool(frames)

    def close(self) -> None:
        """Close the reader."""
        self.reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ReadCommittedIter(Iterator[Envelope]):
    """The committed messages of a journal, each once, as envelopes: those of a transaction together, where it
    was acknowledged.

    ``sequencer`` may be one made of a checkpoint's states, with a ``reader`` that begins at the offset
    that the checkpoint has read through. ``messages`` and errors as for ReadUncommittedIter.
    """

    def __init__(
        self, reader: Reader, messages: MessageClass, sequencer: Sequencer | None = None
    ) -> None:
        self.reader = reader
        self.messages = messages
        self.sequencer = Sequencer() if sequencer is None else sequencer
        self._uncommitted = ReadUncommittedIter(reader, messages)
        self._replayed: Reader | None = None

    @property
    def read_through(self) -> int:
        """The offset behind the last message that was read, committed or not."""
        return self._uncommitted.offset

    @property
    def drained(self) -> bool:
        """Whether the last message was the last of its transaction: when to take a checkpoint."""
        return self.sequencer.drained

    def checkpoint(self) -> Checkpoint:
        """Where to go on after a restart: stored with the results, all messages up to this one take effect
        once. Raises SequencerError unless ``drained``."""
        return Checkpoint(
            {self.reader.spec.name: self.read_through}, self.sequencer.producer_states()
        )

    def __next__(self) -> Envelope:
        sequencer = self.sequencer
        uncommitted = self._uncommitted
        while True:
            try:
                envelope = sequencer.deque_committed()
            except MustStartReplayError:
                self._replay()
                continue
            if envelope is not None:
                return envelope
            sequencer.queue_uncommitted(next(uncommitted))

    def _replay(self) -> None:
        if self._replayed is not None:
            self._replayed.close()
        begin, end = self.sequencer.replay_range()
        self._replayed = self.reader.between(begin, end)
        self.sequencer.start_replay(ReadUncommittedIter(self._replayed, self.messages))

    def close(self) -> None:
        """Close the readers."""
        if self._replayed is not None:
            self._replayed.close()
        self.reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
