"""``source=kafka``: columns, and the reader that Spark sends to its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark.sql.datasource import InputPartition

from krammar.client import Client
from krammar.client.errors import UnknownTopicOrPartition
from krammar.client.metadata import NO_ID
from krammar.spark.brokers import broker_errors, settings_of
from krammar.spark.kafka.plan import Task, plan, select
from krammar.spark.kafka.settled import settled
from krammar.spark.loss import lost
from krammar.spark.options import Options
from krammar.spark.pushdown import FilteringReader
from krammar.spark.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType


# Planning and streams are in processes of their own, which read nothing: what needs Arrow is imported
# where tasks read.


def schema(options: Options) -> StructType:
    from krammar.spark.typed.rows import schema_of

    return schema_of(options)


def reader(options: Options, schema: StructType) -> KafkaReader:
    return KafkaReader(options, schema)


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    from krammar.spark.kafka.stream import reader_of  # which imports this module

    return reader_of(options, schema)


class KafkaPartition(InputPartition):
    """A task, as Spark hands it to an executor."""

    def __init__(self, task: Task) -> None:
        self.task = task


class TaskReader:
    """Reads tasks, as batches and streams have them. Raises OptionError."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__()
        self.options = options
        self.schema = schema
        self.settings = settings_of(options)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Raises DataLossError and BrokerError."""
        if not isinstance(partition, KafkaPartition):
            return  # Spark plans one task with None where there are none
        from krammar.spark.kafka.read import read_task
        from krammar.spark.typed.rows import rows_of

        task, settings = partition.task, self.settings
        if self.options.given("kafkaConsumer.pollTimeoutMs"):
            settings = settings.with_(
                default_api_timeout_ms=self.options["kafkaConsumer.pollTimeoutMs"]
            )
        rows = rows_of(self.options, arrow_schema(self.schema), task.topic, task.partition)
        fail = self.options["failOnDataLoss"]
        doing = f"reading offsets {task.begin} to {task.end - 1} of {task.name}"
        with Client(settings) as client, self.broker_errors(doing):
            if not _is_same_topic(client, task, fail):
                return
            for timestamp_type, batch in read_task(
                client,
                task,
                fail_on_data_loss=fail,
                with_headers="headers" in self.schema.names,
            ):
                built = rows.build(batch, timestamp_type)
                if built.num_rows:
                    yield built

    def broker_errors(self, doing: str) -> AbstractContextManager[None]:
        """Makes a BrokerError of what the client raises."""
        return broker_errors(self.settings, doing)


class KafkaReader(TaskReader, FilteringReader):
    """Reads topics of live brokers, as they are when the query is planned. Raises OptionError."""

    def partitions(self) -> list[KafkaPartition]:
        """Raises OptionError, MissingDataError, DataLossError and BrokerError."""
        with Client(self.settings) as client, self.broker_errors("planning"):
            chosen = select(self.options, client)
            return [
                KafkaPartition(task) for task in plan(self.options, client, chosen, self.wanted)
            ]


def _is_same_topic(client: Client, task: Task, fail: bool) -> bool:
    """Whether the topic is still the one that the task was planned for. If it is, reading asks for no
    metadata again. Raises DataLossError if it is not, and ``fail``."""
    if task.topic_id == NO_ID:
        return True

    def look() -> UUID:
        client.cluster.metadata.outdate([task.topic])
        deadline = client.cluster.deadline(f"finding topic {task.topic}")
        return client.cluster.topic(task.topic, deadline, auto_create=False).topic_id

    what = f"{task.name}, offsets {task.begin} to {task.end - 1}: the topic was deleted"
    try:
        if settled(client, look, lambda found: found != task.topic_id) == task.topic_id:
            return True
    except UnknownTopicOrPartition:
        lost(f"{what} before they were read", fail)
        return False
    lost(f"{what} and made anew before they were read", fail)
    return False
