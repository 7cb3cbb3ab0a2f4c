"""``from_krammar`` and ``to_krammar`` on columns."""

from __future__ import annotations

from typing import Any

import kafka_wire
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from krammar.spark.errors import OptionError
from krammar.spark.functions import from_krammar, to_krammar
from tests.spark.logs_support import Folder
from tests.spark.support import fails, load


def test_messages_that_say_their_version(spark: SparkSession, folder: Folder) -> None:
    frame = load(spark, folder.path, subscribe="__consumer_offsets").where("hex(key) like '0001%'")
    found = frame.select(
        from_krammar("key", "OffsetCommitKey").alias("key"),
        from_krammar(F.col("value"), "OffsetCommitValue").alias("value"),
    ).select("key.group", "key.topic", "key.partition", "value.offset")
    assert {tuple(row[:3]): row[3] for row in found.collect()} == folder.offsets


def test_there_and_back(spark: SparkSession, folder: Folder) -> None:
    frame = load(spark, folder.path, subscribe="__transaction_state")
    again = frame.select(
        "value", to_krammar(from_krammar("value", "TransactionLogValue"), "TransactionLogValue")
    )
    pairs = again.collect()
    assert len(pairs) > 8
    assert all(left == right for left, right in pairs)


def test_a_version_from_the_caller(spark: SparkSession, orders: Any) -> None:
    frame = spark.createDataFrame(
        [("0" * 8 + "-0000-0000-0000-000000000009", "eve"), (None, None)],
        "id string, customer string",
    ).select(F.when(F.col("id").isNotNull(), F.struct("id", "customer")).alias("order"))
    data = frame.select(to_krammar("order", "mypkg.orders.OrderPlaced", version=0).alias("data"))
    values = [row.data for row in data.collect()]
    assert values[1] is None
    order = orders.OrderPlaced.decode(bytes(values[0]), 0)
    assert (order.id.int, order.customer, order.lines) == (9, "eve", orders.OrderPlaced().lines)
    read = data.select(from_krammar("data", "mypkg.orders.OrderPlaced", 0).alias("o")).collect()
    assert read[0].o.customer == "eve"
    assert read[1].o is None


def test_malformed_bytes(spark: SparkSession) -> None:
    good = kafka_wire.AbortedTxn(producer_id=7).encode(0)
    frame = spark.createDataFrame([(bytearray(good),), (bytearray(b"?"),)], "data binary")
    with fails("AbortedTxn"):
        frame.select(from_krammar("data", "AbortedTxn")).collect()
    rows = frame.select(from_krammar("data", "AbortedTxn", mode="permissive").alias("a")).collect()
    assert [row.a and row.a.producer_id for row in rows] == [7, None]


def test_values_that_a_message_cannot_carry(spark: SparkSession) -> None:
    frame = spark.sql("select named_struct('producer_id', 1L, 'color', 'red') as data")
    with fails("color"):
        frame.select(to_krammar("data", "AbortedTxn")).collect()
    frame = spark.sql("select named_struct('version', 77S, 'offset', 1L) as data")
    with fails("OffsetCommitValue has no version 77"):
        frame.select(to_krammar("data", "OffsetCommitValue")).collect()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("NoSuch",), "has no message 'NoSuch'"),
        (("MetadataRequest",), "'version': is required"),
        (("MetadataRequest", 99), "99"),
        (("AbortedTxn", None, "DROPMALFORMED"), "needs one of FAILFAST, PERMISSIVE"),
    ],
)
def test_wrong_arguments(spark: SparkSession, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(OptionError) as failure:
        from_krammar("value", *arguments)
    assert message in str(failure.value)
