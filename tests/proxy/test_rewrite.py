"""Which parts of which responses name brokers, and which versions are offered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kafka_wire
import pytest
from kafka_wire import (
    ApiVersionsResponse,
    FindCoordinatorResponse,
    MetadataResponse,
    UpdateRaftVoterResponse,
)

from krammar.proxy.rewrite import ENDPOINTS, endpoints, limit_versions, may_change
from krammar.wire.layout import Array, Layout, Nested
from krammar.wire.package import package_of
from krammar.wire.representation import kinds_of, named

PACKAGE = package_of(kafka_wire)

# Responses with hosts and ports of which none is a broker that somebody connects to for it.
NO_BROKERS = {
    "DescribeQuorumResponse",  # listeners, shown to people
    "StreamsGroupDescribeResponse",  # endpoints of applications
    "StreamsGroupHeartbeatResponse",  # the same
}


def layouts(layout: Layout) -> Iterator[Layout]:
    yield layout
    for field in (*layout.fields, *layout.tags):
        type_: Any = field.type
        while isinstance(type_, Array):
            type_ = type_.element
        if isinstance(type_, Nested):
            yield from layouts(type_.layout)


def test_every_response_with_hosts_and_ports_is_decided_on() -> None:
    found = {}
    for key in PACKAGE.requests:
        cls: Any = kafka_wire.response_class(key)
        for version in range(cls.min_version, cls.max_version + 1):
            for layout in layouts(kafka_wire.layout(cls, version)):
                names = {field.name for field in (*layout.fields, *layout.tags)}
                if {"host", "port"} <= names:
                    found[key] = cls.__name__
    assert {name for key, name in found.items() if key not in ENDPOINTS} == NO_BROKERS
    assert set(ENDPOINTS) <= set(found)


@pytest.mark.parametrize("key", sorted(set(ENDPOINTS) - {3, 10, 60, 82}))
def test_node_endpoints(key: int) -> None:
    cls: Any = kafka_wire.response_class(key)
    node = named(cls, kinds_of(cls)["node_endpoints"])
    known, unknown = node(node_id=1, host="h", port=9), node(node_id=2, host="", port=0)
    response = cls(node_endpoints=[known, unknown])
    assert endpoints(key, response) == [known]
    assert endpoints(key, response)[0] is known
    assert endpoints(key, cls()) == []


def test_brokers_and_coordinators() -> None:
    broker = MetadataResponse.Broker(node_id=1, host="h", port=9)
    assert endpoints(3, MetadataResponse(brokers=[broker])) == [broker]
    old = FindCoordinatorResponse(node_id=1, host="h", port=9)
    assert endpoints(10, old) == [old]
    none = FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1)
    assert endpoints(10, none) == []
    found = FindCoordinatorResponse.Coordinator(key="g", node_id=1, host="h", port=9)
    lost = FindCoordinatorResponse.Coordinator(key="g", node_id=-1, host="", port=-1, error_code=15)
    assert endpoints(10, FindCoordinatorResponse(coordinators=[found, lost])) == [found]
    leader = UpdateRaftVoterResponse.CurrentLeader(leader_id=1, host="h", port=9)
    assert endpoints(82, UpdateRaftVoterResponse(current_leader=leader)) == [leader]
    assert endpoints(82, UpdateRaftVoterResponse()) == []
    assert endpoints(12, kafka_wire.HeartbeatResponse()) == []
    assert may_change(PACKAGE, 18)
    assert not may_change(PACKAGE, 12)
    assert not may_change(PACKAGE, None)


def offered(*ranges: tuple[int, int, int]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in ranges
        ]
    )


def test_versions_are_limited_to_those_known() -> None:
    high = kafka_wire.MetadataRequest.max_version
    response = offered((3, 5, high + 7), (18, 0, 3), (1, 90, 99), (4000, 0, 1))
    assert limit_versions(PACKAGE, response) == [
        f"Metadata 5 to {high + 7} limited to 5 to {high}",
        "Fetch 90 to 99 removed",
        "key 4000 removed",
    ]
    assert response == offered((3, 5, high), (18, 0, 3))


def test_known_versions_stay() -> None:
    response = offered((3, 0, 13), (18, 0, 3))
    assert limit_versions(PACKAGE, response) == []
    assert response == offered((3, 0, 13), (18, 0, 3))
