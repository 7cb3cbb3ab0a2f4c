"""Log folders that Apache Kafka has written, read without it: while it runs, and after it has stopped or was
killed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark", reason="PySpark is not installed")

from confluent_kafka import ConsumerGroupTopicPartitions
from pyspark.sql import SparkSession

from tests.interop import content
from tests.interop.spark.cluster import Cluster

Where = tuple[str, int]
TOPICS = (
    *("plain", "codecs", "recompressed", "append-time", "rolled", "cut", "compacted", "grown"),
    *("transactional", "open", "empty.topic-with_all.chars"),
)
Rows = dict[Where, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def places(cluster: Cluster, written: content.Written) -> list[Where]:
    known = cluster.admin.list_topics(timeout=PATIENCE).topics
    return [(topic, number) for topic in TOPICS for number in known[topic].partitions]


@pytest.fixture(scope="module")
def seen(cluster: Cluster, places: list[Where]) -> dict[str, Rows]:
    """What a client sees of all partitions, by isolation level."""
    return {
        level: content.read(cluster.bootstrap, places, committed=level == "read_committed")
        for level in ("read_uncommitted", "read_committed")
    }


def offline(spark: SparkSession, folders: list[Path], places: Iterable[Where], level: str) -> Rows:
    """The same from folders, in the same form."""
    assigned: dict[str, list[int]] = {}
    for topic, partition in places:
        assigned.setdefault(topic, []).append(partition)
    found = (
        spark.read.format("krammar")
        .option("source", "logs")
        .option("assign", json.dumps(assigned))
        .option("kafka.isolation.level", level)
        .option("includeHeaders", "true")
        .load([str(folder) for folder in folders])
        .selectExpr("*", "unix_millis(timestamp) ms")
        .toArrow()
        .sort_by("offset")
    )
    rows: Rows = {where: [] for where in places}
    for row in found.to_pylist():
        headers = row["headers"] and [(each["key"], each["value"]) for each in row["headers"]]
        # librdkafka counts kinds of timestamps from 1.
        kind = row["timestampType"] + 1
        rows[row["topic"], row["partition"]].append(
            (row["offset"], kind, row["ms"], row["key"], row["value"], headers)
        )
    return rows


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_while_it_runs(
    spark: SparkSession,
    cluster: Cluster,
    places: list[Where],
    seen: dict[str, Rows],
    level: str,
) -> None:
    found = offline(spark, cluster.folders, places, level)
    assert not content.differences(seen[level], found)
    assert sum(map(len, found.values())) > 5000


@pytest.fixture(scope="module")
def committed_offsets(
    cluster: Cluster, written: content.Written
) -> dict[tuple[str, str, int], int]:
    """Of the groups that have none in transactions."""
    found = {}
    for group in ("g-plain", "g-joined"):
        request = [ConsumerGroupTopicPartitions(group)]
        [answer] = cluster.admin.list_consumer_group_offsets(request).values()
        for each in answer.result(PATIENCE).topic_partitions:
            if each.offset >= 0:
                found[group, each.topic, each.partition] = each.offset
    assert found
    return found


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_after_it_is_gone(
    spark: SparkSession,
    cluster: Cluster,
    committed_offsets: dict[tuple[str, str, int], int],
    seen: dict[str, Rows],
    how: str,
) -> None:
    """One node's folder: its partitions of topics without replicas, and all offsets of groups, typed."""
    known = cluster.admin.list_topics(timeout=PATIENCE).topics
    counts = {topic: len(known[topic].partitions[0].replicas) for topic in TOPICS}
    assert set(counts.values()) == {1}
    mine = [
        (topic, number)
        for topic in TOPICS
        for number, partition in known[topic].partitions.items()
        if partition.replicas == [3]
    ]
    assert mine
    folder = cluster.brokers[3].folder
    getattr(cluster, how)(3)
    try:
        for level, rows in seen.items():
            wanted = {where: rows[where] for where in mine}
            assert not content.differences(wanted, offline(spark, [folder], mine, level))
        frame = (
            spark.read.format("krammar")
            .option("source", "logs")
            .option("subscribe", "__consumer_offsets")
            .option("decode", "OffsetCommitValue")
            .option("mode", "FAILFAST")
            .load(str(folder))
            .where("key.group in ('g-plain', 'g-joined')")
            .selectExpr("key.group", "key.topic", "key.partition", "value.offset at", "offset")
        )
        offsets = {}
        for group, topic, partition, at, _ in sorted(frame.collect(), key=lambda row: row.offset):
            offsets[group, topic, partition] = at
        assert {key: at for key, at in offsets.items() if at is not None} == (committed_offsets)
    finally:
        cluster.start(3)
