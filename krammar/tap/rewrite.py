"""What the proxy changes in responses, so that clients stay on it and speak versions it can read.

- Responses that name brokers to connect to name the proxy instead.
- ApiVersions' response offers no version that the definitions do not have: a client that chose one
  could not be read any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from krammar.wire.connection import API_VERSIONS
from krammar.wire.package import Package


def _node_endpoints(response: Any) -> Iterable[Any]:
    return response.node_endpoints  # type: ignore[no-any-return]


# By api key, what in a response has the attributes host and port and is a node of the cluster that
# the receiver may connect to. Left alone are the endpoints that Kafka Streams applications publish for
# each other (StreamsGroupHeartbeat, StreamsGroupDescribe), which are no brokers, and the listeners in
# DescribeQuorum, which are shown to people and never connected to.
ENDPOINTS: dict[int, Callable[[Any], Iterable[Any]]] = {
    0: _node_endpoints,  # Produce
    1: _node_endpoints,  # Fetch
    3: lambda response: response.brokers,  # Metadata
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


def endpoints(api_key: int, response: Any) -> list[Any]:
    """The parts of a response that name a node to connect to, by ``host`` and ``port``.

    A coordinator or leader that is not known has an empty host or no port, and is left out.
    """
    find = ENDPOINTS.get(api_key)
    if find is None:
        return []
    return [node for node in find(response) if node.host and node.port > 0]


def limit_versions(package: Package, response: Any) -> list[str]:
    """Limit an ApiVersions response, in place, to the versions that ``package`` has.

    Returns what was changed, one line a request.
    """
    known = package.versions()
    kept = []
    notes = []
    for entry in response.api_keys:
        offered = f"{entry.min_version} to {entry.max_version}"
        if entry.api_key not in known:
            notes.append(f"key {entry.api_key} left out")
            continue
        name = package.requests[entry.api_key][0].removesuffix("Request")
        low, high = known[entry.api_key]
        low, high = max(low, entry.min_version), min(high, entry.max_version)
        if low > high:
            notes.append(f"{name} {offered} left out")
            continue
        if (low, high) != (entry.min_version, entry.max_version):
            notes.append(f"{name} {offered} limited to {low} to {high}")
            entry.min_version, entry.max_version = low, high
        kept.append(entry)
    if notes:
        response.api_keys = kept
    return notes


def may_change(api_key: int | None) -> bool:
    """Whether responses of this key are ever rewritten."""
    return api_key == API_VERSIONS or api_key in ENDPOINTS
