"""Every option of batch reads has its effect, with brokers and with log folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

import pyarrow as pa

from krammar.broker import Broker
from krammar.client import Client
from krammar.spark.datasource import KrammarDataSource
from krammar.spark.errors import SparkSourceError
from krammar.spark.option_table import TABLE, Use
from krammar.spark.schema import arrow_schema
from tests.spark.logs_support import FIRST_MS, STEP_MS, Folder


class Got(NamedTuple):
    """What was read: rows by partition, the number of tasks, columns."""

    counts: dict[str, int]
    tasks: int
    columns: dict[str, pa.DataType]


class Case(NamedTuple):
    """An option, its value, the other options, and the rows that they return or the text of the error."""

    option: str
    value: str
    others: dict[str, str]
    expected: Callable[[Got], bool] | str


def reads(**counts: int) -> Callable[[Got], bool]:
    wanted = {name.replace("_", "-"): count for name, count in counts.items()}
    return lambda got: got.counts == wanted


SEGMENTS = {"subscribe": "segments"}  # 600 records, ten seconds apart
TENTH = FIRST_MS + 10 * STEP_MS
FAR = str(FIRST_MS + 10_000 * STEP_MS)
CODEC = {"subscribe": "codec-none"}
OFFSETS = {"subscribe": "__consumer_offsets"}
COMMITS = {**OFFSETS, "decode": "OffsetCommitValue"}
PLACE = ["partition", "topic"]
TEXTS = {"subscribe": "sizes", "decode": "TopicRecord"}  # which they are not
NONE_AS_LATE = {**SEGMENTS, "startingTimestamp": FAR}

CASES = [
    Case("assign", '{"codec-none": [1]}', {}, reads(codec_none_1=100)),
    Case("subscribe", "sizes, segments", {}, reads(sizes_0=4, segments_0=600)),
    Case("subscribePattern", "si.es|segment$", {}, reads(sizes_0=4)),
    Case("startingOffsets", '{"segments": {"0": 590}}', SEGMENTS, reads(segments_0=10)),
    Case("startingTimestamp", str(TENTH), SEGMENTS, reads(segments_0=590)),
    Case(
        "startingOffsetsByTimestamp",
        f'{{"segments": {{"0": {TENTH - 1}}}}}',
        SEGMENTS,
        reads(segments_0=590),
    ),
    Case("startingOffsetsByTimestampStrategy", "latest", NONE_AS_LATE, reads()),
    Case("startingOffsetsByTimestampStrategy", "error", NONE_AS_LATE, "at or after"),
    Case("endingOffsets", '{"segments": {"0": 10}}', SEGMENTS, reads(segments_0=10)),
    Case("endingTimestamp", str(TENTH), SEGMENTS, reads(segments_0=10)),
    Case(
        "endingOffsetsByTimestamp",
        f'{{"segments": {{"0": {TENTH + 1}}}}}',
        SEGMENTS,
        reads(segments_0=11),
    ),
    *(
        Case("failOnDataLoss", value, {**SEGMENTS, "endingOffsets": '{"segments": {"0": 601}}'}, to)
        for value, to in (("false", reads(segments_0=600)), ("true", "601 was requested"))
    ),
    Case("minPartitions", "30", SEGMENTS, lambda got: got.tasks >= 30 and sum_of(got) == 600),
    Case(
        "maxRecordsPerPartition",
        "10",
        SEGMENTS,
        lambda got: got.tasks >= 60 and sum_of(got) == 600,
    ),
    # Three partitions of 100 records.
    Case("minRecordsPerPartition", "100", CODEC, lambda got: got.tasks == 3 and sum_of(got) == 300),
    Case("minRecordsPerPartition", "101", CODEC, lambda got: got.tasks == 2 and sum_of(got) == 300),
    Case("minRecordsPerPartition", "9", {**SEGMENTS, "minPartitions": "2"}, "no meaning with"),
    Case("includeHeaders", "true", SEGMENTS, lambda got: "headers" in got.columns),
    Case("includeHeaders", "false", SEGMENTS, lambda got: "headers" not in got.columns),
    Case("columns", "partition, topic", SEGMENTS, lambda got: list(got.columns) == PLACE),
    Case("columns", "value,topic,partition", SEGMENTS, lambda got: sum_of(got) == 600),
    Case(
        "columns", "topic,partition,headers", SEGMENTS, "'headers' is not a column; there are: key"
    ),
    Case("columns", "topic,partition,topic", SEGMENTS, "names 'topic' twice"),
    Case("fields", "group, offset", COMMITS, lambda got: fields_of(got) == (["group"], ["offset"])),
    Case("fields", "offset", COMMITS, lambda got: "key" not in got.columns and sum_of(got) > 0),
    Case("fields", "offest", COMMITS, "'offest' is not a field of OffsetCommitKey or"),
    Case("fields", "offset", OFFSETS, "has no meaning without decode"),
    Case("decode", "OffsetCommitValue", OFFSETS, lambda got: is_struct(got, "key", "value")),
    Case("decodeVersion", "99", {**TEXTS, "decode": "FetchRequest"}, "FetchRequest"),
    Case("decodeVersion", "4", {**TEXTS, "decode": "FetchRequest"}, lambda got: sum_of(got) == 4),
    Case("mode", "DROPMALFORMED", TEXTS, reads()),
    Case("mode", "permissive", TEXTS, lambda got: "_corrupt_record" in got.columns),
    Case("mode", "FAILFAST", TEXTS, "sizes-0, offset 0"),
    Case("columnNameOfCorruptRecord", "odd", TEXTS, lambda got: "odd" in got.columns),
    Case("kafka.isolation.level", "read_committed", {"subscribe": "ledger"}, reads(ledger_0=14)),
    Case("kafka.isolation.level", "read_uncommitted", {"subscribe": "ledger"}, reads(ledger_0=26)),
    Case("source", "kafka", SEGMENTS, reads(segments_0=600)),
    Case("source", "logs", SEGMENTS, reads(segments_0=600)),
    Case("path", "FOLDER", SEGMENTS, reads(segments_0=600)),
    Case("paths", '["FOLDER"]', SEGMENTS, reads(segments_0=600)),
    # Options of journals; test_journal_read.py tests them there.
    *(Case(name, "1", SEGMENTS, "has no meaning") for name in ("contentType", "splitBytes")),
    # That it limits how long a task waits is shown in test_kafka_faults.py.
    Case("kafkaConsumer.pollTimeoutMs", "20000", SEGMENTS, reads(segments_0=600)),
    Case("startingGroup", "readers", SEGMENTS, reads(segments_0=200)),
    Case("startingGroup", "nobody", SEGMENTS, "group 'nobody' has committed no offsets"),
    *(
        Case(
            "startingGroup",
            "readers",
            {**SEGMENTS, name: value},
            f"cannot be combined with {name}",
        )
        for name, value in (("startingOffsets", "earliest"), ("startingTimestamp", "1"))
    ),
    *(
        Case(option.name, "1", SEGMENTS, reads(segments_0=600))
        for option in TABLE.values()
        if option.ignored and Use.READ in option.applies_to
    ),
    *(
        Case(option.name, "1", SEGMENTS, "is not supported")
        for option in TABLE.values()
        if option.refused and Use.READ in option.applies_to
    ),
]


def sum_of(got: Got) -> int:
    return sum(got.counts.values())


def is_struct(got: Got, *columns: str) -> bool:
    return all(pa.types.is_struct(got.columns[column]) for column in columns)


def fields_of(got: Got) -> tuple[list[str], ...]:
    return tuple([field.name for field in got.columns[name]] for name in ("key", "value"))


def test_no_option_is_left_out() -> None:
    """A new one needs a case above."""
    known = {option.name for option in TABLE.values() if Use.READ in option.applies_to}
    assert {case.option for case in CASES} == known


@pytest.mark.parametrize(
    ("case", "source"),
    [
        pytest.param(case, source, id=f"{case.option}-{case.value}-{source}")
        for case in CASES
        for source in ("kafka", "logs")
        if source in TABLE[case.option.lower()].applies_to
        and (case.option != "source" or source == case.value)
        # Of kafka it is for writing journals.
        and (case.option, source) != ("path", "kafka")
    ],
)
def test_option(live: Broker, folder: Folder, case: Case, source: str) -> None:
    given = {"source": source, **case.others}
    if source == "kafka":
        given["kafka.bootstrap.servers"] = str(live.bootstrap_servers)
    elif case.option != "paths":
        given["path"] = str(folder.path)
    given[case.option] = case.value.replace("FOLDER", str(folder.path))
    if case.option == "startingGroup":
        with Client(live.bootstrap_servers) as client:
            client.groups.commit("readers", {("segments", 0): 400})
    if isinstance(case.expected, str):
        with pytest.raises(SparkSourceError) as failure:
            read(given)
        assert case.expected in str(failure.value)
    else:
        got = read(given)
        assert case.expected(got), got


def read(given: dict[str, str]) -> Got:
    # Spark gives names on in lower case if they come from SQL.
    source = KrammarDataSource({name.lower(): value for name, value in given.items()})
    schema = source.schema()
    reader = source.reader(schema)
    tasks = reader.partitions()
    counts: Counter[str] = Counter()
    for task in tasks:
        for batch in reader.read(task):
            assert isinstance(batch, pa.RecordBatch)
            assert batch.schema.names == schema.names
            counts.update(
                f"{topic}-{partition}"
                for topic, partition in zip(
                    batch.column("topic").to_pylist(),
                    batch.column("partition").to_pylist(),
                    strict=True,
                )
            )
    columns = {field.name: field.type for field in arrow_schema(schema)}
    return Got(dict(counts), len(tasks), columns)
