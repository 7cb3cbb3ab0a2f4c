"""The tasks of ``source=kafka`` and their reader, for batches and for streams."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import InputPartition

from krammar.client import Client
from krammar.spark.brokers import CLIENTS, ClientPool, broker_errors, settings_of
from krammar.spark.kafka.plan import Task
from krammar.spark.kafka.topic_ids import is_same_topic
from krammar.spark.options import Options
from krammar.spark.ranges import combine, split
from krammar.spark.schema import arrow_schema
from krammar.util.settings import INT32

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


# Spark plans batches and streams in processes that read no records. Modules that need Arrow are therefore imported
# where a task is read.


class KafkaPartition(InputPartition):
    """What one Spark task reads: offsets of one partition, or of several small ones."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = tasks

    def __str__(self) -> str:
        first = self.tasks[0]
        others = f" and of {len(self.tasks) - 1} other partitions" if len(self.tasks) > 1 else ""
        return f"offsets {first.begin} to {first.end - 1} of {first.name}{others}"


class TaskReader:
    """Plans and reads the tasks of batches and streams.

    Attributes:
        clients: lends the clients that read tasks

    Raises:
        OptionError: a client setting is invalid.
    """

    clients: ClassVar[ClientPool] = CLIENTS

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__()
        self.options = options
        self.schema = schema
        self.settings = settings_of(options)

    def assign(self, client: Client, tasks: list[Task]) -> list[KafkaPartition]:
        """Return what each Spark task reads.

        Small partitions with the same leader share a Spark task, unless an option limits its size.
        """
        options = self.options
        if options.given("minPartitions") or options.given("maxRecordsPerPartition"):
            limits = options["minPartitions"], options["maxRecordsPerPartition"]
            return [KafkaPartition([task]) for task in split(tasks, *limits)]
        topics = client.cluster.metadata.topics

        def leader(task: Task) -> int:
            return topics[task.topic].partitions[task.partition].leader

        groups = combine(tasks, options["minRecordsPerPartition"], leader)
        return [KafkaPartition(group) for group in groups]

    def read(self, partition: InputPartition | None) -> Generator[pa.RecordBatch]:
        """Yield the rows of a Spark task.

        Raises:
            DataLossError: records are missing or corrupt, and ``failOnDataLoss`` is true.
            BrokerError: the brokers cannot be read.
        """
        if not isinstance(partition, KafkaPartition):
            return  # if there are no tasks, Spark plans one with None
        from krammar.spark.batches import join

        settings = self.settings
        if self.options.given("kafkaConsumer.pollTimeoutMs"):
            # The client's limit is 25 days.
            timeout_ms = min(self.options["kafkaConsumer.pollTimeoutMs"], INT32)
            settings = settings.with_(default_api_timeout_ms=timeout_ms)
        with self.clients.borrow(settings) as client, self.broker_errors(f"reading {partition}"):
            built = self._rows(client, partition.tasks)
            yield from built if len(partition.tasks) == 1 else join(built)

    def _rows(self, client: Client, tasks: list[Task]) -> Iterator[pa.RecordBatch]:
        from krammar.spark.decoding import rows_of
        from krammar.spark.kafka.read import read_tasks

        fail = self.options["failOnDataLoss"]
        tasks = [task for task in tasks if is_same_topic(client, task, fail)]
        any_rows = rows_of(self.options, arrow_schema(self.schema), "", -1)
        rows = {task: any_rows.at(task.topic, task.partition) for task in tasks}
        for task, timestamp_type, batch in read_tasks(
            client, tasks, fail_on_data_loss=fail, with_headers="headers" in self.schema.names
        ):
            built = rows[task].build(batch, timestamp_type)
            if built.num_rows:
                yield built

    def broker_errors(self, doing: str) -> AbstractContextManager[None]:
        """Convert errors of the client to BrokerError; ``doing`` describes the operation."""
        return broker_errors(self.settings, doing)
