"""The errors of journals.

``JournalError``
    ``FrameError``               a frame is not a message; the frames after it can be read
        ``DesyncDetectedError``  bytes are not a frame: the stream is not synchronised
    ``MessageError``             a message cannot be published, or a class cannot be used for messages
    ``ContentTypeError``         no framing has the content type
    ``EmptyListError``           a mapping has no journal to choose from
    ``SequencerError``           the sequencer's state does not allow the call
        ``MustStartReplayError`` messages must be read again before more can be returned
    ``ClockError``               UUIDs cannot contain the time
    ``UnknownJournalError``      a journal does not exist, or was deleted and created again
    ``CorruptJournalError``      files of a journal are damaged or contradict each other
    ``AppendError``              an append has failed, or one append of a transaction
    ``CheckpointError``          bytes are not a checkpoint, or a checkpoint contradicts itself
"""

from __future__ import annotations

from uuid import UUID


class JournalError(Exception):
    """Base of all errors of this package."""


class FrameError(JournalError, ValueError):
    """A complete frame is not a message of the expected class. Other frames are not affected."""


class DesyncDetectedError(FrameError):
    """Bytes at the place of a frame are not a frame; ``skipped`` is their number."""

    def __init__(self, message: str, skipped: int) -> None:
        super().__init__(message)
        self.skipped = skipped

    def __reduce__(self) -> tuple[type[DesyncDetectedError], tuple[str, int]]:
        return type(self), (str(self), self.skipped)


class MessageError(JournalError, ValueError):
    """A message cannot be published, or an object lacks the methods of a message.

    The message's ``validate`` refuses it, or its framing cannot encode it.
    """


class ContentTypeError(JournalError, ValueError):
    """No framing has the content type."""


class EmptyListError(JournalError, LookupError):
    """A mapping has no journal to choose from."""


class SequencerError(JournalError, RuntimeError):
    """The sequencer's state does not allow the call."""


class MustStartReplayError(SequencerError):
    """``replay_range`` must be read again first, and passed to ``start_replay``."""


class ClockError(JournalError, ValueError):
    """The 60 bits of a UUID's timestamp cannot contain the time: it is before 1582-10-15 or after 5236."""


class UnknownJournalError(JournalError, LookupError):
    """A journal does not exist, or not any more.

    Attributes:
        current_id: the id of another journal that has the same name now, because the journal was deleted and created
            again; None if there is none. A reader can begin again at the new journal's first offset.
    """

    def __init__(self, message: str, current_id: UUID | None = None) -> None:
        super().__init__(message)
        self.current_id = current_id

    def __reduce__(self) -> tuple[type[UnknownJournalError], tuple[str, UUID | None]]:
        return type(self), (str(self), self.current_id)


def created_again(journal: str, current_id: UUID) -> UnknownJournalError:
    """Return the error for a reader or a checkpoint of a journal that was deleted and created again."""
    return UnknownJournalError(
        f"{journal}: the journal was deleted and created again, so offsets and checkpoints of the earlier one do not "
        "apply; to read the new one, begin again with a new reader and without a checkpoint",
        current_id,
    )


class CorruptJournalError(JournalError):
    """Files of a journal are damaged or contradict each other."""


class AppendError(JournalError, OSError):
    """An append has failed.

    Nothing of it is in the journal, unless the message says that this is unknown. If the append belongs to a
    transaction, the transaction can only be rolled back.
    """


class CheckpointError(JournalError, ValueError):
    """Bytes are not a checkpoint or intents, or the states of producers contradict each other."""
