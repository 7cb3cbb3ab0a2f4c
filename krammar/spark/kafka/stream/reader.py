"""The readers of streams, which Spark calls; ``planner`` decides which offsets a micro-batch reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader

from krammar.client import Client, TopicPartition
from krammar.spark.kafka.group import GroupCommits
from krammar.spark.kafka.plan import Task
from krammar.spark.kafka.stream.planner import StreamPlanner
from krammar.spark.kafka.stream.snapshots import Offsets
from krammar.spark.kafka.tasks import KafkaPartition, TaskReader
from krammar.spark.offsets import of_json, offsets_to_json
from krammar.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Json = dict[str, dict[str, int]]


def offsets_of(found: Json) -> Offsets:
    """Return the offsets that Spark passes."""
    return {TopicPartition(*at): offset for at, offset in of_json(found).items()}


class KafkaStreamReader(TaskReader, DataSourceStreamReader):
    """The part that is common to all versions of PySpark.

    The driver has one reader, with one client for all batches. Each task has a copy, which only reads.

    Raises:
        OptionError: the options contradict each other or the partitions.
        MissingDataError: a topic, a partition or a requested timestamp does not exist.
        DataLossError: records are missing, and ``failOnDataLoss`` is true.
        BrokerError: the brokers cannot be asked or read.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._client: Client | None = None
        self._planner: StreamPlanner | None = None
        group = options["commitGroup"]
        self._commits = None if group is None else GroupCommits(group)

    # Methods that Spark calls.

    def initialOffset(self) -> Json:
        """Return where a new query begins. Spark asks twice and expects the same answer."""
        with self.broker_errors("finding the starting offsets"):
            return offsets_to_json(self.planner.initial())

    def partitions(self, start: Json, end: Json) -> list[KafkaPartition]:
        """Plan the tasks of a batch."""
        return self.assigned(self.planned(start, end))

    def commit(self, end: Json) -> None:
        """Commit the end of a finished batch to the group of the option ``commitGroup``."""
        if self._commits is not None:
            self._commits.commit(self.client, offsets_of(end))

    def stop(self) -> None:
        """Close the client."""
        if self._client is not None:
            self._client.close()

    # For subclasses.

    @property
    def client(self) -> Client:
        """The client for all batches; it reconnects if a connection breaks."""
        if self._client is None:
            self._client = Client(self.settings)
        return self._client

    @property
    def planner(self) -> StreamPlanner:
        """What decides where batches begin and end."""
        if self._planner is None:
            self._planner = StreamPlanner(self.options, self.client)
        return self._planner

    def end(self, start: Offsets, *, limits: bool) -> Json:
        """Return where the batch from ``start`` ends; without ``limits`` at the end of the logs."""
        with self.broker_errors("finding new records"):
            return offsets_to_json(self.planner.end(start, limits))

    def planned(self, start: Json, end: Json) -> list[Task]:
        """Return the tasks of a micro-batch."""
        with self.broker_errors("planning"):
            return self.planner.tasks(offsets_of(start), offsets_of(end))

    def assigned(self, tasks: list[Task]) -> list[KafkaPartition]:
        """Return what each Spark task reads."""
        with self.broker_errors("planning"):
            return self.assign(self.client, tasks)


class PlainStreamReader(KafkaStreamReader):
    """Reader for PySpark before 4.2: each batch contains all new records."""

    _position: Offsets | None = None

    def latestOffset(self) -> Json:  # type: ignore[override]
        # Spark passes no start, and asks for the end of the first batch before its beginning.
        if self._position is None:
            self._position = offsets_of(self.initialOffset())
        return self.end(self._position, limits=False)

    def partitions(self, start: Json, end: Json) -> list[KafkaPartition]:
        result = super().partitions(start, end)
        self._position = offsets_of(end)
        return result
