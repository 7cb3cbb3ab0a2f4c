"""Runs the same reads and writes with both data sources in one Spark session, and compares the results."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import StructType

from krammar.spark.datasource import KrammarDataSource
from krammar.spark.errors import SparkSourceError
from krammar.spark.schema import arrow_schema

OURS = "krammar"
THEIRS = "kafka"
ORDER = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]

# Our options that the connector lacks, for journals.
JOURNALS = (
    *("delivery", "intents", "writeId", "repeatedBatch"),
    *("message", "journalsPerTopic", "contentType", "splitBytes"),
)
# Options for the size of a task, in lower case. minRecordsPerPartition goes with none of the others.
TASK_SIZES = {"minpartitions", "maxrecordsperpartition", "minrecordsperpartition"}


class Expected(Enum):
    """The expected result of a case."""

    SAME = "the same rows in the same tasks"
    SAME_ROWS = "the same rows, in other tasks"
    ERRORS = "an error of both"
    WE_REFUSE = "an error of ours, and rows of theirs"
    WE_READ_MORE = "more rows of ours"


@dataclass(frozen=True)
class Case:
    """Options for both data sources, and the expected results; ``why`` says why they differ."""

    options: Mapping[str, str]
    expected: Expected = Expected.SAME
    why: str = ""
    # A text of our error.
    says: str = ""


@dataclass
class Outcome:
    """Rows in order, with the tasks that they came from; or the text of an error."""

    error: str | None = None
    schema: StructType | None = None
    rows: pa.Table | None = None
    tasks: list[list[tuple[str, int, int]]] = field(default_factory=list)

    def __len__(self) -> int:
        return 0 if self.rows is None else self.rows.num_rows


def load(spark: SparkSession, kind: str, options: Mapping[str, str]) -> DataFrame:
    """Read with one of the two data sources."""
    reader = spark.read.format(kind)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def outcome(spark: SparkSession, kind: str, options: Mapping[str, str]) -> Outcome:
    """Of reading all that there is with these options."""
    if kind == THEIRS:
        # It asks brokers again, a second later, even for what is wrong with the options.
        options = {"fetchOffset.retryIntervalMs": "10", **options}
    else:
        options = with_a_task_per_partition(options)
    try:
        frame = load(spark, kind, options)
        table = frame.withColumn("task", spark_partition_id()).toArrow()
    except (PySparkException, Py4JJavaError) as error:
        return Outcome(error=str(error))
    table = table.sort_by(ORDER)
    return Outcome(None, frame.schema, table.drop_columns(["task"]), tasks_of(table))


def with_a_task_per_partition(options: Mapping[str, str]) -> Mapping[str, str]:
    """Small partitions share a task only with krammar, unless the options say how large a task is."""
    if TASK_SIZES & {name.lower() for name in options}:
        return options
    return {"minRecordsPerPartition": "1", **options}


def our_outcome(options: Mapping[str, str]) -> Outcome:
    """As ``outcome`` of ours, but without Spark, whose workers take longer than all else."""
    try:
        source = KrammarDataSource(with_a_task_per_partition(options))
        schema = source.schema()
        reader = source.reader(schema)
        batches = [
            batch.append_column("task", pa.array([number] * batch.num_rows, pa.int32()))
            for number, partition in enumerate(reader.partitions())
            for batch in reader.read(pickle.loads(pickle.dumps(partition)))
        ]
    except SparkSourceError as error:
        return Outcome(error=str(error))
    wanted = arrow_schema(schema).append(pa.field("task", pa.int32()))
    table = pa.Table.from_batches(batches, wanted).sort_by(ORDER)
    return Outcome(None, schema, table.drop_columns(["task"]), tasks_of(table))


def tasks_of(table: pa.Table) -> list[list[tuple[str, int, int]]]:
    """Topic, partition and offset of the rows of each task, in order of the first of them."""
    found: dict[int, list[tuple[str, int, int]]] = {}
    columns = (table.column(name).to_pylist() for name in ("task", "topic", "partition", "offset"))
    for task, *at in zip(*columns, strict=True):
        found.setdefault(task, []).append(tuple(at))
    return sorted(found.values())


def compare(case: Case, ours: Outcome, theirs: Outcome) -> str | None:
    """What is not as expected, or None."""
    met = {
        Expected.SAME: lambda: _same(ours, theirs),
        Expected.SAME_ROWS: lambda: (
            _same(ours, replace(theirs, tasks=ours.tasks)) and ours.tasks != theirs.tasks
        ),
        Expected.ERRORS: lambda: _fails(ours, case.says) and theirs.error is not None,
        Expected.WE_REFUSE: lambda: _fails(ours, case.says) and theirs.error is None,
        Expected.WE_READ_MORE: lambda: (
            ours.error is None and theirs.error is None and len(ours) > len(theirs)
        ),
    }[case.expected]()
    if met:
        return None
    return (
        f"{dict(case.options)}: expected {case.expected.value}\n"
        f"  ours:   {shown(ours)}\n  theirs: {shown(theirs)}"
    )


def _fails(found: Outcome, text: str) -> bool:
    return found.error is not None and text in found.error


def _same(ours: Outcome, theirs: Outcome) -> bool:
    if ours.error is not None or theirs.error is not None:
        return False
    assert ours.rows is not None
    return (
        ours.schema == theirs.schema
        and ours.rows.equals(theirs.rows)
        and ours.tasks == theirs.tasks
    )


def shown(found: Outcome) -> str:
    """In a few words."""
    if found.error is not None:
        lines = [line.strip() for line in found.error.splitlines() if line.strip()]
        told = [line for line in lines if "Error: " in line or "Exception: " in line]
        return f"error: {(told or lines)[-1][:300]}"
    tasks = [f"{task[0]}..{task[-1][2]}" for task in found.tasks]
    return f"{len(found)} rows, {len(tasks)} tasks {tasks[:12]}"


def rows(found: Outcome) -> list[dict[str, Any]]:
    assert found.rows is not None
    result: list[dict[str, Any]] = found.rows.to_pylist()
    return result
