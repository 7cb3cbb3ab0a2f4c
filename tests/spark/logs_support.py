"""Log folders for tests, written by the embedded broker or byte by byte, and functions that read them."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from krammar.broker import Broker
from tests.support.waiting import PATIENCE

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# The records' timestamps, which librdkafka gets: ten seconds apart, from this moment on.
_HOUR_MS = 3_600_000
FIRST_MS = 1_700_000_000_000
STEP_MS = 10_000


class Row(NamedTuple):
    """A record with the columns of Spark's Kafka connector."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...] | None


@dataclass
class Folder:
    """``rows`` and ``committed`` are what consumers got, by topic, of all and of committed records."""

    path: Path
    rows: dict[str, list[Row]] = field(default_factory=dict)
    committed: dict[str, list[Row]] = field(default_factory=dict)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)


def fill(path: Path) -> Folder:
    """Topics ``codec-*`` (three partitions), ``segments`` (many small segments), ``sizes`` and
    ``ledger`` (transactions, the last one open), and two groups' offsets."""
    folder = Folder(path)
    topics = [f"codec-{codec}" for codec in CODECS] + ["segments", "sizes", "ledger"]
    limit = {"transaction.max.timeout.ms": str(_HOUR_MS)}
    with Broker.start(data_dir=path, properties=limit) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(servers)
        created = admin.create_topics(
            [
                NewTopic(
                    topic,
                    3 if topic.startswith("codec-") else 1,
                    config={"segment.bytes": str(1 << 20)} if topic == "segments" else {},
                )
                for topic in topics
            ]
        )
        for future in created.values():
            future.result()
        for codec in CODECS:
            _produce_codec(servers, f"codec-{codec}", codec)
        _produce_segments(servers)
        _produce_sizes(servers)
        open_producer = _produce_transactions(servers)
        for group, offset in (("billing", 3), ("audit", 7)):
            _commit(servers, folder, group, "segments", offset)
        folder.rows = consume(admin, servers, topics, "read_uncommitted")
        folder.committed = consume(admin, servers, topics, "read_committed")
        del admin
        # The transaction stays open in the folder, as when its producer has died.
        open_producer.purge()
    return folder


def _produce_codec(servers: dict[str, str], topic: str, codec: str) -> None:
    producer = Producer({**servers, "compression.type": codec, "linger.ms": "50"})
    for number in range(300):
        producer.produce(
            topic,
            partition=number % 3,
            key=None if number % 5 == 0 else b"key-%d" % number,
            value=None if number % 7 == 0 else b"value-%d " % number * (number % 20),
            headers=(
                [("kind", b"\x00\xff"), ("empty", None), ("kind", b"")] if number % 4 == 0 else None
            ),
            timestamp=FIRST_MS + number * STEP_MS,
        )
    assert producer.flush(PATIENCE) == 0


def _produce_segments(servers: dict[str, str]) -> None:
    producer = Producer({**servers, "batch.num.messages": "10", "linger.ms": "5000"})
    for number in range(600):
        producer.produce(
            "segments", value=b"%03d" % number * 4000, timestamp=FIRST_MS + number * STEP_MS
        )
        if number % 10 == 9:
            producer.flush(PATIENCE)


def _produce_sizes(servers: dict[str, str]) -> None:
    producer = Producer(servers)
    for size in (0, 900_000, 1, 900_000):
        producer.produce("sizes", key=b"", value=bytes([size % 251]) * size, timestamp=FIRST_MS)
    assert producer.flush(PATIENCE) == 0


def _produce_transactions(servers: dict[str, str]) -> Producer:
    plain = Producer(servers)
    for number, outcome in enumerate(("commit", "abort", "commit", "abort")):
        producer = Producer({**servers, "transactional.id": f"ledger-{number % 2}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for entry in range(5):
            producer.produce(
                "ledger", value=f"{outcome} {number} {entry}".encode(), timestamp=FIRST_MS + entry
            )
        producer.flush(PATIENCE)
        plain.produce("ledger", value=b"plain %d" % number, timestamp=FIRST_MS)
        plain.flush(PATIENCE)
        if outcome == "commit":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    # A broker that serves the folder later does not end it while tests run.
    last = Producer(
        {
            **servers,
            "transactional.id": "ledger-open",
            "transaction.timeout.ms": _HOUR_MS,
        }
    )
    last.init_transactions(30)
    last.begin_transaction()
    last.produce("ledger", value=b"open", timestamp=FIRST_MS)
    last.flush(PATIENCE)
    plain.produce("ledger", value=b"behind the open one", timestamp=FIRST_MS)
    plain.flush(PATIENCE)
    return last


def _commit(servers: dict[str, str], folder: Folder, group: str, topic: str, offset: int) -> None:
    admin = AdminClient(servers)
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
    for future in admin.alter_consumer_group_offsets([request]).values():
        assert all(partition.error is None for partition in future.result().topic_partitions)
    folder.offsets[group, topic, 0] = offset


def consume(
    admin: AdminClient, servers: dict[str, str], topics: list[str], level: str
) -> dict[str, list[Row]]:
    """Read topics with librdkafka, at an isolation level."""
    consumer = Consumer(
        {
            **servers,
            "group.id": "oracle",
            "isolation.level": level,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
        }
    )
    known = admin.list_topics(timeout=PATIENCE).topics
    left = {(topic, partition) for topic in topics for partition in known[topic].partitions}
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in left])
    rows: dict[str, list[Row]] = {topic: [] for topic in topics}
    while left:
        message: Any = consumer.poll(PATIENCE)
        assert message is not None, "the broker says nothing"
        if message.error():
            left.remove((message.topic(), message.partition()))
            continue
        kind, timestamp = message.timestamp()
        headers = message.headers()
        rows[message.topic()].append(
            Row(
                message.key(),
                message.value(),
                message.topic(),
                message.partition(),
                message.offset(),
                timestamp,
                0 if kind == TIMESTAMP_CREATE_TIME else 1,
                tuple(headers) if headers else None,
            )
        )
    consumer.close()
    return {
        topic: sorted(found, key=lambda row: (row.partition, row.offset))
        for topic, found in rows.items()
    }


def message(
    magic: int,
    offset: int,
    value: bytes | None,
    *,
    key: bytes | None = None,
    timestamp: int = -1,
    attributes: int = 0,
) -> bytes:
    """Build a message of format v0 or v1 without krammar."""
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    body = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(body)) + body


def write_segment(partition: Path, base: int, data: bytes) -> Path:
    """A segment without indexes."""
    partition.mkdir(parents=True, exist_ok=True)
    path = partition / f"{base:020d}.log"
    path.write_bytes(data)
    return path
