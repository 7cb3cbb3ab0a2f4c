"""A bug of Spark's Kafka connector."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from kafka_wire import ErrorCode

from krammar.testing import KafkaBroker
from tests.support.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("source", ["kafka", "krammar"])
def test_an_offset_that_is_refused_once_is_read_once(
    kafka_broker: KafkaBroker, spark: SparkSession, source: str
) -> None:
    """SPARK-25214: with failOnDataLoss=false, rows came twice when an offset was missing."""
    kafka_broker.create_topic("orders", 1)
    producer = Producer(kafka_broker.clients.confluent_kafka)
    for number in range(20):
        producer.produce("orders", b"%d" % number)
    assert producer.flush(PATIENCE) == 0
    gone = kafka_broker.faults.on("Fetch", topic="orders").once()
    gone.answer(ErrorCode.OFFSET_OUT_OF_RANGE)
    reader = spark.read.format(source).option("subscribe", "orders")
    reader = reader.option("kafka.bootstrap.servers", kafka_broker.bootstrap_servers)
    rows = reader.option("failOnDataLoss", "false").load().select("offset").collect()
    gone.expect()
    assert sorted(row.offset for row in rows) == list(range(20))
