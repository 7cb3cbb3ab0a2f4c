"""Incremental fetch sessions (KIP-227).

The broker remembers which partitions a client fetches, so requests and responses list only partitions
that changed.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kafka_wire import ErrorCode, FetchRequest, FetchResponseResponsePartition

from krammar.broker.errors import ApiError

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
_LARGEST = 2**31 - 1
# A session that was used within this time, in seconds, is not evicted. Kafka's default.
_MIN_EVICTION = 120.0

# The topic's name, or its id from v13 on, and the index of the partition.
Key = tuple[str | UUID, int]
Answers = list[tuple[Key, FetchResponseResponsePartition]]


@dataclass(slots=True)
class FetchPartition:
    """The request for one partition, and the last values in a response (None: no response yet)."""

    wanted: Any
    high_watermark: int | None = None
    log_start_offset: int | None = None


@dataclass(slots=True, eq=False)
class FetchSession:
    """The partitions that a client fetches, in reading order.

    Partitions that returned data move to the end, so that every partition gets its turn.
    """

    session_id: int
    by_id: bool
    partitions: OrderedDict[Key, FetchPartition]
    last_used: float
    epoch: int = 1


@dataclass(slots=True)
class FetchContext:
    """One fetch: its partitions, and its session if it has one.

    ``full``  whether the response lists all partitions
    """

    partitions: OrderedDict[Key, FetchPartition]
    session: FetchSession | None
    full: bool

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id

    def changed(self, answers: Answers) -> Answers:
        """Return the answers that the response lists: in a session, those with news for the client."""
        if self.session is None:
            return answers
        changed = []
        for key, answer in answers:
            partition = self.partitions.get(key)
            if partition is not None and (
                self.full
                or answer.records
                or answer.error_code != 0
                or answer.high_watermark != partition.high_watermark
                or answer.log_start_offset != partition.log_start_offset
                or answer.diverging_epoch.epoch >= 0
            ):
                changed.append((key, answer))
                # An error is reported in every response, as long as it lasts.
                partition.high_watermark = None if answer.error_code else answer.high_watermark
                partition.log_start_offset = answer.log_start_offset
                if answer.records:
                    self.partitions.move_to_end(key)
        return changed


class FetchSessions:
    """At most ``slots`` fetch sessions. A client without a session fetches in full."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        # The least recently used first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def begin(self, request: FetchRequest, by_id: bool) -> FetchContext:
        """Return what a request fetches. Raises ApiError for an unknown session or a wrong epoch."""
        epoch, session_id = request.session_epoch, request.session_id
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._sessions.pop(session_id, None)
            partitions: OrderedDict[Key, FetchPartition] = OrderedDict(_wanted(request, by_id))
            session = None
            # Without partitions, there is nothing to remember.
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
        session = FetchSession(session_id, by_id, partitions, now)
        self._sessions[session_id] = session
        return session


def _wanted(request: FetchRequest, by_id: bool) -> Iterable[tuple[Key, FetchPartition]]:
    for topic in request.topics:
        name = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            yield (name, partition.partition), FetchPartition(partition)
