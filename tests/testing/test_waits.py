"""Waiting until a consumer reads, or has read."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from krammar.testing import KafkaBroker, NotInTime
from tests.support.waiting import PATIENCE


@pytest.fixture(params=[False, True], ids=["in-process", "process"])
def broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    with KafkaBroker.start(topics={"orders": 2}, process=request.param) as broker:
        yield broker


@contextlib.contextmanager
def consumer(broker: KafkaBroker, group: str, **settings: object) -> Iterator[list[bytes]]:
    """Run a program that reads a topic from its end, and commits each record."""
    read: list[bytes] = []
    stop = threading.Event()

    def program() -> None:
        consumer = Consumer(
            {
                **broker.clients.confluent_kafka,
                "group.id": group,
                "enable.auto.commit": False,
                **settings,
            }
        )
        consumer.subscribe(["orders"])
        while not stop.is_set():
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                read.append(message.value())
                consumer.commit(message, asynchronous=False)
        consumer.close()

    thread = threading.Thread(target=program)
    thread.start()
    try:
        yield read
    finally:
        stop.set()
        thread.join(PATIENCE)


def produce(broker: KafkaBroker, value: bytes, partition: int = 0) -> None:
    producer = Producer(broker.clients.confluent_kafka)
    producer.produce("orders", value, partition=partition)
    assert producer.flush(PATIENCE) == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_that_reads_from_the_end(broker: KafkaBroker, protocol: str) -> None:
    for turn in range(2):
        with consumer(broker, f"g{turn}", **{"group.protocol": protocol}) as read:
            group = broker.wait_for_consumer(f"g{turn}", timeout=PATIENCE)
            assert group.state == "Stable"
            produce(broker, b"one", partition=turn % 2)
            found = broker.wait_for_lag(f"g{turn}", timeout=PATIENCE)
            assert found.lag[("orders", turn % 2)] == 0
            assert read == [b"one"]


def test_a_rebalance(broker: KafkaBroker) -> None:
    with consumer(broker, "g") as first:
        broker.wait_for_consumer("g", timeout=PATIENCE)
        with consumer(broker, "g") as second:
            broker.wait_until(lambda: len(broker.groups["g"].members) == 2, timeout=PATIENCE)
            group = broker.wait_for_consumer("g", timeout=PATIENCE)
            assert [len(member.partitions) for member in group.members] == [1, 1]
            for partition in range(2):
                produce(broker, b"%d" % partition, partition)
            broker.wait_until(lambda: len(broker.groups["g"].lag) == 2, timeout=PATIENCE)
            broker.wait_for_lag("g", timeout=PATIENCE)
            assert sorted(first + second) == [b"0", b"1"]


def test_waiting_in_vain(broker: KafkaBroker) -> None:
    with pytest.raises(NotInTime, match=r"^group 'g' does not exist after 0.01 s$"):
        broker.wait_for_consumer("g", timeout=0.01)
    with pytest.raises(NotInTime, match=r"^group 'g' does not exist after 0.01 s$"):
        broker.wait_for_lag("g", timeout=0.01)
    with consumer(broker, "g"):
        broker.wait_for_consumer("g", timeout=PATIENCE)
        with pytest.raises(NotInTime, match=r"^group 'g' has committed no offset after 0.01 s$"):
            broker.wait_for_lag("g", timeout=0.01)
        produce(broker, b"one")
        broker.wait_for_lag("g", timeout=PATIENCE)
        broker.faults.on("OffsetCommit").delay(2000, of="request")
        produce(broker, b"two")
        with pytest.raises(
            NotInTime, match=r"^group 'g' has a lag of 1 after 0.01 s \(orders-0: 1\)$"
        ):
            broker.wait_for_lag("g", timeout=0.01)
        assert broker.wait_for_lag("g", 1).lag == {("orders", 0): 1}
    with pytest.raises(NotInTime, match=r"^group 'g' is in the state Empty after 0.01 s$"):
        broker.wait_for_consumer("g", timeout=0.01)
