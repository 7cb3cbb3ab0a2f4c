"""The readers of streams, which Spark calls, and the group to which they commit; ``planner`` decides which offsets a
micro-batch reads."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql.datasource import DataSourceStreamReader

from krammar.client import Client, ClientError, TopicPartition
from krammar.client.committed import Committed
from krammar.spark.kafka.plan import Task
from krammar.spark.kafka.stream.planner import StreamPlanner
from krammar.spark.kafka.stream.position import Json, StreamPosition
from krammar.spark.kafka.tasks import KafkaPartition, TaskReader
from krammar.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)

# How long a query waits for the coordinator, in milliseconds, to commit to a group.
_TIMEOUT_MS = 5_000


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
            return self.planner.initial().to_json()

    def partitions(self, start: Json, end: Json) -> list[KafkaPartition]:
        """Plan the tasks of a batch."""
        return self.assigned(self.planned(start, end))

    def commit(self, end: Json) -> None:
        """Commit the end of a finished batch to the group of the option ``commitGroup``."""
        if self._commits is not None:
            self._commits.commit(self.client, StreamPosition.of_json(end).offsets)

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

    def end(self, start: StreamPosition, *, limits: bool) -> Json:
        """Return where the batch from ``start`` ends; without ``limits`` at the end of the logs."""
        with self.broker_errors("finding new records"):
            return self.planner.end(start, limits).to_json()

    def planned(self, start: Json, end: Json) -> list[Task]:
        """Return the tasks of a micro-batch."""
        with self.broker_errors("planning"):
            return self.planner.tasks(StreamPosition.of_json(start), StreamPosition.of_json(end))

    def assigned(self, tasks: list[Task]) -> list[KafkaPartition]:
        """Return what each Spark task reads."""
        with self.broker_errors("planning"):
            return self.assign(self.client, tasks)


class PlainStreamReader(KafkaStreamReader):
    """Reader for PySpark before 4.2: each batch contains all new records."""

    _position: StreamPosition | None = None

    def latestOffset(self) -> Json:  # type: ignore[override]
        # Spark passes no start, and asks for the end of the first batch before its beginning.
        if self._position is None:
            self._position = StreamPosition.of_json(self.initialOffset())
        return self.end(self._position, limits=False)

    def partitions(self, start: Json, end: Json) -> list[KafkaPartition]:
        result = super().partitions(start, end)
        self._position = StreamPosition.of_json(end)
        return result


class GroupCommits:
    """Commits the offsets of a stream to a consumer group (option ``commitGroup``), for one run of a query.

    Checkpoints alone decide what a query reads. The group only shows its progress to Kafka's tools, so an error is a
    warning and never fails the query.

    The metadata of each commit names the run. Another name, or another offset, where this run has
    committed before means that something else commits to the group.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self._run = f"krammar {uuid4()}"
        self._last: dict[TopicPartition, int] = {}
        self._warned_of_another = False

    def commit(self, client: Client, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets unless they are committed already. An error is logged as a warning."""
        if offsets == self._last:
            return
        groups = client.groups
        try:
            if self._last and not self._warned_of_another:
                self._compare(
                    groups.committed(self.group, list(self._last), timeout_ms=_TIMEOUT_MS)
                )
            committed = {at: Committed(offset, -1, self._run) for at, offset in offsets.items()}
            groups.commit(self.group, committed, timeout_ms=_TIMEOUT_MS)
        except ClientError as error:
            _log.warning(
                "offsets are not committed to group %r (option commitGroup), the query continues: %s",
                self.group,
                error,
            )
        else:
            self._last = dict(offsets)

    def _compare(self, found: Mapping[TopicPartition, Committed]) -> None:
        for at, committed in found.items():
            if committed.offset != self._last.get(at) or committed.metadata != self._run:
                is_query = committed.metadata.startswith("krammar ")
                _log.warning(
                    "%s commits to group %r too (%s: offset %d), so the group's lag is not that of "
                    "this query: give each query its own commitGroup",
                    "another query" if is_query else "something else",
                    self.group,
                    at,
                    committed.offset,
                )
                self._warned_of_another = True
                return
