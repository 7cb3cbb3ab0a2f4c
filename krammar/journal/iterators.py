"""Iterators over the messages of a journal."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from krammar.journal.checkpoints import Checkpoint
from krammar.journal.errors import FrameError, MessageError, MustStartReplayError
from krammar.journal.fixed_framing import MAGIC_WORD, FixedFraming
from krammar.journal.frames import Framing
from krammar.journal.journals import Frame, FrameReader, Reader
from krammar.journal.messages import Envelope, MessageClass, class_for
from krammar.journal.sequencer import Sequencer
from krammar.journal.specs import JournalSpec
from krammar.journal.uuids import VERSION_1, VERSION_MASK, Flags
from krammar.util.closing import Closing

log = logging.getLogger("krammar.journal")

# The size of magic word and length, with which fixed frames begin.
_HEADER = 8
# A mask for version, variant and flags of a UUID, and their values in messages of transactions; see uuids.py.
_KIND = VERSION_MASK | 0x3FF << 48
_CONTINUES = VERSION_1 | Flags.CONTINUE_TXN.value << 48


def _log_skipped(journal: str, begin: int, end: int, error: FrameError) -> None:
    log.warning("%s: skipping offsets %d to %d: %s", journal, begin, end, error)


def envelopes_of(spec: JournalSpec, frames: list[Frame], cls: type[Any]) -> Iterator[Envelope]:
    """Yield the messages of frames; skip frames that are not messages, with a warning."""
    journal = spec.name
    unmarshal = spec.framing.unmarshal
    for begin, end, frame in frames:
        try:
            message = unmarshal(frame, cls)
        except FrameError as error:
            _log_skipped(journal, begin, end, error)
            continue
        yield Envelope(journal, begin, end, message)


class _Unread(Envelope):
    """An envelope, and the message in it, of which only the UUID was decoded.

    A reader of committed messages needs only the UUID of many messages: of those that leave the sequencer's
    buffer, and of those that are never acknowledged.
    """

    __slots__ = ("frame", "int")

    def __init__(self, journal: str, begin: int, end: int, frame: bytes, number: int) -> None:
        self.journal = journal
        self.begin = begin
        self.end = end
        self.frame = frame
        self.int = number

    @property
    def message(self) -> Any:
        return self

    def get_uuid(self) -> Any:
        return self  # the sequencer uses only the attribute int of a UUID


def uuid_position(framing: Framing, cls: type[Any]) -> int:
    """Return the position of the UUID in frames of a class; -1 if it is unknown."""
    if not isinstance(framing, FixedFraming) or not hasattr(cls, "_programs"):
        return -1
    versioned = hasattr(cls, "_version_field")
    if cls._fields[: 1 + versioned][-1] != "uuid":
        return -1
    position = _HEADER + 2 * versioned
    probe = UUID(bytes=b"krammar.journal!")
    for version in range(cls.min_version, cls.max_version + 1) if versioned else (0,):
        message = cls(version=version) if versioned else cls()
        message.set_uuid(probe)
        try:
            frame = framing.marshal(message)
        except MessageError:
            return -1
        if frame[position : position + 16] != probe.bytes:  # the field is not in all versions
            return -1
    return position


def _unread_envelopes(
    spec: JournalSpec, frames: list[Frame], cls: type[Any], position: int
) -> Iterator[Envelope]:
    """Yield the messages of frames like ``envelopes_of``, but do not decode messages of transactions yet."""
    journal = spec.name
    end_position = position + 16
    from_bytes = int.from_bytes
    for frame in frames:
        begin, end, data = frame
        number = from_bytes(data[position:end_position], "big")
        if number & _KIND == _CONTINUES and data[:4] == MAGIC_WORD:
            yield _Unread(journal, begin, end, data, number)
        else:
            yield from envelopes_of(spec, [frame], cls)


class ReadUncommittedIter(Closing, Iterator[Envelope]):
    """Iterates over all messages of a journal in the order in which they were written, including acknowledgements.

    It ends when ``reader`` ends. Frames that are not messages, and deleted offsets, are skipped with a
    warning. Errors of the reader are raised; the next call continues at the same place.

    Args:
        messages: the class of the messages, or a function that returns it for the journal's spec.
    """

    def __init__(self, reader: FrameReader, messages: MessageClass) -> None:
        self.reader = reader
        self.messages = messages
        self._class = class_for(messages, reader.spec)
        self._unmarshal = reader.spec.framing.unmarshal
        self._read: deque[Envelope] = deque()
        self.offset = reader.offset
        self._position = -1

    def leave_unread(self) -> None:
        """Don't decode messages of transactions if possible; see ``_Unread``."""
        self._position = uuid_position(self.reader.spec.framing, self._class)

    def __next__(self) -> Envelope:
        envelope = (self._read or self.read_some()).popleft()
        self.offset = envelope.end
        return envelope

    def read_some(self) -> deque[Envelope]:
        """Return the next messages, at least one. The caller removes those that it uses from the left.

        Raises StopIteration at the end, and errors of the reader.
        """
        while not self._read:
            frames = self.reader.read()
            if not frames:
                raise StopIteration
            self._read.extend(self._messages(self.reader.spec, frames))
        return self._read

    def _messages(self, spec: JournalSpec, frames: list[Frame]) -> Iterator[Envelope]:
        if self._position < 0:
            return envelopes_of(spec, frames, self._class)
        return _unread_envelopes(spec, frames, self._class, self._position)

    def read_again(self, reader: Reader) -> Iterator[Envelope]:
        """Yield the messages of another reader of the same journal."""
        while frames := reader.read():
            yield from self._messages(reader.spec, frames)

    def read_message(self, unread: _Unread) -> Envelope | None:
        """Decode an unread message; return None, with a warning, if its frame is not a message."""
        begin, end = unread.begin, unread.end
        try:
            message = self._unmarshal(unread.frame, self._class)
        except FrameError as error:
            _log_skipped(unread.journal, begin, end, error)
            return None
        return Envelope(unread.journal, begin, end, message)

    def close(self) -> None:
        """Close the reader."""
        self.reader.close()


class ReadCommittedIter(Closing, Iterator[Envelope]):
    """Iterates over the committed messages of a journal, each once.

    The messages of a transaction appear together, at the place of its acknowledgement. Errors are those of
    ReadUncommittedIter.

    Args:
        reader: begins at the offset that a checkpoint has read through, if there is one.
        messages: the class of the messages, or a function that returns it for the journal's spec.
        sequencer: a sequencer with the states of the checkpoint.
    """

    def __init__(
        self, reader: Reader, messages: MessageClass, sequencer: Sequencer | None = None
    ) -> None:
        self.reader = reader
        self.messages = messages
        self.sequencer = Sequencer() if sequencer is None else sequencer
        self._uncommitted = ReadUncommittedIter(reader, messages)
        self._uncommitted.leave_unread()
        self._replayed: Reader | None = None

    @property
    def read_through(self) -> int:
        """The next offset after the last message that was read, committed or not."""
        return self._uncommitted.offset

    @property
    def drained(self) -> bool:
        """Whether the last message was the last one of its transaction. Take checkpoints only then."""
        return self.sequencer.drained

    def checkpoint(self) -> Checkpoint:
        """Return the position for a restart.

        Store it together with the results, so that all messages up to this one take effect once.

        Raises:
            SequencerError: the iterator is not ``drained``.
        """
        return Checkpoint(
            {self.reader.spec.name: self.read_through},
            self.sequencer.producer_states(),
            journal_ids={self.reader.spec.name: self.reader.journal_id},
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
            if envelope is None:
                last = sequencer.queue_until_committed(uncommitted.read_some())
                uncommitted.offset = last.end
            elif envelope.__class__ is not _Unread:
                return envelope
            elif (read := uncommitted.read_message(envelope)) is not None:
                return read

    def _replay(self) -> None:
        if self._replayed is not None:
            self._replayed.close()
        self._replayed = self.reader.ranges(self.sequencer.replay_ranges())
        self.sequencer.start_replay(self._uncommitted.read_again(self._replayed))

    def close(self) -> None:
        """Close the readers."""
        if self._replayed is not None:
            self._replayed.close()
        self.reader.close()
