"""Broker settings in server.properties, and their changes at run time."""

from __future__ import annotations

from pathlib import Path

import pytest

from krammar.broker.config import (
    BROKER_CONFIGS,
    BrokerConfig,
    ConfigError,
    Listener,
)
from krammar.broker.config.broker_config import BrokerSettings
from tests.broker.config.support import refusal

INT64_MAX = 2**63 - 1

# Kafka's config/server.properties, except for the folder.
KRAFT = """\
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_kafkas_own_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(KRAFT)
    config = BrokerConfig.from_properties(file)
    assert config.warnings == []
    assert config.node_id == 7
    assert config.log_dirs == [Path("/tmp/kraft-combined-logs")]
    assert config.metadata_log_dir == Path("/tmp/kraft-combined-logs")
    assert config.listeners == [Listener("PLAINTEXT", "PLAINTEXT", "", 9092, "localhost", 9092)]
    assert config.get("num.network.threads") == "3"
    assert config.get("num.replica.fetchers") is None


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.properties: cannot be read: No such file"):
        BrokerConfig.from_properties(tmp_path / "missing.properties")


def test_defaults_are_kafkas() -> None:
    config = BrokerConfig.defaults()
    assert config.listeners == [Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092, "", 0)]
    assert config.node_id == 1
    assert config.num_partitions == 1
    assert config.auto_create_topics_enable is True
    assert config.group_initial_rebalance_delay_ms == 3000
    assert config.offsets_topic_num_partitions == 50
    assert config.transaction_max_timeout_ms == 900000
    assert config.fetch_max_bytes == 55 << 20
    assert config.fsync == "interval"
    log = config.topic_config({})
    assert log == type(log)()


def test_attributes_are_the_keys_values() -> None:
    assert len(BrokerSettings.__annotations__) > 50
    config = BrokerConfig.defaults()
    for name in BrokerSettings.__annotations__:
        assert hasattr(config, name), name
    made_of_several = {"listeners", "log_dirs", "metadata_log_dir", "node_id"}
    own = {
        "cluster_id": "krammar.cluster.id",
        "fsync": "krammar.fsync",
        "fsync_interval_ms": "krammar.fsync.interval.ms",
        "kafka_like_delays_ms": "krammar.kafka.like.delays.ms",
        "client_telemetry": "krammar.client.telemetry",
        "kafka_version": "krammar.kafka.version",
        "metrics": "krammar.metrics",
        "racks": "krammar.racks",
        "oauthbearer_required_scope": "krammar.oauthbearer.required.scope",
        "plain_any_password": "krammar.plain.any.password",
        "start_without": "krammar.start.without",
    }
    for name in set(BrokerSettings.__annotations__) - made_of_several:
        definition = BROKER_CONFIGS[own.get(name, name.replace("_", "."))]
        expected = definition.default
        assert getattr(config, name) == expected, name


def test_defaults_with_overrides(tmp_path: Path) -> None:
    config = BrokerConfig.defaults(
        log_dirs=[tmp_path / "a", tmp_path / "b"],
        num_partitions=3,
        auto_create_topics_enable=False,
        fsync="never",
        broker_rack=None,
        **{"log.retention.ms": "5"},
    )
    assert config.log_dirs == [tmp_path / "a", tmp_path / "b"]
    assert config.metadata_log_dir == tmp_path / "a"
    assert config.num_partitions == 3
    assert config.auto_create_topics_enable is False
    assert config.fsync == "never"
    assert config.broker_rack is None
    assert config.topic_config({}).retention_ms == 5


def test_unknown_override_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r'num_partition: .*did you mean "num\.partitions"\?'):
        BrokerConfig.defaults(num_partition=3)


def test_overrides_go_before_the_file() -> None:
    config = BrokerConfig.from_properties(
        "num.partitions=2\nlog.dirs=/a", {"num.partitions": "5", "node.id": "3"}
    )
    assert (config.num_partitions, config.node_id) == (5, 3)
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties("num.partitions=2", {"num.partitions": "x"})
    assert str(caught.value) == "num.partitions: 'x' needs a whole number"


def test_unknown_keys_are_warnings() -> None:
    config = BrokerConfig.from_properties("log.retantion.hours=3\nqqq=1\nlistener.name.a.ssl.x=1")
    assert config.warnings == [
        'log.retantion.hours: unknown setting; did you mean "log.retention.hours"? '
        "(line 1 of the properties)",
        "qqq: unknown setting (line 2 of the properties)",
    ]


def test_last_of_two_counts() -> None:
    config = BrokerConfig.from_properties("num.partitions=2\n\nnum.partitions=3")
    assert config.num_partitions == 3
    assert config.warnings == ["num.partitions is set twice: line 3 of the properties wins"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("log.segment.bytes=abc", "log.segment.bytes: 'abc' needs a whole number"),
        ("log.segment.bytes=3000000000", "'3000000000' needs at most 2147483647"),
        ("log.retention.bytes=9223372036854775808", "needs at most 9223372036854775807"),
        ("offsets.topic.replication.factor=40000", "needs at most 32767"),
        ("log.segment.bytes=14", "log.segment.bytes: '14' must be at least 1048576"),
        ("log.cleaner.min.cleanable.ratio=1.5", "'1.5' must be no more than 1"),
        ("log.cleaner.min.cleanable.ratio=x", "'x' needs a number"),
        ("auto.create.topics.enable=yes", "'yes' needs true or false"),
        ("log.message.timestamp.type=Never", "must be one of: CreateTime, LogAppendTime"),
        ("log.cleanup.policy=delete,shred", "'shred' must be one of: compact, delete"),
        ("log.cleanup.policy=delete,", "'delete,' contains an empty value"),
        ("log.dirs=", "log.dirs: '' must not be empty"),
        ("compression.gzip.level=0", "'0' must be between 1 and 9 or equal to -1"),
        ("num.io.threads=0", "num.io.threads: '0' must be at least 1"),
        ("krammar.cluster.id=orders", "'orders' must be 22 characters of url-safe base64"),
        ("krammar.fsync=maybe", "'maybe' must be one of: always, interval, never"),
        ("log.retention.ms=0", "log.retention.ms: '0' must be 1 or more, or -1 for no limit"),
        ("log.retention.hours=0", "log.retention.hours: '0' must be 1 or more"),
        ("log.roll.ms=0", "log.roll.ms: '0' must be 1 or more"),
        ("process.roles=controller", "process.roles: 'controller' must include broker"),
        ("node.id=-1", "node.id: '-1' must be at least 0"),
        ("broker.id=-2", "node.id: '-2' must be at least 0"),
        ("listener.name.a.ssl.client.auth=x", "listener.name.a.ssl.client.auth: 'x' must be"),
    ],
)
def test_bad_values_name_key_value_reason_and_line(line: str, reason: str) -> None:
    message = refusal(f"# first\n{line}")
    assert reason in message
    if not line.startswith("broker.id"):
        assert message.endswith("(line 2 of the properties)")


def test_broker_id_and_node_id() -> None:
    assert BrokerConfig.from_properties("broker.id=4").node_id == 4
    assert BrokerConfig.from_properties("broker.id=0").node_id == 0
    assert BrokerConfig.from_properties("broker.id=4\nnode.id=4").node_id == 4
    assert refusal("node.id=3\nbroker.id=4") == (
        "broker.id: '4' is not node.id, 3 (line 2 of the properties)"
    )


def test_folders() -> None:
    config = BrokerConfig.from_properties("log.dir=/x\nlog.dirs=/a, /b\nmetadata.log.dir=/m")
    assert config.log_dirs == [Path("/a"), Path("/b")]
    assert config.metadata_log_dir == Path("/m")
    assert BrokerConfig.from_properties("log.dir=/x").log_dirs == [Path("/x")]


def test_dynamic_settings_go_before_those_of_the_file() -> None:
    config = BrokerConfig.from_properties("log.retention.hours=2\nmessage.max.bytes=100")
    config.set_dynamic(
        {"log.retention.ms": "5", "message.max.bytes": "200"}, {"message.max.bytes": "300"}
    )
    log = config.topic_config({})
    assert (log.retention_ms, log.max_message_bytes) == (5, 300)
    config.set_dynamic({"message.max.bytes": "200"}, {})
    log = config.topic_config({})
    assert (log.retention_ms, log.max_message_bytes) == (2 * 3600_000, 200)
    config.set_dynamic({}, {})
    assert config.topic_config({}).max_message_bytes == 100


def test_dynamic_settings_that_cannot_be_do_not_count() -> None:
    config = BrokerConfig.from_properties("message.max.bytes=100\nnum.partitions=2")
    config.set_dynamic({"message.max.bytes": "many", "num.partitions": "7"}, {})
    assert config.topic_config({}).max_message_bytes == 100
    assert config.num_partitions == 2


@pytest.mark.parametrize(
    ("changes", "own", "api"),
    [
        (
            {"num.partitions": "3", "node.id": "2"},
            False,
            "Cannot update these configs dynamically: [node.id, num.partitions]",
        ),
        (
            {"listener.name.a.ssl.keystore.location": "x"},
            True,
            "Cannot update these configs dynamically: [listener.name.a.ssl.keystore.location]",
        ),
        (
            {"message.max.bytes": "x"},
            True,
            "Invalid value x for configuration message.max.bytes: Not a number of type INT",
        ),
        (
            {"sasl.kerberos.service.name": "x"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[sasl.kerberos.service.name]",
        ),
        (
            {"log.retention.ms": "0"},
            False,
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        ({"log.roll.ms": "-1"}, False, "log.roll.ms must be greater than or equal to 1"),
        (
            {"log.cleaner.min.compaction.lag.ms": "6", "log.cleaner.max.compaction.lag.ms": "5"},
            False,
            "conflict topic config setting min.compaction.lag.ms (6) > max.compaction.lag.ms (5)",
        ),
    ],
)
def test_dynamic_settings_are_refused(changes: dict[str, str], own: bool, api: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.defaults().check_dynamic(changes, own)
    assert caught.value.api == api


def test_dynamic_settings_are_taken() -> None:
    config = BrokerConfig.defaults()
    config.check_dynamic({"message.max.bytes": "5", "of.a.plugin": "x"}, False)
    config.check_dynamic({"sasl.kerberos.service.name": "x"}, True)
    with pytest.raises(ConfigError):
        config.check_dynamic({"message.max.bytes": "five"}, False)


@pytest.mark.parametrize("escape", ["\\u12", "\\u", "\\u12g4", "\\u 123"])
def test_bad_unicode_escape(escape: str) -> None:
    message = refusal(f"\nbroker.rack={escape}")
    assert message == ("broker.rack: \\u needs four hexadecimal digits (line 2 of the properties)")
