"""Reads many partitions from several leaders at the same time.

```python
reader = Reader(cluster, {TopicPartition("orders", 0): 0}, until={TopicPartition("orders", 0): 100})
for fetched in reader:
    for record in fetched:
        print(fetched.at, record.offset, record.value)
```

While the caller processes a response, the next request to each leader is in flight.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any
from uuid import UUID

from kafka_wire import ErrorCode, FetchRequest, IsolationLevel

from krammar.client.cluster import Cluster
from krammar.client.deadline import Deadline
from krammar.client.errors import (
    ClientError,
    CorruptBatchError,
    StateError,
    kafka_error,
    raise_code,
)
from krammar.client.in_flight import RequestInFlight
from krammar.client.metadata import NO_ID, TopicPartition
from krammar.client.offsets import group_topics
from krammar.client.positions import Positions, ReadPosition, is_local, out_of_range
from krammar.client.settings import Settings
from krammar.wire.batches import (
    BatchHeader,
    ControlRecordType,
    Record,
    RecordBatch,
    read_batches,
    read_headers,
)
from krammar.wire.batches.crc import check_crc
from krammar.wire.errors import DecodeError

# Requests, and the limits for their responses.


class FetchLimits:
    """The most bytes of a response, and of a partition in it.

    Args:
        first_bytes: the limit of the first response; each later one may be four times as large. None: only the
            settings limit responses.
    """

    def __init__(self, settings: Settings, first_bytes: int | None) -> None:
        self._settings = settings
        self._grows = first_bytes is not None
        self._set(settings.max_partition_fetch_bytes if first_bytes is None else first_bytes)

    def grow(self) -> None:
        """Allow a larger response."""
        if self._grows:
            self._set(4 * self.partition)

    def _set(self, size: int) -> None:
        self.partition = min(self._settings.max_partition_fetch_bytes, size)
        self.response = self._settings.fetch_max_bytes
        if self._grows:
            self.response = min(self.response, self.partition)


def fetch_request(
    cluster: Cluster, positions: Iterable[ReadPosition], limits: FetchLimits
) -> FetchRequest:
    """Return the request for some partitions of one broker."""
    settings, topics = cluster.settings, cluster.metadata.topics
    by_name = {p.at: p for p in positions}
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=limits.response,
        isolation_level=(
            IsolationLevel.READ_COMMITTED
            if settings.read_committed
            else IsolationLevel.READ_UNCOMMITTED
        ),
        session_id=0,
        session_epoch=-1,
        topics=[
            FetchRequest.FetchTopic(
                topic=name,
                topic_id=topics[name].topic_id,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=at.partition,
                        current_leader_epoch=cluster.partition(at).leader_epoch,
                        fetch_offset=by_name[at].offset,
                        partition_max_bytes=limits.partition,
                    )
                    for at in partitions
                ],
            )
            for name, partitions in group_topics(by_name).items()
        ],
        rack_id=settings.client_rack,
    )


# Responses, and their records.

_FIRST_OFFSET = attrgetter("first_offset")


@dataclass(slots=True)
class Fetched:
    """The records of a partition in one response. Iterating yields the records.

    Attributes:
        begin, end: the offsets that it covers: ``begin``, up to but not including ``end``
        data: all batches of the response
        headers: the headers of the visible batches, in order: without control batches, and with
            ``read_committed`` without aborted ones. The first batch may have records before
            ``begin``, the last one after ``end``; iterating skips them.
        size: bytes of all batches in the response, including those that are not visible
        high_watermark, last_stable_offset, log_start_offset: the log's; -1 if unknown
    """

    at: TopicPartition
    begin: int
    end: int
    data: bytes = field(repr=False)
    headers: list[BatchHeader]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    check_crcs: bool = field(default=True, repr=False)

    @property
    def batches(self) -> list[RecordBatch]:
        """The visible batches, each with a copy of its bytes."""
        view = memoryview(self.data)
        found = []
        for header in self.headers:
            end = header.position + header.size_in_bytes
            # Batches were checked when they arrived; a message set's CRCs are checked when it is decoded.
            check = self.check_crcs and header.magic < 2
            (batch,) = read_batches(view[header.position : end], validate_crc=check)
            batch.position = header.position
            found.append(batch)
        return found

    def __iter__(self) -> Iterator[Record]:
        """Yield the records.

        Raises:
            DecodeError: a record is malformed.
        """
        for batch in self.batches:
            if batch.magic > 1 and batch.base_offset >= self.begin and batch.last_offset < self.end:
                yield from batch
                continue
            for record in batch:
                if self.begin <= record.offset < self.end:
                    yield record


@dataclass(slots=True)
class FetchedBatches:
    """The batches of a partition in a response, from the offset ``begin`` on.

    Attributes:
        headers: those of the visible batches, see ``Fetched``
        following: the offset after the last complete batch
        epoch: the leader epoch of the last batch; -1 if unknown
        damage: the error of the first corrupt batch, if there is one
    """

    headers: list[BatchHeader]
    following: int
    epoch: int = -1
    damage: CorruptBatchError | None = None


def read_answer(
    at: TopicPartition,
    answer: Any,
    begin: int,
    end: int | None,
    *,
    committed: bool,
    check_crcs: bool,
) -> FetchedBatches:
    """Find the visible batches in the answer for a partition.

    Args:
        end: the offset at which reading ends, if any.
        committed: leave out the batches of aborted transactions.
    """
    data = answer.records
    aborted = deque(sorted(answer.aborted_transactions or (), key=_FIRST_OFFSET))
    open_aborted: set[int] = set()
    found = FetchedBatches([], begin)
    view = memoryview(data)
    number = 0
    try:
        for batch in read_headers(data):
            if check_crcs:
                check_crc(view, batch)
            number += 1
            last = batch.last_offset
            if last < begin and batch.magic > 1:
                continue
            found.following = max(found.following, last + 1)
            if batch.partition_leader_epoch >= 0:
                found.epoch = batch.partition_leader_epoch
            if committed:
                while aborted and aborted[0].first_offset <= last:
                    open_aborted.add(aborted.popleft().producer_id)
            if batch.is_control:
                if committed and _is_abort(view, batch):
                    open_aborted.discard(batch.producer_id)
                continue
            if batch.is_transactional and batch.producer_id in open_aborted:
                continue
            if end is None or batch.base_offset < end:
                found.headers.append(batch)
    except DecodeError as error:
        found.damage = _damage(at, data, number, found.following, str(error))
    return found


def known_end(answer: Any, settings: Settings) -> int:
    """Return the end of the log in an answer; with ``read_committed``, the last stable offset."""
    if settings.read_committed and answer.last_stable_offset >= 0:
        return int(answer.last_stable_offset)
    return int(answer.high_watermark)


def _is_abort(data: memoryview, header: BatchHeader) -> bool:
    end = header.position + header.size_in_bytes
    (batch,) = read_batches(data[header.position : end], validate_crc=False)
    control = batch.control_records()
    return bool(control) and control[0].type == ControlRecordType.ABORT


def _damage(
    at: TopicPartition, data: bytes, number: int, following: int, why: str
) -> CorruptBatchError:
    """Return the error for batch ``number`` of a response, with the offset after it if its header is valid."""
    offset, next_offset = following, None
    try:
        for index, header in enumerate(read_headers(data)):
            if index == number:
                offset = max(following, header.base_offset)
                next_offset = header.next_offset if header.next_offset > following else None
                break
    except DecodeError:
        pass
    return CorruptBatchError(at.topic, at.partition, offset, next_offset, why)


__all__ = ["FETCH_BY_ID", "Fetched", "Reader"]

# Reading.

# The version from which on Fetch names topics by their ids (KIP-516).
FETCH_BY_ID = 13


class Reader:
    """Reads partitions.

    The cluster's settings apply: ``isolation.level``, ``fetch.min.bytes``, ``fetch.max.bytes``,
    ``fetch.max.wait.ms``, ``max.partition.fetch.bytes``, ``check.crcs``, ``client.rack``.

    After moved leaders and lost connections, the reader retries until ``default.api.timeout.ms`` have
    passed without success. The error of a partition is raised after all earlier records were returned. The
    partition is then paused until ``seek`` sets a new position; other partitions are still read.

    Args:
        positions: the first offset of each partition.
        until: the offsets at which reading ends, exclusive; partitions that it lacks have no end.
        epochs: the leader epochs of the last records before ``positions``, if known, to detect that
            the log was truncated since.
        topic_ids: the ids that topics must have; another id raises UnknownTopicId.
        first_bytes: size limit of the first response. Each later one may be four times as large, up to
            ``max.partition.fetch.bytes``. Without it, only the settings limit responses.

    Raises:
        OffsetOutOfRange: the log does not have the next offset.
        TruncatedError: the log was truncated before the next offset.
        CorruptBatchError: a batch is corrupt.
        UnknownTopicOrPartition: the topic was deleted.
        UnknownTopicId: the topic was deleted and created again.
        KafkaError: another error of a broker.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        *,
        until: Mapping[TopicPartition, int] | None = None,
        epochs: Mapping[TopicPartition, int] | None = None,
        topic_ids: Mapping[str, UUID] | None = None,
        first_bytes: int | None = None,
    ) -> None:
        self._cluster = cluster
        self._limits = FetchLimits(cluster.settings, first_bytes)
        self._positions = Positions(cluster, positions, until, epochs, topic_ids)
        self._under_way: dict[int, tuple[RequestInFlight, dict[TopicPartition, int]]] = {}
        self._closed = False
        self.bytes_fetched = 0

    # What to read.

    @property
    def finished(self) -> bool:
        """Whether everything up to ``until`` was read; never true if a partition has no end."""
        return self._positions.finished

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset of each partition."""
        return {p.at: p.offset for p in self._positions}

    def epochs(self) -> dict[TopicPartition, int]:
        """Return the leader epoch of the last record of each partition; -1 if unknown."""
        return {p.at: p.epoch for p in self._positions}

    def failed(self) -> dict[TopicPartition, ClientError]:
        """Return the errors of paused partitions."""
        return {p.at: p.failed for p in self._positions if p.failed is not None}

    def seek(self, at: TopicPartition, offset: int, *, until: int | None = None) -> None:
        """Set the next offset of a partition, or add a partition.

        Args:
            until: the new end; None leaves the end unchanged.
        """
        self._positions.seek(at, offset, until)

    def remove(self, at: TopicPartition) -> None:
        """Stop reading a partition."""
        self._positions.by_partition.pop(at, None)

    def close(self) -> None:
        """Discard the requests in flight. The cluster's connections stay open."""
        self._closed = True
        self._under_way.clear()

    # Reading.

    def __iter__(self) -> Iterator[Fetched]:
        """Yield everything up to ``until``; partitions without an end are read forever.

        Raises:
            DeadlineError: all partitions have an end, and nothing has arrived for
                ``default.api.timeout.ms``.
        """
        limit = self._cluster.settings.default_api_timeout_ms
        while not self.finished:
            waiting = self._cluster.deadline(f"reading {self._positions}", limit)
            while not (results := self.poll(waiting.left_ms)) and not self.finished:
                if waiting.over and all(p.end is not None for p in self._positions):
                    raise waiting.error()
                if waiting.over:
                    break
            yield from results

    def records(self) -> Iterator[tuple[TopicPartition, Record]]:
        """Yield all records up to ``until``; see ``__iter__``."""
        for fetched in self:
            at = fetched.at
            for record in fetched:
                yield at, record

    def poll(self, timeout_ms: float) -> list[Fetched]:
        """Return what has arrived, as soon as there is something; nothing if the time is over or all was read.

        Connecting to a broker may take up to ``socket.connection.setup.timeout.ms`` longer.
        """
        if self._closed:
            raise StateError("the reader is closed")
        until = time.monotonic() + timeout_ms / 1000
        # Calls with a short timeout must make progress too.
        limit = max(timeout_ms, self._cluster.settings.socket_connection_setup_timeout_ms)
        while True:
            work = self._cluster.deadline(f"reading {self._positions}", limit)
            self._launch(work)
            results = self._collect()
            if results:
                self._launch(work)
                return results
            if self._positions.failures:
                raise self._positions.failures.popleft()
            left = until - time.monotonic()
            if left <= 0 or self.finished:
                return []
            # A partition that has failed is retried at its own time.
            retries = [p.retry_at - time.monotonic() for p in self._positions if p.retry_at]
            pause = max(0.0, min([left, *retries]))
            if self._under_way:
                self._cluster.wait(pause)
            elif all(p.retry_at for p in self._positions if p.wanted):
                time.sleep(pause)

    # Asking.

    def _launch(self, deadline: Deadline) -> None:
        """Send a request to each leader of partitions that are still to be read and not requested yet."""
        busy = {at for _, asked in self._under_way.values() for at in asked}
        for node_id, group in self._positions.by_node(busy, deadline).items():
            if node_id in self._under_way:
                continue  # its next request contains these partitions
            try:
                self._send(node_id, group, deadline)
            except ClientError as error:
                for p in group:
                    p.replica = -1
                    self._positions.fail(p, error)

    def _send(self, node_id: int, group: list[ReadPosition], deadline: Deadline) -> None:
        cluster, settings = self._cluster, self._cluster.settings
        topics = cluster.metadata.topics
        request = fetch_request(cluster, group, self._limits)
        named = any(topics[p.at.topic].topic_id == NO_ID for p in group)
        patience = settings.request_timeout_ms + settings.fetch_max_wait_ms
        pending = cluster.send(
            cluster.node(node_id, deadline),
            request,
            cluster.deadline("reading", patience),
            low=4 if settings.read_committed else 0,
            high=FETCH_BY_ID - 1 if named else 32767,
            extra_ms=settings.fetch_max_wait_ms,
        )
        self._under_way[node_id] = pending, {p.at: p.offset for p in group}
        self._limits.grow()

    # Taking answers in.

    def _collect(self) -> list[Fetched]:
        results: list[Fetched] = []
        for node_id, (pending, asked) in list(self._under_way.items()):
            if not pending.done:
                continue
            del self._under_way[node_id]
            current = {
                at: p
                for at, offset in asked.items()
                if (p := self._positions.by_partition.get(at)) is not None
                and p.offset == offset
                and p.wanted
            }
            try:
                response = pending.result()
                raise_code(response.error_code, f"{pending.connection}: Fetch")
            except ClientError as error:
                for p in current.values():
                    p.replica = -1
                    self._positions.fail(p, error)
                continue
            self._take(response, pending.version, next(iter(asked)), current, results)
        return results

    def _take(
        self,
        response: Any,
        version: int,
        first: TopicPartition,
        current: dict[TopicPartition, ReadPosition],
        results: list[Fetched],
    ) -> None:
        names = {topic.topic_id: topic.name for topic in self._cluster.metadata.topics.values()}
        for topic in response.responses:
            name = topic.topic if version < FETCH_BY_ID else names.get(topic.topic_id, "")
            for answer in topic.partitions:
                at = TopicPartition(name, answer.partition_index)
                p = current.pop(at, None)
                if p is None:
                    continue
                if answer.error_code:
                    self._refused(p, answer, response)
                    continue
                p.trouble = None
                p.retry_at = 0.0
                if answer.preferred_read_replica >= 0:
                    p.replica = answer.preferred_read_replica
                if answer.records:
                    fetched = self._read(p, answer)
                    self._positions.move_to_end(at)
                    if fetched is not None:
                        results.append(fetched)
                elif (
                    p.end is not None
                    and at == first
                    and answer.preferred_read_replica < 0  # which is asked next
                    and known_end(answer, self._cluster.settings) >= p.end
                    and is_local(self._cluster, p)
                ):
                    # Nothing is left up to the end, because of compaction: the first partition of a request
                    # always gets records if the broker has any on its disk.
                    p.offset = p.end
        if response.throttle_time_ms > 0 and not response.responses:
            return  # a client that exceeds its quota gets an empty answer (KIP-219)
        for p in current.values():  # missing in the response
            self._positions.fail(p, kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(p.at)))

    def _read(self, p: ReadPosition, answer: Any) -> Fetched | None:
        """Return the batches of a response, and advance the position; None if no batch is complete."""
        settings = self._cluster.settings
        self.bytes_fetched += len(answer.records)
        begin = p.offset
        found = read_answer(
            p.at,
            answer,
            begin,
            p.end,
            committed=settings.read_committed,
            check_crcs=settings.check_crcs,
        )
        if found.damage is not None:
            self._positions.give_up(p, found.damage)
        if found.epoch >= 0:
            p.epoch = found.epoch
        p.offset = found.following if p.end is None else min(found.following, p.end)
        if found.following == begin:
            return None
        return Fetched(
            p.at,
            begin,
            p.offset,
            answer.records,
            found.headers,
            len(answer.records),
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            settings.check_crcs,
        )

    # Trouble.

    def _refused(self, p: ReadPosition, answer: Any, response: Any) -> None:
        code = answer.error_code
        cluster = self._cluster
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if p.replica >= 0:  # the follower may lag
                p.replica = -1
                return
            self._positions.give_up(p, out_of_range(cluster, p))
            return
        p.replica = -1
        leader = answer.current_leader
        is_new = cluster.metadata.learn_leader(
            *p.at, leader.leader_id, leader.leader_epoch, response.node_endpoints
        )
        if is_new:
            p.retry_at = time.monotonic()  # ask the new leader at once
        else:
            self._positions.fail(p, kafka_error(code, str(p.at)))
