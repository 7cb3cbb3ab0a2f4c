"""Runs Spark on this machine, with its output in a file."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import SparkSession


class SparkFailed(Exception):
    """A failure in Spark, without stack traces."""


def start_spark(generated: Path, log: Path) -> SparkSession:
    """Start a session with two threads.

    Args:
        generated: a folder with packages that Spark's workers can import.
        log: receives the output of the workers and of the JVM.
    """
    # Workers inherit both variables from the JVM. They need this Python, which has krammar.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = [str(generated), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    from pyspark.sql import SparkSession

    # py4j logs each call that Ctrl-C interrupts to the root logger.
    logging.basicConfig(filename=log)
    with _errors_to(log):
        spark = (
            SparkSession.builder.appName("krammar pipeline")
            .master("local[2]")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.session.timeZone", "UTC")
            # The data is small: more tasks would take longer to start than to run.
            .config("spark.sql.shuffle.partitions", "2")
            # `where offset < 3` then reads three records of a partition.
            .config("spark.sql.python.filterPushdown.enabled", "true")
            .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
            .getOrCreate()
        )
    # PySpark's handler asks the JVM to cancel its jobs, which fails during another call to the JVM.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def tell_failures(
    kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """Convert an error of PySpark to SparkFailed when a block with Spark ends.

    PySpark cannot show its errors any more after the JVM has ended.
    """
    from pyspark.errors import PySparkException

    if isinstance(error, PySparkException):
        lines = str(error).splitlines()
        end = next(
            (at for at, line in enumerate(lines) if line.startswith(("\tat ", "JVM stacktrace"))),
            len(lines),
        )
        raise SparkFailed("\n".join(lines[: min(end, 40)])) from error


def stop_spark(spark: SparkSession) -> None:
    """Stop the session and its JVM, and wait until the JVM has ended."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    process = getattr(gateway, "proc", None)
    if gateway is not None and process is not None:
        gateway.shutdown()
        # The JVM ends when its standard input is closed.
        process.stdin.close()
        process.wait(30)


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Redirect standard error of processes that are started in the block to a file.

    The JVM writes messages before its log level can be set.
    """
    sys.stderr.flush()
    original = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
