"""Tenants and the definitions: every field of every message-version that a tenant can send or receive.

A field that is added to the definitions fails here until someone decides whether it can name things of another tenant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import kafka_wire as kw

from krammar.proxy import Connection, Exchange
from krammar.proxy.chain import Chain
from krammar.proxy.exchange import Settled, run_request, run_response
from krammar.proxy.filters.tenant_apis import ALLOWED, PASSED, REFUSED
from krammar.proxy.filters.tenant_fields import ENTITIES, ERROR_MESSAGE, PATTERN
from krammar.proxy.filters.tenants import Tenants
from krammar.wire.layout import Array, Layout, Nested, Scalar, Text
from krammar.wire.representation import kinds_of, named
from tests.support.groups import in_groups

OWN, OTHER = UUID(int=0x0123456789), UUID(int=0x9876543210)
NAMES = {OWN: "blue.orders", OTHER: "red.orders"}
# Names in fields that the definitions do not mark, because another field says what they name; by path.
NAMED = {
    "FindCoordinatorRequest.key",
    "FindCoordinatorRequest.coordinator_keys",
    "FindCoordinatorResponse.coordinators.key",
    "DescribeConfigsRequest.resources.resource_name",
    "DescribeConfigsResponse.results.resource_name",
    "AlterConfigsRequest.resources.resource_name",
    "AlterConfigsResponse.responses.resource_name",
    "IncrementalAlterConfigsRequest.resources.resource_name",
    "IncrementalAlterConfigsResponse.responses.resource_name",
    "ListConfigResourcesResponse.config_resources.resource_name",
}
# Numbers with a meaning: a topic, and a consumer instead of a replica.
NUMBERS = {"resource_type": 2, "replica_id": -1}
# Bytes of consumers, by path: True for subscriptions, False for assignments.
CONSUMERS = {
    "JoinGroupRequest.protocols.metadata": True,
    "JoinGroupResponse.members.metadata": True,
    "SyncGroupRequest.assignments.assignment": False,
    "SyncGroupResponse.assignment": False,
    "DescribeGroupsResponse.groups.members.member_metadata": True,
    "DescribeGroupsResponse.groups.members.member_assignment": False,
}
# Attributes with text, bytes or ids that name nothing of a tenant that is not in its own group or topic: members of
# its groups, hosts and racks of clients and brokers, states, and contents.
HARMLESS = {
    *("member_id", "group_instance_id", "instance_id", "leader", "client_id", "client_host"),
    *("host", "rack", "rack_id", "cluster_id", "reason", "process_id", "endpoint_type"),
    *(
        "protocol_type",
        "protocol_name",
        "protocol_data",
        "group_state",
        "group_type",
        "server_assignor",
    ),
    *("assignor_name", "states_filter", "types_filter", "state_filters", "unknown_state_filters"),
    *("transaction_state", "committed_metadata", "metadata", "records", "replica_directory_id"),
    *(
        "documentation",
        "configuration_keys",
        "value",
        "key",
        "subtopology_id",
        "stores",
        "successors",
    ),
}
# Keys of configs, which decide what the values are; test_tenant_configs.py has their cases.
CONFIG_KEYS = ("configs.name", "configs.key")
# Other attributes, by path.
ALSO_HARMLESS = {
    "JoinGroupRequest.protocols.name",  # an assignor
    "CreateTopicsRequest.topics.configs.name",
    "CreateTopicsResponse.topics.configs.name",
    "AlterConfigsRequest.resources.configs.name",
    "IncrementalAlterConfigsRequest.resources.configs.name",
    "DescribeConfigsResponse.results.configs.name",
    "DescribeConfigsResponse.results.configs.synonyms.name",
    # Nodes of a Streams topology, which only the group's members read.
    *(
        f"StreamsGroupDescribeResponse.groups.topology_description.{place}.name"
        for place in ("subtopologies.nodes", "global_stores.source", "global_stores.processor")
    ),
    *(
        f"StreamsGroupTopologyDescriptionUpdateRequest.topology_description.{place}.name"
        for place in ("subtopologies.nodes", "global_stores.source", "global_stores.processor")
    ),
}
# Topic ids in responses that have the name too.
BESIDE_NAMES = {
    "MetadataResponse.topics.topic_id",
    "CreateTopicsResponse.topics.topic_id",
    "DeleteTopicsResponse.responses.topic_id",
    "DescribeTopicPartitionsResponse.topics.topic_id",
    "DescribeShareGroupOffsetsResponse.groups.topics.topic_id",
    "AlterShareGroupOffsetsResponse.responses.topic_id",
    "DeleteShareGroupOffsetsResponse.responses.topic_id",
    *(
        f"{kind}GroupDescribeResponse.groups.members.{place}.topic_partitions.topic_id"
        for kind in ("Consumer", "Share")
        for place in ("assignment", "target_assignment")
    ),
}
Leaf = Callable[[str, Any, Any], Any]


def build(cls: Any, layout: Layout, leaf: Leaf, path: str) -> Any:
    """Return a message with one element in each array; ``leaf`` returns the values of text, bytes and ids."""

    def value(place: str, item: Any, type_: Any, default: Any) -> Any:
        if isinstance(type_, Array):
            return [value(place, item, type_.element, None)]
        if isinstance(type_, Nested):
            return build(named(cls, kinds_of(cls)[item.name]), type_.layout, leaf, place)
        if is_leaf(type_):
            return leaf(place, item, type_)
        if item.name in NUMBERS:
            return NUMBERS[item.name]
        return default if isinstance(default, int) else 0

    fresh = cls()
    for item in (*layout.fields, *layout.tags):
        place = f"{path}.{item.name}"
        setattr(fresh, item.name, value(place, item, item.type, getattr(fresh, item.name)))
    return fresh


def is_leaf(type_: Any) -> bool:
    return isinstance(type_, Text) or (isinstance(type_, Scalar) and type_.code == "16s")


def leaves(layout: Layout, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields with text, bytes and ids: their paths, fields and types."""
    for item in (*layout.fields, *layout.tags):
        type_ = item.type
        while isinstance(type_, Array):
            type_ = type_.element
        if isinstance(type_, Nested):
            yield from leaves(type_.layout, f"{path}.{item.name}")
        elif is_leaf(type_):
            yield f"{path}.{item.name}", item, type_


def is_name(path: str, item: Any) -> bool:
    return item.entity in ENTITIES or path in NAMED


def consumer(path: str, name: str) -> bytes:
    """Return the bytes of a consumer at a path, with a topic."""
    part = {"topic": name, "partitions": [0]}
    if CONSUMERS[path]:
        cls: Any = kw.ConsumerProtocolSubscription
        return bytes(
            cls(version=3, topics=[name], owned_partitions=[cls.TopicPartition(**part)]).encode()
        )
    cls = kw.ConsumerProtocolAssignment
    return bytes(cls(version=3, assigned_partitions=[cls.TopicPartition(**part)]).encode())


def values(prefix: str, topic_id: UUID = OWN) -> Leaf:
    """Return the values of a message whose names have a prefix."""

    def leaf(path: str, item: Any, type_: Any) -> Any:
        if is_name(path, item):
            return f"{prefix}orders"
        if item.entity == PATTERN:
            return f"{prefix[:-1]}\\.(?:ord.*)" if prefix else "ord.*"
        if item.entity == ERROR_MESSAGE:
            return f"Topic '{prefix}orders' is closed"
        if path in CONSUMERS:
            return consumer(path, f"{prefix}orders")
        if item.name == "protocol_type":
            return "consumer"
        if path.endswith(CONFIG_KEYS):
            return "retention.ms"
        if isinstance(type_, Scalar):
            return topic_id
        return "x" if type_.kind == "string" else b"x"

    return leaf


def exchange(request: Any, version: int) -> Exchange:
    async def send(_: Exchange, asked: Any, version: int | None) -> Any:
        topic = kw.MetadataResponse.Topic
        if asked.topics is None:
            return kw.MetadataResponse(
                topics=[topic(name=name, topic_id=each) for each, name in NAMES.items()]
            )
        return kw.MetadataResponse(
            topics=[
                topic(topic_id=each.topic_id, name=NAMES.get(each.topic_id))
                for each in asked.topics
            ]
        )

    connection = Connection(1, "client", "broker")
    return Exchange(connection, request.api_key, version, 1, "test", send)


class Place:
    """A chain with the tenant blue, where red is another one."""

    def __init__(self) -> None:
        filter_ = Tenants(principals={"alice": "blue", "bob": "red"})
        self.chain = Chain(kw, [filter_])

    def _route(self, request: Any, version: int) -> Any:
        return self.chain.routes[request.api_key << 16 | version]

    async def send(self, request: Any, version: int) -> tuple[Settled, Exchange]:
        found = exchange(request, version)
        found.connection.principal = "alice"
        return await run_request(self._route(request, version), request, found), found

    async def receive(self, response: Any, found: Exchange) -> Any:
        route = self.chain.routes[found.api_key << 16 | found.version]
        assert route is not None
        return await run_response(route.responses, response, found)


VERSIONS = [(cls, version) for cls, newest in ALLOWED.items() for version in range(newest + 1)]


def id_of(case: tuple[Any, int]) -> str:
    """The name of a case: ``FetchRequest v4``."""
    return f"{case[0].__name__} v{case[1]}"


def test_every_request_is_allowed_or_refused() -> None:
    chain = Chain(kw, [Tenants("blue")])
    assert chain.refuse_unknown
    for info in kw.requests():
        cls = kw.request_class(info.key)
        assert [cls in each for each in (ALLOWED, PASSED, REFUSED)].count(True) <= 1
        for version in range(cls.min_version, cls.max_version + 1):
            route = chain.routes[info.key << 16 | version]
            if cls is kw.ApiVersionsRequest:
                continue
            assert route is not None, (info.name, version)
            assert route.requests, (info.name, version)


@in_groups(("cls", "version"), VERSIONS, ids=id_of)
def test_renaming_and_renaming_back(cls: Any, version: int) -> None:
    async def talk() -> None:
        place = Place()
        layout, name = kw.layout(cls, version), cls.__name__
        own = build(cls, layout, values(""), name)
        full = build(cls, layout, values("blue."), name)
        settled, found = await place.send(own, version)
        assert settled.answer is None
        assert settled.request.encode(version) == full.encode(version)
        response = cls.response_class
        layout, name = kw.layout(response, version), response.__name__
        restored = await place.receive(build(response, layout, values("blue."), name), found)
        own = build(response, layout, values(""), name)
        if name == "ListConfigResourcesResponse" and version == 0:
            own.config_resources = []  # only subscriptions to metrics, which are the cluster's
        assert restored.encode(version) == own.encode(version)

    asyncio.run(talk())


def hostile(path: str, item: Any, type_: Any) -> Any:
    """Return a value that names something of the tenant red."""
    if isinstance(type_, Scalar):
        return OTHER
    if path in CONSUMERS:
        return consumer(path, "red.orders")
    if item.entity == ERROR_MESSAGE:
        return "Topic red.orders is closed"
    return "red.orders" if type_.kind == "string" else b"red.orders"


def with_hostile(cls: Any, layout: Layout, prefix: str, target: str) -> Any:
    usual = values(prefix)

    def leaf(path: str, item: Any, type_: Any) -> Any:
        return hostile(path, item, type_) if path == target else usual(path, item, type_)

    return build(cls, layout, leaf, cls.__name__)


def harmless(path: str, item: Any) -> bool:
    return item.name in HARMLESS or path in ALSO_HARMLESS


def risky(cls: Any, version: int) -> list[tuple[str, Any]]:
    """The fields of a message that can name something, with their paths."""
    return [
        (path, item)
        for path, item, _ in leaves(kw.layout(cls, version), cls.__name__)
        if not harmless(path, item) or path in NAMED or path in CONSUMERS
    ]


RISKY = [
    (cls, version)
    for cls, version in VERSIONS
    if risky(cls, version) or risky(cls.response_class, version)
]


@in_groups(("cls", "version"), RISKY, ids=id_of)
def test_no_field_names_something_of_another(cls: Any, version: int) -> None:
    async def talk() -> int:
        checked = 0
        layout = kw.layout(cls, version)
        for target, item in risky(cls, version):
            checked += 1
            request = with_hostile(cls, layout, "", target)
            settled, _ = await Place().send(request, version)
            if settled.answer is None:
                data = settled.request.encode(version)
                if item.entity == PATTERN:
                    data = data.replace(rb"blue\.(?:red.orders)", b"")
                assert data.count(b"red") == data.count(b"blue.red"), target
                assert OTHER.bytes not in data, target
        response = cls.response_class
        layout = kw.layout(response, version)
        for target, _ in risky(response, version):
            checked += 1
            if target in BESIDE_NAMES:
                continue  # the broker says whose id it is
            place = Place()
            own = build(cls, kw.layout(cls, version), values(""), cls.__name__)
            _, found = await place.send(own, version)
            restored = await place.receive(with_hostile(response, layout, "blue.", target), found)
            data = restored.encode(version)
            assert b"red" not in data, target
            assert OTHER.bytes not in data, target
        return checked

    assert asyncio.run(talk()) > 0


def tagged(cls: Any, layout: Layout, prefix: str) -> Any:
    """Return a message with a tag in each struct that the definitions do not have."""

    def mark(struct: Any, inner: Layout) -> None:
        struct.unknown_tags = {9_999: b"red.orders"}
        for item in (*inner.fields, *inner.tags):
            type_ = item.type
            while isinstance(type_, Array):
                type_ = type_.element
            if isinstance(type_, Nested):
                value = getattr(struct, item.name)
                mark(value[0] if isinstance(value, list) else value, type_.layout)

    message = build(cls, layout, values(prefix), cls.__name__)
    mark(message, layout)
    return message


FLEXIBLE = [(cls, version) for cls, version in VERSIONS if kw.layout(cls, version).flexible]


@in_groups(("cls", "version"), FLEXIBLE, ids=id_of)
def test_unknown_tags_do_not_pass(cls: Any, version: int) -> None:
    async def talk() -> None:
        place = Place()
        settled, found = await place.send(tagged(cls, kw.layout(cls, version), ""), version)
        assert settled.answer is None
        assert b"red" not in settled.request.encode(version)
        response = cls.response_class
        restored = await place.receive(
            tagged(response, kw.layout(response, version), "blue."), found
        )
        assert b"red" not in restored.encode(version)

    asyncio.run(talk())
