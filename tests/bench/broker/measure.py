"""What is measured, with confluent-kafka as the client of every broker."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.processes import Server

WAIT = 60.0


@dataclass(frozen=True)
class Cell:
    """One setting of the throughput tables. Sizes in bytes."""

    size: int
    codec: str
    partitions: int
    records: int

    @property
    def name(self) -> str:
        size = f"{self.size} B" if self.size < 1000 else f"{self.size // 1000} kB"
        return (
            f"{size}, {'no compression' if self.codec == 'none' else self.codec}, {self.partitions}"
        )


def cells(*, quick: bool) -> list[Cell]:
    """Return what is measured: each record size, codec and number of partitions."""
    counts = {100: 300_000, 1000: 80_000, 10_000: 8_000}
    return [
        Cell(size, codec, partitions, count // (10 if quick else 1))
        for size, count in counts.items()
        for codec in ("none", "lz4")
        for partitions in (1, 4)
    ]


def forced_cells(*, quick: bool) -> list[Cell]:
    """Settings for brokers that force each batch to the disk."""
    part = 10 if quick else 1
    return [Cell(100, "none", 1, 200_000 // part), Cell(1000, "none", 1, 80_000 // part)]


@dataclass(frozen=True)
class Speed:
    """Records a second, and the broker's own processor time for a record, in seconds."""

    rate: float
    processor: float


def values(size: int) -> list[bytes]:
    """Some values that compress to about half."""
    source = random.Random(size)
    return [source.randbytes(size // 2) + b"abcdefghij" * (size // 20) for _ in range(64)]


def client(broker: Server, **more: Any) -> dict[str, Any]:
    """Settings of a client; underscores in names stand for dots. Its own log is for emergencies."""
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {"bootstrap.servers": broker.bootstrap, "log_level": 2, **named}


def throughput(broker: Server, cell: Cell, topic: str) -> tuple[Speed, Speed]:
    """Produce ``cell.records`` to a new topic, consume them again. Batches of up to 1 MB, acks=all."""
    admin = AdminClient(client(broker))
    new = NewTopic(topic, cell.partitions, 1)
    admin.create_topics([new], operation_timeout=WAIT)[topic].result(WAIT)
    try:
        return _produce(broker, cell, topic), _consume(broker, cell, topic)
    finally:
        admin.delete_topics([topic], operation_timeout=WAIT)[topic].result(WAIT)


def _produce(broker: Server, cell: Cell, topic: str) -> Speed:
    producer = Producer(
        client(
            broker,
            acks="all",
            compression_type=cell.codec,
            linger_ms=50,
            batch_size=1_000_000,
            batch_num_messages=1_000_000,
            queue_buffering_max_messages=2_000_000,
            queue_buffering_max_kbytes=1_000_000,
        )
    )
    producer.list_topics(topic, timeout=WAIT)
    some = values(cell.size)
    produce = producer.produce
    failed = _Failures()
    used = broker.processor_time()
    began = time.perf_counter()
    for index in range(cell.records):
        produce(topic, some[index & 63], partition=index % cell.partitions, on_delivery=failed)
        if not index & 1023:
            producer.poll(0)
    left = producer.flush(WAIT)
    seconds = time.perf_counter() - began
    if left or failed.seen:
        raise RuntimeError(f"{broker.name}, {cell.name}: {left} left, {failed.seen} failed")
    return Speed(cell.records / seconds, (broker.processor_time() - used) / cell.records)


class _Failures:
    """A delivery callback that counts what was not delivered."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, error: object, message: Message) -> None:
        if error is not None:
            self.seen += 1


def _consume(broker: Server, cell: Cell, topic: str) -> Speed:
    consumer = Consumer(
        client(
            broker,
            group_id="bench",
            enable_auto_commit=False,
            fetch_message_max_bytes=1_048_576,
            # By default the client pauses for a second once it has 100,000 records in its queue.
            fetch_queue_backoff_ms=1,
        )
    )
    try:
        consumer.list_topics(topic, timeout=WAIT)
        used = broker.processor_time()
        began = time.perf_counter()
        consumer.assign(
            [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(cell.partitions)]
        )
        seen = 0
        while seen < cell.records:
            found = consumer.consume(min(1000, cell.records - seen), 10)
            if not found:
                raise RuntimeError(f"{broker.name}, {cell.name}: {seen} of {cell.records} consumed")
            for message in (found[0], found[-1]):
                if message.error() is not None:
                    raise KafkaException(message.error())
            seen += len(found)
        seconds = time.perf_counter() - began
        return Speed(cell.records / seconds, (broker.processor_time() - used) / cell.records)
    finally:
        consumer.close()


class Latency:
    """One record in flight, acks=all: a connection that is asked again and again."""

    def __init__(self, broker: Server) -> None:
        self.topic = "latency"
        admin = AdminClient(client(broker))
        admin.create_topics([NewTopic(self.topic, 1, 1)])[self.topic].result(WAIT)
        self.producer = Producer(client(broker, acks="all", linger_ms=0))
        self.value = values(100)[0]
        self.ask(500)

    def ask(self, times: int) -> list[float]:
        """Seconds from produce() to its acknowledgement."""
        produce, poll, clock = self.producer.produce, self.producer.poll, time.perf_counter
        done: list[object] = []
        found = []
        for _ in range(times):
            began = clock()
            produce(self.topic, self.value, on_delivery=lambda error, _: done.append(error))
            while not done:
                poll(1)
            found.append(clock() - began)
            if done.pop() is not None:
                raise RuntimeError("a record was not acknowledged")
        return found


def fill(broker: Server, records: int) -> None:
    """Records of 100 B to one partition, acknowledged and read again once."""
    throughput(broker, Cell(100, "none", 1, records), "filled")
