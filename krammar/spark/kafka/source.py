"""``source=kafka``: its columns, and the readers that Spark requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krammar.spark.brokers import CLIENTS
from krammar.spark.kafka.plan import named_topics, plan, select
from krammar.spark.kafka.tasks import KafkaPartition, TaskReader
from krammar.spark.options import Options
from krammar.spark.pushdown import FilteringReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType


def schema(options: Options) -> StructType:
    from krammar.spark.decoding import schema_of

    return schema_of(options)


def reader(options: Options, schema: StructType) -> KafkaReader:
    return KafkaReader(options, schema)


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    """Return the reader of a stream that the installed version of PySpark can call.

    Raises:
        OptionError: an option needs a newer PySpark, or options contradict each other.
    """
    named_topics(options)
    # Batches need none of the modules that this function imports.
    from krammar.spark.limits import HAS_LIMITS, check_limits

    check_limits(options)
    if not HAS_LIMITS:
        from krammar.spark.kafka.stream.reader import PlainStreamReader

        return PlainStreamReader(options, schema)
    from krammar.spark.kafka.stream.limited import LimitedStreamReader

    return LimitedStreamReader(options, schema)


class KafkaReader(TaskReader, FilteringReader):
    """Reads the records that topics of live brokers have when the query is planned.

    Raises:
        OptionError: a client setting is invalid.
    """

    def partitions(self) -> list[KafkaPartition]:
        """Plan the tasks; see ``krammar.spark.kafka.plan``.

        Raises:
            OptionError: the options contradict each other or the partitions.
            MissingDataError: a topic, a partition or a requested timestamp does not exist.
            DataLossError: requested offsets do not exist, and ``failOnDataLoss`` is true.
            BrokerError: the brokers cannot be asked.
        """
        with CLIENTS.borrow(self.settings) as client, self.broker_errors("planning"):
            chosen = select(self.options, client)
            return self.assign(client, plan(self.options, client, chosen, self.wanted))
