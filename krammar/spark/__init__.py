"""Kafka-protocol data in Spark: ``spark.read.format("krammar")``. Needs ``krammar[spark]``.

Spark finds the data source by itself, through the package ``pyspark_krammar``; ``register`` is for
sessions that do not look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, pushdown: bool = False) -> None:
    """Make ``format("krammar")`` known to a session, classic or of Spark Connect.

    ``pushdown`` also turns on ``spark.sql.python.filterPushdown.enabled``, which Spark has off by
    default: without it filters are applied to what was read, with it less is read. Spark 4.1 to 4.3
    then keep the filters of a query with its data frame, for queries without filters too: each
    query needs a ``load()`` of its own.
    """
    from krammar.spark.datasource import KrammarDataSource

    spark.dataSource.register(KrammarDataSource)
    if pushdown:
        spark.conf.set(PUSHDOWN_SETTING, "true")
