"""Kafka Connect as processes: workers of a distributed cluster, and MirrorMaker 2."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.interop.apache import SMALL_JVM, java
from tests.interop.processes import Server


class _Connect(Server):
    """A main class of Connect with a file of properties."""

    main: str

    def __init__(self, folder: Path, properties: Mapping[str, str]) -> None:
        super().__init__(folder)
        self.properties = dict(properties)

    def command(self) -> list[str]:
        config = self.folder.with_name(f"{self.folder.name}.properties")
        config.write_text("".join(f"{name}={value}\n" for name, value in self.properties.items()))
        return java("connect", self.main, str(config), jvm=SMALL_JVM)

    def answers(self) -> bool:
        return True


class MirrorMaker(_Connect):
    """MirrorMaker 2 as a process of its own. ``start`` does not wait for it."""

    name = "MirrorMaker 2"
    main = "org.apache.kafka.connect.mirror.MirrorMaker"


class Worker(_Connect):
    """A worker of Connect whose sources write in transactions."""

    name = "a worker of Kafka Connect"
    main = "org.apache.kafka.connect.cli.ConnectDistributed"

    def __init__(self, folder: Path, bootstrap: str) -> None:
        super().__init__(folder, {})
        self.properties = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "listeners": f"http://127.0.0.1:{self.port}",
            "plugin.discovery": "service_load",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "500",
            # The tasks of a killed worker move after 6 s, not after 5 minutes.
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            "consumer.isolation.level": "read_committed",
        }
        for kind in ("config", "offset", "status"):
            self.properties[f"{kind}.storage.topic"] = f"connect-{kind}"
            self.properties[f"{kind}.storage.replication.factor"] = "1"

    def answers(self) -> bool:
        return self.ask("GET", "/") is not None

    def ask(self, method: str, path: str, content: object = None) -> Any:
        """Ask the worker's REST interface; None if it refuses, is silent, or does not know."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            None if content is None else json.dumps(content).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return None

    def running(self, connector: str) -> str | None:
        """Return the id (host:port) of the worker that runs the connector's only task; None if no one does."""
        status = self.ask("GET", f"/connectors/{connector}/status")
        tasks = status["tasks"] if status else []
        return tasks[0]["worker_id"] if tasks and tasks[0]["state"] == "RUNNING" else None


def pause() -> None:
    """Let Connect work for a moment, between two requests."""
    time.sleep(0.2)


def committed(
    bootstrap: str, topic: str, partition: int, count: int, begin: int = 0
) -> list[Message]:
    """Read the committed messages of a partition to its end, for at most 30 s until there are ``count`` of them."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "reads",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, begin)])
    got: list[Message] = []
    ends = time.monotonic() + 30
    try:
        while time.monotonic() < ends:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                got.append(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif len(got) >= count:
                break
    finally:
        consumer.close()
    return got
