"""Apache Kafka writes a folder, our broker starts on a copy of it and serves what Kafka served."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, TopicPartition

from krammar.logfiles.names import CLEAN_SHUTDOWN, RUNNING
from krammar.util.boot import current_boot
from tests.interop import content
from tests.interop.apache import ApacheKafka, apache_kafka, tool
from tests.interop.conftest import AGAINST_APACHE, our_broker
from tests.interop.dump import dump, files
from tests.interop.processes import Krammar, Server
from tests.support.waiting import PATIENCE

# Compacts at once; the copies of the folder do not change.
EAGER = {"log.cleaner.backoff.ms": "100"}
LAZY = {"log_cleaner_backoff_ms": "600000"}


@dataclass
class Left:
    """A folder of a stopped Apache Kafka, and the records that it showed to a client before."""

    kafka: ApacheKafka
    seen: dict[str, Any]
    # Values of records that Kafka acknowledged while it was killed.
    acknowledged: tuple[list[bytes], ...] = ()

    def copy(self, where: Path, **properties: str) -> Server:
        """Our broker, not started, on a copy."""
        shutil.copytree(self.kafka.folder, where)
        if not (where / CLEAN_SHUTDOWN).exists():
            # Kafka's folder does not tell a kill from a power cut, after which our broker aborts open transactions.
            running = {"version": 0, "boot": str(current_boot()), "fsync": "never"}
            (where / RUNNING).write_text(json.dumps(running))
        broker = our_broker(where, **properties)
        if isinstance(broker, ApacheKafka):
            broker.controller_port = self.kafka.controller_port
            broker.standalone = self.kafka.standalone
        return broker


def fill(kafka: ApacheKafka) -> dict[str, Any]:
    content.write(kafka.bootstrap)
    _written_by_its_tools(kafka.bootstrap)
    content.wait_for_compaction(kafka.bootstrap, "compacted", 3000)
    return content.observe(kafka.bootstrap)


def _written_by_its_tools(bootstrap: str) -> None:
    """What our broker has no api to write, but has to read over: quotas, defaults for all brokers, groups
    of the newer protocol."""
    for arguments in (
        [
            "--entity-type",
            "clients",
            "--entity-name",
            "c",
            "--add-config",
            "consumer_byte_rate=1000000",
        ],
        [
            "--entity-type",
            "brokers",
            "--entity-default",
            "--add-config",
            "log.retention.ms=700000000",
        ],
        [
            "--entity-type",
            "users",
            "--entity-name",
            "dave",
            "--add-config",
            "SCRAM-SHA-512=[password=d]",
        ],
    ):
        tool("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, "--alter", *arguments)
    member = content.consumer(bootstrap, "g-next", group_protocol="consumer")
    member.subscribe(["plain"])
    read: list[Message] = []
    while len(read) < 360:
        read += member.consume(360, PATIENCE)
    member.commit(asynchronous=False)
    member.close()


@pytest.fixture(scope="module")
def stopped(kafka_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Stopped in order; the voters are in records."""
    folder = tmp_path_factory.mktemp("stopped") / "kafka"
    scram = ["SCRAM-SHA-256=[name=carol,password=carol-secret]"]
    with apache_kafka(folder, properties=EAGER, scram=scram) as kafka:
        return Left(kafka, fill(kafka))


@pytest.fixture(scope="module")
def killed(kafka_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Killed while two producers were at work; the voters are in server.properties."""
    folder = tmp_path_factory.mktemp("killed") / "kafka"
    with apache_kafka(folder, properties=EAGER, standalone=False) as kafka:
        content.create(content.admin(kafka.bootstrap), "load", 2)
        seen = fill(kafka)
        for part in ("offsets", "records", "committed records"):
            for partition in range(2):
                del seen[part]["load", partition]
        return Left(kafka, seen, _kill_under_load(kafka))


def _kill_under_load(kafka: ApacheKafka) -> tuple[list[bytes], list[bytes]]:
    """Values that were acknowledged in both partitions of ``load``: the second's by an idempotent
    producer."""
    acknowledged: tuple[list[bytes], list[bytes]] = ([], [])
    enough = threading.Event()
    over = threading.Event()

    def done(error: Any, message: Message) -> None:
        if error is None:
            acknowledged[message.partition()].append(message.value())
        if all(len(values) > 3000 for values in acknowledged):
            enough.set()

    def produce(partition: int) -> None:
        source = content.producer(
            kafka.bootstrap,
            linger_ms=1,
            enable_idempotence=bool(partition),
            message_timeout_ms=60_000,
        )
        number = 0
        while not over.is_set():
            if len(source) < 2000:
                value = f"{partition}-{number:08d}-".encode() + bytes(200)
                source.produce("load", value, partition=partition, on_delivery=done)
                number += 1
            else:
                source.poll(0.01)
        source.purge()
        source.flush(1)

    threads = [threading.Thread(target=produce, args=(partition,)) for partition in (0, 1)]
    for thread in threads:
        thread.start()
    try:
        assert enough.wait(PATIENCE)
        kafka.kill()
    finally:
        over.set()
        for thread in threads:
            thread.join()
    return acknowledged


@pytest.fixture(scope="module", params=["stopped", "killed"])
def left(request: pytest.FixtureRequest) -> Left:
    found: Left = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def seen(left: Left, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a client sees of our broker on a copy."""
    with left.copy(tmp_path_factory.mktemp("seen") / "ours", **LAZY) as broker:
        found = content.observe(broker.bootstrap)
    if left.acknowledged:
        for part in ("offsets", "records", "committed records"):
            for partition in range(2):
                del found[part]["load", partition]
    return found


@pytest.mark.parametrize(
    "part",
    ["cluster", "topics", "records", "committed records", "offsets", "configs", "groups", "users"],
)
def test_a_client_sees_the_same(left: Left, seen: dict[str, Any], part: str) -> None:
    assert content.differences(left.seen[part], seen[part]) == []


def test_acknowledged_records_outlive_the_kill(killed: Left, tmp_path: Path) -> None:
    with killed.copy(tmp_path / "ours", **LAZY) as broker:
        found = content.read(broker.bootstrap, [("load", 0), ("load", 1)])
    for partition, acknowledged in enumerate(killed.acknowledged):
        records = found["load", partition]
        values = [record[4] for record in records]
        assert [record[0] for record in records] == list(range(len(records)))
        assert set(acknowledged) <= set(values)
        assert len(set(values)) == len(values)
        assert values == sorted(values)


def test_it_goes_on_where_kafka_stopped(left: Left, tmp_path: Path) -> None:
    with left.copy(tmp_path / "ours", **LAZY) as broker:
        client = content.admin(broker.bootstrap)
        before = left.seen["records"]

        source = content.producer(broker.bootstrap, enable_idempotence=True)
        for topic in ("plain", "codecs", "rolled", "cut", "transactional"):
            source.produce(topic, "from krammar", partition=0)
        content.flush(source)
        wanted = [(topic, 0) for topic in ("plain", "codecs", "rolled", "cut", "transactional")]
        after = content.read(broker.bootstrap, wanted)
        for where in wanted:
            assert after[where][:-1] == before[where]
            last = left.seen["offsets"][where]["latest, read_uncommitted"][0]
            assert (after[where][-1][0], after[where][-1][4]) == (last, b"from krammar")

        # Two transactions were open when Kafka stopped. New producers with the same ids end them.
        for name in ("tx-open", "tx-open-offsets"):
            content.transactional(broker.bootstrap, name)
        stable = content.read(broker.bootstrap, [("open", 0)], committed=True)["open", 0]
        assert [record[4] for record in stable] == [b"before", b"after"]
        groups = content.observe(broker.bootstrap)["groups"]
        assert groups["g-pending"]["offsets"] == []
        assert content.differences(left.seen["groups"], groups) == []

        again = content.transactional(broker.bootstrap, "tx-1")
        again.begin_transaction()
        again.produce("open", "by the old name", partition=0)
        again.commit_transaction(PATIENCE)
        stable = content.read(broker.bootstrap, [("open", 0)], committed=True)["open", 0]
        assert stable[-1][4] == b"by the old name"

        member = content.consumer(broker.bootstrap, "g-plain")
        member.commit(offsets=[TopicPartition("plain", 2, 55)], asynchronous=False)
        member.close()
        content.create(client, "new", 2)
        assert content.topics(broker.bootstrap)["new"] == 2
        stored = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g-plain")])
        offsets = {
            item.partition: item.offset for item in stored["g-plain"].result().topic_partitions
        }
        assert offsets == {0: 99, 1: 11, 2: 55}


def test_what_kafka_wrote_stays_as_it_is(left: Left, tmp_path: Path) -> None:
    with left.copy(tmp_path / "ours", **LAZY) as broker:
        content.read(broker.bootstrap, [("plain", 0)])
    for file in files(left.kafka.folder, "[!_]*/*.log"):
        ours = tmp_path / "ours" / file.relative_to(left.kafka.folder)
        assert ours.read_bytes() == file.read_bytes(), ours


def test_kafka_reads_the_indexes_that_were_made_anew(killed: Left, tmp_path: Path) -> None:
    """Indexes of a killed Kafka have zeros at their ends. The broker that opens them cuts them."""
    with killed.copy(tmp_path / "ours", **LAZY) as broker:
        content.read(broker.bootstrap, [("plain", 0)])
    result = dump(
        tmp_path / "ours", files(tmp_path / "ours", "[!_]*/*index"), "--index-sanity-check"
    )
    assert result.complaints == []


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        ("SCRAM-SHA-256", "alice", "alice-secret"),
        ("SCRAM-SHA-512", "bob", "b"),
        ("SCRAM-SHA-256", "carol", "carol-secret"),
        ("SCRAM-SHA-512", "dave", "d"),
    ],
)
def test_users_log_in_with_their_passwords(
    stopped: Left, logins: str, mechanism: str, user: str, password: str
) -> None:
    def client(word: str) -> Consumer:
        return content.consumer(
            logins,
            "unused",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_username=user,
            sasl_password=word,
        )

    right = client(password)
    assert "plain" in right.list_topics(timeout=PATIENCE).topics
    right.close()
    wrong = client(password + "x")
    with pytest.raises(Exception, match=r"TRANSPORT|AUTHENTICATION|timed out"):
        wrong.list_topics(timeout=2)
    wrong.close()


@pytest.fixture(scope="module")
def logins(stopped: Left, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where our broker takes users of a folder that Kafka wrote."""
    from tests.ports import free_port

    if AGAINST_APACHE:
        pytest.skip("Apache Kafka has a listener without passwords here")
    port = free_port()
    broker = stopped.copy(tmp_path_factory.mktemp("logins") / "ours", **LAZY)
    assert isinstance(broker, Krammar)
    broker.properties |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    }
    with broker:
        yield f"127.0.0.1:{port}"


def test_kafka_takes_its_folder_back(stopped: Left, tmp_path: Path) -> None:
    """After our broker has written to it."""
    broker = stopped.copy(tmp_path / "there", **LAZY)
    with broker:
        source = content.producer(broker.bootstrap, enable_idempotence=True)
        source.produce("plain", "from krammar", partition=0)
        content.flush(source)
        content.create(content.admin(broker.bootstrap), "made-by-krammar", 1)
        member = content.consumer(broker.bootstrap, "g-krammar")
        member.commit(offsets=[TopicPartition("plain", 2, 55)], asynchronous=False)
        member.close()
        expected = content.observe(broker.bootstrap)
    kafka = ApacheKafka(broker.folder, properties={"log.cleaner.backoff.ms": "600000"})
    kafka.controller_port = stopped.kafka.controller_port
    with kafka:
        assert content.differences(expected, content.observe(kafka.bootstrap)) == []
