"""Consumer groups with different lags, with confluent-kafka."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from examples.pipeline.produce import QUIET, TOPIC
from examples.pipeline.report import Report


@dataclass(frozen=True)
class Group:
    """A group that reads a ``share`` of the records; if ``deleted``, it is deleted afterwards."""

    name: str
    share: float
    deleted: bool = False


GROUPS = (
    Group("billing", 1.0),
    Group("search-index", 0.93),
    Group("recommendations", 0.71),
    Group("fraud-check", 0.38),
    Group("trial-2025", 0.05, deleted=True),
)
# How many times a group commits.
COMMITS = 5


def run_groups(
    bootstrap: str, count: int, report: Report, groups: tuple[Group, ...] = GROUPS
) -> dict[str, dict[int, int]]:
    """Let each group read its share of ``count`` records, and commit.

    Returns:
        How many records each group has read by partition, without deleted groups.
    """
    read = {}
    for group in groups:
        read[group.name] = dict(_consume(bootstrap, group.name, int(count * group.share)))
        total = sum(read[group.name].values())
        if group.deleted:
            _delete(bootstrap, group.name)
            del read[group.name]
        end = "and was deleted" if group.deleted else "and stopped" if group.share < 1 else "all"
        report.say(f"{group.name:<16} read {total:>9,} orders, {end}")
    return read


def _consume(bootstrap: str, group: str, wanted: int) -> Counter[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # Small responses, so that all partitions are read.
            "max.partition.fetch.bytes": 65536,
        },
        logger=QUIET,
    )
    consumer.subscribe([TOPIC])
    read: Counter[int] = Counter()
    step = max(1, wanted // COMMITS)
    until = time.monotonic() + 60
    try:
        got = committed = 0
        while got < wanted:
            if time.monotonic() > until:
                raise TimeoutError(f"{group}: {got:,} of {wanted:,} records within a minute")
            for message in consumer.consume(min(wanted - got, step, 10_000), timeout=1):
                partition = message.partition()
                if message.error() or partition is None:
                    raise KafkaException(message.error())
                read[partition] += 1
                got += 1
            if got - committed >= step or got == wanted:
                # Commit only what was read here, without messages in librdkafka's queue.
                offsets = [TopicPartition(TOPIC, at, count) for at, count in read.items()]
                consumer.commit(offsets=offsets, asynchronous=False)
                committed = got
    finally:
        consumer.close()
    return read


def _delete(bootstrap: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=QUIET)
    for deleted in admin.delete_consumer_groups([group]).values():
        deleted.result(20)
