"""What Apache Kafka stores before it answers, and what it does when the disk fails: its column in docs/durability.md."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.interop.apache import VERSION, ApacheKafka
from tests.powercut.recorder import available
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("kafka_jars")
needs_strace = pytest.mark.skipif(
    not available(), reason="strace is not installed, or may not trace processes"
)
TP = ck.TopicPartition


class Traced(ApacheKafka):
    """Kafka under strace, which records the calls that force something to the disk, or lets some fail."""

    def __init__(self, folder: Path, *options: str, **more: Any) -> None:
        super().__init__(folder, **more)
        self.trace = folder.with_name("trace")
        self.options = options

    def command(self) -> list[str]:
        strace = ["strace", "-f", "-y", "-o", str(self.trace), *self.options]
        return [*strace, *super().command()]

    def forced(self) -> set[str]:
        """The files and folders below the log folder that were forced to the disk."""
        calls = re.findall(r"(?:fsync|fdatasync)\(\d+<([^>]+)>", self.trace.read_text())
        root = f"{self.folder}/"
        return {path.removeprefix(root) for path in calls if path.startswith(root)}


def traced(folder: Path) -> Traced:
    return Traced(folder, "--seccomp-bpf", "-e", "trace=fsync,fdatasync,msync", "-e", "signal=none")


def create(server: ApacheKafka, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    topic = NewTopic(name, 1, 1, config={k.replace("_", "."): v for k, v in config.items()})
    admin.create_topics([topic])[name].result(PATIENCE)


def produce(server: ApacheKafka, topic: str, *values: bytes, timeout: float = PATIENCE) -> None:
    """Wait for the acknowledgement of all replicas. Raises KafkaException."""
    errors: list[ck.KafkaError] = []
    settings = {"bootstrap.servers": server.bootstrap, "message.timeout.ms": int(timeout * 1000)}
    producer = ck.Producer(settings)
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        producer.poll(0)
    producer.flush(2 * timeout)
    assert len(errors) == len(values)
    for error in filter(None, errors):
        raise ck.KafkaException(error)


def fill(server: ApacheKafka, topic: str) -> None:
    """Write much more than the disk has room for. Raises KafkaException."""
    for _ in range(100):
        produce(server, topic, *[bytes(900_000)] * 5, timeout=10)


def transact(server: ApacheKafka, topic: str, value: bytes, offset: int) -> None:
    consumer = ck.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "group"})
    producer = ck.Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "id"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, value)
    producer.send_offsets_to_transaction(
        [TP(topic, 0, offset)], consumer.consumer_group_metadata(), 60
    )
    producer.commit_transaction(60)
    consumer.close()


def values(server: ApacheKafka, topic: str) -> list[bytes]:
    consumer = ck.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "x", "enable.partition.eof": True}
    )
    consumer.assign([TP(topic, 0, ck.OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(60)) is not None:
        if message.error():
            assert message.error().code() == ck.KafkaError._PARTITION_EOF, message.error()
            break
        found.append(message.value())
    consumer.close()
    return found


def committed(server: ApacheKafka, topic: str) -> int:
    consumer = ck.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "group"})
    [found] = consumer.committed([TP(topic, 0)], 60)
    consumer.close()
    offset: int = found.offset
    return offset


def work(server: ApacheKafka) -> None:
    """What a table's rows are about."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    create(server, "t")
    create(server, "gone")
    produce(server, "t", b"0", b"1")
    transact(server, "t", b"2", 7)
    admin.delete_records([TP("t", 0, 1)])[TP("t", 0)].result(PATIENCE)
    entry = ConfigEntry("retention.ms", "123456", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE)
    admin.delete_topics(["gone"])["gone"].result(PATIENCE)


def test_a_kill(tmp_path: Path) -> None:
    server = ApacheKafka(tmp_path / "data")
    server.start()
    try:
        work(server)
        server.kill()
        server.start()
        # The checkpoint of start offsets is written once a minute, so the deletion is undone.
        assert values(server, "t") == [b"0", b"1", b"2"]
        assert committed(server, "t") == 7
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        assert "gone" not in admin.list_topics(timeout=PATIENCE).topics
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
        found = admin.describe_configs([resource])[resource].result(PATIENCE)
        assert found["retention.ms"].value == "123456"
    finally:
        server.kill()


@needs_strace
def test_what_is_forced_before_the_answer(tmp_path: Path) -> None:
    """Only the metadata log: a power cut can take everything else."""
    server = traced(tmp_path / "data")
    server.start(120)
    try:
        work(server)
        forced = server.forced()
    finally:
        server.kill()
    assert any(path.startswith("__cluster_metadata-0/") for path in forced)
    others = {
        path for path in forced if re.match(r"(t-0|__consumer_offsets|__transaction_state)", path)
    }
    assert not {path for path in others if path.endswith(".log")}
    assert "log-start-offset-checkpoint" not in forced


@needs_strace
def test_flush_messages_forces_records_before_the_answer(tmp_path: Path) -> None:
    server = traced(tmp_path / "data")
    server.start(120)
    try:
        create(server, "t", flush_messages="1")
        produce(server, "t", b"0")
        assert f"t-0/{0:020}.log" in server.forced()
    finally:
        server.kill()


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs to mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def wait_for_end(server: ApacheKafka) -> str:
    """Wait until the process has ended by itself. Returns its log."""
    assert server.process is not None
    assert server.process.wait(PATIENCE) != 0
    return server.log.read_text(errors="replace")


def test_a_full_disk(tmp_path: Path) -> None:
    """The log directory is offline. It is the only one, so the broker stops."""
    with small_disk(tmp_path / "disk", 60) as disk:
        server = ApacheKafka(disk / "data", properties={"log.index.size.max.bytes": "100000"})
        server.start()
        try:
            create(server, "t")
            with pytest.raises(ck.KafkaException):
                fill(server, "t")
            said = wait_for_end(server)
        finally:
            server.kill()
    assert "No space left on device" in said
    assert re.search("log dirs? .* (have )?failed|offline", said), said[-3000:]


@needs_strace
def test_a_failed_fsync(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    server = Traced(
        folder, "-P", f"{folder}/t-0/{0:020}.log", "-e", "inject=fsync,fdatasync:error=EIO"
    )
    server.start(120)
    try:
        create(server, "t", flush_messages="1")
        with pytest.raises(ck.KafkaException):
            produce(server, "t", b"0", timeout=10)
        said = wait_for_end(server)
    finally:
        server.kill()
    assert "Input/output error" in said, said[-3000:]


def test_the_page_names_the_version() -> None:
    page = (Path(__file__).parents[2] / "docs/durability.md").read_text()
    assert f"Apache Kafka {VERSION}" in page
