"""Turns rows into messages, and publishes them in a task: ``journal_wire.Row`` for key, value and headers, or a class of
the user's."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import journal_wire as wire
import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType

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
from krammar.spark.errors import OptionError, SchemaError
from krammar.spark.journal.places import AnyJournals
from krammar.spark.kafka.rows_out import Group, OutColumns, RowError, groups
from krammar.spark.options import Options
from krammar.spark.typed.messages import named_class
from krammar.spark.typed.types import mapped_class
from krammar.spark.writing import Written
from krammar.wire.errors import WireError
from krammar.wire.message import Codec

Make = Callable[[Group, int], Any]

_UUID = "uuid"


class RowMessages:
    """Builds messages ``journal_wire.Row`` from the columns that all sinks have."""

    cls: type[Codec] = wire.Row

    def __init__(self, schema: StructType, topic: str | None) -> None:
        """Find the columns.

        Raises:
            SchemaError: a column is missing or has another type.
        """
        self.columns = OutColumns.of(schema, topic)

    def prepare(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Make]:
        """Return a batch for ``groups``, and a function that builds the message of one row of a group.

        Raises:
            RowError: raised by the returned function if a row is not a message.
        """
        return batch, _row


def _row(group: Group, index: int) -> wire.Row:
    keys, headers = group.keys, group.headers
    return wire.Row(
        key=None if keys is None else keys[index],
        value=group.values[index],
        headers=(
            [wire.Row.Header(key=key, value=value) for key, value in headers[index] or ()]
            if headers is not None
            else []
        ),
    )


class TypedMessages(RowMessages):
    """Builds messages of a generated class.

    Column ``value`` is a struct with fields of the class; missing fields have their defaults. Column ``key`` only
    chooses the journal.
    """

    def __init__(self, schema: StructType, topic: str | None, name: str) -> None:
        """Find the class and the columns.

        Raises:
            OptionError: ``name`` is not a class of messages.
            SchemaError: a column is missing, has another type, or has unknown fields.
        """
        self.cls = message_class("message", name)
        plain = StructType()
        kind = None
        for field in schema.fields:
            if field.name == "value" and kind is None:
                kind = field.dataType
                # While rows are grouped, row numbers take the place of values.
                plain = plain.add("value", BinaryType())
            else:
                plain = plain.add(field)
        super().__init__(plain, topic)
        if not isinstance(kind, StructType):
            assert kind is not None
            raise SchemaError(
                f"column 'value' is {kind.simpleString()}, but must be a struct with fields of "
                f"{self.cls.__name__}"
            )
        unknown = sorted(set(kind.names) - set(self.cls._fields))
        if unknown:
            raise SchemaError(
                f"column 'value' has the field {unknown[0]!r}, which {self.cls.__name__} does not have; its "
                f"fields are: {', '.join(self.cls._fields)}"
            )

    def prepare(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Make]:
        index = self.columns.value
        values = batch.column(index).to_pylist()
        numbers = pa.array([b"%d" % number for number in range(len(values))], pa.binary())
        columns = [numbers if at == index else batch.column(at) for at in range(batch.num_columns)]
        convert = mapped_class(self.cls).from_spark
        assert convert is not None
        name = self.cls.__name__

        def make(group: Group, index: int) -> Any:
            row = values[int(group.values[index] or b"")]
            if row is None:
                raise RowError(f"topic {group.topic!r}: a row has a null value instead of a {name}")
            row.pop(_UUID, None)  # each message gets a UUID when it is published
            try:
                return convert(row)
            except (WireError, TypeError, ValueError, AttributeError) as error:
                raise RowError(f"topic {group.topic!r}: a row is not a {name}: {error}") from None

        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names), make


def message_class(option: str, name: str) -> type[Codec]:
    """Return the generated class with that name.

    Raises:
        OptionError: there is no such class, or it has no UUID and cannot be a message.
    """
    cls = named_class(option, name)
    if not hasattr(cls, "get_uuid"):
        raise OptionError(
            option, f"{cls.__name__} is not a message: its definition has no field UUID: uuid"
        )
    return cls


def messages_of(options: Options, schema: StructType) -> RowMessages:
    """Return what builds messages, as the option ``message`` asks for.

    Raises:
        OptionError: ``message`` is not a class of messages.
        SchemaError: a column is missing, has another type, or has unknown fields.
    """
    if options.given("message"):
        return TypedMessages(schema, options["topic"], options["message"])
    return RowMessages(schema, options["topic"])


@dataclass
class Published(Written):
    """What a task has published.

    Attributes:
        writer: the name of the write; see ``Write``
        intents: the acknowledgements that commit the messages
        ends: the acknowledgements that let readers forget the producer
        clock: less than the clocks of the messages: an acknowledgement with it rolls them back
        rows: the number of all rows of the task, published or not
        sum: the sum of their hashes; see ``RowTotals``
    """

    writer: str = ""
    intents: list[AckIntent] = dataclasses.field(default_factory=list)
    ends: list[AckIntent] = dataclasses.field(default_factory=list)
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
    """Publishes the rows of a task, and counts them.

    Attributes:
        run: so many consecutive rows without key and partition go to the same journal
    """

    run = 1000

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
                for begin in rows[:: self.run]:
                    target = random.choice(targets)
                    self._publish(group, make, rows[begin : begin + self.run], target)
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
