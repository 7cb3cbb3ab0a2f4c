"""What the brokers have: the topics and the ends of partitions that a stream reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from krammar.client import At, Client, Topic, TopicPartition
from krammar.client.errors import UnknownTopicOrPartition, UnsupportedError
from krammar.client.metadata import NO_ID
from krammar.client.offsets import epoch_ends
from krammar.spark.brokers import recheck
from krammar.spark.kafka.plan import (
    is_chosen,
    matching,
    missing_partition,
    missing_topic,
    named_topics,
)
from krammar.spark.kafka.stream.position import Offsets, StreamPosition
from krammar.spark.options import Options

# A batch is planned right after its end was computed. A snapshot that took longer is recent for as long as it took.
_RECENT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """What the brokers reported: the ``ends`` of partitions, their ``topics``, and the names of topics
    that are ``missing``; ``asked`` and ``answered`` are times, by ``time.monotonic``."""

    ends: Offsets
    topics: Mapping[str, Topic]
    missing: Set[str]
    asked: float
    answered: float

    @property
    def is_recent(self) -> bool:
        recent = max(_RECENT_SECONDS, self.answered - self.asked)
        return time.monotonic() - self.answered < recent

    def topic_id(self, at: TopicPartition) -> UUID:
        return self.topics[at.topic].topic_id

    def ids_of(self, partitions: Iterable[TopicPartition]) -> dict[str, UUID]:
        """Return the ids of the topics of partitions; topics of old brokers have none."""
        ids = {at.topic: self.topic_id(at) for at in partitions}
        return {topic: topic_id for topic, topic_id in ids.items() if topic_id != NO_ID}

    def is_other(self, at: TopicPartition, position: StreamPosition) -> bool:
        """Return whether a topic certainly differs from the one that a position belongs to."""
        return position.is_other(at.topic, self.topic_id(at))


class StreamSnapshots:
    """Asks the brokers for snapshots, and compares them with what a stream has read."""

    def __init__(self, options: Options, client: Client) -> None:
        self._options = options
        self._client = client

    def selected(
        self, start: StreamPosition, absent: Set[TopicPartition] = frozenset()
    ) -> StreamSnapshot:
        """Return the partitions that the options select now; see ``_ask``."""
        return self._ask(
            named_topics(self._options),
            lambda topics: matching(self._options, topics),
            start,
            absent,
        )

    def _ask(
        self,
        names: list[str] | None,
        choose: Callable[[Mapping[str, Topic]], list[TopicPartition]],
        position: StreamPosition,
        absent: Set[TopicPartition] = frozenset(),
    ) -> StreamSnapshot:
        """Ask the brokers for topics and ends, and again while the answer lacks known offsets.

        An end is never lower than a known offset that the log still has.

        Args:
            names: the topics to ask for; None means all.
            choose: returns the partitions whose ends are needed.
            position: the known offsets, which existed before.
            absent: partitions of the position that the brokers did not have any more. If they return, their
                offsets are known too.
        """
        cluster, known = self._client.cluster, position.offsets

        def attempt() -> StreamSnapshot:
            deadline = cluster.deadline("finding partitions")
            asked = time.monotonic()
            topics, missing = {}, set()
            for topic in cluster.refresh(names, deadline, auto_create=False):
                if topic.error is None:
                    topics[topic.name] = topic
                elif isinstance(topic.error, UnknownTopicOrPartition):
                    missing.add(topic.name)
                elif names is not None or is_chosen(self._options, topic):
                    raise topic.error
            ends = self.at(choose(topics), At.LATEST)
            lower = {at: known[at] for at in known.keys() & ends.keys() if ends[at] < known[at]}
            ends |= self._existing_offsets(lower)
            return StreamSnapshot(ends, topics, missing, asked, time.monotonic())

        def ask() -> StreamSnapshot:
            # If a topic is deleted between the two requests, the second one fails.
            return cluster.retrying(cluster.deadline("finding the ends of logs"), attempt)

        def is_doubtful(found: StreamSnapshot) -> bool:
            return any(
                at not in found.ends or found.ends[at] < offset or found.is_other(at, position)
                for at, offset in known.items()
                if at in found.ends or at not in absent
            )

        return recheck(self._client, ask, is_doubtful)

    def _existing_offsets(self, known: Offsets) -> Offsets:
        """Return which of these offsets the logs still have, although their ends are reported to be lower.

        The last stable offset is lower if a query continues with read_committed while a transaction is open, and a new
        leader's high watermark if its followers lag. In both cases the leader has all records.
        """
        if not known:
            return {}
        cluster = self._client.cluster
        wanted = dict.fromkeys(known, int(At.LATEST))
        # Not lower than the high watermark.
        found = self._client.list_offsets(wanted, isolation_level="read_uncommitted")
        ends = {at: offset.offset for at, offset in found.items()}
        lower = [at for at, offset in known.items() if ends[at] < offset]
        epochs = {at: cluster.partition(at).leader_epoch for at in lower}
        if epochs and min(epochs.values()) >= 0:
            with suppress(UnsupportedError):  # by brokers before Kafka 2.3
                # The current epoch ends where the leader's log ends.
                of_epochs = epoch_ends(cluster, epochs, cluster.deadline("finding epochs' ends"))
                ends.update((at, end.end_offset) for at, end in of_epochs.items())
        return {at: offset for at, offset in known.items() if ends[at] >= offset}

    def at(self, partitions: list[TopicPartition], place: At) -> Offsets:
        found = self._client.list_offsets(dict.fromkeys(partitions, int(place)))
        return {at: offset.offset for at, offset in found.items()}

    def missing(
        self, snapshot: StreamSnapshot, start: Set[TopicPartition] = frozenset()
    ) -> list[str]:
        """Describe the topics and partitions that the options name, but that neither the brokers nor ``start`` have."""
        known = {at.topic for at in start}
        if not self._options.given("assign"):
            return [missing_topic(name) for name in sorted(snapshot.missing - known)]
        assigned = {TopicPartition(*at) for at in self._options["assign"]}
        return [missing_partition(at) for at in sorted(assigned - snapshot.ends.keys() - start)]

    def is_recreated(
        self, snapshot: StreamSnapshot, at: TopicPartition, start: StreamPosition, end: int
    ) -> bool:
        """Return whether a topic that was read up to ``start`` was deleted and created again."""
        if at.topic in start.ids:
            return start.offsets[at] > 0 and snapshot.is_other(at, start)
        # A checkpoint of Kafka's connector has no ids. A log is only truncated when the leader changes, so a log that
        # still has its first leader was not truncated.
        epoch = snapshot.topics[at.topic].partitions[at.partition].leader_epoch
        return end < start.offsets[at] and epoch == 0

    def existing(self, end: StreamPosition) -> StreamSnapshot:
        """Ask the brokers which partitions of a position exist."""
        wanted = end.offsets
        return self._ask(
            sorted({at.topic for at in wanted}),
            lambda topics: [
                at
                for at in wanted
                if at.topic in topics and at.partition in topics[at.topic].partitions
            ],
            end,
        )
