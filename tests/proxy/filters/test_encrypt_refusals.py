"""What Encrypt refuses: envelopes that were changed or moved, and records that it cannot encrypt."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from hypothesis import given
from hypothesis import strategies as st
from kafka_wire import ErrorCode

from krammar.client import Client as KrammarClient
from krammar.proxy import Proxy
from krammar.proxy.filters.encrypt import Encrypt
from krammar.proxy.filters.envelope import (
    MAGIC,
    EnvelopeError,
    WrappedKey,
    pack_headers,
    unpack_headers,
    unpack_sealed,
    unpack_wrapped,
)
from krammar.testing import KafkaBroker
from krammar.wire.batches import Record, encode_batch
from tests.proxy.filters.encrypted import decoded, fetch_direct
from tests.proxy.filters.support import fetch, produce, through
from tests.support.waiting import PATIENCE


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


class Failing:
    """A key management service that cannot be reached at first."""

    def __init__(self) -> None:
        self.keys: dict[bytes, bytes] = {}
        self.fails = True

    async def wrap(self, data_key: bytes) -> WrappedKey:
        if self.fails:
            raise ConnectionError("the service is down")
        self.keys[b"1"] = data_key
        return WrappedKey("k", b"1")

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        if self.fails:
            raise ConnectionError("the service is down")
        return self.keys[wrapped.data]


def test_a_service_that_fails_closes_the_connection_and_nothing_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Failing()
    with through(Encrypt(kms=service)) as (broker, proxy):
        with pytest.raises(ConnectionError):
            produce(proxy, 9, {("orders", 0): [b"x"]})
        assert not broker.records("orders")
        service.fails = False
        produce(proxy, 9, {("orders", 0): [b"x"]})
        with Proxy.start(broker.bootstrap_servers, [Encrypt(kms=service)]) as other:
            service.fails = True
            with pytest.raises(ConnectionError):
                fetch(other, 12, "orders")
            service.fails = False
            assert [each.value for each in decoded(fetch(other, 12, "orders").records)] == [b"x"]
    lines = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(lines) == 2
    assert all("ConnectionError: the service is down" in each for each in lines)


@given(st.binary(max_size=120))
def test_any_bytes_are_an_envelope_or_an_error(data: bytes) -> None:
    """No bytes after the magic raise another exception than EnvelopeError."""
    for value in (data, MAGIC + data, MAGIC + b"\1\0" + data):
        with suppress(EnvelopeError):
            sealed = unpack_sealed(value, 0)
            assert sealed.head + sealed.wrapped + sealed.nonce + sealed.content == value
            unpack_wrapped(sealed.wrapped)
        with suppress(EnvelopeError):
            unpack_headers(data)


@given(st.lists(st.tuples(st.text(), st.none() | st.binary())))
def test_headers_as_bytes(headers: list[tuple[str, bytes | None]]) -> None:
    assert unpack_headers(pack_headers(headers)) == headers
