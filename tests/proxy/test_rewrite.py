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

from krammar.proxy.rewrite import endpoints, ends_with_endpoints, limit_versions, may_change
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
    unmarked = set()
    for info in PACKAGE.request_infos():
        cls: Any = kafka_wire.response_class(info.key)
        first = None
        for version in range(cls.min_version, cls.max_version + 1):
            for layout in layouts(kafka_wire.layout(cls, version)):
                entities = {field.name: field.entity for field in (*layout.fields, *layout.tags)}
                if "brokerHost" in entities.values():
                    first = version if first is None else first
                    assert (entities["host"], entities["port"]) == ("brokerHost", "brokerPort")
                elif {"host", "port"} <= entities.keys():
                    unmarked.add(cls.__name__)
        assert info.endpoints_from == first, info.name
    assert unmarked == NO_BROKERS


def found(response: Any) -> list[Any]:
    return [each.struct for each in endpoints(response)]


@pytest.mark.parametrize("key", [0, 1, 52, 53, 54, 59, 78, 79])
def test_node_endpoints(key: int) -> None:
    cls: Any = kafka_wire.response_class(key)
    node = named(cls, kinds_of(cls)["node_endpoints"])
    known, unknown = node(node_id=1, host="h", port=9), node(node_id=2, host="", port=0)
    [endpoint] = endpoints(cls(node_endpoints=[known, unknown]))
    assert endpoint.struct is known and endpoint.place == (1, "h", 9)
    endpoint.move("proxy", 10)
    assert (known.host, known.port) == ("proxy", 10)
    assert endpoints(cls()) == []


def test_brokers_and_coordinators() -> None:
    broker = MetadataResponse.Broker(node_id=1, host="h", port=9)
    assert found(MetadataResponse(brokers=[broker])) == [broker]
    old = FindCoordinatorResponse(node_id=1, host="h", port=9)
    assert found(old) == [old]
    none = FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1)
    assert found(none) == []
    known = FindCoordinatorResponse.Coordinator(key="g", node_id=1, host="h", port=9)
    lost = FindCoordinatorResponse.Coordinator(key="g", node_id=-1, host="", port=-1, error_code=15)
    assert found(FindCoordinatorResponse(coordinators=[known, lost])) == [known]
    leader = UpdateRaftVoterResponse.CurrentLeader(leader_id=1, host="h", port=9)
    assert found(UpdateRaftVoterResponse(current_leader=leader)) == [leader]
    assert found(UpdateRaftVoterResponse()) == []
    assert found(kafka_wire.HeartbeatResponse()) == []
    assert may_change(PACKAGE, 18)
    assert not may_change(PACKAGE, 12)
    assert not may_change(PACKAGE, None)
    assert [may_change(PACKAGE, 1, version) for version in (15, 16)] == [False, True]
    assert [key for key in PACKAGE.requests if ends_with_endpoints(PACKAGE, key)] == [0, 1]


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
