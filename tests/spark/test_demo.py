"""``make demo`` on a small day: it shows exactly the produced orders."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark 4.2 is not installed")
pytest.importorskip("matplotlib", reason="matplotlib, for the chart, is not installed")

from confluent_kafka import Consumer, TopicPartition

from examples.pipeline import checks, stages
from examples.pipeline.events import DAY_END_MS, LATEST_MS, Tally, orders
from examples.pipeline.groups import GROUPS, run_groups
from examples.pipeline.lag import GroupLag, by_group, lag
from examples.pipeline.produce import PARTITIONS, QUIET, TOPIC
from examples.pipeline.report import Report
from examples.pipeline.storm import brew, tell
from examples.pipeline.stream import Job, compare, result
from krammar.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 6000


@pytest.fixture(scope="module")
def shop(orders: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop's package, next to another one that Spark's workers find."""
    generated = tmp_path_factory.mktemp("shop")
    stages.generate(generated)
    assert orders.__file__ is not None
    return Path(shutil.copytree(generated / "shop", Path(orders.__file__).parents[2] / "shop"))


@pytest.fixture(scope="module")
def tally(broker: Broker, shop: Path) -> Tally:
    return stages.produce_day(broker.bootstrap_servers, COUNT, Report())


def test_the_same_orders_each_time(shop: Path) -> None:
    first, second = list(orders(500)), list(orders(500))
    assert first == second
    assert [event.arrival_ms for event in first] == sorted(event.arrival_ms for event in first)
    delays = [event.arrival_ms - event.time_ms for event in first]
    assert min(delays) >= 0 and 60_000 < max(delays) <= LATEST_MS


def test_every_order_is_counted_once_over_a_restart(
    spark: SparkSession, broker: Broker, tally: Tally, tmp_path: Path
) -> None:
    job = Job(
        broker.bootstrap_servers, TOPIC, tmp_path / "out", tmp_path / "checkpoint", COUNT // 3
    )
    done = stages.stream_twice(spark, job, Report(), stop_after=1)
    assert 1 <= done < job.committed()
    found = result(spark, job)
    assert sum(row.orders for row in found) == COUNT
    assert compare(found, tally, DAY_END_MS) == []
    # It would notice.
    assert compare([*found, found[0]], tally, DAY_END_MS) == ["1 rows are duplicates"]
    (wrong,) = compare(found[1:], tally, DAY_END_MS)
    assert f"found {None}" in wrong
    stages.chart(tmp_path / "chart.png", found, [GroupLag("billing", (1, 2), 3, None)])
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.sweep
def test_every_order_is_counted_once_in_a_storm_of_faults(
    spark: SparkSession, shop: Path, tmp_path: Path
) -> None:
    with Broker.start() as stormy:
        brew(stormy.faults, seed=7, strength=3)
        servers = stormy.bootstrap_servers
        tally = stages.produce_day(servers, COUNT, Report())
        job = Job(servers, TOPIC, tmp_path / "out", tmp_path / "checkpoint", COUNT // 3)
        stages.stream_twice(spark, job, Report(), stop_after=1)
        assert compare(result(spark, job), tally, DAY_END_MS) == []
        tell(stormy.faults, 7, Report())
        assert sum(rule.fired for rule in stormy.faults.rules) > 0


def test_lag_is_what_the_consumers_have_left(
    spark: SparkSession, broker: Broker, tally: Tally, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = broker.bootstrap_servers
    read = run_groups(bootstrap, COUNT + 1, Report())
    settings = {"bootstrap.servers": bootstrap, "group.id": "to look"}
    consumer = Consumer(settings, logger=QUIET)
    found = by_group(lag(spark, bootstrap, TOPIC))
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(TOPIC, at), 10)[1]
            for at in range(PARTITIONS)
        ]
        assert sum(ends) == tally.orders.total() == COUNT + 1
        expected = {}
        for group, counts in read.items():
            offsets = [counts.get(at, 0) for at in range(PARTITIONS)]
            left = tuple(end - offset for end, offset in zip(ends, offsets, strict=True))
            waiting = [
                _time_at(consumer, at, offset)
                for at, offset in enumerate(offsets)
                if offset < ends[at]
            ]
            expected[group] = GroupLag(group, left, sum(offsets), min(waiting, default=None))
    finally:
        consumer.close()
    assert {group.group: group for group in found} == expected
    assert found[-1].lag == 0 and found[-1].waiting_since is None
    assert set(expected) == {group.name for group in GROUPS if not group.deleted}
    stages.lag_table(found, Report())
    assert f"{found[0].lag:,}" in capsys.readouterr().out


def _time_at(consumer: Consumer, partition: int, offset: int) -> int:
    """The time of a record, as librdkafka reads it."""
    consumer.assign([TopicPartition(TOPIC, partition, offset)])
    message = consumer.poll(PATIENCE)
    assert message is not None and message.error() is None and message.offset() == offset
    return message.timestamp()[1]


def test_three_typed_records(
    spark: SparkSession, broker: Broker, tally: Tally, capsys: pytest.CaptureFixture[str]
) -> None:
    stages.peek(spark, broker.bootstrap_servers, Report())
    table = capsys.readouterr().out.strip().splitlines()
    assert [line.split()[0] for line in table[2:]] == ["0", "1", "2"]
    assert "customer-" in table[2] and "channel=" in table[2]


# Missing requirements are named.


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('Picked up _JAVA_OPTIONS: -Xmx1g\nopenjdk version "25-ea" 2025-09-16', 25),
        ("Unable to locate a Java Runtime.", None),
    ],
)
def test_java_version(said: str, version: int | None) -> None:
    assert checks.java_version(said) == version


def test_java_that_is_missing_or_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(checks.Missing, match=r"Java is not installed.*\n.*JAVA_HOME"):
        checks.check_java()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(checks.Missing, match="does not run"):
        checks.check_java()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(checks.Missing, match=f"17 or newer; {java} is Java 11"):
        checks.check_java()
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    checks.check_java()
