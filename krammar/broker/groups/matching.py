"""Finds the topics that match the patterns of consumer groups, in portions.

When topics change, each pattern is only compared with the names that are new. The members of a
group can have hundreds of patterns, so one request refreshes a portion of them, and the next
heartbeats the rest.

With an authorizer, a pattern only matches topics that the member may describe whose heartbeat
refreshes it, as in Kafka. Members with the same pattern share the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kafka_wire import ConsumerGroupRegularExpressionValue, ErrorCode

from krammar.broker.errors import ApiError
from krammar.broker.groups.consumer_group import ConsumerGroup
from krammar.broker.patterns import whole_match
from krammar.util.extras import MissingExtra

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata, Topic
    from krammar.broker.groups.host import TopicRights

# Compiling a pattern takes as long as matching this number of names.
_COMPILING = 1000


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that returns whether a topic matches. Raises ApiError."""
    try:
        return whole_match(pattern)
    except (ValueError, MissingExtra) as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}",
        ) from None


def _permitted(matches: Callable[[str], bool], rights: TopicRights | None) -> Callable[[str], bool]:
    if rights is None:
        return matches
    may_describe = rights.may_describe
    return lambda name: matches(name) and may_describe(name)


def topics_digest(topics: Iterable[Topic]) -> int:
    """Return what identifies topics and their numbers of partitions; 0 without topics."""
    known = [(topic.topic_id, len(topic.partitions)) for topic in topics]
    digest = hashlib.sha256(repr(known).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True) if known else 0


class Matching:
    """Matches patterns with the topics of a cluster.

    Args:
        restricted: whether only members with rights refresh patterns

    Attributes:
        portion: the work of one request, in names that are matched or written (1 µs each). At least
            one pattern is refreshed.
    """

    portion = 20_000

    def __init__(self, cluster: ClusterMetadata, *, restricted: bool = False) -> None:
        self._cluster = cluster
        self._restricted = restricted
        self._names: frozenset[str] = frozenset()
        self._seen = -1

    def names(self) -> frozenset[str]:
        """Return the names of all topics: the same object until they change."""
        seen = self._cluster.last_offset
        if seen != self._seen:
            if self._names != self._cluster.topics.keys():
                self._names = frozenset(self._cluster.topics)
            self._seen = seen
        return self._names

    def refresh(self, group: ConsumerGroup, now_ms: int, rights: TopicRights | None = None) -> None:
        """Update ``group.matches`` for its members and topics. Sets ``group.behind`` if a portion remains."""
        names, seen = self.names(), self._cluster.last_offset
        patterns = {member.pattern for member in group.members.values()} - {""}
        for gone in group.matches.keys() - patterns:
            group.match(gone, None)
        for gone in group.matched.keys() - patterns:
            del group.matched[gone]
        if self._restricted:
            if rights is None:
                group.behind = bool(patterns)
                return
            if group.matched_rights != rights.version:
                group.matched.clear()
                group.matched_rights = rights.version
        group.behind = False
        left = self.portion
        changes: dict[frozenset[str], tuple[frozenset[str], frozenset[str]]] = {}
        # A new pattern is the one of the member that asks.
        for pattern in sorted(patterns, key=lambda each: (each in group.matches, each)):
            before = group.matched.get(pattern)
            if before is names:
                continue
            if left <= 0:
                group.behind = True
                return
            found = group.matches.get(pattern)
            matches = _permitted(matcher(pattern), rights)
            if found is None or before is None:
                topics = sorted(filter(matches, names))
                left -= _COMPILING + len(names)
            else:
                if before not in changes:
                    changes[before] = names - before, before - names
                added, removed = changes[before]
                topics = [name for name in found.topics if name not in removed]
                topics += filter(matches, added)
                topics.sort()
                left -= _COMPILING + len(added)
            if found is None or found.topics != topics:
                value = ConsumerGroupRegularExpressionValue(
                    topics=topics, body_version=seen, timestamp=now_ms
                )
                group.match(pattern, value)
                left -= len(topics)
            group.matched[pattern] = names
