"""Finds offsets by time, the ends of partitions, and the end of a leader epoch, and deletes records before offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from kafka_wire import (
    DeleteRecordsRequest,
    IsolationLevel,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)

from krammar.client.cluster import Cluster
from krammar.client.deadline import Deadline
from krammar.client.metadata import TopicPartition
from krammar.client.routing import by_leader


class At(IntEnum):
    """Special offsets, which requests accept in place of a timestamp."""

    LATEST = (
        -1
    )  # the next offset after the last record; with read_committed, the last stable offset
    EARLIEST = -2
    MAX_TIMESTAMP = -3  # the record with the latest timestamp (KIP-734)
    EARLIEST_LOCAL = -4  # the first record in local storage (KIP-405)
    LATEST_TIERED = -5  # the last record in tiered storage (KIP-1005)


# The first version of ListOffsets that has each.
_SINCE = {At.MAX_TIMESTAMP: 7, At.EARLIEST_LOCAL: 8, At.LATEST_TIERED: 9}


class OffsetAt(NamedTuple):
    """An offset that was found.

    Attributes:
        offset: -1 if no record is at or after the requested time
        timestamp: the record's, in milliseconds since 1970; -1 for the ends
        leader_epoch: -1 if unknown
    """

    offset: int
    timestamp: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The end of the latest epoch that is not newer than the requested one; both are -1 if unknown."""

    leader_epoch: int
    end_offset: int


def group_topics(at: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Return partitions by topic."""
    topics: dict[str, list[TopicPartition]] = {}
    for one in at:
        topics.setdefault(one.topic, []).append(one)
    return topics


def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    deadline: Deadline,
    *,
    read_committed: bool = False,
) -> dict[TopicPartition, OffsetAt]:
    """Return an offset for each partition; ``Client.list_offsets`` describes ``wanted``.

    Raises:
        KafkaError: a broker refuses a partition.
        UnsupportedError: a broker does not know a special offset.
        DeadlineError: the time is over.
    """
    isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED

    def request(group: dict[TopicPartition, int]) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=at.partition,
                            current_leader_epoch=cluster.partition(at).leader_epoch,
                            timestamp=group[at],
                        )
                        for at in partitions
                    ],
                )
                for name, partitions in group_topics(group).items()
            ],
            timeout_ms=min(deadline.left_ms, cluster.settings.request_timeout_ms),
        )

    def answers(response: Any) -> Iterator[tuple[TopicPartition, int, OffsetAt]]:
        for topic in response.topics:
            for p in topic.partitions:
                at = TopicPartition(topic.name, p.partition_index)
                yield at, p.error_code, OffsetAt(p.offset, p.timestamp, p.leader_epoch)

    low = max([2 if read_committed else 1, *(_SINCE.get(t, 1) for t in wanted.values())])  # type: ignore[call-overload]
    return by_leader(cluster, wanted, deadline, request=request, answers=answers, low=low)


def epoch_ends(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[TopicPartition, EpochEnd]:
    """Return for each partition where a leader epoch ended, to detect truncation (KIP-320).

    Raises:
        KafkaError: a broker refuses a partition.
        UnsupportedError: a broker does not have the request.
        DeadlineError: the time is over.
    """

    def request(group: dict[TopicPartition, int]) -> OffsetForLeaderEpochRequest:
        return OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                            partition=at.partition,
                            current_leader_epoch=cluster.partition(at).leader_epoch,
                            leader_epoch=group[at],
                        )
                        for at in partitions
                    ],
                )
                for name, partitions in group_topics(group).items()
            ],
        )

    def answers(response: Any) -> Iterator[tuple[TopicPartition, int, EpochEnd]]:
        for topic in response.topics:
            for p in topic.partitions:
                at = TopicPartition(topic.topic, p.partition)
                yield at, p.error_code, EpochEnd(p.leader_epoch, p.end_offset)

    # The first version that consumers may send is 3 (KIP-320 with ReplicaId).
    return by_leader(cluster, wanted, deadline, request=request, answers=answers, low=3)


def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Delete the records before an offset of each partition, and return where the logs begin now.

    Raises:
        ValueError: an offset is negative, and not ``At.LATEST``.
        KafkaError: a broker refuses a partition.
        DeadlineError: the time is over.
    """
    for at, offset in before.items():
        if offset < 0 and offset != At.LATEST:
            raise ValueError(f"{at}: offset {offset} is negative")

    def request(group: dict[TopicPartition, int]) -> DeleteRecordsRequest:
        return DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        DeleteRecordsRequest.DeleteRecordsPartition(
                            partition_index=at.partition, offset=group[at]
                        )
                        for at in partitions
                    ],
                )
                for name, partitions in group_topics(group).items()
            ],
            timeout_ms=cluster.broker_timeout_ms(deadline),
        )

    def answers(response: Any) -> Iterator[tuple[TopicPartition, int, int]]:
        for topic in response.topics:
            for p in topic.partitions:
                at = TopicPartition(topic.name, p.partition_index)
                yield at, p.error_code, p.low_watermark

    return by_leader(cluster, before, deadline, request=request, answers=answers)
