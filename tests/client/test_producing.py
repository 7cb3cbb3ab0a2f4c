"""Writing, read back by librdkafka and by the client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

import confluent_kafka
import pytest
from kafka_wire import ApiKey

from krammar.broker import Broker
from krammar.client import Client, Delivery, Producer
from krammar.client.errors import (
    DeadlineError,
    InvalidTopicException,
    KafkaError,
    MessageTooLarge,
    StateError,
    UnknownTopicOrPartition,
    UnsupportedError,
)
from krammar.client.partitioner import murmur2, partition_of_key
from tests.client.proxy import Proxy
from tests.support.waiting import PATIENCE

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def read_by_librdkafka(broker: Broker, topic: str, count: int) -> list[confluent_kafka.Message]:
    """Return the first ``count`` committed messages that librdkafka reads."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.subscribe([topic])
        messages: list[confluent_kafka.Message] = []
        while len(messages) < count:
            came = consumer.consume(count - len(messages), PATIENCE)
            assert came, f"{len(messages)} of {count} records"
            messages += came
        return messages
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_it(broker: Broker, client: Client, codec: str) -> None:
    client.admin.create_topic("t", 2)
    expected = {}
    with client.producer(compression_type=codec, batch_size=2000) as producer:
        for i in range(500):
            key = None if i % 3 == 0 else b"k%d" % i
            value = None if i % 7 == 0 else b"v%d" % i * (i % 30)
            headers = [("h", b"x"), ("null", None)] if i % 5 == 0 else []
            sent = producer.send(
                "t", value, key, timestamp=1_700_000_000_000 + i, headers=headers, partition=i % 2
            )
            expected[i] = (key, value, headers, sent)
    for message in read_by_librdkafka(broker, "t", 500):
        kind, stamp = message.timestamp()
        key, value, headers, sent = expected.pop(stamp - 1_700_000_000_000)
        assert kind == confluent_kafka.TIMESTAMP_CREATE_TIME
        assert (message.key(), message.value(), message.headers() or []) == (key, value, headers)
        assert (message.partition(), message.offset()) == (sent.partition, sent.offset)
        assert sent.timestamp == stamp
    assert not expected


def test_hashes_of_javas_producer() -> None:
    """Values of Kafka's own test of its hash, without a sign."""
    for text, expected in [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ]:
        assert murmur2(text) == expected & 0xFFFFFFFF


def test_keys_go_where_librdkafka_puts_them(broker: Broker, client: Client) -> None:
    client.admin.create_topic("t", 7)
    other = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2"}
    )
    keys = [bytes(range(i)) for i in range(60)]
    for key in keys:
        other.produce("t", b"theirs", key)
    other.flush(PATIENCE)
    with client.producer() as producer:
        for key in keys:
            producer.send("t", b"ours", key)
    places: dict[bytes | None, set[int]] = {}
    for at, record in client.records("t"):
        places.setdefault(record.key, set()).add(at.partition)
    assert places == {key: {partition_of_key(key, 7)} for key in keys}


def test_records_without_a_key_fill_one_partition_after_another(client: Client) -> None:
    client.admin.create_topic("t", 3)
    with client.producer(batch_size=1000, linger_ms=1000) as producer:
        sent = [producer.send("t", bytes(80)) for _ in range(300)]
    partitions = [delivery.partition for delivery in sent]
    assert set(partitions) == {0, 1, 2}
    changes = sum(a != b for a, b in pairwise(partitions))
    assert changes <= 300 * (80 + 21) // 1000 + 1


def test_columns(broker: Broker, client: Client) -> None:
    """Many records at once go where single ones go, with all that they have."""
    client.admin.create_topic("t", 5)
    keys = [None if i % 7 == 0 else b"%d" % (i % 50) for i in range(3000)]
    values = [None if i % 11 == 0 else b"%d" % i for i in range(3000)]
    headers = [[("n", b"%d" % i), ("null", None)] if i % 3 == 0 else None for i in range(3000)]
    with client.producer(batch_size=2000, buffer_memory=20_000) as producer:
        assert producer.partition_count("t") == 5
        producer.send_columns("t", [])
        producer.send_columns("t", values, keys, headers, timestamp=5)
        producer.send("t", b"one", b"1")
        producer.send_columns("t", [b"two", b"three"], [b"1", b"1"])
        producer.send_columns("t", [b"fourth"], partition=4)
        producer.send("t", b"fifth", partition=4)
        with pytest.raises(UnknownTopicOrPartition, match="t-5"):
            producer.send_columns("t", [b""], partition=5)
    sent = {}
    of_key: dict[bytes | None, list[bytes | None]] = {}
    places: dict[bytes | None, set[int]] = {}
    for at, record in client.records("t"):
        places.setdefault(record.key, set()).add(at.partition)
        of_key.setdefault(record.key, []).append(record.value)
        if record.timestamp == 5:
            sent[record.key, record.value] = record.headers
    # Chance may leave out a partition of those.
    assert {4} < places.pop(None) <= {0, 1, 2, 3, 4}
    assert places == {key: {partition_of_key(key or b"", 5)} for key in places}
    expected: dict[bytes | None, list[bytes | None]] = {}
    for key, value in zip(keys, values, strict=True):
        expected.setdefault(key, []).append(value)
    expected[b"1"] += [b"one", b"two", b"three"]
    for key in places:
        assert of_key[key] == expected[key]
    assert sorted(of_key[None], key=repr) == sorted(
        [*expected[None], b"fourth", b"fifth"], key=repr
    )
    for key, value, header in zip(keys, values, headers, strict=True):
        if value is not None:
            assert sent[key, value] == (header or [])


def test_columns_fill_one_partition_after_another(client: Client) -> None:
    client.admin.create_topic("t", 3)
    with client.producer(batch_size=1000, linger_ms=1000) as producer:
        producer.send_columns("t", [bytes(80)] * 300)
    counts = [0, 0, 0]
    for at, _ in client.records("t"):
        counts[at.partition] += 1
    assert sum(counts) == 300
    # Ten records are a batch.
    assert all(counts) and all(count % 10 == 0 for count in counts)


def test_columns_that_are_refused(client: Client) -> None:
    client.admin.create_topic("t", 1, configs={"max.message.bytes": "1000"})
    with client.producer(batch_size=100_000) as producer:
        with pytest.raises(
            MessageTooLarge, match=r"t: a record of \d+ bytes exceeds max\.request\.size"
        ):
            producer.send_columns("t", [b"", bytes(2 << 20)])
        # Together they are too many, one by one they are not.
        producer.send_columns("t", [bytes(100)] * 50)
        producer.flush()
        producer.send_columns("t", [bytes(5000)])
        with pytest.raises(MessageTooLarge, match="t-0"):
            producer.flush()
        producer.send_columns("t", [bytes(5000)])
        producer.poll(PATIENCE * 1000)
        with pytest.raises(MessageTooLarge, match="t-0"):
            producer.send_columns("t", [b"behind"])
    assert [r.value for _, r in client.records("t")] == [bytes(100)] * 50
    with pytest.raises(StateError):
        producer.send_columns("t", [b""])


def test_columns_in_a_transaction(client: Client) -> None:
    client.admin.create_topic("t", 2)
    with client.producer(transactional_id="x") as producer:
        producer.init_transactions()
        with pytest.raises(StateError):
            producer.send_columns("t", [b"early"])
        with producer.transaction():
            producer.send_columns("t", [b"%d" % i for i in range(9)], partition=1)
    assert [r.value for _, r in client.records("t")] == [b"%d" % i for i in range(9)]


def test_offsets_of_deliveries(client: Client) -> None:
    called: list[Delivery] = []
    client.admin.create_topic("t", 1)
    with client.producer(linger_ms=60_000) as producer:
        sent = [
            producer.send("t", b"%d" % i, timestamp=i, on_delivery=called.append) for i in range(5)
        ]
        assert not sent[0].done
        assert sent[3].result() is sent[3]
        assert all(delivery.done for delivery in sent)
    assert [(d.topic, d.partition, d.offset, d.timestamp) for d in sent] == [
        ("t", 0, i, i) for i in range(5)
    ]
    assert called == sent


def test_the_brokers_clock(client: Client) -> None:
    client.admin.create_topic("t", 1, configs={"message.timestamp.type": "LogAppendTime"})
    with client.producer() as producer:
        sent = producer.send("t", b"x", timestamp=5).result()
    [(_, record)] = client.records("t")
    assert sent.timestamp == record.timestamp > 5


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acknowledgements(client: Client, acks: object) -> None:
    client.admin.create_topic("t", 1)
    with client.producer(acks=acks, enable_idempotence=False) as producer:
        sent = [producer.send("t", b"%d" % i) for i in range(100)]
        producer.flush()
        assert [d.offset for d in sent] == ([-1] * 100 if acks == 0 else list(range(100)))
    # Without acknowledgements they may be still under way.
    reader = client.fetch({("t", 0): 0}, until={("t", 0): 100})
    assert [r.value for _, r in reader.records()] == [b"%d" % i for i in range(100)]


def test_a_topic_is_made_by_the_first_record(client: Client) -> None:
    with client.producer() as producer:
        assert producer.send("new", b"x").result().offset == 0
    with pytest.raises(UnknownTopicOrPartition):
        client.topics(["newer"])


def test_a_partition_that_is_new(client: Client) -> None:
    client.admin.create_topic("t", 1)
    with client.producer() as producer:
        producer.send("t", b"x").result()
        client.admin.create_partitions("t", 2)
        assert producer.send("t", b"x", partition=1).result().offset == 0
        with pytest.raises(UnknownTopicOrPartition, match="t-2"):
            producer.send("t", b"x", partition=2)


def test_what_cannot_be_sent(client: Client) -> None:
    client.admin.create_topic("t", 1)
    with client.producer() as producer:
        with pytest.raises(TypeError, match="value"):
            producer.send("t", "text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="key"):
            producer.send("t", b"", 5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="header"):
            producer.send("t", b"", headers=[(b"k", b"v")])  # type: ignore[list-item]
        with pytest.raises(MessageTooLarge, match=r"max\.request\.size"):
            producer.send("t", bytes(2 << 20))
        with pytest.raises(InvalidTopicException):
            producer.send("no/topic", b"")
    with pytest.raises(StateError):
        producer.send("t", b"")


def test_a_record_of_900_kilobytes(client: Client) -> None:
    client.admin.create_topic("t", 1)
    with client.producer() as producer:
        producer.send("t", bytes(900_000))
    assert [len(r.value or b"") for _, r in client.records("t")] == [900_000]


def test_batches_that_are_too_large_are_split(client: Client) -> None:
    client.admin.create_topic("t", 1, configs={"max.message.bytes": "2000"})
    with client.producer(batch_size=100_000, linger_ms=1000) as producer:
        sent = [producer.send("t", b"%04d" % i * 20) for i in range(200)]
        producer.flush()
        assert [delivery.offset for delivery in sent] == list(range(200))
        # The sequence numbers are still in order.
        assert producer.send("t", b"x").result().offset == 200
    assert [r.value for _, r in client.records("t")][:200] == [b"%04d" % i * 20 for i in range(200)]


def test_a_refused_record_is_reported_and_others_go_on(client: Client) -> None:
    client.admin.create_topic("t", 1, configs={"max.message.bytes": "1000"})
    with client.producer() as producer:
        assert producer.send("t", b"1").result().offset == 0
        refused = producer.send("t", bytes(5000))
        with pytest.raises(MessageTooLarge, match="t-0"):
            producer.flush()
        assert isinstance(refused.error, MessageTooLarge)
        producer.flush()  # it is reported once
        assert producer.send("t", b"2").result().offset == 1
        with pytest.raises(MessageTooLarge):
            producer.send("t", bytes(5000)).result()
        seen = []
        producer.send("t", bytes(5000), on_delivery=lambda d: seen.append(d.error))
        producer.flush()  # this also calls the callback
        assert isinstance(seen[0], MessageTooLarge)


def test_small_buffers(client: Client) -> None:
    """Sending waits until there is room again."""
    client.admin.create_topic("t", 2)
    with client.producer(buffer_memory=5000, batch_size=1000) as producer:
        for i in range(1000):
            producer.send("t", b"%d" % i, partition=i % 2)
    assert len(list(client.records("t"))) == 1000


def test_one_request_in_flight(client: Client) -> None:
    client.admin.create_topic("t", 3)
    with client.producer(max_in_flight=1, batch_size=500) as producer:
        for i in range(1000):
            producer.send("t", b"%d" % i, partition=0)
    assert [r.value for _, r in client.records("t")] == [b"%d" % i for i in range(1000)]


@contextmanager
def producing(broker: Broker, **settings: Any) -> Iterator[Producer]:
    with (
        Client(broker.bootstrap_servers, retry_backoff_ms=1) as client,
        client.producer(**settings) as producer,
    ):
        yield producer


@pytest.mark.parametrize("lost", [1, 3])
@pytest.mark.parametrize("partitions", [1, 3])
def test_lost_answers_make_no_duplicates(
    proxy: Proxy, behind: Broker, lost: int, partitions: int
) -> None:
    """The broker has written the records, but the producer does not hear of it."""
    with producing(behind, batch_size=500) as producer:
        with Client(behind.bootstrap_servers) as client:
            client.admin.create_topic("t", partitions)
        producer.send("t", b"first", partition=0).result()
        sent = []
        for i in range(900):
            if i in (100, 400):
                proxy.lose[ApiKey.PRODUCE] = lost
            sent.append(producer.send("t", b"%d" % i, partition=i % partitions))
        producer.flush()
        assert proxy.lose[ApiKey.PRODUCE] == 0
        with Client(behind.bootstrap_servers) as client:
            values: dict[int, list[bytes | None]] = {}
            offsets = {}
            for at, record in client.records("t"):
                values.setdefault(at.partition, []).append(record.value)
                offsets[at.partition, record.value] = record.offset
        for partition in range(partitions):
            expected = [b"%d" % i for i in range(900) if i % partitions == partition]
            assert values[partition] == [b"first"] * (partition == 0) + expected
        for i, delivery in enumerate(sent):
            assert delivery.offset in (-1, offsets[delivery.partition, b"%d" % i])


def test_without_idempotence_a_lost_answer_makes_a_duplicate(proxy: Proxy, behind: Broker) -> None:
    """Without sequence numbers, the test above would see this duplicate."""
    with producing(behind, enable_idempotence=False) as producer:
        producer.send("t", b"1").result()
        proxy.lose[ApiKey.PRODUCE] = 1
        producer.send("t", b"2").result()
    with Client(behind.bootstrap_servers) as client:
        assert [r.value for _, r in client.records("t")] == [b"1", b"2", b"2"]


def test_lost_requests(proxy: Proxy, behind: Broker) -> None:
    with producing(behind, batch_size=300) as producer:
        producer.send("t", b"0").result()
        for i in range(1, 500):
            if i % 100 == 0:
                proxy.cut_before[ApiKey.PRODUCE] = 2
            producer.send("t", b"%d" % i)
        producer.flush()
    assert proxy.cut_before[ApiKey.PRODUCE] == 0
    with Client(behind.bootstrap_servers) as client:
        assert [r.value for _, r in client.records("t")] == [b"%d" % i for i in range(500)]


def test_records_expire(proxy: Proxy, behind: Broker) -> None:
    """It is unknown whether expired records were written. Later records are written, and only once."""
    with producing(behind, request_timeout_ms=100, delivery_timeout_ms=500) as producer:
        producer.send("t", b"1").result()
        proxy.flowing.clear()
        lost = producer.send("t", b"2")
        with pytest.raises(DeadlineError, match="t-0"):
            lost.result(PATIENCE * 1000)
        proxy.flowing.set()
        # Their sequence numbers are not used again.
        with producing(behind) as other:
            other.send("t", b"other").result()
        producer.send("t", b"3").result(PATIENCE * 1000)
    with Client(behind.bootstrap_servers) as client:
        values = [r.value for _, r in client.records("t")]
    assert sorted(values) in ([b"1", b"2", b"3", b"other"], [b"1", b"3", b"other"])


def test_a_gap_does_not_duplicate_what_follows(proxy: Proxy, behind: Broker) -> None:
    """A batch is refused while the next one is in flight."""
    with Client(behind.bootstrap_servers) as client:
        client.admin.create_topic("t", 1, configs={"max.message.bytes": "1000"})
    with producing(behind, batch_size=100) as producer:
        producer.send("t", b"0").result()
        proxy.lose[ApiKey.PRODUCE] = 1
        sent = [producer.send("t", bytes(90)) for _ in range(3)]
        sent.append(producer.send("t", bytes(5000)))
        sent += [producer.send("t", bytes(90)) for _ in range(3)]
        with pytest.raises(MessageTooLarge):
            producer.flush()
    assert [d.error is None for d in sent] == [True, True, True, False, True, True, True]
    with Client(behind.bootstrap_servers) as client:
        assert len(list(client.records("t"))) == 7


def test_what_may_have_been_written_is_not_written_under_another_epoch(
    proxy: Proxy, behind: Broker
) -> None:
    """Two batches are written, but not answered; the first one's time is over, so that the epoch is
    raised, but not before the second is known to be there."""
    with producing(behind, batch_size=100) as producer:
        producer.send("t", b"0").result()
        log = behind.logs.get("t", 0)
        assert log is not None
        proxy.flowing.clear()
        sent = [producer.send("t", b"%d" % i * 100) for i in (1, 2)]
        while log.end_offset < 3:
            producer.poll(10)
        sent[0].batch.expires = 0.0
        proxy.cut_all()
        proxy.flowing.set()
        with pytest.raises(DeadlineError):
            producer.flush()
        assert [d.error is None for d in sent] == [False, True]
        producer.send("t", b"3").result()
    with Client(behind.bootstrap_servers) as client:
        values = [(r.value or b"")[:1] for _, r in client.records("t")]
    assert values == [b"0", b"1", b"2", b"3"]


def test_a_batch_that_was_refused_after_its_append_is_not_written_twice(broker: Broker) -> None:
    """The same, if the leader has appended both batches, but lacks replicas for them."""
    with producing(broker, batch_size=100) as producer:
        producer.send("t", b"0").result()
        rule = broker.faults.on("Produce").answer("NOT_ENOUGH_REPLICAS_AFTER_APPEND", after=True)
        sent = [producer.send("t", b"%d" % i * 100) for i in (1, 2)]
        while rule.fired < 2:
            producer.poll(10)
        sent[0].batch.expires = 0.0
        while not sent[0].done:
            with suppress(DeadlineError):
                producer.poll(10)
        broker.faults.clear()
        with suppress(DeadlineError):
            producer.flush()
        assert isinstance(sent[0].error, DeadlineError) and sent[1].result()
        producer.send("t", b"3").result()
    with Client(broker.bootstrap_servers) as client:
        values = [(r.value or b"")[:1] for _, r in client.records("t")]
    assert values == [b"0", b"1", b"2", b"3"]


def test_an_answer_for_a_topic_that_was_forgotten_meanwhile(broker: Broker) -> None:
    with producing(broker) as producer:
        producer.send("t", b"0").result()
        slow = broker.faults.on("Produce").delay(50)
        sent = producer.send("t", b"1")
        while not slow.fired:
            producer.poll(1)
        producer.cluster.metadata.forget("t")
        assert sent.result().offset == 1


def test_a_broker_without_what_is_needed(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.admin.create_topic("t", 1)
    offered: Any = broker.handlers.release.offered
    monkeypatch.setitem(offered, ApiKey.PRODUCE, (0, 6))
    with Client(broker.bootstrap_servers) as old:
        producer = old.producer(compression_type="zstd")
        with pytest.raises(UnsupportedError, match="ProduceRequest"):
            producer.send("t", b"x").result()
        producer.close()
        with old.producer(compression_type="lz4") as producer:
            assert producer.send("t", b"x").result().offset == 0


def test_errors_say_what_they_concern(client: Client) -> None:
    client.admin.create_topic("t", 1, configs={"cleanup.policy": "compact"})
    with client.producer() as producer:
        with pytest.raises(KafkaError, match=r"t-0.*INVALID_RECORD|t-0.*CORRUPT_MESSAGE"):
            producer.send("t", b"no key").result()
        assert producer.send("t", b"x", b"key").result().offset == 0
