"""Tables of Spark's catalog over topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql import SparkSession

from krammar.broker import Broker
from krammar.client import Client
from tests.spark.support import fails

NAMES = ("events", "copies", "other")


@pytest.fixture
def broker(spark: SparkSession) -> Iterator[Broker]:
    """A broker with two records in the topic events. Tables are dropped afterwards."""
    with Broker.start() as broker:
        with Client(broker.bootstrap_servers) as client, client.producer() as producer:
            for value in (b"one", b"two"):
                producer.send("events", value)
        yield broker
        for name in NAMES:
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def create(
    spark: SparkSession, broker: Broker, name: str, options: str, more: str = "", columns: str = ""
) -> None:
    servers = f"`kafka.bootstrap.servers` '{broker.bootstrap_servers}'"
    spark.sql(f"CREATE TABLE {name} {columns} USING krammar OPTIONS ({servers}, {options}) {more}")


def values(broker: Broker, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    with Client(broker.bootstrap_servers) as client:
        return [(record.key, record.value) for _, record in client.records(topic)]


def topics(broker: Broker) -> set[str]:
    with Client(broker.bootstrap_servers) as client:
        return set(client.topics())


def test_a_table_is_read_and_written(spark: SparkSession, broker: Broker) -> None:
    more = "COMMENT 'all events' TBLPROPERTIES ('team' = 'billing')"
    create(spark, broker, "events", "subscribe 'events'", more)
    found = spark.sql("SELECT CAST(value AS STRING) FROM events WHERE offset >= 1").collect()
    assert [row.value for row in found] == ["two"]
    later = spark.sql("""SELECT offset FROM events WITH (startingOffsets '{"events": {"0": 1}}')""")
    assert [row.offset for row in later.collect()] == [1]
    spark.sql("INSERT INTO events (key, value) VALUES (X'6B', X'33')")
    spark.sql("INSERT INTO events SELECT * FROM events WHERE offset = 2")
    assert values(broker, "events")[2:] == [(b"k", b"3"), (b"k", b"3")]


def test_a_table_that_is_only_written(spark: SparkSession, broker: Broker) -> None:
    create(spark, broker, "copies", "topic 'copies'")
    spark.sql("INSERT INTO copies (value) VALUES ('a')")
    spark.sql("INSERT INTO copies (key, value, partition) VALUES ('k', 'b', 0)")
    rows = spark.createDataFrame([("k", "c")], ["key", "value"])
    rows.writeTo("copies").append()
    rows.write.format("krammar").mode("append").saveAsTable("copies")
    assert values(broker, "copies") == [(None, b"a"), (b"k", b"b"), (b"k", b"c"), (b"k", b"c")]
    with fails("option 'subscribe'"):
        spark.sql("SELECT * FROM copies").collect()
    with fails("mode overwrite"):
        spark.sql("INSERT OVERWRITE copies (key, value) VALUES ('k', 'x')")


def test_the_catalog_creates_tables(spark: SparkSession, broker: Broker) -> None:
    options = {"kafka.bootstrap.servers": str(broker.bootstrap_servers), "subscribe": "events"}
    frame = spark.catalog.createTable("events", source="krammar", description="d", **options)
    assert frame.count() == 2


def test_a_table_is_read_as_a_stream(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    create(spark, broker, "events", "subscribe 'events'")
    stream = spark.readStream.option("startingOffsets", "earliest").table("events")
    query = (
        stream.writeStream.format("krammar")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", "streamed")
        .option("checkpointLocation", str(tmp_path_factory.mktemp("checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert values(broker, "streamed") == [(None, b"one"), (None, b"two")]


def test_tables_whose_options_spark_does_not_pass_on(spark: SparkSession, broker: Broker) -> None:
    with fails("Spark stores options of a table only with CREATE TABLE name USING krammar"):
        create(spark, broker, "other", "topic 'other'", "AS SELECT 'x' AS value")
    assert topics(broker) == {"events"}  # nothing was written
    create(spark, broker, "other", "topic 'other'", columns="(key string, value string)")
    for statement in ("SELECT * FROM other", "INSERT INTO other VALUES ('k', 'v')"):
        with fails("no options are given"):
            spark.sql(statement).collect()
    assert topics(broker) == {"events"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("subscribes 'events'", "option 'subscribes': is unknown; did you mean \"subscribe\"?"),
        (
            "subscribe 'events', `kafka.sasl.password` 'hush'",
            "option 'kafka.sasl.password': would be stored readably",
        ),
        ("subscribe 'events', `kafka.sasl.jaas.config` 'x'", "would be stored readably"),
        ("subscribe 'events', `kafka.ssl.keystore.key` 'x'", "would be stored readably"),
    ],
)
def test_options_that_a_table_cannot_have(
    spark: SparkSession, broker: Broker, options: str, message: str
) -> None:
    with fails(message):
        create(spark, broker, "events", options)
