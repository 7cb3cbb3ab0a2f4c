"""Changes names in the bytes of a frame without decoding it, for messages that are frequent: Produce and Fetch.

A walk finds the places of names by the entities in the definitions. A frame with anything else that concerns a tenant, such
as error messages, tagged fields or ids of others, and an invalid frame, is left to the method for decoded messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kafka_wire

from krammar.proxy.filters.tenant_fields import ENTITIES, ERROR_MESSAGE, PATTERN, TOPIC_ID
from krammar.proxy.filters.tenant_names import Tenant
from krammar.proxy.interface import Connection, Patch
from krammar.wire.package import package_of
from krammar.wire.skip import TAGGED
from krammar.wire.splice import change_of

# The entities of numbers that are checked: a function decides whether the frame can be passed on. In a request, the id of
# a broker is the broker that sends it.
BROKER_ID, SESSION_ID = "brokerId", "fetchSessionId"

_PACKAGE = package_of(kafka_wire)


def patch_of(
    cls: Any,
    version: int,
    find: Callable[[Connection], Tenant],
    owned: Callable[[Tenant, bytes], bool],
    allowed: Callable[[Tenant, Connection, str, int], bool],
) -> Patch:
    """Return the function for a class of messages: it adds the prefix in requests, and removes it in responses.

    Args:
        find: returns the tenant of a connection.
        owned: returns whether a topic id is the tenant's.
        allowed: returns whether a number, given with its entity, can be passed on.
    """
    adds = hasattr(cls, "response_class")
    headers = _PACKAGE.header_versions(cls.api_key, version)
    if adds:
        header: tuple[Any, int] = kafka_wire.RequestHeader, headers.request
        checked: tuple[str, ...] = (BROKER_ID, SESSION_ID)
    else:
        header = kafka_wire.ResponseHeader, headers.response
        checked = (SESSION_ID,)
    marks = (*ENTITIES, TOPIC_ID, ERROR_MESSAGE, PATTERN, TAGGED, *checked)
    compact = kafka_wire.layout(cls, version).flexible
    change = change_of(header, (cls, version), marks, ENTITIES, adds, compact)

    def patch(data: Any, begin: int, end: int, connection: Connection) -> Any:
        tenant = find(connection)
        changed = change(data, begin, end, tenant.prefix_bytes)
        if changed is None:
            return None  # decoding says what is wrong
        places, pieces = changed
        for mark, _, content, after in places:
            if mark == TOPIC_ID:
                if not owned(tenant, bytes(data[content:after])):
                    return None
            elif mark in checked:
                number = int.from_bytes(data[content:after], "big", signed=True)
                if not allowed(tenant, connection, mark, number):
                    return None
            else:
                return None
        return pieces

    return patch
