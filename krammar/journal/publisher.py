"""Publishing messages: committed at once, or as transactions."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from krammar.journal.checkpoints import AckIntent
from krammar.journal.errors import AppendError, MessageError
from krammar.journal.framing import Framing
from krammar.journal.journals import AsyncAppend, Journals
from krammar.journal.mapping import Mapping
from krammar.journal.messages import Message
from krammar.journal.uuids import Clock, Flags, ProducerID, build_uuid

_OUTSIDE = Flags.OUTSIDE_TXN.value
_CONTINUE = Flags.CONTINUE_TXN.value
_ACK = Flags.ACK_TXN.value

# How many appends of a transaction are remembered before those that are done are forgotten.
_MANY = 4096

_publishers: weakref.WeakSet[Publisher] = weakref.WeakSet()


class Publisher:
    """Gives messages their UUIDs, maps them to journals and begins to append them there.

    A message that is published committed is seen by every reader as soon as it is appended. One that is
    published uncommitted is seen by readers of committed messages only when its transaction is
    acknowledged, and never if that does not happen:

        for message in messages:
            publisher.publish_uncommitted(mapping, message)
        intents = publisher.build_ack_intents()
        ...                                  # store encode_intents(intents)
        append_intents(journals, intents)    # and once more after a crash, from what was stored

    Without ``clock`` the publisher has its own and looks at the time for every message. A clock that is
    given is updated by the caller, as often as suits.

    ``producer`` is the id of what is published uncommitted, ``committed_producer`` that of what is
    published committed: as one producer, the second would end the transactions of the first. Both are
    random unless given; one that is given must not be used by anybody else. A process that was forked
    gets new ones.
    """

    def __init__(
        self,
        journals: Journals,
        clock: Clock | None = None,
        *,
        producer: ProducerID | None = None,
        committed_producer: ProducerID | None = None,
    ) -> None:
        self.journals = journals
        self.producer = ProducerID.random() if producer is None else producer
        self.committed_producer = (
            ProducerID.random() if committed_producer is None else committed_producer
        )
        if self.producer == self.committed_producer:
            raise ValueError("producer and committed_producer are the same")
        self._clock = Clock() if clock is None else clock
        self._own_clock = clock is None
        self._forget()
        # Messages must be appended in the order of their clocks: readers drop those that come late.
        self._ordered = threading.Lock()
        _publishers.add(self)

    def _forget(self) -> None:
        self._pending: dict[str, tuple[Framing, Message]] = {}
        self._appends: list[AsyncAppend] = []
        self._many = _MANY
        self._first_clock = 0
        self._failure: Exception | None = None

    def publish_committed(self, mapping: Mapping, message: Message) -> AsyncAppend:
        """Publish a message to be processed at once. May be called by several threads at once.

        Raises MessageError for a message that is not valid, what the mapping raises, and AppendError.
        """
        _validate(message)
        journal, framing = mapping(message)
        with self._ordered:
            message.set_uuid(build_uuid(self.committed_producer, self._tick(), _OUTSIDE))
            return self.journals.append(journal, framing.marshal(message))

    def publish_uncommitted(self, mapping: Mapping, message: Message) -> AsyncAppend:
        """Publish a message as part of a transaction. For one thread only.

        Raises as ``publish_committed``, and AppendError if an earlier append of the transaction
        failed. A message that was refused leaves the transaction as it was.
        """
        self._check()
        _validate(message)
        journal, framing = mapping(message)
        clock = self._tick()
        message.set_uuid(build_uuid(self.producer, clock, _CONTINUE))
        append = self.journals.append(journal, framing.marshal(message))
        if not self._pending:
            self._first_clock = clock
        if journal not in self._pending:
            self._pending[journal] = framing, message
        self._appends.append(append)
        if len(self._appends) > self._many:
            self._appends = [one for one in self._appends if not one.done or one.error]
            # Where few are done, all of them are not to be looked at for each that comes.
            self._many = max(_MANY, 2 * len(self._appends))
        return append

    def build_ack_intents(self) -> list[AckIntent]:
        """The acknowledgements of all that was published uncommitted since the last call, one a journal.

        Waits until all of it is appended. The intents must be stored, all together, before the first
        of them is appended, so that all can be appended again after a crash; see ``append_intents``.

        Raises AppendError if an append failed: the transaction can only be rolled back then.
        """
        for append in self._appends:
            try:
                append.result()
            except Exception as error:
                self._failure = self._failure or error
        self._check()
        intents = self._intents(self._tick()) if self._pending else []
        self._forget()
        return intents

    def build_rollback_intents(self) -> list[AckIntent]:
        """Acknowledgements that commit nothing: appended, they roll back what was published uncommitted since
        the last call of ``build_ack_intents``. Without them it is never seen either, but readers keep it
        in mind. They need not be stored.
        """
        # One below its first message, and so not below the acknowledgement before it.
        intents = self._intents(self._first_clock - 1) if self._pending else []
        if self._failure is not None:
            # What failed may still arrive, behind these; the next transaction must not commit it.
            self.producer = ProducerID.random()
        self._forget()
        return intents

    def _intents(self, clock: int) -> list[AckIntent]:
        uuid = build_uuid(self.producer, clock, _ACK)
        intents = []
        for journal, (framing, message) in sorted(self._pending.items(), key=lambda item: item[0]):
            acknowledgement = message.new_acknowledgement(journal)
            acknowledgement.set_uuid(uuid)
            intents.append(AckIntent(journal, framing.marshal(acknowledgement)))
        return intents

    def _tick(self) -> int:
        if self._own_clock:
            self._clock.update()
        return self._clock.tick()

    def _check(self) -> None:
        if self._failure is not None:
            raise AppendError(
                f"the transaction can only be rolled back: {self._failure}"
            ) from self._failure


def _validate(message: Any) -> None:
    validate = getattr(message, "validate", None)
    if callable(validate):
        try:
            validate()
        except Exception as error:
            raise MessageError(f"{type(message).__name__} is not valid: {error}") from error


def _renew() -> None:
    """What a forked process publishes must not look like its parent's: readers would drop it."""
    for publisher in list(_publishers):
        publisher.producer = ProducerID.random()
        publisher.committed_producer = ProducerID.random()
        publisher._ordered = threading.Lock()
        publisher._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
