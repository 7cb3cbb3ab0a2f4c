"""Reading as a stream: both data sources make the same micro-batches, and keep the same in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from krammar.spark.option_table import TABLE, Use
from tests.interop import content
from tests.interop.spark.alike import OURS, THEIRS
from tests.interop.spark.cluster import Cluster

COUNTS = (70, 200, 3)
EARLIEST = {"startingOffsets": "earliest"}
Where = tuple[str, int, int]


class Ran(NamedTuple):
    """The records of each micro-batch, and the ends that the checkpoint has, without the ids of topics; or the text of
    an error."""

    batches: list[list[Where]]
    ends: list[dict[str, dict[str, int]]]
    error: str | None = None


@pytest.fixture(scope="module")
def flow(cluster: Cluster) -> str:
    cluster.create("flow", len(COUNTS))
    produce(cluster, "flow", COUNTS)
    return "flow"


def produce(cluster: Cluster, topic: str, counts: tuple[int, ...]) -> None:
    source = content.producer(cluster.bootstrap)
    for partition, count in enumerate(counts):
        for number in range(count):
            source.produce(topic, b"%d" % number, partition=partition)
    content.flush(source)


def run(
    spark: SparkSession, cluster: Cluster, kind: str, options: Mapping[str, str], checkpoint: Path
) -> Ran:
    """With Trigger.AvailableNow: all that there is, in as many batches as the options want."""
    batches: list[list[Where]] = []

    def keep(frame: DataFrame, _: int) -> None:
        rows = frame.select("topic", "partition", "offset").collect()
        batches.append(sorted((row[0], row[1], row[2]) for row in rows))

    given = {"kafka.bootstrap.servers": cluster.bootstrap, **options}
    try:
        query = (
            spark.readStream.format(kind)
            .options(**given)
            .load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(PATIENCE), "the query does not end"
        finally:
            query.stop()
    except PySparkException as error:
        return Ran(batches, [], str(error))
    found = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    ends = [json.loads(file.read_text().splitlines()[-1]) for file in found]
    return Ran(batches, [{name: value for name, value in end.items() if value} for end in ends])


# For each option that only streams have: options, and a text of our error if both are to fail.
CASES: dict[str, list[tuple[dict[str, str], str]]] = {
    "maxoffsetspertrigger": [
        ({**EARLIEST, "maxOffsetsPerTrigger": "100"}, ""),
        (
            {
                "startingOffsets": '{"flow": {"0": 7, "1": -2, "2": -1}}',
                "maxOffsetsPerTrigger": "99",
            },
            "",
        ),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger"),
    ],
    "minoffsetspertrigger": [
        ({**EARLIEST, "minOffsetsPerTrigger": "100"}, ""),
        (
            {**EARLIEST, "minOffsetsPerTrigger": "100", "maxOffsetsPerTrigger": "50"},
            "minOffsetsPerTrigger",
        ),
    ],
    "maxtriggerdelay": [
        ({**EARLIEST, "minOffsetsPerTrigger": "9", "maxTriggerDelay": "1m"}, ""),
        ({**EARLIEST, "minOffsetsPerTrigger": "9", "maxTriggerDelay": "x"}, "maxTriggerDelay"),
    ],
    # krammar's own, which changes nothing in batches and checkpoints.
    "commitgroup": [({**EARLIEST, "commitGroup": "billing"}, "")],
}


@pytest.mark.parametrize(
    "name", [n for n, o in TABLE.items() if o.applies_to & {*Use} == {Use.READ_STREAM}]
)
def test_options_of_streams(
    spark: SparkSession, cluster: Cluster, flow: str, tmp_path: Path, name: str
) -> None:
    """A new option needs a case."""
    assert CASES[name]
    for number, (options, says) in enumerate(CASES[name]):
        found = [
            run(spark, cluster, kind, {"subscribe": flow, **options}, tmp_path / f"{kind}-{number}")
            for kind in (OURS, THEIRS)
        ]
        if says:
            assert says in (found[0].error or "") and found[1].error, found
        else:
            assert found[0] == found[1]
            assert found[0].error is None and sum(map(len, found[0].batches)) > 0


def test_a_checkpoint_of_one_goes_on_with_the_other(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """Moving from ``format("kafka")`` to ``format("krammar")`` and back, nothing is read twice or left
    out."""
    topic = "moving"
    cluster.create(topic, len(COUNTS))
    options = {"subscribe": topic, **EARLIEST}
    found: list[Where] = []
    for turn, kind in enumerate((THEIRS, OURS, THEIRS)):
        produce(cluster, topic, COUNTS)
        ran = run(spark, cluster, kind, options, tmp_path / "checkpoint")
        assert ran.error is None
        assert len(ran.ends) == turn + 1
        found += [where for batch in ran.batches for where in batch]
    wanted = [(topic, n, offset) for n, count in enumerate(COUNTS) for offset in range(3 * count)]
    assert sorted(found) == wanted


def test_the_end_of_a_stream_is_an_error(
    spark: SparkSession, cluster: Cluster, flow: str, tmp_path: Path
) -> None:
    for kind in (OURS, THEIRS):
        options = {"subscribe": flow, "endingOffsets": "latest"}
        assert run(spark, cluster, kind, options, tmp_path / kind).error
