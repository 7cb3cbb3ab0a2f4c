"""The consumer group protocol (KIP-848): the broker assigns partitions, and heartbeats move members towards them.

A group and each member have an epoch. A change of members, subscriptions or topics raises the group's epoch and leads
to a new target assignment. Each member then gives up partitions, confirms that, and gets new ones as soon as no other
member has them. Members of the classic protocol take part with JoinGroup and SyncGroup.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import kafka_wire as kw

from krammar.broker.errors import ApiError, invalid_request
from krammar.broker.groups.assignors import Assignment
from krammar.broker.groups.group import (
    CONSUMER,
    Group,
    GroupKind,
    GroupState,
    Key,
    as_version,
    read_subscription,
)
from krammar.broker.groups.matching import Matching, matcher
from krammar.broker.groups.member import AWAY, Member, Place, by_topic, join_error, places_of
from krammar.broker.groups.protocol import (
    JOIN,
    SYNC,
    ClassicProtocol,
    GroupClient,
    Host,
    check_protocol,
    member_key,
)
from krammar.broker.groups.records import fits, topics_of
from krammar.broker.groups.targets import QUICK, apply, problem_of
from krammar.wire.errors import WireError

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig

STABLE = kw.GroupMemberState.STABLE
UNREVOKED = kw.GroupMemberState.UNREVOKED_PARTITIONS
UNRELEASED = kw.GroupMemberState.UNRELEASED_PARTITIONS


class ConsumerProtocol:
    """Handles the requests of consumer groups, and their time-outs."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        cluster: ClusterMetadata,
        classic: ClassicProtocol,
    ) -> None:
        self._host = host
        self._config = config
        self._cluster = cluster
        self._classic = classic
        self._matching = Matching(cluster)

    # -- ConsumerGroupHeartbeat

    def check(self, request: kw.ConsumerGroupHeartbeatRequest) -> None:
        """Raise ApiError if a request is invalid for any group."""
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
        assignors = self._config.group_consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in assignors:
            raise ApiError(
                kw.ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
                f"{', '.join(assignors)}.",
            )
        if request.subscribed_topic_regex:
            matcher(request.subscribed_topic_regex)

    def heartbeat(
        self, group: Group, request: kw.ConsumerGroupHeartbeatRequest, client: GroupClient
    ) -> kw.ConsumerGroupHeartbeatResponse:
        """Add or update a member, and move it towards its target assignment. Raises ApiError."""
        if group.kind is GroupKind.CLASSIC and request.member_epoch != 0:
            raise _not_found(f"Group {group.group_id} is not a consumer group.")
        if request.member_epoch < 0:
            return self._leave(group, request)
        if group.kind is GroupKind.CLASSIC:
            self._upgrade(group)
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
        self._advance(group, member, owned, topics, pattern)
        self._expect(group, member)
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
        group: Group,
        request: kw.ConsumerGroupHeartbeatRequest,
        owned: Collection[Place] | None,
    ) -> Member:
        """Find the member of a request, or add it. Raises ApiError."""
        member_id, instance_id, epoch = request.member_id, request.instance_id, request.member_epoch
        self._check_size(group, member_id)
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
            return self._replace(group, known, member_id)
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

    def _check_size(self, group: Group, member_id: str) -> None:
        limit = self._config.group_consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise ApiError(
                kw.ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _replace(self, group: Group, member: Member, member_id: str) -> Member:
        """Give a static member a new id; it keeps its partitions."""
        self._cancel(group, member)
        group.touched.update((member.member_id, member_id))
        group.replace_static(member, member_id)
        member.epoch = member.previous_epoch = 0
        member.revoking = {}
        return member

    def _leave(
        self, group: Group, request: kw.ConsumerGroupHeartbeatRequest
    ) -> kw.ConsumerGroupHeartbeatResponse:
        member = group.check_member(request.member_id, request.instance_id)
        if request.member_epoch == AWAY:
            member.move_to(member.state, AWAY, member.assigned, {})
            group.touched.add(member.member_id)
            self._store(group)
        else:
            self._fence(group, [member])
        return kw.ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )

    # -- assignments

    def _advance(
        self,
        group: Group,
        member: Member,
        owned: Collection[Place] | None,
        topics: Sequence[str] | None,
        pattern: str | None,
    ) -> None:
        """Apply the subscription of a member, assign partitions if needed, reconcile and store.

        Topics and a pattern that are None have not changed.
        """
        group.touched.add(member.member_id)
        before = (member.topics, member.pattern)
        if topics is not None:
            group.subscribe(member, tuple(sorted(set(topics))))
        member.pattern = member.pattern if pattern is None else pattern
        changed = (member.topics, member.pattern) != before
        changed |= self._refresh_topics(group, changed)
        assignor = group.preferred_assignor() or self._config.group_consumer_assignors[0]
        if changed or group.protocol not in (None, assignor):
            group.group_epoch += 1
        group.protocol = assignor
        due = group.assigned_at + self._setting(group, "assignment.interval.ms")
        stale = group.group_epoch > group.assignment_epoch and not group.assigning
        if stale and self._host.now_ms() >= due:
            self._assign(group, assignor)
        self._reconcile(group, member, owned)
        self._store(group)

    def _refresh_topics(self, group: Group, changed: bool) -> bool:
        """Find the topics that the members subscribe to. Returns whether they or their partitions have changed."""
        seen = self._cluster.last_offset
        if not changed and not group.behind and seen == group.topics_seen:
            return False
        self._matching.refresh(group, self._host.now_ms())
        group.topics_seen = seen
        group.subscriptions = group.subscribed_topics()
        known = self._cluster.topics
        topics = [known[name] for name in sorted(group.subscribed_topics() & known.keys())]
        text = repr([(topic.topic_id, len(topic.partitions)) for topic in topics])
        digest = hashlib.sha256(text.encode()).digest()
        before = group.topics_hash
        group.topics_hash = int.from_bytes(digest[:8], "big", signed=True) if topics else 0
        return group.topics_hash != before

    def _assign(self, group: Group, assignor: str) -> None:
        """Compute the target assignment for the group's epoch. A large one is ready at a later heartbeat."""
        problem = problem_of(group, self._cluster, assignor)
        if problem.size <= QUICK:
            apply(group, problem, problem.solve(), self._host.now_ms())
            return

        def solved(targets: Assignment) -> None:
            group.assigning = False
            if group.kind is GroupKind.CONSUMER and group.members:
                apply(group, problem, targets, self._host.now_ms())
                with suppress(ApiError):  # the host has restored the group
                    self._store(group)

        group.assigning = True
        self._host.in_thread(group, problem.solve, solved)

    def _reconcile(self, group: Group, member: Member, owned: Collection[Place] | None) -> None:
        """Move a member one step towards its target; ``owned`` are the partitions that it reports."""
        if member.is_reconciled(group.assignment_epoch):
            return
        if member.state == UNREVOKED and _still_owns(owned, member.revoking):
            return
        epoch = member.epoch + (member.state == UNREVOKED)
        kept = {place: e for place, e in member.assigned.items() if place in member.target}
        lost = {place: e for place, e in member.assigned.items() if place not in member.target}
        if lost and _still_owns(owned, lost):
            member.move_to(UNREVOKED, epoch, kept, lost)
            if not member.protocols:
                self._time_out(group, member)
            return
        missing = member.target - kept.keys()
        free = missing - group.owned_by_others(member) if missing else missing
        kept |= dict.fromkeys(free, group.assignment_epoch)
        state = STABLE if free == missing else UNRELEASED
        member.move_to(state, group.assignment_epoch, kept, {})
        if not member.protocols:
            self._host.cancel(group, _deadline_key(member))

    # -- members that go

    def _fence(self, group: Group, members: Sequence[Member]) -> None:
        """Remove members. If all others speak the classic protocol, the group becomes a classic one again."""
        gone = [member.member_id for member in members]
        downgrade = (
            any(not member.protocols for member in members)
            and len(group.members) > len(gone)
            and self._may_downgrade(group, gone)
        )
        for member in members:
            self._cancel(group, member)
            group.remove(member.member_id)
        if downgrade:
            self._downgrade(group)
            self._classic.rebalance(group)
            return
        group.group_epoch += 1
        if not group.members:
            group.assignment_epoch = group.group_epoch
        self._refresh_topics(group, True)
        self._store(group)

    def _expect(self, group: Group, member: Member) -> None:
        """Restart the session timeout of a member."""
        timeout = member.session_timeout if member.protocols else 0
        delay = timeout or self._setting(group, "session.timeout.ms")
        self._schedule(group, member_key(member.member_id), delay)

    def _time_out(self, group: Group, member: Member) -> None:
        """Start the rebalance timeout of a member."""
        self._schedule(group, _deadline_key(member), member.rebalance_timeout)

    def _schedule(self, group: Group, key: Key, delay: int) -> None:
        def elapsed() -> None:
            member = group.members.get(key[1])
            if group.kind is GroupKind.CONSUMER and member is not None:
                with suppress(ApiError):  # the host has started all time-outs again
                    self._fence(group, [member])

        self._host.schedule(group, key, delay, elapsed)

    def _cancel(self, group: Group, member: Member) -> None:
        self._host.cancel(group, member_key(member.member_id))
        self._host.cancel(group, _deadline_key(member))
        member.is_due = False

    def loaded(self, group: Group) -> None:
        """Start the time-outs of a group that was loaded from the log."""
        for member in group.members.values():
            self._expect(group, member)
            if member.state == UNREVOKED and not member.protocols:
                self._time_out(group, member)

    # -- members of the classic protocol

    def leave(
        self, group: Group, leaving: Sequence[kw.LeaveGroupRequest.MemberIdentity]
    ) -> list[kw.LeaveGroupResponse.MemberResponse]:
        """Remove members that are identified by member id, instance id or both. Raises ApiError."""
        gone: dict[str, Member] = {}
        results = group.leave(leaving, lambda name: gone.update({name: group.members[name]}))
        if gone:
            self._fence(group, [*gone.values()])
        return results

    def join(
        self, group: Group, request: kw.JoinGroupRequest, client: GroupClient
    ) -> kw.JoinGroupResponse:
        """Add or update a member. Raises ApiError."""
        member_id, instance_id = request.member_id, request.group_instance_id
        if self._policy() == "DISABLED":
            raise ApiError(kw.ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._check_size(group, member_id)
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
            downgrade = not member.protocols and self._may_downgrade(group, [member.member_id])
            self._replace(group, member, member_id)
        member.update(request)
        member.client_id, member.client_host = client.client_id, client.host
        member.rack_id = subscription.rack_id or member.rack_id
        owned = self._with_ids(subscription.owned_partitions)
        self._advance(group, member, owned, subscription.topics, None)
        response = kw.JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=CONSUMER,
            protocol_name=request.protocols[0].name,
            member_id=member_id,
        )
        if downgrade:
            self._downgrade(group)
            return response
        self._expect(group, member)
        member.is_due = True
        self._time_out(group, member)
        return response

    def sync(self, group: Group, request: kw.SyncGroupRequest) -> kw.SyncGroupResponse:
        """Return the partitions of a member. Raises ApiError."""
        member = group.check_classic(request)
        check_protocol(request, CONSUMER, member.protocols[0][0])
        if group.group_epoch > member.epoch and member.state != UNREVOKED:
            self._call_back(group, member)
        self._cancel(group, member)
        self._expect(group, member)
        return kw.SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=self._encoded(member),
        )

    def classic_heartbeat(self, group: Group, request: kw.HeartbeatRequest) -> None:
        """Extend a session. Raises ApiError; REBALANCE_IN_PROGRESS if the member must join again."""
        member = group.check_classic(request)
        self._expect(group, member)
        if self._refresh_topics(group, False):
            group.group_epoch += 1
            self._store(group)
        must_join = member.epoch < group.group_epoch or member.state == UNREVOKED
        if not must_join and member.state == UNRELEASED:
            missing = member.target - member.assigned.keys()
            must_join = missing.isdisjoint(group.owned_by_others(member))
        if must_join:
            self._call_back(group, member)

    def _call_back(self, group: Group, member: Member) -> None:
        """Tell a member to join again within its rebalance timeout."""
        if not member.is_due:
            member.is_due = True
            self._time_out(group, member)
        raise ApiError(kw.ErrorCode.REBALANCE_IN_PROGRESS)

    # -- migration

    def _policy(self) -> str:
        return self._config.group_consumer_migration_policy.upper()

    def _upgrade(self, group: Group) -> None:
        """Turn a classic group into a consumer group with the same members and assignments. Raises ApiError."""
        about = f"Cannot upgrade classic group {group.group_id} to consumer group because"
        if self._policy() not in ("UPGRADE", "BIDIRECTIONAL"):
            raise _not_found(f"{about} online upgrade is disabled.")
        if group.protocol_type != CONSUMER:
            raise _not_found(f"{about} the group does not use the consumer embedded protocol.")
        if len(group.members) > self._config.group_consumer_max_size:
            raise _not_found(f"{about} the group size exceeds the consumer group maximum size.")
        try:
            found = {
                member.member_id: (
                    read_subscription(member.metadata(group.protocol) or member.protocols[0][1]),
                    self._decoded(member.assignment),
                )
                for member in group.members.values()
            }
        except WireError:
            raise _not_found(f"{about} the embedded consumer protocol is malformed.") from None
        for member_id in list(group.pending):
            group.remove(member_id)
        for member in group.members.values():
            member.fail(kw.ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            subscription, places = found[member.member_id]
            group.subscribe(member, tuple(sorted(set(subscription.topics))))
            member.rack_id = subscription.rack_id
            member.epoch = group.group_epoch
            member.target = frozenset(places)
            member.move_to(STABLE, group.group_epoch, dict.fromkeys(places, group.group_epoch), {})
            self._expect(group, member)
        self._host.cancel(group, JOIN)
        self._host.cancel(group, SYNC)
        group.unsynced.clear()
        group.kind, group.protocol = GroupKind.CONSUMER, None
        group.assignment_epoch = group.group_epoch

    def _may_downgrade(self, group: Group, leaving: Collection[str]) -> bool:
        return (
            all(m.protocols for m in group.members.values() if m.member_id not in leaving)
            and self._policy() in ("DOWNGRADE", "BIDIRECTIONAL")
            and len(group.members) - len(leaving) <= self._config.group_max_size
        )

    def _downgrade(self, group: Group) -> None:
        """Turn a consumer group whose members all speak the classic protocol into a classic group."""
        for member in group.members.values():
            member.assignment = self._encoded(member)
            self._cancel(group, member)
        group.kind = GroupKind.CLASSIC
        group.protocol = group.select_protocol()
        group.leader = next(iter(group.members))
        group.move_to(GroupState.STABLE, self._host.now_ms())
        self._host.store(group)
        for member in group.members.values():
            self._classic.extend_session(group, member)

    def _encoded(self, member: Member) -> bytes:
        """Encode the partitions of a member for the classic protocol, in the version of its subscription."""
        topics = self._cluster.topics_by_id
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

    def _decoded(self, data: bytes) -> set[Place]:
        """Decode an assignment of the classic protocol. Raises WireError."""
        if not data:
            return set()
        found, _ = kw.ConsumerProtocolAssignment.decode_from(as_version(data), 0)
        return self._with_ids(found.assigned_partitions)

    def _with_ids(self, assigned: Iterable[Any]) -> set[Place]:
        """Return the partitions of topics by name, except of topics that do not exist."""
        topics = self._cluster.topics
        return {
            (topics[each.topic].topic_id, number)
            for each in assigned
            if each.topic in topics
            for number in each.partitions
        }

    def _setting(self, group: Group, name: str) -> int:
        overrides = self._cluster.configs.get((kw.ConfigResourceType.GROUP, group.group_id), {})
        value: int = self._config.groups.value(f"consumer.{name}", overrides)
        return value

    def _store(self, group: Group) -> None:
        group.refresh_state()
        self._host.store(group)


def _still_owns(owned: Collection[Place] | None, lost: Collection[Place]) -> bool:
    return owned is None or any(place in lost for place in owned)


def _deadline_key(member: Member) -> Key:
    return (2, member.member_id)


def _not_found(message: str) -> ApiError:
    return ApiError(kw.ErrorCode.GROUP_ID_NOT_FOUND, message)
