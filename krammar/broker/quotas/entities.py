"""The keys of quotas and the entities that have them, with Kafka's checks of both (KIP-546)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from ipaddress import IPv6Address, ip_address

from kafka_wire import ClientQuotaRecord

from krammar.broker.errors import invalid_request

# The types of entities. A quota of a user and of a client id can be combined.
USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
TYPES = (USER, CLIENT_ID, IP)

# The keys, and the units of their values.
PRODUCE = "producer_byte_rate"  # bytes of requests per second
FETCH = "consumer_byte_rate"  # bytes of records per second
REQUEST = "request_percentage"  # of the time of the event loop
MUTATION = "controller_mutation_rate"  # partitions created and deleted per second
CONNECTION = "connection_creation_rate"  # connections per second

# Types and names. None is the default for all names without a quota of their own.
Entity = frozenset[tuple[str, str | None]]
# A quota's entity and key.
QuotaKey = tuple[Entity, str]

# The largest value of the keys whose values are whole numbers, and the name of their type.
_WHOLE = {
    PRODUCE: ((1 << 63) - 1, "a LONG"),
    FETCH: ((1 << 63) - 1, "a LONG"),
    CONNECTION: ((1 << 31) - 1, "an INT"),
}
_OF_CLIENTS = frozenset({PRODUCE, FETCH, REQUEST, MUTATION})
_OF_ADDRESSES = frozenset({CONNECTION})
_FRACTION = 1e-6


def check_quota_entity(parts: Mapping[str, str | None]) -> None:
    """Raise ApiError(INVALID_REQUEST) for an entity that no quota can have. ``parts`` are names by type."""
    if not parts:
        raise invalid_request("Invalid empty client quota entity")
    for kind, name in parts.items():
        if kind not in TYPES:
            raise invalid_request(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise invalid_request(f"Empty {kind} not supported")
    if IP not in parts:
        return
    if len(parts) > 1:
        raise invalid_request(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    address = parts[IP]
    if address is not None and canonical(address) is None:
        raise invalid_request(f"{address} is not a valid IP or resolvable host.")


def check_quota_value(parts: Mapping[str, str | None], key: str, value: float) -> None:
    """Raise ApiError(INVALID_REQUEST) for a key that an entity cannot have, or for its value."""
    if key not in (_OF_ADDRESSES if IP in parts else _OF_CLIENTS):
        raise invalid_request(f"Invalid configuration key {key}")
    if not math.isfinite(value):
        raise invalid_request(f"Quota {key} must be a finite number")
    if value <= 0:
        raise invalid_request(f"Quota {key} must be greater than 0")
    if key in _WHOLE:
        largest, kind = _WHOLE[key]
        if value > largest:
            raise invalid_request(f"Proposed value for {key} is too large for {kind}.")
        if math.fmod(value, 1.0) > _FRACTION:
            raise invalid_request(f"{key} cannot be a fractional value.")


def quota_record(
    parts: Mapping[str, str | None], key: str, value: float | None
) -> ClientQuotaRecord:
    """Return the record of the metadata log that sets a quota, or removes it if the value is None."""
    entity = [
        ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)
        for kind, name in parts.items()
    ]
    return ClientQuotaRecord(entity=entity, key=key, value=value or 0.0, remove=value is None)


def canonical(address: str) -> str | None:
    """Return the one form of an IP address that is compared; None if it is not an address."""
    try:
        found = ip_address(address)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)


def client_entities(
    user: str, client_id: str
) -> Iterator[tuple[Entity, tuple[str | None, str | None]]]:
    """Yield the entities whose quota can limit a client, the one that takes precedence first.

    With each comes whose use counts together: a user, a client id or both; None stands for any.
    """
    for name in (user, None):
        for own in (client_id, None):
            yield frozenset(((USER, name), (CLIENT_ID, own))), (user, client_id)
        yield frozenset(((USER, name),)), (user, None)
    for own in (client_id, None):
        yield frozenset(((CLIENT_ID, own),)), (None, client_id)
