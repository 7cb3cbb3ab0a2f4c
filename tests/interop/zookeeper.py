"""Apache Kafka of releases before KRaft: a broker, and the ZooKeeper that it needs, in a process each."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from tests.interop.apache import SMALL_JVM, java
from tests.interop.processes import Server
from tests.ports import free_port


class ZooKeeper(Server):
    """ZooKeeper with one node."""

    name = "ZooKeeper"

    def __init__(self, folder: Path, release: str) -> None:
        super().__init__(folder)
        self.release = release

    def answers(self) -> bool:
        """Whether it has opened its port, which it does last."""
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def command(self) -> list[str]:
        config = self.folder.with_name(f"{self.folder.name}.properties")
        config.write_text(
            f"dataDir={self.folder}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\n"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return java("zookeeper", main, str(config), jvm=SMALL_JVM, release=self.release)


class ZooKeeperKafka(Server):
    """A broker with a ZooKeeper of its own."""

    name = "Apache Kafka with ZooKeeper"

    def __init__(
        self, folder: Path, release: str, *, properties: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(folder)
        self.release = release
        self.properties = dict(properties or {})
        self.zookeeper = ZooKeeper(folder.with_name(f"{folder.name}-zookeeper"), release)
        self.port = free_port()

    def command(self) -> list[str]:
        config = self.folder.with_name(f"{self.folder.name}.properties")
        properties = {
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{self.zookeeper.port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.folder),
            "offsets.topic.num.partitions": "5",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "5",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.properties,
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return java("zookeeper", "kafka.Kafka", str(config), jvm=SMALL_JVM, release=self.release)

    def start(self, timeout: float = 60) -> float:
        self.zookeeper.start(timeout)
        return super().start(timeout)

    def stop(self, timeout: float = 60) -> int:
        try:
            return super().stop(timeout)
        finally:
            self.zookeeper.stop(timeout)
