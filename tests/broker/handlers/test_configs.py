"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources over a socket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka_wire import (
    AlterConfigOp,
    AlterConfigsRequest,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    DescribeConfigsRequest,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)

from krammar.broker import Broker, BrokerConfig
from krammar.broker.config import BROKER_CONFIGS, TOPIC_CONFIGS
from tests.broker.requests import create_topic
from tests.broker.support import RawClient

TOPIC = ConfigResourceType.TOPIC
BROKER = ConfigResourceType.BROKER
SET, DELETE, APPEND, SUBTRACT = (
    AlterConfigOp.SET,
    AlterConfigOp.DELETE,
    AlterConfigOp.APPEND,
    AlterConfigOp.SUBTRACT,
)
ALTERATIONS = ["alter", "incremental"]


def describe(
    client: RawClient,
    kind: int,
    name: str,
    keys: Sequence[str] | None = None,
    version: int = 4,
    **options: bool,
) -> Any:
    """The one result of a request for one resource."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=keys
            )
        ],
        **options,
    )
    (result,) = client.call(request, version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def entry(client: RawClient, kind: int, name: str, key: str) -> Any:
    result = describe(client, kind, name, [key], include_synonyms=True)
    assert result.error_code == 0, result
    (found,) = result.configs
    return found


def value(client: RawClient, kind: int, name: str, key: str) -> str | None:
    return entry(client, kind, name, key).value  # type: ignore[no-any-return]


def incremental(
    client: RawClient,
    kind: int,
    name: str,
    *operations: tuple[str, int, str | None],
    validate_only: bool = False,
    version: int = 1,
) -> tuple[int, str | None]:
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(
                        name=key, config_operation=operation, value=text
                    )
                    for key, operation, text in operations
                ],
            )
        ],
        validate_only=validate_only,
    )
    (response,) = client.call(request, version).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    return response.error_code, response.error_message


def alter(
    client: RawClient,
    kind: int,
    name: str,
    configs: dict[str, str | None],
    validate_only: bool = False,
    version: int = 2,
) -> tuple[int, str | None]:
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsRequest.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    AlterConfigsRequest.AlterableConfig(name=key, value=text)
                    for key, text in configs.items()
                ],
            )
        ],
        validate_only=validate_only,
    )
    (response,) = client.call(request, version).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    return response.error_code, response.error_message


def change(
    how: str, client: RawClient, kind: int, name: str, key: str, text: str | None, **options: bool
) -> tuple[int, str | None]:
    """Set one key by either request."""
    if how == "alter":
        return alter(client, kind, name, {key: text}, **options)
    return incremental(client, kind, name, (key, SET, text), **options)


# DescribeConfigs.


@pytest.mark.parametrize("version", range(1, 5))
def test_topic_in_every_version(client: RawClient, version: int) -> None:
    create_topic(client, "orders", retention_ms="5000")
    documentation = version >= 3
    result = describe(
        client,
        TOPIC,
        "orders",
        version=version,
        include_synonyms=True,
        include_documentation=documentation,
    )
    assert (result.error_code, result.error_message) == (0, "")
    found = {config.name: config for config in result.configs}
    assert set(found) == {each.name for each in TOPIC_CONFIGS.values() if not each.internal}
    retention = found["retention.ms"]
    assert retention.value == "5000"
    assert retention.config_source == ConfigSource.TOPIC_CONFIG
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("retention.ms", "5000", ConfigSource.TOPIC_CONFIG)
    ]
    policy = found["cleanup.policy"]
    assert policy.value == "delete"
    assert policy.config_source == ConfigSource.DEFAULT_CONFIG
    assert [(each.name, each.value, each.source) for each in policy.synonyms] == [
        ("log.cleanup.policy", "delete", ConfigSource.DEFAULT_CONFIG)
    ]
    assert not any(config.read_only or config.is_sensitive for config in result.configs)
    if documentation:
        assert policy.config_type == ConfigType.LIST
        assert retention.config_type == ConfigType.LONG
        assert found["preallocate"].config_type == ConfigType.BOOLEAN
        assert found["min.cleanable.dirty.ratio"].config_type == ConfigType.DOUBLE
        assert policy.documentation == TOPIC_CONFIGS["cleanup.policy"].doc


def test_synonyms_and_documentation_only_when_asked_for(client: RawClient) -> None:
    create_topic(client, "orders")
    for config in describe(client, TOPIC, "orders").configs:
        assert config.synonyms == []
        assert config.documentation is None


def test_some_keys_of_a_topic(client: RawClient) -> None:
    create_topic(client, "orders")
    result = describe(client, TOPIC, "orders", ["segment.ms", "no.such", "cleanup.policy"])
    assert [config.name for config in result.configs] == ["cleanup.policy", "segment.ms"]
    # As Kafka reads it, no key means every key.
    assert len(describe(client, TOPIC, "orders", []).configs) > 30


def test_internal_key_of_a_topic_is_shown_when_it_is_set(client: RawClient) -> None:
    create_topic(client, "orders", internal_segment_bytes="1000")
    assert value(client, TOPIC, "orders", "internal.segment.bytes") == "1000"


def test_topic_that_is_not_there(client: RawClient) -> None:
    result = describe(client, TOPIC, "missing")
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert result.configs == []
    for name in ("", "a b", "..", "x" * 250):
        result = describe(client, TOPIC, name)
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", range(1, 5))
def test_broker_in_every_version(client: RawClient, version: int) -> None:
    result = describe(client, BROKER, "1", version=version, include_synonyms=True)
    assert (result.error_code, result.error_message) == (0, "")
    found = {config.name: config for config in result.configs}
    assert set(found) == {each.name for each in BROKER_CONFIGS.values() if not each.internal}
    assert found["node.id"].value == "1"
    assert found["node.id"].read_only
    assert found["num.io.threads"].value == "8"
    assert not found["message.max.bytes"].read_only
    assert found["message.max.bytes"].config_source == ConfigSource.DEFAULT_CONFIG
    assert found["log.dirs"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    for config in result.configs:
        assert config.is_sensitive == BROKER_CONFIGS[config.name].secret
        if config.is_sensitive:
            assert config.value is None


@pytest.fixture
def secretive(tmp_path: Path) -> Iterator[RawClient]:
    properties = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.password": "hush",
        "listener.name.other.plain.sasl.jaas.config": "hush",
        "of.a.plugin": "hush",
        "log.retention.hours": "2",
        "log.segment.bytes": "2000000",
    }
    config = BrokerConfig.from_properties("", properties)
    with Broker.start(config) as broker, RawClient(broker.port) as client:
        yield client


def test_secrets_are_never_shown(secretive: RawClient) -> None:
    result = describe(secretive, BROKER, "1", include_synonyms=True, include_documentation=True)
    found = {config.name: config for config in result.configs}
    for name in (
        "ssl.keystore.password",
        "listener.name.other.plain.sasl.jaas.config",
        # Unknown settings may be secrets.
        "of.a.plugin",
    ):
        assert found[name].is_sensitive, name
        assert found[name].value is None
        assert found[name].config_source == ConfigSource.STATIC_BROKER_CONFIG
        assert [each.value for each in found[name].synonyms] == [None]
    assert found["of.a.plugin"].config_type == ConfigType.UNKNOWN
    assert found["ssl.keystore.password"].config_type == ConfigType.PASSWORD
    assert "hush" not in repr(result)


def test_settings_of_the_file_are_told_apart(secretive: RawClient) -> None:
    create_topic(secretive, "orders")
    segment = entry(secretive, TOPIC, "orders", "segment.bytes")
    assert (segment.value, segment.config_source) == ("2000000", ConfigSource.STATIC_BROKER_CONFIG)
    assert [(each.name, each.value, each.source) for each in segment.synonyms] == [
        ("log.segment.bytes", "2000000", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    ]
    assert value(secretive, TOPIC, "orders", "retention.ms") == "7200000"
    hours = entry(secretive, BROKER, "1", "log.retention.hours")
    assert (hours.value, hours.read_only) == ("2", True)
    assert hours.config_source == ConfigSource.STATIC_BROKER_CONFIG


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (BROKER, "2", "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x", "Broker id must be an integer, but it is: x"),
        (ConfigResourceType.BROKER_LOGGER, "", "Broker id must not be empty"),
        (ConfigResourceType.BROKER_LOGGER, "2", "Unexpected broker id, expected 1 but received 2"),
        (ConfigResourceType.BROKER_LOGGER, "1", "This broker has no loggers that can be described"),
        (ConfigResourceType.GROUP, "", "Group name must not be empty"),
        (
            ConfigResourceType.CLIENT_METRICS,
            "",
            "Client metrics subscription name must not be empty",
        ),
        (ConfigResourceType.UNKNOWN, "a", "Unexpected resource type 0 for resource a"),
        (77, "a", "Unexpected resource type 77 for resource a"),
    ],
)
def test_resources_that_cannot_be_described(
    client: RawClient, kind: int, name: str, message: str
) -> None:
    result = describe(client, kind, name)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert result.configs == []


GROUP = ConfigResourceType.GROUP


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        (
            "consumer.session.timeout.ms",
            "1",
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (
            "consumer.session.timeout.ms",
            "x",
            "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT",
        ),
        ("consumer.nothing", "1", "Unknown group config name: consumer.nothing"),
    ],
)
def test_settings_of_groups_that_are_refused(
    client: RawClient, key: str, text: str, message: str
) -> None:
    assert incremental(client, GROUP, "g", (key, SET, text)) == (ErrorCode.INVALID_CONFIG, message)
    assert client.call(ListConfigResourcesRequest(resource_types=[GROUP]), 1).config_resources == []


@pytest.mark.parametrize("how", ALTERATIONS)
def test_settings_of_groups(tmp_path: Path, how: str) -> None:
    key = "consumer.session.timeout.ms"
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert value(client, GROUP, "g", key) == "45000"
        assert change(how, client, GROUP, "g", key, "50000") == (0, None)
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        (config,) = (c for c in describe(client, GROUP, "g").configs if c.name == key)
        assert (config.value, config.config_source) == ("50000", ConfigSource.GROUP_CONFIG)
        assert value(client, GROUP, "other", key) == "45000"
        (listed,) = client.call(
            ListConfigResourcesRequest(resource_types=[GROUP]), 1
        ).config_resources
        assert (listed.resource_name, listed.resource_type) == ("g", GROUP)


def test_each_resource_is_answered_on_its_own(client: RawClient) -> None:
    create_topic(client, "a")
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)
            for kind, name in ((TOPIC, "missing"), (TOPIC, "a"), (BROKER, "9"), (BROKER, "1"))
        ]
    )
    results = client.call(request).results
    assert [result.error_code for result in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]


# Altering a topic.


@pytest.mark.parametrize("version", range(3))
def test_alter_replaces_everything(client: RawClient, broker: Broker, version: int) -> None:
    create_topic(client, "orders", retention_ms="5000", segment_ms="7")
    new: dict[str, str | None] = {"retention.ms": "6000", "max.message.bytes": "900"}
    assert alter(client, TOPIC, "orders", new, version=version) == (0, None)
    assert broker.call(lambda: broker.cluster.configs[TOPIC, "orders"]) == new
    assert entry(client, TOPIC, "orders", "segment.ms").config_source == ConfigSource.DEFAULT_CONFIG
    log = broker.logs.get("orders", 0)
    assert log is not None
    assert (log.config.retention_ms, log.config.max_message_bytes) == (6000, 900)
    assert log.config.segment_ms == 604800000
    assert alter(client, TOPIC, "orders", {}, version=version) == (0, None)
    assert value(client, TOPIC, "orders", "retention.ms") == "604800000"


@pytest.mark.parametrize("version", range(2))
def test_incremental_changes_what_it_names(client: RawClient, broker: Broker, version: int) -> None:
    create_topic(client, "orders", 2, retention_ms="5000", segment_ms="7")
    done = incremental(
        client,
        TOPIC,
        "orders",
        ("retention.ms", SET, "6000"),
        ("segment.ms", DELETE, None),
        ("max.message.bytes", SET, "900"),
        # A setting that is not set can be deleted, even if it is unknown.
        ("no.such", DELETE, None),
        version=version,
    )
    assert done == (0, None)
    assert broker.call(lambda: broker.cluster.configs[TOPIC, "orders"]) == {
        "retention.ms": "6000",
        "max.message.bytes": "900",
    }
    for partition in range(2):
        log = broker.logs.get("orders", partition)
        assert log is not None
        assert (log.config.retention_ms, log.config.max_message_bytes) == (6000, 900)


def test_lists_grow_and_shrink(client: RawClient) -> None:
    create_topic(client, "orders")
    policy = "cleanup.policy"

    def after(operation: int, text: str) -> str | None:
        assert incremental(client, TOPIC, "orders", (policy, operation, text)) == (0, None)
        return value(client, TOPIC, "orders", policy)

    # The first change starts from the default.
    assert after(APPEND, "compact") == "delete,compact"
    assert after(APPEND, "compact,delete") == "delete,compact"
    assert after(SUBTRACT, "delete") == "compact"
    assert after(SUBTRACT, "delete") == "compact"
    assert after(SUBTRACT, "compact") == ""
    assert after(APPEND, "compact,delete") == "compact,delete"


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
@pytest.mark.parametrize("key", ["retention.ms", "no.such"])
def test_only_lists_grow_and_shrink(client: RawClient, operation: int, key: str) -> None:
    create_topic(client, "orders")
    verb = AlterConfigOp(operation).name
    assert incremental(client, TOPIC, "orders", (key, operation, "5")) == (
        ErrorCode.INVALID_CONFIG,
        f"Can't {verb} to key {key} because its type is not LIST.",
    )


def test_values_that_a_list_cannot_have(client: RawClient) -> None:
    create_topic(client, "orders")
    code, message = incremental(client, TOPIC, "orders", ("cleanup.policy", APPEND, "shred"))
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None and "String must be one of: compact, delete" in message


@pytest.mark.parametrize("how", ALTERATIONS)
@pytest.mark.parametrize(
    ("key", "text", "code", "message"),
    [
        ("no.such", "1", ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
        (
            "retention.ms",
            "soon",
            ErrorCode.INVALID_CONFIG,
            "Invalid value soon for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "segment.bytes",
            "14",
            ErrorCode.INVALID_CONFIG,
            "Invalid value 14 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            "retention.ms",
            None,
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
    ],
)
def test_topic_settings_that_cannot_be(
    client: RawClient,
    broker: Broker,
    how: str,
    key: str,
    text: str | None,
    code: int,
    message: str,
) -> None:
    create_topic(client, "orders", segment_ms="7")
    assert change(how, client, TOPIC, "orders", key, text) == (code, message)
    assert broker.call(lambda: broker.cluster.configs[TOPIC, "orders"]) == {"segment.ms": "7"}


@pytest.mark.parametrize("how", ALTERATIONS)
def test_validate_only_changes_nothing(client: RawClient, broker: Broker, how: str) -> None:
    create_topic(client, "orders", segment_ms="7")
    before = broker.call(lambda: broker.cluster.last_offset)
    for kind, name, key in (
        (TOPIC, "orders", "retention.ms"),
        (BROKER, "", "log.retention.ms"),
        (BROKER, "1", "log.retention.ms"),
    ):
        assert change(how, client, kind, name, key, "9", validate_only=True) == (0, None)
        code, _ = change(how, client, kind, name, key, "x", validate_only=True)
        assert code != 0
    assert broker.call(lambda: broker.cluster.last_offset) == before
    assert value(client, TOPIC, "orders", "retention.ms") == "604800000"
    assert value(client, TOPIC, "orders", "segment.ms") == "7"


@pytest.mark.parametrize("how", ALTERATIONS)
@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_REQUEST),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.CLIENT_METRICS, "a", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.GROUP, "", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.GROUP, "a", ErrorCode.INVALID_CONFIG),
        (ConfigResourceType.UNKNOWN, "a", ErrorCode.INVALID_REQUEST),
        (77, "a", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resources_that_cannot_be_altered(
    client: RawClient, how: str, kind: int, name: str, code: int
) -> None:
    got, message = change(how, client, kind, name, "retention.ms", "5")
    assert got == code
    assert message


def test_bad_value_goes_before_missing_topic(client: RawClient) -> None:
    code, _ = incremental(client, TOPIC, "missing", ("no.such", SET, "1"))
    assert code == ErrorCode.INVALID_CONFIG


def test_key_or_resource_that_is_named_twice(client: RawClient) -> None:
    create_topic(client, "a")
    create_topic(client, "b")
    assert incremental(
        client, TOPIC, "a", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)
    ) == (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    setting = IncrementalAlterConfigsRequest.AlterableConfig(name="segment.ms", value="5")
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=TOPIC, resource_name=name, configs=[setting]
            )
            for name in ("a", "b", "a")
        ]
    )
    twice = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    responses = client.call(request).responses
    assert [(each.error_code, each.error_message) for each in responses] == [
        twice,
        (0, None),
        twice,
    ]
    assert value(client, TOPIC, "a", "segment.ms") == "604800000"
    assert value(client, TOPIC, "b", "segment.ms") == "5"


def test_operation_that_nobody_knows(client: RawClient) -> None:
    create_topic(client, "a")
    assert incremental(client, TOPIC, "a", ("segment.ms", 9, "5")) == (
        ErrorCode.INVALID_REQUEST,
        "Unknown operations type 9",
    )


# Altering a broker.


@pytest.mark.parametrize("how", ALTERATIONS)
def test_all_brokers_then_this_one(client: RawClient, broker: Broker, how: str) -> None:
    create_topic(client, "plain")
    create_topic(client, "own", max_message_bytes="100")
    key = "message.max.bytes"
    assert change(how, client, BROKER, "", key, "2000") == (0, None)
    assert value(client, TOPIC, "plain", "max.message.bytes") == "2000"
    assert change(how, client, BROKER, "1", key, "3000") == (0, None)
    found = entry(client, BROKER, "1", key)
    assert (found.value, found.config_source) == ("3000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [(each.value, each.source) for each in found.synonyms] == [
        ("3000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("2000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("1048588", ConfigSource.DEFAULT_CONFIG),
    ]
    (found,) = describe(client, BROKER, "", include_synonyms=True).configs
    assert (found.name, found.value) == (key, "2000")
    assert found.config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert [each.value for each in found.synonyms] == ["2000"]
    topic = entry(client, TOPIC, "plain", "max.message.bytes")
    assert (topic.value, topic.config_source) == ("3000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    limits = {
        name: log.config.max_message_bytes
        for name in ("plain", "own")
        if (log := broker.logs.get(name, 0)) is not None
    }
    assert limits == {"plain": 3000, "own": 100}
    assert broker.config.topic_config({}).max_message_bytes == 3000
    assert incremental(client, BROKER, "1", (key, DELETE, None)) == (0, None)
    assert incremental(client, BROKER, "", (key, DELETE, None)) == (0, None)
    assert describe(client, BROKER, "").configs == []
    assert value(client, TOPIC, "plain", "max.message.bytes") == "1048588"
    assert broker.config.topic_config({}).max_message_bytes == 1048588


@pytest.mark.parametrize("how", ALTERATIONS)
@pytest.mark.parametrize(
    ("name", "key", "text", "message"),
    [
        ("1", "num.partitions", "3", "Cannot update these configs dynamically: [num.partitions]"),
        ("", "log.dirs", "/x", "Cannot update these configs dynamically: [log.dirs]"),
        (
            "1",
            "message.max.bytes",
            "x",
            "Invalid value x for configuration message.max.bytes: Not a number of type INT",
        ),
        (
            "",
            "sasl.kerberos.service.name",
            "x",
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[sasl.kerberos.service.name]",
        ),
    ],
)
def test_broker_settings_that_cannot_be(
    client: RawClient, how: str, name: str, key: str, text: str, message: str
) -> None:
    assert change(how, client, BROKER, name, key, text) == (ErrorCode.INVALID_REQUEST, message)


def test_expiry_of_producer_ids_follows(client: RawClient, broker: Broker) -> None:
    key = "producer.id.expiration.ms"
    assert incremental(client, BROKER, "", (key, SET, "5000")) == (0, None)
    assert broker.logs.environment.producer_expiry_ms == 5000
    assert incremental(client, BROKER, "", (key, DELETE, None)) == (0, None)
    assert broker.logs.environment.producer_expiry_ms == 86_400_000


def test_lists_of_a_broker(client: RawClient) -> None:
    done = incremental(client, BROKER, "", ("log.cleanup.policy", APPEND, "compact"))
    assert done == (0, None)
    assert value(client, BROKER, "", "log.cleanup.policy") == "delete,compact"
    assert incremental(client, BROKER, "", ("message.max.bytes", APPEND, "5")) == (
        ErrorCode.INVALID_CONFIG,
        "Config value append is not allowed for config key: message.max.bytes",
    )
    assert incremental(client, BROKER, "", ("no.such", SUBTRACT, "5")) == (
        ErrorCode.INVALID_CONFIG,
        "Unknown config name: no.such",
    )


def test_setting_of_a_plugin_is_kept_and_not_shown(client: RawClient, broker: Broker) -> None:
    assert incremental(client, BROKER, "1", ("of.a.plugin", SET, "hush")) == (0, None)
    found = entry(client, BROKER, "1", "of.a.plugin")
    assert (found.value, found.is_sensitive) == (None, True)
    assert found.config_source == ConfigSource.DYNAMIC_BROKER_CONFIG
    assert broker.call(lambda: broker.cluster.configs[BROKER, "1"]) == {"of.a.plugin": "hush"}


@pytest.mark.parametrize("name", ["01", "+1", "1 ", "\u0661"])
def test_node_by_another_spelling(client: RawClient, name: str) -> None:
    code, _ = incremental(client, BROKER, name, ("message.max.bytes", SET, "5"))
    assert code == ErrorCode.INVALID_REQUEST
    assert describe(client, BROKER, name).error_code == ErrorCode.INVALID_REQUEST


def test_long_names_and_values_are_answered(client: RawClient) -> None:
    create_topic(client, "orders")
    long = "x" * 32767
    for version in range(2):
        code, message = incremental(
            client, TOPIC, "orders", ("cleanup.policy", SET, long), version=version
        )
        assert code == ErrorCode.INVALID_CONFIG
        assert message is not None and message.startswith("Invalid value xxx")
    for version in range(3):
        code, _ = alter(client, TOPIC, "orders", {long: "1"}, version=version)
        assert code == ErrorCode.INVALID_CONFIG
        code, _ = alter(client, BROKER, long, {"message.max.bytes": "1"}, version=version)
        assert code == ErrorCode.INVALID_REQUEST
    for version in range(1, 5):
        result = describe(client, BROKER, long, version=version)
        assert result.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("cleanup.policy", "a" + " " * 2_000_000 + "b"),
        ("min.cleanable.dirty.ratio", "1" * 2_000_000 + "x"),
        ("retention.ms", "1" * 2_000_000),
        ("leader.replication.throttled.replicas", "1" * 2_000_000),
        ("cleanup.policy", ",".join(map(str, range(200_000)))),
    ],
    ids=["spaces", "float", "integer", "pair", "list"],
)
def test_texts_that_would_take_long(client: RawClient, key: str, text: str) -> None:
    """Each of these would take a quadratic reader hours."""
    create_topic(client, "orders")
    code, _ = incremental(client, TOPIC, "orders", (key, SET, text))
    assert code == ErrorCode.INVALID_CONFIG
    code, _ = incremental(client, TOPIC, "orders", (key, APPEND, text))
    assert code == ErrorCode.INVALID_CONFIG


# ListConfigResources.


def test_list_of_resources(client: RawClient) -> None:
    create_topic(client, "b")
    create_topic(client, "a")

    def listed(*kinds: int) -> list[tuple[int, str]]:
        response = client.call(ListConfigResourcesRequest(resource_types=kinds), 1)
        assert response.error_code == 0
        return [(each.resource_type, each.resource_name) for each in response.config_resources]

    logger = ConfigResourceType.BROKER_LOGGER
    assert listed() == [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "1"), (logger, "1")]
    assert listed(TOPIC) == [(TOPIC, "a"), (TOPIC, "b")]
    assert listed(BROKER) == [(BROKER, "1")]
    assert listed(ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP) == []
    response = client.call(ListConfigResourcesRequest(resource_types=[TOPIC, 77]), 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert response.config_resources == []


def test_version_0_lists_client_metrics(client: RawClient) -> None:
    create_topic(client, "a")
    response = client.call(ListConfigResourcesRequest(), 0)
    assert (response.error_code, response.config_resources) == (0, [])


# A restart.


def test_settings_survive_a_restart(tmp_path: Path) -> None:
    properties = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.retention.hours": "3",
    }
    with (
        Broker.start(BrokerConfig.defaults(**properties)) as broker,
        RawClient(broker.port) as client,
    ):
        create_topic(client, "orders")
        assert incremental(client, TOPIC, "orders", ("segment.ms", SET, "77")) == (0, None)
        assert incremental(client, BROKER, "", ("message.max.bytes", SET, "5000")) == (0, None)
        assert incremental(client, BROKER, "1", ("log.retention.ms", SET, "66")) == (0, None)
    with (
        Broker.start(BrokerConfig.defaults(**properties)) as broker,
        RawClient(broker.port) as client,
    ):
        assert value(client, TOPIC, "orders", "segment.ms") == "77"
        assert value(client, TOPIC, "orders", "max.message.bytes") == "5000"
        assert value(client, TOPIC, "orders", "retention.ms") == "66"
        log = broker.logs.get("orders", 0)
        assert log is not None
        assert (log.config.segment_ms, log.config.max_message_bytes) == (77, 5000)
        assert log.config.retention_ms == 66


# librdkafka.


def test_librdkafka_describes(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("orders", 1, config={"retention.ms": "5000"})])["orders"].result()
    topic = ConfigResource(ResourceType.TOPIC, "orders")
    broker = ConfigResource(ResourceType.BROKER, "1")
    futures = admin.describe_configs([topic])
    found = futures[topic].result()
    assert found["retention.ms"].value == "5000"
    assert not found["retention.ms"].is_default
    assert found["cleanup.policy"].is_default
    assert found["segment.bytes"].synonyms["log.segment.bytes"].value == "1073741824"
    found = admin.describe_configs([broker])[broker].result()
    assert found["num.partitions"].is_read_only
    assert found["ssl.keystore.password"].is_sensitive
    missing = ConfigResource(ResourceType.TOPIC, "missing")
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        admin.describe_configs([missing])[missing].result()


def test_librdkafka_alters(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("orders", 1)])["orders"].result()

    def entries(name: str) -> dict[str, ConfigEntry]:
        topic = ConfigResource(ResourceType.TOPIC, name)
        return admin.describe_configs([topic])[topic].result()  # type: ignore[no-any-return]

    change = ConfigResource(
        ResourceType.TOPIC,
        "orders",
        incremental_configs=[
            ConfigEntry("retention.ms", "5", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
            ),
        ],
    )
    assert admin.incremental_alter_configs([change])[change].result() is None
    found = entries("orders")
    assert (found["retention.ms"].value, found["cleanup.policy"].value) == ("5", "delete,compact")
    replace = ConfigResource(ResourceType.TOPIC, "orders", set_config={"segment.ms": "9"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        futures = admin.alter_configs([replace])
    assert futures[replace].result() is None
    found = entries("orders")
    assert (found["retention.ms"].value, found["segment.ms"].value) == ("604800000", "9")
    wrong = ConfigResource(
        ResourceType.TOPIC,
        "orders",
        incremental_configs=[
            ConfigEntry("segment.ms", "never", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    with pytest.raises(KafkaException, match="Not a number of type LONG"):
        admin.incremental_alter_configs([wrong])[wrong].result()
