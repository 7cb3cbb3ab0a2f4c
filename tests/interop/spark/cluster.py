"""Three brokers of Apache Kafka on loopback, each a controller too, that can be stopped one by one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from tests.broker.security.certificates import Authority
from tests.interop.apache import ApacheKafka, tool
from tests.interop.content import admin
from tests.ports import free_port
from tests.support.waiting import PATIENCE

NODES = (1, 2, 3)
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class Cluster:
    """All nodes are both broker and controller, so that one of them can be missing. Replication is
    threefold by default, and what two replicas have is acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Addresses of the listeners that want a login.
        self.secured: list[str] = []
        self.authority: Path | None = None
        self.brokers = {
            node: ApacheKafka(folder / f"node-{node}", standalone=False, jvm=_JVM) for node in NODES
        }
        voters = ",".join(
            f"{node}@127.0.0.1:{broker.controller_port}" for node, broker in self.brokers.items()
        )
        for node, broker in self.brokers.items():
            broker.properties |= {
                "node.id": str(node),
                "controller.quorum.voters": voters,
                "default.replication.factor": "3",
                "min.insync.replicas": "2",
                "offsets.topic.replication.factor": "3",
                "transaction.state.log.replication.factor": "3",
                "transaction.state.log.min.isr": "2",
                # Partitions of a stopped broker get a new leader soon.
                "broker.session.timeout.ms": "4000",
                "broker.heartbeat.interval.ms": "500",
                "replica.lag.time.max.ms": "10000",
                "controlled.shutdown.retry.backoff.ms": "500",
                "log.cleaner.backoff.ms": "500",
                "num.network.threads": "1",
                "num.io.threads": "4",
                "log.cleaner.dedupe.buffer.size": "4194304",
            }

    @property
    def bootstrap(self) -> str:
        """All brokers, whether they run or not."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def folders(self) -> list[Path]:
        return [broker.folder for broker in self.brokers.values()]

    @cached_property
    def admin(self) -> AdminClient:
        return admin(self.bootstrap)

    def secure(self, authority: Authority) -> None:
        """One more listener on all nodes, with TLS and a login by SCRAM. Before the start."""
        self.authority = authority.certificate
        pair = authority.issue("cluster")
        for broker in self.brokers.values():
            named = {
                "PLAINTEXT": broker.port,
                "CONTROLLER": broker.controller_port,
                "SASL_SSL": free_port(),
            }
            self.secured.append(f"127.0.0.1:{named['SASL_SSL']}")
            module = "org.apache.kafka.common.security.scram.ScramLoginModule"
            broker.properties |= {
                "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in named.items()),
                "listener.security.protocol.map": ",".join(
                    f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in named
                ),
                "inter.broker.listener.name": "PLAINTEXT",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{module} required;",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(pair.store),
                "connection.failed.authentication.delay.ms": "20",
            }

    def __enter__(self) -> Self:
        try:
            # A node answers only after most of the others are there.
            with ThreadPoolExecutor(len(NODES)) as pool:
                list(pool.map(lambda broker: broker.start(PATIENCE), self.brokers.values()))
            self.until(lambda: len(self.admin.list_topics(timeout=PATIENCE).brokers) == len(NODES))
        except BaseException:
            self.kill_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def stop_all(self) -> None:
        """In order. All at once, for the last two could not agree that they may go."""
        with ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(lambda broker: broker.stop(20), self.brokers.values()))

    def kill_all(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    def until(self, reached: Callable[[], bool], timeout: float = PATIENCE) -> None:
        """Ask until a function returns true. Raises AssertionError after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                if reached():
                    return
            except KafkaException as error:
                said = error
            else:
                said = None
            assert time.monotonic() < deadline, f"{reached.__doc__ or 'it'} does not come: {said}"
            time.sleep(0.2)

    # Brokers that come and go.

    def kill(self, node: int) -> None:
        """With SIGKILL; returns when others lead all that it led."""
        self.brokers[node].kill()
        self.until(lambda: all(p.leader not in (node, -1) for p in self._replicated()))

    def stop(self, node: int) -> None:
        """With SIGTERM, upon which a broker hands over its partitions and leaves."""
        self.brokers[node].stop(PATIENCE)
        self.until(lambda: all(p.leader not in (node, -1) for p in self._replicated()))

    def start(self, node: int) -> None:
        """Again; returns when it has caught up with all that it has replicas of."""
        self.brokers[node].start(PATIENCE)
        self.until(lambda: all(set(p.isrs) == set(p.replicas) for p in self._replicated()))

    def _replicated(self) -> list[PartitionMetadata]:
        """All partitions that have more than one replica."""
        found = self.admin.list_topics(timeout=PATIENCE).topics.values()
        return [
            partition
            for topic in found
            for partition in topic.partitions.values()
            if len(partition.replicas) > 1
        ]

    # Topics.

    def create(self, name: str, partitions: int, replicas: int = 3, **config: str) -> None:
        """A topic; underscores in the names of ``config`` stand for dots."""
        topic = NewTopic(
            name, partitions, replicas, config={k.replace("_", "."): v for k, v in config.items()}
        )
        self.admin.create_topics([topic], operation_timeout=PATIENCE)[name].result(PATIENCE)

        def led() -> bool:
            """the new topic"""
            found = self.partitions(name)
            return len(found) == partitions and all(p.leader > 0 for p in found.values())

        self.until(led)

    def partitions(self, topic: str) -> dict[int, PartitionMetadata]:
        found: dict[int, PartitionMetadata] = (
            self.admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        )
        return found

    def reassign(self, topic: str, wanted: Mapping[int, list[int]]) -> None:
        """Move partitions to other nodes with Kafka's tool, and wait until the first node leads."""
        moves = [
            {"topic": topic, "partition": partition, "replicas": nodes}
            for partition, nodes in wanted.items()
        ]
        file = self.folder / "reassignment.json"
        file.write_text(json.dumps({"version": 1, "partitions": moves}))
        command = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        running = next(b.bootstrap for b in self.brokers.values() if b.process is not None)
        tool(
            command,
            *("--bootstrap-server", running),
            *("--reassignment-json-file", str(file), "--execute"),
        )

        def moved() -> bool:
            """the reassignment"""
            found = self.partitions(topic)
            return all(
                found[partition].replicas == nodes and set(found[partition].isrs) == set(nodes)
                for partition, nodes in wanted.items()
            )

        self.until(moved)
