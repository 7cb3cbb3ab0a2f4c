"""server.properties: its syntax, its keys, its listeners, and what it means for topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from krammar.broker.config import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    BrokerConfig,
    ConfigError,
    Listener,
    UpdateMode,
)
from krammar.broker.config.definitions import to_text
from krammar.broker.config.settings import Settings
from krammar.properties import decode, parse_properties

INT64_MAX = 2**63 - 1

# What Kafka's own config/server.properties says, but for the folder.
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


def read(text: str) -> dict[str, str]:
    return {name: value for name, value, _ in parse_properties(text)}


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties(text)
    return str(caught.value)


# The syntax of .properties. The expectations are what java.util.Properties makes of the same text.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\t\f b", {"a": "b"}),
        ("  a  =  b  ", {"a": "b  "}),
        ("a = = b", {"a": "= b"}),
        ("a : = b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("# a=b\n! c=d\n  # e=f\n\n   \ng=h", {"g": "h"}),
        ("a=#b", {"a": "#b"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\n#c\nd=e", {"a": "b#c", "d": "e"}),
        ("a=b\\\r\n  c\\\r  d", {"a": "bcd"}),
        ("# a\\\nb=c", {"b": "c"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("\\\n# a\nb=c", {"b": "c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\:b\\ c=d", {"a:b c": "d"}),
        ("\\#a=b", {"#a": "b"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e9\\u0041", {"a": "éA"}),
        ("\\u0061=\\uD83D\\uDE00", {"a": "😀"}),
        ("", {}),
    ],
)
def test_syntax(text: str, expected: dict[str, str]) -> None:
    assert read(text) == expected


def test_lines_are_those_that_entries_begin_on() -> None:
    text = "a=1\n\n# x\nb=2\\\n 3\r\nc=4\rd=5"
    assert [(name, line) for name, _, line in parse_properties(text)] == [
        ("a", 1),
        ("b", 4),
        ("c", 6),
        ("d", 7),
    ]


@pytest.mark.parametrize("escape", ["\\u12", "\\u", "\\u12g4", "\\u 123"])
def test_bad_unicode_escape(escape: str) -> None:
    message = refusal(f"\nbroker.rack={escape}")
    assert message == ("broker.rack: \\u needs four hexadecimal digits (line 2 of the properties)")


def test_encodings() -> None:
    assert decode("a=é".encode()) == "a=é"
    assert decode("a=é".encode("utf-8-sig")) == "a=é"
    assert decode("a=é".encode("latin-1")) == "a=é"


# Files.


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
    assert config.log_retention_ms is None
    assert config.fsync == "interval"
    log = config.topic_config({})
    assert log == type(log)()


def test_attributes_are_the_keys_values() -> None:
    config = BrokerConfig.defaults()
    for name in Settings.__annotations__:
        assert hasattr(config, name), name
    made_of_several = {"listeners", "log_dirs", "metadata_log_dir", "node_id"}
    own = {"fsync": "krammar.fsync", "fsync_interval_ms": "krammar.fsync.interval.ms"}
    for name in set(Settings.__annotations__) - made_of_several:
        definition = BROKER_CONFIGS[own.get(name, name.replace("_", "."))]
        expected = None if definition.default is None else definition.parse(definition.default)
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
    assert config.log_retention_ms == 5


def test_unknown_override_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"num_partition: .*did you mean num_partitions\?"):
        BrokerConfig.defaults(num_partition=3)


def test_overrides_go_before_the_file() -> None:
    config = BrokerConfig.from_properties(
        "num.partitions=2\nlog.dirs=/a", {"num.partitions": "5", "node.id": "3"}
    )
    assert (config.num_partitions, config.node_id) == (5, 3)
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties("num.partitions=2", {"num.partitions": "x"})
    assert str(caught.value) == "num.partitions: 'x' is not an integer of 32 bits"


def test_unknown_keys_are_warnings() -> None:
    config = BrokerConfig.from_properties("log.retantion.hours=3\nqqq=1\nlistener.name.a.ssl.x=1")
    assert config.warnings == [
        "log.retantion.hours: there is no such setting; did you mean log.retention.hours? "
        "(line 1 of the properties)",
        "qqq: there is no such setting (line 2 of the properties)",
    ]


def test_last_of_two_counts() -> None:
    config = BrokerConfig.from_properties("num.partitions=2\n\nnum.partitions=3")
    assert config.num_partitions == 3
    assert config.warnings == ["num.partitions is set twice: line 3 of the properties counts"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("log.segment.bytes=abc", "log.segment.bytes: 'abc' is not an integer of 32 bits"),
        ("log.segment.bytes=3000000000", "'3000000000' is not an integer of 32 bits"),
        ("log.retention.bytes=9223372036854775808", "is not an integer of 64 bits"),
        ("offsets.topic.replication.factor=40000", "is not an integer of 16 bits"),
        ("log.segment.bytes=14", "log.segment.bytes: '14' must be at least 1048576"),
        ("log.cleaner.min.cleanable.ratio=1.5", "'1.5' must be no more than 1"),
        ("log.cleaner.min.cleanable.ratio=x", "'x' is not a number"),
        ("auto.create.topics.enable=yes", "'yes' is neither true nor false"),
        ("log.message.timestamp.type=Never", "must be one of: CreateTime, LogAppendTime"),
        ("log.cleanup.policy=delete,shred", "'shred' must be one of: compact, delete"),
        ("log.cleanup.policy=delete,", "'delete,' has an empty value among its values"),
        ("log.dirs=", "log.dirs: '' must not be empty"),
        ("compression.gzip.level=0", "'0' must be between 1 and 9 or equal to -1"),
        ("num.io.threads=0", "num.io.threads: '0' must be at least 1"),
        ("krammar.fsync=maybe", "'maybe' must be one of: always, interval, never"),
        ("log.retention.ms=0", "log.retention.ms: '0' has to be 1 or more, or -1 for no limit"),
        ("log.retention.hours=0", "log.retention.hours: '0' has to be 1 or more"),
        ("log.roll.ms=0", "log.roll.ms: '0' has to be 1 or more"),
        ("process.roles=controller", "process.roles: 'controller' has to name broker"),
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


# Listeners.


def listeners(text: str) -> list[Listener]:
    return BrokerConfig.from_properties(text).listeners


def test_named_listeners_with_their_protocols() -> None:
    found = listeners(
        "listeners=internal://127.0.0.1:9092, EXTERNAL://[::1]:0\n"
        "listener.security.protocol.map=INTERNAL:PLAINTEXT,external:sasl_ssl\n"
        "advertised.listeners=EXTERNAL://kafka.example:19092\n"
        "inter.broker.listener.name=INTERNAL"
    )
    assert found == [
        Listener("INTERNAL", "PLAINTEXT", "127.0.0.1", 9092, "", 0),
        Listener("EXTERNAL", "SASL_SSL", "::1", 0, "kafka.example", 19092),
    ]
    assert [(listener.tls, listener.sasl) for listener in found] == [(False, False), (True, True)]


def test_same_port_for_both_families_of_addresses() -> None:
    found = listeners("listeners=PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092")
    assert [listener.host for listener in found] == ["127.0.0.1", "::1"]
    assert len(listeners("listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0")) == 2


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_all_interfaces_without_an_address_for_clients(host: str) -> None:
    config = BrokerConfig.from_properties(f"listeners=PLAINTEXT://{host}:9092")
    assert config.listeners[0].advertised_host == ""
    assert len(config.warnings) == 1
    assert "set advertised.listeners" in config.warnings[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("listeners=", "must not be empty"),
        ("listeners=localhost:9092", "is not of the form NAME://host:port"),
        ("listeners=PLAINTEXT://localhost", "is not of the form NAME://host:port"),
        ("listeners=PLAINTEXT://my host:1", "is not of the form NAME://host:port"),
        ("listeners=://localhost:1", "is not of the form NAME://host:port"),
        ("listeners=PLAINTEXT://a:99999", "has a port that is not between 0 and 65535"),
        ("listeners=PLAINTEXT://a:1,PLAINTEXT://a:2", "names PLAINTEXT twice"),
        ("listeners=PLAINTEXT://a:1,plaintext://a:2", "names PLAINTEXT twice"),
        ("listeners=PLAINTEXT://:1,SSL://:1", "has port 1 twice"),
        ("listeners=PLAINTEXT://127.0.0.1:1,SSL://127.0.0.2:1", "has port 1 twice"),
        ("listeners=PLAINTEXT://[::1]:1,SSL://[::2]:1", "has port 1 twice"),
        ("listeners=PLAINTEXT://localhost:1,SSL://[::1]:1", "has port 1 twice"),
        ("listeners=A://:1", "has A, which has no security protocol"),
        ("listener.security.protocol.map=A:B", "names none of the protocols PLAINTEXT, SSL"),
        ("listener.security.protocol.map=A", "is not of the form NAME:PROTOCOL"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:1", "is no address that a client can"),
        ("advertised.listeners=PLAINTEXT://[::]:1", "is no address that a client can"),
        ("advertised.listeners=SSL://a:1", "is not one of the listeners PLAINTEXT"),
        ("inter.broker.listener.name=B", "'B' is not one of the listeners PLAINTEXT"),
        (
            "inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=SSL",
            "does not go with security.inter.broker.protocol",
        ),
        (
            "controller.listener.names=C\nlisteners=C://:1\nlistener.security.protocol.map=C:SSL",
            "are a controller's alone",
        ),
    ],
)
def test_listeners_that_cannot_be(text: str, reason: str) -> None:
    message = refusal(text)
    assert reason in message
    assert "of the properties)" in message


# What it means for topics.


@pytest.mark.parametrize(
    ("text", "retention", "roll"),
    [
        ("", 168 * 3600_000, 168 * 3600_000),
        ("log.retention.hours=2\nlog.roll.hours=3", 2 * 3600_000, 3 * 3600_000),
        ("log.retention.minutes=3\nlog.retention.hours=2", 3 * 60_000, 168 * 3600_000),
        ("log.retention.ms=7\nlog.retention.minutes=3\nlog.roll.ms=5", 7, 5),
        ("log.retention.ms=-1", -1, 168 * 3600_000),
        ("log.retention.ms=-5", -1, 168 * 3600_000),
        ("log.retention.hours=-1", -1, 168 * 3600_000),
    ],
)
def test_units_of_time(text: str, retention: int, roll: int) -> None:
    log = BrokerConfig.from_properties(text).topic_config({})
    assert (log.retention_ms, log.segment_ms) == (retention, roll)


def test_topic_before_broker_before_default() -> None:
    config = BrokerConfig.from_properties(
        "log.segment.bytes=2000000\nlog.cleanup.policy=compact\nmessage.max.bytes=500"
    )
    log = config.topic_config({"segment.bytes": "3000000", "max.message.bytes": " 600 "})
    assert log.segment_bytes == 3000000
    assert log.max_message_bytes == 600
    assert log.compacts and not log.deletes
    assert log.index_interval_bytes == 4096


def test_every_topic_key_reaches_the_log() -> None:
    log = BrokerConfig.defaults().topic_config(
        {
            "cleanup.policy": "compact,delete",
            "compression.type": "zstd",
            "delete.retention.ms": "1",
            "file.delete.delay.ms": "2",
            "index.interval.bytes": "3",
            "internal.segment.bytes": "4",
            "max.compaction.lag.ms": "5",
            "max.message.bytes": "6",
            "message.timestamp.after.max.ms": "7",
            "message.timestamp.before.max.ms": "8",
            "message.timestamp.type": "LogAppendTime",
            "min.cleanable.dirty.ratio": "0.25",
            "min.compaction.lag.ms": "4",
            "retention.bytes": "9",
            "retention.ms": "10",
            "segment.bytes": "2000000",
            "segment.index.bytes": "11",
            "segment.ms": "12",
        }
    )
    assert log == type(log)(
        cleanup_policy=frozenset({"compact", "delete"}),
        compression_type="zstd",
        delete_retention_ms=1,
        file_delete_delay_ms=2,
        index_interval_bytes=3,
        segment_bytes=4,
        max_compaction_lag_ms=5,
        max_message_bytes=6,
        message_timestamp_after_max_ms=7,
        message_timestamp_before_max_ms=8,
        message_timestamp_type="LogAppendTime",
        min_cleanable_dirty_ratio=0.25,
        min_compaction_lag_ms=4,
        retention_bytes=9,
        retention_ms=10,
        segment_index_bytes=11,
        segment_ms=12,
    )


@pytest.mark.parametrize(
    ("overrides", "api"),
    [
        ({"foo": "1"}, "Unknown topic config name: foo"),
        (
            {"retention.ms": "abc"},
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            {"retention.ms": "-2"},
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        (
            {"segment.bytes": "5"},
            "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            {"cleanup.policy": "x"},
            "Invalid value x for configuration cleanup.policy: "
            "String must be one of: compact, delete",
        ),
        (
            {"preallocate": "yes"},
            "Invalid value yes for configuration preallocate: "
            "Expected value to be either true or false",
        ),
        (
            {"min.cleanable.dirty.ratio": "2"},
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: "
            "Value must be no more than 1",
        ),
        (
            {"leader.replication.throttled.replicas": "x"},
            "Invalid value [x] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in "
            "the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_topic_settings_are_refused_in_kafkas_words(overrides: dict[str, str], api: str) -> None:
    config = BrokerConfig.defaults()
    for check in (config.check_topic_config, config.topic_config):
        with pytest.raises(ConfigError) as caught:
            check(overrides)
        assert caught.value.api == api


def test_settings_of_another_version_do_not_keep_a_topic_from_opening() -> None:
    log = BrokerConfig.defaults().topic_config(
        {"message.format.version": "3.0", "segment.bytes": "1000", "retention.ms": "soon"},
        check=False,
    )
    assert log.segment_bytes == 1000
    assert log.retention_ms == 168 * 3600_000


# Changes at run time.


def test_dynamic_settings_go_before_those_of_the_file() -> None:
    config = BrokerConfig.from_properties("log.retention.hours=2\nmessage.max.bytes=100")
    config.set_dynamic(
        {"log.retention.ms": "5", "message.max.bytes": "200"}, {"message.max.bytes": "300"}
    )
    log = config.topic_config({})
    assert (log.retention_ms, log.max_message_bytes) == (5, 300)
    assert (config.message_max_bytes, config.log_retention_ms) == (300, 5)
    assert config.effective("message.max.bytes") == "300"
    config.set_dynamic({"message.max.bytes": "200"}, {})
    log = config.topic_config({})
    assert (log.retention_ms, log.max_message_bytes) == (2 * 3600_000, 200)
    assert config.log_retention_ms is None
    config.set_dynamic({}, {})
    assert config.topic_config({}).max_message_bytes == 100


def test_dynamic_settings_that_cannot_be_do_not_count() -> None:
    config = BrokerConfig.from_properties("message.max.bytes=100\nnum.partitions=2")
    config.set_dynamic({"message.max.bytes": "many", "num.partitions": "7"}, {})
    assert config.message_max_bytes == 100
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


# The tables.


def test_tables_are_whole() -> None:
    public = [each for each in TOPIC_CONFIGS.values() if not each.internal]
    assert len(public) == 37
    for definition in TOPIC_CONFIGS.values():
        assert definition.doc.endswith("."), definition.name
        for name, _ in definition.synonyms:
            broker = BROKER_CONFIGS[name]
            assert definition.synonym is not None
            if name == definition.synonym:
                assert broker.mode is UpdateMode.CLUSTER_WIDE
                assert broker.type == definition.type
    assert TOPIC_CONFIGS["retention.ms"].synonym == "log.retention.ms"
    assert TOPIC_CONFIGS["remote.log.copy.disable"].synonym is None
    for name in ("listeners", "num.partitions", "krammar.fsync"):
        assert BROKER_CONFIGS[name].effect
    for name in ("num.network.threads", "replica.fetch.max.bytes", "controller.quorum.voters"):
        assert not BROKER_CONFIGS[name].effect
    for definition in BROKER_CONFIGS.values():
        assert definition.doc.endswith("."), definition.name
        if definition.default is not None:
            definition.parse(definition.default)


def test_secrets() -> None:
    secret = {name for name, each in BROKER_CONFIGS.items() if each.sensitive}
    assert {"ssl.keystore.password", "ssl.key.password", "sasl.jaas.config"} <= secret
    assert "ssl.keystore.location" not in secret


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (0.5, "0.5"),
        (0.0001, "1.0E-4"),
        (12345678.0, "1.2345678E7"),
        (1234567.0, "1234567.0"),
        (-3e300, "-3.0E300"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (INT64_MAX, "9223372036854775807"),
        (["a", "b"], "a,b"),
        (None, None),
    ],
)
def test_values_are_shown_as_java_shows_them(value: object, text: str | None) -> None:
    assert to_text(value) == text
