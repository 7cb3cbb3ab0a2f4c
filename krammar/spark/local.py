"""Spark sessions on this machine, whose Python workers can import krammar."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from krammar.spark.undocumented import PYSPARK, activate_in_threads

# Removed when the process ends.
_folders: list[tempfile.TemporaryDirectory[str]] = []

# Systems limit the path of a socket, macOS to 103 bytes; Spark's names have 42.
_LONGEST_FOLDER = 60


def start(master: str, settings: Mapping[str, str]) -> SparkSession:
    """Start a session, or return the one that exists; ``krammar.spark.session`` describes it."""
    if SparkSession.getActiveSession() is None:
        # Spark reads both variables when it starts its JVM.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if master.startswith("local") and not master.startswith("local-cluster"):
            _leave_out_zips()
            ours = {"spark.python.daemon.module": "krammar.spark.daemon", **_unix_sockets()}
            settings = {**ours, **settings}
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    activate_in_threads(session)
    return session


def _unix_sockets() -> dict[str, str]:
    """Return the settings with which the JVM and Python use Unix domain sockets: both copy less.

    Connections have no password then, so the sockets are in a folder that only this user can enter.
    """
    if PYSPARK < (4, 1) or not hasattr(socket, "AF_UNIX"):
        return {}
    folder = tempfile.TemporaryDirectory(prefix="krammar-spark-")
    _folders.append(folder)
    if len(os.fsencode(folder.name)) > _LONGEST_FOLDER:
        return {}
    prefix = "spark.python.unix.domain.socket"
    return {f"{prefix}.enabled": "true", f"{prefix}.dir": folder.name}


def _leave_out_zips() -> None:
    """Set SPARK_HOME to a folder without PySpark's zip files, unless it is set.

    Workers then import the installed PySpark, with its bytecode.
    """
    installed = Path(pyspark.__path__[0])
    if "SPARK_HOME" in os.environ or not any((installed / "python" / "lib").glob("*.zip")):
        return
    home = tempfile.TemporaryDirectory(prefix="krammar-spark-")
    _folders.append(home)
    for name in ("bin", "jars"):
        Path(home.name, name).symlink_to(installed / name)
    os.environ["SPARK_HOME"] = home.name
