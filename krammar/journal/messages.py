"""What a message is, and the envelope it is read in.

Every class that ``krammar gen`` made of a definition with a field ``UUID: uuid`` is a message. So is any
other class with the methods below; what else it needs depends on its framing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self
from uuid import UUID

from krammar.journal.specs import JournalSpec


class Message(Protocol):
    """What can be published.

    One that cannot keep a UUID returns the null uuid and ignores ``set_uuid``; it is then read at once
    and as often as it was written. ``new_acknowledgement`` makes a message of the same class that can
    acknowledge this one, and others, in a journal.

    A message may also have ``validate()``, which raises what forbids to publish it.
    """

    def get_uuid(self) -> UUID: ...

    def set_uuid(self, uuid: UUID, /) -> None: ...

    def new_acknowledgement(self, journal: str, /) -> Self: ...


# What to read a journal's frames as: a class, or a function that chooses one by the journal's spec.
MessageClass = type[Any] | Callable[[JournalSpec], type[Any]]


def class_for(messages: MessageClass, spec: JournalSpec) -> type[Any]:
    """The class that frames of a journal are read as."""
    return messages if isinstance(messages, type) else messages(spec)


class Envelope:
    """A message and where it was read: its journal, and that it takes the offsets from ``begin`` up to
    but without ``end`` (bytes in files, records in topics)."""

    __slots__ = ("begin", "end", "journal", "message")
    __match_args__ = ("journal", "begin", "end", "message")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, journal: str, begin: int, end: int, message: Any) -> None:
        self.journal = journal
        self.begin = begin
        self.end = end
        self.message = message

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Envelope):
            return NotImplemented
        return (
            self.journal == other.journal
            and self.begin == other.begin
            and self.end == other.end
            and self.message == other.message
        )

    def __repr__(self) -> str:
        return f"Envelope({self.journal!r}, {self.begin}, {self.end}, {self.message!r})"
