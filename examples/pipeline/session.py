"""Spark, on this machine alone, with its own output in a file."""

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
    """What Spark says has failed, without its stack traces."""


def start_spark(generated: Path, log: Path) -> SparkSession:
    """A session with two threads. Spark's workers find the packages below ``generated``; what they and
    the JVM say goes to ``log``."""
    # Workers inherit both from the JVM. They need this Python, for it has krammar.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = [str(generated), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    from pyspark.sql import SparkSession

    # py4j tells the root logger of each call that Ctrl-C has broken off.
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
    # PySpark's own asks the JVM to cancel its jobs, which fails while another question is open.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def tell_failures(
    kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """For the exit of a block in which Spark runs: raises SparkFailed for an error of PySpark, which
    cannot be shown any more when the JVM has ended."""
    from pyspark.errors import PySparkException

    if isinstance(error, PySparkException):
        lines = str(error).splitlines()
        end = next(
            (at for at, line in enumerate(lines) if line.startswith(("\tat ", "JVM stacktrace"))),
            len(lines),
        )
        raise SparkFailed("\n".join(lines[: min(end, 40)])) from error


def stop_spark(spark: SparkSession) -> None:
    """End the session and its JVM, and wait for that: nothing stays behind."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    process = getattr(gateway, "proc", None)
    if gateway is not None and process is not None:
        gateway.shutdown()
        # The JVM lives as long as its input.
        process.stdin.close()
        process.wait(30)


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Processes that are started inside write their errors to a file. The JVM says things before it can
    be told not to."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
