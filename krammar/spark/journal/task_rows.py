"""What a task of ``delivery=journal`` publishes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from krammar.journal import (
    AckIntent,
    Flags,
    Framing,
    JournalSpec,
    Publisher,
    build_uuid,
    get_producer_id,
)
from krammar.journal.framing import FIXED
from krammar.spark.journal.places import AnyJournals
from krammar.spark.journal.rows_out import Make, RowMessages
from krammar.spark.kafka.rows_out import Group, RowError, groups
from krammar.spark.writing.delivery import Written
from krammar.wire.message import Codec

if TYPE_CHECKING:
    import pyarrow as pa

# This many consecutive rows without key and partition go to the same journal.
_RUN = 1000


@dataclass
class Published(Written):
    """What a task has published.

    ``writer``   the name of the write; see ``Write``
    ``intents``  the acknowledgements that commit the messages
    ``ends``     the acknowledgements that let readers forget the producer
    ``clock``    less than the clocks of the messages: an acknowledgement with it rolls them back
    ``rows``     the number of all rows of the task, published or not
    ``sum``      the sum of their hashes; see ``RowTotals``
    """

    writer: str = ""
    intents: list[AckIntent] = field(default_factory=list)
    ends: list[AckIntent] = field(default_factory=list)
    clock: int = 0
    rows: int = 0
    sum: int = 0

    def rollback_intents(self, journals: AnyJournals, cls: type[Codec]) -> Iterator[AckIntent]:
        """Yield acknowledgements by the same producer that commit nothing; ``cls`` is the messages' class."""
        for journal, intent in self.intents:
            framing = journals.spec(journal).framing
            message = framing.unmarshal(intent, cls)
            producer = get_producer_id(message.get_uuid())
            message.set_uuid(build_uuid(producer, self.clock, Flags.ACK_TXN))
            yield AckIntent(journal, framing.marshal(message))


class RowCounter:
    """Counts the rows of a task, and adds up their hashes."""

    def __init__(self, messages: RowMessages) -> None:
        self.rows = 0
        self.sum = 0
        self._messages = messages
        self._hashes: dict[str, Any] = {}

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch that is not published.

        Raises:
            RowError: a row is not a message.
        """
        batch, make = self._messages.prepare(batch)
        for group in groups(batch, self._messages.columns, lambda _: 1):
            for row in range(len(group.values)):
                self.add(group.topic, make(group, row))

    def add(self, topic: str, message: Any) -> None:
        """Add the next row; its message has no UUID yet."""
        if topic not in self._hashes:
            self._hashes[topic] = blake2b(topic.encode() + b"\0", digest_size=16)
        hashed = self._hashes[topic].copy()  # twice as fast as a new hash
        hashed.update(FIXED.marshal(message))
        self.sum += int.from_bytes(hashed.digest(), "big")
        self.rows += 1


class RowPublisher:
    """Publishes the rows of a task, and counts them."""

    def __init__(
        self,
        messages: RowMessages,
        counter: RowCounter,
        publisher: Publisher,
        make_journals: Callable[[str], Iterable[JournalSpec]],
    ) -> None:
        """``make_journals`` returns the journals of a topic, after it has created missing ones."""
        self._messages = messages
        self._counter = counter
        self._make_journals = make_journals
        self._publisher = publisher
        self._targets: dict[str, list[tuple[str, Framing]]] = {}

    def publish(self, batch: pa.RecordBatch, published: Published) -> None:
        """Publish the rows of a batch, and add their numbers to ``published``.

        Raises:
            RowError: a row is not a message.
        """
        messages = self._messages
        batch, make = messages.prepare(batch)
        for group in groups(batch, messages.columns, lambda topic: len(self._journals_of(topic))):
            rows = range(len(group.values))
            if group.partition is None:
                targets = self._journals_of(group.topic)
                for begin in rows[::_RUN]:
                    target = random.choice(targets)
                    self._publish(group, make, rows[begin : begin + _RUN], target)
            else:
                self._publish(group, make, rows, self._target(group.topic, group.partition))
            published.add(group.topic, len(rows), group.size)

    def _publish(
        self, group: Group, make: Make, rows: Sequence[int], target: tuple[str, Framing]
    ) -> None:
        publish = self._publisher.publish_uncommitted
        count = self._counter.add
        for row in rows:
            message = make(group, row)
            count(group.topic, message)
            publish(lambda _: target, message)

    def _journals_of(self, topic: str) -> list[tuple[str, Framing]]:
        """Return the journals of a topic with their framings, and create missing journals."""
        found = self._targets.get(topic)
        if found is None:
            try:
                specs = self._make_journals(topic)
            except ValueError as error:  # the topic is not a valid name of a journal
                raise RowError(f"topic {topic!r}: {error}") from None
            found = self._targets[topic] = [(spec.name, spec.framing) for spec in specs]
        return found

    def _target(self, topic: str, partition: int) -> tuple[str, Framing]:
        found = self._journals_of(topic)
        if partition >= len(found):
            raise RowError(
                f"topic {topic!r}: a row has partition {partition}, but the topic has {len(found)} partitions"
            )
        return found[partition]
