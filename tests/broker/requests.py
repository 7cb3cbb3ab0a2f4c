"""Requests that many tests send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kafka_wire import (
    AlterConfigOp,
    ConfigResourceType,
    CreateTopicsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ProduceRequest,
)

from krammar.wire.batches import Record, encode_batch
from tests.broker.support import RawClient

NO_ID = UUID(int=0)


def create_topic(client: RawClient, name: str, partitions: int = 1, **configs: str) -> UUID:
    """Create a topic; underscores in the names of settings mean dots."""
    response = client.call(
        CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(
                            name=key.replace("_", "."), value=value
                        )
                        for key, value in configs.items()
                    ],
                )
            ],
            timeout_ms=10000,
        ),
        7,
    )
    topic = response.topics[0]
    assert topic.error_code == 0, topic
    topic_id = topic.topic_id
    assert isinstance(topic_id, UUID)
    return topic_id


def batch(*values: bytes | None, **options: Any) -> bytes:
    """A batch of records with these values, as a producer sends it."""
    timestamp = options.pop("timestamp", 1_700_000_000_000)
    return encode_batch(
        [Record(timestamp=timestamp + i, value=value) for i, value in enumerate(values)], **options
    )


def produce_request(
    topic: str | UUID,
    *records: bytes | None,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Records for consecutive partitions, from ``partition`` on."""
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, UUID) else NO_ID,
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=partition + i, records=data)
                    for i, data in enumerate(records)
                ],
            )
        ],
    )


def produce(client: RawClient, topic: str, records: bytes, partition: int = 0) -> Any:
    """Produce a batch; the partition's response."""
    response = client.call(produce_request(topic, records, partition=partition), 12)
    return response.responses[0].partition_responses[0]


def fetch_request(
    topics: Sequence[tuple[str | UUID, int, int]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    **fields: Any,
) -> FetchRequest:
    """A fetch of (topic, partition, offset) each."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, UUID) else NO_ID,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                ],
            )
            for topic, partition, offset in topics
        ],
        **fields,
    )


def fetch(
    client: RawClient, topic: str, offset: int = 0, partition: int = 0, **options: Any
) -> Any:
    """Fetch from a partition, without a session; the partition's response."""
    response = client.call(fetch_request([(topic, partition, offset)], **options), 12)
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def open_transaction(client: RawClient, transactional_id: str = "id") -> dict[str, Any]:
    """The header fields of the first batch of a transaction."""
    found = client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 4)
    assert found.coordinators[0].error_code == 0, found
    producer = client.call(
        InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 4
    )
    assert producer.error_code == 0, producer
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "base_sequence": 0,
        "is_transactional": True,
    }


def list_offset(
    client: RawClient,
    topic: str,
    timestamp: int,
    partition: int = 0,
    version: int = 11,
    isolation_level: int = 0,
) -> Any:
    """Send ListOffsets for one partition, and return its part of the response."""
    response = client.call(
        ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=partition, timestamp=timestamp
                        )
                    ],
                )
            ],
        ),
        version,
    )
    return response.topics[0].partitions[0]


def subscribe(client: RawClient, name: str, **values: str | None) -> tuple[int, str | None]:
    """Set or delete settings of a subscription to clients' metrics, with underscores for dots.

    Returns the error code and the message.
    """
    kind = IncrementalAlterConfigsRequest
    configs = [
        kind.AlterableConfig(
            name=key.replace("_", "."),
            config_operation=AlterConfigOp.DELETE if value is None else AlterConfigOp.SET,
            value=value,
        )
        for key, value in values.items()
    ]
    resource = kind.AlterConfigsResource(
        resource_type=ConfigResourceType.CLIENT_METRICS, resource_name=name, configs=configs
    )
    (result,) = client.call(kind(resources=[resource])).responses
    return result.error_code, result.error_message
