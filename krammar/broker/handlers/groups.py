"""FindCoordinator, the protocols of groups, and the administration of groups.

FindCoordinator, v0 to v6:

- v1 asks for the coordinators of transactions, too (KIP-98). v4 asks for several keys (KIP-699).
- v6 asks for the coordinators of share partitions, too (KIP-932).

JoinGroup, v0 to v9:

- v0 has no rebalance timeout: the session timeout counts.
- v4 makes a new member join again with the id that it gets (KIP-394). v5 has static members
  (KIP-345).
- v7 returns the protocol type (KIP-559), and null for no protocol; older versions return an empty
  text.
- v9 tells a static leader that returns to skip the assignment (KIP-814).

SyncGroup, v0 to v5: v3 has static members (KIP-345); v5 compares the protocol (KIP-559).

Heartbeat, v0 to v4: v3 has static members (KIP-345).

LeaveGroup, v0 to v5: v3 removes several members, static ones, too (KIP-345).

ConsumerGroupHeartbeat, v0 to v1 (KIP-848): in v0, the broker chooses the member id; in v1, the
member does (KIP-1082), and it can subscribe by a pattern.

ConsumerGroupDescribe, v0 to v1 (KIP-848): v1 names the protocol of each member (KIP-1099).

DescribeGroups, v0 to v6: v3 asks for authorized operations (KIP-430), v4 names static members
(KIP-345), and v6 reports GROUP_ID_NOT_FOUND (KIP-1043).

ListGroups, v0 to v5: v4 filters by state (KIP-518), v5 by type (KIP-848).

DeleteGroups, v0 to v3 (KIP-229): v3 has error messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

import kafka_wire as kw

from krammar.authorization.operations import NOT_ASKED
from krammar.broker.cluster import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from krammar.broker.errors import ApiError, errors_in
from krammar.broker.groups.classic_group import ClassicGroup
from krammar.broker.groups.consumer_group import ConsumerGroup
from krammar.broker.groups.group import GroupState
from krammar.broker.groups.host import AnyGroup, GroupClient, TopicRights
from krammar.broker.groups.member import AWAY, Member, Place, by_topic
from krammar.broker.groups.share_offsets import not_a
from krammar.broker.metadata_records import GROUP_VERSION
from krammar.broker.session import GROUP_OPERATIONS
from krammar.broker.share.state import parse_coordinator_key
from krammar.util.turns import Steps, one_by_one

if TYPE_CHECKING:
    from krammar.broker.authorization import BrokerAuthorizer
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig
    from krammar.broker.groups.coordinator import GroupCoordinator
    from krammar.broker.nodes import Nodes
    from krammar.broker.session import Session
    from krammar.broker.topics import Topics


# The internal topics whose leaders are the coordinators, by type.
_COORDINATORS: dict[int, str] = {
    kw.CoordinatorType.GROUP: OFFSETS_TOPIC,
    kw.CoordinatorType.TRANSACTION: TRANSACTIONS_TOPIC,
    kw.CoordinatorType.SHARE: SHARE_STATE_TOPIC,
}
_FIRST_WITH_SHARE = 6

# Encoding so many names takes 5 ms. A thread encodes the response to a request that needs several
# slices.
_LONG = 10_000


@dataclass(eq=False)
class GroupHandlers:
    # The number of members that leave a group in one step: usually all of them, so that the others
    # rebalance once.
    leaving_at_once: ClassVar[int] = 1000

    config: BrokerConfig
    nodes: Nodes
    cluster: ClusterMetadata
    topics: Topics
    groups: GroupCoordinator
    authorizer: BrokerAuthorizer | None

    def find_coordinator(
        self, session: Session, request: kw.FindCoordinatorRequest, version: int
    ) -> Steps[kw.FindCoordinatorResponse]:
        find = partial(self._coordinator, session, request.key_type, version)
        keys = request.coordinator_keys if version >= 4 else [request.key]
        found = yield from one_by_one(find, keys)
        if version >= 4:
            return kw.FindCoordinatorResponse(coordinators=found)
        return kw.FindCoordinatorResponse(
            error_code=found[0].error_code,
            error_message=found[0].error_message,
            node_id=found[0].node_id,
            host=found[0].host,
            port=found[0].port,
        )

    def _coordinator(
        self, session: Session, key_type: int, version: int, key: str
    ) -> kw.FindCoordinatorResponse.Coordinator:
        """Find the node that leads a key's partition of the internal topic, which is created if missing."""
        found = kw.FindCoordinatorResponse.Coordinator(key=key, node_id=-1, host="", port=-1)
        message = f"Coordinators of type {key_type} are not supported."
        code = kw.ErrorCode.INVALID_REQUEST
        name = _COORDINATORS.get(key_type)
        if name == SHARE_STATE_TOPIC and not (version >= _FIRST_WITH_SHARE and _is_share_key(key)):
            name = None
        if name is not None:
            code = kw.ErrorCode.COORDINATOR_NOT_AVAILABLE
            node_id = -1
            with suppress(ApiError):
                topic = self.topics.ensure_internal(name)
                index = self.topics.coordinating_partition(name, key)
                if not self.topics.is_offline(topic, index):
                    node_id = topic.partitions[index].leader
            if node_id in self.nodes.running:
                code = kw.ErrorCode.NONE
                endpoint = self.nodes.endpoint(node_id, session.listener)
                found.node_id, found.host, found.port, _ = endpoint
            message = code.name
        found.error_code = code
        # Before version 4, the message is set even without an error; from there on, Kafka leaves it
        # empty.
        found.error_message = message if version < 4 else ""
        return found

    def join_group(
        self, session: Session, request: kw.JoinGroupRequest, version: int
    ) -> kw.JoinGroupResponse | Awaitable[kw.JoinGroupResponse]:
        if version == 0:
            request.rebalance_timeout_ms = request.session_timeout_ms
        return self.groups.join(request, _client(session, version))

    def sync_group(
        self, session: Session, request: kw.SyncGroupRequest, version: int
    ) -> kw.SyncGroupResponse | Awaitable[kw.SyncGroupResponse]:
        if version >= 5 and None in (request.protocol_type, request.protocol_name):
            return kw.SyncGroupResponse(error_code=kw.ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        try:
            return self.groups.sync(request)
        except ApiError as error:
            return kw.SyncGroupResponse(error_code=error.code)

    def heartbeat(
        self, session: Session, request: kw.HeartbeatRequest, version: int
    ) -> kw.HeartbeatResponse:
        response = kw.HeartbeatResponse()
        with errors_in(response):
            self.groups.heartbeat(request)
        return response

    def leave_group(
        self, session: Session, request: kw.LeaveGroupRequest, version: int
    ) -> Steps[kw.LeaveGroupResponse]:
        members: Sequence[kw.LeaveGroupRequest.MemberIdentity] = request.members
        if version < 3:
            members = [kw.LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        results = []
        try:
            # An empty list is checked too.
            for begin in range(0, max(len(members), 1), self.leaving_at_once):
                part = members[begin : begin + self.leaving_at_once]
                results += self.groups.leave(request.group_id, part)
                yield None
        except ApiError as error:
            return kw.LeaveGroupResponse(error_code=error.code)
        if version < 3:
            return kw.LeaveGroupResponse(error_code=results[0].error_code)
        return kw.LeaveGroupResponse(members=results)

    def consumer_group_heartbeat(
        self, session: Session, request: kw.ConsumerGroupHeartbeatRequest, version: int
    ) -> kw.ConsumerGroupHeartbeatResponse:
        if version == 0 and request.member_epoch in (0, AWAY) and not request.member_id:
            request.member_id = str(uuid4())
        response = kw.ConsumerGroupHeartbeatResponse()
        with errors_in(response):
            self._check_enabled()
            client = _client(session, version)._replace(rights=self._rights(session))
            return self.groups.consumer_heartbeat(request, client)
        return response

    def _rights(self, session: Session) -> TopicRights | None:
        authorizer = self.authorizer
        if authorizer is None:
            return None
        return TopicRights(partial(authorizer.may_describe, session), authorizer.changes)

    def _check_enabled(self) -> None:
        """Raise ApiError if the cluster's features or the settings leave the consumer group protocol off."""
        on = "consumer" in self.config.group_coordinator_rebalance_protocols
        if not on or not self.cluster.features.get(GROUP_VERSION):
            raise ApiError(kw.ErrorCode.UNSUPPORTED_VERSION)

    def list_groups(
        self, session: Session, request: kw.ListGroupsRequest, version: int
    ) -> Steps[kw.ListGroupsResponse]:
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        response = kw.ListGroupsResponse()
        with errors_in(response):
            for group in self.groups.all_groups():
                if (not states or group.state.value.lower() in states) and (
                    not types or group.kind in types
                ):
                    response.groups.append(
                        kw.ListGroupsResponse.ListedGroup(
                            group_id=group.group_id,
                            protocol_type=group.protocol_type or "",
                            group_state=group.state.value,
                            group_type=group.kind,
                        )
                    )
                yield None
        return response

    def describe_groups(
        self, session: Session, request: kw.DescribeGroupsRequest, version: int
    ) -> Steps[kw.DescribeGroupsResponse]:
        operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
        describe = partial(self._describe, version, operations)
        # Duplicate names are described once.
        groups = yield from one_by_one(describe, dict.fromkeys(request.groups))
        return kw.DescribeGroupsResponse(groups=groups)

    def _describe(
        self, version: int, operations: int, group_id: str
    ) -> kw.DescribeGroupsResponse.DescribedGroup:
        described = kw.DescribeGroupsResponse.DescribedGroup(group_id=group_id)
        with errors_in(described):
            group = self.groups.find(group_id)
            if not isinstance(group, ClassicGroup):
                described.group_state = GroupState.DEAD.value
                if version >= 6:
                    raise _not_found(group_id, group, "classic")
                described.authorized_operations = operations
                return described
            is_stable = group.state is GroupState.STABLE
            described.group_state = group.state.value
            described.protocol_type = group.protocol_type or ""
            described.protocol_data = (group.protocol or "") if is_stable else ""
            described.members = [
                kw.DescribeGroupsResponse.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol) if is_stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ]
            described.authorized_operations = operations
        return described

    def consumer_group_describe(
        self, session: Session, request: kw.ConsumerGroupDescribeRequest, version: int
    ) -> Steps[kw.ConsumerGroupDescribeResponse]:
        operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
        groups = []
        for group_id in dict.fromkeys(request.group_ids):
            described = kw.ConsumerGroupDescribeResponse.DescribedGroup(group_id=group_id)
            groups.append(described)
            with errors_in(described):
                self._check_enabled()
                group = self.groups.find(group_id)
                if not isinstance(group, ConsumerGroup):
                    raise _not_found(group_id, group, "consumer")
                described.group_state = group.state.value
                described.group_epoch = group.group_epoch
                described.assignment_epoch = group.assignment_epoch
                described.assignor_name = (
                    group.preferred_assignor() or self.config.group_consumer_assignors[0]
                )
                described.members = [self._described(member) for member in group.members.values()]
                described.authorized_operations = operations
            yield sum(len(member.subscribed_topic_names) for member in described.members) > _LONG
        return kw.ConsumerGroupDescribeResponse(groups=groups)

    def _described(self, member: Member) -> kw.ConsumerGroupDescribeResponse.Member:
        return kw.ConsumerGroupDescribeResponse.Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=[*member.topics],
            subscribed_topic_regex=member.pattern,
            assignment=self._assignment((*member.assigned, *member.revoking)),
            target_assignment=self._assignment(member.target),
            member_type=(
                kw.GroupMemberType.CLASSIC if member.protocols else kw.GroupMemberType.CONSUMER
            ),
        )

    def _assignment(self, places: Iterable[Place]) -> kw.ConsumerGroupDescribeResponse.Assignment:
        """Build the description of partitions. Those of deleted topics have no name, and are left out."""
        topics = self.cluster.topics_by_id
        return kw.ConsumerGroupDescribeResponse.Assignment(
            topic_partitions=[
                kw.ConsumerGroupDescribeResponse.TopicPartitions(
                    topic_id=topic_id, topic_name=topics[topic_id].name, partitions=numbers
                )
                for topic_id, numbers in by_topic(places).items()
                if topic_id in topics
            ]
        )

    def delete_groups(
        self, session: Session, request: kw.DeleteGroupsRequest, version: int
    ) -> Steps[kw.DeleteGroupsResponse]:
        results = []
        for group_id in dict.fromkeys(request.groups_names):
            result = kw.DeleteGroupsResponse.DeletableGroupResult(group_id=group_id)
            try:
                yield from self.groups.delete(group_id)
            except ApiError as error:
                result.error_code = error.code
            results.append(result)
            yield None
        return kw.DeleteGroupsResponse(results=results)


def _is_share_key(key: str) -> bool:
    try:
        return bool(parse_coordinator_key(key))
    except ValueError:
        return False


def _client(session: Session, version: int) -> GroupClient:
    # Kafka shows addresses in Java's form, with a leading slash.
    return GroupClient(session.client_id or "", f"/{session.host}", version)


def _not_found(group_id: str, group: AnyGroup | None, kind: str) -> ApiError:
    if group is not None:
        return not_a(group_id, kind)
    return ApiError(kw.ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
