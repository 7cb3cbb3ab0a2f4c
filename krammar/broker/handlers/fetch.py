"""Fetch: returns slices of the logs as they are on the disk, or waits for data (long polling).

Fetch, v4 to v18:

- v7 has sessions, whose requests and responses only list changes (KIP-227).
- v9 sends the leader epoch that the client knows, and is refused if it is not current (KIP-320).
- v11 names the client's rack. Such clients read from followers, too, and learn of a nearer replica
  (KIP-392).
- v12 sends the epoch of the last record that the client has, and learns where its log diverges
  (KIP-595).
- v13 identifies topics by id (KIP-516).
- v16 names the new leader of a partition that moved, and its address (KIP-951).
- What v14, v15, v17 and v18 add concerns tiered storage and replicas, which this broker does not
  have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafka_wire import ErrorCode, FetchRequest, FetchResponse, IsolationLevel

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.connections import Connections
from krammar.broker.errors import ApiError
from krammar.broker.fetch_sessions import NO_SESSION, Answers, FetchSession, FetchSessions, Key
from krammar.broker.handlers.offsets import partition_log
from krammar.broker.log.log import PartitionLog
from krammar.broker.nodes import Leaders, Logs, Nodes
from krammar.broker.session import Session
from krammar.broker.timers import Timers
from krammar.logfiles.index import INT32_MAX
from krammar.util.turns import Steps
from krammar.wire.batches import read_headers

Waiting = list[tuple[PartitionLog, int]]  # the logs and offsets that a request waits for

# The first versions with topic ids (KIP-516), with the client's rack (KIP-392), and with the
# leaders' addresses (KIP-951).
_TOPIC_IDS = 13
_RACKS = 11
_LEADERS = 16
_RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
# The maximum size of the records in a response, regardless of fetch.max.bytes: the event loop
# copies them twice.
MAX_FETCH = 8 << 20
# A read of this size gets a slice of its own.
LARGE_READ = 2 << 20


@dataclass(eq=False)
class FetchHandlers:
    """Answers Fetch.

    Attributes:
        fetched: functions that are called with the client id and the partitions of each request,
            those of its session included
        throttle: gets the bytes of the records of a response, and returns for how many milliseconds
            the client gets none instead (KIP-219)
    """

    config: BrokerConfig
    timers: Timers
    nodes: Nodes
    cluster: ClusterMetadata
    logs: Logs
    connections: Connections
    fetched: list[Callable[[str | None, Iterable[Key]], None]] = field(
        init=False, default_factory=list
    )
    throttle: Callable[[Session, int], int] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._sessions = FetchSessions(self.config.max_incremental_fetch_session_cache_slots)

    def fetch(
        self, session: Session, request: FetchRequest, version: int
    ) -> Steps[FetchResponse | Awaitable[FetchResponse]]:
        """Fetch in a session or without one (KIP-227). Too little data makes the request wait."""
        try:
            asked = self._sessions.begin(request, by_id=version >= _TOPIC_IDS)
        except ApiError as error:
            return FetchResponse(error_code=error.code)
        for notify in self.fetched:
            notify(session.client_id, asked.partitions)
        answers, size, waiting = yield from self._read(session, request, asked, version)
        if waiting is None or size >= request.min_bytes or request.max_wait_ms <= 0:
            return (yield from self._response(session, asked, answers, size, version))
        self.connections.release(session)  # the records are read again later
        return self._wait(session, request, asked, waiting, version)

    async def _wait(
        self,
        session: Session,
        request: FetchRequest,
        asked: FetchSession,
        waiting: Waiting,
        version: int,
    ) -> FetchResponse:
        """Wait for ``min_bytes``, for a deletion in one of the logs, or for ``max_wait_ms``; then read again."""
        committed = request.isolation_level == IsolationLevel.READ_COMMITTED
        done = asyncio.Event()

        def changed() -> None:
            if done.is_set():
                return
            size = 0
            for log, offset in waiting:
                state = log.state
                if state.deleted or state.offline:
                    break
                if not state.log_start_offset <= offset <= state.end_offset:
                    break
                end = state.last_stable_offset if committed else state.end_offset
                if offset < end:
                    size += log.reader.bytes_from(offset, end, request.min_bytes)
                    if size >= request.min_bytes:
                        break
            else:
                return
            done.set()

        for log, _ in waiting:
            log.watchers.add(changed)
        changed()  # the logs may have changed since they were read
        session.hurry = done.set
        timer = self.timers.call_later(request.max_wait_ms / 1000, done.set)
        try:
            await done.wait()
        finally:
            timer.cancel()
            session.hurry = None
            for log, _ in waiting:
                log.watchers.discard(changed)
        steps = self._read_again(session, request, asked, version)
        return await self.connections.slices.run_from_start(steps)

    def _read_again(
        self, session: Session, request: FetchRequest, asked: FetchSession, version: int
    ) -> Steps[FetchResponse]:
        answers, size, _ = yield from self._read(session, request, asked, version)
        return (yield from self._response(session, asked, answers, size, version))

    def _response(
        self, session: Session, asked: FetchSession, answers: Answers, size: int, version: int
    ) -> Steps[FetchResponse]:
        """Build the response, with the leaders of partitions that this node does not lead (KIP-951).

        A throttled client gets no partitions, and its session has no news for it. It does not learn
        of a new session.
        """
        if self.throttle is not None and (wait := self.throttle(session, size)):
            if asked.full:
                self._sessions.drop(asked.session_id)
                asked.session_id = NO_SESSION
            return FetchResponse(throttle_time_ms=wait, session_id=asked.session_id)
        leaders = Leaders(self.nodes, self.config.node_id)
        responses: list[FetchResponse.FetchableTopicResponse] = []
        last: str | UUID | None = None
        for key, answer in answers:
            yield None
            if version >= _LEADERS and answer.error_code in Leaders.CODES:
                with suppress(ApiError):  # its topic was deleted since it was read
                    topic = self.cluster.topics.get(self._topic_name(key))
                    if topic is not None:
                        leaders.name_in(answer, topic, key[1])
            if not asked.lists(key, answer):
                continue
            if key[0] != last:
                last = key[0]
                named: dict[str, Any] = {"topic_id" if asked.by_id else "topic": last}
                responses.append(FetchResponse.FetchableTopicResponse(partitions=[], **named))
            responses[-1].partitions.append(answer)
        return FetchResponse(
            session_id=asked.session_id,
            responses=responses,
            node_endpoints=leaders.endpoints(session.listener, FetchResponse.NodeEndpoint),
        )

    def _read(
        self, session: Session, request: FetchRequest, asked: FetchSession, version: int
    ) -> Steps[tuple[Answers, int, Waiting | None]]:
        """Read all partitions once, in steps.

        Returns:
            The answer for each partition, the total size of the records, and the logs and offsets
            to wait for; None instead of these if the response has an error and must not wait.
        """
        answers: Answers = []
        waiting: Waiting | None = []
        size = 0
        held_back = False
        committed = request.isolation_level == IsolationLevel.READ_COMMITTED
        # If many clients do not read their responses, others get only one batch, and wait for a
        # large one.
        holds = self.connections.holds
        room = self.connections.room()
        first = INT32_MAX if room else MAX_FETCH
        left = min(request.max_bytes, self.config.fetch_max_bytes, MAX_FETCH, room)
        # Since consumers can name their rack, they may read from replicas (KIP-392).
        get = self.logs.get if version < _RACKS else self.logs.follow
        rack = request.rack_id if self.config.replica_selector_class == _RACK_AWARE else ""
        for key, (leader_epoch, offset, last_epoch, most) in list(asked.partitions.items()):
            yield self._is_large(key, offset, min(most, left))
            if holds != self.connections.holds:  # others have read records meanwhile
                holds = self.connections.holds
                room = self.connections.room()
                first = INT32_MAX if room else MAX_FETCH
                left = min(left, room)
            answer = FetchResponse.PartitionData(
                partition_index=key[1],
                high_watermark=-1,
                aborted_transactions=None,
                records=b"",
            )
            answers.append((key, answer))
            try:
                log = partition_log(
                    self.cluster,
                    get,
                    self._topic_name(key),
                    key[1],
                    leader_epoch,
                )
                state = log.state
                answer.high_watermark = end = state.end_offset
                answer.last_stable_offset = stable = state.last_stable_offset
                answer.log_start_offset = state.log_start_offset
                if rack and self._is_nearer(answer, self._topic_name(key), rack):
                    waiting = None
                    continue
                if last_epoch >= 0 and _diverges(log, offset, last_epoch, answer):
                    waiting = None
                    continue
                if committed:
                    end = stable
                if offset < end or offset > state.end_offset or offset < state.log_start_offset:
                    # The response has at least one batch, whatever its size, so that clients make
                    # progress (KIP-74).
                    records = log.reader.read(
                        offset, min(most, left), end, first=0 if size else first
                    )
                    if not records and not size and offset < end:
                        held_back = True  # until others have read their responses, or max_wait_ms
                        continue
                    if records:
                        answer.records = records
                        size += len(records)
                        self.connections.hold(session, len(records))
                        holds += 1
                        left = max(0, left - len(records))
            except ApiError as error:
                answer.error_code = error.code
                waiting = None
                continue
            if committed:
                answer.aborted_transactions = _aborted(log, offset, end, answer.records or b"")
            if waiting is not None:
                waiting.append((log, offset))
        return answers, size, waiting if waiting or held_back else None

    def _is_nearer(self, answer: FetchResponse.PartitionData, topic: str, rack: str) -> bool:
        """Name the replica that the client reads from, if this node is the leader, and another one is nearer."""
        partition = self.cluster.topics[topic].partitions[answer.partition_index]
        if partition.leader == self.config.node_id:
            nearest = self.nodes.nearest(partition, rack)
            if nearest != partition.leader:
                answer.preferred_read_replica = nearest
                return True
        return False

    def _is_large(self, key: Key, offset: int, most: int) -> bool:
        """Return whether reading at most so many bytes of a partition deserves a slice of its own."""
        if most < LARGE_READ:
            return False
        with suppress(ApiError):
            log = self.logs.get(self._topic_name(key), key[1])
            if log is not None:
                size = log.reader.bytes_from(offset, log.end_offset, LARGE_READ)
                return size >= LARGE_READ
        return False

    def _topic_name(self, key: Key) -> str:
        name = key[0]
        if isinstance(name, str):
            return name
        topic = self.cluster.topics_by_id.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic.name


def _aborted(
    log: PartitionLog, begin: int, end: int, records: bytes
) -> list[FetchResponse.AbortedTransaction]:
    """Return the aborted transactions that overlap the records."""
    aborted = log.reader.aborted_transactions(begin, end) if records else None
    if not aborted:
        return []
    last = begin
    for header in read_headers(records):
        last = header.last_offset
    return [
        FetchResponse.AbortedTransaction(producer_id=producer, first_offset=first)
        for producer, first in aborted
        if first <= last
    ]


def _diverges(
    log: PartitionLog, offset: int, last_epoch: int, answer: FetchResponse.PartitionData
) -> bool:
    """Return whether the client's log has records that this log does not have (KIP-595)."""
    epoch, end = log.epoch_end_offset(last_epoch)
    if epoch < 0 or end < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch == last_epoch and end >= offset:
        return False
    answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset = epoch, end
    return True
