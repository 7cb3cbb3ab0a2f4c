"""librdkafka's share consumer, by confluent-kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Message, ShareConsumer
from kafka_wire import ConfigResourceType

from krammar.broker import Broker
from krammar.testing import KafkaBroker, KafkaCluster
from tests.broker.requests import batch, produce
from tests.broker.support import RawClient
from tests.support.waiting import until

GROUP = "packers"


def begin_early(broker: Any, **settings: str) -> None:
    """Let the group begin at the first record; other settings have underscores."""
    changes = {"auto_offset_reset": "earliest", **settings}
    named = {f"share.{name.replace('_', '.')}": value for name, value in changes.items()}
    broker.call(broker.cluster.set_configs, ConfigResourceType.GROUP, GROUP, named)


def consumer(servers: str, **settings: Any) -> ShareConsumer:
    found = ShareConsumer(
        {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
            **settings,
        }
    )
    found.subscribe(["orders"])
    return found


def read(consumer: ShareConsumer, count: int, *, accept: bool = False) -> list[Message]:
    """Poll until there are so many messages, and accept them if that is asked."""
    messages: list[Message] = []

    def poll() -> bool:
        found = list(consumer.poll(0.2))
        assert [each.error() for each in found if each.error() is not None] == []
        messages.extend(found)
        for message in found if accept else ():
            consumer.acknowledge(message)
        return len(messages) >= count

    until(poll)
    return messages


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker.start(topics=["orders"]) as broker:
        begin_early(broker.broker)
        yield broker


def states(broker: KafkaBroker) -> list[tuple[int, str, int]]:
    group = broker.share_groups[GROUP]
    return [(each.offset, each.state, each.deliveries) for each in group.records("orders")]


def test_records_are_accepted(broker: KafkaBroker) -> None:
    broker.produce("orders", [b"1", b"2", b"3"])
    member = consumer(broker.bootstrap_servers)
    messages = read(member, 3)
    assert [each.value() for each in messages] == [b"1", b"2", b"3"]
    for message in messages:
        member.acknowledge(message, AcknowledgeType.ACCEPT)
    assert set(member.commit_sync().values()) == {None}
    assert states(broker) == []
    assert broker.share_groups[GROUP].partitions["orders", 0].start_offset == 3
    member.close()


def test_records_are_released_and_rejected(broker: KafkaBroker) -> None:
    broker.produce("orders", [b"1", b"2", b"3"])
    member = consumer(broker.bootstrap_servers)
    kinds = [AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.ACCEPT]
    for message, kind in zip(read(member, 3), kinds, strict=True):
        member.acknowledge(message, kind)
    member.commit_sync()
    (again,) = read(member, 1)
    assert (again.value(), again.offset()) == (b"1", 0)
    assert states(broker)[1:] == [(1, "archived", 1), (2, "acknowledged", 1)]
    member.close()


def test_members_share_the_records(broker: KafkaBroker) -> None:
    broker.produce("orders", [str(at).encode() for at in range(200)])
    members = [consumer(broker.bootstrap_servers, **{"max.poll.records": 10}) for _ in range(3)]
    seen: list[bytes] = []

    def all_polled() -> bool:
        for member in members:
            for message in member.poll(0.1):
                seen.append(message.value())
                member.acknowledge(message)
            member.commit_sync()
        return len(seen) >= 200

    until(all_polled)
    assert sorted(map(int, seen)) == list(range(200))
    for member in members:
        member.close()


def test_a_member_that_is_gone_loses_its_records(broker: KafkaBroker) -> None:
    broker.produce("orders", [b"1"])
    member = consumer(broker.bootstrap_servers)
    read(member, 1)
    assert states(broker) == [(0, "acquired", 1)]
    broker.advance_clock(30_000)
    broker.wait_until(lambda: states(broker)[0][1:] != ("acquired", 1))
    other = consumer(broker.bootstrap_servers)
    member.close()
    assert read(other, 1)[0].value() == b"1"
    other.close()


def test_a_restart_delivers_what_was_not_acknowledged(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as first:
        begin_early(first)
        first.call(first.topics.create, "orders", 1)
        with RawClient(first.port) as client:
            assert produce(client, "orders", batch(b"1", b"2", b"3")).error_code == 0
        member = consumer(first.bootstrap_servers)
        for message in read(member, 3)[:2]:
            member.acknowledge(message)
        member.commit_sync()
        member.close()
    with Broker.start(data_dir=tmp_path) as second:
        member = consumer(second.bootstrap_servers)
        assert [each.value() for each in read(member, 1)] == [b"3"]
        member.close()


def test_several_nodes() -> None:
    with KafkaCluster.start(nodes=3, topics={"orders": 6}) as cluster:
        begin_early(cluster.broker)
        cluster.produce("orders", [str(at).encode() for at in range(60)])
        member = consumer(cluster.bootstrap_servers)
        messages = read(member, 60, accept=True)
        assert sorted(int(each.value()) for each in messages) == list(range(60))
        assert set(member.commit_sync().values()) == {None}
        member.close()
        group = cluster.share_groups[GROUP]
        assert sum(each.start_offset for each in group.partitions.values()) == 60
