"""The subscriptions and assignments of consumers, which the classic protocol carries as bytes.

Kafka calls them the consumer embedded protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import kafka_wire as kw

from krammar.broker.groups.member import Member, Place, by_topic

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata


def read_subscription(data: bytes, newest: int = 3) -> kw.ConsumerProtocolSubscription:
    """Decode the metadata of a consumer that speaks the classic protocol. Raises WireError."""
    return kw.ConsumerProtocolSubscription.decode_from(_as_version(data, newest), 0)[0]


def decode_assignment(data: bytes) -> list[kw.ConsumerProtocolAssignment.TopicPartition]:
    """Decode an assignment of the classic protocol. Raises WireError."""
    found, _ = kw.ConsumerProtocolAssignment.decode_from(_as_version(data, 3), 0)
    return found.assigned_partitions


def read_assignment(data: bytes, cluster: ClusterMetadata) -> set[Place]:
    """Return the partitions of an assignment of the classic protocol. Raises WireError."""
    return places_by_name(decode_assignment(data), cluster) if data else set()


def assignment_of(member: Member, cluster: ClusterMetadata) -> bytes:
    """Encode the partitions of a member for the classic protocol, in the version of its subscription."""
    topics = cluster.topics_by_id
    return kw.ConsumerProtocolAssignment(
        version=min(max(int.from_bytes(member.protocols[0][1][:2], "big", signed=True), 0), 3),
        assigned_partitions=[
            kw.ConsumerProtocolAssignment.TopicPartition(
                topic=topics[topic_id].name, partitions=numbers
            )
            for topic_id, numbers in by_topic(member.assigned).items()
            if topic_id in topics
        ],
    ).encode()


def places_by_name(assigned: Iterable[Any], cluster: ClusterMetadata) -> set[Place]:
    """Return the partitions of topics by name, except of topics that do not exist."""
    topics = cluster.topics
    return {
        (topics[each.topic].topic_id, number)
        for each in assigned
        if each.topic in topics
        for number in each.partitions
    }


def _as_version(data: bytes, newest: int) -> bytes:
    """Lower the version of a consumer's data to ``newest`` if it is higher; newer layouts begin like that one."""
    version = newest.to_bytes(2, "big")
    return data if data[:2] <= version else version + data[2:]
