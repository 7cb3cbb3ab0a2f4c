"""What is special about an API for tenants: names in fields without an entity, configs, bytes, sessions, and partial refusals.

The functions for requests see the tenant's own names, before prefixes are added. They return an answer, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import kafka_wire as kw
from kafka_wire import ConfigResourceType, CoordinatorType, ErrorCode

from krammar.proxy.filters.tenant_apis import REASON
from krammar.proxy.filters.tenant_fields import TenantTopicIds
from krammar.proxy.filters.tenant_names import Tenant
from krammar.util.configs import config_rows
from krammar.util.remembered import Remembered
from krammar.wire.errors import WireError

CONSUMER = "consumer"
# The newest version of the bytes of consumers; readers take newer ones for it.
_NEWEST = 3
# The first version of FindCoordinator with an array of keys.
_SEVERAL_KEYS = 4
_LIMIT = 10_000
_PREFIXED = (ConfigResourceType.TOPIC, ConfigResourceType.GROUP)


class Memory:
    """What a filter remembers for all connections.

    Attributes:
        ids: the topics' ids
        sessions: tenants by broker and fetch session
        protocols: protocol types by group at the broker, for SyncGroup before v5
    """

    def __init__(self) -> None:
        self.ids = TenantTopicIds()
        self.sessions: Remembered[Any, str] = Remembered(_LIMIT)
        self.protocols: Remembered[Any, str] = Remembered(_LIMIT)

    def add_session(self, upstream: str, session: int, tenant: Tenant) -> None:
        """Remember whose fetch session at a broker this is."""
        self.sessions[upstream, session] = tenant.name


@dataclass(slots=True)
class TenantCall:
    """A request of a tenant, and its response.

    Attributes:
        refused: elements of the response for parts of the request that the broker did not receive
        kind: protocol type of the group, or type of the coordinator
    """

    tenant: Tenant
    memory: Memory
    version: int
    upstream: str
    refused: list[Any] = field(default_factory=list)
    kind: Any = None


# -- requests


def _fetch(request: Any, call: TenantCall) -> Any:
    request.replica_id = -1  # a follower's fetch would change the leader's view of its replicas
    request.replica_state = kw.FetchRequest.ReplicaState()
    session = request.session_id
    if session and call.memory.sessions.get((call.upstream, session)) != call.tenant.name:
        # Brokers do not check whose session it is. Clients begin a new one.
        return kw.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    return None


def _no_replica(request: Any, call: TenantCall) -> None:
    request.replica_id = -1


def _find_coordinator(request: Any, call: TenantCall) -> Any:
    call.kind = request.key_type
    if call.kind in (CoordinatorType.GROUP, CoordinatorType.TRANSACTION):
        if call.version < _SEVERAL_KEYS:
            request.key = call.tenant.add(request.key)
        request.coordinator_keys = [call.tenant.add(key) for key in request.coordinator_keys]
        return None
    # Keys of share groups have topic ids. Only brokers ask for them.
    code, response = ErrorCode.INVALID_REQUEST, kw.FindCoordinatorResponse
    if call.version < _SEVERAL_KEYS:
        return response(error_code=code, error_message=REASON)
    return response(
        coordinators=[
            response.Coordinator(
                key=key, node_id=-1, port=-1, error_code=code, error_message=REASON
            )
            for key in request.coordinator_keys
        ]
    )


def _join(request: Any, call: TenantCall) -> Any:
    call.kind = request.protocol_type
    call.memory.protocols[call.tenant.add(request.group_id)] = call.kind
    if call.kind != CONSUMER:
        return None
    try:
        for protocol in request.protocols:
            protocol.metadata = subscribed(protocol.metadata, call.tenant.add)
    except WireError:
        # The broker reads subscriptions when a group moves to the protocol of KIP-848.
        return kw.JoinGroupResponse(
            error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id
        )
    return None


def _sync(request: Any, call: TenantCall) -> None:
    known = call.memory.protocols.get(call.tenant.add(request.group_id))
    call.kind = request.protocol_type or known or CONSUMER
    if call.kind == CONSUMER:
        for each in request.assignments:
            each.assignment = _tolerant(assigned, each.assignment, call.tenant.add)


def _create_topics(request: Any, call: TenantCall) -> Any:
    result = kw.CreateTopicsResponse.CreatableTopicResult
    allowed = []
    for topic in request.topics:
        code, problem = ErrorCode.INVALID_TOPIC_EXCEPTION, call.tenant.problem(topic.name)
        if not problem:
            code = ErrorCode.INVALID_CONFIG
            problem = add_to_configs(call.tenant, ConfigResourceType.TOPIC, topic.configs)
        if problem:
            call.refused.append(result(name=topic.name, error_code=code, error_message=problem))
        else:
            allowed.append(topic)
    request.topics = allowed
    return kw.CreateTopicsResponse(topics=call.refused) if call.refused and not allowed else None


def _configs(response: Any, results: str, result: Any) -> Callable[[Any, TenantCall], Any]:
    """Add prefixes to the resources of a request, and refuse those that are not the tenant's.

    Args:
        response: the class of the response.
        results: its attribute with a result per resource.
        result: the class of a result.
    """

    def rename(request: Any, call: TenantCall) -> Any:
        allowed = []
        for each in request.resources:
            code, problem = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, REASON
            if each.resource_type in _PREFIXED:
                configs = getattr(each, "configs", ())  # DescribeConfigs has only their keys
                code = ErrorCode.INVALID_CONFIG
                problem = add_to_configs(call.tenant, each.resource_type, configs)
            if not problem:
                each.resource_name = call.tenant.add(each.resource_name)
                allowed.append(each)
                continue
            call.refused.append(
                result(
                    error_code=code,
                    error_message=problem,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                )
            )
        request.resources = allowed
        return response(**{results: call.refused}) if call.refused and not allowed else None

    return rename


def _streams_heartbeat(request: Any, call: TenantCall) -> Any:
    for configs in _internal_topics(request.topology):
        if problem := add_to_configs(call.tenant, ConfigResourceType.TOPIC, configs, "key"):
            return kw.StreamsGroupHeartbeatResponse(
                error_code=ErrorCode.STREAMS_INVALID_TOPOLOGY,
                error_message=problem,
                member_id=request.member_id,
                member_epoch=request.member_epoch,
            )
    return None


def _internal_topics(topology: Any) -> Iterator[list[Any]]:
    """Yield the configs of the topics that a Streams group creates."""
    for each in () if topology is None else topology.subtopologies or ():
        for topic in (*each.state_changelog_topics, *each.repartition_source_topics):
            yield topic.topic_configs


REQUESTS: dict[Any, Callable[[Any, TenantCall], Any]] = {
    kw.FetchRequest: _fetch,
    kw.ListOffsetsRequest: _no_replica,
    kw.OffsetForLeaderEpochRequest: _no_replica,
    kw.FindCoordinatorRequest: _find_coordinator,
    kw.JoinGroupRequest: _join,
    kw.SyncGroupRequest: _sync,
    kw.CreateTopicsRequest: _create_topics,
    kw.DescribeConfigsRequest: _configs(
        kw.DescribeConfigsResponse, "results", kw.DescribeConfigsResponse.DescribeConfigsResult
    ),
    kw.AlterConfigsRequest: _configs(
        kw.AlterConfigsResponse, "responses", kw.AlterConfigsResponse.AlterConfigsResourceResponse
    ),
    kw.IncrementalAlterConfigsRequest: _configs(
        kw.IncrementalAlterConfigsResponse,
        "responses",
        kw.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
    ),
    kw.StreamsGroupHeartbeatRequest: _streams_heartbeat,
}


# -- responses


def _fetched(response: Any, call: TenantCall) -> None:
    if response.session_id:
        call.memory.add_session(call.upstream, response.session_id, call.tenant)


def _coordinators(response: Any, call: TenantCall) -> None:
    for each in response.coordinators:
        each.key = call.tenant.strip(each.key)


def _joined(response: Any, call: TenantCall) -> None:
    if (response.protocol_type or call.kind) == CONSUMER:
        for member in response.members:
            member.metadata = _tolerant(subscribed, member.metadata, call.tenant.strip, call.tenant)


def _synced(response: Any, call: TenantCall) -> None:
    if (response.protocol_type or call.kind) == CONSUMER:
        response.assignment = _tolerant(
            assigned, response.assignment, call.tenant.strip, call.tenant
        )


def _described_groups(response: Any, call: TenantCall) -> None:
    tenant = call.tenant
    for group in response.groups:
        if group.protocol_type != CONSUMER:
            continue
        for member in group.members:
            member.member_metadata = _tolerant(
                subscribed, member.member_metadata, tenant.strip, tenant
            )
            member.member_assignment = _tolerant(
                assigned, member.member_assignment, tenant.strip, tenant
            )


def _created(response: Any, call: TenantCall) -> None:
    for topic in response.topics:
        if topic.configs is not None:
            topic.configs = own_configs(call.tenant, ConfigResourceType.TOPIC, topic.configs)
    response.topics += call.refused


def _resources(results: str) -> Callable[[Any, TenantCall], None]:
    """Strip the names of resources, without those of others, and add the refused ones.

    Args:
        results: the attribute with resources, or results for them.
    """

    def restore(response: Any, call: TenantCall) -> None:
        own = []
        for each in getattr(response, results):
            if each.resource_type in _PREFIXED and call.tenant.owns(each.resource_name):
                each.resource_name = call.tenant.strip(each.resource_name)
                if hasattr(each, "configs"):
                    each.configs = own_configs(call.tenant, each.resource_type, each.configs)
                own.append(each)
        setattr(response, results, own + call.refused)

    return restore


def _described_streams(response: Any, call: TenantCall) -> None:
    for group in response.groups:
        for configs in _internal_topics(group.topology):
            configs[:] = own_configs(call.tenant, ConfigResourceType.TOPIC, configs, "key")


RESPONSES: dict[Any, Callable[[Any, TenantCall], None]] = {
    kw.FetchResponse: _fetched,
    kw.FindCoordinatorResponse: _coordinators,
    kw.JoinGroupResponse: _joined,
    kw.SyncGroupResponse: _synced,
    kw.DescribeGroupsResponse: _described_groups,
    kw.CreateTopicsResponse: _created,
    kw.DescribeConfigsResponse: _resources("results"),
    kw.AlterConfigsResponse: _resources("responses"),
    kw.IncrementalAlterConfigsResponse: _resources("responses"),
    kw.ListConfigResourcesResponse: _resources("config_resources"),
    kw.StreamsGroupDescribeResponse: _described_streams,
}


# -- bytes of consumers

Rename = Callable[[str], str]


def subscribed(data: bytes, rename: Rename, owner: Tenant | None = None) -> bytes:
    """Rename the topics of a consumer's subscription. Raises WireError.

    The data of assignors pass as they are. Brokers do not read them, and all members that do have the same prefix.

    Args:
        owner: the tenant whose topics are renamed; others are removed. Default: all are renamed.
    """
    return _rename(kw.ConsumerProtocolSubscription, data, rename, owner)


def assigned(data: bytes, rename: Rename, owner: Tenant | None = None) -> bytes:
    """Rename the topics of a consumer's assignment, as ``subscribed`` does."""
    return _rename(kw.ConsumerProtocolAssignment, data, rename, owner)


def _rename(cls: Any, data: bytes, rename: Rename, owner: Tenant | None) -> bytes:
    if not data:
        return data  # a member without a subscription or an assignment
    known = _NEWEST.to_bytes(2, "big")
    body = data if data[:2] <= known else known + data[2:]
    value, end = cls.decode_from(body, 0)
    if cls is kw.ConsumerProtocolSubscription:
        value.topics = [rename(each) for each in value.topics if owner is None or owner.owns(each)]
        value.owned_partitions = _renamed(value.owned_partitions, rename, owner)
    else:
        value.assigned_partitions = _renamed(value.assigned_partitions, rename, owner)
    encoded: bytes = value.encode()
    return data[:2] + encoded[2:] + data[end:]


def _renamed(partitions: list[Any], rename: Rename, owner: Tenant | None) -> list[Any]:
    own = [each for each in partitions if owner is None or owner.owns(each.topic)]
    for each in own:
        each.topic = rename(each.topic)
    return own


def _tolerant(change: Callable[..., bytes], data: bytes, *arguments: Any) -> bytes:
    """Change the bytes of consumers; other bytes are unchanged."""
    try:
        return change(data, *arguments)
    except WireError:
        return data


# -- configs of topics and groups: which ones tenants may set, and the names in their values
#
# It is an allow list, as for APIs: keys that the tables do not have are refused, because their values could name things
# of others.

_TOPIC = "topicName"
# What the values of configs name, by the type of their resource and by key.
CONFIG_ENTITIES: dict[int, dict[str, str]] = {
    kind: {row["name"]: row["entity"] for row in config_rows(table)}
    for kind, table in ((ConfigResourceType.TOPIC, "topics"), (ConfigResourceType.GROUP, "groups"))
}


def add_to_configs(tenant: Tenant, kind: int, configs: Iterable[Any], key: str = "name") -> str:
    """Add the prefix to topics in the values of configs that a tenant sets.

    Args:
        kind: the type of the resource.
        key: the attribute with the key of a config.

    Returns:
        Why they are refused; empty if they are not.
    """
    for each in configs:
        name = getattr(each, key)
        entity = CONFIG_ENTITIES[kind].get(name)
        if entity is None:
            return f"a tenant cannot set the config {name!r}, which this proxy does not know"
        if entity == _TOPIC:
            if each.value and (problem := tenant.problem(each.value)):
                return f"config {name!r}: {problem}"
            each.value = each.value and tenant.add(each.value)
        elif entity:
            return f"a tenant cannot set the config {name!r}, because it is about brokers"
    return ""


def own_configs(tenant: Tenant, kind: int, configs: list[Any], key: str = "name") -> list[Any]:
    """Return the configs of a response that a tenant sees, with its own names; the arguments are as above."""
    own = []
    for each in configs:
        entity = CONFIG_ENTITIES[kind].get(getattr(each, key))
        if entity is None:
            continue
        if entity == _TOPIC:
            for place in (each, *getattr(each, "synonyms", ())):
                if place.value:
                    place.value = tenant.strip(place.value) if tenant.owns(place.value) else None
        own.append(each)
    return own
