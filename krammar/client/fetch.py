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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any
from uuid import UUID

from kafka_wire import ErrorCode, FetchRequest, IsolationLevel

from krammar.client.cluster import Cluster
from krammar.client.connection import RequestInFlight
from krammar.client.deadline import Backoff, Deadline
from krammar.client.errors import (
    ClientError,
    CorruptBatchError,
    OffsetOutOfRange,
    StateError,
    TruncatedError,
    UnsupportedError,
    kafka_error,
)
from krammar.client.metadata import NO_ID, TopicPartition
from krammar.client.offsets import At, epoch_ends, group_topics, list_offsets
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

# The version from which on Fetch names topics by their ids (KIP-516).
FETCH_BY_ID = 13
_FIRST_OFFSET = attrgetter("first_offset")


@dataclass(slots=True)
class Fetched:
    """The records of a partition in one response. Iterating yields the records.

    ``begin``, ``end``  the offsets that it covers: ``begin``, up to but not including ``end``
    ``data``            all batches of the response
    ``headers``         the headers of the visible batches, in order: without control batches, and with
                        ``read_committed`` without aborted ones. The first batch may have records before
                        ``begin``, the last one after ``end``; iterating skips them.
    ``size``            bytes of all batches in the response, including those that are not visible
    ``high_watermark``, ``last_stable_offset``, ``log_start_offset``  the log's; -1 if unknown
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


@dataclass(slots=True, eq=False)
class _Position:
    """The position of a partition: the next offset to read."""

    at: TopicPartition
    offset: int
    end: int | None
    # The leader epoch of the last record, and the one against which it was checked.
    epoch: int = -1
    checked: int = -1
    replica: int = -1  # preferred to the leader (KIP-392)
    topic_id: UUID = NO_ID
    failed: ClientError | None = None
    retry_at: float = 0.0
    trouble: tuple[Backoff, Deadline] | None = field(default=None)

    @property
    def wanted(self) -> bool:
        """Whether the partition is still to be read."""
        return self.failed is None and (self.end is None or self.offset < self.end)


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
        until, epochs, topic_ids = until or {}, epochs or {}, topic_ids or {}
        settings = cluster.settings
        self._partition_bytes = settings.max_partition_fetch_bytes
        self._response_bytes = settings.fetch_max_bytes
        if first_bytes is not None:
            self._partition_bytes = min(self._partition_bytes, first_bytes)
            self._response_bytes = min(self._response_bytes, self._partition_bytes)
        self._grows = first_bytes is not None
        for at, offset in positions.items():
            if offset < 0:
                raise ValueError(f"{at}: offset {offset} is negative")
        # In the order in which they are requested: partitions move to the end when they return records.
        self._positions = {
            at: _Position(
                at,
                offset,
                until.get(at),
                epochs.get(at, -1),
                topic_id=topic_ids.get(at.topic, NO_ID),
            )
            for at, offset in positions.items()
        }
        self._under_way: dict[int, tuple[RequestInFlight, dict[TopicPartition, int]]] = {}
        self._failures: deque[ClientError] = deque()
        self._closed = False
        self.bytes_fetched = 0

    # What to read.

    @property
    def finished(self) -> bool:
        """Whether everything up to ``until`` was read; never true if a partition has no end."""
        return not self._failures and not any(p.wanted for p in self._positions.values())

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset of each partition."""
        return {at: position.offset for at, position in self._positions.items()}

    def epochs(self) -> dict[TopicPartition, int]:
        """Return the leader epoch of the last record of each partition; -1 if unknown."""
        return {at: position.epoch for at, position in self._positions.items()}

    def failed(self) -> dict[TopicPartition, ClientError]:
        """Return the errors of paused partitions."""
        return {at: p.failed for at, p in self._positions.items() if p.failed is not None}

    def seek(self, at: TopicPartition, offset: int, *, until: int | None = None) -> None:
        """Set the next offset of a partition, or add a partition.

        Args:
            until: the new end; None leaves the end unchanged.
        """
        position = self._positions.pop(at, None)
        end = position.end if position is not None and until is None else until
        self._positions[at] = _Position(at, offset, end)

    def remove(self, at: TopicPartition) -> None:
        """Stop reading a partition."""
        self._positions.pop(at, None)

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
            waiting = self._cluster.deadline(f"reading {self._names()}", limit)
            while not (results := self.poll(waiting.left_ms)) and not self.finished:
                if waiting.over and all(p.end is not None for p in self._positions.values()):
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
            work = self._cluster.deadline(f"reading {self._names()}", limit)
            self._launch(work)
            results = self._collect()
            if results:
                self._launch(work)
                return results
            if self._failures:
                raise self._failures.popleft()
            left = until - time.monotonic()
            if left <= 0 or self.finished:
                return []
            # A partition that has failed is retried at its own time.
            retries = [
                p.retry_at - time.monotonic() for p in self._positions.values() if p.retry_at
            ]
            pause = max(0.0, min([left, *retries]))
            if self._under_way:
                self._cluster.wait(pause)
            elif all(p.retry_at for p in self._positions.values() if p.wanted):
                time.sleep(pause)

    def _names(self) -> str:
        return ", ".join(map(str, self._positions))

    # Asking.

    def _launch(self, deadline: Deadline) -> None:
        """Send a request to each leader of partitions that are still to be read and not requested yet."""
        now = time.monotonic()
        busy = {at for _, asked in self._under_way.values() for at in asked}
        idle = [
            p
            for at, p in self._positions.items()
            if p.wanted and p.retry_at <= now and at not in busy
        ]
        if not idle:
            return
        try:
            self._cluster.update_topics({p.at.topic for p in idle}, deadline)
        except ClientError as error:
            for p in idle:
                self._fail(p, error)
            return
        self._check_topics(idle)
        self._check_epochs(idle, deadline)
        groups: dict[int, list[_Position]] = {}
        for p in idle:
            if not p.wanted or p.retry_at > now:
                continue
            try:
                leader = self._cluster.partition(p.at).leader
            except ClientError as error:
                self._fail(p, error)
                continue
            groups.setdefault(p.replica if p.replica >= 0 else leader, []).append(p)
        for node_id, group in groups.items():
            if node_id in self._under_way:
                continue  # its next request contains these partitions
            try:
                self._send(node_id, group, deadline)
            except ClientError as error:
                for p in group:
                    p.replica = -1
                    self._fail(p, error)

    def _send(self, node_id: int, group: list[_Position], deadline: Deadline) -> None:
        cluster, settings = self._cluster, self._cluster.settings
        topics = cluster.metadata.topics
        by_name = {p.at: p for p in group}
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=self._response_bytes,
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
                            partition_max_bytes=self._partition_bytes,
                        )
                        for at in partitions
                    ],
                )
                for name, partitions in group_topics(by_name).items()
            ],
            rack_id=settings.client_rack,
        )
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
        if self._grows:
            limit = min(settings.max_partition_fetch_bytes, 4 * self._partition_bytes)
            self._partition_bytes = limit
            self._response_bytes = min(settings.fetch_max_bytes, limit)

    def _check_topics(self, idle: list[_Position]) -> None:
        """Fail partitions of topics that were deleted and created again: they have other records."""
        for p in idle:
            topic = self._cluster.metadata.topics.get(p.at.topic)
            if topic is None or topic.topic_id == p.topic_id:
                continue
            if p.topic_id != NO_ID:
                detail = f"{p.at} (the topic was deleted and created again)"
                self._give_up(p, kafka_error(ErrorCode.UNKNOWN_TOPIC_ID, detail))
            p.topic_id = topic.topic_id

    def _check_epochs(self, idle: list[_Position], deadline: Deadline) -> None:
        """Ask each new leader whether its log has the records that were read from the old one."""
        wanted = {}
        for p in idle:
            topic = self._cluster.metadata.topics.get(p.at.topic)
            known = None if topic is None else topic.partitions.get(p.at.partition)
            if not p.wanted or known is None or known.leader < 0:
                continue
            if known.leader_epoch <= p.checked:
                continue
            if p.checked < 0 and p.epoch == known.leader_epoch:
                p.checked = known.leader_epoch
            elif p.epoch < 0 or known.leader_epoch < 0:
                p.checked = max(p.checked, known.leader_epoch)
            else:
                wanted[p.at] = p.epoch
        if not wanted:
            return
        try:
            ends = epoch_ends(self._cluster, wanted, deadline)
        except UnsupportedError:
            ends = {}
        except ClientError as error:
            for at in wanted:
                self._fail(self._positions[at], error)
            return
        for at in wanted:
            p = self._positions[at]
            p.checked = self._cluster.partition(at).leader_epoch
            end = ends.get(at)
            # -1: the log begins in a later epoch, so there is nothing left to compare.
            if end is not None and 0 <= end.end_offset < p.offset and end.leader_epoch >= 0:
                self._give_up(p, TruncatedError(at.topic, at.partition, p.offset, end.end_offset))

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
                if (p := self._positions.get(at)) is not None and p.offset == offset and p.wanted
            }
            try:
                response = pending.result()
                if response.error_code:
                    raise kafka_error(response.error_code, f"{pending.connection}: Fetch")
            except ClientError as error:
                for p in current.values():
                    p.replica = -1
                    self._fail(p, error)
                continue
            self._take(response, pending.version, next(iter(asked)), current, results)
        return results

    def _take(
        self,
        response: Any,
        version: int,
        first: TopicPartition,
        current: dict[TopicPartition, _Position],
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
                    self._positions[at] = self._positions.pop(at)  # move to the end
                    if fetched is not None:
                        results.append(fetched)
                elif (
                    p.end is not None
                    and at == first
                    and answer.preferred_read_replica < 0  # which is asked next
                    and self._known_end(answer) >= p.end
                    and self._is_local(p)
                ):
                    # Nothing is left up to the end, because of compaction: the first partition of a request
                    # always gets records if the broker has any on its disk.
                    p.offset = p.end
        if response.throttle_time_ms > 0 and not response.responses:
            return  # a client that exceeds its quota gets an empty answer (KIP-219)
        for p in current.values():  # missing in the response
            self._fail(p, kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(p.at)))

    def _is_local(self, p: _Position) -> bool:
        """Return whether the broker has the offset on its disk.

        Reads from tiered storage (KIP-405) can time out, and are answered without records then.
        """
        deadline = self._cluster.deadline(f"finding the local log of {p.at}")
        try:
            found = list_offsets(self._cluster, {p.at: At.EARLIEST_LOCAL}, deadline)
        except UnsupportedError:  # before tiered storage
            return True
        except ClientError:
            return False
        return found[p.at].offset <= p.offset

    def _known_end(self, answer: Any) -> int:
        if self._cluster.settings.read_committed and answer.last_stable_offset >= 0:
            return int(answer.last_stable_offset)
        return int(answer.high_watermark)

    def _read(self, p: _Position, answer: Any) -> Fetched | None:
        """Return the batches of a response, and advance the position; None if no batch is complete."""
        data = answer.records
        self.bytes_fetched += len(data)
        committed = self._cluster.settings.read_committed
        aborted = deque(sorted(answer.aborted_transactions or (), key=_FIRST_OFFSET))
        open_aborted: set[int] = set()
        begin = following = p.offset
        shown: list[BatchHeader] = []
        view = memoryview(data)
        number = 0
        try:
            for batch in read_headers(data):
                if self._cluster.settings.check_crcs:
                    check_crc(view, batch)
                number += 1
                last = batch.last_offset
                if last < begin and batch.magic > 1:
                    continue
                following = max(following, last + 1)
                if batch.partition_leader_epoch >= 0:
                    p.epoch = batch.partition_leader_epoch
                if committed:
                    while aborted and aborted[0].first_offset <= last:
                        open_aborted.add(aborted.popleft().producer_id)
                if batch.is_control:
                    if committed and _is_abort(view, batch):
                        open_aborted.discard(batch.producer_id)
                    continue
                if batch.is_transactional and batch.producer_id in open_aborted:
                    continue
                if p.end is None or batch.base_offset < p.end:
                    shown.append(batch)
        except DecodeError as error:
            self._give_up(p, _damage(p, data, number, following, str(error)))
        p.offset = following
        if p.end is not None:
            p.offset = min(following, p.end)
        if following == begin:
            return None
        return Fetched(
            p.at,
            begin,
            p.offset,
            data,
            shown,
            len(data),
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            self._cluster.settings.check_crcs,
        )

    # Trouble.

    def _refused(self, p: _Position, answer: Any, response: Any) -> None:
        code = answer.error_code
        cluster = self._cluster
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if p.replica >= 0:  # the follower may lag
                p.replica = -1
                return
            self._give_up(p, self._out_of_range(p))
            return
        p.replica = -1
        leader = answer.current_leader
        is_new = cluster.metadata.learn_leader(
            *p.at, leader.leader_id, leader.leader_epoch, response.node_endpoints
        )
        if is_new:
            p.retry_at = time.monotonic()  # ask the new leader at once
        else:
            self._fail(p, kafka_error(code, str(p.at)))

    def _out_of_range(self, p: _Position) -> ClientError:
        cluster = self._cluster
        try:
            deadline = cluster.deadline(f"finding the ends of {p.at}")
            low = list_offsets(cluster, {p.at: At.EARLIEST}, deadline)[p.at].offset
            high = list_offsets(cluster, {p.at: At.LATEST}, deadline)[p.at].offset
        except ClientError:
            low = high = -1
        return OffsetOutOfRange(
            topic=p.at.topic,
            partition=p.at.partition,
            offset=p.offset,
            log_start_offset=low,
            end_offset=high,
        )

    def _fail(self, p: _Position, error: ClientError) -> None:
        """Retry a partition later, or pause it with the error."""
        self._cluster.metadata.outdate([p.at.topic])
        if p.trouble is None:
            p.trouble = self._cluster.backoff(), self._cluster.deadline(f"reading {p.at}")
        backoff, deadline = p.trouble
        try:
            p.retry_at = time.monotonic() + backoff.delay(deadline, error)
        except ClientError as final:
            self._give_up(p, final)

    def _give_up(self, p: _Position, error: ClientError) -> None:
        p.failed = error
        p.trouble = None
        p.retry_at = 0.0
        self._failures.append(error)


def _is_abort(data: memoryview, header: BatchHeader) -> bool:
    end = header.position + header.size_in_bytes
    (batch,) = read_batches(data[header.position : end], validate_crc=False)
    control = batch.control_records()
    return bool(control) and control[0].type == ControlRecordType.ABORT


def _damage(p: _Position, data: bytes, number: int, following: int, why: str) -> CorruptBatchError:
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
    return CorruptBatchError(p.at.topic, p.at.partition, offset, next_offset, why)
