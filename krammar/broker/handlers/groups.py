"""Handlers for FindCoordinator, the classic group protocol, and the administration of groups."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING

from kafka_wire import (
    CoordinatorType,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseResult,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    DescribeGroupsResponseGroupMember,
    ErrorCode,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
    LeaveGroupResponseMember,
    ListGroupsRequest,
    ListGroupsResponse,
    ListGroupsResponseGroup,
    SyncGroupRequest,
    SyncGroupResponse,
)

from krammar.broker.cluster import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from krammar.broker.errors import ApiError
from krammar.broker.groups.group import Group, State, sync_error
from krammar.broker.groups.protocol import Client
from krammar.broker.handlers.authorized import GROUP_OPERATIONS, NOT_ASKED
from krammar.broker.slices import Steps

if TYPE_CHECKING:
    from krammar.broker.groups.coordinator import GroupCoordinator
    from krammar.broker.nodes import Nodes
    from krammar.broker.session import Session
    from krammar.broker.topics import Topics


# The internal topics whose leaders are the coordinators, by type.
_COORDINATORS: dict[int, str] = {
    CoordinatorType.GROUP: OFFSETS_TOPIC,
    CoordinatorType.TRANSACTION: TRANSACTIONS_TOPIC,
}


class GroupHandlers:
    """Handles FindCoordinator, the classic group protocol, and the administration of groups."""

    def __init__(self, nodes: Nodes, topics: Topics, groups: GroupCoordinator) -> None:
        self._nodes = nodes
        self._topics = topics
        self._groups = groups

    def find_coordinator(
        self, session: Session, request: FindCoordinatorRequest, version: int
    ) -> Steps[FindCoordinatorResponse]:
        found = []
        for key in request.coordinator_keys if version >= 4 else [request.key]:
            found.append(self._coordinator(session, request.key_type, key, version))
            yield None
        if version >= 4:
            return FindCoordinatorResponse(coordinators=found)
        return FindCoordinatorResponse(
            error_code=found[0].error_code,
            error_message=found[0].error_message,
            node_id=found[0].node_id,
            host=found[0].host,
            port=found[0].port,
        )

    def _coordinator(
        self, session: Session, key_type: int, key: str, version: int
    ) -> FindCoordinatorResponseCoordinator:
        """Find the node that leads a key's partition of the internal topic, which is created if missing."""
        # Before version 4, the message is set even without an error; from there on, Kafka leaves it empty.
        named = version < 4
        name = _COORDINATORS.get(key_type)
        if name is None:
            code = ErrorCode.INVALID_REQUEST
            message = f"Coordinators of type {key_type} are not supported." if named else ""
        else:
            node_id = -1
            with suppress(ApiError):
                topic = self._topics.ensure_internal(name)
                index = self._topics.coordinating_partition(name, key)
                node_id = topic.partitions[index].leader
            if node_id in self._nodes.running:
                found = self._nodes.endpoint(node_id, session.listener)
                return FindCoordinatorResponseCoordinator(
                    key=key,
                    node_id=node_id,
                    host=found.host,
                    port=found.port,
                    error_message=ErrorCode.NONE.name if named else "",
                )
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            message = code.name if named else ""
        return FindCoordinatorResponseCoordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
        )

    def join_group(
        self, session: Session, request: JoinGroupRequest, version: int
    ) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
        if version == 0:
            request.rebalance_timeout_ms = request.session_timeout_ms
        # Kafka shows addresses in Java's form, with a leading slash.
        client = Client(session.client_id or "", f"/{session.host}", version)
        response = self._groups.join(request, client)
        if version >= 7:
            return response
        if isinstance(response, JoinGroupResponse):
            return _without_null(response)
        return _later_without_null(response)

    def sync_group(
        self, session: Session, request: SyncGroupRequest, version: int
    ) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
        if version >= 5 and None in (request.protocol_type, request.protocol_name):
            return sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        try:
            return self._groups.sync(request)
        except ApiError as error:
            return sync_error(error.code)

    def heartbeat(
        self, session: Session, request: HeartbeatRequest, version: int
    ) -> HeartbeatResponse:
        try:
            self._groups.heartbeat(request)
        except ApiError as error:
            return HeartbeatResponse(error_code=error.code)
        return HeartbeatResponse()

    def leave_group(
        self, session: Session, request: LeaveGroupRequest, version: int
    ) -> LeaveGroupResponse:
        members = request.members
        if version < 3:
            members = [LeaveGroupRequestMember(member_id=request.member_id)]
        try:
            results = self._groups.leave(request.group_id, members)
        except ApiError as error:
            if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
                return LeaveGroupResponse(error_code=error.code)
            # The group does not exist.
            results = [
                LeaveGroupResponseMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error_code=error.code,
                )
                for member in members
            ]
        if version < 3:
            return LeaveGroupResponse(error_code=results[0].error_code)
        return LeaveGroupResponse(members=results)

    def list_groups(
        self, session: Session, request: ListGroupsRequest, version: int
    ) -> ListGroupsResponse:
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        try:
            groups = self._groups.all_groups()
        except ApiError as error:
            return ListGroupsResponse(error_code=error.code)
        if types and "classic" not in types:
            groups = []
        return ListGroupsResponse(
            groups=[
                ListGroupsResponseGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type="classic",
                )
                for group in groups
                if not states or group.state.value.lower() in states
            ]
        )

    def describe_groups(
        self, session: Session, request: DescribeGroupsRequest, version: int
    ) -> Steps[DescribeGroupsResponse]:
        groups = []
        # Duplicate names are described once.
        for group_id in dict.fromkeys(request.groups):
            groups.append(self._describe(group_id, version, request.include_authorized_operations))
            yield None
        return DescribeGroupsResponse(groups=groups)

    def _describe(
        self, group_id: str, version: int, with_operations: bool
    ) -> DescribeGroupsResponseGroup:
        operations = GROUP_OPERATIONS if with_operations else NOT_ASKED
        try:
            group = self._groups.find(group_id)
        except ApiError as error:
            return DescribeGroupsResponseGroup(group_id=group_id, error_code=error.code)
        if group is not None:
            return DescribeGroupsResponseGroup(
                group_id=group_id,
                group_state=group.state.value,
                protocol_type=group.protocol_type or "",
                protocol_data=(group.protocol or "") if group.state is State.STABLE else "",
                members=_describe_members(group),
                authorized_operations=operations,
            )
        absent = DescribeGroupsResponseGroup(group_id=group_id, group_state=State.DEAD.value)
        if version >= 6:
            absent.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            absent.error_message = f"Group {group_id} not found."
        else:
            absent.authorized_operations = operations
        return absent

    def delete_groups(
        self, session: Session, request: DeleteGroupsRequest, version: int
    ) -> Steps[DeleteGroupsResponse]:
        results = []
        for group_id in dict.fromkeys(request.groups_names):
            result = DeleteGroupsResponseResult(group_id=group_id)
            try:
                self._groups.delete(group_id)
            except ApiError as error:
                result.error_code = error.code
            results.append(result)
            yield None
        return DeleteGroupsResponse(results=results)


async def _later_without_null(response: Awaitable[JoinGroupResponse]) -> JoinGroupResponse:
    return _without_null(await response)


def _without_null(response: JoinGroupResponse) -> JoinGroupResponse:
    """Replace a null protocol name, which is not allowed before version 7."""
    if response.protocol_name is None:
        response.protocol_name = ""
    return response


def _describe_members(group: Group) -> list[DescribeGroupsResponseGroupMember]:
    is_stable = group.state is State.STABLE
    return [
        DescribeGroupsResponseGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=(member.metadata(group.protocol) or b"") if is_stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]
