"""Journals in topics: each partition of a topic is a journal, called ``topic/0``.

The value of a record is a complete frame. The offsets of a journal are those of its records: a frame at offset
7 begins at 7 and ends at 8. The producer writes each record once and in order (``enable.idempotence``). If a
process crashes between writing and acknowledging, the sequencer decides what is committed, as in files. Kafka's
own transactions are not used.

This works with every Kafka-compatible broker.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from krammar.client import At, Client, ClientError, Delivery, Producer, Settings, TopicPartition
from krammar.client.errors import (
    DeadlineError,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from krammar.journal.errors import AppendError, UnknownJournalError, created_again
from krammar.journal.fixed_framing import FIXED_CONTENT_TYPE
from krammar.journal.journals import Frame, Ticker
from krammar.journal.mapping import Partitions, refreshing
from krammar.journal.specs import JournalSpec
from krammar.journal.uuids import NULL_UUID
from krammar.util.closing import Closing

log = logging.getLogger("krammar.journal")


class TopicReader(Closing):
    """Reads a partition's records as frames; see Reader.

    A reader has its own connection. Any thread may call ``close``; a ``read`` at that time is the last one.
    """

    # How long one request waits for records before ``close`` is noticed, in milliseconds.
    _PAUSE = 200

    def __init__(
        self,
        settings: Settings,
        spec: JournalSpec,
        journal_id: UUID,
        at: TopicPartition,
        begin: int,
        end: int | None,
    ) -> None:
        if begin < 0:
            raise ValueError(f"{spec.name}: offset {begin} is negative")
        self.spec = spec
        self.journal_id = journal_id
        self.offset = begin
        self._settings = settings
        self._at = at
        self._end = end
        self._client: Client | None = None
        self._closed = threading.Event()

    def read(self) -> list[Frame]:
        """Return the next records, or an empty list at the end.

        Raises:
            UnknownJournalError: the topic was deleted, or deleted and created again.
            ClientError: the brokers cannot be read.
        """
        if self._end is not None and self.offset >= self._end:
            return []
        if self._client is None:
            if self._closed.is_set():
                return []
            # The reader may connect while brokers restart.
            self._client = Client(self._settings, krammar_retry_bootstrap=True)
            self._reader = self._client.fetch(
                {self._at: self.offset},
                until=self._until(),
                topic_ids={self._at.topic: self.journal_id},
            )
        while not self._closed.is_set() and not self._reader.finished:
            try:
                results = self._reader.poll(self._PAUSE)
            except OffsetOutOfRange as error:
                if error.log_start_offset <= self.offset:
                    raise
                self._jump(error.log_start_offset)
                self._reader.seek(self._at, self.offset, until=self._end)
                continue
            except (UnknownTopicOrPartition, UnknownTopicId) as error:
                unknown = self._unknown()
                # The client would continue with the new topic.
                self._stop()
                raise unknown from error
            if self.journal_id == NULL_UUID:
                self.journal_id = self._current_id()
            frames: list[Frame] = []
            for fetched in results:
                for record in fetched:
                    offset = record.offset
                    if offset > self.offset:
                        self._jump(offset)
                    frames.append((offset, offset + 1, record.value or b""))
                    self.offset = offset + 1
            if frames:
                return frames
        self._stop()
        return []

    def _current_id(self) -> UUID:
        """Return the topic's id as far as the client knows it."""
        assert self._client is not None
        topic = self._client.cluster.metadata.topics.get(self._at.topic)
        return NULL_UUID if topic is None else topic.topic_id

    def _unknown(self) -> UnknownJournalError:
        current_id = self._current_id()
        if NULL_UUID != self.journal_id != current_id != NULL_UUID:
            return created_again(self.spec.name, current_id)
        return UnknownJournalError(f"journal {self.spec.name!r} does not exist")

    def _until(self) -> dict[TopicPartition, int] | None:
        return None if self._end is None else {self._at: self._end}

    def _jump(self, offset: int) -> None:
        log.warning(
            "%s: offsets %d to %d do not exist any more; skipping them",
            self.spec.name,
            self.offset,
            offset,
        )
        self.offset = offset

    def between(self, begin: int, end: int) -> TopicReader:
        """Return another reader of the same journal for these offsets."""
        return TopicReader(self._settings, self.spec, self.journal_id, self._at, begin, end)

    def ranges(self, ranges: Sequence[tuple[int, int]]) -> TopicReader:
        """Return another reader of the same journal for some ranges of offsets; see ``Reader``."""
        return _TopicRangesReader(self._settings, self.spec, self.journal_id, self._at, ranges)

    def _stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def close(self) -> None:
        """End reading, and close the connection."""
        self._closed.set()
        self._stop()


class _TopicRangesReader(TopicReader):
    """Reads the records in some ranges of offsets.

    If ranges are close together, it reads on instead of seeking, because brokers send complete batches anyway.
    """

    # A range that begins after more offsets is sought.
    far = 1000

    def __init__(
        self,
        settings: Settings,
        spec: JournalSpec,
        journal_id: UUID,
        at: TopicPartition,
        ranges: Sequence[tuple[int, int]],
    ) -> None:
        super().__init__(settings, spec, journal_id, at, ranges[0][0], ranges[-1][1])
        self._left = deque(ranges)

    def read(self) -> list[Frame]:
        left = self._left
        while frames := super().read():
            found: list[Frame] = []
            for frame in frames:
                while left and left[0][1] <= frame[0]:
                    left.popleft()
                if left and left[0][0] <= frame[0]:
                    found.append(frame)
            while left and left[0][1] <= self.offset:
                left.popleft()
            if left and left[0][0] - self.offset > self.far:
                self.offset = left[0][0]
                self._reader.seek(self._at, self.offset, until=self._end)
            if found:
                return found
        return []


class TopicJournals(Closing):
    """The partitions of topics of a Kafka-compatible cluster.

    ``append``, ``flush`` and ``TopicAppend.result`` are thread-safe. A forked process must create its own object.

    Args:
        servers: see ``krammar.client.Client``, as for the settings.
        content_type: the content type of all journals; topics do not store one.
        linger_ms: how long to collect appends without a waiting caller before they are sent.
    """

    def __init__(
        self,
        servers: str | Settings,
        settings: Dictionary[str, Any] | None = None,
        /,
        *,
        content_type: str = FIXED_CONTENT_TYPE,
        linger_ms: float = 5,
        **more: Any,
    ) -> None:
        self.content_type = content_type
        self._client = Client(servers, settings, **more)
        self._producer: Producer | None = None
        self._in_flight = 0
        self._closed = False
        self._working = threading.RLock()
        self._ticker = Ticker(self._work, linger_ms / 1000)

    # The list of journals.

    def spec(self, journal: str) -> JournalSpec:
        """Return the spec of a journal, without asking the brokers whether it exists.

        Raises:
            UnknownJournalError: the name is not ``topic/partition``.
        """
        _partition_of(journal)
        return JournalSpec(journal, self.content_type)

    def list(self, topic: str) -> list[JournalSpec]:
        """Return the partitions of a topic.

        Raises:
            UnknownJournalError: the topic does not exist.
            ClientError: the brokers cannot be asked.
        """
        with self._working:
            try:
                found = self._client.partitions(topic)
            except UnknownTopicOrPartition as error:
                raise UnknownJournalError(f"topic {topic!r} does not exist") from error
        return [JournalSpec(f"{at.topic}/{at.partition}", self.content_type) for at in found]

    def partitions(self, topic: str, *, refresh_ms: float = 10_000) -> Partitions:
        """Return a function that lists a topic's partitions, for mappings; it asks again every ``refresh_ms``."""
        return refreshing(lambda: self.list(topic), refresh_ms)

    def offsets(self, journal: str) -> tuple[int, int]:
        """Return the offsets of the first record and of the journal's end (exclusive).

        Raises:
            UnknownJournalError: the journal does not exist.
            ClientError: the brokers cannot be asked.
        """
        at = _partition_of(journal)
        with self._working:
            try:
                first = self._client.list_offsets({at: At.EARLIEST})[at].offset
                return first, self._client.list_offsets({at: At.LATEST})[at].offset
            except UnknownTopicOrPartition as error:
                raise UnknownJournalError(f"journal {journal!r} does not exist") from error

    def journal_id(self, journal: str) -> UUID:
        """Return the id of a journal, which is the id of its topic; the null UUID if the brokers have no topic ids.

        Raises:
            UnknownJournalError: the journal does not exist.
            ClientError: the brokers cannot be asked.
        """
        topic = _partition_of(journal).topic
        with self._working:
            cluster = self._client.cluster
            cluster.metadata.outdate([topic])
            deadline = cluster.deadline(f"finding topic {topic}")
            try:
                return cluster.topic(topic, deadline, auto_create=False).topic_id
            except UnknownTopicOrPartition as error:
                raise UnknownJournalError(f"journal {journal!r} does not exist") from error

    # Writing.

    def append(self, journal: str, data: bytes) -> TopicAppend:
        """Begin to append a frame as a record.

        Raises:
            UnknownJournalError: the journal does not exist.
            AppendError: the append cannot begin, or this object was closed.
        """
        topic, partition = _partition_of(journal)
        with self._working:
            if self._closed:
                raise AppendError(f"{journal}: the journals are closed")
            if self._producer is None:
                self._producer = self._client.producer()
            try:
                delivery = self._producer.send(
                    topic, data, partition=partition, on_delivery=self._one_done
                )
            except UnknownTopicOrPartition as error:
                raise UnknownJournalError(f"journal {journal!r} does not exist: {error}") from error
            except ClientError as error:
                raise AppendError(f"{journal}: {error}") from error
            self._in_flight += 1
        if not delivery.done:
            self._ticker.wake()
        return TopicAppend(self, journal, delivery)

    def flush(self) -> None:
        """Wait until all appends are done, for at most ``delivery.timeout.ms``."""
        with self._working:
            if self._producer is not None:
                try:
                    self._producer.flush()
                except ClientError as error:
                    log.warning("appending to topics has failed: %s", error)

    def _work(self) -> bool:
        """Send appends without a waiting caller; return whether some are in flight."""
        with self._working:
            if self._producer is None or self._closed:
                return False
            self._producer.poll(0)
            return self._in_flight > 0

    def _one_done(self, _: Delivery) -> None:
        self._in_flight -= 1

    def wait_for(self, delivery: Delivery, timeout_ms: float | None) -> None:
        """Wait until a record is done; see ``Delivery.result``."""
        with self._working:
            if not delivery.done and self._producer is not None:
                self._producer.wait_for(delivery, timeout_ms)

    def close(self) -> None:
        """Flush, and close all connections except those of readers."""
        with self._working:
            if self._closed:
                return
            self._closed = True
        self._ticker.stop()
        try:
            if self._producer is not None:
                self._producer.close()
        except ClientError as error:
            log.warning("appending to topics has failed: %s", error)
        finally:
            self._client.close()

    # Reading.

    def reader(
        self,
        journal: str,
        begin: int = 0,
        end: int | None = None,
        *,
        journal_id: UUID | None = None,
        follow: bool = False,
    ) -> TopicReader:
        """Return a reader of the records with ``begin <= offset < end``.

        Args:
            end: the default is the partition's current end.
            journal_id: the id that the topic must have, from a checkpoint.
            follow: without ``end``, wait for new records forever.

        Raises:
            UnknownJournalError: the journal does not exist, or has another id. With ``end`` or ``follow``, the first
                read raises it.
            ClientError: the brokers cannot be asked.
        """
        at = _partition_of(journal)
        wanted = NULL_UUID if journal_id is None else journal_id
        if end is None and not follow:
            current_id = self.journal_id(journal)
            if NULL_UUID != wanted != current_id != NULL_UUID:
                raise created_again(journal, current_id)
            wanted = current_id
            end = self.offsets(journal)[1]
        return TopicReader(self._client.settings, self.spec(journal), wanted, at, begin, end)


class TopicAppend:
    """An append of one record to a topic; see AsyncAppend."""

    __slots__ = ("_delivery", "_journals", "journal")

    def __init__(self, journals: TopicJournals, journal: str, delivery: Delivery) -> None:
        self._journals = journals
        self._delivery = delivery
        self.journal = journal

    @property
    def begin(self) -> int:
        """The record's offset; -1 if the broker does not report it."""
        return self._delivery.offset

    @property
    def end(self) -> int:
        offset = self._delivery.offset
        return -1 if offset < 0 else offset + 1

    @property
    def done(self) -> bool:
        return self._delivery.done

    @property
    def error(self) -> Exception | None:
        error = self._delivery.error
        return None if error is None else self._failure(error)

    def result(self, timeout_ms: float | None = None) -> TopicAppend:
        """Wait until the append is done, and return it.

        Args:
            timeout_ms: the default is ``delivery.timeout.ms``.

        Raises:
            AppendError: the append has failed.
            TimeoutError: the append is not done after ``timeout_ms``.
        """
        try:
            self._journals.wait_for(self._delivery, timeout_ms)
        except DeadlineError:
            if not self._delivery.done:
                raise
        except ClientError as error:
            raise self._failure(error) from error
        if self._delivery.error is not None:
            raise self._failure(self._delivery.error) from self._delivery.error
        return self

    def _failure(self, error: ClientError) -> AppendError:
        return AppendError(f"{self.journal}: {error}")


def _partition_of(journal: str) -> TopicPartition:
    topic, _, partition = journal.rpartition("/")
    if not topic or "/" in topic or not partition.isdecimal():
        raise UnknownJournalError(
            f"{journal!r} is not a journal in a topic: use topic/partition, such as 'orders/0'"
        )
    return TopicPartition(topic, int(partition))
