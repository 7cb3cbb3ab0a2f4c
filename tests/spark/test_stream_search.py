"""Random plans for streams: brokers that disturb their answers, and queries that are stopped and killed.

``tests.spark.stream_search`` has the plans and the law; here they run, without Spark and with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark 4.2 is not installed")

from pyspark.sql import SparkSession

from krammar.spark.kafka.stream.planner import StreamPlanner
from krammar.spark.kafka.stream.snapshots import StreamSnapshots
from tests.spark.stream_in_spark import run_with_spark
from tests.spark.stream_search import (
    Plan,
    failure,
    random_plan,
    search,
    shrunk,
)

FEW = 24
CHUNK = 50
MANY = range(1000, 1500, CHUNK)


@pytest.mark.parametrize(
    "seeds",
    [
        range(FEW),
        *(pytest.param(range(n, n + CHUNK), marks=pytest.mark.search) for n in MANY),
    ],
    ids=lambda seeds: f"{seeds.start} to {seeds.stop - 1}",
)
def test_random_plans(seeds: range) -> None:
    assert search(seeds) == []


@pytest.mark.parametrize(
    "text",
    [
        # A broker refuses an offset that it has.
        "loss=false most=3 start=latest select=assign rows=tasks | batch | produce b 0 1"
        " | error Fetch OFFSET_OUT_OF_RANGE b 2 | batch",
        # A topic is created again between two runs, and is as long as before.
        "loss=false | produce b 0 2 | batch | stop | recreate b 1 | produce b 0 2",
        "loss=true | produce a 0 3 | batch | stop | recreate a 2 | produce a 0 5 | batch",
        # A topic that is read from its end is created again before it gets records.
        "loss=true most=3 start=latest | produce b 0 2 | batch | drop b",
        # A topic returns, and its ends are reported too low.
        "loss=false start=latest rows=planned | batch | produce a 0 4 | batch | less no-topics 8 | less lower-ends 3"
        " | batch | batch | batch | batch",
        # Brokers refuse for long to read a topic that exists.
        "trigger=now loss=false rows=tasks | produce b 0 5 | error Fetch UNKNOWN_TOPIC_ID b 8 | batch",
        # It has fewer partitions, and gets those that the old one had.
        "loss=false | produce a 1 3 | batch | recreate a 1 | produce a 0 1 | batch | grow a"
        " | produce a 1 4 | batch",
    ],
)
def test_plans_that_have_failed(text: str) -> None:
    assert failure(Plan.parse(text)) == ""


# With Spark.


SPARK_PLANS = [
    "trigger=now | produce a 0 3 | batch | less fewer-partitions 2 | produce a 1 2 | batch"
    " | less no-topics all | batch | calm | batch-killed written | kill 2 | produce b 0 4 | batch-killed planned",
    "trigger=now loss=false most=3 select=subscribePattern | produce a 0 5 | produce b 0 4 | batch-killed read"
    " | recreate a 2 | produce a 0 9 | batch | grow b | produce b 1 3 | less lower-ends all | batch",
    "trigger=steady level=read_committed | produce a 0 2 | begin a 1 3 | batch | batch | produce a 0 1 | batch"
    " | batch | lead a 0 3 | commit | batch | stop | recreate b 2 | produce b 0 3 | batch | batch-killed stored",
]


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.sweep) for n in (1, 2))])
def test_with_spark(spark: SparkSession, tmp_path: Path, number: int) -> None:
    query = run_with_spark(spark, tmp_path, Plan.parse(SPARK_PLANS[number]))
    assert len(query.ends) >= 3


@pytest.mark.search
@pytest.mark.parametrize("seed", range(40))
def test_random_plans_with_spark(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    plan = random_plan(seed)
    setup = replace(plan.setup, reader="limited")
    query = run_with_spark(spark, tmp_path, replace(plan, setup=setup, steps=plan.steps[:16]))
    assert query.ends, str(plan)


# The search itself.


def test_a_plan_is_a_line_of_text() -> None:
    plans = [random_plan(seed) for seed in range(200)]
    assert [Plan.parse(str(plan)) for plan in plans] == plans
    assert random_plan(7) == plans[7]
    assert len(set(map(str, plans))) == len(plans)


def _no_offsets(self: StreamSnapshots, known: Any) -> dict[Any, int]:
    """Take every lower end for a loss."""
    return {}


def _nothing_absent(self: StreamPlanner, start: Any, snapshot: Any) -> None:
    """Forget partitions that the brokers do not report."""


@pytest.mark.parametrize(
    ("owner", "name", "fault", "text", "smallest"),
    [
        (
            StreamSnapshots,
            "_existing_offsets",
            _no_offsets,
            "loss=false | produce b 0 1 | produce a 0 6 | batch | grow b | less lower-ends all | lead a 0 2"
            " | batch | stop | calm | batch",
            "produce a 0 6 | batch | less lower-ends all | batch",
        ),
        (
            StreamPlanner,
            "_note_absent",
            _nothing_absent,
            "loss=false select=subscribePattern | produce b 0 1 | produce a 0 2 | batch | less no-topics all"
            " | batch-killed stored | batch | produce a 0 1 | calm",
            "produce a 0 2 | batch | less no-topics all | batch",
        ),
    ],
)
def test_it_finds_faults(
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    fault: Callable[..., Any],
    text: str,
    smallest: str,
) -> None:
    """And leaves out the steps that do not matter."""
    plan = Plan.parse(text)
    assert failure(plan) == ""
    monkeypatch.setattr(owner, name, fault)
    found, why = shrunk(plan, failure(plan))
    assert "records arrived twice" in why
    assert " | ".join(found.steps) == smallest
