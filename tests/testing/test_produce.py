"""Records that a broker stores without a client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from krammar.broker import ConfigError
from krammar.testing import KafkaBroker, KafkaCluster, Record
from tests.support.waiting import PATIENCE


@pytest.fixture(params=[False, True], ids=["in-process", "process"])
def broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    records = {"orders": [("k", "first")], "other": [b"x"]}
    settings = {"topics": {"orders": 3}, "records": records}
    with KafkaBroker.start(process=request.param, **settings) as broker:
        yield broker


def test_forms_of_records(broker: KafkaBroker) -> None:
    assert broker.topics == {"orders": 3, "other": 1}
    assert [record.value for record in broker.records("other")] == [b"x"]
    (first,) = broker.records("orders")
    stored = broker.produce(
        "orders",
        [
            b"a",
            "b",
            None,
            ("k", None),
            {"value": "d", "headers": [("h", None), ("h", "1")], "timestamp": 5, "partition": 2},
        ],
    )
    assert [(record.key, record.value) for record in stored] == [
        (None, b"a"),
        (None, b"b"),
        (None, None),
        (b"k", None),
        (None, b"d"),
    ]
    assert [record.partition for record in stored[:3]] == [0, 1, 2]
    assert stored[3].partition == first.partition
    last = Record("orders", 2, stored[4].offset, 5, None, b"d", (("h", None), ("h", b"1")))
    assert stored[4] == last
    assert sorted(broker.records("orders"), key=str) == sorted([first, *stored], key=str)


def test_partitions_are_those_of_clients(broker: KafkaBroker) -> None:
    keys = [b"key %d" % number for number in range(20)]
    ours = broker.produce("mine", [(key, b"x") for key in keys])
    broker.create_topic("six", 6)
    ours = broker.produce("six", [(key, b"x") for key in keys])
    partitioner = {"partitioner": "murmur2_random"}
    producer = Producer({**broker.clients.confluent_kafka, **partitioner, "client.id": "theirs"})
    for key in keys:
        producer.produce("six", b"x", key=key)
    assert producer.flush(PATIENCE) == 0
    theirs = {record.key: record.partition for record in broker.produced_by("theirs")}
    assert {record.key: record.partition for record in ours} == theirs


def test_consumers_read_them(broker: KafkaBroker) -> None:
    settings = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**broker.clients.confluent_kafka, **settings})
    consumer.subscribe(["other"])
    broker.faults.on("Produce").drop()
    assert consumer.poll(PATIENCE).value() == b"x"
    broker.produce("other", [b"y"])  # a fetch that waits gets it
    assert consumer.poll(PATIENCE).value() == b"y"
    consumer.close()


def test_a_reset_restores_them(broker: KafkaBroker) -> None:
    broker.produce("orders", [b"more"])
    broker.reset()
    assert [record.value for record in broker.records("orders")] == [b"first"]


def test_a_cluster() -> None:
    with KafkaCluster.start(records={"orders": [b"one"]}) as cluster:
        assert [record.value for record in cluster.records("orders")] == [b"one"]


def test_mistakes(broker: KafkaBroker) -> None:
    for records, message in [
        (b"one", "records are a list, such as"),
        ([1], "1 is neither bytes nor text nor None"),
        ([{"values": b"x"}], "a record has no 'values'; it has key, value, headers, partition"),
        ([{"partition": "0"}], "'0' is not a partition or a time in milliseconds"),
    ]:
        with pytest.raises(TypeError, match=message):
            broker.produce("orders", records)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="topic 'orders' has no partition 3, but 3 partitions"):
        broker.produce("orders", [{"partition": 3}])
    with pytest.raises(ValueError, match="orders-0: the batch has 2000074 bytes, but"):
        broker.produce("orders", [bytes(2_000_000)])
    with pytest.raises(ConfigError, match=r"^topics: "):
        broker.produce("a/b", [b"x"])
    for wrong in ([b"one"], {"orders": [1]}, {"a/b": []}):
        with pytest.raises(ConfigError):
            KafkaBroker.start(records=wrong)
