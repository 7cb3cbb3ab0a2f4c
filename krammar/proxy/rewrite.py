"""Changes responses so that clients stay on the proxy, and use versions that it can decode.

- The addresses of brokers are replaced by the proxy's.
- ApiVersions responses offer only versions that the definitions have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from krammar.wire.kafka import (
    API_VERSIONS,
    KAFKA,
    METADATA,
    fields_by_name,
    has_api_versions,
    is_named,
)
from krammar.wire.package import Package

# Entities of the definitions: the address of a broker to which receivers of a response connect, in one struct.
_HOST, _PORT, _ID = "brokerHost", "brokerPort", "brokerId"

# Responses to Produce and Fetch are frequent. Their node endpoints are a tagged field at their end (KIP-951).
_TAGGED = {0: "Produce", 1: "Fetch"}


class Endpoint(NamedTuple):
    """The address of a broker in a response: the struct with it, and the attributes with its id, host and port."""

    struct: Any
    names: tuple[str, str, str]

    @property
    def place(self) -> tuple[int, str, int]:
        """The id of the broker, its host and its port."""
        node, host, port = self.names
        return getattr(self.struct, node), getattr(self.struct, host), getattr(self.struct, port)

    def move(self, host: str, port: int | None) -> None:
        """Replace the address."""
        setattr(self.struct, self.names[1], host)
        setattr(self.struct, self.names[2], port)


class _Places(NamedTuple):
    """Where a struct has addresses: its own attributes as in ``Endpoint``, and those with structs that have addresses."""

    own: tuple[str, str, str] | None
    inside: tuple[tuple[str, _Places], ...]


@cache
def _places(cls: Any) -> _Places:
    fields = fields_by_name(cls)
    known = {field.entity: name for name, field in fields.items()}
    own = (known[_ID], known[_HOST], known[_PORT]) if _HOST in known else None  # see E406
    inside = ((name, _places(field.struct)) for name, field in fields.items() if field.struct)
    return _Places(own, tuple((name, each) for name, each in inside if any(each)))


def endpoints(response: Any) -> list[Endpoint]:
    """Return the addresses of brokers in a response.

    An unknown coordinator or leader, with an empty host or without a port, is omitted.
    """
    found: list[Endpoint] = []
    cls: Any = type(response)  # mypy takes instances, which have no hash, for their class
    _find(response, _places(cls), found)
    return found


def _find(value: Any, places: _Places, found: list[Endpoint]) -> None:
    if isinstance(value, list):
        for each in value:
            _find(each, places, found)
    elif value is not None:
        if places.own is not None:
            endpoint = Endpoint(value, places.own)
            _, host, port = endpoint.place
            if host and port > 0:
                found.append(endpoint)
        for name, inside in places.inside:
            _find(getattr(value, name), inside, found)


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
def may_change(package: Package, api_key: int | None, version: int | None = None) -> bool:
    """Return whether responses may be changed: they have addresses of brokers, or are Kafka's ApiVersions.

    Args:
        version: of the request; None for any version.
    """
    if api_key == API_VERSIONS and has_api_versions(package):
        return True
    info = None if api_key is None else package.requests.get(api_key)
    first = None if info is None else info.endpoints_from
    return first is not None and (version is None or version >= first)


def check_marks(package: Package) -> None:
    """Check that definitions of Kafka's Metadata mark the addresses of brokers: otherwise clients would leave the proxy.

    Raises:
        ValueError: they do not.
    """
    if package.name == KAFKA or not is_named(package, METADATA, "Metadata"):
        return
    brokers = fields_by_name(package.response_class(METADATA)).get("brokers")
    struct: Any = None if brokers is None else brokers.struct
    if {"host", "port"} <= fields_by_name(struct).keys() and (
        package.requests[METADATA].endpoints_from is None
    ):
        raise ValueError(
            f"the definitions of {package.name} do not mark the addresses of brokers: add `entity brokerHost` and "
            "`entity brokerPort` to the fields of responses, and `entity brokerId` beside them"
        )


@cache
def ends_with_endpoints(package: Package, api_key: int) -> bool:
    """Return whether addresses in responses are in a tagged field at their end only, the one with tag 0."""
    if not is_named(package, api_key, _TAGGED.get(api_key, "")):
        return False
    if package.name == KAFKA:
        return True
    cls = package.response_class(api_key)
    fields, places = fields_by_name(cls), _places(cls)
    return places.own is None and {fields[name].tag for name, _ in places.inside} == {0}
