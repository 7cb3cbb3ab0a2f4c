"""The consumer group protocol (KIP-848): the broker assigns partitions, and heartbeats move members towards them.

A group and each member have an epoch. A change of members, subscriptions or topics raises the group's epoch and leads
to a new target assignment. Each member then gives up partitions, confirms that, and gets new ones as soon as no other
member has them. Members of the classic protocol take part with JoinGroup and SyncGroup.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from kafka_wire import (
    ConfigResourceType,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
    ConsumerGroupRegularExpressionValue,
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentAssignedPartition,
    ConsumerProtocolSubscription,
    ErrorCode,
    GroupMemberState,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequestMember,
    LeaveGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)

from krammar.broker.errors import ApiError
from krammar.broker.groups.assignors import ASSIGNORS
from krammar.broker.groups.group import CONSUMER, Group, Kind, State, join_error, sync_error
from krammar.broker.groups.member import AWAY, Member, Place, by_topic
from krammar.broker.groups.protocol import (
    JOIN,
    SYNC,
    ClassicProtocol,
    Client,
    Host,
    Key,
    member_key,
    protocols_of,
)
from krammar.broker.groups.records import fits, topics_of
from krammar.broker.patterns import whole_match
from krammar.util.extras import MissingExtra
from krammar.wire.errors import WireError

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig

STABLE = GroupMemberState.STABLE
UNREVOKED = GroupMemberState.UNREVOKED_PARTITIONS
UNRELEASED = GroupMemberState.UNRELEASED_PARTITIONS


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

    # -- ConsumerGroupHeartbeat

    def check(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """Raise ApiError if a request is invalid for any group."""
        for name, text in (
            ("GroupId", request.group_id),
            ("InstanceId", request.instance_id),
            ("RackId", request.rack_id),
            ("MemberId", request.member_id),
        ):
            if text is not None and not text.strip():
                raise _invalid(f"{name} can't be empty.")
            if not fits(text):
                raise _invalid(f"{name} can't be longer than 32767 bytes.")
        epoch = request.member_epoch
        if epoch == 0:
            if request.rebalance_timeout_ms == -1:
                raise _invalid("RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions != []:
                raise _invalid("TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise _invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                    "(re-)joining."
                )
        elif epoch == AWAY and request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
        elif epoch < AWAY:
            raise _invalid("MemberEpoch is invalid.")
        assignors = self._config.group_consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in assignors:
            raise ApiError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
                f"{', '.join(assignors)}.",
            )
        if request.subscribed_topic_regex:
            _matcher(request.subscribed_topic_regex)

    def heartbeat(
        self, group: Group, request: ConsumerGroupHeartbeatRequest, client: Client
    ) -> ConsumerGroupHeartbeatResponse:
        """Add or update a member, and move it towards its target assignment. Raises ApiError."""
        if request.member_epoch < 0:
            return self._leave(group, request)
        if group.kind is Kind.CLASSIC:
            self._upgrade(group, joins=request.member_epoch == 0)
        owned = _places(request)
        member = self._member(group, request, owned)
        before = member.assigned.keys()
        topics, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
        member.rack_id = request.rack_id or member.rack_id
        member.assignor = request.server_assignor or member.assignor
        if request.rebalance_timeout_ms != -1:
            member.rebalance_timeout = request.rebalance_timeout_ms
        member.client_id, member.client_host = client.client_id, client.host
        member.protocols = []
        self._advance(
            group,
            member,
            owned,
            member.topics if topics is None else topics,
            member.pattern if pattern is None else pattern,
        )
        self._expect(group, member)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._setting(group, "heartbeat.interval.ms"),
        )
        is_full = request.rebalance_timeout_ms != -1 and topics is not None and owned is not None
        if request.member_epoch == 0 or is_full or member.assigned.keys() != before:
            response.assignment = ConsumerGroupHeartbeatResponseAssignment(
                topic_partitions=topics_of(
                    member.assigned, ConsumerGroupHeartbeatResponseTopicPartitions
                )
            )
        return response

    def _member(
        self, group: Group, request: ConsumerGroupHeartbeatRequest, owned: Collection[Place] | None
    ) -> Member:
        """Find the member of a request, or add it. Raises ApiError."""
        member_id, instance_id, epoch = request.member_id, request.instance_id, request.member_epoch
        self._check_size(group, member_id)
        if epoch == 0:
            known = group.members.get(group.statics.get(instance_id or "", member_id))
            if instance_id is None or known is None:
                return known or _add(group, Member(member_id, instance_id, "", "", 0, 0, []))
            if not known.protocols and known.epoch != AWAY:
                raise ApiError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance_id} cannot join the group "
                    f"because the instance id is owned by {known.member_id} member.",
                )
            return self._replace(group, known, member_id)
        member = self._known(group, member_id, instance_id)
        if epoch > member.epoch:
            raise _fenced("greater", epoch, member.epoch)
        if epoch < member.epoch and not (
            # The response with the new epoch may have been lost.
            epoch == member.previous_epoch
            and owned is not None
            and member.assigned.keys() >= set(owned)
        ):
            raise _fenced("smaller", epoch, member.epoch)
        return member

    def _known(self, group: Group, member_id: str, instance_id: str | None) -> Member:
        """Like ``group.check_member``, with Kafka's messages."""
        try:
            return group.check_member(member_id, instance_id)
        except ApiError as error:
            message = f"Member {member_id} is not a member of group {group.group_id}."
            if error.code == ErrorCode.FENCED_INSTANCE_ID:
                message = (
                    f"Static member {member_id} with instance id {instance_id} was fenced by member "
                    f"{group.statics[instance_id or '']}."
                )
            elif instance_id is not None:
                message = f"Instance id {instance_id} is unknown."
            raise ApiError(error.code, message) from None

    def _check_size(self, group: Group, member_id: str) -> None:
        limit = self._config.group_consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _replace(self, group: Group, member: Member, member_id: str) -> Member:
        """Give a static member a new id; it keeps its partitions."""
        self._cancel(group, member)
        group.touched.update((member.member_id, member_id))
        assert member.instance_id is not None
        group.replace_static(member.instance_id, member_id)
        member.epoch = member.previous_epoch = 0
        member.revoking = {}
        return member

    def _leave(
        self, group: Group, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        if group.kind is Kind.CLASSIC:
            raise _not_found(f"Group {group.group_id} is not a consumer group.")
        member = self._known(group, request.member_id, request.instance_id)
        if request.member_epoch == AWAY:
            member.move_to(member.state, AWAY, member.assigned, {})
            group.touched.add(member.member_id)
            self._store(group)
        else:
            self._fence(group, [member])
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )

    # -- assignments

    def _advance(
        self,
        group: Group,
        member: Member,
        owned: Collection[Place] | None,
        topics: Sequence[str],
        pattern: str,
    ) -> None:
        """Apply the subscription of a member, assign partitions if needed, reconcile and store."""
        group.touched.add(member.member_id)
        ordered = tuple(sorted(set(topics)))
        changed = (ordered, pattern) != (member.topics, member.pattern)
        member.topics, member.pattern = ordered, pattern
        changed |= self._refresh_topics(group, changed)
        assignor = group.preferred_assignor() or self._config.group_consumer_assignors[0]
        if changed or group.protocol not in (None, assignor):
            group.generation += 1
        group.protocol = assignor
        due = group.assigned_at + self._setting(group, "assignment.interval.ms")
        if group.generation > group.assignment_epoch and self._host.now_ms() >= due:
            self._assign(group, assignor)
        self._reconcile(group, member, owned)
        self._store(group)

    def _refresh_topics(self, group: Group, changed: bool) -> bool:
        """Find the topics that the members subscribe to. Returns whether they or their partitions have changed."""
        seen = self._cluster.last_offset
        if not changed and seen == group.topics_seen:
            return False
        known, patterns = group.matches, {m.pattern for m in group.members.values()} - {""}
        group.matches = {}
        for pattern in sorted(patterns):
            found = known.get(pattern)
            if found is None or seen != group.topics_seen:
                names = sorted(filter(_matcher(pattern), self._cluster.topics))
                if found is None or found.topics != names:
                    found = ConsumerGroupRegularExpressionValue(
                        topics=names, body_version=seen, timestamp=self._host.now_ms()
                    )
            group.matches[pattern] = found
        group.topics_seen = seen
        group.subscriptions = group.subscribed_topics()
        topics = [
            t for name in sorted(group.subscriptions) if (t := self._cluster.topics.get(name))
        ]
        text = repr([(topic.topic_id, len(topic.partitions)) for topic in topics])
        digest = hashlib.sha256(text.encode()).digest()
        before = group.topics_hash
        group.topics_hash = int.from_bytes(digest[:8], "big", signed=True) if topics else 0
        return group.topics_hash != before

    def _assign(self, group: Group, assignor: str) -> None:
        """Compute the target assignment for the group's epoch."""
        topics = self._cluster.topics
        subscriptions = {}
        ids: dict[tuple[tuple[str, ...], str], frozenset[UUID]] = {}
        # Assignors give the first members more; static members keep their place after a restart.
        for member in sorted(
            group.members.values(),
            key=lambda m: (m.instance_id is None, m.instance_id or m.member_id),
        ):
            key = (member.topics, member.pattern)
            if key not in ids:
                match = group.matches.get(member.pattern)
                names = (*member.topics, *(match.topics if match is not None else ()))
                ids[key] = frozenset(topics[name].topic_id for name in names if name in topics)
            subscriptions[member.member_id] = ids[key]
        counts = {
            topic_id: len(self._cluster.topics_by_id[topic_id].partitions)
            for topic_id in frozenset().union(*ids.values())
        }
        current = {member_id: member.target for member_id, member in group.members.items()}
        targets = ASSIGNORS[assignor](subscriptions, counts, current)
        for member_id, member in group.members.items():
            if member.target != targets[member_id]:
                member.target = frozenset(targets[member_id])
                group.touched.add(member_id)
        group.assignment_epoch = group.generation
        group.assigned_at = self._host.now_ms()

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
        group.generation += 1
        if not group.members:
            group.assignment_epoch = group.generation
        self._refresh_topics(group, True)
        self._store(group)

    def _expect(self, group: Group, member: Member) -> None:
        """Restart the session timeout of a member."""
        timeout = member.session_timeout if member.protocols else 0
        self._schedule(
            group,
            member_key(member.member_id),
            timeout or self._setting(group, "session.timeout.ms"),
        )

    def _time_out(self, group: Group, member: Member) -> None:
        """Start the rebalance timeout of a member."""
        self._schedule(group, _deadline_key(member), member.rebalance_timeout)

    def _schedule(self, group: Group, key: Key, delay: int) -> None:
        def elapsed() -> None:
            member = group.members.get(key[1])
            if group.kind is Kind.CONSUMER and member is not None:
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
        self, group: Group, leaving: Sequence[LeaveGroupRequestMember]
    ) -> list[LeaveGroupResponseMember]:
        """Remove members that are identified by member id, instance id or both. Raises ApiError."""
        gone: dict[str, Member] = {}
        results = group.leave(
            leaving, lambda member_id: gone.update({member_id: group.members[member_id]})
        )
        if gone:
            self._fence(group, [*gone.values()])
        return results

    def join(self, group: Group, request: JoinGroupRequest, client: Client) -> JoinGroupResponse:
        """Add or update a member. Raises ApiError."""
        member_id, instance_id = request.member_id, request.group_instance_id
        if self._policy() == "DISABLED":
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._check_size(group, member_id)
        protocols = protocols_of(request)
        if not group.supports(request.protocol_type, protocols):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        try:
            subscription = _subscription(protocols[0][1])
        except WireError:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None
        if not member_id:
            member_id = str(uuid4())
            if instance_id is None and client.version >= 4:
                return join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        known = group.members.get(group.statics.get(instance_id or "", member_id))
        downgrade = False
        if known is None:
            member = _add(group, Member(member_id, instance_id, "", "", 0, 0, protocols))
        elif known.member_id != member_id and request.member_id:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        elif known.member_id != member_id:
            downgrade = not known.protocols and self._may_downgrade(group, [known.member_id])
            member = self._replace(group, known, member_id)
        else:
            member = known
        member.protocols = protocols
        member.session_timeout = request.session_timeout_ms
        member.rebalance_timeout = request.rebalance_timeout_ms
        member.client_id, member.client_host = client.client_id, client.host
        member.rack_id = subscription.rack_id or member.rack_id
        topics = self._cluster.topics
        owned = [
            (topics[owned.topic].topic_id, number)
            for owned in subscription.owned_partitions
            if owned.topic in topics
            for number in owned.partitions
        ]
        self._advance(group, member, owned, subscription.topics, member.pattern)
        response = JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=CONSUMER,
            protocol_name=protocols[0][0],
            member_id=member_id,
        )
        if downgrade:
            self._downgrade(group)
            return response
        self._expect(group, member)
        member.is_due = True
        self._time_out(group, member)
        return response

    def sync(self, group: Group, request: SyncGroupRequest) -> SyncGroupResponse:
        """Return the partitions of a member. Raises ApiError."""
        member = self._classic_member(group, request.member_id, request.group_instance_id)
        if request.generation_id != member.epoch:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (
            None,
            member.protocols[0][0],
        ):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.generation > member.epoch and member.state != UNREVOKED:
            self._call_back(group, member)
        self._cancel(group, member)
        self._expect(group, member)
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=self._encoded(member),
        )

    def classic_heartbeat(self, group: Group, request: HeartbeatRequest) -> None:
        """Extend a session. Raises ApiError; REBALANCE_IN_PROGRESS if the member must join again."""
        member = self._classic_member(group, request.member_id, request.group_instance_id)
        if request.generation_id != member.epoch:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        self._expect(group, member)
        if self._refresh_topics(group, False):
            group.generation += 1
            self._store(group)
        if (
            member.epoch < group.generation
            or member.state == UNREVOKED
            or (
                member.state == UNRELEASED
                and (member.target - member.assigned.keys()).isdisjoint(
                    group.owned_by_others(member)
                )
            )
        ):
            self._call_back(group, member)

    def _call_back(self, group: Group, member: Member) -> None:
        """Tell a member to join again within its rebalance timeout."""
        if not member.is_due:
            member.is_due = True
            self._time_out(group, member)
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _classic_member(self, group: Group, member_id: str, instance_id: str | None) -> Member:
        member = group.check_member(member_id, instance_id)
        if not member.protocols:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # -- migration

    def _policy(self) -> str:
        return self._config.group_consumer_migration_policy.upper()

    def _upgrade(self, group: Group, *, joins: bool) -> None:
        """Turn a classic group into a consumer group with the same members and assignments. Raises ApiError."""
        about = f"Cannot upgrade classic group {group.group_id} to consumer group because"
        if not joins:
            raise _not_found(f"Group {group.group_id} is not a consumer group.")
        if self._policy() not in ("UPGRADE", "BIDIRECTIONAL"):
            raise _not_found(f"{about} online upgrade is disabled.")
        if group.protocol_type != CONSUMER:
            raise _not_found(f"{about} the group does not use the consumer embedded protocol.")
        if len(group.members) > self._config.group_consumer_max_size:
            raise _not_found(f"{about} the group size exceeds the consumer group maximum size.")
        try:
            found = {
                member.member_id: (
                    _subscription(member.metadata(group.protocol) or member.protocols[0][1]),
                    self._decoded(member.assignment),
                )
                for member in group.members.values()
            }
        except WireError:
            raise _not_found(f"{about} the embedded consumer protocol is malformed.") from None
        for member_id in list(group.pending):
            group.remove(member_id)
        for member in group.members.values():
            group.answer_join(member, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            group.answer_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
            subscription, places = found[member.member_id]
            member.topics = tuple(sorted(set(subscription.topics)))
            member.rack_id = subscription.rack_id
            member.epoch = group.generation
            member.target = frozenset(places)
            member.move_to(STABLE, group.generation, dict.fromkeys(places, group.generation), {})
            self._expect(group, member)
        self._host.cancel(group, JOIN)
        self._host.cancel(group, SYNC)
        group.unsynced.clear()
        group.kind, group.protocol = Kind.CONSUMER, None
        group.assignment_epoch = group.generation

    def _may_downgrade(self, group: Group, leaving: Collection[str]) -> bool:
        return (
            group.uses_only_classic(leaving)
            and self._policy() in ("DOWNGRADE", "BIDIRECTIONAL")
            and len(group.members) - len(leaving) <= self._config.group_max_size
        )

    def _downgrade(self, group: Group) -> None:
        """Turn a consumer group whose members all speak the classic protocol into a classic group."""
        for member in group.members.values():
            member.assignment = self._encoded(member)
            self._cancel(group, member)
        group.kind = Kind.CLASSIC
        group.protocol = group.select_protocol()
        group.leader = next(iter(group.members))
        group.move_to(State.STABLE, self._host.now_ms())
        self._host.store(group)
        for member in group.members.values():
            self._classic.extend_session(group, member)

    def _encoded(self, member: Member) -> bytes:
        """Encode the partitions of a member for the classic protocol, in the version of its subscription."""
        topics = self._cluster.topics_by_id
        return ConsumerProtocolAssignment(
            version=min(max(int.from_bytes(member.protocols[0][1][:2], "big", signed=True), 0), 3),
            assigned_partitions=[
                ConsumerProtocolAssignmentAssignedPartition(
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
        topics = self._cluster.topics
        found, _ = ConsumerProtocolAssignment.decode_from(_known_version(data), 0)
        return {
            (topics[each.topic].topic_id, number)
            for each in found.assigned_partitions
            if each.topic in topics
            for number in each.partitions
        }

    def _setting(self, group: Group, name: str) -> int:
        overrides = self._cluster.configs.get((ConfigResourceType.GROUP, group.group_id), {})
        value: int = self._config.groups.value(f"consumer.{name}", overrides)
        return value

    def _store(self, group: Group) -> None:
        group.refresh_state()
        self._host.store(group)


def _add(group: Group, member: Member) -> Member:
    group.add(member, CONSUMER, None)
    return member


def _places(request: ConsumerGroupHeartbeatRequest) -> set[Place] | None:
    """Return the partitions that a member reports; None if it reports no change."""
    if request.topic_partitions is None:
        return None
    return {(t.topic_id, number) for t in request.topic_partitions for number in t.partitions}


def _still_owns(owned: Collection[Place] | None, lost: Collection[Place]) -> bool:
    return owned is None or any(place in lost for place in owned)


def _deadline_key(member: Member) -> Key:
    return (2, member.member_id)


def _matcher(pattern: str) -> Callable[[str], bool]:
    try:
        return whole_match(pattern)
    except (ValueError, MissingExtra) as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}",
        ) from None


def _subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode the metadata of a member of the classic protocol. Raises WireError."""
    return ConsumerProtocolSubscription.decode_from(_known_version(data), 0)[0]


def _known_version(data: bytes) -> bytes:
    """Replace a version that is newer than the newest known one, whose layout begins like it."""
    return data if data[:2] <= b"\0\3" else b"\0\3" + data[2:]


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _not_found(message: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _fenced(what: str, epoch: int, known: int) -> ApiError:
    return ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {what} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )
