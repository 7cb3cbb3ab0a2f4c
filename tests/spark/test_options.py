"""Wrong options and missing folders, and their error messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from krammar.spark.datasource import KrammarDataSource
from krammar.spark.errors import OptionError, SparkSourceError
from krammar.spark.offsets import AtTimestamp, Earliest, Latest, Specific
from krammar.spark.option_table import TABLE, Use
from krammar.spark.options import Options
from krammar.spark.paths import local_path
from tests.spark.logs_support import Folder
from tests.spark.support import fails, load

# The options in the guide to Spark's Kafka connector that are not passed on to the client.
CONNECTOR = """
assign subscribe subscribePattern startingTimestamp startingOffsetsByTimestamp startingOffsets
endingTimestamp endingOffsetsByTimestamp endingOffsets failOnDataLoss kafkaConsumer.pollTimeoutMs
fetchOffset.numRetries fetchOffset.retryIntervalMs maxOffsetsPerTrigger minOffsetsPerTrigger
maxTriggerDelay minPartitions maxRecordsPerPartition groupIdPrefix kafka.group.id includeHeaders
startingOffsetsByTimestampStrategy topic
"""


def test_every_option_of_the_kafka_connector_is_known() -> None:
    names = {option.name for option in TABLE.values()}
    assert set(CONNECTOR.split()) <= names


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"startingOffset": "earliest"},
            "'startingOffset': is unknown; did you mean \"startingOffsets\"?",
        ),
        ({"subscripe": "x"}, 'did you mean "subscribe"?'),
        ({"zzz": "x"}, "'zzz': is unknown"),
        ({"security.protocol": "SSL"}, 'did you mean "kafka.security.protocol"?'),
        ({"Bootstrap.Servers": "x:1"}, 'did you mean "kafka.bootstrap.servers"?'),
        ({"ssl.keystore.location": "x"}, 'did you mean "kafka.ssl.keystore.location"?'),
        ({"assign": '{"": [0]}'}, "the name of a topic is empty"),
        ({"failOnDataLoss": "yes"}, "'yes': needs true or false"),
        ({"startingOffsets": "first"}, "needs earliest, latest or JSON such as"),
        ({"startingOffsets": '{"orders": {"0": 1'}, "is not JSON"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "t-0 has offset -3"),
        ({"startingOffsets": '{"t": [0]}'}, "needs an object of partitions"),
        ({"startingOffsets": '{"t": {"0": "1"}}'}, "topic 't': '0': '1' is not partition: number"),
        ({"startingOffsets": "[]"}, "needs a JSON object of topics"),
        ({"columns": " , "}, "names nothing"),
        ({"columns": "key,value,key"}, "names 'key' twice"),
        ({"assign": '{"t": 0}'}, "needs a list of partitions"),
        ({"assign": "{}"}, "no partition is named"),
        ({"subscribe": " , "}, "no topic is named"),
        ({"subscribePattern": "("}, "is not a regular expression"),
        ({"subscribePattern": " "}, "the pattern is empty"),
        ({"startingTimestamp": "-1"}, "cannot be negative"),
        ({"minPartitions": "0"}, "needs at least 1"),
        ({"minPartitions": "many"}, "'minPartitions': 'many': needs a whole number"),
        ({"startingTimestamp": "soon"}, "needs milliseconds since 1970, as a whole number"),
        (
            {"kafka.auto.offset.reset": "earliest"},
            "use startingOffsets to choose where reading begins",
        ),
        ({"commitGroup": " "}, "no group is named"),
        ({"source": "log"}, "needs one of kafka, logs, frames"),
        ({"path": "/x"}, "'path': has no meaning with source=kafka"),
        ({"source": "frames", "subscribe": "x"}, "has no meaning with source=frames"),
        ({"source": "logs", "kafka.bootstrap.servers": "x:1"}, "which uses no client"),
        ({"source": "logs", "maxTriggerDelay": "1m"}, "has no meaning with source=logs"),
        ({"maxTriggerDelay": "soon"}, "needs a time such as 15m"),
        ({"mode": "LENIENT"}, "needs one of PERMISSIVE, DROPMALFORMED, FAILFAST"),
    ],
)
def test_wrong_options(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as failure:
        Options(given)
    assert message in str(failure.value)


def test_options_that_do_not_go_with_a_use() -> None:
    with pytest.raises(OptionError, match="'topic': has no meaning in read"):
        Options({"topic": "x"}).check_use(Use.READ)
    with pytest.raises(OptionError, match="'endingOffsets': has no meaning in readStream"):
        Options({"endingOffsets": "latest"}).check_use(Use.READ_STREAM)
    Options({"maxTriggerDelay": "15m"}).check_use(Use.READ_STREAM)


def test_values_and_defaults() -> None:
    options = Options(
        {"STARTINGOFFSETS": '{"a": {"0": 7}}', "maxtriggerdelay": "2 min", "kafka.Client.id": "me"}
    )
    assert options["maxTriggerDelay"] == 120_000
    assert options["failOnDataLoss"] is True
    assert options.client == {"client.id": "me"}
    assert options.starting(Use.READ) == Specific({("a", 0): 7})
    assert Options({}).starting(Use.READ) == Earliest()
    assert Options({}).starting(Use.READ_STREAM) == Latest()
    assert Options({}).ending() == Latest()
    both = Options({"startingOffsets": "earliest", "startingTimestamp": "5"})
    assert both.starting(Use.READ) == AtTimestamp(5)


@pytest.mark.parametrize("name", ["plain", "a b", "a%20b", "100%", "run#1", "what?", "x:y", "é"])
@pytest.mark.parametrize("prefix", ["", "file:", "file://", "file://localhost", "FILE://"])
def test_paths_are_literal(prefix: str, name: str) -> None:
    """As Spark takes them, which shares checkpoints and folders with the source."""
    assert local_path(f"{prefix}/tmp/{name}/x") == f"/tmp/{name}/x"


@pytest.mark.parametrize("path", ["relative/a:b", "./x", "C:/x", "C:x"])
def test_paths_that_are_no_uris(path: str) -> None:
    assert local_path(path) == path


@pytest.mark.parametrize("path", ["hdfs://host/x", "s3a://bucket/a#b", "dbfs:/x"])
def test_other_schemes(path: str) -> None:
    with pytest.raises(OptionError, match=f"'path': '{path}': only files"):
        local_path(path)


LONG = 2**63 - 1


@pytest.mark.parametrize(
    "name",
    [
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxRecordsPerPartition",
        "kafkaConsumer.pollTimeoutMs",
        "startingTimestamp",
        "endingTimestamp",
    ],
)
def test_longs(name: str) -> None:
    Options({name: str(LONG)})
    with pytest.raises(OptionError, match=f"'{name}'.*needs at most {LONG}"):
        Options({name: str(LONG + 1)})


@pytest.mark.parametrize(
    "name",
    [
        "startingOffsets",
        "endingOffsets",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
    ],
)
def test_longs_in_json(name: str) -> None:
    Options({name: json.dumps({"t": {"0": LONG}})})
    with pytest.raises(OptionError, match=f"'{name}'.*'t': '0': needs at most {LONG}"):
        Options({name: json.dumps({"t": {"0": LONG + 1}})})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "a batch cannot begin at the latest"),
        ({"startingOffsets": '{"segments": {"0": -1}}'}, "a batch cannot begin at -1"),
        ({"endingOffsets": "earliest"}, "a batch cannot end at the earliest"),
        ({"endingOffsets": '{"segments": {"0": -2}}'}, "a batch cannot end at -2"),
        ({"startingOffsets": '{"segments": {"0": 0, "1": 0}}'}, "names the unknown segments-1"),
        ({"subscribe": "segments,nothing"}, "topic 'nothing' has no folder"),
        ({"assign": '{"segments": [5]}'}, "segments-5 has no folder"),
        (
            {"assign": '{"segments": [0]}', "subscribe": "segments"},
            "cannot be combined with subscribe",
        ),
        ({"decodeVersion": "1"}, "'decodeVersion': has no meaning without decode"),
    ],
)
def test_what_does_not_go_together_or_with_the_folder(
    folder: Folder, given: dict[str, str], message: str
) -> None:
    defaults = {} if "assign" in given else {"subscribe": "segments"}
    source = KrammarDataSource({"source": "logs", "path": str(folder.path), **defaults, **given})
    with pytest.raises(SparkSourceError) as failure:
        source.reader(source.schema()).partitions()
    assert message in str(failure.value)


def test_spark_shows_the_error(spark: SparkSession, folder: Folder) -> None:
    with fails('did you mean "includeHeaders"?'):
        _ = load(spark, folder.path, inclueHeaders=True).schema  # Spark Connect looks no sooner
    with fails("topic 'nothing' has no folder below the paths"):
        load(spark, folder.path, subscribe="nothing").collect()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"subscribe": "t", "minOffsetsPerTrigger": "100", "maxOffsetsPerTrigger": "50"},
            "'minOffsetsPerTrigger': 100 is more than maxOffsetsPerTrigger=50",
        ),
        (
            {"subscribe": "t", "maxTriggerDelay": "1m"},
            "'maxTriggerDelay': has no meaning without minOffsetsPerTrigger",
        ),
        ({"source": "frames", "path": "x"}, "frames are read in batches, not as a stream"),
    ],
)
def test_options_that_no_stream_has(given: dict[str, str], message: str) -> None:
    if "subscribe" in given:
        pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs PySpark 4.2")
    source = KrammarDataSource(given)
    with pytest.raises(OptionError) as failure:
        source.streamReader(source.schema()).initialOffset()
    assert message in str(failure.value)


def test_partitions_that_are_not_named(folder: Folder) -> None:
    offsets = '{"codec-none": {"0": 0, "2": 0}}'
    given = {"subscribe": "codec-none", "startingOffsets": offsets}
    with pytest.raises(OptionError, match="lacks codec-none-1"):
        partitions(folder.path, **given)


def test_missing_folders(folder: Folder, tmp_path: Path) -> None:
    for paths, message in (
        ([tmp_path / "nowhere"], "nowhere does not exist"),
        ([tmp_path], "contains no partition's folder"),
        ([folder.path / "meta.properties"], "is not a folder"),
        ([folder.path, folder.path / "codec-none-0"], "codec-none-0 is in"),
        (["s3://bucket/logs"], "file system that each executor has mounted"),
        ([], "'paths': needs a list of paths"),
    ):
        with pytest.raises(SparkSourceError, match=message):
            partitions(*paths)
    # Partitions that are not selected may have several folders, of several brokers.
    both = [folder.path, folder.path / "codec-none-0"]
    assert partitions(*both, subscribe="sizes")
    with pytest.raises(SparkSourceError, match="codec-none-0 is in"):
        partitions(*both, assign='{"codec-none": [0]}')
    without = KrammarDataSource({"source": "logs"})
    with pytest.raises(OptionError, match="'path': is required"):
        without.reader(without.schema()).partitions()
    assert partitions(f"file://{folder.path}", subscribe="sizes")


def partitions(*paths: Path | str, **given: str) -> Sequence[InputPartition]:
    listed = json.dumps([str(path) for path in paths])
    source = KrammarDataSource({"source": "logs", "paths": listed, **given})
    return source.reader(source.schema()).partitions()


def test_what_is_not_there(spark: SparkSession, folder: Folder) -> None:
    with fails("the options determine the columns"):
        spark.read.format("krammar").option("source", "logs").schema("key string").load(
            str(folder.path)
        ).collect()
    stream = spark.readStream.format("krammar").option("source", "logs")
    with fails("not as a stream"):
        stream.load(str(folder.path)).writeStream.format("noop").start().processAllAvailable()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KAFKA.GROUP.ID", "x"),
        ("groupIdPrefix", "x"),
        ("fetchOffset.numRetries", "3"),
        ("kafka.max.poll.records", "500"),
    ],
)
def test_options_without_effect(name: str, value: str, caplog: pytest.LogCaptureFixture) -> None:
    """Jobs for Spark's connector set these options. The table and the client do not get them."""
    options = Options({name: value})
    [record] = caplog.records
    assert f"option {TABLE[name.lower()].name!r} has no effect: " in record.getMessage()
    assert not options.client
