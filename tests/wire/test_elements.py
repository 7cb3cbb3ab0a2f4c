"""Counting a message's elements, and errors that do not look for their cause, as servers want them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

import kafka_wire
import pytest
from kafka_wire import (
    CreateTopicsRequest,
    FetchRequest,
    MetadataRequest,
    OffsetCommitRequest,
    ProduceRequest,
)

from krammar.broker.apis import RANGES
from krammar.wire.connection import ClientConnection, InvalidRequest, ServerConnection
from krammar.wire.errors import DecodeError
from krammar.wire.skip import TooManyElements, walk_of
from tests.broker.bad_frames import sensible_frames


def frame(request: Any, version: int) -> bytes:
    return ClientConnection(kafka_wire).send_request(request, version)[4:]


def metadata(number: int) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.Topic(name="a") for _ in range(number)])


def produce(number: int) -> ProduceRequest:
    partitions = [ProduceRequest.PartitionProduceData(records=b"x" * 200)] * (number - 1)
    return ProduceRequest(
        topic_data=[ProduceRequest.TopicProduceData(name="a" * 300, partition_data=partitions)]
    )


def fetch(number: int) -> FetchRequest:
    partitions = [FetchRequest.FetchPartition()] * (number - 1)
    return FetchRequest(topics=[FetchRequest.FetchTopic(topic="a", partitions=partitions)])


def offset_commit(number: int) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequest.Partition()] * (number - 1)
    return OffsetCommitRequest(topics=[OffsetCommitRequest.Topic(name="a", partitions=partitions)])


@pytest.mark.parametrize(
    ("request_of", "versions"),
    [
        (metadata, range(14)),
        (produce, range(13)),
        (fetch, range(4, 13)),
        (offset_commit, range(2, 10)),
    ],
)
def test_the_limit_is_exact(request_of: Callable[[int], Any], versions: range) -> None:
    assert versions
    for version in versions:
        data = frame(request_of(150), version)
        assert len(data) > 300
        kafka_wire.parse_request(data, max_elements=150)
        with pytest.raises(TooManyElements, match="more than 149 array elements") as caught:
            kafka_wire.parse_request(data, max_elements=149)
        assert caught.value.header.request_api_version == version


def test_tagged_fields_count() -> None:
    request = metadata(2)
    for tag in range(100):
        request.topics[0].unknown_tags[tag] = b"x"
    kafka_wire.parse_request(frame(request, 12), max_elements=102)
    with pytest.raises(TooManyElements):
        kafka_wire.parse_request(frame(request, 12), max_elements=101)


def test_integers_count() -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name="a",
        assignments=[CreateTopicsRequest.CreatableReplicaAssignment(broker_ids=list(range(100)))],
    )
    data = frame(CreateTopicsRequest(topics=[topic]), 7)
    kafka_wire.parse_request(data, max_elements=102)
    with pytest.raises(TooManyElements):
        kafka_wire.parse_request(data, max_elements=101)


def test_requests_of_every_api_and_version_are_walked_to_their_end() -> None:
    seen = 0
    for data in sensible_frames(UUID(int=1)):
        key, version = struct.unpack(">hh", data[:4])
        cls = kafka_wire.request_class(key)
        header_version = kafka_wire.header_versions(key, version).request
        _, pos = kafka_wire.RequestHeader.decode_from(data, 0, header_version)
        assert walk_of(cls, version, ())(data, pos, len(data)) == (len(data), []), cls
        seen += 1
    assert seen == sum(high - low + 1 for low, high in RANGES.values())


def test_bytes_that_end_too_early_are_left_to_the_decoder() -> None:
    data = frame(metadata(150), 12)[:-1]
    with pytest.raises(DecodeError, match="offset") as caught:
        kafka_wire.parse_request(data, max_elements=150)
    assert not isinstance(caught.value, TooManyElements)
    with pytest.raises(TooManyElements):
        kafka_wire.parse_request(data, max_elements=100)


def test_large_frames_are_not_explained() -> None:
    data = frame(metadata(150), 12)[:-1]
    with pytest.raises(DecodeError, match="at offset"):
        kafka_wire.parse_request(data, explain_limit=len(data))
    with pytest.raises(DecodeError) as caught:
        kafka_wire.parse_request(data, explain_limit=len(data) - 1)
    assert str(caught.value) == (
        f"MetadataRequest v12: the frame of {len(data)} bytes does not match the layout"
    )
    assert caught.value.header.request_api_key == MetadataRequest.api_key
    connection = ServerConnection(kafka_wire, explain_limit=10)
    connection.receive_data(struct.pack(">i", len(data)) + data)
    event = connection.next_event()
    assert isinstance(event, InvalidRequest) and event.error.offset == -1


def test_a_large_header_is_not_explained_either() -> None:
    data = frame(MetadataRequest(), 12)[:8] + b"\x7f\xff" + b"x" * 1000
    with pytest.raises(DecodeError, match="needs 32767 bytes"):
        kafka_wire.parse_request(data, explain_limit=2000)
    with pytest.raises(DecodeError, match="does not match the layout"):
        kafka_wire.parse_request(data, explain_limit=100)
