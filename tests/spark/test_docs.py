"""The samples of docs/spark.md, and of the pages that it lists, run as pasted, one after the other."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, TopicPartition

from krammar.broker import Broker
from krammar.client import At, Client
from tests.samples import SERVERS, blocks
from tests.spark.test_frames import capture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark 4.2 is not installed")

PAGES = (
    "spark",
    "spark-streaming",
    "spark-writing",
    "spark-journals",
    "spark-options",
    "spark-typed",
    "spark-logs",
)
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.mark.sweep
def test_all_of_the_page(spark: SparkSession, orders: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    capture(tmp_path / "captures" / "a.tap")
    names: dict[str, Any] = {}
    data = tmp_path / "data"
    with Broker.start(data_dir=data) as broker:
        _fill(broker.bootstrap_servers, orders)
        samples = [sample for page in PAGES for sample in blocks(f"docs/{page}.md")]
        assert len(samples) == 9
        try:
            for sample in samples:
                for shown, here in (
                    (SERVERS, broker.bootstrap_servers),
                    ("/data/kafka-logs", str(data)),
                    ('"checkpoints/', f'"{tmp_path}/checkpoints/'),
                    ('"captures/', f'"{tmp_path}/captures/'),
                ):
                    sample = sample.replace(shown, here)
                exec(sample, names)
        finally:
            for query in spark.streams.active:
                query.stop()
            spark.conf.unset(_PUSHDOWN)
            for table in ("order_events", "order_copies"):
                spark.sql(f"DROP TABLE IF EXISTS {table}")
        assert names["orders"].count() == names["archived"].count() == 3
        assert [row.customer for row in names["decoded"].select("order.*").collect()] == ["ada"] * 3
        values = [row.value for row in names["orders"].collect()]
        assert [row.value for row in names["encoded"].collect()] == values
        assert names["recent"].count() == 3
        assert names["offsets"].collect()[0].group == "readers"
        assert names["messages"].columns[:3] == ["uuid", "key", "value"]
        with Client(broker.bootstrap_servers) as client:
            assert len(list(client.records("copy", end=At.LATEST))) == 3
            assert len(list(client.records("copies", end=At.LATEST))) == 3
    assert names["frames"].count() == 10


def _fill(servers: str, orders: ModuleType) -> None:
    """Three orders, a committed offset, and the topics that queries read or write."""
    with Client(servers) as client:
        for topic in ("orders", "copy", "numbers", "journal", "checked"):
            client.admin.create_topic(topic, partitions=1)
        with client.producer() as producer:
            for _ in range(3):
                order = orders.OrderPlaced(id=UUID(int=7), customer="ada", total=1.5)
                producer.send("orders", order.encode(1))
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
    consumer.close()
