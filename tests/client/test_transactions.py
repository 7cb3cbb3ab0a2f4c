"""Transactions, by the protocols of transaction.version 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest
from kafka_wire import ApiKey

from krammar.broker import Broker
from krammar.client import Client, Committed, GroupMember, KafkaError, Producer, TopicPartition
from krammar.client.errors import DeadlineError, MessageTooLarge, StateError, UnreachableError
from tests.client.conftest import broker_behind
from tests.client.proxy import Proxy


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def behind(proxy: Proxy, request: pytest.FixtureRequest) -> Iterator[Broker]:
    with broker_behind(proxy) as broker:
        broker.call(broker.cluster.features.__setitem__, "transaction.version", request.param)
        yield broker


@pytest.fixture
def client(behind: Broker) -> Iterator[Client]:
    with Client(
        behind.bootstrap_servers, isolation_level="read_committed", retry_backoff_ms=1
    ) as client:
        client.admin.create_topic("t", 2)
        yield client


@pytest.fixture
def producer(client: Client) -> Iterator[Producer]:
    with client.producer(transactional_id="x") as producer:
        producer.init_transactions()
        yield producer


def values(client: Client) -> list[bytes | None]:
    """Return the committed values, sorted."""
    return sorted(record.value or b"" for _, record in client.records("t"))


def test_each_version_is_spoken(proxy: Proxy, behind: Broker, producer: Producer) -> None:
    with producer.transaction():
        producer.send("t", b"1")
    version = behind.cluster.features["transaction.version"]
    assert proxy.requests[ApiKey.ADD_PARTITIONS_TO_TXN] == (1 if version == 1 else 0)
    assert proxy.requests[ApiKey.END_TXN] == 1


def test_committed_and_aborted(client: Client, producer: Producer) -> None:
    for i in range(10):
        producer.begin()
        sent = [producer.send("t", b"%d" % i, partition=p) for p in (0, 1)]
        if i % 3:
            producer.abort()
        else:
            producer.commit()
            assert all(delivery.offset >= 0 for delivery in sent)
    assert values(client) == sorted([b"0", b"3", b"6", b"9"] * 2)


def test_aborted_after_a_flush(client: Client, producer: Producer) -> None:
    with producer.transaction():
        producer.send("t", b"1", partition=0)
    producer.begin()
    assert producer.send("t", b"2", partition=0).result().offset == 2
    producer.abort()
    with producer.transaction():
        producer.send("t", b"3", partition=0)
    assert values(client) == [b"1", b"3"]


def test_an_error_in_the_block_aborts(client: Client, producer: Producer) -> None:
    def fail() -> None:
        with producer.transaction():
            producer.send("t", b"1").result()
            raise RuntimeError("the block's own")

    with pytest.raises(RuntimeError, match="the block's own"):
        fail()
    with producer.transaction():
        producer.send("t", b"2")
    assert values(client) == [b"2"]


def test_empty_transactions_say_nothing(proxy: Proxy, producer: Producer) -> None:
    with producer.transaction():
        pass
    producer.begin()
    producer.abort()
    assert proxy.requests[ApiKey.END_TXN] == 0


def test_what_was_not_sent_is_dropped_by_abort(client: Client, producer: Producer) -> None:
    producer.begin()
    dropped = producer.send("t", b"1")
    producer.abort()
    assert isinstance(dropped.error, StateError)
    assert values(client) == []


def test_a_refused_record_leaves_nothing_but_abort(client: Client, producer: Producer) -> None:
    client.admin.alter_topic_configs("t", {"max.message.bytes": "1000"})
    producer.begin()
    producer.send("t", b"1", partition=0).result()
    with pytest.raises(MessageTooLarge):
        producer.send("t", bytes(5000), partition=0).result()
    with pytest.raises(MessageTooLarge):
        producer.send("t", b"2", partition=0)
    with pytest.raises(MessageTooLarge):
        producer.commit()
    producer.abort()
    for value in (b"3", b"4"):
        with producer.transaction():
            producer.send("t", value, partition=0)
    assert values(client) == [b"3", b"4"]


def test_offsets_are_committed_with_it(behind: Broker, client: Client, producer: Producer) -> None:
    with producer.transaction():
        producer.send("t", b"1")
        producer.send_offsets({("t", 0): 5, ("t", 1): Committed(7, 0, "note")}, "g")  # type: ignore[dict-item]
    producer.begin()
    producer.send_offsets({TopicPartition("t", 0): 99}, "g")
    producer.abort()
    assert client.groups.committed("g") == {
        ("t", 0): Committed(5),
        ("t", 1): Committed(7, 0, "note"),
    }
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": behind.bootstrap_servers, "group.id": "g"}
    )
    found = consumer.committed([confluent_kafka.TopicPartition("t", p) for p in (0, 1)], 60)
    consumer.close()
    assert [p.offset for p in found] == [5, 7]


def test_offsets_alone(client: Client, producer: Producer) -> None:
    with producer.transaction():
        producer.send_offsets({TopicPartition("t", 0): 5}, "g")
    assert client.groups.committed("g") == {("t", 0): Committed(5)}


def test_offsets_of_a_member_that_is_gone(client: Client, producer: Producer) -> None:
    producer.begin()
    with pytest.raises(KafkaError) as caught:
        producer.send_offsets(
            {TopicPartition("t", 0): 5}, GroupMember("g", generation=3, member_id="gone")
        )
    assert caught.value.name in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
    with pytest.raises(KafkaError):
        producer.commit()
    producer.abort()
    assert client.groups.committed("g") == {}


def test_another_producer_of_the_id_fences_it(client: Client, producer: Producer) -> None:
    producer.begin()
    producer.send("t", b"old").result()
    with client.producer(transactional_id="x") as other:
        other.init_transactions()
        with other.transaction():
            other.send("t", b"new")
        with pytest.raises(KafkaError) as caught:
            producer.commit()
        assert caught.value.name in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
        with pytest.raises(KafkaError):
            producer.begin()
        with pytest.raises(KafkaError):
            producer.abort()
        with other.transaction():
            other.send("t", b"newer")
    assert values(client) == [b"new", b"newer"]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize(
    "key",
    [
        ApiKey.PRODUCE,
        ApiKey.END_TXN,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.FIND_COORDINATOR,
    ],
)
def test_lost_answers(
    proxy: Proxy, client: Client, producer: Producer, key: ApiKey, commit: bool
) -> None:
    """If any response is lost, the transaction is written once or not at all."""
    with producer.transaction():
        producer.send("t", b"before", partition=0)
    proxy.lose[key] = 1
    producer.begin()
    producer.send("t", b"1", partition=0)
    producer.send_offsets({TopicPartition("t", 0): 5}, "g")
    producer.send("t", b"2", partition=1)
    if commit:
        producer.commit()
    else:
        producer.flush()
        producer.abort()
    proxy.lose.clear()
    with producer.transaction():
        producer.send("t", b"after", partition=0)
    assert values(client) == sorted([b"before", b"after"] + [b"1", b"2"] * commit)
    assert client.groups.committed("g") == ({("t", 0): Committed(5)} if commit else {})


def test_a_commit_that_takes_too_long_can_be_called_again(
    proxy: Proxy, client: Client, producer: Producer
) -> None:
    producer.begin()
    producer.send("t", b"1").result()
    proxy.flowing.clear()
    with pytest.raises(DeadlineError):
        producer.commit(timeout_ms=200)
    with pytest.raises(StateError, match="committing"):
        producer.abort()
    proxy.flowing.set()
    producer.commit()
    assert values(client) == [b"1"]


def test_an_answer_that_does_not_come_before_abort(
    proxy: Proxy, client: Client, producer: Producer
) -> None:
    """Records in flight are not written after the end of their transaction."""
    with producer.transaction():
        producer.send("t", b"0", partition=0)
    producer.begin()
    producer.send("t", b"1", partition=0)
    proxy.flowing.clear()
    with pytest.raises(DeadlineError):
        producer.flush(100)
    with pytest.raises((DeadlineError, UnreachableError)):
        producer.abort(100)
    proxy.flowing.set()
    producer.abort()
    for value in (b"2", b"3"):
        with producer.transaction():
            producer.send("t", value, partition=0)
    assert values(client) == [b"0", b"2", b"3"]


def test_calls_out_of_order(client: Client) -> None:
    with client.producer(transactional_id="y") as producer:
        with pytest.raises(StateError, match="not initialised"):
            producer.begin()
        producer.init_transactions()
        with pytest.raises(StateError):
            producer.init_transactions()
        with pytest.raises(StateError, match="ready"):
            producer.send("t", b"x")
        with pytest.raises(StateError):
            producer.commit()
        with pytest.raises(StateError):
            producer.abort()
        producer.begin()
        with pytest.raises(StateError):
            producer.begin()
    with pytest.raises(StateError, match="the producer is closed"):
        producer.begin()
    with client.producer() as producer, pytest.raises(StateError, match=r"no transactional\.id"):
        producer.begin()


def test_closing_aborts_what_is_open(client: Client) -> None:
    with client.producer(transactional_id="y") as producer:
        producer.init_transactions()
        producer.begin()
        producer.send("t", b"1").result()
    assert values(client) == []
    [stable] = client.list_offsets({("t", 0): -1}).values()
    [end] = client.list_offsets({("t", 0): -1}, isolation_level="read_uncommitted").values()
    assert stable.offset == end.offset


def test_many_transactions(client: Client, producer: Producer) -> None:
    for i in range(100):
        with producer.transaction():
            producer.send("t", b"%03d" % i, partition=i % 2)
    assert values(client) == [b"%03d" % i for i in range(100)]


def test_a_transaction_that_is_refused_at_once(
    behind: Broker, client: Client, producer: Producer
) -> None:
    """The coordinator has none that could be aborted, and the next one works."""
    if behind.cluster.features["transaction.version"] == 2:
        pytest.skip("version 2 adds no partitions")
    rule = behind.faults.on("AddPartitionsToTxn").answer("TOPIC_AUTHORIZATION_FAILED").once()
    producer.begin()
    producer.send("t", b"1")
    with pytest.raises(KafkaError, match=r"adding t-. to the transaction of x"):
        producer.flush()
    producer.abort()
    rule.expect()
    with producer.transaction():
        producer.send("t", b"2")
    assert values(client) == [b"2"]
