"""Plans of the search over streams with both data sources: krammar's keeps the law, the connector does not always."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark 4.2 is not installed")

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from krammar.spark.errors import DataLossError, SparkSourceError
from tests.interop.spark.alike import OURS, THEIRS
from tests.spark.stream_in_spark import SparkQuery, run_with_spark
from tests.spark.stream_search import Plan, Violation

# What the connector's errors say if records are lost.
_LOSS = ("data may have been lost", "KAFKA_DATA_LOSS", "failOnDataLoss")

TWICE = "records arrived twice"
MISSING = "records are missing"
# Each restart fails, because the checkpoint has offsets that are too low.
SPOILED = "an error without a reason remains"


class ConnectorQuery(SparkQuery):
    """The same query with Spark's connector."""

    kind = THEIRS

    @staticmethod
    def _failure(error: PySparkException) -> SparkSourceError:
        text = str(error)
        kind = DataLossError if any(part in text for part in _LOSS) else SparkSourceError
        return kind(text[:2000])


class Compared(NamedTuple):
    """A plan, and what the connector does: the beginning of the violation, or the empty text."""

    what: str
    plan: str
    connector: str = ""


PLANS = [
    Compared(
        "brokers report no topics for a while",
        "trigger=now | produce a 0 3 | batch | less no-topics 3 | produce a 0 2 | batch | calm | batch",
    ),
    Compared(
        "brokers report no topics for a while, and losses are accepted",
        "trigger=now loss=false select=subscribePattern | produce a 0 3 | batch | less no-topics all"
        " | produce a 0 2 | batch | calm | batch",
    ),
    Compared(
        "brokers report fewer partitions for a while",
        "trigger=now loss=false select=subscribePattern | produce a 0 3 | produce a 1 3 | batch"
        " | less fewer-partitions all | batch | produce a 1 2 | calm | batch",
    ),
    Compared(
        "brokers report lower ends for a while",
        "trigger=now | produce a 0 9 | batch | less lower-ends all | batch | calm | batch",
        SPOILED,
    ),
    Compared(
        "brokers report lower ends for a while, and losses are accepted",
        "trigger=now loss=false | produce a 0 9 | batch | less lower-ends all | batch | calm | batch",
        TWICE,
    ),
    Compared(
        "a topic is created again between two runs, and has as many records",
        "trigger=now loss=false | produce b 0 3 | batch | recreate b 1 | produce b 0 3 | batch",
        MISSING,
    ),
    Compared(
        "a topic is created again between two runs, and has more records",
        "trigger=now | produce b 0 3 | batch | recreate b 1 | produce b 0 5 | batch",
        MISSING,
    ),
    Compared(
        "a topic is created again while the query runs",
        "loss=false | produce b 0 3 | batch | recreate b 1 | produce b 0 5 | batch",
        MISSING,
    ),
    Compared(
        "a query starts again with read_committed while a transaction is open",
        "trigger=now | produce a 0 2 | begin a 0 3 | batch | level read_committed | batch | commit | batch",
        SPOILED,
    ),
    Compared(
        "records are deleted before they are read",
        "trigger=now loss=false | produce a 0 3 | batch | produce a 0 4 | delete a 0 5 | batch",
    ),
    Compared(
        "a log is truncated, and losses are accepted",
        "trigger=now loss=false | produce a 0 6 | batch | truncate a 0 2 | batch | produce a 0 3 | batch",
    ),
    Compared(
        "nodes die, and leaders move",
        "most=3 | produce a 0 5 | produce b 0 4 | batch | kill 2 | produce a 0 4 | lead b 0 3 | batch | start 2"
        " | produce b 0 2 | batch",
    ),
    Compared(
        "the query is killed, and partitions are added",
        "trigger=now most=4 | produce a 0 5 | batch-killed read | produce a 1 4 | grow a | produce a 2 3"
        " | batch-killed written | batch",
    ),
    Compared(
        "a broker refuses an offset that it has",
        "trigger=now loss=false | produce b 0 3 | batch | produce b 0 2 | error Fetch OFFSET_OUT_OF_RANGE b 2 | batch",
    ),
]


def outcome(spark: SparkSession, folder: Path, kind: str, plan: Plan) -> str:
    """Return how a source breaks the law with a plan; the empty text if it does not."""
    query_class = SparkQuery if kind == OURS else ConnectorQuery
    folder.mkdir()
    try:
        run_with_spark(spark, folder, plan, query_class)
    except Violation as violation:
        return str(violation)
    return ""


@pytest.mark.parametrize("compared", PLANS, ids=lambda compared: compared.what)
def test_plans(spark: SparkSession, tmp_path: Path, compared: Compared) -> None:
    plan = Plan.parse(compared.plan)
    assert outcome(spark, tmp_path / OURS, OURS, plan) == ""
    theirs = outcome(spark, tmp_path / THEIRS, THEIRS, plan)
    if compared.connector:
        assert theirs.startswith(compared.connector)
    else:
        assert theirs == ""
