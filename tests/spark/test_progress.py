"""What streaming queries tell about themselves: lag, and offsets in a consumer group."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from krammar.broker import Broker
from krammar.client import Client
from krammar.client.committed import Committed
from krammar.spark.metrics import Lag, LagListener, lags
from tests.spark.stream_support import Query, produce
from tests.spark.test_stream_queries import needs_limits, start, stream


def group(client: Client, name: str) -> dict[str, int]:
    return {str(at): found.offset for at, found in client.groups.committed(name).items()}


@needs_limits
def test_a_query_commits_to_a_group(
    spark: SparkSession, broker: Broker, client: Client, tmp_path: Path
) -> None:
    client.admin.create_topic("billed", partitions=2)
    produce(broker, "billed", {0: 10, 1: 4})
    options = {"subscribe": "billed", "startingOffsets": "earliest", "commitGroup": "billing"}
    frame = stream(spark, broker, maxOffsetsPerTrigger=7, **options)
    start(frame.writeStream.format("noop"), tmp_path)
    assert group(client, "billing") == {"billed-0": 10, "billed-1": 4}
    produce(broker, "billed", {0: 5})
    # The group is where another query can begin.
    rest = stream(
        spark, broker, subscribe="billed", startingGroup="billing", maxOffsetsPerTrigger=100
    )
    query = start(rest.writeStream.format("noop"), tmp_path / "rest")
    assert sum(progress.numInputRows for progress in query.recentProgress) == 5


def test_partitions_without_a_committed_offset_begin_at_the_earliest(
    broker: Broker, client: Client
) -> None:
    client.admin.create_topic("half", partitions=2)
    produce(broker, "half", {0: 3, 1: 3})
    client.groups.commit("halves", {("half", 0): 2})
    with Query(broker, subscribe="half", startingGroup="halves") as query:
        assert query.rest() == [("half", 0, 2), ("half", 1, 0), ("half", 1, 1), ("half", 1, 2)]


def test_another_committer_is_reported_once(
    broker: Broker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.admin.create_topic("shared", partitions=1)
    produce(broker, "shared", {0: 9})

    def query() -> Query:
        return Query(broker, subscribe="shared", startingOffsets="earliest", commitGroup="both")

    with query() as one, query() as other:
        one.reader.commit({"shared": {"0": 3}})
        one.reader.commit({"shared": {"0": 4}})
        other.reader.commit({"shared": {"0": 2}})  # also a restart looks like this
        assert not caplog.records
        one.reader.commit({"shared": {"0": 5}})
        one.reader.commit({"shared": {"0": 6}})
        [record] = caplog.records
        assert record.getMessage() == (
            "another query commits to group 'both' too (shared-0: offset 2), so the group's lag is "
            "not that of this query: give each query its own commitGroup"
        )
        caplog.clear()
        client.groups.commit("both", {("shared", 0): Committed(7)})
        other.reader.commit({"shared": {"0": 8}})
        assert caplog.records[0].getMessage().startswith("something else commits to group 'both'")


def test_a_failed_commit_is_a_warning(
    broker: Broker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.admin.create_topic("known", partitions=1)
    with Query(broker, subscribe="known", commitGroup="failing") as query:
        query.reader.commit({"unknown": {"0": 3}})
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "offsets are not committed to group 'failing'" in record.getMessage()
    assert "UNKNOWN_TOPIC_OR_PARTITION" in record.getMessage()


@needs_limits
def test_the_lag_of_queries(
    spark: SparkSession, broker: Broker, client: Client, tmp_path: Path
) -> None:
    client.admin.create_topic("behind", partitions=2)
    produce(broker, "behind", {0: 12, 1: 2})
    found: list[Lag] = []
    last = threading.Event()

    def report(lag: Lag) -> None:
        found.append(lag)
        if lag.total == 0:
            last.set()

    listener = LagListener(report)
    spark.streams.addListener(listener)
    try:
        options = {"subscribe": "behind", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 7}
        writer = stream(spark, broker, **options).writeStream.format("noop").queryName("watched")
        query = start(writer, tmp_path)
        assert last.wait(PATIENCE)
    finally:
        spark.streams.removeListener(listener)
    assert [lag.offsets for lag in found] == [
        {("behind", 0): 6, ("behind", 1): 1},
        {("behind", 0): 0, ("behind", 1): 0},
    ]
    assert {lag.query for lag in found} == {"watched"}
    assert found[0].metrics() == {
        "minOffsetsBehindLatest": 1,
        "maxOffsetsBehindLatest": 6,
        "avgOffsetsBehindLatest": 3.5,
    }
    progress = query.lastProgress
    assert progress is not None and lags(progress)[0].total == 0


def test_sources_without_offsets_of_topics(caplog: pytest.LogCaptureFixture) -> None:
    source: dict[str, Any] = {
        "description": "rate",
        "startOffset": "0",
        "endOffset": "3",
        "latestOffset": "4",
        "numInputRows": 3,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
    }
    topic = {**source, "endOffset": '{"t": {"0": 3}}', "latestOffset": '{"t": {"0": 5, "1": 2}}'}
    progress = StreamingQueryProgress.fromJson(
        {
            "id": "00000000-0000-0000-0000-000000000001",
            "runId": "00000000-0000-0000-0000-000000000002",
            "name": None,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": 1,
            "batchDuration": 1,
            "durationMs": {},
            "eventTime": {},
            "stateOperators": [],
            "sources": [source, {**topic, "latestOffset": None}, topic],
            "sink": {"description": "noop", "numOutputRows": 3},
            "observedMetrics": {},
        }
    )
    [lag] = lags(progress)
    assert (lag.source, lag.offsets) == (2, {("t", 0): 2, ("t", 1): 2})
    with caplog.at_level(logging.INFO):
        LagListener()._report(lag)
    assert caplog.messages == [
        "query 00000000-0000-0000-0000-000000000001, batch 1, source 2: minOffsetsBehindLatest 2, "
        "maxOffsetsBehindLatest 2, avgOffsetsBehindLatest 2"
    ]
