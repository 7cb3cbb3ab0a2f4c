"""Batches that take long to check: in a thread, one after another, while the broker serves others."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
import tracemalloc
import weakref
from functools import partial
from typing import Any

import pytest
from kafka_wire import ErrorCode, MetadataRequest

from krammar.broker import Broker
from krammar.broker.errors import ApiError
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.log_config import LogConfig
from krammar.broker.log.validation import QUICK, QUICKLY_READ, LongCheck, check, read_batch
from krammar.util.turns import WorkerThread
from krammar.wire.batches import Bounds, Compression, read_batches
from tests.attack.batches import empty_records, raw_batch, with_headers, with_value
from tests.broker.requests import batch, create_topic, produce, produce_request
from tests.broker.support import RawClient
from tests.support.waiting import until

NOW = 1_700_000_000_000


def jobs(broker: Broker) -> int:
    """The number of checks in the thread so far."""
    return broker.call(lambda: broker.connections.slices.worker.count)


@pytest.mark.parametrize("config", [{}, {"compression_type": "gzip"}])
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, 3, 4])
def test_a_bomb_of_headers(client: RawClient, codec: int, config: dict[str, str]) -> None:
    create_topic(client, "t", **config)
    bomb = raw_batch(with_headers(8_000_000), 1, codec)
    answer = produce(client, "t", bomb)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert "more than 1000000 headers in a batch" in answer.error_message
    assert "KRAMMAR_MAX_HEADERS" in answer.error_message


def test_too_many_records(client: RawClient) -> None:
    create_topic(client, "t")
    answer = produce(client, "t", raw_batch(b"", 1_000_001))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert "cannot contain" in answer.error_message
    zeros = bytes(7 * 1_000_001)
    answer = produce(client, "t", raw_batch(zeros, 1_000_001, Compression.ZSTD))
    assert "1000001 records in a batch, more than 1000000" in answer.error_message


def test_large_batches_are_appended(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t", compression_type="lz4")
    many = QUICK.records + 1
    data = raw_batch(empty_records(many), many, Compression.ZSTD)
    before = jobs(broker)
    assert produce(client, "t", data).base_offset == 0
    assert jobs(broker) == before + 1
    last = batch(b"x", timestamp=-1)
    assert produce(client, "t", last).base_offset == many
    assert jobs(broker) == before + 1
    log: Any = broker.call(lambda: broker.logs.get("t", 0))
    assert isinstance(log, PartitionLog)
    stored = [path.read_bytes() for path in sorted(log.path.glob("*.log"))]
    first, second = read_batches(b"".join(stored))
    assert first.compression == second.compression == Compression.LZ4
    assert [record.offset for record in first] == list(range(many))


def test_records_are_compressed_in_the_thread(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t", compression_type="zstd", compression_zstd_level="22")
    noise = random.Random(1).randbytes(300_000)
    assert produce(client, "t", batch(noise)).base_offset == 0
    assert jobs(broker) == 1


def test_a_large_batch_is_copied_in_the_thread(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t", max_message_bytes=str(100 << 20))
    large = batch(bytes(QUICKLY_READ))
    assert produce(client, "t", large).base_offset == 0
    assert jobs(broker) == 1
    broken = bytearray(large)
    broken[-1] ^= 1
    answer = produce(client, "t", bytes(broken))
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert jobs(broker) == 2
    assert produce(client, "t", batch(bytes(QUICKLY_READ - 200))).base_offset == 1
    assert jobs(broker) == 2


def test_a_refused_batch_is_freed_at_once(broker: Broker, client: RawClient) -> None:
    """Not only when all garbage is collected: its error refers to the frames that check it."""
    create_topic(client, "t", max_message_bytes=str(100 << 20))
    broken = bytearray(batch(bytes(QUICKLY_READ)))
    broken[-1] ^= 1
    request = produce_request("t", bytes(broken))
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(3):
            answer = client.call(request, 12).responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
        # The thread drops a batch shortly after the response is sent.
        until(lambda: tracemalloc.get_traced_memory()[0] < QUICKLY_READ / 2)
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize("config", [{}, {"compression_type": "gzip"}])
def test_uncompressed_records_have_the_limit_of_readers(
    client: RawClient, config: dict[str, str]
) -> None:
    """Compressed by the broker, readers would refuse them."""
    create_topic(client, "t", max_message_bytes=str(100 << 20), **config)
    most = Bounds().uncompressed
    body = with_value(most)
    answer = produce(client, "t", raw_batch(body, 1))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert f"{len(body)} bytes of records in a batch, more than {most}" in answer.error_message
    assert "KRAMMAR_MAX_UNCOMPRESSED" in answer.error_message
    fits = raw_batch(with_value(most - (len(body) - most)), 1)
    assert produce(client, "t", fits).base_offset == 0


def test_others_are_served_meanwhile(broker: Broker, client: RawClient) -> None:
    """The thread is blocked until another client has its answer."""
    create_topic(client, "t")
    create_topic(client, "gone")
    worker = broker.connections.slices.worker
    blocked = threading.Event()

    async def occupy() -> None:
        await worker.run(blocked.wait)

    loop = broker.call(asyncio.get_running_loop)
    waiting = asyncio.run_coroutine_threadsafe(occupy(), loop)
    many = QUICK.records + 1
    data = raw_batch(empty_records(many), many, Compression.ZSTD)
    with RawClient(broker.port) as other:
        client.send(produce_request("t", data), 12)
        while jobs(broker) < 2:
            pass
        assert other.call(MetadataRequest(topics=None), 12).topics
        assert produce(other, "t", batch(b"first")).base_offset == 0
    blocked.set()
    waiting.result()
    assert client.receive().responses[0].partition_responses[0].base_offset == 1


def test_a_stop_during_a_check(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t")
    blocked = threading.Event()
    many = QUICK.records + 1
    data = raw_batch(empty_records(many), many, Compression.ZSTD)
    worker = broker.connections.slices.worker
    loop = broker.call(asyncio.get_running_loop)
    asyncio.run_coroutine_threadsafe(worker.run(blocked.wait), loop)
    client.send(produce_request("t", data), 12)
    while jobs(broker) < 2:
        pass
    broker.close()
    blocked.set()


def test_the_data_of_a_failed_job_is_freed_at_once() -> None:
    class Data:
        """The data that a function reads."""

    def fail(data: Data) -> None:
        raise ApiError(ErrorCode.INVALID_RECORD)

    async def run() -> object:
        worker = WorkerThread()
        data = Data()
        found = weakref.ref(data)
        with contextlib.suppress(ApiError):
            await worker.run(partial(fail, data))
        del data
        await worker.run(int)  # the thread has forgotten the first function
        worker.close()
        return found()

    gc.disable()
    try:
        assert asyncio.run(run()) is None
    finally:
        gc.enable()


def test_a_check_is_only_put_off_where_it_can_be() -> None:
    many = QUICK.records + 1
    data = raw_batch(empty_records(many), many)
    header, body = read_batch(data, LogConfig())
    with pytest.raises(LongCheck) as caught:
        check(body, header, LogConfig(), NOW, quick=True)
    assert caught.value.run() == (header, body)
    assert check(body, header, LogConfig(), NOW) is body
    with pytest.raises(LongCheck):
        check(body, header, LogConfig(), NOW, Bounds(records=5), quick=True)
