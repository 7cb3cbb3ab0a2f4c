"""TLS and SCRAM: the same settings, by Kafka's names, for both data sources."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from confluent_kafka.admin import ScramMechanism
from pyspark.sql import SparkSession

from tests.interop import content
from tests.interop.spark.alike import OURS, THEIRS, Case, Expected, compare, outcome
from tests.interop.spark.cluster import Cluster

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("password", "expected"),
    [("alice-secret", Expected.SAME), ("another", Expected.ERRORS)],
    ids=["right", "wrong"],
)
def test_a_login(
    spark: SparkSession,
    cluster: Cluster,
    written: content.Written,
    password: str,
    expected: Expected,
) -> None:
    if not cluster.secured:
        pytest.skip("certificates are made with openssl, which is not installed")
    content.set_password(cluster.admin, "alice", "alice-secret", ScramMechanism.SCRAM_SHA_512)
    options = {
        "kafka.bootstrap.servers": ",".join(cluster.secured),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{MODULE} required username="alice" password="{password}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(cluster.authority),
        "subscribe": "plain",
    }
    says = "" if expected is Expected.SAME else "SCRAM"
    found = [outcome(spark, kind, options) for kind in (OURS, THEIRS)]
    assert compare(Case(options, expected, says=says), *found) is None
    assert (len(found[0]) > 0) == (expected is Expected.SAME)
