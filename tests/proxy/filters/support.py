"""A broker, a proxy with filters, and requests of any version through it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from kafka_wire import FetchRequest, FetchResponse, MetadataRequest, ProduceRequest, ProduceResponse

from krammar.proxy import Filter, Proxy
from krammar.testing import KafkaBroker
from krammar.wire.batches import Record, encode_batch
from krammar.wire.connection import ResponseReceived
from tests.proxy.support import Client, address

# The timestamp of records.
NOW = 1_700_000_000_000


@contextmanager
def through(
    *filters: Filter, topics: Any = ("orders",), **options: Any
) -> Iterator[tuple[KafkaBroker, Proxy]]:
    """Start a broker, and a proxy in front of it."""
    with (
        KafkaBroker.start(topics=topics, **options) as broker,
        Proxy.start(broker.bootstrap_servers, filters) as proxy,
    ):
        yield broker, proxy


def answered(client: Client, request: Any, version: int) -> Any:
    """Return the response. Raises ConnectionError if the connection is closed instead."""
    event = client.ask(request, version)
    if not isinstance(event, ResponseReceived):
        raise ConnectionError(event)
    return event.response


def topic_id(client: Client, name: str) -> UUID:
    """Return the id of a topic."""
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=name)])
    found: UUID = client.ask(request, 12).response.topics[0].topic_id
    return found


def produce(
    proxy: Proxy,
    version: int,
    records: dict[tuple[str, int], bytes | list[bytes]],
    acks: int = -1,
    ids: Mapping[str, UUID] | None = None,
) -> dict[tuple[str, int], ProduceResponse.PartitionProduceResponse]:
    """Send one Produce request, and return the results by topic and partition.

    Args:
        records: values or an encoded batch, by topic and partition
        ids: the ids of the topics. Default: those in metadata.
    """
    with Client(address(proxy)) as client:
        if ids is None:
            ids = {name: topic_id(client, name) for name, _ in records}
        names = {value: name for name, value in ids.items()}
        request = ProduceRequest(acks=acks, timeout_ms=5000)
        for (name, partition), values in records.items():
            data = (
                values
                if isinstance(values, bytes)
                else encode_batch([Record(value=each, timestamp=NOW) for each in values])
            )
            entry = ProduceRequest.PartitionProduceData(index=partition, records=data)
            for topic in request.topic_data:
                if name in (topic.name, names.get(topic.topic_id)):
                    topic.partition_data.append(entry)
                    break
            else:
                request.topic_data.append(
                    ProduceRequest.TopicProduceData(
                        **({"topic_id": ids[name]} if version >= 13 else {"name": name}),
                        partition_data=[entry],
                    )
                )
        response = answered(client, request, version)
        return {
            (topic.name or names[topic.topic_id], each.index): each
            for topic in response.responses
            for each in topic.partition_responses
        }


def fetch(
    proxy: Proxy,
    version: int,
    topic: str,
    partition: int = 0,
    offset: int = 0,
    ids: Mapping[str, UUID] | None = None,
) -> FetchResponse.PartitionData:
    """Send one Fetch request, and return the result of its partition. ``ids`` are as for ``produce``."""
    with Client(address(proxy)) as client:
        named: dict[str, Any] = {"topic": topic}
        if version >= 13:
            named = {"topic_id": topic_id(client, topic) if ids is None else ids[topic]}
        request = FetchRequest(
            max_wait_ms=0,
            max_bytes=32 << 20,
            min_bytes=0,
            topics=[
                FetchRequest.FetchTopic(
                    **named,
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=partition, fetch_offset=offset, partition_max_bytes=16 << 20
                        )
                    ],
                )
            ],
        )
        response = answered(client, request, version)
        found: FetchResponse.PartitionData = response.responses[0].partitions[0]
        return found


__all__ = ["Client", "address", "fetch", "produce", "through", "topic_id"]
