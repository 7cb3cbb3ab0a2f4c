"""Journals in topics: each partition of a topic is a journal, called ``topic/0``.

A record is a frame, the whole of it, as its value. So the offsets of a journal are those of its records:
a frame at offset 7 takes the offsets from 7 up to 8, and a part of the journal is read again by the offsets
of its records. The producer writes each record once and in order (``enable.idempotence``); what a crash of
its process makes unsure is for the sequencer to sort out, as it is in files. Kafka's own transactions are not
needed.

Works with every Kafka-compatible broker.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping as Dictionary
from typing import Any, Self

from krammar.client import At, Client, ClientError, Delivery, Producer, Settings, TopicPartition
from krammar.client.errors import (
    DeadlineError,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from krammar.journal.errors import AppendError, UnknownJournalError
from krammar.journal.framing import FIXED_CONTENT_TYPE
from krammar.journal.journals import Frame, Ticker
from krammar.journal.listing import listing
from krammar.journal.mapping import Partitions
from krammar.journal.specs import JournalSpec

log = logging.getLogger("krammar.journal")


class TopicJournals:
    """The partitions of the topics of a Kafka-compatible cluster.

    ``servers`` and settings are those of ``krammar.client.Client``. Topics do not say how their records are
    framed: all are read and written with the framing of ``content_type``.

    ``append``, ``flush`` and results may be called by several threads at once. A process that was forked
    makes its own.
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
        self._under_way = 0
        self._closed = False
        self._working = threading.RLock()
        self._ticker = Ticker(self._work, linger_ms / 1000)

    # Which journals there are.

    def spec(self, journal: str) -> JournalSpec:
        """What a journal is. Raises UnknownJournalError for a name that is not ``topic/partition``; whether
        there is such a partition turns out when it is used."""
        _place(journal)
        return JournalSpec(journal, self.content_type)

    def list(self, topic: str) -> list[JournalSpec]:
        """The partitions of a topic. Raises UnknownJournalError, ClientError."""
        with self._working:
            try:
                found = self._client.partitions(topic)
            except UnknownTopicOrPartition as error:
                raise UnknownJournalError(f"there is no topic {topic}") from error
        return [JournalSpec(f"{at.topic}/{at.partition}", self.content_type) for at in found]

    def partitions(self, topic: str, *, refresh_ms: float = 10_000) -> Partitions:
        """A function that lists a topic's partitions, for mappings. It asks anew every ``refresh_ms``."""
        return listing(lambda: self.list(topic), refresh_ms)

    def offsets(self, journal: str) -> tuple[int, int]:
        """The offset of the first record, and the one behind the last. Raises UnknownJournalError, ClientError."""
        at = _place(journal)
        with self._working:
            try:
                first = self._client.list_offsets({at: At.EARLIEST})[at].offset
                return first, self._client.list_offsets({at: At.LATEST})[at].offset
            except UnknownTopicOrPartition as error:
                raise UnknownJournalError(f"there is no journal {journal}") from error

    # Writing.

    def append(self, journal: str, data: bytes) -> TopicAppend:
        """Begin to append a frame as a record. Raises UnknownJournalError, AppendError."""
        topic, partition = _place(journal)
        with self._working:
            if self._closed:
                raise AppendError("the journals were closed")
            if self._producer is None:
                self._producer = self._client.producer()
            try:
                delivery = self._producer.send(
                    topic, data, partition=partition, on_delivery=self._one_done
                )
            except UnknownTopicOrPartition as error:
                raise UnknownJournalError(f"there is no journal {journal}: {error}") from error
            except ClientError as error:
                raise AppendError(f"{journal}: {error}") from error
            self._under_way += 1
        if not delivery.done:
            self._ticker.wake()
        return TopicAppend(self, journal, delivery)

    def flush(self) -> None:
        """Wait until all that was appended is done: ``delivery.timeout.ms`` at most."""
        with self._working:
            if self._producer is not None:
                try:
                    self._producer.flush()
                except ClientError as error:
                    log.warning("appending to topics: %s", error)

    def _work(self) -> bool:
        """Get on with appends that nobody waits for; whether some are left."""
        with self._working:
            if self._producer is None or self._closed:
                return False
            self._producer.poll(0)
            return self._under_way > 0

    def _one_done(self, _: Delivery) -> None:
        self._under_way -= 1

    def wait_for(self, delivery: Delivery, timeout_ms: float | None) -> None:
        with self._working:
            if not delivery.done and self._producer is not None:
                self._producer.wait_for(delivery, timeout_ms)

    def close(self) -> None:
        """Flush, and close all connections but those of readers."""
        with self._working:
            if self._closed:
                return
            self._closed = True
        self._ticker.stop()
        try:
            if self._producer is not None:
                self._producer.close()
        except ClientError as error:
            log.warning("appending to topics: %s", error)
        finally:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading.

    def reader(
        self, journal: str, begin: int = 0, end: int | None = None, *, follow: bool = False
    ) -> TopicReader:
        """A reader of the records from ``begin`` up to but without ``end``: the end of the partition as it is,
        unless given. With ``follow`` and without ``end`` it waits for more for ever.

        Raises UnknownJournalError, ClientError.
        """
        at = _place(journal)
        if end is None and not follow:
            end = self.offsets(journal)[1]
        return TopicReader(self._client.settings, self.spec(journal), at, begin, end)


class TopicAppend:
    """An append to a topic; see AsyncAppend. It takes one offset."""

    __slots__ = ("_delivery", "_journals", "journal")

    def __init__(self, journals: TopicJournals, journal: str, delivery: Delivery) -> None:
        self._journals = journals
        self._delivery = delivery
        self.journal = journal

    @property
    def begin(self) -> int:
        """The record's offset; -1 where the broker does not tell."""
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
        """Wait until it is done: ``delivery.timeout.ms`` at most, unless given. Raises AppendError, and
        TimeoutError if it is not done after ``timeout_ms``."""
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


class TopicReader:
    """Reads a partition's records as frames; see Reader. It has a connection of its own. ``close`` may be
    called by any thread: what is read then is the last."""

    # How long it waits for records before it looks whether it was closed, in milliseconds.
    _PAUSE = 200

    def __init__(
        self, settings: Settings, spec: JournalSpec, at: TopicPartition, begin: int, end: int | None
    ) -> None:
        if begin < 0:
            raise ValueError(f"{spec.name}: offset {begin} is negative")
        self.spec = spec
        self.offset = begin
        self._settings = settings
        self._at = at
        self._end = end
        self._client: Client | None = None
        self._closed = threading.Event()

    def read(self) -> list[Frame]:
        """The next records; none at the end. Raises ClientError."""
        if self._end is not None and self.offset >= self._end:
            return []
        if self._client is None:
            if self._closed.is_set():
                return []
            self._client = Client(self._settings)
            self._reader = self._client.fetch({self._at: self.offset}, until=self._until())
        while not self._closed.is_set() and not self._reader.finished:
            try:
                came = self._reader.poll(self._PAUSE)
            except OffsetOutOfRange as error:
                if error.log_start_offset <= self.offset:
                    raise
                self._jump(error.log_start_offset)
                self._reader.seek(self._at, self.offset, until=self._end)
                continue
            except (UnknownTopicOrPartition, UnknownTopicId) as error:
                raise UnknownJournalError(f"there is no journal {self.spec.name}") from error
            frames: list[Frame] = []
            for fetched in came:
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

    def _until(self) -> dict[TopicPartition, int] | None:
        return None if self._end is None else {self._at: self._end}

    def _jump(self, offset: int) -> None:
        log.warning(
            "%s: nothing is left of offsets %d to %d; reading goes on behind them",
            self.spec.name,
            self.offset,
            offset,
        )
        self.offset = offset

    def between(self, begin: int, end: int) -> TopicReader:
        return TopicReader(self._settings, self.spec, self._at, begin, end)

    def _stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def close(self) -> None:
        self._closed.set()
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _place(journal: str) -> TopicPartition:
    topic, _, partition = journal.rpartition("/")
    if not topic or "/" in topic or not partition.isdecimal():
        raise UnknownJournalError(f"{journal!r} is no journal of a topic, such as 'orders/0'")
    return TopicPartition(topic, int(partition))
