"""The consumer group protocol (KIP-848): the broker assigns partitions, and heartbeats move members towards them.

A group and each member have an epoch. A change of members, subscriptions or topics raises the
group's epoch and leads to a new target assignment. Each member then gives up partitions, confirms
that, and gets new ones as soon as no other member has them. Members of the classic protocol take
part with JoinGroup and SyncGroup.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

import kafka_wire as kw

from krammar.broker.errors import ApiError, invalid_request
from krammar.broker.groups.assignors import Assignment, apply, problem_of
from krammar.broker.groups.classic_group import ClassicGroup
from krammar.broker.groups.classic_protocol import ClassicProtocol
from krammar.broker.groups.consumer_group import ConsumerGroup
from krammar.broker.groups.embedded import assignment_of, places_by_name, read_subscription
from krammar.broker.groups.group import CONSUMER, Key
from krammar.broker.groups.host import (
    GroupClient,
    Host,
    OffsetGroup,
    TopicRights,
    rebalance_key,
    session_key,
)
from krammar.broker.groups.matching import Matching, matcher, topics_digest
from krammar.broker.groups.member import (
    AWAY,
    UNRELEASED,
    UNREVOKED,
    Member,
    Place,
    join_error,
    places_of,
)
from krammar.broker.groups.migration import Migration, not_found
from krammar.broker.groups.records import fits, topics_of
from krammar.broker.protection import has_authorizer
from krammar.wire.errors import WireError

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig


@dataclass(eq=False)
class ConsumerProtocol:
    """Handles the requests of consumer groups, and their time-outs.

    Attributes:
        quick_size: the size of an assignment that takes about 20 ms: the sum of the partitions and
            of the topics of each different subscription. A larger one is computed in a thread.
    """

    quick_size: ClassVar[int] = 10_000

    _host: Host
    _config: BrokerConfig
    _cluster: ClusterMetadata
    _classic: ClassicProtocol
    _migration: Migration

    def __post_init__(self) -> None:
        self._matching = Matching(self._cluster, restricted=has_authorizer(self._config))

    # -- ConsumerGroupHeartbeat

    def heartbeat(
        self, group: OffsetGroup, request: kw.ConsumerGroupHeartbeatRequest, client: GroupClient
    ) -> kw.ConsumerGroupHeartbeatResponse:
        """Add or update a member, and move it towards its target assignment.

        The first member of the consumer protocol turns a classic group into a consumer group.
        Raises ApiError.
        """
        if isinstance(group, ClassicGroup):
            if request.member_epoch != 0:
                raise not_found(f"Group {group.group_id} is not a consumer group.")
            group = self._upgrade(group, request.member_id)
        if request.member_epoch < 0:
            return self._leave(group, request)
        # The partitions that the member reports; None if it reports no change.
        reported = request.topic_partitions
        owned = None if reported is None else places_of(reported)
        member = self._member(group, request, owned)
        before = member.assigned.keys()
        topics, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
        member.rack_id = request.rack_id or member.rack_id
        member.assignor = request.server_assignor or member.assignor
        if request.rebalance_timeout_ms != -1:
            member.rebalance_timeout = request.rebalance_timeout_ms
        member.client_id, member.client_host = client.client_id, client.host
        member.protocols = []
        self.advance(group, member, owned, topics, pattern, client.rights)
        self.expect(group, member)
        response = kw.ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._setting(group, "heartbeat.interval.ms"),
        )
        is_full = request.rebalance_timeout_ms != -1 and topics is not None and owned is not None
        if request.member_epoch == 0 or is_full or member.assigned.keys() != before:
            places = topics_of(member.assigned, kw.ConsumerGroupHeartbeatResponse.TopicPartitions)
            response.assignment = kw.ConsumerGroupHeartbeatResponse.Assignment(
                topic_partitions=places
            )
        return response

    def _member(
        self,
        group: ConsumerGroup,
        request: kw.ConsumerGroupHeartbeatRequest,
        owned: Collection[Place] | None,
    ) -> Member:
        """Find the member of a request, or add it. Raises ApiError."""
        member_id, instance_id, epoch = request.member_id, request.instance_id, request.member_epoch
        self.check_size(group, member_id)
        if epoch == 0:
            known = group.members.get(group.statics.get(instance_id or "", member_id))
            if instance_id is None or known is None:
                return known or group.add(Member(member_id, instance_id))
            if not known.protocols and known.epoch != AWAY:
                raise ApiError(
                    kw.ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance_id} cannot join the group "
                    f"because the instance id is owned by {known.member_id} member.",
                )
            return self.replace(group, known, member_id)
        member = group.check_member(member_id, instance_id)
        if epoch == member.epoch or (
            # The response with the new epoch may have been lost.
            epoch < member.epoch
            and epoch == member.previous_epoch
            and owned is not None
            and member.assigned.keys() >= set(owned)
        ):
            return member
        what = "greater" if epoch > member.epoch else "smaller"
        raise ApiError(
            kw.ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {what} member epoch ({epoch}) than the one known by "
            f"the group coordinator ({member.epoch}). The member must abandon all its partitions "
            "and rejoin.",
        )

    def check_size(self, group: OffsetGroup, member_id: str) -> None:
        limit = self._config.group_consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise ApiError(
                kw.ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def replace(self, group: ConsumerGroup, member: Member, member_id: str) -> Member:
        """Give a static member a new id; it keeps its partitions."""
        self.cancel(group, member)
        group.touched.update((member.member_id, member_id))
        group.replace_static(member, member_id)
        member.epoch = member.previous_epoch = 0
        member.revoking = {}
        return member

    def _leave(
        self, group: ConsumerGroup, request: kw.ConsumerGroupHeartbeatRequest
    ) -> kw.ConsumerGroupHeartbeatResponse:
        member = group.check_member(request.member_id, request.instance_id)
        if request.member_epoch == AWAY:
            member.move_to(member.state, AWAY, member.assigned, {})
            group.touched.add(member.member_id)
            self.store(group)
        else:
            self._fence(group, [member])
        return kw.ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )

    # -- assignments

    def advance(
        self,
        group: ConsumerGroup,
        member: Member,
        owned: Collection[Place] | None,
        topics: Sequence[str] | None,
        pattern: str | None,
        rights: TopicRights | None = None,
    ) -> None:
        """Apply the subscription of a member, assign partitions if needed, reconcile and store.

        Topics and a pattern that are None have not changed. With an authorizer, patterns need
        ``rights``.
        """
        group.touched.add(member.member_id)
        before = (member.topics, member.pattern)
        if topics is not None:
            group.subscribe(member, topics)
        member.pattern = member.pattern if pattern is None else pattern
        changed = (member.topics, member.pattern) != before
        changed |= self.refresh_topics(group, changed, rights)
        assignor = group.preferred_assignor() or self._config.group_consumer_assignors[0]
        if changed or group.assignor not in (None, assignor):
            group.group_epoch += 1
        group.assignor = assignor
        due = group.assigned_at + self._setting(group, "assignment.interval.ms")
        stale = group.group_epoch > group.assignment_epoch and not group.assigning
        if stale and self._host.now_ms() >= due:
            self._assign(group, assignor)
        if group.reconcile(member, owned) and not member.protocols:
            if member.state == UNREVOKED:
                self.time_out(group, member)
            else:
                self._host.cancel(group, rebalance_key(member))
        self.store(group)

    def refresh_topics(
        self, group: ConsumerGroup, changed: bool, rights: TopicRights | None = None
    ) -> bool:
        """Find the topics that the members subscribe to. Returns whether they or their partitions have changed."""
        seen = self._cluster.last_offset
        if not changed and not group.behind and seen == group.topics_seen:
            return False
        self._matching.refresh(group, self._host.now_ms(), rights)
        group.topics_seen = seen
        group.subscriptions = group.subscribed_topics()
        known = self._cluster.topics
        topics = [known[name] for name in sorted(group.subscribed_topics() & known.keys())]
        before, group.topics_hash = group.topics_hash, topics_digest(topics)
        return group.topics_hash != before

    def _assign(self, group: ConsumerGroup, assignor: str) -> None:
        """Compute the target assignment for the group's epoch. A large one is ready at a later heartbeat."""
        problem = problem_of(group, self._cluster, assignor)
        if problem.size <= self.quick_size:
            apply(group, problem, problem.solve(), self._host.now_ms())
            return

        def solved(targets: Assignment) -> None:
            group.assigning = False
            if group.members:
                apply(group, problem, targets, self._host.now_ms())
                with suppress(ApiError):  # the host has restored the group
                    self.store(group)

        group.assigning = True
        self._host.in_thread(group, problem.solve, solved)

    # -- members that go

    def leave(
        self, group: ConsumerGroup, leaving: Sequence[kw.LeaveGroupRequest.MemberIdentity]
    ) -> list[kw.LeaveGroupResponse.MemberResponse]:
        """Remove members that are identified by member id, instance id or both. Raises ApiError."""
        gone: dict[str, Member] = {}
        results = group.leave(leaving, lambda name: gone.update({name: group.members[name]}))
        if gone:
            self._fence(group, [*gone.values()])
        return results

    def _fence(self, group: ConsumerGroup, members: Sequence[Member]) -> None:
        """Remove members. If all others speak the classic protocol, the group becomes a classic one again."""
        gone = [member.member_id for member in members]
        downgrade = (
            any(not member.protocols for member in members)
            and len(group.members) > len(gone)
            and self._migration.may_downgrade(group, gone)
        )
        for member in members:
            self.cancel(group, member)
            group.remove(member.member_id)
        if downgrade:
            self._classic.rebalance(self.downgrade(group))
            return
        group.group_epoch += 1
        if not group.members:
            group.assignment_epoch = group.group_epoch
        self.refresh_topics(group, True)
        self.store(group)

    def expect(self, group: ConsumerGroup, member: Member) -> None:
        """Restart the session timeout of a member."""
        timeout = member.session_timeout if member.protocols else 0
        delay = timeout or self._setting(group, "session.timeout.ms")
        self._schedule(group, session_key(member.member_id), delay)

    def time_out(self, group: ConsumerGroup, member: Member) -> None:
        """Start the rebalance timeout of a member."""
        self._schedule(group, rebalance_key(member), member.rebalance_timeout)

    def _schedule(self, group: ConsumerGroup, key: Key, delay: int) -> None:
        def elapsed() -> None:
            member = group.members.get(key[1])
            if member is not None:
                with suppress(ApiError):  # the host has started all time-outs again
                    self._fence(group, [member])

        self._host.schedule(group, key, delay, elapsed)

    def cancel(self, group: ConsumerGroup, member: Member) -> None:
        self._host.cancel(group, session_key(member.member_id))
        self._host.cancel(group, rebalance_key(member))
        member.is_due = False

    def loaded(self, group: ConsumerGroup) -> None:
        """Start the time-outs of a group that was loaded from the log."""
        for member in group.members.values():
            self.expect(group, member)
            if member.state == UNREVOKED and not member.protocols:
                self.time_out(group, member)

    # -- migration

    def _upgrade(self, group: ClassicGroup, joining: str) -> ConsumerGroup:
        """Turn a classic group into a consumer group, which a member joins. Raises ApiError."""
        members = self._migration.check_upgrade(group)
        self.check_size(group, joining)
        upgraded = self._migration.upgrade(group, members)
        for member in upgraded.members.values():
            self.expect(upgraded, member)
        return upgraded

    def downgrade(self, group: ConsumerGroup) -> ClassicGroup:
        """Turn a consumer group whose members all speak the classic protocol into a classic group. Raises ApiError."""
        for member in group.members.values():
            self.cancel(group, member)
        classic = self._migration.downgrade(group)
        self._host.store(classic)
        for member in classic.members.values():
            self._classic.extend_session(classic, member)
        return classic

    def _setting(self, group: ConsumerGroup, name: str) -> int:
        overrides = self._cluster.configs.get((kw.ConfigResourceType.GROUP, group.group_id), {})
        value: int = self._config.groups.value(f"consumer.{name}", overrides)
        return value

    def store(self, group: ConsumerGroup) -> None:
        group.refresh_state()
        self._host.store(group)


def check_heartbeat(request: kw.ConsumerGroupHeartbeatRequest, assignors: Sequence[str]) -> None:
    """Raise ApiError if a request is invalid for any group.

    Args:
        assignors: the names of those that the broker supports
    """
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
        ("MemberId", request.member_id),
    ):
        if text is not None and not text.strip():
            raise invalid_request(f"{name} can't be empty.")
        if not fits(text):
            raise invalid_request(f"{name} can't be longer than 32767 bytes.")
    epoch = request.member_epoch
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise invalid_request("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions != []:
            raise invalid_request("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise invalid_request(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == AWAY and request.instance_id is None:
        raise invalid_request("InstanceId can't be null.")
    elif epoch < AWAY:
        raise invalid_request("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            kw.ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )
    if request.subscribed_topic_regex:
        matcher(request.subscribed_topic_regex)


class ClassicMembers:
    """Handles JoinGroup, SyncGroup and Heartbeat of members that speak the classic protocol.

    KIP-848 lets them take part during a migration. They take a step towards their target assignment
    with each JoinGroup. Heartbeats tell them to join again.
    """

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
