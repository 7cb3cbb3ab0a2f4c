"""OAUTHBEARER in Spark: driver and workers obtain tokens by themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql import SparkSession

from krammar.broker import Broker
from tests.client.identity import CLIENT_ID, SECRET, granted, identity_provider, token
from tests.spark.support import fails


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker.start(properties=properties) as broker:
        yield str(broker.bootstrap_servers)


def test_client_credentials(
    spark: SparkSession, servers: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with identity_provider() as provider:
        options = {
            "kafka.bootstrap.servers": servers,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": provider.url,
            "kafka.sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                f'clientId="{CLIENT_ID}" clientSecret="{SECRET}" scope="kafka";'
            ),
        }
        rows = spark.createDataFrame([("one",), ("two",)], ["value"])
        writer = rows.write.format("krammar").mode("append").options(**options)
        writer.option("topic", "secured").save()
        reading = options | {"subscribe": "secured", "startingOffsets": "earliest"}
        assert spark.read.format("krammar").options(**reading).load().count() == 2
        query = (
            spark.readStream.format("krammar")
            .options(**reading)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path_factory.mktemp("checkpoint")))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert sum(progress.numInputRows for progress in query.recentProgress) == 2
        assert {request["scope"] for request in provider.requests} == {"kafka"}
        # Another scope is another token, which this provider has expired already.
        provider.answer = lambda: granted(token("alice", -60), expires_in=-60)
        reading["kafka.sasl.jaas.config"] = reading["kafka.sasl.jaas.config"].replace(
            'scope="kafka"', 'scope="other"'
        )
        with fails("the broker refuses the token: Authentication failed: the token has expired"):
            spark.read.format("krammar").options(**reading).load().count()
