"""Spark sessions on this machine, whose Python workers can import krammar."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

# Removed when the process ends.
_homes: list[tempfile.TemporaryDirectory[str]] = []


def start(master: str, settings: Mapping[str, str]) -> SparkSession:
    """Start a session, or return the one that exists; ``krammar.spark.session`` describes it."""
    if SparkSession.getActiveSession() is None:
        # Spark reads both variables when it starts its JVM.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if master.startswith("local") and not master.startswith("local-cluster"):
            _leave_out_zips()
            settings = {"spark.python.daemon.module": "krammar.spark.daemon", **settings}
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _leave_out_zips() -> None:
    """Set SPARK_HOME to a folder without PySpark's zip files, unless it is set.

    Workers then import the installed PySpark, with its bytecode.
    """
    installed = Path(pyspark.__path__[0])
    if "SPARK_HOME" in os.environ or not any((installed / "python" / "lib").glob("*.zip")):
        return
    home = tempfile.TemporaryDirectory(prefix="krammar-spark-")
    _homes.append(home)
    for name in ("bin", "jars"):
        Path(home.name, name).symlink_to(installed / name)
    os.environ["SPARK_HOME"] = home.name
