"""What the filters of records have in common: threads, bounds, topic ids, old formats, share groups, acks 0."""

from __future__ import annotations

import logging
import threading
import uuid
import zlib
from collections.abc import Callable
from typing import Any

import kafka_wire
import pytest
from kafka_wire import (
    ErrorCode,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)

from krammar.proxy import Proxy
from krammar.proxy.filters.batches import Allowance
from krammar.proxy.filters.mask import Mask
from krammar.proxy.filters.validate import Validate
from krammar.wire.batches import Compression, Record, encode_batch, read_batches
from krammar.wire.connection import RequestReceived, ServerConnection
from tests.proxy.filters.support import NOW, Client, address, fetch, produce, through
from tests.tap.support import upstream

TOPIC = uuid.UUID(int=7)
BATCH = encode_batch([Record(0, NOW, b"k", b"secret")])


def masked(value: bytes) -> bytes:
    return b"*"


def test_large_batches_are_handled_in_threads() -> None:
    threads: list[str] = []

    def note(value: bytes) -> bytes:
        threads.append(threading.current_thread().name)
        return value

    with through(Mask(function=note)) as (_, proxy):
        for value, count in ((b"x", 1), (bytes(100_000), 1), (b"x", 600)):
            records = [Record(value=value, timestamp=NOW)] * count
            # The compressed size of all batches is small.
            batch = encode_batch(records, compression=Compression.ZSTD)
            produce(proxy, 9, {("orders", 0): batch})
        offset = 0
        for count in (1, 1, 600):
            threads.clear()
            assert fetch(proxy, 12, "orders", offset=offset).records
            in_loop = {name for name in threads if name == "krammar-proxy"}
            assert bool(in_loop) == (offset == 0)
            offset += count


def test_the_bound_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Allowance, "most", 1_000)
    large = b'"%s"' % (b"x" * 600)
    with through(Validate(), topics={"orders": 2}) as (broker, proxy):
        found = produce(proxy, 9, {("orders", 0): [large], ("orders", 1): [large]})
        assert found["orders", 0].error_code == 0
        assert found["orders", 1].error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert "more than the proxy decodes" in (found["orders", 1].error_message or "")
        # A single batch is bounded by krammar.wire.batches.Bounds.
        assert produce(proxy, 9, {("orders", 1): [large]})["orders", 1].error_code == 0
        assert len(broker.records("orders")) == 2


def test_the_bound_of_a_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Allowance, "most", 1_000)
    with through(Mask(function=masked)) as (_, proxy):
        for _ in range(3):
            produce(proxy, 9, {("orders", 0): [b"x" * 600]})
        for offset in range(3):  # each response has one batch, and no error
            found = fetch(proxy, 12, "orders", offset=offset)
            assert not found.error_code
            (batch,) = read_batches(found.records)
            assert (batch.base_offset, [each.value for each in batch]) == (offset, [b"*"])


def test_nothing_is_written_without_acks_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    request = ProduceRequest(
        acks=0,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="orders",
                partition_data=[
                    ProduceRequest.PartitionProduceData(
                        index=index, records=encode_batch([Record(value=value, timestamp=NOW)])
                    )
                    for index, value in enumerate((b"{", b"{}"))
                ],
            )
        ],
    )
    with (
        through(Validate(), topics={"orders": 2}) as (broker, proxy),
        Client(address(proxy)) as client,
    ):
        client.socket.sendall(client.connection.send_request(request, 9))
        (record,) = broker.wait_for_records("orders", 1)
        assert (record.partition, record.value) == (1, b"{}")
    (text,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    # The values of records do not reach the log.
    assert text.endswith(f"records for orders-0 are refused: error {ErrorCode.INVALID_RECORD:d}")


def serving(response: Callable[[], Any], known: bool = True) -> Any:
    """Return a broker whose topic has an id, and which answers anything else with a response."""

    def serve(connection: Any) -> None:
        server = ServerConnection(kafka_wire)
        while data := connection.recv(65536):
            server.receive_data(data)
            for event in server.events():
                assert isinstance(event, RequestReceived)
                found = response()
                if isinstance(event.request, MetadataRequest):
                    topic = MetadataResponse.Topic(topic_id=TOPIC, name="orders")
                    if not known:
                        code = ErrorCode.UNKNOWN_TOPIC_ID
                        topic = MetadataResponse.Topic(topic_id=TOPIC, name=None, error_code=code)
                    found = MetadataResponse(topics=[topic])
                connection.sendall(server.send_response(event, found))

    return serve


def fetched(**topic: Any) -> FetchResponse:
    partition = FetchResponse.PartitionData(
        partition_index=0, high_watermark=1, records=topic.pop("records", BATCH)
    )
    return FetchResponse(
        responses=[FetchResponse.FetchableTopicResponse(**topic, partitions=[partition])]
    )


def ask(response: Callable[[], Any], version: int, known: bool = True) -> Any:
    """Fetch through a proxy that masks the topic."""
    request: Any = FetchRequest()
    if isinstance(response(), ShareFetchResponse):
        request = ShareFetchRequest(group_id="g", member_id="m")
    with (
        upstream(serving(response, known)) as server,
        Proxy.start(str(server.address), [Mask(function=masked, topics=["orders"])]) as proxy,
        Client(address(proxy)) as client,
    ):
        return client.ask(request, version).response.responses[0].partitions[0]


def values(partition: Any) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (each.offset, each.key, each.value)
        for batch in read_batches(partition.records)
        for each in batch
    ]


def test_a_topic_id_that_the_broker_does_not_know() -> None:
    found = ask(lambda: fetched(topic_id=TOPIC), 13)
    assert values(found) == [(0, b"k", b"*")]
    found = ask(lambda: fetched(topic_id=TOPIC), 13, known=False)
    assert (found.error_code, found.records) == (ErrorCode.UNKNOWN_TOPIC_ID, b"")


def shared(*batches: bytes) -> ShareFetchResponse:
    partition = ShareFetchResponse.PartitionData(
        records=b"".join(batches),
        acquired_records=[
            ShareFetchResponse.AcquiredRecords(first_offset=0, last_offset=9, delivery_count=1)
        ],
    )
    topic = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=[partition])
    return ShareFetchResponse(responses=[topic])


def test_share_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ask(lambda: shared(BATCH, BATCH), 1)
    assert values(found) == [(0, b"k", b"*")] * 2
    assert found.acquired_records
    # Without all records, the consumer would take the missing ones for deleted, and acknowledge them.
    found = ask(lambda: shared(BATCH, BATCH[:-1] + b"\1"), 1)
    assert (found.error_code, found.records) == (ErrorCode.CORRUPT_MESSAGE, b"")
    assert not found.acquired_records
    monkeypatch.setattr(Allowance, "most", 50)
    found = ask(lambda: shared(BATCH, BATCH), 1)
    assert (found.error_code, found.records) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
    assert not found.acquired_records


def message(magic: int, offset: int, value: bytes, codec: int = 0) -> bytes:
    body = bytes((magic, codec)) + (bytes(8) if magic else b"") + b"\xff\xff\xff\xff"
    body += len(value).to_bytes(4, "big") + value
    data = zlib.crc32(body).to_bytes(4, "big") + body
    return offset.to_bytes(8, "big") + len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets(magic: int) -> None:
    inner = message(magic, 0 if magic else 6, b"b") + message(magic, 1 if magic else 7, b"c")
    wrapper = message(magic, 7, zlib.compress(inner, wbits=31), Compression.GZIP)
    records = message(magic, 5, b"a") + wrapper
    found = ask(lambda: fetched(topic="orders", records=records), 4)
    assert values(found) == [(5, None, b"*"), (6, None, b"*"), (7, None, b"*")]
    assert {each.magic for each in read_batches(found.records)} == {2}
    # Clients of older versions do not read batches of format v2.
    found = ask(lambda: fetched(topic="orders", records=records), 3)
    assert (found.error_code, found.records) == (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, b"")
