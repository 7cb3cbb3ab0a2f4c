"""What the journal layer raises on purpose.

``JournalError``
    ``FrameError``               a frame that cannot be read as a message; the frames behind it can
        ``DesyncDetectedError``  bytes that are no frame: the stream is de-synchronised there
    ``MessageError``             a message that cannot be published, or a class that is no message
    ``ContentTypeError``         a content type that names no framing
    ``EmptyListError``           a mapping that has no journal to choose from
    ``SequencerError``           a call that the sequencer's state does not allow
        ``MustStartReplayError`` messages have to be read again before more can be handed out
    ``ClockError``               a time outside of what UUIDs can carry
    ``UnknownJournalError``      a journal that does not exist
    ``CorruptJournalError``      files of a journal that contradict each other
    ``AppendError``              an append that failed, or a transaction of which one failed
    ``CheckpointError``          bytes that are no checkpoint, or a checkpoint that contradicts itself
"""

from __future__ import annotations


class JournalError(Exception):
    """Base of all that this package raises on purpose."""


class FrameError(JournalError, ValueError):
    """A whole frame that is no message of the class that is read. It concerns this frame alone."""


class DesyncDetectedError(FrameError):
    """Bytes where a frame should be and none is. ``skipped`` is how many there are."""

    def __init__(self, message: str, skipped: int) -> None:
        super().__init__(message)
        self.skipped = skipped

    def __reduce__(self) -> tuple[type[DesyncDetectedError], tuple[str, int]]:
        return type(self), (str(self), self.skipped)


class MessageError(JournalError, ValueError):
    """A message that its own ``validate`` refuses or its framing cannot carry, or something that has
    not the methods of a message."""


class ContentTypeError(JournalError, ValueError):
    """A content type that names no framing."""


class EmptyListError(JournalError, LookupError):
    """A mapping found no journal to choose from."""


class SequencerError(JournalError, RuntimeError):
    """A call that the sequencer's state does not allow."""


class MustStartReplayError(SequencerError):
    """``replay_range`` must be read again and given to ``start_replay`` first."""


class ClockError(JournalError, ValueError):
    """A time that the 60 bits of a UUID's timestamp cannot carry: before 1582-10-15 or after 5236."""


class UnknownJournalError(JournalError, LookupError):
    """A journal that does not exist."""


class CorruptJournalError(JournalError):
    """Files of a journal that contradict each other."""


class AppendError(JournalError, OSError):
    """An append that failed: nothing of it is in the journal, or, where the message says so, nobody
    knows. Of a transaction: it cannot be acknowledged, only rolled back."""


class CheckpointError(JournalError, ValueError):
    """Bytes that are no checkpoint, no intents, or no states of producers."""
