"""Incremental fetch sessions (KIP-227): what a client fetches is remembered, so that neither requests nor
responses name the partitions in which nothing has changed."""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafka_wire import ErrorCode, FetchRequest

from krammar.broker.errors import ApiError

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
_LARGEST = 2**31 - 1
# A session that was used within this time is not put out for another: Kafka's default, in seconds.
_MIN_EVICTION = 120.0

# By name, or by id from v13 on; and the partition's index.
Key = tuple[str | UUID, int]


@dataclass(slots=True)
class FetchPartition:
    """What a client asks of a partition, and what it was last told of it (None: nothing yet)."""

    wanted: Any
    high_watermark: int | None = None
    log_start_offset: int | None = None


@dataclass(slots=True, eq=False)
class FetchSession:
    """The partitions that a client fetches, in the order in which they are read: those that gave
    data go to the end, so that all have their turn."""

    session_id: int
    by_id: bool
    epoch: int = 1
    partitions: OrderedDict[Key, FetchPartition] = field(default_factory=OrderedDict)
    last_used: float = 0.0


@dataclass(slots=True)
class FetchContext:
    """One fetch: its partitions, and its session, if it has one. ``full``: the response names all of
    them."""

    partitions: OrderedDict[Key, FetchPartition]
    session: FetchSession | None
    full: bool

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id


class FetchSessions:
    """The sessions of a broker, ``slots`` at most; a client that gets none fetches in full."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        # The least recently used first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, by_id: bool) -> FetchContext:
        """What a request fetches. Raises ApiError for a session that is not known or out of step."""
        epoch, session_id = request.session_epoch, request.session_id
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._sessions.pop(session_id, None)
            partitions: OrderedDict[Key, FetchPartition] = OrderedDict(_wanted(request, by_id))
            session = None
            # Without partitions there is nothing to be remembered.
            if epoch == INITIAL_EPOCH and partitions:
                session = self._create(by_id, partitions)
            return FetchContext(partitions, session, full=True)
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        for key, partition in _wanted(request, by_id):
            known = session.partitions.get(key)
            if known is None:
                session.partitions[key] = partition
            else:
                known.wanted = partition.wanted
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.partitions.pop((topic.topic_id if by_id else topic.topic, index), None)
        if not session.partitions:
            del self._sessions[session_id]
            return FetchContext(OrderedDict(), None, full=True)
        session.epoch = 1 if epoch == _LARGEST else epoch + 1
        session.last_used = time.monotonic()
        self._sessions.move_to_end(session_id)
        return FetchContext(session.partitions, session, full=False)

    def _create(
        self, by_id: bool, partitions: OrderedDict[Key, FetchPartition]
    ) -> FetchSession | None:
        now = time.monotonic()
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used < _MIN_EVICTION:
                return None
            del self._sessions[oldest.session_id]
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = random.randint(1, _LARGEST)
        session = FetchSession(session_id, by_id, partitions=partitions, last_used=now)
        self._sessions[session_id] = session
        return session


def _wanted(request: FetchRequest, by_id: bool) -> Iterable[tuple[Key, FetchPartition]]:
    for topic in request.topics:
        name = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            yield (name, partition.partition), FetchPartition(partition)
