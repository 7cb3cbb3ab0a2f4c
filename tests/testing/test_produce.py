"""Records that a broker stores without a client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

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


def test_transactions(broker: KafkaBroker) -> None:
    def values(level: str = "read_committed") -> list[bytes | None]:
        found = broker.records("orders", partition=1, isolation_level=level)
        return [record.value for record in found]

    def seed(*values: bytes) -> list[dict[str, object]]:
        return [{"value": value, "partition": 1} for value in values]

    stored = broker.produce("orders", seed(b"a", b"b"), transaction="committed")
    assert [record.offset for record in stored] == [0, 1]
    broker.produce("orders", seed(b"c"), transaction="aborted")
    broker.produce("orders", seed(b"d"), transaction="open", transactional_id="shop")
    broker.produce("orders", seed(b"e"))
    assert values() == [b"a", b"b"]
    assert values("read_uncommitted") == [b"a", b"b", b"c", b"d", b"e"]
    consumer = Consumer(
        {
            **broker.clients.confluent_kafka,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("orders", 1, 0)])
    seen = consumer.consume(2, PATIENCE)
    # A producer of a client with the same id aborts the open transaction.
    producer = Producer({**broker.clients.confluent_kafka, "transactional.id": "shop"})
    producer.init_transactions(PATIENCE)
    seen += consumer.consume(1, PATIENCE)
    assert [message.value() for message in seen] == [b"a", b"b", b"e"]
    consumer.close()
    assert values() == [b"a", b"b", b"e"]
    # So does another open one.
    for value in (b"f", b"g"):
        broker.produce("orders", seed(value), transaction="open", transactional_id="shop")
    broker.advance_clock(61_000)
    broker.produce("orders", seed(b"h"))
    assert broker.wait_until(lambda: values() == [b"a", b"b", b"e", b"h"])


def test_mistakes_in_transactions(broker: KafkaBroker) -> None:
    wrong = "transaction: 'commited' is not one of 'committed', 'aborted', 'open'"
    with pytest.raises(ValueError, match=wrong):
        broker.produce("orders", [b"x"], transaction="commited")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="transaction: None is not one of"):
        broker.produce("orders", [b"x"], transactional_id="shop")
    with pytest.raises(ValueError, match="the transactional id is empty"):
        broker.produce("orders", [b"x"], transaction="open", transactional_id="")


def test_compaction(broker: KafkaBroker) -> None:
    admin = AdminClient(broker.clients.confluent_kafka)
    settings = {"cleanup.policy": "compact", "delete.retention.ms": "60000"}
    admin.create_topics([NewTopic("users", 2, 1, config=settings)])["users"].result()

    def values() -> list[tuple[bytes | None, bytes | None]]:
        return [(record.key, record.value) for record in broker.records("users", partition=0)]

    def seed(*pairs: tuple[str, str | None]) -> list[dict[str, object]]:
        return [{"key": key, "value": value, "partition": 0} for key, value in pairs]

    broker.produce("users", seed(("a", "1"), ("b", "1"), ("a", "2"), ("b", None)))
    broker.compact_now("users")
    assert values() == [(b"a", b"2"), (b"b", None)]
    broker.produce("users", seed(("a", "3")))
    broker.compact_now("users")
    assert values() == [(b"b", None), (b"a", b"3")]
    broker.advance_clock(61_000)
    broker.compact_now("users")
    assert values() == [(b"a", b"3")]
    broker.compact_now("users")
    assert values() == [(b"a", b"3")]
    with pytest.raises(ValueError, match="topic 'orders' is not compacted: create it with"):
        broker.compact_now("orders")
    with pytest.raises(ValueError, match="topic 'none' does not exist"):
        broker.compact_now("none")
