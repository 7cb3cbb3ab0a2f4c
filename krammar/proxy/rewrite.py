"""Changes responses so that clients stay on the proxy, and use versions that it can decode.

- The addresses of brokers are replaced by the proxy's.
- ApiVersions responses offer only versions that the definitions have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from krammar.wire.kafka import API_VERSIONS, KAFKA, fields_by_name, has_api_versions, is_named
from krammar.wire.package import Package

# By api key: the name of an API, and the fields of its response that have host and port of a node to which the receiver may
# connect, or of arrays of them; "" is the response itself. Not included are the endpoints that Kafka Streams applications publish
# for each other (StreamsGroupHeartbeat, StreamsGroupDescribe), which are not brokers, and the listeners in DescribeQuorum, which
# are only displayed.
ENDPOINTS: dict[int, tuple[str, tuple[str, ...]]] = {
    0: ("Produce", ("node_endpoints",)),
    1: ("Fetch", ("node_endpoints",)),
    3: ("Metadata", ("brokers",)),
    10: ("FindCoordinator", ("", "coordinators")),  # to v3 and from v4
    52: ("Vote", ("node_endpoints",)),
    53: ("BeginQuorumEpoch", ("node_endpoints",)),
    54: ("EndQuorumEpoch", ("node_endpoints",)),
    59: ("FetchSnapshot", ("node_endpoints",)),
    60: ("DescribeCluster", ("brokers",)),
    78: ("ShareFetch", ("node_endpoints",)),
    79: ("ShareAcknowledge", ("node_endpoints",)),
    82: ("UpdateRaftVoter", ("current_leader",)),
}
_IDS = ("node_id", "broker_id", "leader_id")

# Responses to Produce and Fetch are frequent. By api key: the first version with node endpoints, which are a tagged
# field at their end (KIP-951).
TAGGED_ENDPOINTS = {0: 10, 1: 16}


def endpoints(api_key: int, response: Any) -> list[Any]:
    """Return the parts of a response that have ``host`` and ``port`` of a node to connect to.

    An unknown coordinator or leader, with an empty host or without a port, is omitted.
    """
    _, names = ENDPOINTS.get(api_key, ("", ()))
    found = []
    for name in names:
        value = getattr(response, name, None) if name else response
        if not name and not hasattr(response, "host"):
            continue  # the definitions have newer versions only
        nodes = value if isinstance(value, list) else [] if value is None else [value]
        found += [node for node in nodes if node.host and node.port > 0]
    return found


def node_id(node: Any) -> int:
    """Return the id of a node that ``endpoints`` found."""
    return int(next(getattr(node, name) for name in _IDS if hasattr(node, name)))


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


@cache
def may_change(package: Package, api_key: int | None) -> bool:
    """Return whether responses with this key may be changed; only those of Kafka's protocol are."""
    if api_key == API_VERSIONS:
        return has_api_versions(package)
    name, names = ENDPOINTS.get(-1 if api_key is None else api_key, ("", ()))
    if api_key is None or not is_named(package, api_key, name):
        return False
    if package.name == KAFKA:
        return True
    response = package.response_class(api_key)
    known = fields_by_name(response)
    # Definitions of some versions lack some of them.
    there = [name for name in names if (name or "host") in known]
    if api_key in TAGGED_ENDPOINTS and any(known[name].tag != 0 for name in there):
        return False
    return bool(there) and all(
        _is_endpoint(known[name].struct if name else response)
        and (not name or known[name].type.count("[") < 2)
        for name in there
    )


def _is_endpoint(struct: Any) -> bool:
    types = {name: field.type for name, field in fields_by_name(struct).items()}
    ids = [types[name] for name in _IDS if name in types]
    return (
        types.get("host") == "string"
        and types.get("port") in ("int32", "uint16")
        and ids[:1] == ["int32"]
    )
