"""``source=kafka``: columns, and the reader that Spark sends to its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from krammar.client import Client, ClientError, Settings
from krammar.client.errors import SettingsError
from krammar.spark.errors import BrokerError, OptionError
from krammar.spark.kafka.plan import Task, plan, select
from krammar.spark.kafka.read import read_task
from krammar.spark.options import CLIENT_PREFIX, Options
from krammar.spark.pushdown import FilteringReader
from krammar.spark.schema import arrow_schema
from krammar.spark.typed.rows import rows_of, schema_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType


def schema(options: Options) -> StructType:
    return schema_of(options)


def reader(options: Options, schema: StructType) -> KafkaReader:
    return KafkaReader(options, schema)


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    raise OptionError("source", "kafka is read in batches; reading as a stream is not there yet")


def settings_of(options: Options) -> Settings:
    """The client's settings, of ``kafka.*``. Raises OptionError."""
    try:
        return Settings.of(options.client)
    except SettingsError as error:
        message = str(error).removeprefix(f"{error.name}: ")
        raise OptionError(CLIENT_PREFIX + error.name, message) from None


class KafkaPartition(InputPartition):
    """A task, as Spark hands it to an executor."""

    def __init__(self, task: Task) -> None:
        self.task = task


class KafkaReader(FilteringReader):
    """Reads topics of live brokers, as they are when the query is planned. Raises OptionError."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__()
        self.options = options
        self.schema = schema
        self.settings = settings_of(options)

    def partitions(self) -> list[KafkaPartition]:
        """Raises OptionError, MissingDataError, DataLossError and BrokerError."""
        with self._client(self.settings, "planning") as client:
            chosen = select(self.options, client)
            return [
                KafkaPartition(task) for task in plan(self.options, client, chosen, self.wanted)
            ]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Raises DataLossError and BrokerError."""
        if not isinstance(partition, KafkaPartition):
            return  # Spark plans one task with None where there are none
        task, settings = partition.task, self.settings
        if self.options.given("kafkaConsumer.pollTimeoutMs"):
            settings = settings.with_(
                default_api_timeout_ms=self.options["kafkaConsumer.pollTimeoutMs"]
            )
        rows = rows_of(self.options, arrow_schema(self.schema), task.topic, task.partition)
        doing = f"reading offsets {task.begin} to {task.end - 1} of {task.name}"
        with self._client(settings, doing) as client:
            for timestamp_type, batch in read_task(
                client, task, fail_on_data_loss=self.options["failOnDataLoss"]
            ):
                built = rows.build(batch, timestamp_type)
                if built.num_rows:
                    yield built

    @contextmanager
    def _client(self, settings: Settings, doing: str) -> Iterator[Client]:
        with Client(settings) as client:
            try:
                yield client
            except ClientError as error:
                servers = self.options.client["bootstrap.servers"]
                raise BrokerError(f"{doing}, brokers {servers}: {error}") from error
