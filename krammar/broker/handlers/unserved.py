"""Answers requests that this broker does not serve with UNSUPPORTED_VERSION.

Kafka closes the connection after a request with an unknown api key, which tells clients nothing. Here they find the
error in the response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import kafka_wire
from kafka_wire import (
    AlterClientQuotasResponseEntry,
    AlterClientQuotasResponseEntryEntity,
    AlterReplicaLogDirsResponseResult,
    AlterReplicaLogDirsResponseResultPartition,
    CreateAclsResponseResult,
    DeleteAclsResponseFilterResult,
    DescribeShareGroupOffsetsResponseGroup,
    ErrorCode,
    ShareGroupDescribeResponseGroup,
    StreamsGroupDescribeResponseGroup,
    WriteTxnMarkersResponseMarker,
    WriteTxnMarkersResponseMarkerTopic,
    WriteTxnMarkersResponseMarkerTopicPartition,
)

from krammar.broker.errors import CloseConnection

if TYPE_CHECKING:
    from krammar.broker.session import Session

ERROR = ErrorCode.UNSUPPORTED_VERSION
# The maximum number of entries of a request that get a response each.
MOST_ENTRIES = 1000


def unserved(session: Session, request: Any, version: int) -> Any:
    """Build the response to any unserved request. Raises CloseConnection if it has too many entries."""
    name = type(request).__name__.removesuffix("Request")
    response = getattr(kafka_wire, f"{name}Response")()
    message = f"{name} is not served by this broker"
    if hasattr(response, "error_code"):
        response.error_code = ERROR
    if hasattr(response, "error_message"):
        response.error_message = message
    if name in _ENTRIES:
        if _count(request) > MOST_ENTRIES:
            raise CloseConnection(f"{message}; it has more than {MOST_ENTRIES} entries")
        entries, result, answer = _ENTRIES[name]
        found = getattr(request, entries) or ()
        setattr(response, result, [each for entry in found for each in answer(entry, message)])
    return response


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


# Builds the responses for one entry of a request and an error message.
_Answer = Callable[[Any, str], Iterator[Any]]


def _error(make: Callable[..., Any]) -> _Answer:
    def answer(entry: Any, message: str) -> Iterator[Any]:
        yield make(error_code=ERROR, error_message=message)

    return answer


def _group(make: Callable[..., Any]) -> _Answer:
    def answer(group: Any, message: str) -> Iterator[Any]:
        name = getattr(group, "group_id", group)
        yield make(group_id=name, error_code=ERROR, error_message=message)

    return answer


def _quota(entry: Any, message: str) -> Iterator[AlterClientQuotasResponseEntry]:
    yield AlterClientQuotasResponseEntry(
        error_code=ERROR,
        error_message=message,
        entity=[
            AlterClientQuotasResponseEntryEntity(
                entity_type=each.entity_type, entity_name=each.entity_name
            )
            for each in entry.entity
        ],
    )


def _marker(marker: Any, message: str) -> Iterator[WriteTxnMarkersResponseMarker]:
    yield WriteTxnMarkersResponseMarker(
        producer_id=marker.producer_id,
        topics=[
            WriteTxnMarkersResponseMarkerTopic(
                name=topic.name,
                partitions=[
                    WriteTxnMarkersResponseMarkerTopicPartition(
                        partition_index=index, error_code=ERROR
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


def _log_dir(directory: Any, message: str) -> Iterator[AlterReplicaLogDirsResponseResult]:
    for topic in directory.topics:
        yield AlterReplicaLogDirsResponseResult(
            topic_name=topic.name,
            partitions=[
                AlterReplicaLogDirsResponseResultPartition(partition_index=index, error_code=ERROR)
                for index in topic.partitions
            ],
        )


# By API: the list in the request, the list in the response, and the function that answers an entry.
_ENTRIES: dict[str, tuple[str, str, _Answer]] = {
    "WriteTxnMarkers": ("markers", "markers", _marker),
    "CreateAcls": ("creations", "results", _error(CreateAclsResponseResult)),
    "DeleteAcls": ("filters", "filter_results", _error(DeleteAclsResponseFilterResult)),
    "AlterReplicaLogDirs": ("dirs", "results", _log_dir),
    "AlterClientQuotas": ("entries", "entries", _quota),
    "ShareGroupDescribe": ("group_ids", "groups", _group(ShareGroupDescribeResponseGroup)),
    "StreamsGroupDescribe": ("group_ids", "groups", _group(StreamsGroupDescribeResponseGroup)),
    "DescribeShareGroupOffsets": (
        "groups",
        "groups",
        _group(DescribeShareGroupOffsetsResponseGroup),
    ),
}
