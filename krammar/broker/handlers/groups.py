"""FindCoordinator, the classic group protocol, and the administration of groups."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from kafka_wire import (
    AclOperation,
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

from krammar.broker.errors import ApiError
from krammar.broker.groups.group import Group, State, sync_error
from krammar.broker.groups.offset_apis import offset_commit, offset_delete, offset_fetch
from krammar.broker.groups.protocol import Client

if TYPE_CHECKING:
    from krammar.broker.broker import Broker
    from krammar.broker.session import Session

__all__ = [
    "delete_groups",
    "describe_groups",
    "find_coordinator",
    "heartbeat",
    "join_group",
    "leave_group",
    "list_groups",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "sync_group",
]

# What anybody may do with a group here, where nothing is forbidden.
_OPERATIONS = sum(
    1 << operation
    for operation in (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
)
_NO_OPERATIONS = -(2**31)


def find_coordinator(
    broker: Broker, session: Session, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if version >= 4 else [request.key]
    error = _coordinator_error(broker, request.key_type)
    node = (-1, "", -1) if error else (broker.config.node_id, *broker.advertised(session))
    node_id, host, port = node
    code = error.code if error else ErrorCode.NONE
    # Texts are for versions before 4, which say even that there is no error; Kafka leaves them empty
    # from there on.
    message = ""
    if version < 4:
        message = (error.message or error.code.name) if error else ErrorCode.NONE.name
    return FindCoordinatorResponse(
        error_code=code,
        error_message=message,
        node_id=node_id,
        host=host,
        port=port,
        coordinators=[
            FindCoordinatorResponseCoordinator(
                key=key,
                node_id=node_id,
                host=host,
                port=port,
                error_code=code,
                error_message=message,
            )
            for key in keys
        ],
    )


def _coordinator_error(broker: Broker, key_type: int) -> ApiError | None:
    """None if we coordinate what is asked for; then its internal topic is there."""
    try:
        if key_type == CoordinatorType.GROUP:
            broker.groups.ensure_topic()
        elif key_type == CoordinatorType.TRANSACTION:
            broker.transactions.ensure_topic()
        else:
            return ApiError(
                ErrorCode.INVALID_REQUEST, f"There are no coordinators of type {key_type} here."
            )
    except ApiError:
        return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return None


def join_group(
    broker: Broker, session: Session, request: JoinGroupRequest, version: int
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    if version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    # Kafka shows a Java address, with a slash in front.
    client = Client(session.client_id or "", f"/{session.host}", version)
    response = broker.groups.join(request, client)
    if version >= 7:
        return response
    if isinstance(response, JoinGroupResponse):
        return _without_null(response)
    return _later_without_null(response)


async def _later_without_null(response: Awaitable[JoinGroupResponse]) -> JoinGroupResponse:
    return _without_null(await response)


def _without_null(response: JoinGroupResponse) -> JoinGroupResponse:
    """Before version 7 the protocol's name cannot be null."""
    if response.protocol_name is None:
        response.protocol_name = ""
    return response


def sync_group(
    broker: Broker, session: Session, request: SyncGroupRequest, version: int
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    if version >= 5 and None in (request.protocol_type, request.protocol_name):
        return sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        return broker.groups.sync(request)
    except ApiError as error:
        return sync_error(error.code)


def heartbeat(
    broker: Broker, session: Session, request: HeartbeatRequest, version: int
) -> HeartbeatResponse:
    try:
        broker.groups.heartbeat(request)
    except ApiError as error:
        return HeartbeatResponse(error_code=error.code)
    return HeartbeatResponse()


def leave_group(
    broker: Broker, session: Session, request: LeaveGroupRequest, version: int
) -> LeaveGroupResponse:
    members = request.members
    if version < 3:
        members = [LeaveGroupRequestMember(member_id=request.member_id)]
    try:
        results = broker.groups.leave(request.group_id, members)
    except ApiError as error:
        if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
            return LeaveGroupResponse(error_code=error.code)
        # There is no such group.
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
    broker: Broker, session: Session, request: ListGroupsRequest, version: int
) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    try:
        groups = broker.groups.all_groups()
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
    broker: Broker, session: Session, request: DescribeGroupsRequest, version: int
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            _describe(broker, group_id, version, request.include_authorized_operations)
            for group_id in request.groups
        ]
    )


def _describe(
    broker: Broker, group_id: str, version: int, with_operations: bool
) -> DescribeGroupsResponseGroup:
    operations = _OPERATIONS if with_operations else _NO_OPERATIONS
    try:
        group = broker.groups.find(group_id)
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


def delete_groups(
    broker: Broker, session: Session, request: DeleteGroupsRequest, version: int
) -> DeleteGroupsResponse:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        result = DeleteGroupsResponseResult(group_id=group_id)
        try:
            broker.groups.delete(group_id)
        except ApiError as error:
            result.error_code = error.code
        results.append(result)
    return DeleteGroupsResponse(results=results)
