"""Apache Kafka's own command-line tools, with our broker behind them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop import content
from tests.interop.apache import tool
from tests.interop.conftest import AGAINST_APACHE
from tests.interop.processes import Server
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("kafka_jars")

TOOLS = "org.apache.kafka.tools"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"

Run = Callable[..., str]


@pytest.fixture
def run(broker: Server) -> Run:
    """A tool's output; its name, then its arguments behind ``--bootstrap-server``."""

    def run(name: str, *arguments: str, text: str | None = None, check: bool = True) -> str:
        main = name if name.startswith(("org.", "kafka.")) else f"{TOOLS}.{name}"
        done = tool(
            main, "--bootstrap-server", broker.bootstrap, *arguments, text=text, check=check
        )
        return done.stdout + ("" if check else done.stderr)

    return run


def fill(broker: Server, topic: str, count: int, partition: int = 0) -> None:
    source = content.producer(broker.bootstrap)
    began = int(time.time() * 1000) - 3_600_000
    for number in range(count):
        source.produce(
            topic,
            f"value {number}",
            key=f"key {number}",
            partition=partition,
            timestamp=began + number,
        )
    content.flush(source)


def test_topics(run: Run) -> None:
    made = run(
        "TopicCommand", "--create", "--topic", "made", "--partitions", "3",
        "--config", "retention.ms=1000000", "--config", "cleanup.policy=compact",
    )  # fmt: skip
    assert "Created topic made" in made
    assert "already exists" in run("TopicCommand", "--create", "--topic", "made", check=False)
    assert "made" in run("TopicCommand", "--list").split()
    told = run("TopicCommand", "--describe", "--topic", "made")
    assert "PartitionCount: 3" in told
    assert "retention.ms=1000000" in told
    assert "cleanup.policy=compact" in told
    assert told.count("Leader: 1\tReplicas: 1\tIsr: 1") == 3
    run("TopicCommand", "--alter", "--topic", "made", "--partitions", "5")
    assert "PartitionCount: 5" in run("TopicCommand", "--describe", "--topic", "made")
    fewer = run("TopicCommand", "--alter", "--topic", "made", "--partitions", "2", check=False)
    assert re.search("fewer|decrease|higher|below|currently has 5", fewer), fewer
    for flag in ("--under-replicated-partitions", "--unavailable-partitions"):
        assert run("TopicCommand", "--describe", flag).strip() == ""
    run("TopicCommand", "--delete", "--topic", "made")
    assert "made" not in run("TopicCommand", "--list").split()
    assert "does not exist" in run("TopicCommand", "--describe", "--topic", "made", check=False)
    bad = run("TopicCommand", "--create", "--topic", "bad name", check=False)
    assert re.search("illegal|invalid", bad, re.IGNORECASE), bad
    many = run("TopicCommand", "--create", "--topic", "r", "--replication-factor", "3", check=False)
    assert "replica" in many.lower()


@pytest.mark.parametrize("codec", content.CODECS)
def test_console(run: Run, topic: str, codec: str) -> None:
    lines = [f"k{number}:line {number} é" for number in range(200)]
    run(
        "ConsoleProducer", "--topic", topic, "--compression-codec", codec,
        "--reader-property", "parse.key=true", "--reader-property", "key.separator=:",
        text="\n".join(lines) + "\n",
    )  # fmt: skip
    read = run(
        "consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--group", f"console-{codec}",
        "--max-messages", "200", "--timeout-ms", "20000",
        "--formatter-property", "print.key=true", "--formatter-property", "key.separator=:",
        "--isolation-level", "read_committed",
    )  # fmt: skip
    assert sorted(read.splitlines()) == sorted(lines)


def test_console_consumer_reads_internal_topics(run: Run, broker: Server, topic: str) -> None:
    member = content.consumer(broker.bootstrap, "kept")
    member.commit(offsets=[content.TopicPartition(topic, 1, 7)], asynchronous=False)
    member.close()
    read = run(
        "consumer.ConsoleConsumer", "--topic", "__consumer_offsets", "--from-beginning",
        "--formatter", f"{TOOLS}.consumer.OffsetsMessageFormatter", "--timeout-ms", "3000",
    )  # fmt: skip
    entries = [json.loads(line) for line in read.replace("}{", "}\n{").splitlines()]
    mine = [entry for entry in entries if entry["key"]["data"].get("group") == "kept"]
    assert mine[0]["key"]["data"] == {"group": "kept", "topic": topic, "partition": 1}
    assert mine[0]["value"]["data"]["offset"] == 7


def test_consumer_groups(run: Run, broker: Server, topic: str) -> None:
    fill(broker, topic, 50, 0)
    fill(broker, topic, 30, 1)
    read = [
        "consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--group", "told",
        "--max-messages", "80", "--timeout-ms", "20000",
    ]  # fmt: skip
    assert len(run(*read).splitlines()) == 80
    assert "told" in run(GROUPS, "--list").split()
    states = run(GROUPS, "--list", "--state")
    assert re.search(r"told\s+Empty", states), states

    def rows() -> dict[str, tuple[str, str, str]]:
        told = run(GROUPS, "--describe", "--group", "told")
        found = [line.split() for line in told.splitlines() if line.startswith("told")]
        return {row[2]: (row[3], row[4], row[5]) for row in found}

    assert rows() == {"0": ("50", "50", "0"), "1": ("30", "30", "0")}
    state = run(GROUPS, "--describe", "--group", "told", "--state")
    assert "Empty" in state
    assert "127.0.0.1" in state or "localhost" in state
    reset = [GROUPS, "--group", "told", "--reset-offsets", "--execute"]
    run(*reset, "--topic", f"{topic}:0", "--to-offset", "20")
    run(*reset, "--topic", f"{topic}:1", "--shift-by", "-5")
    assert rows() == {"0": ("20", "50", "30"), "1": ("25", "30", "5")}
    run(*reset, "--all-topics", "--to-earliest")
    assert rows() == {"0": ("0", "50", "50"), "1": ("0", "30", "30")}
    run(*reset, "--all-topics", "--to-datetime", "2100-01-01T00:00:00.000")
    assert rows() == {"0": ("50", "50", "0"), "1": ("30", "30", "0")}
    run(*reset, "--all-topics", "--by-duration", "P1D")
    assert rows() == {"0": ("0", "50", "50"), "1": ("0", "30", "30")}
    run(GROUPS, "--group", "told", "--delete-offsets", "--topic", f"{topic}:1")
    assert list(rows()) == ["0"]
    assert "was successful" in run(GROUPS, "--group", "told", "--delete")
    assert "told" not in run(GROUPS, "--list").split()
    gone = run(GROUPS, "--describe", "--group", "told", check=False)
    assert re.search("does not exist|not found", gone), gone


def test_members_of_a_group(run: Run, broker: Server, topic: str) -> None:
    fill(broker, topic, 10)
    member = content.consumer(broker.bootstrap, "joined", client_id="the-member")
    member.subscribe([topic])
    while member.poll(PATIENCE) is None:
        pass
    told = run(GROUPS, "--describe", "--group", "joined", "--members", "--verbose")
    assert "the-member" in told
    assert f"{topic}(0,1)" in told.replace(" ", "") or re.search(rf"{topic}\S*:?0,1", told), told
    assert "Stable" in run(GROUPS, "--describe", "--group", "joined", "--state")
    busy = run(GROUPS, "--group", "joined", "--delete", check=False)
    assert re.search("not empty|NonEmpty", busy), busy
    member.close()


def test_configs(run: Run, topic: str) -> None:
    command = "kafka.admin.ConfigCommand"
    entity = ["--entity-type", "topics", "--entity-name", topic]
    changed = "retention.ms=99999,cleanup.policy=[compact,delete]"
    run(command, *entity, "--alter", "--add-config", changed)
    told = run(command, *entity, "--describe")
    assert "retention.ms=99999" in told
    assert "cleanup.policy=compact,delete" in told
    run(command, *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=99999" not in run(command, *entity, "--describe")
    everything = run(command, *entity, "--describe", "--all")
    for name in ("segment.bytes=1073741824", "max.message.bytes=1048588", "min.insync.replicas=1"):
        assert name in everything
    bad = run(command, *entity, "--alter", "--add-config", "retention.ms=abc", check=False)
    assert "retention.ms" in bad
    assert re.search("Invalid|ConfigException", bad), bad

    for target, name in (
        (["--entity-name", "1"], "log.cleaner.threads=2"),
        (["--entity-default"], "message.max.bytes=1234567"),
    ):
        run(command, "--entity-type", "brokers", *target, "--alter", "--add-config", name)
        assert name in run(command, "--entity-type", "brokers", *target, "--describe")
        key = name.partition("=")[0]
        run(command, "--entity-type", "brokers", *target, "--alter", "--delete-config", key)
        assert name not in run(command, "--entity-type", "brokers", *target, "--describe")
    everything = run(
        command, "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"
    )
    assert "node.id=1" in everything


def test_users(run: Run) -> None:
    command = "kafka.admin.ConfigCommand"
    user = ["--entity-type", "users", "--entity-name", "eve"]
    run(command, *user, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=x]")
    assert "SCRAM-SHA-256=iterations=8192" in run(command, *user, "--describe")
    run(command, *user, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert "iterations" not in run(command, *user, "--describe")


def test_verifiable_producer_and_consumer(run: Run, topic: str) -> None:
    produced = [
        json.loads(line)
        for line in run(
            "VerifiableProducer", "--topic", topic, "--max-messages", "2000",
            "--acks", "-1", "--value-prefix", "7",
        ).splitlines()
    ]  # fmt: skip
    acknowledged = [one for one in produced if one["name"] == "producer_send_success"]
    assert len(acknowledged) == 2000
    assert produced[-1]["sent"] == produced[-1]["acked"] == 2000
    consumed = [
        json.loads(line)
        for line in run(
            "VerifiableConsumer", "--topic", topic, "--group-id", "verified",
            "--max-messages", "2000", "--reset-policy", "earliest", "--verbose",
        ).splitlines()
    ]  # fmt: skip
    values = [one["value"] for one in consumed if one["name"] == "record_data"]
    assert sorted(values) == sorted(one["value"] for one in acknowledged)
    commits = [one for one in consumed if one["name"] == "offsets_committed"]
    assert commits
    assert all(one["success"] for one in commits)


def test_performance_tools(run: Run, broker: Server, topic: str) -> None:
    server = f"bootstrap.servers={broker.bootstrap}"
    for extra in ([], ["--transactional-id", "perf", "--transaction-duration-ms", "200"]):
        said = tool(
            f"{TOOLS}.ProducerPerformance",
            "--topic", topic, "--num-records", "20000", "--record-size", "500", "--throughput", "-1",
            "--producer-props", server, "compression.type=lz4", *extra,
        ).stdout  # fmt: skip
        assert "20000 records sent" in said.splitlines()[-1]
    said = run(
        "ConsumerPerformance", "--topic", topic, "--num-records", "40000", "--timeout", "20000"
    )
    assert len(said.splitlines()) == 2
    assert int(said.splitlines()[1].split(",")[4]) >= 40000
    done = tool(f"{TOOLS}.EndToEndLatency", "--bootstrap-server", broker.bootstrap, "--topic", topic,
                "--num-records", "200", "--producer-acks", "all", "--record-size", "100")  # fmt: skip
    assert "Percentiles" in done.stdout


def test_transactions(run: Run, broker: Server, topic: str) -> None:
    source = content.transactional(broker.bootstrap, "told-tx")
    source.begin_transaction()
    source.produce(topic, "open", partition=0)
    content.flush(source)
    told = run("TransactionsCommand", "list")
    assert re.search(r"told-tx\s+\d+\s+\d+\s+Ongoing", told), told
    told = run("TransactionsCommand", "describe", "--transactional-id", "told-tx")
    assert f"{topic}-0" in told
    assert "Ongoing" in told
    producers = run(
        "TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0"
    )
    assert len(producers.splitlines()) == 2
    hanging = run("TransactionsCommand", "find-hanging", "--broker-id", "1")
    assert topic not in hanging
    run("TransactionsCommand", "forceTerminateTransaction", "--transactionalId", "told-tx")
    assert "Ongoing" not in run("TransactionsCommand", "list")
    fill(broker, topic, 1)
    values = content.read(broker.bootstrap, [(topic, 0)], committed=True)[topic, 0]
    assert [record[4] for record in values] == [b"value 0"]


def test_transactional_copier(broker: Server, run: Run, topic: str) -> None:
    """Kafka's consume-transform-produce program, offsets in the transaction."""
    fill(broker, topic, 300, 0)
    content.create(content.admin(broker.bootstrap), f"{topic}-copy", 2)
    tool(
        f"{TOOLS}.TransactionalMessageCopier",
        "--broker-list", broker.bootstrap, "--input-topic", topic, "--input-partition", "0",
        "--output-topic", f"{topic}-copy", "--max-messages", "300", "--consumer-group", "copier",
        "--transaction-size", "50", "--transactional-id", "copier", "--enable-random-aborts",
    )  # fmt: skip
    copied = content.read(
        broker.bootstrap, [(f"{topic}-copy", index) for index in range(2)], committed=True
    )
    values = [record[4] for records in copied.values() for record in records]
    assert sorted(values) == sorted(f"value {number}".encode() for number in range(300))
    told = run(GROUPS, "--describe", "--group", "copier")
    assert re.search(rf"{topic}\s+0\s+300\s+300\s+0", told), told


def test_offsets(run: Run, broker: Server, topic: str) -> None:
    fill(broker, topic, 12, 1)
    assert set(run("GetOffsetShell", "--topic", topic).split()) == {f"{topic}:0:0", f"{topic}:1:12"}
    assert f"{topic}:1:0" in run("GetOffsetShell", "--topic", topic, "--time", "earliest")
    assert f"{topic}:1:11" in run("GetOffsetShell", "--topic", topic, "--time", "max-timestamp")
    assert f"{topic}:1:0" in run("GetOffsetShell", "--topic", topic, "--time", "1000")
    assert f"{topic}:1:0" in run("GetOffsetShell", "--topic", topic, "--time", "earliest-local")


def test_delete_records(run: Run, broker: Server, topic: str, tmp_path: Path) -> None:
    fill(broker, topic, 10, 1)
    orders = tmp_path / "orders.json"
    order = {"topic": topic, "partition": 1, "offset": 4}
    orders.write_text(json.dumps({"partitions": [order], "version": 1}))
    told = run("DeleteRecordsCommand", "--offset-json-file", str(orders))
    assert "low_watermark: 4" in told
    assert content.read(broker.bootstrap, [(topic, 1)])[topic, 1][0][0] == 4


def test_log_dirs(run: Run, broker: Server, topic: str) -> None:
    fill(broker, topic, 10, 1)
    told = run("LogDirsCommand", "--describe", "--topic-list", topic)
    found = json.loads(next(line for line in told.splitlines() if line.startswith("{")))
    (described,) = found["brokers"][0]["logDirs"]
    assert described["logDir"] == str(broker.folder)
    assert described["error"] is None
    sizes = {one["partition"]: one["size"] for one in described["partitions"]}
    assert sizes[f"{topic}-0"] == 0
    assert (
        sizes[f"{topic}-1"]
        == (broker.folder / f"{topic}-1" / "00000000000000000000.log").stat().st_size
    )


def test_cluster(broker: Server) -> None:
    told = tool(f"{TOOLS}.ClusterTool", "cluster-id", "--bootstrap-server", broker.bootstrap).stdout
    assert re.fullmatch(r"Cluster ID: [\w-]{22}\n", told), told
    told = tool(
        f"{TOOLS}.ClusterTool", "list-endpoints", "--bootstrap-server", broker.bootstrap
    ).stdout
    assert re.search(rf"1\s+127.0.0.1\s+{broker.port}\s", told), told


def test_api_versions(run: Run) -> None:
    told = run("BrokerApiVersionsCommand")
    assert "Produce(0)" in told
    # One broker, and nothing that the tool's client would not get on with.
    assert "ERROR" not in told
    if not AGAINST_APACHE:
        assert "UNSUPPORTED" not in re.sub(r"\w+\(\d+\): UNSUPPORTED", "", told)


def test_features(run: Run) -> None:
    told = run("FeatureCommand", "describe")
    assert re.search(r"Feature: metadata.version\s.*FinalizedVersionLevel: \S+", told), told
    assert re.search(r"Feature: transaction.version\s.*FinalizedVersionLevel: 2", told), told


def test_groups_of_all_kinds(run: Run, broker: Server, topic: str) -> None:
    member = content.consumer(broker.bootstrap, "plain-group")
    member.commit(offsets=[content.TopicPartition(topic, 1, 7)], asynchronous=False)
    member.close()
    told = run("GroupsCommand", "--list")
    assert re.search(r"plain-group\s+Classic", told), told
