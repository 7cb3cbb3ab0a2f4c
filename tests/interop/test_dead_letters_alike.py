"""Dead letters of share groups: the records that Apache Kafka and our broker write, and states that go from one to the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from kafka_wire import (
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
    ShareGroupHeartbeatRequest,
    WriteShareGroupStateRequest,
)

from tests.broker.support import RawClient
from tests.interop.apache import ApacheKafka
from tests.interop.group_cases import make_topic, ready
from tests.interop.processes import Krammar, Server
from tests.interop.test_share_groups_move import SETTINGS, state
from tests.support.waiting import PATIENCE, until

GROUP, DLQ = "workers", "dlq.t"
LIMIT = 2
ARCHIVING = 3


def configure(client: RawClient, kind: int, name: str, values: Mapping[str, str]) -> None:
    change = IncrementalAlterConfigsRequest
    resource = change.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[change.AlterableConfig(name=key, value=value) for key, value in values.items()],
    )
    answer = client.call(change(resources=[resource])).responses[0]
    assert answer.error_code == 0, answer


def set_up(client: RawClient, copy: bool) -> Any:
    """Create the topics and configure the group. Returns the id of topic t."""
    topic_id = make_topic(client, "t", 3)
    make_topic(client, DLQ, 2)
    configure(
        client, ConfigResourceType.TOPIC, DLQ, {"errors.deadletterqueue.group.enable": "true"}
    )
    configure(
        client,
        ConfigResourceType.GROUP,
        GROUP,
        {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": str(LIMIT),
            "errors.deadletterqueue.topic.name": DLQ,
            "errors.deadletterqueue.copy.record.enable": str(copy).lower(),
        },
    )
    return topic_id


def produce(server: Server) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for at in range(4):
        producer.produce("t", f"value {at}", f"key {at}", partition=2, headers=[("own", b"x")])
    assert producer.flush(PATIENCE) == 0


def share_consumer(server: Server) -> ShareConsumer:
    found = ShareConsumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
        }
    )
    found.subscribe(["t"])
    return found


def letters(server: Server, count: int) -> list[Any]:
    """The partition, key, value and headers of the dead letters, in the order of their headers."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(DLQ, number, 0) for number in (0, 1)])
    found: list[Message] = []

    def read() -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
        return len(found) >= count

    until(read)
    consumer.close()
    plain = [
        (each.partition(), each.key(), each.value(), each.headers(), each.timestamp()[0])
        for each in found
    ]
    return sorted(plain, key=repr)


def story(server: Server, copy: bool) -> list[Any]:
    ready(server.port)
    with RawClient(server.port) as client:
        set_up(client, copy)
    produce(server)
    member = share_consumer(server)
    done: set[int] = set()

    def poll() -> bool:
        for message in member.poll(0.5):
            assert message.error() is None, message.error()
            at = message.offset() or 0
            kind = (
                AcknowledgeType.ACCEPT,
                AcknowledgeType.REJECT,
                AcknowledgeType.RELEASE,
                AcknowledgeType.ACCEPT,
            )[at]
            member.acknowledge(message, kind)
            if kind != AcknowledgeType.RELEASE or message.delivery_count() == LIMIT:
                done.add(at)
        return len(done) == 4

    until(poll)
    member.commit_sync()
    found = letters(server, 2)
    member.close()
    return found


@pytest.mark.parametrize("copy", [False, True])
def test_the_same_dead_letters(kafka_jars: str, tmp_path: Path, copy: bool) -> None:
    found = []
    for kind in (Krammar, ApacheKafka):
        server: Any = kind(tmp_path / kind.__name__, properties=SETTINGS)
        with server:
            found.append(story(server, copy))
    assert found[0] == found[1]
    assert len(found[0]) == 2


@pytest.mark.parametrize("order", [(Krammar, ApacheKafka), (ApacheKafka, Krammar)])
def test_records_that_are_archiving_move(
    kafka_jars: str, tmp_path: Path, order: tuple[Any, Any]
) -> None:
    """One broker stores that a record is archiving, and the other writes its dead letter."""
    first, second = (kind(tmp_path / "data", properties=SETTINGS) for kind in order)
    with first:
        ready(first.port)
        with RawClient(first.port) as client:
            topic_id = set_up(client, copy=False)
            heartbeat = ShareGroupHeartbeatRequest(
                group_id=GROUP, member_id="m", subscribed_topic_names=["t"]
            )

            def assigned() -> bool:
                found = client.call(heartbeat)
                return found.assignment is not None and bool(found.assignment.topic_partitions)

            until(assigned)
            produce(first)
            kind = WriteShareGroupStateRequest
            batches = [
                kind.StateBatch(
                    first_offset=at, last_offset=at, delivery_state=ARCHIVING, delivery_count=count
                )
                for at, count in ((0, 1), (1, LIMIT))
            ]
            partition = kind.PartitionData(
                partition=2,
                state_epoch=state(client, topic_id)["state_epoch"],
                leader_epoch=0,
                start_offset=0,
                state_batches=batches,
            )
            topics = [kind.WriteStateData(topic_id=topic_id, partitions=[partition])]
            answer = client.call(kind(group_id=GROUP, topics=topics))
            assert answer.results[0].partitions[0].error_code == 0, answer
    with second:
        ready(second.port)
        member = share_consumer(second)
        offsets: set[int] = set()

        def poll() -> bool:
            for message in member.poll(0.5):
                offsets.add(message.offset() or 0)
                member.acknowledge(message)
            return len(offsets) == 2

        until(poll)
        assert offsets == {2, 3}
        found = letters(second, 2)
        member.close()
    messages = [dict(headers)["__dlq.errors.message"] for _, _, _, headers, _ in found]
    assert sorted(messages) == [
        b"Offset delivery count exceeded the threshold.",
        b"Offset rejected by client.",
    ]
