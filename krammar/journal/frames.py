"""The interface of framings: how the messages of a journal are separated and encoded.

Reading has two steps: ``unpack`` finds the end of a frame, and ``unmarshal`` decodes its message. Only the second step
detects malformed messages, so that they do not affect other frames.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from struct import error as FormatError
from typing import Any

from krammar.journal.errors import MessageError
from krammar.wire.message import Struct

# Errors that a class may raise for bytes or values that are not its own.
UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, EOFError, FormatError)


class Framing(ABC):
    """Encodes messages to frames and finds them in a journal. Framings have no state and can be shared."""

    @property
    @abstractmethod
    def content_type(self) -> str:
        """The framing's content type; see ``framing_by_content_type``."""

    @abstractmethod
    def marshal(self, message: Any) -> bytes:
        """Encode a message to a complete frame. Raises MessageError if that is not possible."""

    @abstractmethod
    def unpack(self, data: bytes | bytearray, begin: int = 0) -> int:
        """Return the position after the frame that begins at ``begin``; ``begin`` if it is incomplete.

        If no frame begins there, everything up to the next possible frame counts as one frame, which
        ``unmarshal`` refuses.
        """

    @abstractmethod
    def unmarshal(self, frame: bytes, cls: type[Any]) -> Any:
        """Decode the message of a complete frame.

        Args:
            frame: a frame as ``unpack`` delimits it.
            cls: the class of the message.

        Raises:
            DesyncDetectedError: the bytes are not a frame.
            FrameError: the frame is not a message of the class.
            MessageError: the framing cannot decode the class at all.
        """

    @abstractmethod
    def synchronise(self, data: bytes | bytearray, begin: int) -> int:
        """Return the first position at or after ``begin`` at which a frame begins.

        ``begin`` may be inside of a frame. Returns the length of ``data`` if no frame begins there.
        """


def cannot_marshal(message: Any, cause: Exception) -> MessageError:
    """Return the error for a message that cannot be encoded."""
    if isinstance(message, Struct) and not isinstance(cause, AttributeError):
        return MessageError(f"a message cannot be encoded: {cause}")
    return MessageError(f"{type(message).__name__} cannot be framed: {cause}")
