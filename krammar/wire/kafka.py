"""Which messages of a package are Kafka's. Kafka's special cases apply to those only.

Protocols of users have the same api keys, and may have the same names. So a special case asks here, and needs the api
key, the name and the fields that it uses. A package that someone else generated from Kafka's definitions, or from a
part of them, has them too.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from krammar.wire.package import Package

PRODUCE, FETCH, METADATA, SASL_HANDSHAKE, API_VERSIONS = 0, 1, 3, 17, 18

# The package of krammar's own definitions, whose fields need no check. That spares imports.
KAFKA = "kafka_wire"


def is_named(package: Package, api_key: int, name: str) -> bool:
    """Return whether the request with this key has this name, such as ``Produce``."""
    known = package.requests.get(api_key)
    return known is not None and known.name == f"{name}Request"


def _is_int16(field: Any) -> bool:
    return field is not None and (field.type == "int16" or field.enum is not None)


def fields_by_name(cls: Any) -> dict[str, Any]:
    """Return the fields of a class, as ``krammar.wire.reflection.fields``, by name; none of None."""
    from krammar.wire.reflection import (
        fields,
    )  # only for packages of others, because it takes milliseconds

    return {} if cls is None else {field.name: field for field in fields(cls)}


@cache
def has_acks(package: Package) -> bool:
    """Return whether requests with key 0 are Kafka's Produce, which has no response with ``acks`` 0.

    The proxy reads ``acks`` from the bytes of requests. So the fields before it have to be Kafka's, too.
    """
    if not is_named(package, PRODUCE, "Produce"):
        return False
    if package.name == KAFKA:
        return True
    request, info = package.request_class(PRODUCE), package.requests[PRODUCE]
    known = fields_by_name(request)
    types = {name: field.type for name, field in known.items()}
    if types.get("acks") != "int16" or types.get("transactional_id", "string") != "string":
        return False
    for version in range(info.min_version, info.max_version + 1):
        first = [field.name for field in package.layout(request, version).fields[:2]]
        is_flexible = info.flexible_from is not None and version >= info.flexible_from
        expected = ["transactional_id", "acks"] if version >= 3 else ["acks"]
        if first[: len(expected)] != expected or is_flexible != (version >= 9):
            return False
    return True


@cache
def has_fetch_sessions(package: Package) -> bool:
    """Return whether requests with key 1 are Kafka's Fetch, with the sessions of KIP-227."""
    if not is_named(package, FETCH, "Fetch"):
        return False
    if package.name == KAFKA:
        return True
    request = fields_by_name(package.request_class(FETCH))
    response = fields_by_name(package.response_class(FETCH))
    ids = [known.get("session_id") for known in (request, response)]
    return all(each is not None and each.type == "int32" for each in ids) and _is_int16(
        response.get("error_code")
    )


@cache
def has_tokens(package: Package) -> bool:
    """Return whether requests with key 17 are Kafka's SaslHandshake, after whose version 0 bare tokens follow."""
    if not is_named(package, SASL_HANDSHAKE, "SaslHandshake"):
        return False
    if package.name == KAFKA:
        return True
    response = package.response_class(SASL_HANDSHAKE)
    return _is_int16(fields_by_name(response).get("error_code"))


@cache
def has_api_versions(package: Package) -> bool:
    """Return whether key 18 is Kafka's ApiVersions, which is answered in version 0 if its version is unknown."""
    if not is_named(package, API_VERSIONS, "ApiVersions"):
        return False
    if package.name == KAFKA:
        return True
    known = fields_by_name(package.response_class(API_VERSIONS))
    ranges = known.get("api_keys")
    if next(iter(known), "") != "error_code" or not _is_int16(known["error_code"]):
        return False
    if ranges is None or ranges.struct is None or not ranges.type.startswith("["):
        return False
    inner = fields_by_name(ranges.struct)
    names = ("api_key", "min_version", "max_version")
    return package.requests[API_VERSIONS].min_version == 0 and all(
        _is_int16(inner.get(name)) for name in names
    )
