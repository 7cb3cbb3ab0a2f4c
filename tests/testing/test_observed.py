"""What a broker answers to a test: records, groups, producers, and waiting for them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from kafka_wire import ErrorCode, JoinGroupRequest, SyncGroupRequest

from krammar.testing import Group, KafkaBroker, Member, NotInTime, Record
from krammar.util.turns import finish
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE


@pytest.fixture(params=[False, True], ids=["in-process", "process"])
def process(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def broker(process: bool) -> Iterator[KafkaBroker]:
    with KafkaBroker.start(topics={"orders": 2}, process=process) as broker:
        yield broker


def produce(broker: KafkaBroker, *values: bytes, partition: int = 0, **settings: object) -> None:
    producer = Producer({**broker.clients.confluent_kafka, "client.id": "shop", **settings})
    for value in values:
        producer.produce("orders", value, partition=partition)
    assert producer.flush(PATIENCE) == 0


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_a_record_has_all_its_parts(broker: KafkaBroker) -> None:
    producer = Producer(broker.clients.confluent_kafka)
    headers = [("trace", b"1"), ("trace", None)]
    producer.produce("orders", b"one", b"key", 1, headers=headers, timestamp=1234)
    producer.produce("orders", None, b"key", 1, timestamp=1235)
    assert producer.flush(PATIENCE) == 0
    assert broker.records("orders") == [
        Record("orders", 1, 0, 1234, b"key", b"one", (("trace", b"1"), ("trace", None))),
        Record("orders", 1, 1, 1235, b"key", None),
    ]
    assert broker.records("orders", partition=0) == []
    assert broker.records("unknown") == []
    with pytest.raises(ValueError, match="isolation_level: 'committed' is neither"):
        broker.records("orders", isolation_level="committed")


def test_order_is_by_partition_and_offset(broker: KafkaBroker) -> None:
    produce(broker, b"c", b"d", partition=1)
    produce(broker, b"a", b"b", partition=0)
    assert values(broker.records("orders")) == [b"a", b"b", b"c", b"d"]
    assert values(broker.produced_by("shop")) == [b"c", b"d", b"a", b"b"]
    assert broker.produced_by("other") == []


def test_transactions(broker: KafkaBroker) -> None:
    produce(broker, b"plain 1")
    producer = Producer(
        {**broker.clients.confluent_kafka, "transactional.id": "t", "client.id": "t"}
    )
    producer.init_transactions(PATIENCE)
    for value, end in [
        (b"committed", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
        (b"open", None),
    ]:
        producer.begin_transaction()
        producer.produce("orders", value, partition=0)
        assert producer.flush(PATIENCE) == 0
        if end is not None:
            end(PATIENCE)
    produce(broker, b"plain 2")
    # A consumer that reads committed records stops at the first open transaction.
    assert values(broker.records("orders")) == [b"plain 1", b"committed"]
    stored = [b"plain 1", b"committed", b"aborted", b"open", b"plain 2"]
    assert values(broker.records("orders", isolation_level="read_uncommitted")) == stored
    assert values(broker.produced_by("t")) == [b"committed", b"aborted", b"open"]
    with pytest.raises(NotInTime) as raised:
        broker.wait_for_records("orders", 3, timeout=0.01)
    assert str(raised.value) == (
        "topic 'orders' has 2 of 3 records after 0.01 s; 3 more belong to open or aborted "
        "transactions, or follow an open one"
    )
    producer.commit_transaction(PATIENCE)
    left = [b"plain 1", b"committed", b"open", b"plain 2"]
    assert values(broker.wait_for_records("orders", 4)) == left


def test_a_repeated_batch_was_produced_once(broker: KafkaBroker) -> None:
    lost = broker.faults.on("Produce").drop("after").once()
    produce(broker, b"one", **{"enable.idempotence": True})
    lost.expect()
    assert values(broker.produced_by("shop")) == [b"one"]


def test_without_acknowledgement(broker: KafkaBroker) -> None:
    produce(broker, b"one", acks=0)
    assert values(broker.wait_for_records("orders", 1, partition=0)) == [b"one"]
    assert values(broker.produced_by("shop")) == [b"one"]


@pytest.mark.parametrize("process", [False], indirect=True)
def test_deleted_records_and_topics(broker: KafkaBroker) -> None:
    produce(broker, b"a", b"b", b"c")
    log = broker.broker.logs.get("orders", 0)
    assert log is not None
    broker.broker.call(log.retention.delete_records, 2)
    assert values(broker.records("orders")) == [b"c"]
    assert values(broker.produced_by("shop")) == [b"c"]
    topics, orders = broker.broker.topics, broker.broker.cluster.topics["orders"]
    broker.broker.call(lambda: finish(topics.deleting(orders)))
    assert broker.records("orders") == broker.produced_by("shop") == []


def test_groups(broker: KafkaBroker) -> None:
    produce(broker, b"a", b"b")
    assert broker.groups == {}
    consumer = Consumer(
        {
            **broker.clients.confluent_kafka,
            "client.id": "billing-1",
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    with contextlib.closing(consumer):
        consumer.subscribe(["orders"])
        for _ in range(2):
            assert consumer.poll(PATIENCE) is not None
        consumer.commit(asynchronous=False)
        group = broker.groups["billing"]
        (member,) = group.members
        both = (("orders", 0), ("orders", 1))
        assert member == Member(member.member_id, "billing-1", None, both)
        assert group == Group("billing", "Stable", "range", (member,), {("orders", 0): 2})
    left = broker.wait_until(lambda: broker.groups["billing"].state == "Empty" and broker.groups)
    assert left == {"billing": Group("billing", "Empty", None, (), {("orders", 0): 2})}


def test_a_consumer_group_of_kip_848(broker: KafkaBroker) -> None:
    produce(broker, b"a")
    consumer = Consumer(
        {
            **broker.clients.confluent_kafka,
            "group.id": "billing",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    with contextlib.closing(consumer):
        consumer.subscribe(["orders"])
        assert consumer.poll(PATIENCE) is not None
        consumer.commit(asynchronous=False)
        broker.wait_until(lambda: broker.groups["billing"].state == "Stable")
        group = broker.groups["billing"]
        assert group.members[0].partitions == (("orders", 0), ("orders", 1))
        assert group.offsets == {("orders", 0): 1}


def test_a_group_of_another_protocol_has_no_partitions(broker: KafkaBroker) -> None:
    with RawClient(broker.port) as client:
        protocols = [JoinGroupRequest.Protocol(name="compatible", metadata=b"{}")]
        joining = JoinGroupRequest(
            group_id="connect",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="connect",
            protocols=protocols,
        )
        joined = client.call(joining, 3)
        member = joined.member_id
        assignments = [SyncGroupRequest.Assignment(member_id=member, assignment=b"\x01")]
        client.call(
            SyncGroupRequest(
                group_id="connect",
                generation_id=joined.generation_id,
                member_id=member,
                assignments=assignments,
            ),
            3,
        )
        assert broker.groups["connect"].members == (Member(member, "test", None, ()),)
        assert broker.groups["connect"].state == "Stable"


def test_questions_pass_rules_of_faults(broker: KafkaBroker) -> None:
    produce(broker, b"one")
    every = broker.faults.on("Fetch", "Metadata").answer(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert values(broker.records("orders")) == [b"one"]
    assert every.matched == 0


def test_waiting_ends_when_the_record_is_there(broker: KafkaBroker) -> None:
    thread = threading.Thread(target=produce, args=(broker, b"late"))
    thread.start()
    assert values(broker.wait_for_records("orders", 1, timeout=PATIENCE)) == [b"late"]
    thread.join()


def test_waiting_in_vain(broker: KafkaBroker) -> None:
    produce(broker, b"one")
    for arguments, message in [
        (("orders", 2), "topic 'orders' has 1 of 2 records after 0.01 s"),
        (("order", 1), "topic 'order' does not exist after 0.01 s; did you mean \"orders\"?"),
        (("x", 1), "topic 'x' does not exist after 0.01 s; the topics are orders"),
    ]:
        with pytest.raises(NotInTime) as raised:
            broker.wait_for_records(*arguments, timeout=0.01)
        assert str(raised.value) == message
    with pytest.raises(NotInTime, match="partition 1 of 'orders' has 0 of 1 records"):
        broker.wait_for_records("orders", 1, partition=1, timeout=0.01)
    with pytest.raises(NotInTime, match=r"is still false after .*; it returned None"):
        broker.wait_until(lambda: None, timeout=0.01)
    with pytest.raises(ValueError, match="wait for 1 or more"):
        broker.wait_for_records("orders", 0)


def test_waiting_without_topics(process: bool) -> None:
    with (
        KafkaBroker.start(process=process) as empty,
        pytest.raises(NotInTime, match="there are no topics"),
    ):
        empty.wait_for_records("orders", 1, timeout=0.01)


def test_waiting_in_an_event_loop_names_the_remedy(broker: KafkaBroker) -> None:
    async def wait() -> None:
        broker.wait_for_records("orders", 1, timeout=0.01)

    with pytest.raises(NotInTime, match=r"use `await asyncio.to_thread\(…\)`"):
        asyncio.run(wait())


def test_a_reset_leaves_the_address_and_what_start_made(process: bool) -> None:
    settings = {"topics": {"orders": 2}, "sasl": "scram", "tls": True}
    with KafkaBroker.start(process=process, **settings) as broker:
        address, clients = broker.bootstrap_servers, broker.clients
        produce(broker, b"one")
        broker.create_topic("more")
        broker.faults.on("Produce").drop()
        broker.reset()
        assert (broker.bootstrap_servers, broker.clients) == (address, clients)
        assert broker.topics == {"orders": 2}
        assert broker.records("orders") == broker.produced_by("shop") == []
        produce(broker, b"two")
        assert values(broker.records("orders")) == values(broker.produced_by("shop")) == [b"two"]


def test_a_stopped_broker(process: bool) -> None:
    with KafkaBroker.start(process=process) as broker:
        assert repr(broker) == f"<KafkaBroker {broker.bootstrap_servers}>"
    broker.close()
    assert repr(broker) == "<KafkaBroker stopped>"
    with pytest.raises(RuntimeError, match="the broker was stopped; ask it before the end"):
        broker.records("orders")
