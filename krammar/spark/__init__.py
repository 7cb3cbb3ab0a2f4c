"""The Spark data source ``spark.read.format("krammar")``. Needs ``krammar[spark]``.

Spark finds the data source by itself, through the package ``pyspark_krammar``. Sessions that do not search for data
sources need ``register``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from krammar.util.extras import require

require("krammar.spark", "spark")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]

PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, pushdown: bool = False) -> None:
    """Register ``format("krammar")`` in a session, classic or Spark Connect.

    Args:
        pushdown: also set ``spark.sql.python.filterPushdown.enabled``, which is off by default, so that
            filters reduce what is read. Spark 4.1 to 4.3 then store the filters of a query in its data
            frame, and apply them to later queries too: call ``load()`` for each query.
    """
    from krammar.spark.datasource import KrammarDataSource
    from krammar.spark.undocumented import activate_in_threads

    spark.dataSource.register(KrammarDataSource)
    activate_in_threads(spark)
    if pushdown:
        spark.conf.set(PUSHDOWN_SETTING, "true")


def session(
    master: str = "local[*]", config: Mapping[str, str] | None = None, *, pushdown: bool = False
) -> SparkSession:
    """Start a Spark session for a notebook, a script or a test, or return the one that exists.

    It is a session of ``SparkSession.builder``, but its Python workers run this Python, also if its virtual
    environment is not activated, and import PySpark from where it is installed. Spark itself runs the
    ``python3`` of the ``PATH``, and imports PySpark from zip files, which takes a worker a second longer.
    On this machine, the workers talk to the JVM through Unix domain sockets, which takes less processor time than TCP.
    ``PYSPARK_PYTHON`` and ``SPARK_HOME`` take precedence, if they are set.

    Args:
        master: on clusters, the workers need an environment of their own.
        config: settings of Spark.
        pushdown: as in ``register``.
    """
    from krammar.spark.local import start

    settings = dict(config or {})
    if pushdown:
        settings[PUSHDOWN_SETTING] = "true"
    return start(master, settings)
