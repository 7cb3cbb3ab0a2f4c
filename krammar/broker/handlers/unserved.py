"""Answers requests that this broker does not serve: like Kafka with the feature off, or with UNSUPPORTED_VERSION.

Kafka closes the connection after a request with an unknown api key, which tells clients nothing.
Here they find the error in the response.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import kafka_wire
from kafka_wire import ErrorCode, StreamsGroupDescribeResponse

from krammar.broker.errors import ApiError, CloseConnection
from krammar.broker.session import ANONYMOUS, Session
from krammar.wire.reflection import fields

# The maximum number of groups of a request that get a response each.
MOST_GROUPS = 1000


@dataclass(eq=False)
class UnservedHandlers:
    def refuse(self, session: Session, request: Any, version: int) -> Any:
        """Build the response to any unserved request. Raises CloseConnection if it names too many groups."""
        name = type(request).__name__.removesuffix("Request")
        error = _error(session, name)
        response = getattr(kafka_wire, f"{name}Response")()
        error.put_into(response)
        if name.endswith("DelegationToken"):
            _add_times(response, version, session)
        if name == "StreamsGroupDescribe":
            if len(request.group_ids) > MOST_GROUPS:
                raise CloseConnection(f"{error.message}; it names more than {MOST_GROUPS} groups")
            for group_id in request.group_ids:
                group = StreamsGroupDescribeResponse.DescribedGroup(group_id=group_id)
                error.put_into(group)
                response.groups.append(group)
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
