"""Requests for WriteTxnMarkers."""

from __future__ import annotations

from typing import Any

from kafka_wire import ErrorCode, WriteTxnMarkersRequest

from tests.broker.support import RawClient
from tests.broker.transactions.support import Where


def markers(
    producer_id: int,
    epoch: int,
    *partitions: Where,
    commit: bool = False,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> WriteTxnMarkersRequest.WritableTxnMarker:
    """One marker for partitions."""
    kind = WriteTxnMarkersRequest
    return kind.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
        topics=[
            kind.WritableTxnMarkerTopic(
                name=name, partition_indexes=[index for topic, index in partitions if topic == name]
            )
            for name in dict.fromkeys(topic for topic, _ in partitions)
        ],
    )


def write(client: RawClient, *all_markers: Any, version: int = 2) -> dict[Any, str]:
    """Send markers; the name of the error of each producer and partition."""
    response = client.call(WriteTxnMarkersRequest(markers=list(all_markers)), version)
    return {
        (marker.producer_id, topic.name, each.partition_index): ErrorCode(each.error_code).name
        for marker in response.markers
        for topic in marker.topics
        for each in topic.partitions
    }
