"""Lets clients see changes of topics as late as those of Apache Kafka (``krammar.kafka.like.delays.ms``).

Here, a change is complete when its response is sent. In Kafka, the controller answers, and the nodes learn later of new,
changed and deleted topics. Programs that rely on the earlier moment pass their tests here, and fail there. This filter shows
clients the topics from before for a while. ``krammar.broker.transactions.completion`` writes markers later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_wire import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ErrorCode,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from krammar.broker.metadata_image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Topic
from krammar.proxy.interface import Exchange, Filter, on
from krammar.wire.primitives import NULL_UUID

# The topic that has to exist before a kind of coordinator is available.
_COORDINATED_BY = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}


@dataclass(slots=True)
class _Before:
    """The topics before a request.

    Attributes:
        counts: the number of partitions by topic
        deleted: names of deleted topics that the request names, and the broker does not get
    """

    counts: dict[str, int]
    deleted: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _New:
    """A topic with partitions that clients do not see before ``until_ms``. They see the first ``count``."""

    until_ms: int
    count: int


class LateChanges(Filter):
    """Shows clients topics and coordinators a while after they exist, and deleted topics a while longer.

    Only changes by clients are late: topics that a test creates without a client are there at once.

    Args:
        topics: returns the topics by name
        now_ms: returns the broker's time, in milliseconds since 1970
        delay_ms: how late changes are
    """

    def __init__(
        self, topics: Callable[[], Mapping[str, Topic]], now_ms: Callable[[], int], delay_ms: int
    ) -> None:
        self._topics = topics
        self._now_ms = now_ms
        self._delay_ms = delay_ms
        self._new: dict[str, _New] = {}
        self._deleted: dict[str, tuple[int, Topic]] = {}  # until when clients see a topic

    # Changes.

    @on(CreateTopicsRequest, CreatePartitionsRequest, FindCoordinatorRequest)
    def note(self, request: Any, exchange: Exchange) -> None:
        """Note the topics before a request that can create topics and partitions."""
        counts = {name: len(topic.partitions) for name, topic in self._topics().items()}
        exchange.state[self] = _Before(counts)

    @on(CreateTopicsResponse, CreatePartitionsResponse)
    def changed(self, response: Any, exchange: Exchange) -> None:
        """Hide what a request has created."""
        self._hide_new(exchange)

    def _hide_new(self, exchange: Exchange) -> None:
        before: _Before = exchange.state[self]
        until_ms = self._now_ms() + self._delay_ms
        for name, topic in self._topics().items():
            count = before.counts.get(name, 0)
            if len(topic.partitions) > count:
                self._new[name] = _New(until_ms, count)
                self._deleted.pop(name, None)

    @on(DeleteTopicsRequest)
    def deletes(self, request: DeleteTopicsRequest, exchange: Exchange) -> None:
        """Note the topics before some are deleted."""
        exchange.state[self] = dict(self._topics())

    @on(DeleteTopicsResponse)
    def deleted(self, response: DeleteTopicsResponse, exchange: Exchange) -> None:
        """Continue to show deleted topics."""
        before: dict[str, Topic] = exchange.state[self]
        until_ms = self._now_ms() + self._delay_ms
        for each in response.responses:
            topic = before.get(each.name or "")
            if each.error_code == ErrorCode.NONE and topic is not None:
                self._new.pop(topic.name, None)
                self._deleted[topic.name] = until_ms, topic

    # What clients see.

    def _visible(self, name: str | None) -> int | None:
        """Return how many partitions of a topic clients see; None for all."""
        new = self._new.get(name or "")
        if new is None:
            return None
        if self._now_ms() >= new.until_ms:
            del self._new[name or ""]
            return None
        return new.count

    def _shown(self) -> dict[str, Topic]:
        """Return the deleted topics that clients still see, by name."""
        now = self._now_ms()
        self._deleted = {name: each for name, each in self._deleted.items() if now < each[0]}
        return {name: topic for name, (_, topic) in self._deleted.items()}

    @on(MetadataRequest)
    def asks(self, request: MetadataRequest, exchange: Exchange) -> None:
        """Do not let the broker see deleted topics, which it would create again."""
        self.note(request, exchange)
        if request.topics and exchange.version > 0:  # in v0, an empty list means all topics
            shown = self._shown()
            wanted = [topic for topic in request.topics if topic.name not in shown]
            exchange.state[self].deleted = [
                topic.name or "" for topic in request.topics if topic.name in shown
            ]
            request.topics = wanted

    @on(MetadataResponse)
    def metadata(self, response: MetadataResponse, exchange: Exchange) -> None:
        """Show the topics from before."""
        self._hide_new(exchange)
        before: _Before = exchange.state[self]
        asked = exchange.request.topics
        everything = asked is None or (exchange.version == 0 and not asked)
        shown = self._shown()
        ids = {topic.topic_id: topic for topic in shown.values()}
        topics: list[Any] = []
        for each in response.topics:
            if each.error_code == ErrorCode.UNKNOWN_TOPIC_ID and each.topic_id in ids:
                topics.append(_described(MetadataResponse, ids[each.topic_id]))
            elif self._visible(each.name) != 0 or not everything:
                topics.append(self._cut(each, by_id=bool(asked) and asked[0].name is None))
        names = shown if everything else before.deleted
        topics += [_described(MetadataResponse, shown[name]) for name in names if name in shown]
        response.topics = topics

    @on(DescribeTopicPartitionsResponse)
    def partitions(self, response: DescribeTopicPartitionsResponse, exchange: Exchange) -> None:
        """Show the topics from before."""
        everything = not exchange.request.topics
        shown = self._shown()
        topics: list[Any] = []
        for each in response.topics:
            if each.name in shown and each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                topics.append(_described(DescribeTopicPartitionsResponse, shown[each.name]))
            elif self._visible(each.name) != 0 or not everything:
                topics.append(self._cut(each, by_id=False))
        if everything and response.next_cursor is None:
            topics += [_described(DescribeTopicPartitionsResponse, each) for each in shown.values()]
        response.topics = sorted(topics, key=lambda each: each.name or "")

    @on(DescribeTopicPartitionsRequest)
    def asks_partitions(self, request: DescribeTopicPartitionsRequest, exchange: Exchange) -> None:
        """Let the exchange have its request."""

    def _cut(self, topic: Any, *, by_id: bool) -> Any:
        """Remove from the description of a topic what clients do not see yet."""
        count = self._visible(topic.name)
        if count is None or topic.error_code != ErrorCode.NONE:
            return topic
        topic.partitions = [each for each in topic.partitions if each.partition_index < count]
        if count == 0:
            topic.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if by_id:
                topic.error_code, topic.name = ErrorCode.UNKNOWN_TOPIC_ID, None
            else:
                topic.topic_id = NULL_UUID
        return topic

    @on(FindCoordinatorResponse)
    def coordinator(self, response: FindCoordinatorResponse, exchange: Exchange) -> None:
        """A coordinator is not available before its topic is."""
        self._hide_new(exchange)
        if self._visible(_COORDINATED_BY.get(exchange.request.key_type)) != 0:
            return
        answers: list[Any] = response.coordinators if exchange.version >= 4 else [response]
        for each in answers:
            each.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            each.node_id, each.host, each.port = -1, "", -1
            each.error_message = "" if exchange.version >= 4 else "COORDINATOR_NOT_AVAILABLE"


def _described(response: Any, topic: Topic) -> Any:
    """Describe a deleted topic in a response to Metadata or DescribeTopicPartitions."""
    return response.Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            response.Partition(
                partition_index=each.index,
                leader_id=each.leader,
                leader_epoch=each.leader_epoch,
                replica_nodes=each.replicas,
                isr_nodes=each.isr,
            )
            for _, each in sorted(topic.partitions.items())
        ],
    )
