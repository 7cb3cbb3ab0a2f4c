"""Kafka Connect with two workers, and MirrorMaker 2, while workers and brokers are killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.interop.apache import class_path
from tests.interop.applications.connect import MirrorMaker, Worker, committed, pause
from tests.interop.processes import Krammar, Unavailable
from tests.support.waiting import PATIENCE, until


@pytest.fixture(autouse=True)
def _jars() -> None:
    try:
        class_path("connect")
    except Unavailable as missing:
        pytest.skip(str(missing))


class _Lines:
    """Appends numbered lines to a file, as a program does that writes a log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0

    def write(self, count: int) -> None:
        with self.path.open("a") as file:
            for _ in range(count):
                file.write(f"line-{self.count:06}\n")
                self.count += 1

    @property
    def all(self) -> list[str]:
        return [f"line-{number:06}" for number in range(self.count)]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def _missing(sink: Path, lines: _Lines) -> list[str]:
    text = sink.read_text() if sink.exists() else ""
    return [line for line in lines.all if f"{line}\n" not in text]


def test_connect_loses_nothing_when_a_worker_and_the_broker_are_killed(
    stack: ExitStack, tmp_path: Path
) -> None:
    broker = stack.enter_context(Krammar(tmp_path / "data"))
    workers = [Worker(tmp_path / name, broker.bootstrap) for name in ("one", "two")]
    starts = [threading.Thread(target=worker.start, args=(120,)) for worker in workers]
    for worker in workers:
        stack.callback(worker.kill)
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    lines, sink = _Lines(tmp_path / "in.txt"), tmp_path / "out.txt"
    lines.write(1000)
    files = {
        "source": ("Source", {"file": str(lines.path), "topic": "lines", "batch.size": "100"}),
        "sink": ("Sink", {"file": str(sink), "topics": "lines"}),
    }
    for name, (kind, settings) in files.items():
        config = {
            "connector.class": f"org.apache.kafka.connect.file.FileStream{kind}Connector",
            "tasks.max": "1",
            **settings,
        }
        until(lambda name=name, config=config: _put(workers[0], name, config), after=pause)
    until(lambda: not _missing(sink, lines), after=pause)

    # The worker that reads the file dies in the middle.
    owner = until(lambda: workers[0].running("source"), after=pause)
    dies, lives = sorted(workers, key=lambda worker: not owner.endswith(f":{worker.port}"))
    lines.write(5000)
    dies.kill()
    lines.write(1000)
    other = until(lambda: (at := lives.running("source")) != owner and at, after=pause)
    assert other.endswith(f":{lives.port}")
    until(lambda: not _missing(sink, lines), after=pause)

    # The broker dies in the middle and starts again.
    lines.write(5000)
    broker.kill()
    lines.write(1000)
    broker.start()
    dies.start(120)
    lines.write(1000)
    until(lambda: not _missing(sink, lines), after=pause)
    got = committed(broker.bootstrap, "lines", 0, lines.count)
    assert [(message.value() or b"").decode() for message in got] == lines.all


def _put(worker: Worker, name: str, config: dict[str, str]) -> object:
    return worker.ask("PUT", f"/connectors/{name}/config", config)


def test_mirror_maker_copies_records_settings_and_offsets_of_groups_over_kills(
    stack: ExitStack, tmp_path: Path
) -> None:
    source, target = (stack.enter_context(Krammar(tmp_path / name)) for name in ("a", "b"))
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    topic = NewTopic("orders", 2, 1, config={"retention.ms": "7200000"})
    admin.create_topics([topic])["orders"].result(PATIENCE)
    producer = Producer({"bootstrap.servers": source.bootstrap})

    def send(begin: int, end: int) -> None:
        for number in range(begin, end):
            headers = [("n", str(number).encode())]
            text = f"order-{number:05}"
            producer.produce(
                "orders", text, f"k{number}", number % 2, timestamp=10**12 + number, headers=headers
            )
        assert producer.flush(PATIENCE) == 0

    send(0, 1000)
    # The group has read 300 orders of each partition.
    group = Consumer({"bootstrap.servers": source.bootstrap, "group.id": "billing"})
    group.commit(offsets=[TopicPartition("orders", p, 300) for p in (0, 1)], asynchronous=False)
    group.close()
    mirror = MirrorMaker(
        tmp_path / "mirror",
        {
            "clusters": "a, b",
            "a.bootstrap.servers": source.bootstrap,
            "b.bootstrap.servers": target.bootstrap,
            "a->b.enabled": "true",
            "a->b.topics": "orders",
            "b->a.enabled": "false",
            "replication.factor": "1",
            "sync.topic.acls.enabled": "false",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
            "emit.checkpoints.interval.seconds": "1",
            "refresh.groups.interval.seconds": "1",
            "b.exactly.once.source.support": "enabled",
            "offset-syncs.topic.replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "config.storage.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "b.session.timeout.ms": "6000",
            "b.heartbeat.interval.ms": "1000",
            "b.scheduled.rebalance.max.delay.ms": "0",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": "http://127.0.0.1:0",
            "b.plugin.discovery": "service_load",
        },
    )
    stack.callback(mirror.kill)
    mirror.start()
    until(lambda: _copied(target, 0), after=pause)
    send(1000, 3000)
    mirror.kill()
    send(3000, 4000)
    mirror.start()
    target.kill()
    target.start()
    send(4000, 5000)
    until(lambda: all(len(_copied(target, p)) >= 2500 for p in (0, 1)), after=pause)
    for partition in (0, 1):
        assert [
            (message.key(), message.value(), message.timestamp()[1], message.headers())
            for message in _copied(target, partition)
        ] == [
            (f"k{n}".encode(), f"order-{n:05}".encode(), 10**12 + n, [("n", str(n).encode())])
            for n in range(partition, 5000, 2)
        ]
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "a.orders")
    settings = admin.describe_configs([resource])[resource].result(PATIENCE)
    assert settings["retention.ms"].value == "7200000"

    # The group moves to the other cluster: it reads some orders again there, and misses none.
    group = Consumer({"bootstrap.servers": source.bootstrap, "group.id": "billing"})
    group.commit(offsets=[TopicPartition("orders", p, 2400) for p in (0, 1)], asynchronous=False)
    group.close()
    for partition in (0, 1):
        offset = until(lambda p=partition: _translated(target, p), after=pause)
        first = committed(target.bootstrap, "a.orders", partition, 1, begin=offset)[0]
        assert (first.value() or b"") <= f"order-{2400 * 2 + partition:05}".encode()


def _copied(target: Krammar, partition: int) -> list[Message]:
    """Return the messages of a copied partition; [] until it exists."""
    try:
        return committed(target.bootstrap, "a.orders", partition, 0)
    except KafkaException:
        return []


def _translated(target: Krammar, partition: int) -> int | None:
    """Return the group's offset in the target cluster; None without one."""
    group = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "billing"})
    try:
        offset = group.committed([TopicPartition("a.orders", partition)], 5)[0].offset
    except KafkaException:
        return None
    finally:
        group.close()
    return offset if offset > 0 else None
