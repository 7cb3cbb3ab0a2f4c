"""Requests of group members over a raw connection, in any version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from kafka_wire import (
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)

from tests.broker.support import RawClient

GROUP = "readers"
NO_ID = UUID(int=0)


def join_request(member_id: str = "", **changes: Any) -> JoinGroupRequest:
    """Build a JoinGroup of a member of ``GROUP`` that reads the topic t. ``changes`` replace fields."""
    metadata = ConsumerProtocolSubscription(version=3, topics=["t"]).encode()
    return JoinGroupRequest(
        **{
            "group_id": GROUP,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequest.Protocol(name="range", metadata=metadata)],
            **changes,
        }
    )


def join(client: RawClient, version: int = 9, **changes: Any) -> JoinGroupResponse:
    """Join, as a client does that gets its id first; the answer to the last request."""
    response = client.call(join_request(**changes), version)
    if response.error_code == 79:
        response = client.call(join_request(response.member_id, **changes), version)
    assert isinstance(response, JoinGroupResponse)
    return response


def sync_request(
    joined: JoinGroupResponse, shares: Mapping[str, bytes] | None = None, **changes: Any
) -> SyncGroupRequest:
    """Build the SyncGroup that follows a JoinGroup; the leader passes the shares."""
    return SyncGroupRequest(
        **{
            "group_id": GROUP,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                SyncGroupRequest.Assignment(member_id=member, assignment=share)
                for member, share in (shares or {}).items()
            ],
            **changes,
        }
    )


def heartbeat_request(joined: JoinGroupResponse, **changes: Any) -> HeartbeatRequest:
    """Build a Heartbeat of a member that has joined."""
    return HeartbeatRequest(
        **{
            "group_id": GROUP,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            **changes,
        }
    )


def leave_request(joined: JoinGroupResponse, version: int = 5) -> LeaveGroupRequest:
    """Build the LeaveGroup of a member that has joined."""
    if version < 3:
        return LeaveGroupRequest(group_id=GROUP, member_id=joined.member_id)
    member = LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)
    return LeaveGroupRequest(group_id=GROUP, members=[member])


def stable_member(client: RawClient, version: int = 9, **changes: Any) -> JoinGroupResponse:
    """The only member of a stable group, with its own id as its share."""
    joined = join(client, version, **changes)
    assert joined.error_code == 0, joined
    shares = {joined.member_id: joined.member_id.encode()}
    response = client.call(sync_request(joined, shares), 5)
    assert response.error_code == 0, response
    return joined


def commit_request(
    offsets: Mapping[int, int], topic: str | UUID = "t", **changes: Any
) -> OffsetCommitRequest:
    """Commit offsets of a topic, by partition; by its name or its id."""
    metadata = changes.pop("metadata", "note")
    epoch = changes.pop("leader_epoch", -1)
    return OffsetCommitRequest(
        **{
            "group_id": GROUP,
            "topics": [
                OffsetCommitRequest.Topic(
                    name=topic if isinstance(topic, str) else "",
                    topic_id=NO_ID if isinstance(topic, str) else topic,
                    partitions=[
                        OffsetCommitRequest.Partition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=epoch,
                            committed_metadata=metadata,
                        )
                        for partition, offset in offsets.items()
                    ],
                )
            ],
            **changes,
        }
    )


def as_member(joined: JoinGroupResponse) -> dict[str, Any]:
    """The member that commits, for ``commit_request``."""
    return {
        "generation_id_or_member_epoch": joined.generation_id,
        "member_id": joined.member_id,
    }


def codes(response: Any) -> dict[int, int]:
    """The error of each partition of a response about one topic."""
    (topic,) = response.topics
    return {p.partition_index: p.error_code for p in topic.partitions}


def fetch(
    client: RawClient,
    version: int,
    topic: str | UUID | None = "t",
    partitions: tuple[int, ...] = (0,),
    *,
    group: str = GROUP,
    require_stable: bool = False,
) -> dict[tuple[str | UUID, int], tuple[int, str | None, int]]:
    """Committed offset, text and error by topic and partition; ``topic`` None asks for all."""
    if version < 8:
        request = OffsetFetchRequest(
            group_id=group,
            topics=(
                None
                if topic is None
                else [OffsetFetchRequest.Topic(name=str(topic), partition_indexes=[*partitions])]
            ),
            require_stable=require_stable,
        )
        response = client.call(request, version)
        assert response.error_code == 0
        topics = response.topics
    else:
        asked = OffsetFetchRequest.Topics(partition_indexes=[*partitions])
        if isinstance(topic, UUID):
            asked.topic_id = topic
        else:
            asked.name = topic or ""
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequest.Group(group_id=group, topics=None if topic is None else [asked])
            ],
            require_stable=require_stable,
        )
        response = client.call(request, version)
        (found,) = response.groups
        assert (found.group_id, found.error_code) == (group, 0)
        topics = found.topics
    return {
        (t.topic_id if version >= 10 else t.name, p.partition_index): (
            p.committed_offset,
            p.metadata,
            p.error_code,
        )
        for t in topics
        for p in t.partitions
    }
