"""Mask: fields of JSON values, and values by a function, in what consumers fetch."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka_wire import FetchRequest, FetchResponse

from krammar.proxy import Exchange, Filter, on
from krammar.proxy.filters.mask import Mask
from krammar.wire.batches import Compression, Record, encode_batch, read_batches
from tests.proxy.filters.support import Client, address, fetch, produce, through
from tests.support.frames import framed
from tests.support.waiting import PATIENCE


def values(data: bytes) -> list[bytes | None]:
    return [record.value for batch in read_batches(data) for record in batch]


@pytest.mark.parametrize("version", [4, 12, 17])
def test_fields(version: int) -> None:
    order = {"id": 1, "card": {"number": "4711", "name": "Ada"}, "email": "ada@example.org"}
    carts = {"card": [{"number": 1}, {"number": 2}], "items": ["é"]}
    records: list[bytes | None] = [
        json.dumps(order).encode(),
        b'{"id":  2}',
        json.dumps(carts, ensure_ascii=False).encode(),
        b"no JSON",
        b'{"email": 1, "email": {}}',
        b"[" * 100_000,
        None,
    ]
    batch = encode_batch(
        [Record(value=each, key=b"k", timestamp=5, headers=[("h", b"v")]) for each in records],
        compression=Compression.ZSTD,
    )
    with through(Mask(fields=["card.number", "email"])) as (broker, proxy):
        assert produce(proxy, 9, {("orders", 0): batch})["orders", 0].error_code == 0
        found = fetch(proxy, version, "orders")
        assert [record.value for record in broker.records("orders")] == records
    assert found.records is not None
    (masked,) = read_batches(found.records)
    assert masked.compression == Compression.ZSTD
    assert {(each.key, each.timestamp, *each.headers) for each in masked} == {
        (b"k", 5, ("h", b"v"))
    }
    first, second, third, *rest = [each.value for each in masked]
    assert json.loads(first or b"") == order | {
        "card": {"number": "***", "name": "Ada"},
        "email": "***",
    }
    assert second == b'{"id":  2}'  # nothing is masked, so no byte changes
    assert third == '{"card": [{"number": "***"}, {"number": "***"}], "items": ["é"]}'.encode()
    assert rest == [b'"***"', b'"***"', b'"***"', None]


def last_digits(value: bytes) -> bytes | None:
    return b"*" + value[-4:] if value else None


def test_a_function_and_only_the_topics_that_match() -> None:
    topics = {"orders": 1, "other": 1}
    mask = Mask(function="tests.proxy.filters.test_mask:last_digits", topics=["ord*"])
    with through(mask, topics=topics) as (_, proxy):
        produce(proxy, 9, {("orders", 0): [b"12345678", b""], ("other", 0): [b"12345678"]})
        consumer = Consumer(
            {
                "bootstrap.servers": proxy.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders", "other"])
        found: set[bytes | None] = set()
        while len(found) < 3:
            message = consumer.poll(PATIENCE)
            assert message is not None
            assert message.error() is None
            found.add(message.value())
        consumer.close()
    assert found == {b"*5678", None, b"12345678"}


class CutOff(Filter):
    """Adds the first bytes of a batch, because Kafka's brokers cut batches off."""

    @on(FetchResponse)
    def cut(self, response: FetchResponse, exchange: Exchange) -> None:
        for topic in response.responses:
            for partition in topic.partitions:
                records = partition.records or b""
                partition.records = records + records[:-5]


def test_the_rest_of_a_batch_that_the_broker_cuts_off_is_not_passed() -> None:
    with through(Mask(fields=["email"]), CutOff()) as (_, proxy):
        produce(proxy, 9, {("orders", 0): [b'{"email": "ada@example.org"}']})
        found = fetch(proxy, 12, "orders").records or b""
    assert values(found) == [b'{"email": "***"}']
    assert b"ada" not in found


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "fields, function: give one of them"),
        ({"fields": ["a"], "function": last_digits}, "fields, function: give one of them"),
        ({"fields": "a"}, "fields = 'a': write a list"),
        ({"fields": ["a"], "mask": b"x"}, "mask: Object of type bytes"),
        ({"function": "no_such_module:f"}, "function: module 'no_such_module' is not found"),
    ],
)
def test_wrong_settings(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Mask(**arguments)


def test_a_request_without_a_response_does_not_hide_the_next_response() -> None:
    # Produce with acks 0, a record-free body, and a head that is too large to wait for.
    tags = b"\x01\x63" + b"\x80\x80\x08" + bytes(131_072)  # the tag 99, unknown to the broker
    body = b"\x00" + bytes(2) + (1_000).to_bytes(4, "big") + b"\x01\x00"
    head = b"\x00\x00\x00\x09" + (7).to_bytes(4, "big") + b"\xff\xff"
    produced = framed(head + tags + body)
    part = FetchRequest.FetchPartition(partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic="orders", partitions=[part])
    fetched = FetchRequest(max_bytes=1 << 20, topics=[topic]).encode(11)
    head = b"\x00\x01\x00\x0b" + (7).to_bytes(4, "big") + b"\xff\xff"
    with (
        through(Mask(fields=["email"])) as (_, proxy),
        Client(address(proxy)) as client,
    ):
        produce(proxy, 9, {("orders", 0): [b'{"email": "ada@example.org"}']})
        client.socket.sendall(produced + framed(head + fetched))
        with suppress(OSError):  # the proxy may have reset the connection already
            client.socket.shutdown(socket.SHUT_WR)
        assert b"ada" not in client.read_to_end()
