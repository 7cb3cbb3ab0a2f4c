"""Encrypt, through a broker, a proxy and clients."""

from __future__ import annotations

import base64
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka_wire import ErrorCode

from krammar.client import Client as KrammarClient
from krammar.proxy import Proxy
from krammar.proxy.filters.encrypt import HEADER, Encrypt
from krammar.proxy.filters.envelope import WrappedKey, is_sealed, parse
from krammar.proxy.filters.keys import KeyFile
from krammar.testing import KafkaBroker
from krammar.wire.batches import Compression, Record, encode_batch, read_batches
from tests.proxy.filters.support import PATIENCE, fetch, produce, through

SECRET = b"a secret that must not be in the log"


def line(key_id: str) -> str:
    return f"{key_id} {base64.b64encode(os.urandom(32)).decode()}\n"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.txt"
    path.write_text("# keys of the tests\n" + line("2026-11"))
    return path


def decoded(data: bytes | None) -> list[Record]:
    return [record for batch in read_batches(data) for record in batch]


def stored(broker: KafkaBroker, topic: str = "orders") -> list[bytes]:
    return [record.value or b"" for record in broker.records(topic)]


def key_of(envelope: bytes) -> bytes:
    return parse(envelope, 0).wrapped


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
    nonces = [parse(each.value, 0).nonce for each in ciphertexts if each.value is not None]
    assert len(set(nonces)) == len(nonces)


def fetch_direct(broker: KafkaBroker, version: int = 12, topic: str = "orders") -> bytes | None:
    with Proxy.start(broker.bootstrap_servers) as direct:
        return fetch(direct, version, topic).records


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
        found = []
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


@pytest.fixture
def swapped(keys: Path) -> Iterator[tuple[KafkaBroker, Proxy, list[Record]]]:
    """A broker with two encrypted records in "orders", and those records."""
    topics = {"orders": 1, "other": 1}
    with through(Encrypt(keys=keys), topics=topics) as (broker, proxy):
        batch = encode_batch([Record(key=b"a", value=b"1"), Record(key=b"b", value=b"2")])
        produce(proxy, 9, {("orders", 0): batch})
        yield broker, proxy, decoded(fetch_direct(broker))


def refused(
    broker: KafkaBroker,
    proxy: Proxy,
    records: list[Record],
    caplog: pytest.LogCaptureFixture,
    topic: str = "other",
) -> str:
    """Write records around the proxy, expect that consumers get CORRUPT_MESSAGE, and return the line of the log."""
    for each in records:
        each.offset = -1
    with Proxy.start(broker.bootstrap_servers) as direct:
        produce(direct, 9, {(topic, 0): encode_batch(records)})
    for _ in range(2):  # logged once
        found = fetch(proxy, 12, topic)
        assert (found.error_code, found.records) == (ErrorCode.CORRUPT_MESSAGE, b"")
    (text,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    return text


def test_another_topic(swapped: Any, caplog: pytest.LogCaptureFixture) -> None:
    broker, proxy, records = swapped
    assert refused(broker, proxy, records, caplog) == (
        "Encrypt: other-0, offsets 0 to 1: the value at offset 0 cannot be decrypted: it was changed, or moved "
        "from another topic or key, or its data key is wrong"
    )


@pytest.mark.parametrize(
    "change", ["key", "no key", "byte", "kind", "version", "cut", "plain", "id"]
)
def test_what_was_changed(keys: Path, change: str, caplog: pytest.LogCaptureFixture) -> None:
    with through(Encrypt(keys=keys), topics={"orders": 1, "other": 1}) as (broker, proxy):
        produce(proxy, 9, {("other", 0): encode_batch([Record(key=b"a", value=b"12345")])})
        (record,) = decoded(fetch_direct(broker, topic="other"))
        with KrammarClient(broker.bootstrap_servers) as client:
            client.admin.delete_topic("other")
            client.admin.create_topic("other", 1)
        value = record.value or b""
        expected = "it was changed, or moved"
        if change == "key":
            record.key = b"b"
        elif change == "no key":
            record.key = None
        elif change == "byte":
            record.value = value[:-20] + bytes([value[-20] ^ 1]) + value[-19:]
        elif change == "kind":
            record.value, expected = value[:5] + b"\1" + value[6:], "a value is in the place of"
        elif change == "version":
            record.value, expected = value[:4] + b"\2" + value[5:], "its version 2 is unknown"
        elif change == "cut":
            record.value, expected = value[:60], "it is cut off"
        elif change == "plain":
            record.value, expected = b"plain", 'is not encrypted (plaintext = "pass" passes it)'
        elif change == "id":
            record.value = value.replace(b"2026-11", b"2027-11")
            expected = "a data key cannot be unwrapped: .*keys.txt has no key '2027-11'"
        text = refused(broker, proxy, [record], caplog)
    assert re.search(expected if ".*" in expected else re.escape(expected), text)


def test_a_consumer_gets_what_precedes_a_corrupt_batch(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with through(Encrypt(keys=keys)) as (broker, proxy):
        produce(proxy, 9, {("orders", 0): [b"1"]})
        with Proxy.start(broker.bootstrap_servers) as direct:
            produce(direct, 9, {("orders", 0): [b"plain"]})
        produce(proxy, 9, {("orders", 0): [b"3"]})
        consumer = Consumer(
            {
                "bootstrap.servers": proxy.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        message = consumer.poll(PATIENCE)
        assert message is not None
        assert message.value() == b"1"
        message = consumer.poll(PATIENCE)
        assert message is not None
        assert message.error() is not None
        consumer.close()
        assert [each.value for each in decoded(fetch(proxy, 12, "orders", offset=2).records)] == [
            b"3"
        ]
    (text,) = {each.getMessage() for each in caplog.records if each.levelname == "WARNING"}
    assert text.startswith("Encrypt: orders-0, offsets 1 to 1: the value at offset 1 is not")


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


def test_records_that_cannot_be_encrypted_are_refused(keys: Path) -> None:
    control = encode_batch([Record(key=b"\0\0\0\1", value=b"\0\0\0\0\0\0")], is_control=True)
    topics = {"orders": 1, "other": 1}
    with through(Encrypt(keys=keys), topics=topics) as (broker, proxy):
        found = produce(proxy, 9, {("orders", 0): control, ("other", 0): [b"x"]})
        assert found["orders", 0].error_code == ErrorCode.INVALID_RECORD
        assert found["other", 0].error_code == 0
        found = produce(proxy, 3, {("orders", 0): _message_v1(b"x")})
        assert found["orders", 0].error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        assert not broker.records("orders")


def _message_v1(value: bytes) -> bytes:
    body = b"\1\0" + bytes(8) + b"\xff\xff\xff\xff" + len(value).to_bytes(4, "big") + value
    message = zlib.crc32(body).to_bytes(4, "big") + body
    return bytes(8) + len(message).to_bytes(4, "big") + message


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "keys, kms: give one of them"),
        ({"plaintext": "no"}, "plaintext = 'no': write 'refuse' or 'pass'"),
        ({"max_age": 0}, "max_age = 0: write seconds, more than 0"),
        ({"max_records": 1 << 32}, r"max_records = 4294967296: write a number from 1 to 2\*\*31"),
        ({"keys": None, "kms": "nowhere:X"}, "kms = 'nowhere:X': module 'nowhere' is not found"),
    ],
)
def test_wrong_settings(keys: Path, arguments: dict[str, Any], error: str) -> None:
    if arguments:
        arguments = {"keys": keys, **arguments}
    with pytest.raises(ValueError, match=error):
        Encrypt(**arguments)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "it has no key"),
        ("a b c\n", "keys.txt:1: write an id and 32 bytes in base64"),
        ("# x\na AAAA\n", "keys.txt:2: write an id and 32 bytes in base64"),
        ("a !!\n", "keys.txt:1: write an id and 32 bytes in base64"),
        (line("a") + line("a"), "keys.txt:2: the id 'a' occurs twice"),
        (line("a" * 256), "keys.txt:1: the id has more than 255 bytes"),
    ],
)
def test_a_file_of_keys_that_cannot_be_used(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "keys.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=error):
        KeyFile(path)
    with pytest.raises(ValueError, match=r"^keys: "):
        Encrypt(keys=path)
