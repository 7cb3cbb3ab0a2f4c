"""A cluster of Apache Kafka and a Spark session that knows both data sources: krammar's, and the connector
that Spark itself has for Kafka."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.broker.security.certificates import Authority
from tests.interop import content
from tests.interop.apache import class_path
from tests.interop.processes import Unavailable
from tests.interop.spark.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def cluster(kafka_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    if shutil.which("openssl") is not None:
        cluster.secure(Authority(tmp_path_factory.mktemp("certificates")))
    with cluster:
        yield cluster


@pytest.fixture(scope="session")
def written(cluster: Cluster) -> content.Written:
    """Topics with all kinds of content, one of them compacted; each has one replica."""
    done = content.write(cluster.bootstrap)
    content.wait_for_compaction(cluster.bootstrap, "compacted", 3000)
    return done


@pytest.fixture(scope="session")
def connector_jars() -> str:
    """Skips without Java, Maven, or the connector's jars."""
    try:
        return class_path("connector")
    except Unavailable as missing:
        pytest.skip(f"Spark's own Kafka connector: {missing}")


@pytest.fixture(scope="session")
def spark(connector_jars: str) -> Iterator[SparkSession]:
    """A session with Spark's own Kafka connector."""
    pyspark_sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    # Otherwise Spark's workers run the python3 on the PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        pyspark_sql.SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars", connector_jars.replace(":", ","))
        # Short queries, so that compiling less takes less time.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
