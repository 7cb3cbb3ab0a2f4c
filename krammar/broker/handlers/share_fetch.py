"""ShareFetch and ShareAcknowledge: members of share groups get records, and say what they did with them (KIP-932).

ShareFetch, v1 to v2, and ShareAcknowledge, v1 to v2:

- A ShareFetch can acknowledge, too. This comes first, so that it can get the records that it returns.
- v2 can limit the number of records strictly (KIP-1206), and extend locks (KIP-1222). A request that
  extends locks fetches nothing.

An acknowledgement is answered after it is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from kafka_wire import (
    AbortedTxn,
    ErrorCode,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeType,
    ShareAcquireMode,
    ShareFetchRequest,
    ShareFetchResponse,
)

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.connections import Connections
from krammar.broker.errors import ApiError, invalid_request
from krammar.broker.handlers.fetch import LARGE_READ, MAX_FETCH
from krammar.broker.handlers.offsets import partition_log
from krammar.broker.log.log import PartitionLog
from krammar.broker.metadata_image import Topic
from krammar.broker.metadata_records import SHARE_VERSION
from krammar.broker.nodes import Leaders, Logs, Nodes
from krammar.broker.session import Session
from krammar.broker.share.dead_letters import DeadLetters
from krammar.broker.share.partition import Acknowledgement, Acquired, FetchedBatch, Wish
from krammar.broker.share.partitions import LedPartition, SharePartitions
from krammar.broker.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    Place,
    ShareSession,
    ShareSessions,
)
from krammar.broker.share.settings import ShareSettings
from krammar.broker.share.state import ShareStates
from krammar.broker.timers import Timers
from krammar.logfiles.damage import DamageError
from krammar.logfiles.index import INT32_MAX
from krammar.util.turns import Steps
from krammar.wire.batches import BatchHeader, read_headers
from krammar.wire.errors import DecodeError

# The first version that can extend locks.
_RENEWS = 2
# The longest id of a member, in characters. Those of Kafka's clients have 22.
_LONGEST_MEMBER = 36


class WireAcknowledgement(Protocol):
    """A run of records in a request."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


Acknowledged = dict[Place, list[WireAcknowledgement]]


class _Source(NamedTuple):
    """A partition that a request reads."""

    place: Place
    led: LedPartition
    log: PartitionLog


@dataclass(eq=False)
class ShareFetchHandlers:
    """Answers ShareFetch and ShareAcknowledge."""

    config: BrokerConfig
    timers: Timers
    nodes: Nodes
    cluster: ClusterMetadata
    logs: Logs
    connections: Connections
    share_states: ShareStates
    dead_letters: DeadLetters

    def __post_init__(self) -> None:
        self._settings = ShareSettings(self.config, self.cluster, self.dead_letters)
        self.partitions = SharePartitions(
            self.timers,
            self._settings,
            self.share_states,
            self.dead_letters,
            self.connections.slices,
        )
        self.sessions = ShareSessions(self.config.group_share_max_share_sessions, self._ended)

    # -- requests

    async def share_fetch(
        self, session: Session, request: ShareFetchRequest, version: int
    ) -> ShareFetchResponse:
        """Acknowledge, then fetch. Waits while too little is available."""
        response = ShareFetchResponse()
        try:
            group, member = self._ids(request)
            if request.is_renew_ack:
                _check_fetches_nothing(request)
            asked = self.sessions.begin(session, request)
        except ApiError as error:
            error.put_into(response)
            if error.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
                # As in Kafka, so that the client does not ask again at once.
                await self._wait(session, request.max_wait_ms / 1000, ())
            return response
        response.acquisition_lock_timeout_ms = self._settings.limits(group).lock_ms
        answers: dict[Place, ShareFetchResponse.PartitionData] = {}
        acknowledged = _acknowledged(request.topics)
        renews = request.is_renew_ack if version >= _RENEWS else None
        for place, batches in acknowledged.items():
            answers[place] = answer = _answer(place)
            problem = await self._acknowledge(group, member, place, batches, renews)
            if problem is not None:
                answer.acknowledge_error_code = problem.code
                answer.acknowledge_error_message = problem.message
        if request.share_session_epoch == FINAL_EPOCH:
            self.sessions.end(asked)
        elif not request.is_renew_ack:
            await self._fetch(session, request, asked, answers)
            if request.share_session_epoch == INITIAL_EPOCH:
                await self._in_slices(_with_all(asked, answers))
        await self._fill(session, response, answers, ShareFetchResponse.ShareFetchableTopicResponse)
        return response

    async def share_acknowledge(
        self, session: Session, request: ShareAcknowledgeRequest, version: int
    ) -> ShareAcknowledgeResponse:
        response = ShareAcknowledgeResponse()
        try:
            group, member = self._ids(request)
            asked = self.sessions.acknowledging(request)
        except ApiError as error:
            error.put_into(response)
            return response
        response.acquisition_lock_timeout_ms = self._settings.limits(group).lock_ms
        answers: dict[Place, ShareAcknowledgeResponse.PartitionData] = {}
        acknowledged = _acknowledged(request.topics)
        renews = request.is_renew_ack if version >= _RENEWS else None
        for place, batches in acknowledged.items():
            answers[place] = answer = ShareAcknowledgeResponse.PartitionData(
                partition_index=place[1]
            )
            problem = await self._acknowledge(group, member, place, batches, renews)
            if problem is not None:
                problem.put_into(answer)
        if request.share_session_epoch == FINAL_EPOCH:
            self.sessions.end(asked)
        await self._fill(
            session, response, answers, ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
        )
        return response

    def _ids(self, request: ShareFetchRequest | ShareAcknowledgeRequest) -> tuple[str, str]:
        """Return group and member. Raises ApiError if one is missing, or if share groups are off."""
        if self.cluster.features.get(SHARE_VERSION) == 0:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if not request.group_id:
            raise invalid_request("Invalid group id in the request.")
        if not request.member_id or len(request.member_id) > _LONGEST_MEMBER:
            raise invalid_request("Invalid member id in the request.")
        return request.group_id, request.member_id

    async def _in_slices(self, steps: Steps[Any]) -> Any:
        return await self.connections.slices.run_from_start(steps)

    async def _fill(
        self, session: Session, response: Any, answers: dict[Place, Any], kind: type[Any]
    ) -> None:
        """Put the answers of partitions into a response, with the addresses of leaders that it names."""
        leaders = Leaders(self.nodes, self.config.node_id)
        response.responses = await self._in_slices(self._by_topic(leaders, answers, kind))
        response.node_endpoints = leaders.endpoints(session.listener, response.NodeEndpoint)

    def _by_topic(
        self, leaders: Leaders, answers: dict[Place, Any], kind: type[Any]
    ) -> Steps[list[Any]]:
        """Return the answers of partitions by topic, with the leaders of those that moved."""
        topics: dict[UUID, Any] = {}
        for (topic_id, index), answer in answers.items():
            yield None
            topic = self.cluster.topics_by_id.get(topic_id)
            if topic is not None and index in topic.partitions:
                code = answer.error_code
                if code not in Leaders.CODES and hasattr(answer, "acknowledge_error_code"):
                    code = answer.acknowledge_error_code
                if code in Leaders.CODES:
                    leaders.name_in(answer, topic, index)
            if topic_id not in topics:
                topics[topic_id] = kind(topic_id=topic_id, partitions=[])
            topics[topic_id].partitions.append(answer)
        return list(topics.values())

    # -- acknowledging

    async def _acknowledge(
        self,
        group: str,
        member: str,
        place: Place,
        batches: list[WireAcknowledgement],
        renews: bool | None,
    ) -> ApiError | None:
        """Acknowledge records of a partition. Returns the error, in which case nothing has changed.

        Args:
            renews: whether the request says that it extends locks; None if its version cannot
        """
        try:
            _check(batches, renews)
            topic, _ = self._led_log(place)
            key = (group, *place)
            was_loaded = key in self.partitions
            led = self.partitions.find(key, topic.partitions[place[1]].leader_epoch)
            if led is None:  # nobody has acquired anything from this leader, in this state
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER if was_loaded else code)
            led.states.limits = self._settings.limits(group)
            await led.acknowledge(member, [*map(_acknowledgement, batches)])
        except ApiError as error:
            return error
        return None

    def _led_log(self, place: Place) -> tuple[Topic, PartitionLog]:
        """Return a topic, and the log of a partition that this node leads. Raises ApiError."""
        topic = self.cluster.topics_by_id.get(place[0])
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic, partition_log(self.cluster, self.logs.get, topic.name, place[1], -1)

    def _ended(self, session: ShareSession) -> None:
        """Return the records of a session that has ended."""

        async def release() -> None:
            for led in list(session.led):
                with suppress(ApiError):  # then they are returned when their time is over
                    await led.release(session.member)
                self.partitions.leave(led, session)

        self.partitions.spawn(release())

    # -- fetching

    async def _fetch(
        self,
        session: Session,
        request: ShareFetchRequest,
        asked: ShareSession,
        answers: dict[Place, ShareFetchResponse.PartitionData],
    ) -> None:
        """Read and acquire records into ``answers``, as soon as there are enough, or when the time is over."""
        loop = self.timers.loop
        until = loop.time() + request.max_wait_ms / 1000
        committed = self._settings.reads_committed(asked.group)
        at_once = request.max_wait_ms <= 0
        while True:
            sources, failed = await self._sources(asked, answers)
            at_once = at_once or failed
            ready = partial(_are_ready, sources, committed, request.min_bytes)
            if at_once or ready():
                is_answered = await self._in_slices(
                    self._read(session, request, asked, sources, answers, committed)
                )
                if is_answered or at_once:
                    return
            # If it is ready nevertheless, the memory for responses is in use: any change may help.
            condition = None if ready() else ready
            at_once = await self._wait(session, until - loop.time(), sources, condition)
            if asked.ended:
                return

    async def _sources(
        self, asked: ShareSession, answers: dict[Place, ShareFetchResponse.PartitionData]
    ) -> tuple[list[_Source], bool]:
        """Return what a session reads, and whether it cannot read a partition, which ``answers`` explains."""
        sources, unknown, failed = await self._in_slices(self._loaded(asked, answers))
        for place, leader_epoch, log in unknown:
            await asyncio.sleep(0)
            try:
                led = self.partitions.get((asked.group, *place), leader_epoch, log)
            except ApiError as error:
                error.put_into(answers.setdefault(place, _answer(place)))
                failed = True
            else:
                sources.append(_Source(place, led, log))
        if not asked.ended:
            limits = self._settings.limits(asked.group)
            for source in sources:
                source.led.use(asked, limits, source.log.log_start_offset)
            asked.led.update(source.led for source in sources)
        return sources, failed

    def _loaded(
        self, asked: ShareSession, answers: dict[Place, ShareFetchResponse.PartitionData]
    ) -> Steps[tuple[list[_Source], list[tuple[Place, int, PartitionLog]], bool]]:
        """Return the share partitions that are loaded, the others, and whether there were errors, in steps."""
        sources: list[_Source] = []
        unknown = []
        failed = False
        for place in asked.in_turn():
            yield None
            try:
                topic, log = self._led_log(place)
            except ApiError as error:
                error.put_into(answers.setdefault(place, _answer(place)))
                failed = True
                continue
            leader_epoch = topic.partitions[place[1]].leader_epoch
            led = self.partitions.find((asked.group, *place), leader_epoch)
            if led is None:
                unknown.append((place, leader_epoch, log))
            else:
                sources.append(_Source(place, led, log))
        return sources, unknown, failed

    async def _wait(
        self,
        session: Session,
        seconds: float,
        sources: Sequence[_Source],
        ready: Callable[[], bool] | None = None,
    ) -> bool:
        """Wait until the sources are ``ready``, or for any change of them. Returns whether the time is over."""
        done = asyncio.Event()
        is_over = False

        def changed() -> None:
            if not done.is_set() and (ready is None or ready()):
                done.set()

        def end() -> None:
            nonlocal is_over
            is_over = True
            done.set()

        for source in sources:
            source.log.watchers.add(changed)
            source.led.watchers.add(changed)
        session.hurry = end
        timer = self.timers.call_later(max(0, seconds), end)
        try:
            await done.wait()
        finally:
            timer.cancel()
            session.hurry = None
            for source in sources:
                source.log.watchers.discard(changed)
                source.led.watchers.discard(changed)
        return is_over

    def _read(
        self,
        session: Session,
        request: ShareFetchRequest,
        asked: ShareSession,
        sources: Iterable[_Source],
        answers: dict[Place, ShareFetchResponse.PartitionData],
        committed: bool,
    ) -> Steps[bool]:
        """Acquire records of the partitions, and read them, in steps. Returns whether there is something to answer."""
        strict = request.share_acquire_mode == ShareAcquireMode.RECORD_LIMIT
        most, count, size = request.max_records, 0, 0
        failed = False
        for source in sources if request.max_bytes > 0 else ():
            while count < most:
                # As in Fetch: if many clients do not read their responses, others get only one
                # batch, and wait for a large one.
                room = self.connections.room()
                left = min(request.max_bytes, self.config.fetch_max_bytes, MAX_FETCH, room) - size
                yield left >= LARGE_READ
                if asked.ended or (size and left <= 0):
                    return bool(count or failed)
                offset = source.led.states.next_available()
                if offset is None:
                    break
                wish = Wish(asked.member, most - count, request.batch_size, strict)
                first = 0 if size else (INT32_MAX if room else MAX_FETCH)
                try:
                    acquired, records = _take(source, wish, offset, max(0, left), first, committed)
                except ApiError as error:
                    error.put_into(answers.setdefault(source.place, _answer(source.place)))
                    failed = True
                    break
                if acquired:
                    answer = answers.setdefault(source.place, _answer(source.place))
                    answer.records = records
                    answer.acquired_records = [
                        ShareFetchResponse.AcquiredRecords(
                            first_offset=each.first,
                            last_offset=each.last,
                            delivery_count=each.deliveries,
                        )
                        for each in acquired
                    ]
                    count += sum(each.last - each.first + 1 for each in acquired)
                    size += len(records)
                    self.connections.hold(session, len(records))
                    break
                if source.led.states.next_available() == offset:
                    break
                # What was there is nothing for applications, such as control records.
        return bool(count or failed)


def _take(
    source: _Source, wish: Wish, offset: int, most: int, first: int, committed: bool
) -> tuple[list[Acquired], bytes]:
    """Acquire records from an offset on. Returns them, and the batches that contain them.

    Args:
        most: bytes to read
        first: as for ``PartitionReader.read``

    Raises ApiError.
    """
    log = source.log
    end = log.last_stable_offset if committed else log.end_offset
    if offset >= end:
        return [], b""
    data = log.reader.read(offset, most, end, first=first)
    try:
        headers = [header for header in read_headers(data) if header.last_offset >= offset]
        if not headers:
            return [], b""
        aborted = []
        if committed:
            aborted = log.reader.aborted_entries(offset, headers[-1].next_offset)
    except (DecodeError, DamageError, OSError) as error:
        raise log.state.failure(str(error)) from None
    acquired = source.led.acquire(wish, _fetched(headers, offset, aborted), offset)
    if not acquired:
        return [], b""
    inside = [
        header
        for header in headers
        if header.last_offset >= acquired[0].first and header.base_offset <= acquired[-1].last
    ]
    last = inside[-1]
    return acquired, data[inside[0].position : last.position + last.size_in_bytes]


def _fetched(
    headers: Iterable[BatchHeader], offset: int, aborted: Sequence[AbortedTxn]
) -> Iterator[FetchedBatch]:
    for header in headers:
        # The offset of a compressed message set v0 or v1 is that of its last record.
        first = header.base_offset if header.magic > 1 else min(offset, header.base_offset)
        was_aborted = header.is_transactional and any(
            each.producer_id == header.producer_id
            and each.first_offset <= header.base_offset <= each.last_offset
            for each in aborted
        )
        yield FetchedBatch(first, header.last_offset, not (header.is_control or was_aborted))
        offset = header.next_offset


def _are_ready(sources: Iterable[_Source], committed: bool, min_bytes: int) -> bool:
    """Return whether enough bytes are available, or a partition cannot be read as before."""
    size = 0
    for source in sources:
        state = source.log.state
        if state.deleted or state.offline or not source.led.is_current:
            return True
        offset = source.led.states.next_available()
        end = state.last_stable_offset if committed else state.end_offset
        if offset is None or offset >= end:
            continue
        if offset < state.log_start_offset:
            return True
        try:
            size += source.log.reader.bytes_from(offset, end, max(1, min_bytes))
        except ApiError:
            return True
        if size >= min_bytes:
            return True
    return False


def _check_fetches_nothing(request: ShareFetchRequest) -> None:
    """Raise ApiError if a request that extends locks asks for records."""
    names = ("max_bytes", "min_bytes", "max_records", "max_wait_ms")
    wrong = [name for name in names if getattr(request, name) != 0]
    if wrong:
        raise invalid_request(f"{', '.join(wrong)} must be 0 if is_renew_ack is true")


def _with_all(
    asked: ShareSession, answers: dict[Place, ShareFetchResponse.PartitionData]
) -> Steps[None]:
    """Add empty answers for partitions without new records: as in Kafka, a session's first response has them."""
    for led in list(asked.led):
        yield None
        place = led.key[1:]
        if place in asked.partitions and led.states.next_available() is not None:
            answers.setdefault(place, _answer(place))


def _answer(place: Place) -> ShareFetchResponse.PartitionData:
    return ShareFetchResponse.PartitionData(partition_index=place[1], records=b"")


def _acknowledged(
    topics: Iterable[ShareFetchRequest.FetchTopic | ShareAcknowledgeRequest.AcknowledgeTopic],
) -> Acknowledged:
    """Return the acknowledgements of a request by partition."""
    found: Acknowledged = {}
    for topic in topics:
        for part in topic.partitions:
            if part.acknowledgement_batches:
                place = (topic.topic_id, part.partition_index)
                found.setdefault(place, []).extend(part.acknowledgement_batches)
    return found


def _check(batches: Iterable[WireAcknowledgement], renews: bool | None) -> None:
    """Check acknowledgements as Kafka does. Raises ApiError."""
    most = ShareAcknowledgeType.REJECT if renews is None else ShareAcknowledgeType.RENEW
    end = -1
    for each in batches:
        types = each.acknowledge_types
        if each.first_offset > each.last_offset or each.first_offset < end:
            raise invalid_request("the acknowledged offsets are not in order")
        if len(types) != 1 and len(types) != each.last_offset - each.first_offset + 1:
            raise invalid_request("there is not one type for all records, or one for each")
        if min(types) < 0 or max(types) > most:
            raise invalid_request("a type of acknowledgement is unknown")
        if not renews and ShareAcknowledgeType.RENEW in types:
            raise invalid_request("is_renew_ack must be true, to extend a lock")
        end = each.last_offset


def _acknowledgement(each: WireAcknowledgement) -> Acknowledgement:
    return Acknowledgement(each.first_offset, each.last_offset, each.acknowledge_types)
