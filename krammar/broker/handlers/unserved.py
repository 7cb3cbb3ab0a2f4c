"""Answers requests that this broker does not serve: like Kafka with the feature off, or with UNSUPPORTED_VERSION.

Kafka closes the connection after a request with an unknown api key, which tells clients nothing.
Here they find the error in the response.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import kafka_wire
from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError, CloseConnection
from krammar.broker.session import ANONYMOUS, Session
from krammar.wire.reflection import fields
from krammar.wire.representation import kinds_of, named

# The maximum number of entries of a request that get a response each.
MOST_ENTRIES = 1000
# By API: the list in the request, and the list in the response with an error for each entry.
_ENTRIES = {
    "StreamsGroupDescribe": ("group_ids", "groups"),
    "WriteTxnMarkers": ("markers", "markers"),
}


@dataclass(eq=False)
class UnservedHandlers:
    def refuse(self, session: Session, request: Any, version: int) -> Any:
        """Build the response to any unserved request. Raises CloseConnection if it has too many entries."""
        name = type(request).__name__.removesuffix("Request")
        error = _error(session, name)
        response = getattr(kafka_wire, f"{name}Response")()
        error.put_into(response)
        if name.endswith("DelegationToken"):
            _add_times(response, version, session)
        if name in _ENTRIES:
            if _count(request) > MOST_ENTRIES:
                raise CloseConnection(f"{error.message}; it has more than {MOST_ENTRIES} entries")
            entries, results = _ENTRIES[name]
            kind = named(type(response), kinds_of(type(response))[results])
            found = getattr(request, entries) or ()
            setattr(response, results, [_mirror(kind, each, error) for each in found])
        return response


def _error(session: Session, name: str) -> ApiError:
    if name.endswith("DelegationToken"):
        if session.sasl is None and session.principal == ANONYMOUS:
            return ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "")
        return ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "")
    return ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{name} is not served by this broker")


def _add_times(response: Any, version: int, session: Session) -> None:
    """Fill in what Kafka says about a delegation token that does not exist."""
    for name in (info.name for info in fields(type(response)) if version in info.versions):
        if name.endswith("_timestamp_ms"):
            setattr(response, name, -1)
        elif name.endswith("principal_type"):
            setattr(response, name, session.principal.partition(":")[0])
        elif name.endswith("principal_name"):
            setattr(response, name, session.principal.partition(":")[2])


def _mirror(kind: Any, entry: Any, error: ApiError) -> Any:
    """Build the response for an entry of a request: an error, and the fields that both have."""
    struct = kind()
    error.put_into(struct)
    if isinstance(entry, str):
        struct.group_id = entry
    if isinstance(entry, int):
        struct.partition_index = entry
    for name in set(kind._fields) - {"error_code", "error_message"}:
        value = getattr(entry, "partition_indexes" if name == "partitions" else name, None)
        if isinstance(value, list):
            inner = named(kind, kinds_of(kind)[name])
            value = [_mirror(inner, each, error) for each in value]
        if value is not None:
            setattr(struct, name, value)
    return struct


def _count(value: Any) -> int:
    """Count the entries of all lists in a message, and stop above ``MOST_ENTRIES``."""
    count = 0
    if isinstance(value, list):
        count = len(value)
        parts = iter(value)
    else:
        parts = (getattr(value, name) for name in getattr(value, "_fields", ()))
    for part in parts:
        if count > MOST_ENTRIES:
            break
        count += _count(part)
    return count
