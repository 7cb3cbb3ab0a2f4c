"""``delivery=journal``: what is written is seen once by readers of committed messages, whatever crashes.

Each attempt of a task publishes uncommitted messages as a producer of its own, and gives the driver the
acknowledgements that would commit them. The driver stores those of all tasks in one file (the write is
committed now), and then appends them. What follows for crashes:

- A task that fails, or is run twice: Spark hands the driver one attempt's acknowledgements. What other
  attempts have published is never acknowledged. That each has its own producer is needed: an
  acknowledgement commits all of its producer's messages before it.
- A driver that is gone before the file is there: nobody has the acknowledgements any more, and the batch
  is run again, by other producers.
- A driver that is gone later, before Spark knows that the batch is committed: what is in the file is appended by
  the next one, before it writes anything. Spark runs the batch again; the driver finds the file of that
  batch, appends what is in it, and forgets what the second run has published. Where tasks can see that
  their batch is committed they publish nothing in the first place.
- Acknowledgements that are appended again change nothing: their producers have no other transactions.

A micro-batch is known by the query's id and its number, which tasks are told by Spark; a batch write by the
option ``writeId``, or else it is another one each time that it is run.
"""

from __future__ import annotations

import logging
import os
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext

from krammar.journal import (
    AckIntent,
    Clock,
    Flags,
    Framing,
    Publisher,
    append_intents,
    build_uuid,
    get_producer_id,
)
from krammar.spark.errors import OptionError
from krammar.spark.journal.intents import IntentStore, Stored, Write
from krammar.spark.journal.places import AnyJournals, Place
from krammar.spark.journal.rows_out import Make, messages_of
from krammar.spark.kafka.rows_out import Group, RowError, groups
from krammar.spark.kafka.sink import Messages, Written
from krammar.spark.options import Options, Use
from krammar.spark.paths import local_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)

# What Spark tells the tasks of a micro-batch; also those of a batch write in foreachBatch.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"

FOLDER = "krammar-intents"

# Rows without a key and partition stay with a journal for so many of them.
_RUN = 1000

# What names of writers begin with.
_QUERY, _ID, _UNNAMED = "query-", "id-", "unnamed-"


@dataclass
class Published(Written):
    """What a task has published for ``writer``, and the ``intents`` that acknowledge it.

    ``clock`` is before those of its messages: an acknowledgement that has it rolls them back.
    """

    writer: str = ""
    intents: list[AckIntent] = field(default_factory=list)
    clock: int = 0


class JournalDelivery:
    """Made by the driver for each micro-batch, once for its tasks and once for its commit, and for each
    batch write."""

    def __init__(self, options: Options, schema: StructType, use: Use) -> None:
        """Raises OptionError and SchemaError."""
        self.messages = messages_of(options, schema)
        self.place = Place.of(options)
        settings = self.place.settings
        if settings is not None and not settings.enable_idempotence:
            # Records may be written twice or overtake each other then, or be lost after they were
            # acknowledged.
            raise OptionError(
                "delivery", "journal needs kafka.enable.idempotence=true and kafka.acks=all"
            )
        self.is_stream = use is Use.WRITE_STREAM
        self.at_least: int = options["journalsPerTopic"]
        self.store = IntentStore(_folder(options, self.is_stream))
        # Of a batch write. A stream has its query's id, which only the tasks are told.
        self.writer = _UNNAMED + str(uuid4())
        if options.given("writeId"):
            self.writer = _ID + options["writeId"]
        self.committed: Mapping[str, int] = {}

    def recover(self) -> None:
        """On the driver, before anything is written: append what was stored and perhaps not appended.
        Raises SparkSourceError."""
        with self.place.errors(f"acknowledging what is in {self.store.folder}"):
            for stored in list(self.store.all()):
                self._append(stored)
            self.committed = self.store.latest()

    # In a task.

    def write(self, batches: Iterable[pa.RecordBatch]) -> Published:
        """Raises RowError and SparkSourceError."""
        write = self._write()
        published = Published(writer=write.writer)
        if write.batch <= self.committed.get(write.writer, -2):
            for _ in batches:
                pass
            return published
        clock = Clock()
        published.clock = clock.value
        with self.place.errors("writing"), self.place.open() as journals:
            publisher = Publisher(journals, clock)
            rows = _Rows(self, journals, publisher)
            try:
                for batch in batches:
                    clock.update()
                    rows.publish(batch, published)
                published.intents = publisher.build_ack_intents()
            except BaseException:
                # So that readers need not keep it in mind; they would not see it anyway.
                with suppress(Exception):
                    append_intents(journals, publisher.build_rollback_intents())
                raise
        return published

    def _write(self) -> Write:
        """What a task is part of. Without Spark a stream's is not known: its number is a new one then."""
        if not self.is_stream:
            return Write(self.writer)
        context = TaskContext.get()
        number = None if context is None else context.getLocalProperty(_BATCH_ID)
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        return Write(_QUERY + (query or ""), sys.maxsize if number is None else int(number))

    # On the driver.

    def commit(self, messages: Messages, batch_id: int | None) -> None:
        """Raises SparkSourceError."""
        published = [message for message in messages if isinstance(message, Published)]
        if not published:
            return
        intents = [intent for message in published for intent in message.intents]
        write = self._write_of(published, batch_id)
        with self.place.errors(f"committing {write.text}"):
            if write.batch < self.store.latest().get(write.writer, -1):
                stored = Stored(write, True, [])
            elif intents or write.writer.startswith(_ID):
                stored = self.store.find(write) or self.store.store(write, intents)
            else:
                return
            self._append(stored)
            self.store.forget_before(write)
        if intents and stored.intents != intents:
            _log.info("%s was committed before: what was written again is rolled back", write.text)
            self._roll_back(published)
            return
        rows = sum(count.rows for message in published for count in message.topics.values())
        _log.info("%s: %d rows are committed", write.text, rows)

    def abort(self, messages: Messages, batch_id: int | None) -> None:
        """Spark calls this after a ``commit`` that failed too; the write may be committed then."""
        published = [message for message in messages if isinstance(message, Published)]
        if not published:
            return
        write = self._write_of(published, batch_id)
        if self.store.find(write) is None:
            _log.warning("%s has failed: what is written is rolled back", write.text)
            self._roll_back(published)

    def _write_of(self, published: Sequence[Published], batch_id: int | None) -> Write:
        return Write(published[0].writer, -1 if batch_id is None else batch_id)

    def _append(self, stored: Stored) -> None:
        """Append the intents of a write that is committed."""
        if stored.appended:
            return
        with self.place.open() as journals:
            append_intents(journals, stored.intents)
        if stored.write.writer.startswith(_UNNAMED):
            self.store.forget(stored.write)  # nobody will ask for it
        else:
            self.store.appended(stored.write)

    def _roll_back(self, published: Sequence[Published]) -> None:
        """Spare readers to keep in mind what will never be acknowledged. They would not see it anyway, so
        that errors are only logged."""
        try:
            with self.place.open() as journals:
                append_intents(
                    journals,
                    [
                        self._opposite(journals, intent, message.clock)
                        for message in published
                        for intent in message.intents
                    ],
                )
        except Exception as error:
            _log.warning("rolling back what was written: %s", error)

    def _opposite(self, journals: AnyJournals, intent: AckIntent, clock: int) -> AckIntent:
        """An acknowledgement by the same producer that commits nothing."""
        framing = journals.spec(intent.journal).framing
        message = framing.unmarshal(intent.intent, self.messages.cls)
        producer = get_producer_id(message.get_uuid())
        message.set_uuid(build_uuid(producer, clock, Flags.ACK_TXN))
        return AckIntent(intent.journal, framing.marshal(message))


class _Rows:
    """Publishes the rows of a task."""

    def __init__(
        self, delivery: JournalDelivery, journals: AnyJournals, publisher: Publisher
    ) -> None:
        self._delivery = delivery
        self._journals = journals
        self._publisher = publisher
        self._targets: dict[str, list[tuple[str, Framing]]] = {}

    def publish(self, batch: pa.RecordBatch, published: Published) -> None:
        messages = self._delivery.messages
        batch, make = messages.prepare(batch)
        for group in groups(batch, messages.columns, lambda topic: len(self._of(topic))):
            rows = range(len(group.values))
            if group.partition is None:
                targets = self._of(group.topic)
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
        for row in rows:
            publish(lambda _: target, make(group, row))

    def _of(self, topic: str) -> list[tuple[str, Framing]]:
        """The journals of a topic, and their framings."""
        found = self._targets.get(topic)
        if found is None:
            delivery = self._delivery
            try:
                specs = delivery.place.make(self._journals, topic, delivery.at_least)
            except ValueError as error:  # no name of a journal
                raise RowError(f"topic {topic!r}: {error}") from None
            found = self._targets[topic] = [(spec.name, spec.framing) for spec in specs]
        return found

    def _target(self, topic: str, partition: int) -> tuple[str, Framing]:
        found = self._of(topic)
        if partition >= len(found):
            raise RowError(
                f"topic {topic!r}: a row has partition {partition}, but there are {len(found)}"
            )
        return found[partition]


def _folder(options: Options, is_stream: bool) -> str:
    """Where intents are kept. Raises OptionError."""
    if options.given("intents"):
        return _local("intents", options["intents"])
    if not is_stream:
        raise OptionError(
            "intents",
            "is needed for a batch with delivery=journal: a folder in which the driver keeps what it is "
            "about to acknowledge, the same for the next one",
        )
    if not options.given("checkpointLocation"):
        raise OptionError(
            "checkpointLocation", "is needed with delivery=journal, or else the option intents"
        )
    checkpoint = _local("checkpointLocation", options["checkpointLocation"])
    # Spark writes this file when the query starts. Without a scheme, the path may be one of HDFS.
    if not os.path.exists(os.path.join(checkpoint, "metadata")):
        raise OptionError(
            "checkpointLocation",
            f"{checkpoint} is not in a file system that the driver has mounted, which delivery=journal "
            "needs; the option intents names another folder",
        )
    return os.path.join(checkpoint, FOLDER)


def _local(name: str, path: str) -> str:
    try:
        return local_path(path)
    except OptionError:
        raise OptionError(
            name,
            f"{path!r}: intents are kept in a file system that the driver has mounted; the option "
            "intents names a folder there",
        ) from None


def delivery_of(options: Options, schema: StructType, use: Use) -> JournalDelivery:
    """The delivery, when what was left undone before is done. Raises SparkSourceError."""
    delivery = JournalDelivery(options, schema, use)
    delivery.recover()
    return delivery
