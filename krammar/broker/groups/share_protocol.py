"""The share group protocol (KIP-932): the broker assigns partitions, and several members can read the same one.

A group and each member have an epoch. A change of members, subscriptions or topics raises the group's
epoch and leads to a new target assignment, which members get with their next heartbeat. Before a
partition is assigned for the first time, its state is initialized at the share coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

import kafka_wire as kw

from krammar.broker.errors import ApiError, invalid_request
from krammar.broker.groups.assignors import Assignment, assign_shared
from krammar.broker.groups.host import GroupClient, Host, session_key
from krammar.broker.groups.matching import topics_digest
from krammar.broker.groups.member import Place
from krammar.broker.groups.records import fits, topics_of
from krammar.broker.groups.share_group import InitializedTopic, ShareGroup, ShareMember
from krammar.broker.share.records import UNKNOWN
from krammar.broker.share.state import ShareStates

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig

# The epoch of a member that leaves.
LEAVING = -1


@dataclass(eq=False)
class ShareProtocol:
    """Handles the heartbeats of share groups, and their time-outs.

    Attributes:
        quick_size: the size of an assignment that takes about 20 ms: the sum of the partitions, and
            of the topics of each member. A larger one is computed in a thread.
        portion: the number of partitions whose state one heartbeat initializes; the next heartbeats
            initialize the others
    """

    quick_size: ClassVar[int] = 10_000
    portion: ClassVar[int] = 200

    _host: Host
    _config: BrokerConfig
    _cluster: ClusterMetadata
    _states: ShareStates

    def heartbeat(
        self, group: ShareGroup, request: kw.ShareGroupHeartbeatRequest, client: GroupClient
    ) -> kw.ShareGroupHeartbeatResponse:
        """Add, update or remove a member. Raises ApiError."""
        if request.member_epoch == LEAVING:
            return self._leave(group, request.member_id)
        member = self._member(group, request.member_id, request.member_epoch)
        before = member.assigned
        topics = request.subscribed_topic_names
        member.rack_id = request.rack_id or member.rack_id
        member.client_id, member.client_host = client.client_id, client.host
        group.touched.add(member.member_id)
        subscription = member.topics
        if topics is not None:
            group.subscribe(member, topics)
        if self._refresh_topics(group, member.topics != subscription):
            group.group_epoch += 1
        due = group.assigned_at + self._setting(group, "assignment.interval.ms")
        stale = group.group_epoch > group.assignment_epoch and not group.assigning
        if stale and self._host.now_ms() >= due:
            self._assign(group)
        group.reconcile(member)
        self._host.store(group)
        self._expect(group, member)
        response = kw.ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._setting(group, "heartbeat.interval.ms"),
        )
        if request.member_epoch == 0 or topics is not None or member.assigned != before:
            response.assignment = kw.ShareGroupHeartbeatResponse.Assignment(
                topic_partitions=topics_of(
                    member.assigned, kw.ShareGroupHeartbeatResponse.TopicPartitions
                )
            )
        return response

    def _member(self, group: ShareGroup, member_id: str, epoch: int) -> ShareMember:
        """Find the member of a request, or add it. Raises ApiError."""
        limit = self._config.group_share_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise ApiError(
                kw.ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {limit} members.",
            )
        if epoch == 0:
            return group.members.get(member_id) or group.add(ShareMember(member_id))
        member = group.check_member(member_id)
        if epoch > member.epoch or epoch not in (member.epoch, member.previous_epoch):
            what = "greater" if epoch > member.epoch else "smaller"
            raise ApiError(
                kw.ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a {what} member epoch ({epoch}) than the one known by "
                f"the group coordinator ({member.epoch}). The member must abandon all its "
                "partitions and rejoin.",
            )
        return member

    # -- topics and assignments

    def _refresh_topics(self, group: ShareGroup, changed: bool) -> bool:
        """Initialize the state of partitions that the group has not read before.

        Returns whether the subscribed topics, or their initialized partitions, have changed.
        """
        seen = self._cluster.last_offset
        if not changed and seen == group.topics_seen:
            return False
        group.topics_seen = seen
        known = self._cluster.topics
        for topic_id in group.initialized.keys() - self._cluster.topics_by_id.keys():
            del group.initialized[topic_id]
        topics = [known[name] for name in sorted(group.subscribed.names & known.keys())]
        before, group.topics_hash = group.topics_hash, topics_digest(topics)
        changed |= group.topics_hash != before
        left = self.portion
        for topic in topics:
            # As in Kafka, the group reads new partitions of a known topic from their beginning.
            start = 0 if topic.topic_id in group.initialized else UNKNOWN
            own = group.initialized.get(topic.topic_id) or InitializedTopic(topic.name)
            for number in range(own.first_missing(), len(topic.partitions)):
                if number in own.partitions:
                    continue
                if left == 0 or not self._initialize(group, topic.topic_id, number, start):
                    group.topics_seen = -1  # the next heartbeat continues
                    return changed
                left -= 1
                own.partitions.add(number)
                group.initialized[topic.topic_id] = own
                changed = True
        return changed

    def _initialize(self, group: ShareGroup, topic_id: UUID, number: int, start: int) -> bool:
        """Initialize the state of a partition. Returns False if the share coordinator cannot store it."""
        try:
            self._states.initialize(group.group_id, topic_id, number, group.group_epoch, start)
        except ApiError:
            return False
        return True

    def _assign(self, group: ShareGroup) -> None:
        """Compute the target assignment for the group's epoch. A large one is ready at a later heartbeat."""
        epoch = group.group_epoch
        known = self._cluster.topics
        ids = {name: known[name].topic_id for name in group.subscribed.names & known.keys()}
        counts = {
            topic_id: group.initialized[topic_id].first_missing()
            for topic_id in ids.values()
            if topic_id in group.initialized
        }
        members = [(each.member_id, each.topics) for each in group.members.values()]
        current = {each.member_id: each.target for each in group.members.values()}
        solve = partial(_solve, members, ids, counts, current)
        if sum(counts.values()) + sum(len(topics) for _, topics in members) <= self.quick_size:
            self._apply(group, epoch, solve())
            return

        def solved(targets: Assignment) -> None:
            group.assigning = False
            if group.members:
                self._apply(group, epoch, targets)
                with suppress(ApiError):  # the host has restored the group
                    self._host.store(group)

        group.assigning = True
        self._host.in_thread(group, solve, solved)

    def _apply(self, group: ShareGroup, epoch: int, targets: Assignment) -> None:
        """Give the members their targets. Members that joined meanwhile get theirs with the next assignment."""
        for member_id, member in group.members.items():
            places = targets.get(member_id)
            if places is not None and member.target != places:
                member.target = frozenset(places)
                group.touched.add(member_id)
        group.assignment_epoch = epoch
        group.assigned_at = self._host.now_ms()

    # -- members that go

    def _leave(self, group: ShareGroup, member_id: str) -> kw.ShareGroupHeartbeatResponse:
        self._fence(group, group.check_member(member_id))
        return kw.ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=LEAVING)

    def _fence(self, group: ShareGroup, member: ShareMember) -> None:
        """Remove a member."""
        self._host.cancel(group, session_key(member.member_id))
        group.remove(member)
        group.group_epoch += 1
        if not group.members:
            group.assignment_epoch = group.group_epoch
        self._refresh_topics(group, True)
        self._host.store(group)

    def _expect(self, group: ShareGroup, member: ShareMember) -> None:
        """Restart the session timeout of a member."""

        def elapsed() -> None:
            if group.members.get(member.member_id) is member:
                with suppress(ApiError):  # the host has started all time-outs again
                    self._fence(group, member)

        delay = self._setting(group, "session.timeout.ms")
        self._host.schedule(group, session_key(member.member_id), delay, elapsed)

    def loaded(self, group: ShareGroup) -> None:
        """Start the time-outs of a group that was loaded from the log."""
        for member in group.members.values():
            self._expect(group, member)

    def _setting(self, group: ShareGroup, name: str) -> int:
        overrides = self._cluster.configs.get((kw.ConfigResourceType.GROUP, group.group_id), {})
        value: int = self._config.groups.value(f"share.{name}", overrides)
        return value


def _solve(
    members: Sequence[tuple[str, Sequence[str]]],
    ids: Mapping[str, UUID],
    counts: Mapping[UUID, int],
    current: Mapping[str, frozenset[Place]],
) -> Assignment:
    """Compute the targets of all members, by member id. Another thread may call this.

    Args:
        members: member ids with the names of their topics
        ids: topic ids by name; ``counts`` the number of partitions with state, by topic id
        current: the previous targets
    """
    subscriptions = {
        member_id: frozenset(ids[name] for name in topics if ids.get(name) in counts)
        for member_id, topics in members
    }
    return assign_shared(subscriptions, counts, current)


def check_share_heartbeat(request: kw.ShareGroupHeartbeatRequest) -> None:
    """Raise ApiError if a request is invalid for any group."""
    for name, text in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise invalid_request(f"{name} can't be empty.")
        if not fits(text):
            raise invalid_request(f"{name} can't be longer than 32767 bytes.")
    if request.member_epoch == 0:
        if not request.subscribed_topic_names:
            raise invalid_request("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVING:
        raise invalid_request("MemberEpoch is invalid.")
