"""Runs confluent-kafka against librdkafka's mock cluster through ``krammar tap``.

    python examples/tap_demo.py

A producer writes in every codec, idempotently and in transactions. Consumers read in a classic group, in a group of the
newer protocol (KIP-848), and in a share group (KIP-932). An admin client lists and moves offsets. The tap decodes
every frame in both directions, encodes it again, and compares the bytes. The exit code is 1 if the bytes of a frame
differ, or if a client has bypassed the tap.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC = "orders"
EACH = 200
LINES = 14

# Discards librdkafka's log, which would mix with the demo's output.
QUIET = logging.getLogger("demo.librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def client(kind: Any, bootstrap: str, **options: object) -> Any:
    settings = {"bootstrap.servers": bootstrap, "socket.timeout.ms": 10_000}
    settings |= {name.replace("_", "."): value for name, value in options.items()}
    return kind(settings, logger=QUIET)


@contextmanager
def mock_cluster() -> Iterator[str]:
    """Start three brokers inside of a librdkafka instance; yield the address of one of them."""
    owner = client(Producer, "ignored:1", test_mock_num_brokers=3)
    brokers = owner.list_topics(timeout=10).brokers.values()
    say(f"librdkafka's mock brokers: {', '.join(f'{b.host}:{b.port}' for b in brokers)}")
    yield next(f"{broker.host}:{broker.port}" for broker in brokers)


class RunningTap:
    """``krammar tap`` in a separate process, as a user would run it."""

    def __init__(self, upstream: str, folder: Path) -> None:
        self.listing = folder / "listing.txt"
        command = [sys.executable, "-m", "krammar.cli", "tap", "--summary"]
        command += ["--listen", "127.0.0.1:0", "--upstream", upstream]
        with self.listing.open("w") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.PIPE, text=True, encoding="utf-8"
            )
        assert self.process.stderr is not None
        first = self.process.stderr.readline()
        if not first.startswith("listening on "):
            raise SystemExit(f"krammar tap did not start: {first}{self.process.stderr.read()}")
        self.bootstrap = first.split()[2]
        say(f"krammar tap {first.strip()}")

    def stop(self) -> tuple[int, set[str], str]:
        """Stop the tap; return its exit code, its listening addresses, and its output."""
        self.process.terminate()
        _, messages = self.process.communicate(timeout=30)
        lines = messages.splitlines()
        ports = {line.split()[2] for line in lines if line.startswith("listening on")}
        return self.process.returncode, {self.bootstrap, *ports}, self.listing.read_text()


def produce(bootstrap: str) -> None:
    for codec in CODECS:
        producer = client(
            Producer, bootstrap, enable_idempotence=True, compression_type=codec, linger_ms=50
        )
        for number in range(EACH):
            producer.produce(TOPIC, key=f"{codec}-{number}", value=f"order {number} " * 10)
        if left := producer.flush(20):
            raise SystemExit(f"{left} records were not acknowledged")
    say(f"produced {EACH * len(CODECS):,} records, idempotently, in {', '.join(CODECS)}")


def transact(bootstrap: str) -> None:
    producer = client(Producer, bootstrap, transactional_id="demo")
    producer.init_transactions(20)
    for commit in (True, False):
        producer.begin_transaction()
        producer.produce("payments", key="k", value="paid")
        if commit:
            producer.send_offsets_to_transaction(
                [TopicPartition(TOPIC, 0, 1)], client_group("demo-transactions", bootstrap), 20
            )
            producer.commit_transaction(20)
        else:
            producer.flush(20)
            producer.abort_transaction(20)
    say("committed one transaction, with offsets, and aborted another")


def client_group(group: str, bootstrap: str) -> Any:
    consumer = client(Consumer, bootstrap, group_id=group)
    return consumer.consumer_group_metadata()


def consume(bootstrap: str, protocol: str) -> None:
    consumer = client(
        Consumer,
        bootstrap,
        group_id=f"demo-{protocol}",
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe([TOPIC])
    wanted, got = EACH * len(CODECS), 0
    end = time.monotonic() + 40
    while got < wanted and time.monotonic() < end:
        for message in consumer.consume(wanted - got, timeout=1):
            if message.error():
                raise KafkaException(message.error())
            got += 1
    consumer.commit(asynchronous=False)
    consumer.close()
    if got != wanted:
        raise SystemExit(f"{got} of {wanted} records were consumed")
    say(f"consumed {got:,} records in a group of the {protocol} protocol, and committed")


def share(bootstrap: str) -> None:
    try:
        from confluent_kafka import ShareConsumer
    except ImportError:
        say("skipped share groups: this version of confluent-kafka does not support them")
        return
    # A share group begins at the end of the log, so write records until it receives one.
    producer = client(Producer, bootstrap, linger_ms=0)
    consumer = client(ShareConsumer, bootstrap, group_id="demo-share")
    consumer.subscribe([TOPIC])
    end, got = time.monotonic() + 20, 0
    while not got and time.monotonic() < end:
        producer.produce(TOPIC, value="for one of the group")
        producer.flush(10)
        got += sum(not message.error() for message in consumer.poll(timeout=0.5))
    consumer.close()
    say(f"polled {got} records in a share group")


def administer(bootstrap: str) -> None:
    admin = client(AdminClient, bootstrap)
    brokers = admin.list_topics(timeout=10).brokers.values()
    partition = TopicPartition(TOPIC, 0)
    (latest,) = admin.list_offsets({partition: OffsetSpec.latest()}).values()
    group = "demo-classic"
    partitions = [TopicPartition(TOPIC, number) for number in range(4)]
    (committed,) = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, partitions)]
    ).values()
    (moved,) = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions("demo-admin", [TopicPartition(TOPIC, 0, 1)])]
    ).values()
    say(
        f"admin: {len(brokers)} brokers, {TOPIC}-0 ends at {latest.result(10).offset}, {group} has "
        f"{sum(p.offset >= 0 for p in committed.result(10).topic_partitions)} offsets, moved "
        f"{len(moved.result(10).topic_partitions)} of another group"
    )


def seen_brokers(bootstrap: str) -> set[str]:
    """Return the brokers' addresses in the metadata of a client."""
    metadata = client(AdminClient, bootstrap).list_topics(timeout=10)
    return {f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}


def main() -> int:
    print("krammar tap between confluent-kafka and a mock cluster\n")
    with tempfile.TemporaryDirectory() as folder, mock_cluster() as upstream:
        tap = RunningTap(upstream, Path(folder))
        try:
            produce(tap.bootstrap)
            transact(tap.bootstrap)
            consume(tap.bootstrap, "classic")
            consume(tap.bootstrap, "consumer")
            share(tap.bootstrap)
            administer(tap.bootstrap)
            named = seen_brokers(tap.bootstrap)
        finally:
            code, ports, listing = tap.stop()
    lines, table = split(listing)
    print(f"\nThe first {LINES} of {len(lines):,} lines:\n")
    for line in lines[:LINES]:
        print(line if len(line) <= 150 else line[:147] + "...")
    print(f"\n{table}\n")
    if " surplus " in listing:
        print(
            "The bytes after messages are errors of the mock brokers: their Metadata version 13 has one byte\n"
            "too many, and their refusal of ApiVersions version 3 has an array with a wrong count."
        )
    if escaped := named - ports:
        print(f"a client received addresses that bypass the tap: {', '.join(sorted(escaped))}")
        return 1
    if code:
        print("these frames were not decoded and re-encoded to the same bytes:\n")
        print("\n".join(line for line in lines if is_bad(line)))
    return code


def split(listing: str) -> tuple[list[str], str]:
    """Return the lines of frames, and the table below them."""
    lines = listing.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith("api ")), len(lines))
    return lines[:begin], "\n".join(lines[begin:])


def is_bad(line: str) -> bool:
    return any(f"  {status} " in line for status in ("mismatch", "undecodable", "unknown"))


if __name__ == "__main__":
    sys.exit(main())
