"""Share sessions (KIP-932): a node remembers which partitions a member of a share group reads, so that requests only list changes.

A session belongs to the connection that opened it. When it ends, the records that its member has
acquired are available again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from kafka_wire import ErrorCode, ShareAcknowledgeRequest, ShareFetchRequest

from krammar.broker.errors import ApiError, invalid_request
from krammar.broker.session import Session
from krammar.broker.share.partitions import LedPartition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LARGEST = 2**31 - 1

# A topic's id, and the index of a partition.
Place = tuple[UUID, int]


@dataclass(slots=True, eq=False)
class ShareSession:
    """The session of a member of a share group.

    Attributes:
        connection: the one that opened it
        epoch: of the next request
        partitions: what the member reads
        led: the share partitions that were loaded for it
        ended: whether nothing may be acquired for it any more
    """

    group: str
    member: str
    connection: Session
    epoch: int = 1
    partitions: dict[Place, None] = field(default_factory=dict)
    led: set[LedPartition] = field(default_factory=set)
    ended: bool = False

    def in_turn(self) -> list[Place]:
        """Return the partitions. Each request begins with another one, so that all get their turn."""
        places = list(self.partitions)
        begin = self.epoch % len(places) if places else 0
        return places[begin:] + places[:begin]


class ShareSessions:
    """At most ``slots`` share sessions, with ``most_partitions`` in all.

    Attributes:
        partitions: of all sessions

    Args:
        ended: called with each session that has ended, but not with one that the same member replaces
    """

    most_partitions = 100_000

    def __init__(self, slots: int, ended: Callable[[ShareSession], None]) -> None:
        self._slots = slots
        self._ended = ended
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._of: dict[Session, set[ShareSession]] = {}
        self.partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, connection: Session, request: ShareFetchRequest) -> ShareSession:
        """Return the session of a ShareFetch, with the request's changes of its partitions. Raises ApiError."""
        epoch = request.share_session_epoch
        if epoch == INITIAL_EPOCH:
            session = self._open(connection, request)
        elif epoch == FINAL_EPOCH:
            return self._known(request)
        else:
            session = self._next(request)
        for topic in request.topics:
            for part in topic.partitions:
                self._add(session, (topic.topic_id, part.partition_index))
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                if session.partitions.pop((forgotten.topic_id, index), False) is None:
                    self.partitions -= 1
        return session

    def acknowledging(self, request: ShareAcknowledgeRequest) -> ShareSession:
        """Return the session of a ShareAcknowledge. Raises ApiError."""
        if request.share_session_epoch == INITIAL_EPOCH:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if request.share_session_epoch == FINAL_EPOCH:
            return self._known(request)
        return self._next(request)

    def end(self, session: ShareSession) -> None:
        """End a session, unless it has ended."""
        if not session.ended:
            self._remove(session)
            self._ended(session)

    def _open(self, connection: Session, request: ShareFetchRequest) -> ShareSession:
        if connection.is_closed:  # a filter has delayed the request
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if any(part.acknowledgement_batches for each in request.topics for part in each.partitions):
            raise invalid_request("the first request of a session cannot acknowledge records")
        key = _key(request)
        session = ShareSession(*key, connection)
        old = self._sessions.get(key)
        if old is not None:
            # The member still has the records that it has acquired.
            self._remove(old)
            session.led = old.led
            for led in session.led:
                led.users.discard(old)
                led.users.add(session)
        elif len(self._sessions) >= self._slots:
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        if connection not in self._of:
            self._of[connection] = set()
            connection.on_close.append(partial(self._connection_closed, connection))
        self._of[connection].add(session)
        self._sessions[key] = session
        return session

    def _connection_closed(self, connection: Session) -> None:
        for session in list(self._of[connection]):
            self.end(session)
        del self._of[connection]

    def _remove(self, session: ShareSession) -> None:
        session.ended = True
        del self._sessions[session.group, session.member]
        self._of[session.connection].discard(session)
        self.partitions -= len(session.partitions)

    def _add(self, session: ShareSession, place: Place) -> None:
        if place in session.partitions:
            return
        if self.partitions >= self.most_partitions:
            self.end(session)
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session.partitions[place] = None
        self.partitions += 1

    def _known(self, request: ShareFetchRequest | ShareAcknowledgeRequest) -> ShareSession:
        session = self._sessions.get(_key(request))
        if session is None:
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def _next(self, request: ShareFetchRequest | ShareAcknowledgeRequest) -> ShareSession:
        session = self._known(request)
        if session.epoch != request.share_session_epoch:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = 1 if session.epoch == _LARGEST else session.epoch + 1
        return session


def _key(request: ShareFetchRequest | ShareAcknowledgeRequest) -> tuple[str, str]:
    return request.group_id or "", request.member_id or ""
