"""Members of consumer groups that speak the classic protocol: KIP-848 lets them take part during a migration.

They take a step towards their target assignment with each JoinGroup. Heartbeats tell them to join again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import kafka_wire as kw

from krammar.broker.errors import ApiError
from krammar.broker.groups.consumer_group import ConsumerGroup
from krammar.broker.groups.consumer_protocol import ConsumerProtocol
from krammar.broker.groups.embedded import assignment_of, places_by_name, read_subscription
from krammar.broker.groups.group import CONSUMER
from krammar.broker.groups.host import GroupClient
from krammar.broker.groups.member import UNRELEASED, UNREVOKED, Member, join_error
from krammar.broker.groups.migration import Migration
from krammar.wire.errors import WireError

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata


class ClassicMembers:
    """Handles JoinGroup, SyncGroup and Heartbeat in consumer groups."""

    def __init__(
        self, protocol: ConsumerProtocol, cluster: ClusterMetadata, migration: Migration
    ) -> None:
        self._protocol = protocol
        self._cluster = cluster
        self._migration = migration

    def join(
        self, group: ConsumerGroup, request: kw.JoinGroupRequest, client: GroupClient
    ) -> kw.JoinGroupResponse:
        """Add or update a member. Raises ApiError."""
        member_id, instance_id = request.member_id, request.group_instance_id
        if self._migration.policy == "DISABLED":
            raise ApiError(kw.ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._protocol.check_size(group, member_id)
        if not group.supports(request):
            raise ApiError(kw.ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        try:
            subscription = read_subscription(request.protocols[0].metadata)
        except WireError:
            raise ApiError(kw.ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None
        if not member_id:
            member_id = str(uuid4())
            if instance_id is None and client.version >= 4:
                return join_error(kw.ErrorCode.MEMBER_ID_REQUIRED, member_id)
        known = group.members.get(group.statics.get(instance_id or "", member_id))
        member = known or group.add(Member(member_id, instance_id))
        downgrade = False
        if member.member_id != member_id:
            if request.member_id:
                raise ApiError(kw.ErrorCode.FENCED_INSTANCE_ID)
            downgrade = not member.protocols and self._migration.may_downgrade(
                group, [member.member_id]
            )
            self._protocol.replace(group, member, member_id)
        member.update(request)
        member.client_id, member.client_host = client.client_id, client.host
        member.rack_id = subscription.rack_id or member.rack_id
        owned = places_by_name(subscription.owned_partitions, self._cluster)
        self._protocol.advance(group, member, owned, subscription.topics, None)
        response = kw.JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=CONSUMER,
            protocol_name=request.protocols[0].name,
            member_id=member_id,
        )
        if downgrade:
            self._protocol.downgrade(group)
            return response
        self._protocol.expect(group, member)
        member.is_due = True
        self._protocol.time_out(group, member)
        return response

    def sync(self, group: ConsumerGroup, request: kw.SyncGroupRequest) -> kw.SyncGroupResponse:
        """Return the partitions of a member. Raises ApiError."""
        member = group.check_sync(request)
        if group.group_epoch > member.epoch and member.state != UNREVOKED:
            self._call_back(group, member)
        self._protocol.cancel(group, member)
        self._protocol.expect(group, member)
        return kw.SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_of(member, self._cluster),
        )

    def heartbeat(self, group: ConsumerGroup, request: kw.HeartbeatRequest) -> None:
        """Extend a session. Raises ApiError; REBALANCE_IN_PROGRESS if the member must join again."""
        member = group.check_classic(request)
        self._protocol.expect(group, member)
        if self._protocol.refresh_topics(group, False):
            group.group_epoch += 1
            self._protocol.store(group)
        must_join = member.epoch < group.group_epoch or member.state == UNREVOKED
        if not must_join and member.state == UNRELEASED:
            missing = member.target - member.assigned.keys()
            must_join = missing.isdisjoint(group.owned_by_others(member))
        if must_join:
            self._call_back(group, member)

    def _call_back(self, group: ConsumerGroup, member: Member) -> None:
        """Tell a member to join again within its rebalance timeout."""
        if not member.is_due:
            member.is_due = True
            self._protocol.time_out(group, member)
        raise ApiError(kw.ErrorCode.REBALANCE_IN_PROGRESS)
