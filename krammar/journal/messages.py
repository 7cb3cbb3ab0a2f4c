"""The interface of messages, and the envelopes in which they are read.

Every class that ``krammar gen`` generates from a definition with a field ``UUID: uuid`` is a message. So is any other
class with the methods below; its framing may require more methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self
from uuid import UUID

from krammar.journal.specs import JournalSpec


class Message(Protocol):
    """A message that can be published.

    A class that cannot store a UUID returns the null UUID and ignores ``set_uuid``. Its messages are returned
    immediately, as often as they were written.

    A message may also have a method ``validate()``, which raises an error if it must not be published.
    """

    def get_uuid(self) -> UUID:
        """Return the UUID that ``set_uuid`` has stored, or the null UUID."""

    def set_uuid(self, uuid: UUID, /) -> None:
        """Store the UUID with which the message is published."""

    def new_acknowledgement(self, journal: str, /) -> Self:
        """Return a message of the same class that can acknowledge messages in a journal."""


# The class of a journal's messages, or a function that returns it for the journal's spec.
MessageClass = type[Any] | Callable[[JournalSpec], type[Any]]


def class_for(messages: MessageClass, spec: JournalSpec) -> type[Any]:
    """Return the class of a journal's messages."""
    return messages if isinstance(messages, type) else messages(spec)


@dataclass(slots=True, repr=False)
class Envelope:
    """A message with its journal and its offsets: ``begin``, up to but not including ``end``.

    Offsets count bytes in files, and records in topics.
    """

    journal: str
    begin: int
    end: int
    message: Any

    def __repr__(self) -> str:
        return f"Envelope({self.journal!r}, {self.begin}, {self.end}, {self.message!r})"
