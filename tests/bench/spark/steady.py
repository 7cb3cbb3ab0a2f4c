"""A query over a topic that grows steadily, with a trigger of one second: what its micro-batches take."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.bench.broker.contenders import Ours
from tests.bench.broker.measure import WAIT, client
from tests.bench.spark.jobs import FORMATS, ROWS
from tests.broker.security.certificates import Authority
from tests.interop.processes import Server
from tests.ports import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RATE = 500  # records per second
PLAINTEXT, SECURED = "PLAINTEXT", "SASL_SSL, SCRAM"
_PASSWORD = "alice-secret"
_ITERATIONS = 4096
_PHASES = (
    "triggerExecution",
    "addBatch",
    "latestOffset",
    "queryPlanning",
    "walCommit",
    "commitOffsets",
)


@dataclass(frozen=True)
class Steady:
    """A setting: how clients reach the broker, and how many partitions the topic has."""

    listener: str
    partitions: int

    @property
    def title(self) -> str:
        return f"{self.listener}, {self.partitions} partitions"

    @property
    def topic(self) -> str:
        return f"steady-{self.partitions}"


SETTINGS = [Steady(PLAINTEXT, 4), Steady(PLAINTEXT, 64), Steady(SECURED, 4)]

# Milliseconds of each phase of a micro-batch, as Spark reports them.
Durations = dict[str, int]


class Secured(Ours):
    """The broker with a second listener, for TLS and a login with SCRAM."""

    def __init__(self, folder: Path) -> None:
        self.secured = free_port()
        place = folder.with_name(f"{folder.name}-certificates")
        place.mkdir()
        self.authority = Authority(place)
        super().__init__(folder)
        self.properties |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},SASL_SSL://127.0.0.1:{self.secured}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.issue("server").store),
            "log.retention.ms": "-1",
        }

    def add_user(self) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        change = UserScramCredentialUpsertion("alice", info, _PASSWORD.encode())
        admin = AdminClient(client(self))
        admin.alter_user_scram_credentials([change])["alice"].result(WAIT)

    def options(self, listener: str) -> dict[str, str]:
        """Of a reader, by Kafka's names."""
        if listener == PLAINTEXT:
            return {"kafka.bootstrap.servers": self.bootstrap}
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            "kafka.bootstrap.servers": f"127.0.0.1:{self.secured}",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{module} required username="alice" password="{_PASSWORD}";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.authority.certificate),
        }


@contextmanager
def growing(broker: Server, setting: Steady) -> Iterator[None]:
    """The topic, which gets ``RATE`` records a second, of 100 bytes."""
    admin = AdminClient(client(broker))
    if setting.topic not in admin.list_topics(timeout=WAIT).topics:
        topic = NewTopic(setting.topic, setting.partitions, 1)
        admin.create_topics([topic])[setting.topic].result(WAIT)
    producer = Producer(client(broker, linger_ms=5))
    ended = threading.Event()

    def produce() -> None:
        began, sent = time.monotonic(), 0
        while not ended.wait(0.02):
            due = int((time.monotonic() - began) * RATE)
            for index in range(sent, due):
                producer.produce(setting.topic, b"v" * 100, partition=index % setting.partitions)
            sent = max(sent, due)
            producer.poll(0)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        producer.flush(WAIT)


def micro_batches(
    spark: SparkSession,
    contender: str,
    broker: Secured,
    setting: Steady,
    checkpoint: Path,
    count: int,
    *,
    warm: int,
) -> list[Durations]:
    """What ``count`` micro-batches took, after the first ``warm`` ones of the query."""
    if contender == ROWS:
        options = {"rows": str(RATE // setting.partitions), "tasks": str(setting.partitions)}
    else:
        options = {"subscribe": setting.topic, **broker.options(setting.listener)}
    query = (
        spark.readStream.format(FORMATS[contender])
        .options(**options)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="1 second")
        .start()
    )
    found: dict[int, Durations] = {}
    try:
        deadline = time.monotonic() + WAIT + 3 * (warm + count)
        while len(found) < warm + count:
            if time.monotonic() > deadline or not query.isActive:
                raise RuntimeError(f"{len(found)} micro-batches: {query.exception()}")
            time.sleep(0.5)
            found |= {
                progress["batchId"]: progress["durationMs"]
                for progress in _progress(query)
                if progress["numInputRows"]
            }
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    return [found[number] for number in sorted(found)[warm : warm + count]]


def _progress(query: StreamingQuery) -> list[Any]:
    return list(query.recentProgress)
