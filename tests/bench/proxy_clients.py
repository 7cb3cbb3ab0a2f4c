"""What something between clients and broker costs real traffic: latency, time per MB, memory, and time to start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple, TypeVar

from confluent_kafka import Consumer, Producer
from kafka_wire import ProduceRequest, RequestHeader

from krammar.client import Client
from krammar.wire.batches import Record, encode_batch
from tests.bench.page import markdown_table
from tests.bench.proxy_systems import Place, available, bytes_only
from tests.bench.tap import started
from tests.ports import free_port

T = TypeVar("T")

_VERSION = 9
DIRECT = "direct"
_ROWS = (
    "latency p50 / p99, 100 B, µs",
    "produce 1 kB, processor ms per MB",
    "consume 1 kB, MB/s; processor ms per MB",
    "memory idle / after, MiB",
    "ready, s",
)
_VALUE = 1_000  # bytes of a record that is produced and consumed in bulk
_PAGE = os.sysconf("SC_PAGE_SIZE")


def used(pid: int) -> float:
    """The processor time of a process in nanoseconds, as precise as Linux's scheduler counts it."""
    fields = [Path(each, "schedstat").read_text() for each in Path(f"/proc/{pid}/task").iterdir()]
    return float(sum(int(each.split()[0]) for each in fields))


def memory(pid: int) -> float:
    """The resident memory of a process in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / (1 << 20)


def latencies(place: Place, count: int) -> list[float]:
    """The microseconds of Produce requests of 100 bytes, one after the other."""
    topic = f"latency-{place.port}"
    part = ProduceRequest.PartitionProduceData(
        index=0, records=encode_batch([Record(value=bytes(100))])
    )
    message = ProduceRequest(
        acks=1,
        timeout_ms=10_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[part])],
    )
    header = RequestHeader(request_api_key=0, request_api_version=_VERSION, correlation_id=7)
    data = header.encode(2) + message.encode(_VERSION)
    frame = len(data).to_bytes(4, "big") + data
    found = []
    with socket.create_connection(("127.0.0.1", place.port), timeout=60) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with client.makefile("rb") as reader:
            for number in range(count + 200):
                began = time.perf_counter()
                client.sendall(frame)
                reader.read(int.from_bytes(reader.read(4), "big"))
                if number >= 200:
                    found.append((time.perf_counter() - began) * 1e6)
    return found


def produce(place: Place, count: int) -> float:
    """Produce records of 1 kB with confluent-kafka; return the processor milliseconds per MB."""
    producer = Producer({"bootstrap.servers": place.bootstrap, "linger.ms": 5})
    before = used(place.pid)
    for _ in range(count):
        while True:
            try:
                producer.produce(f"bulk-{place.port}", bytes(_VALUE), partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0
    return (used(place.pid) - before) / 1e6 / (count * _VALUE / 1e6)


def consume(place: Place, count: int) -> tuple[float, float]:
    """Consume records of 1 kB with confluent-kafka; return MB/s and the processor milliseconds per MB."""
    consumer = Consumer(
        {
            "bootstrap.servers": place.bootstrap,
            "group.id": f"bench-{time.time_ns()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 0,
        }
    )
    consumer.subscribe([f"bulk-{place.port}"])
    found, began, before = 0, 0.0, 0.0
    while found < count:
        messages = consumer.consume(500, 10)
        assert messages
        if not began:  # the group has formed
            began, before, count = time.perf_counter(), used(place.pid), count - len(messages)
            continue
        found += len(messages)
    seconds = time.perf_counter() - began
    spent = (used(place.pid) - before) / 1e6
    consumer.close()
    return found * _VALUE / 1e6 / seconds, spent / (found * _VALUE / 1e6)


@contextmanager
def _broker(advertised: int) -> Iterator[Place]:
    """Start krammar's broker, which clients reach at the port ``advertised``; 0: at its own."""
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "krammar.cli", "broker", "--data-dir", data, "--port", "0"]
        if advertised:
            address = f"advertised.listeners=PLAINTEXT://127.0.0.1:{advertised}"
            command += ["--override", address]
        with started(*command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            while "listening on" not in (line := process.stdout.readline()):
                assert line
            yield Place(DIRECT, int(line.rpartition(":")[2]), process.pid, 0.0)


class Traffic(NamedTuple):
    """What real traffic costs. Without ``ready`` there is nothing between clients and broker."""

    middle: float  # of the latencies, in microseconds
    slow: float  # their 99th percentile
    produce: float  # processor milliseconds per MB
    rate: float  # of consuming, in MB/s
    consume: float  # processor milliseconds per MB
    idle: float  # memory in MiB before
    after: float  # and after
    ready: float | None  # seconds from the start


def clients(folder: Path, rounds: int, quick: bool) -> dict[str, Traffic]:
    """Return the costs of everything that can be between clients and krammar's broker, and those of the broker alone."""
    requests, records = (500, 20_000) if quick else (3_000, 100_000)
    with ExitStack() as stack:
        direct = stack.enter_context(_broker(0))
        # It replaces no addresses, so it has a broker that names the relay's address instead of its own.
        behind = stack.enter_context(_broker(relayed := free_port()))
        relay = bytes_only(relayed).start(behind.bootstrap, folder)
        places = [direct, stack.enter_context(relay)]
        for each in available(folder):
            places.append(stack.enter_context(each.start(direct.bootstrap, folder)))
        for place in places:
            # Each has topics of its own, with the same content.
            with Client(place.bootstrap) as client:
                for topic in ("latency", "bulk"):
                    client.admin.create_topic(f"{topic}-{place.port}", partitions=1)
        idle = [memory(place.pid) for place in places]
        # In turns: the machine is not always as fast.
        times = _in_turns(places, rounds, lambda each: latencies(each, requests))
        produced = _in_turns(places, rounds, lambda each: produce(each, records))
        read = _in_turns(places, rounds, lambda each: consume(each, records * rounds))
        return {
            place.name: Traffic(
                median(median(each) for each in times[number]),
                median(quantiles(each, n=100)[98] for each in times[number]),
                median(produced[number]),
                *(median(column) for column in zip(*read[number], strict=True)),
                idle[number],
                memory(place.pid),
                None if place is direct else place.ready,
            )
            for number, place in enumerate(places)
        }


def _in_turns(places: Sequence[Place], rounds: int, measure: Callable[[Place], T]) -> list[list[T]]:
    """Measure all places, round after round. Returns the figures of each place."""
    found = [[measure(place) for place in places] for _ in range(rounds)]
    return [list(column) for column in zip(*found, strict=True)]


def clients_table(found: Mapping[str, Traffic]) -> list[str]:
    """Return a table of what real traffic costs."""
    columns = [
        (
            f"{each.middle:.0f} / {each.slow:.0f}",
            *(
                ("-", f"{each.rate:.0f}", "-", "-")
                if each.ready is None
                else (
                    f"{each.produce:.2f}",
                    f"{each.rate:.0f}; {each.consume:.2f}",
                    f"{each.idle:.0f} / {each.after:.0f}",
                    f"{each.ready:.2f}",
                )
            ),
        )
        for each in found.values()
    ]
    return markdown_table(("", *found), zip(_ROWS, *columns, strict=True))
