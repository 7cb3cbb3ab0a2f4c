"""``delivery=journal``: readers of committed messages see each row once, even after crashes.

Each attempt of a task publishes uncommitted messages with a producer of its own, and sends the driver the
acknowledgements that would commit them. The driver stores the acknowledgements of all tasks in one file, which
commits the write, and then appends them to the journals. This is how crashes are handled:

- A task fails, or runs twice: Spark sends the driver the acknowledgements of one attempt. The messages of other
  attempts are never acknowledged. Each attempt needs its own producer, because an acknowledgement commits all
  earlier messages of its producer.
- The driver crashes before the file exists: the acknowledgements are lost, and Spark runs the batch again with
  other producers.
- The driver crashes later, before Spark knows that the batch is committed: the next driver appends the
  acknowledgements from the file before it writes anything. Spark runs the batch again. The driver finds the
  batch's file, and discards what the second run has published. Tasks that can see that their batch is committed
  publish nothing.
- Acknowledgements are appended again: they have no effect, because their producers have no other transactions.
- A driver stalls while another one continues: it cannot commit a micro-batch that the other one has passed (see
  ``IntentStore``), and rolls back nothing that may be committed.

The file also stores the totals of the write's rows. If Spark plans a micro-batch again under the same number, it has the
same rows, unless its checkpoint was restored or damaged. Other rows are an error: skipping them would lose them, and
writing them might duplicate others.

When all acknowledgements are in their journals, further ones end the producers, so that readers need not
remember each attempt.

A micro-batch is identified by the query's id and its number, which Spark passes to tasks. A batch write is identified by
the option ``writeId``; without it, each run is another write.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext

from krammar.journal import AckIntent, Clock, JournalError, Publisher, append_intents
from krammar.spark.errors import OptionError, SparkSourceError
from krammar.spark.journal.intents import (
    IntentStore,
    RowTotals,
    StoredIntents,
    Write,
    hash_of,
    intent_folder,
)
from krammar.spark.journal.places import JournalPlace
from krammar.spark.journal.rows_out import Published, RowCounter, RowPublisher, messages_of
from krammar.spark.option_table import Use
from krammar.spark.options import Options
from krammar.spark.writing import Messages

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


_log = logging.getLogger(__name__)

# Properties that Spark sets in tasks of a micro-batch, and in tasks of a batch write in foreachBatch.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"

# The prefixes of writers' names.
_QUERY, _ID, _UNNAMED = "query-", "id-", "unnamed-"

_UNKNOWN = RowTotals(0, b"")


class JournalDelivery:
    """Publishes the rows of one write in tasks, and commits them on the driver.

    The driver creates one for each batch write, and two for each micro-batch: for its tasks and for its commit.
    """

    def __init__(self, options: Options, schema: StructType, use: Use) -> None:
        """Check options and columns.

        Raises:
            OptionError: an option is missing or does not fit.
            SchemaError: a column is missing or has another type.
        """
        self.messages = messages_of(options, schema)
        self.place = JournalPlace.of(options)
        settings = self.place.settings
        if settings is not None and not settings.enable_idempotence:
            # Otherwise records could be duplicated, reordered, or lost after their acknowledgement.
            raise OptionError(
                "delivery", "journal needs kafka.enable.idempotence=true and kafka.acks=all"
            )
        self.is_stream = use is Use.WRITE_STREAM
        self.at_least: int = options["journalsPerTopic"]
        self.compares = options["repeatedBatch"] == "compare"
        self.gives_up = not options["failOnDataLoss"]
        self.store = IntentStore(intent_folder(options, self.is_stream))
        # The name of a batch write. A stream is named by its query's id, which only tasks know.
        self.writer = _UNNAMED + str(uuid4())
        if options.given("writeId"):
            self.writer = _ID + options["writeId"]
        self.committed: Mapping[str, int] = {}

    def recover(self) -> None:
        """Append stored acknowledgements that an earlier driver may not have appended.

        The driver calls this before anything is written.

        Raises:
            SparkSourceError: the journals cannot be written, or the stored files are damaged.
        """
        with self.place.errors(f"acknowledging what is in {self.store.folder}"):
            for stored in list(self.store.all()):
                self._append(stored)
            self.committed = self.store.latest()

    # In a task.

    def write(self, batches: Iterable[pa.RecordBatch]) -> Published:
        """Publish the rows of a task, uncommitted; if the write is committed already, only count them.

        Raises:
            RowError: a row is not a message.
            SparkSourceError: the journals cannot be written.
        """
        write = self._write()
        published = Published(writer=write.writer)
        counter = RowCounter(self.messages)
        if write.batch <= self.committed.get(write.writer, -2):
            for batch in batches:
                if self.compares:
                    counter.add_batch(batch)
            published.rows, published.sum = counter.rows, counter.sum
            return published
        clock = Clock()
        published.clock = clock.value
        with self.place.errors("writing"), self.place.open() as journals:
            publisher = Publisher(journals, clock)
            make = partial(self.place.make, journals, count=self.at_least)
            rows = RowPublisher(self.messages, counter, publisher, make)
            try:
                for batch in batches:
                    clock.update()
                    rows.publish(batch, published)
                published.intents = publisher.build_ack_intents()
                published.rows, published.sum = counter.rows, counter.sum
                published.ends = publisher.build_end_intents()
            except BaseException:
                # Readers would not see the messages, but can forget them once they are rolled back.
                with suppress(Exception):
                    append_intents(journals, publisher.build_rollback_intents())
                    append_intents(journals, publisher.build_end_intents())
                raise
        return published

    def _write(self) -> Write:
        """Return the write that a task belongs to. Outside of Spark, a stream's number is not known, and counts
        as new."""
        if not self.is_stream:
            return Write(self.writer)
        context = TaskContext.get()
        number = None if context is None else context.getLocalProperty(_BATCH_ID)
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        return Write(_QUERY + (query or ""), sys.maxsize if number is None else int(number))

    # On the driver.

    def commit(self, messages: Messages, batch_id: int | None) -> None:
        """Commit the rows of all tasks, or roll them back if the write was committed before.

        Raises:
            SparkSourceError: the write cannot be committed, or was committed with other rows.
        """
        published = [message for message in messages if isinstance(message, Published)]
        if not published:
            return
        intents = _intents(published)
        write = self._write_of(published, batch_id)
        total = sum(message.sum for message in published) % (1 << 128)
        rows = RowTotals(sum(message.rows for message in published), total.to_bytes(16, "big"))
        with self.place.errors(f"committing {write.text}"):
            stored = self._commit_once(write, intents, rows)
        if stored is None:
            return
        if (write, rows, hash_of(intents)) == (stored.write, stored.rows, stored.hash):
            self._end(published)
            _log.info("%s: committed %d rows", write.text, rows.number)
            return
        if intents and write == stored.write:
            _log.info("%s was committed before: rolling back its repeated rows", write.text)
            self._roll_back(published)
        if self.compares:
            check_repeated(write, rows, stored)

    def _commit_once(
        self, write: Write, intents: list[AckIntent], rows: RowTotals
    ) -> StoredIntents | None:
        """Commit a write and append its intents, unless it was committed before.

        Returns:
            What is stored: this write, or an earlier commit of it or of a later one. None if there is
            nothing to commit.
        """
        while True:
            last = self.store.last(write)
            if last is not None:
                # Storing the next micro-batch discards the last one's intents.
                self._append(last)
                if write.batch <= last.write.batch:
                    break
            if rows.number and not intents:
                raise SparkSourceError(
                    f"{write.text} was committed when its tasks ran, but is not committed now: {self.store.folder} "
                    "has changed. Nothing was written; run the write again"
                )
            if not intents and not write.writer.startswith(_ID):
                return None
            last = self.store.store(write, intents, rows, last)
            if last is not None:
                self._append(last)
                break
        if write.batch >= 0:
            self.store.forget_before(write)
        return last

    def abort(self, messages: Messages, batch_id: int | None) -> None:
        """Roll back the rows of a failed write, unless it may be committed.

        Spark also calls this if ``commit`` has failed. The write may be committed then.
        """
        published = [message for message in messages if isinstance(message, Published)]
        if not published:
            return
        write = self._write_of(published, batch_id)
        # A write is only committed after all its tasks are done.
        if len(published) < len(messages) or not self._may_be_committed(write, published):
            _log.warning("%s has failed: rolling back its rows", write.text)
            self._roll_back(published)

    def _may_be_committed(self, write: Write, published: Sequence[Published]) -> bool:
        last = self.store.last(write)
        if last is None:
            # Another driver may have appended the intents and removed the write's file.
            return write.writer.startswith(_UNNAMED)
        if write.batch == last.write.batch:
            return last.hash == hash_of(_intents(published))
        return write.batch < last.write.batch

    def _write_of(self, published: Sequence[Published], batch_id: int | None) -> Write:
        return Write(published[0].writer, -1 if batch_id is None else batch_id)

    def _append(self, stored: StoredIntents) -> None:
        """Append the intents of a committed write.

        Raises:
            SparkSourceError: a journal was deleted, and ``failOnDataLoss`` is true.
        """
        if stored.appended:
            return
        self.store.secure(stored)
        intents = stored.intents
        with self.place.open() as journals:
            try:
                append_intents(journals, intents)
            except JournalError:
                missing = self.place.missing(journals, {intent.journal for intent in intents})
                if not missing:
                    raise
                names = ", ".join(sorted(missing))
                if not self.gives_up:
                    raise SparkSourceError(
                        f"{stored.write.text} is committed, but {names} ({self.place.name}) does not exist any "
                        "more, so its rows there cannot be acknowledged. If it was deleted on purpose, set "
                        "failOnDataLoss=false for the next run: the query gives up only these rows, and continues"
                    ) from None
                _log.warning(
                    "%s: giving up its rows in %s, which does not exist any more",
                    stored.write.text,
                    names,
                )
                append_intents(journals, [each for each in intents if each.journal not in missing])
        if stored.write.writer.startswith(_UNNAMED):
            self.store.forget(stored.write)  # no later run has this name
        else:
            self.store.appended(stored)

    def _roll_back(self, published: Sequence[Published]) -> None:
        """Roll back messages that will never be acknowledged, so that readers can forget them.

        Readers would not return them in any case, so errors are only logged.
        """
        try:
            with self.place.open() as journals:
                append_intents(
                    journals,
                    [
                        intent
                        for message in published
                        for intent in message.rollback_intents(journals, self.messages.cls)
                    ]
                    + [intent for message in published for intent in message.ends],
                )
        except Exception as error:
            _log.warning("rolling back written rows has failed: %s", error)

    def _end(self, published: Sequence[Published]) -> None:
        """End the producers of a committed and acknowledged write, so that readers can forget them.

        Without this, readers forget them later, so errors are only logged.
        """
        ends = [intent for message in published for intent in message.ends]
        try:
            if ends:
                with self.place.open() as journals:
                    append_intents(journals, ends)
        except Exception as error:
            _log.warning("ending the producers of written rows has failed: %s", error)


def _intents(published: Iterable[Published]) -> list[AckIntent]:
    return [intent for message in published for intent in message.intents]


def journal_delivery(options: Options, schema: StructType, use: Use) -> JournalDelivery:
    """Return the delivery, after it has appended what an earlier driver left unfinished.

    Raises:
        OptionError: an option is missing or does not fit.
        SchemaError: a column is missing or has another type.
        SparkSourceError: the journals cannot be written, or the stored files are damaged.
    """
    delivery = JournalDelivery(options, schema, use)
    delivery.recover()
    return delivery


def check_repeated(write: Write, rows: RowTotals, stored: StoredIntents) -> None:
    """Raise SparkSourceError if a write was committed with other rows."""
    committed = stored.rows_of(write.batch)
    if committed is None:
        if not rows.number:
            return  # a micro-batch without rows is not stored
        text = (
            f"Spark runs {write.text}, but batch {stored.write.batch} is already committed, and it is not known "
            f"any more which rows batch {write.batch} had"
        )
    elif committed in (rows, _UNKNOWN):
        return
    else:
        text = (
            f"{write.text} was committed with {committed.number} rows, and now has {rows.number} different rows, "
            "which were not written"
        )
    raise SparkSourceError(
        f"{text}. "
        + (
            "Use another writeId for different rows"
            if write.batch < 0
            else "Probably the checkpoint was restored or damaged, or another driver runs the same query. Restore "
            "the newest checkpoint; or name a new folder with the option intents, and rows may be written twice"
        )
        + ". If the query computes different rows in each run (random values, the current time), set "
        "repeatedBatch=skip to leave the committed rows unchanged"
    )
