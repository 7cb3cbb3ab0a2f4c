"""Writing: the same rows by both data sources give the same records in the same partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from krammar.spark.option_table import TABLE, Use
from tests.interop import content
from tests.interop.spark.alike import JOURNALS, OURS, THEIRS
from tests.interop.spark.cluster import Cluster

TOPICS = {OURS: "by-ours", THEIRS: "by-theirs"}
PARTITIONS = 3
HEADERS = "array<struct<key: string, value: binary>>"
# All that matters of a record: key, value and headers.
Record = tuple[bytes | None, bytes | None, Any]


@pytest.fixture(scope="module")
def topics(cluster: Cluster) -> dict[str, str]:
    for name in TOPICS.values():
        cluster.create(name, PARTITIONS)
    return TOPICS


def write(frame: DataFrame, kind: str, options: Mapping[str, str], mode: str = "append") -> None:
    frame.write.format(kind).options(**options).mode(mode).save()


def error_of(frame: DataFrame, kind: str, options: Mapping[str, str]) -> str | None:
    try:
        write(frame, kind, options)
    except (PySparkException, Py4JJavaError) as error:
        return str(error)
    return None


def records(cluster: Cluster, topic: str, skip: Mapping[int, int]) -> dict[int, list[Record]]:
    """By partition, behind the first ``skip`` of each."""
    found = content.read(cluster.bootstrap, [(topic, n) for n in range(PARTITIONS)])
    return {
        partition: [(key, value, headers) for *_, key, value, headers in rows][skip[partition] :]
        for (_, partition), rows in found.items()
    }


def both(
    cluster: Cluster,
    topics: Mapping[str, str],
    frame_of: Callable[[str], DataFrame],
    **options: str,
) -> list[dict[int, list[Record]]]:
    """What each has written of a frame, which may name the topic."""
    result = []
    for kind, topic in topics.items():
        before = records(cluster, topic, dict.fromkeys(range(PARTITIONS), 0))
        frame = frame_of(topic)
        given = {"kafka.bootstrap.servers": cluster.bootstrap, **options}
        if "topic" not in frame.columns:
            given["topic"] = topic
        write(frame, kind, given)
        skip = {partition: len(rows) for partition, rows in before.items()}
        result.append(records(cluster, topic, skip))
    return result


COLUMNS = (
    "if(id % 11 = 0, cast('' as binary), cast(repeat(id, id % 9 + 1) as binary)) key",
    "case when id % 7 = 0 then null when id % 5 = 0 then cast('' as binary)"
    " else cast(concat('value ', id) as binary) end value",
    f"case id % 3 when 0 then null when 1 then cast(array() as {HEADERS})"
    " else array(named_struct('key', 'a', 'value', cast(cast(id as string) as binary)),"
    " named_struct('key', 'a', 'value', cast(null as binary))) end headers",
)


def test_keys_values_and_headers(
    spark: SparkSession, cluster: Cluster, topics: Mapping[str, str]
) -> None:
    frame = spark.range(0, 500, 1, 1).selectExpr(*COLUMNS)
    ours, theirs = both(cluster, topics, lambda _: frame)
    assert ours == theirs
    assert sum(map(len, ours.values())) == 500
    assert all(map(len, ours.values()))


def test_partitions_topics_and_other_columns(
    spark: SparkSession, cluster: Cluster, topics: Mapping[str, str]
) -> None:
    """Strings for key and value; a partition for some rows; columns that mean nothing."""

    def frame_of(topic: str) -> DataFrame:
        return spark.range(0, 300, 1, 1).selectExpr(
            "if(id % 4 = 0, null, concat('k', id)) key",
            "cast(id as string) value",
            f"'{topic}' topic",
            "if(id % 4 < 2, cast(id % 3 as int), null) partition",
            "id offset",
            "current_timestamp() at",
        )

    ours, theirs = both(cluster, topics, frame_of, includeHeaders="true")
    assert ours == theirs
    assert sum(map(len, ours.values())) == 300


def test_the_option_goes_before_the_column(
    spark: SparkSession, cluster: Cluster, topics: Mapping[str, str]
) -> None:
    for kind, topic in topics.items():
        start = records(cluster, topic, dict.fromkeys(range(PARTITIONS), 0))
        frame = spark.sql("select 'nowhere' topic, '1' key, '2' value")
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": f" {topic} "}
        write(frame, kind, options)
        skip = {partition: len(rows) for partition, rows in start.items()}
        found = records(cluster, topic, skip)
        assert [row for rows in found.values() for row in rows] == [(b"1", b"2", None)]


def test_rows_without_keys(
    spark: SparkSession, cluster: Cluster, topics: Mapping[str, str]
) -> None:
    """Which partition they get is a matter of chance, with both."""
    frame = spark.range(0, 200, 1, 2).selectExpr("cast(id as string) value")
    values = [
        sorted(value or b"" for rows in found.values() for _, value, _ in rows)
        for found in both(cluster, topics, lambda _: frame)
    ]
    assert values[0] == values[1] == sorted(b"%d" % number for number in range(200))


WRONG = {
    "no value": "'k' key",
    "value of another type": "1 value",
    "key of another type": "1.5 key, 'v' value",
    "topic of another type": "1 topic, 'v' value",
    "topic is null": "cast(null as string) topic, 'v' value",
    "headers of another type": "'v' value, map('a', 'b') headers",
    "partition of another type": "'v' value, '1' partition",
    "partition below 0": "'v' value, -1 partition",
    "partition that is not there": "'v' value, 17 partition",
    "no topic": "'v' value",
    "topic that is not there": "'no such:topic' topic, 'v' value",
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_an_error_of_both(
    spark: SparkSession, cluster: Cluster, topics: Mapping[str, str], what: str
) -> None:
    frame = spark.sql(f"select {WRONG[what]}")
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "kafka.max.block.ms": "2000",
        "kafka.delivery.timeout.ms": "5000",
        "kafka.request.timeout.ms": "2000",
    }
    for kind, topic in topics.items():
        given = dict(options)
        if "topic" not in what:
            given["topic"] = topic
        assert error_of(frame, kind, given), kind


# Options that a batch can be written with, or that say why it cannot.
OPTIONS: dict[str, tuple[str, str, str | None]] = {
    # value, error of ours, error of theirs; empty where there is none
    "topic": ("", "no topic is named", "INVALID"),
    "includeheaders": ("true", "", ""),
    "failondataloss": ("false", "'failOnDataLoss'", ""),
    "source": ("kafka", "", ""),
    "kafka.key.serializer": ("x.Y", "is not supported", "not supported"),
    "kafka.value.serializer": ("x.Y", "is not supported", "not supported"),
    **{name.lower(): ("1", f"{name!r}", "") for name in ("path", *JOURNALS)},
    # Theirs fails too, after two minutes.
    "kafka.transactional.id": ("mine", "is not supported", None),
}


@pytest.mark.parametrize(
    "name", [n for n, option in TABLE.items() if Use.WRITE in option.applies_to]
)
def test_options(
    spark: SparkSession, cluster: Cluster, topics: Mapping[str, str], name: str
) -> None:
    """A new option needs a case."""
    value, *expected = OPTIONS[name]
    frame = spark.sql("select '1' key, '2' value")
    for (kind, topic), text in zip(topics.items(), expected, strict=True):
        if text is None:
            continue
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": topic, name: value}
        found = error_of(frame, kind, options)
        assert (found is None) == (not text) and text.lower() in (found or "").lower(), found


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
def test_modes(spark: SparkSession, cluster: Cluster, topics: Mapping[str, str], mode: str) -> None:
    frame = spark.sql("select '1' key, '2' value")
    for kind, topic in topics.items():
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": topic}
        with pytest.raises(PySparkException):
            write(frame, kind, options, mode)
