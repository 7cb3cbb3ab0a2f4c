"""Publishes messages, committed immediately or in transactions."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from krammar.journal.checkpoints import AckIntent
from krammar.journal.errors import AppendError, MessageError
from krammar.journal.frames import Framing
from krammar.journal.journals import AsyncAppend, Journals
from krammar.journal.mapping import Mapping
from krammar.journal.messages import Message
from krammar.journal.uuids import Clock, Flags, ProducerID, build_uuid

_OUTSIDE = Flags.OUTSIDE_TXN.value
_CONTINUE = Flags.CONTINUE_TXN.value
_ACK = Flags.ACK_TXN.value

# The number of appends of a transaction after which those that are done are removed from its list.
_MANY = 4096

_publishers: weakref.WeakSet[Publisher] = weakref.WeakSet()


class Publisher:
    """Gives messages their UUIDs, maps them to journals, and appends them there.

    Readers see a message that is published committed as soon as it is appended. Readers of committed
    messages see a message that is published uncommitted when its transaction is acknowledged:

        for message in messages:
            publisher.publish_uncommitted(mapping, message)
        intents = publisher.build_ack_intents()
        ...                                  # store encode_intents(intents)
        append_intents(journals, intents)    # and again after a crash, from the stored bytes

    A forked process uses new producers.

    Args:
        clock: a clock that the caller updates. By default, the publisher has its own, and updates it for each message.
        producer: the id of the producer of uncommitted messages; random by default. No other publisher may
            use it.
        committed_producer: the id of the producer of committed messages, likewise. It must differ from
            ``producer``, because committed messages end the transactions of their producer.
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
        # An acknowledgement by journal, which still needs a UUID.
        self._known: dict[str, tuple[Framing, Message]] = {}
        self._forget()
        # Messages must be appended in the order of their clocks: readers drop messages with an older clock.
        self._ordered = threading.Lock()
        _publishers.add(self)

    def _forget(self) -> None:
        self._pending: dict[str, tuple[Framing, Message]] = {}
        self._appends: list[AsyncAppend] = []
        self._many = _MANY
        self._first_clock = 0
        self._failure: Exception | None = None

    def publish_committed(self, mapping: Mapping, message: Message) -> AsyncAppend:
        """Publish a message that readers process immediately. Thread-safe.

        Raises:
            MessageError: the message is not valid, or cannot be encoded.
            AppendError: the append cannot begin. Errors of the mapping are raised unchanged.
        """
        _validate(message)
        journal, framing = mapping(message)
        with self._ordered:
            message.set_uuid(build_uuid(self.committed_producer, self._tick(), _OUTSIDE))
            return self.journals.append(journal, framing.marshal(message))

    def publish_uncommitted(self, mapping: Mapping, message: Message) -> AsyncAppend:
        """Publish a message as part of a transaction. Not thread-safe.

        Raises the same errors as ``publish_committed``, and AppendError if an earlier append of the transaction has
        failed. A refused message does not change the transaction.
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
            # If few are done, don't check all of them again for each new append.
            self._many = max(_MANY, 2 * len(self._appends))
        return append

    def build_ack_intents(self) -> list[AckIntent]:
        """Return the acknowledgements of all messages published uncommitted since the last call, one per journal.

        Waits until all messages are appended. Store all intents together before the first one is appended, so that
        all can be appended again after a crash; see ``append_intents``.

        Raises:
            AppendError: an append has failed; the transaction can only be rolled back.
        """
        for append in self._appends:
            try:
                append.result()
            except Exception as error:
                self._failure = self._failure or error
        self._check()
        self._acknowledge_pending()
        targets = {journal: self._known[journal] for journal in self._pending}
        intents = _intents(targets, self.producer, self._tick()) if targets else []
        self._forget()
        return intents

    def build_rollback_intents(self) -> list[AckIntent]:
        """Return acknowledgements that roll back the messages since the last ``build_ack_intents``.

        Readers would not return these messages in any case, but can forget them once the acknowledgements are
        appended. They need not be stored.
        """
        self._acknowledge_pending()
        targets = {journal: self._known[journal] for journal in self._pending}
        # One less than the clock of the first message, and thus not less than the last acknowledgement's.
        intents = _intents(targets, self.producer, self._first_clock - 1) if targets else []
        if self._failure is not None:
            # Failed appends may still arrive after these acknowledgements. The next transaction must not
            # commit them.
            self._renew()
        self._forget()
        return intents

    def build_end_intents(self) -> list[AckIntent]:
        """Return acknowledgements that end the producer of uncommitted messages, so that readers forget it.

        They also roll back messages that are not acknowledged. The publisher continues with another producer.

        Use them for publishers that write a few transactions and are not used again. Append them only
        after all intents of ``build_ack_intents`` are in their journals. They need not be stored:
        without them, readers just remember the producer; see ``Sequencer.producer_states``.
        """
        self._acknowledge_pending()
        intents = _intents(self._known, self.producer, 0)
        self._renew()
        return intents

    def _acknowledge_pending(self) -> None:
        """Create an acknowledgement for each journal of the transaction."""
        for journal, (framing, message) in self._pending.items():
            self._known[journal] = framing, message.new_acknowledgement(journal)

    def _renew(self) -> None:
        """Continue with another producer."""
        self.producer = ProducerID.random()
        self._known = {}
        self._forget()

    def _tick(self) -> int:
        if self._own_clock:
            self._clock.update()
        return self._clock.tick()

    def _check(self) -> None:
        if self._failure is not None:
            raise AppendError(
                f"the transaction can only be rolled back: {self._failure}"
            ) from self._failure


def _intents(
    targets: dict[str, tuple[Framing, Message]], producer: ProducerID, clock: int
) -> list[AckIntent]:
    uuid = build_uuid(producer, clock, _ACK)
    intents = []
    for journal, (framing, acknowledgement) in sorted(targets.items(), key=lambda item: item[0]):
        acknowledgement.set_uuid(uuid)
        intents.append(AckIntent(journal, framing.marshal(acknowledgement)))
    return intents


def _validate(message: Any) -> None:
    validate = getattr(message, "validate", None)
    if callable(validate):
        try:
            validate()
        except Exception as error:
            raise MessageError(f"{type(message).__name__} is not valid: {error}") from error


def _renew() -> None:
    """Change the producers of a forked process: readers would drop its messages as duplicates of its parent's."""
    for publisher in list(_publishers):
        publisher.producer = ProducerID.random()
        publisher.committed_producer = ProducerID.random()
        publisher._ordered = threading.Lock()
        publisher._known = {}
        publisher._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
