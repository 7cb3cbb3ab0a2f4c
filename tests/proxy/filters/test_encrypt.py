"""Encrypt, through a broker, a proxy and clients."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from kafka_wire import ErrorCode

from krammar.client import Client as KrammarClient
from krammar.proxy import Proxy
from krammar.proxy.filters.encrypt import HEADER, Encrypt
from krammar.proxy.filters.envelope import WrappedKey, is_sealed, unpack_sealed
from krammar.proxy.filters.mask import Mask
from krammar.proxy.filters.tenants import Tenants
from krammar.proxy.filters.validate import Validate
from krammar.wire.batches import Compression, Record, encode_batch, read_batches
from tests.proxy.filters.encrypted import decoded, fetch_direct, key_of, line, stored
from tests.proxy.filters.support import NOW, fetch, produce, through
from tests.support.waiting import PATIENCE

SECRET = b"a secret that must not be in the log"


@pytest.mark.parametrize("version", [4, 12, 17])
@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("headers", [False, True])
def test_all_but_the_values_survives(
    keys: Path, compression: Compression, headers: bool, version: int
) -> None:
    if compression == Compression.ZSTD and version < 10:
        version = 10
    records = [
        Record(
            number, 1_000 + number * 7, b"key %d" % number, SECRET, [("h", b"v" * 40), ("n", None)]
        )
        for number in range(20)
    ]
    records += [
        Record(20, 2_000, b"gone", None, [("why", b"deleted" * 9)]),
        Record(21, 1, None, b""),
    ]
    batch = encode_batch(records, compression=compression, base_offset=0)
    with through(Encrypt(keys=keys, headers=headers)) as (broker, proxy):
        assert produce(proxy, 9, {("orders", 0): batch})["orders", 0].error_code == 0
        found = fetch(proxy, version, "orders").records
        raw = fetch_direct(broker, version)
    assert decoded(found) == records
    (stored_batch,) = read_batches(raw)
    (read_batch,) = read_batches(found)
    assert stored_batch.compression == read_batch.compression == compression
    assert stored_batch.max_timestamp == read_batch.max_timestamp == 2_000
    ciphertexts = list(stored_batch)
    for before, after in zip(records, ciphertexts, strict=True):
        assert (before.offset, before.timestamp, before.key) == (
            after.offset,
            after.timestamp,
            after.key,
        )
        if before.value is None:
            assert after.value is None
        else:
            assert is_sealed(after.value or b"")
            assert SECRET not in (after.value or b"")
        if headers and before.headers:
            ((name, value),) = after.headers
            assert name == HEADER
            assert b"v" * 40 not in (value or b"")
        else:
            assert after.headers == before.headers
    nonces = [unpack_sealed(each.value, 0).nonce for each in ciphertexts if each.value is not None]
    assert len(set(nonces)) == len(nonces)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_large_records_of_a_transactional_client(keys: Path, codec: str) -> None:
    large = os.urandom(3 << 20)
    settings: dict[str, Any] = {"message.max.bytes": 8 << 20, "compression.type": codec}
    with through(Encrypt(keys=keys), message_max_bytes=8 << 20) as (broker, proxy):
        servers = {"bootstrap.servers": proxy.bootstrap_servers}
        producer = Producer({**servers, **settings, "transactional.id": "t"})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        producer.produce("orders", b"aborted")
        producer.flush(PATIENCE)
        producer.abort_transaction(PATIENCE)
        producer.begin_transaction()
        producer.produce("orders", large, key=b"k", headers={"h": b"v"})
        for number in range(2_000):
            producer.produce("orders", b"%d" % number)
        producer.commit_transaction(PATIENCE)
        consumer = Consumer(
            {
                **servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.message.max.bytes": 16 << 20,
                "fetch.max.bytes": 16 << 20,
            }
        )
        consumer.subscribe(["orders"])
        found: list[Message] = []
        while len(found) < 2_001:
            message = consumer.poll(PATIENCE)
            assert message is not None
            assert message.error() is None
            found.append(message)
        consumer.close()
        assert found[0].value() == large
        assert (found[0].key(), found[0].headers()) == (b"k", [("h", b"v")])
        assert [each.value() for each in found[1:]] == [b"%d" % each for each in range(2_000)]
        assert all(map(is_sealed, stored(broker)))


def test_an_idempotent_client_and_its_retries(keys: Path) -> None:
    """The same batch again is a duplicate for the broker, though it has another ciphertext."""
    batch = encode_batch([Record(value=b"1")], producer_id=7, producer_epoch=0, base_sequence=0)
    with through(Encrypt(keys=keys)) as (broker, proxy):
        for _ in range(2):
            found = produce(proxy, 9, {("orders", 0): batch})["orders", 0]
            assert (found.error_code, found.base_offset) == (0, 0)
        assert len(stored(broker)) == 1
        with KrammarClient(proxy.bootstrap_servers) as client:
            producer = client.producer(enable_idempotence=True)
            for number in range(10):
                producer.wait_for(producer.send("orders", b"%d" % number))
            values = [record.value for _, record in client.records("orders")]
    assert values == [b"1", *(b"%d" % number for number in range(10))]


def test_rotation_by_records_and_old_records(keys: Path) -> None:
    with through(Encrypt(keys=keys, max_records=3)) as (broker, proxy):
        for number in range(7):
            produce(proxy, 9, {("orders", 0): [b"%d" % number]})
        used = [key_of(each) for each in stored(broker)]
        assert [len(set(used[:3])), len(set(used[3:6])), len(set(used))] == [1, 1, 3]
        # Another proxy, which starts later and has a new key, reads all of them.
        with keys.open("a") as file:
            file.write(line("2026-12"))
        with Proxy.start(broker.bootstrap_servers, [Encrypt(keys=keys)]) as other:
            produce(other, 9, {("orders", 0): [b"7"]})
            assert stored(broker)[-1][6:14] == b"\x072026-12"
            values = [each.value for each in decoded(fetch(other, 12, "orders").records)]
            # So does the first one, which reads the file again, from any offset.
            assert values == [b"%d" % number for number in range(8)]
            assert decoded(fetch(proxy, 12, "orders", offset=7).records)[-1].value == b"7"


def test_rotation_by_age_and_a_key_for_each_topic(keys: Path) -> None:
    encrypt = Encrypt(keys=keys, max_age=60)
    time = [1000.0]
    encrypt._keys.now = lambda: time[0]  # type: ignore[method-assign]
    with through(encrypt, topics={"orders": 1, "other": 1}) as (broker, proxy):
        for seconds in (0, 59, 60):
            time[0] = 1000 + seconds
            produce(proxy, 9, {("orders", 0): [b"x"]})
        produce(proxy, 9, {("other", 0): [b"x"]})
        first, second, third = map(key_of, stored(broker))
        assert first == second != third
        assert key_of(*stored(broker, "other")) != third


class Memory:
    """A key management service in memory."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.keys: dict[bytes, bytes] = {}

    async def wrap(self, data_key: bytes) -> WrappedKey:
        handle = b"%d" % len(self.keys)
        self.keys[handle] = data_key
        return WrappedKey(self.name, handle)

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        return self.keys[wrapped.data]


def test_a_key_management_service() -> None:
    service = Memory()
    with through(Encrypt(kms=service)) as (_, proxy):
        produce(proxy, 13, {("orders", 0): [SECRET]})
        assert [each.value for each in decoded(fetch(proxy, 17, "orders").records)] == [SECRET]
    assert Encrypt(kms="tests.proxy.filters.test_encrypt:Memory", kms_options={"name": "vault"})


def test_plaintext_from_before(keys: Path) -> None:
    with through() as (broker, direct):
        produce(direct, 9, {("orders", 0): [b"before"]})
        filters = [Encrypt(keys=keys, plaintext="pass")]
        with Proxy.start(broker.bootstrap_servers, filters) as proxy:
            produce(proxy, 9, {("orders", 0): [b"after"]})
            values = [each.value for each in decoded(fetch(proxy, 12, "orders").records)]
    assert values == [b"before", b"after"]


def test_a_producer_cannot_forge_an_envelope_or_encrypted_headers(keys: Path) -> None:
    forged = Record(0, 1, None, b"\x93KRE and more", [(HEADER, b"x")])
    with through(Encrypt(keys=keys)) as (_, proxy):
        produce(proxy, 9, {("orders", 0): encode_batch([forged])})
        assert decoded(fetch(proxy, 12, "orders").records) == [forged]


def test_compaction(keys: Path) -> None:
    """Any record of a batch can be the only remaining one, and a null value deletes its key."""
    with through(Encrypt(keys=keys, headers=True), topics=()) as (broker, proxy):
        with KrammarClient(proxy.bootstrap_servers) as client:
            configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
            client.admin.create_topic("orders", 1, configs=configs)
        for number in range(3):
            records = [
                Record(
                    key=key, value=b"%s %d" % (key, number), timestamp=NOW, headers=[("h", b"v")]
                )
                for key in (b"a", b"b", b"c", b"d")[number:]
            ]
            if number == 2:
                records.append(Record(key=b"a", value=None, timestamp=NOW, headers=[("h", b"v")]))
            batch = encode_batch(records, compression=Compression.LZ4)
            assert not produce(proxy, 9, {("orders", 0): batch})["orders", 0].error_code
        # The log that is written to is not compacted; the next batch, much later, begins another one.
        later = encode_batch([Record(key=b"z", value=b"z", timestamp=NOW + (20 << 30))])
        assert not produce(proxy, 9, {("orders", 0): later})["orders", 0].error_code
        while broker.broker.call(broker.broker.logs.cleaner.compact):
            pass
        found = [(each.offset, each.key, each.value) for each in everything(proxy)]
        assert all(each.headers == [("h", b"v")] for each in everything(proxy)[:-1])
    assert found == [
        (4, b"b", b"b 1"),
        (7, b"c", b"c 2"),
        (8, b"d", b"d 2"),
        (9, b"a", None),
        (10, b"z", b"z"),
    ]


def test_with_other_filters_of_records(keys: Path) -> None:
    """Encrypt is the last filter, so the others see what clients send and get."""
    filters = [Validate(), Mask(fields=["email"]), Encrypt(keys=keys)]
    topics = {"orders": 2, "other": 1}
    with through(*filters, topics=topics) as (broker, proxy):
        good = b'{"email": "ada@example.org"}'
        batches: dict[tuple[str, int], bytes | list[bytes]] = {
            ("orders", 0): [good],
            ("orders", 1): [b"{"],  # refused by Validate
            ("other", 0): encode_batch([Record(value=b"{}")], is_control=True),  # and by Encrypt
        }
        found = produce(proxy, 13, batches)
        assert {place: each.error_code for place, each in found.items()} == {
            ("orders", 0): 0,
            ("orders", 1): ErrorCode.INVALID_RECORD,
            ("other", 0): ErrorCode.INVALID_RECORD,
        }
        del batches["orders", 0]
        found = produce(proxy, 13, batches)  # the broker gets no request
        assert {each.error_code for each in found.values()} == {ErrorCode.INVALID_RECORD}
        assert len(found) == 2
        assert list(map(is_sealed, stored(broker))) == [True]
        assert decoded(fetch(proxy, 17, "orders").records)[0].value == b'{"email": "***"}'


def everything(proxy: Proxy) -> list[Record]:
    found: list[Record] = []
    while not found or found[-1].key != b"z":
        offset = found[-1].offset + 1 if found else 0
        found += decoded(fetch(proxy, 12, "orders", offset=offset).records)
    return found


def test_internal_topics_pass(keys: Path) -> None:
    with through(Encrypt(keys=keys)) as (broker, proxy):
        servers = {"bootstrap.servers": proxy.bootstrap_servers, "group.id": "g"}
        consumer = Consumer(servers)
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        consumer.close()
        with KrammarClient(proxy.bootstrap_servers) as client:
            through_it = [record.value for _, record in client.records("__consumer_offsets")]
        with KrammarClient(broker.bootstrap_servers) as client:
            assert through_it == [rec.value for _, rec in client.records("__consumer_offsets")]
        assert through_it


def test_after_tenants(keys: Path) -> None:
    with through(Tenants(tenant="blue"), Encrypt(keys=keys), topics=()) as (broker, proxy):
        with KrammarClient(proxy.bootstrap_servers) as client:
            client.admin.create_topic("orders", 1)
            producer = client.producer()
            producer.wait_for(producer.send("orders", SECRET))
            assert [record.value for _, record in client.records("orders")] == [SECRET]
        # By name and by id.
        for version in (4, 12, 13, 17):
            assert decoded(fetch(proxy, version, "orders").records)[0].value == SECRET
        assert list(map(is_sealed, stored(broker, "blue.orders"))) == [True]
