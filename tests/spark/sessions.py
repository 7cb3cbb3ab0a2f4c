"""Spark sessions for tests: small, on loopback."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Set to "connect", all tests here have a session of Spark Connect, whose server has one of Spark's builder.
MODE = "KRAMMAR_SPARK_TESTS"

_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    # Short queries, so that compiling less takes less time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # Fifteen seconds by default, which are over on a loaded machine before the other side answers.
    "spark.python.authenticate.socketTimeout": "2m",
}


def local() -> SparkSession:
    """Start the session of most tests, as docs/spark.md does. Its workers start many times faster than those of
    ``classic``, because they are forked with their imports."""
    import krammar.spark

    session = krammar.spark.session("local[2]", _SETTINGS)
    session.sparkContext.setLogLevel("OFF")
    return session


def classic(more: Mapping[str, str]) -> SparkSession:
    """Start a session of Spark's builder with its own JVM. It should be the only one of the process."""
    from pyspark.sql import SparkSession

    # Otherwise Spark's workers run the python3 of the PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**_SETTINGS, **more}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def remote(address: str) -> SparkSession:
    """A session on a server of Spark Connect. Raises ImportError if grpc is missing, or another package
    that its client needs."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.remote(address).getOrCreate()
