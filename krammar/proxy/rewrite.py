"""Changes responses so that clients stay on the proxy, and use versions that it can decode.

- The addresses of brokers are replaced by the proxy's.
- ApiVersions responses offer only versions that the definitions have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from krammar.wire.negotiation import API_VERSIONS
from krammar.wire.package import Package

METADATA = 3


def _node_endpoints(response: Any) -> Iterable[Any]:
    return response.node_endpoints  # type: ignore[no-any-return]


# By api key: the parts of a response that have host and port of a node to which the receiver may connect. Not
# included are the endpoints that Kafka Streams applications publish for each other (StreamsGroupHeartbeat,
# StreamsGroupDescribe), which are not brokers, and the listeners in DescribeQuorum, which are only displayed.
ENDPOINTS: dict[int, Callable[[Any], Iterable[Any]]] = {
    0: _node_endpoints,  # Produce
    1: _node_endpoints,  # Fetch
    METADATA: lambda response: response.brokers,  # Metadata
    10: lambda response: (response, *response.coordinators),  # FindCoordinator, to v3 and from v4
    52: _node_endpoints,  # Vote
    53: _node_endpoints,  # BeginQuorumEpoch
    54: _node_endpoints,  # EndQuorumEpoch
    59: _node_endpoints,  # FetchSnapshot
    60: lambda response: response.brokers,  # DescribeCluster
    78: _node_endpoints,  # ShareFetch
    79: _node_endpoints,  # ShareAcknowledge
    82: lambda response: (response.current_leader,),  # UpdateRaftVoter
}

# Responses to Produce and Fetch are frequent. By api key: the first version with node endpoints, which are a tagged
# field at their end (KIP-951).
TAGGED_ENDPOINTS = {0: 10, 1: 16}


def endpoints(api_key: int, response: Any) -> list[Any]:
    """Return the parts of a response that have ``host`` and ``port`` of a node to connect to.

    An unknown coordinator or leader, with an empty host or without a port, is omitted.
    """
    find = ENDPOINTS.get(api_key)
    if find is None:
        return []
    return [node for node in find(response) if node.host and node.port > 0]


def node_id(node: Any) -> int:
    """Return the id of a node that ``endpoints`` found."""
    for name in ("node_id", "broker_id"):
        if hasattr(node, name):
            return int(getattr(node, name))
    return int(node.leader_id)


def limit_versions(
    package: Package, response: Any, limits: Callable[[int], bool] | None = None
) -> list[str]:
    """Limit an ApiVersions response, in place, to the versions that ``package`` has.

    Args:
        limits: returns whether an api key is limited. Default: all are.

    Returns:
        A description of each change.
    """
    known = package.versions()
    served = []
    notes = []
    for entry in response.api_keys:
        if limits is not None and not limits(entry.api_key):
            served.append(entry)
            continue
        offered = f"{entry.min_version} to {entry.max_version}"
        if entry.api_key not in known:
            notes.append(f"key {entry.api_key} removed")
            continue
        name = package.requests[entry.api_key].api_name
        low, high = known[entry.api_key]
        low, high = max(low, entry.min_version), min(high, entry.max_version)
        if low > high:
            notes.append(f"{name} {offered} removed")
            continue
        if (low, high) != (entry.min_version, entry.max_version):
            notes.append(f"{name} {offered} limited to {low} to {high}")
            entry.min_version, entry.max_version = low, high
        served.append(entry)
    if notes:
        response.api_keys = served
    return notes


def may_change(package: Package, api_key: int | None) -> bool:
    """Return whether responses with this key may be changed; only those of Kafka's protocol are."""
    if api_key != API_VERSIONS and api_key not in ENDPOINTS:
        return False
    metadata = package.requests.get(METADATA)
    return metadata is not None and metadata.name == "MetadataRequest"
