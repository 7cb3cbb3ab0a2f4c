"""What only Spark Connect has; ``test_connect.py`` runs it."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.connect.column import Column
from pyspark.sql.connect.session import SparkSession as ConnectSession

from krammar.spark.functions import from_krammar, to_krammar
from tests.spark.logs_support import Folder
from tests.spark.support import fails, load


def test_the_session_is_of_spark_connect(spark: SparkSession) -> None:
    assert isinstance(spark, ConnectSession)


def test_functions_make_its_columns(spark: SparkSession) -> None:
    """With names and with columns."""
    for column in ("value", F.col("value")):
        assert isinstance(from_krammar(column, "AbortedTxn"), Column)
        assert isinstance(to_krammar(column, "AbortedTxn"), Column)


def test_views_and_sql(spark: SparkSession, folder: Folder) -> None:
    spark.sql(
        "create temporary view sizes using krammar"
        f" options (source 'logs', path '{folder.path}', subscribe 'sizes')"
    )
    try:
        found = spark.sql("select offset, length(value) as size from sizes order by offset")
        assert [tuple(row) for row in found.collect()] == [
            (0, 0),
            (1, 900_000),
            (2, 1),
            (3, 900_000),
        ]
    finally:
        spark.catalog.dropTempView("sizes")


def test_errors_of_options_tasks_and_planning(spark: SparkSession, folder: Folder) -> None:
    with fails('is unknown; did you mean "includeHeaders"?'):
        load(spark, folder.path, inclueHeaders=True).count()
    with fails("MissingDataError: topic 'nothing' has no folder below the paths"):
        load(spark, folder.path, subscribe="nothing").count()
    with fails("MalformedRecordError: sizes-0, offset 0"):
        load(spark, folder.path, subscribe="sizes", decode="TopicRecord", mode="FAILFAST").collect()
