"""Configs of tenants: every key of the tables, and names of others in their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kafka_wire as kw
import pytest
from kafka_wire import ConfigResourceType, ConfigType, ErrorCode

from krammar.broker.config import GROUP_CONFIGS, TOPIC_CONFIGS
from krammar.proxy import Proxy
from krammar.proxy.addresses import Address
from krammar.proxy.filters.tenant_calls import CONFIG_ENTITIES, add_to_configs, own_configs
from krammar.proxy.filters.tenant_names import Tenant
from krammar.proxy.filters.tenants import Tenants
from krammar.testing import KafkaBroker
from krammar.util.configs import config_rows
from tests.proxy.support import Client, address

TOPIC, GROUP = ConfigResourceType.TOPIC, ConfigResourceType.GROUP
DLQ = "errors.deadletterqueue.topic.name"
DEFINED = {TOPIC: TOPIC_CONFIGS, GROUP: GROUP_CONFIGS}
ALTERING = [(kw.IncrementalAlterConfigsRequest, 1), (kw.IncrementalAlterConfigsRequest, 0)] + [
    (kw.AlterConfigsRequest, version) for version in range(3)
]
# The texts among the values that name nothing. A new key with a text or a list must be added here, or get an entity.
NAMELESS = {
    *("cleanup.policy", "compression.type", "message.timestamp.type"),
    *("share.auto.offset.reset", "share.isolation.level"),
    *("streams.assignor.name", "streams.rack.aware.assignment.tags"),
}


class Sides:
    """The tenant blue, and the broker behind it."""

    def __init__(self, tenant: Client, broker: Client) -> None:
        self._tenant = tenant
        self._broker = broker

    def ask(self, request: Any, version: int, direct: bool = False) -> Any:
        return (self._broker if direct else self._tenant).ask(request, version).response

    def describe(self, kind: int, name: str, direct: bool = False) -> dict[str, Any]:
        resource = kw.DescribeConfigsRequest.DescribeConfigsResource
        asked = [resource(resource_type=kind, resource_name=name)]
        request = kw.DescribeConfigsRequest(resources=asked, include_synonyms=True)
        (found,) = self.ask(request, 4, direct).results
        assert found.error_code == 0
        return {each.name: each for each in found.configs}


@pytest.fixture
def sides() -> Iterator[Sides]:
    with (
        KafkaBroker.start(topics={"blue.orders": 1, "red.dlq": 1}) as broker,
        Proxy.start(broker.bootstrap_servers, [Tenants("blue")]) as proxy,
        Client(address(proxy)) as tenant,
        Client(Address.parse(broker.bootstrap_servers)) as direct,
    ):
        yield Sides(tenant, direct)


def altering(cls: Any, kind: int, resource: str, name: str, value: str | None) -> Any:
    return cls(
        resources=[
            cls.AlterConfigsResource(
                resource_type=kind,
                resource_name=resource,
                configs=[cls.AlterableConfig(name=name, value=value)],
            )
        ]
    )


def test_every_key_that_could_name_something_has_an_entity() -> None:
    texts = {ConfigType.STRING, ConfigType.LIST, ConfigType.CLASS, ConfigType.PASSWORD}
    for kind, table in (("topics", TOPIC_CONFIGS), ("groups", GROUP_CONFIGS)):
        rows = {row["name"]: row for row in config_rows(kind)}
        assert set(rows) == set(table)
        for name, definition in table.items():
            if definition.type in texts:
                assert bool(rows[name]["entity"]) != (name in NAMELESS), name
            else:
                assert not rows[name]["entity"], name
    assert {entity for table in CONFIG_ENTITIES.values() for entity in table.values()} == {
        *("", "topicName", "brokerId")
    }


@pytest.mark.parametrize("kind", [TOPIC, GROUP])
def test_no_key_carries_the_name_of_another(kind: int) -> None:
    """All keys of the tables, with the name of another tenant's topic, group or broker as their value."""
    tenant, entry = Tenant("blue", ["red"]), kw.AlterConfigsRequest.AlterableConfig
    described = kw.DescribeConfigsResponse.DescribeConfigsResourceResult
    synonym = kw.DescribeConfigsResponse.DescribeConfigsSynonym
    names = [*DEFINED[kind], "unknown.topic.name"]
    renamed = []
    for name in names:
        config = entry(name=name, value="red.dlq")
        problem = add_to_configs(tenant, kind, [config])
        if not problem and config.value != "red.dlq":
            assert config.value == "blue.red.dlq"
            renamed.append(name)
        values = [f"{each}.dlq" for each in ("blue", "red")]
        entries = [
            described(name=name, value=value, synonyms=[synonym(name=name, value=value)])
            for value in values
        ]
        shown = [
            (each.value, each.synonyms[0].value) for each in own_configs(tenant, kind, entries)
        ]
        entity = CONFIG_ENTITIES[kind].get(name)
        if entity == "topicName":
            assert shown == [("dlq", "dlq"), (None, None)]
        else:
            assert len(shown) == (0 if entity is None else 2)
        assert bool(problem) == (entity in (None, "brokerId")), name
    assert renamed == [name for name in names if CONFIG_ENTITIES[kind].get(name) == "topicName"]


@pytest.mark.parametrize(("cls", "version"), ALTERING)
def test_a_topic_in_a_config_of_a_group(sides: Sides, cls: Any, version: int) -> None:
    (answer,) = sides.ask(altering(cls, GROUP, "g", DLQ, "red.dlq"), version).responses
    assert answer.error_code == 0
    assert sides.describe(GROUP, "g")[DLQ].value == "red.dlq"
    assert sides.describe(GROUP, "g")[DLQ].synonyms[0].value == "red.dlq"
    assert sides.describe(GROUP, "blue.g", direct=True)[DLQ].value == "blue.red.dlq"
    long = "x" * 245
    (answer,) = sides.ask(altering(cls, GROUP, "g", DLQ, long), version).responses
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert "244 characters at most" in answer.error_message


def test_a_topic_that_somebody_else_has_set_is_not_named(sides: Sides) -> None:
    request = altering(kw.IncrementalAlterConfigsRequest, GROUP, "blue.g", DLQ, "red.dlq")
    sides.ask(request, 1, direct=True)
    found = sides.describe(GROUP, "g")
    assert found[DLQ].value is None
    assert "red" not in str(found)


@pytest.mark.parametrize(("cls", "version"), ALTERING)
@pytest.mark.parametrize(
    ("kind", "name", "value", "text"),
    [
        (TOPIC, "leader.replication.throttled.replicas", "0:1", "it is about brokers"),
        (TOPIC, "some.new.topic.name", "red.dlq", "which this proxy does not know"),
        (GROUP, "some.new.topic.name", "red.dlq", "which this proxy does not know"),
    ],
)
def test_configs_that_are_refused(
    sides: Sides, cls: Any, version: int, kind: int, name: str, value: str, text: str
) -> None:
    resource = "orders" if kind == TOPIC else "g"
    before = sides.describe(kind, f"blue.{resource}", direct=True)
    (answer,) = sides.ask(altering(cls, kind, resource, name, value), version).responses
    assert (answer.resource_type, answer.resource_name) == (kind, resource)
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert text in answer.error_message
    assert sides.describe(kind, f"blue.{resource}", direct=True) == before


def test_configs_of_a_new_topic(sides: Sides) -> None:
    def create(name: str, config: str, value: str) -> Any:
        request = kw.CreateTopicsRequest
        configs = [request.CreatableTopicConfig(name=config, value=value)]
        topic = request.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, configs=configs
        )
        return sides.ask(request(topics=[topic], timeout_ms=1_000), 7).topics[0]

    refused = create("new", "some.topic.name", "red.dlq")
    assert (refused.name, refused.error_code) == ("new", ErrorCode.INVALID_CONFIG)
    created = create("new", "retention.ms", "1000")
    assert created.error_code == 0
    assert {each.name: each.value for each in created.configs}["retention.ms"] == "1000"


def test_configs_of_internal_topics_of_streams(sides: Sides) -> None:
    request = kw.StreamsGroupHeartbeatRequest
    info = request.TopicInfo(
        name="store-changelog",
        topic_configs=[request.KeyValue(key="some.topic.name", value="red.dlq")],
    )
    for place in ("state_changelog_topics", "repartition_source_topics"):
        subtopology = request.Subtopology(
            subtopology_id="0", source_topics=["orders"], **{place: [info]}
        )
        answer = sides.ask(
            request(
                group_id="g",
                member_id="00000000-0000-0000-0000-000000000001",
                member_epoch=0,
                rebalance_timeout_ms=1_000,
                topology=request.Topology(epoch=0, subtopologies=[subtopology]),
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
            ),
            0,
        )
        assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
        assert "which this proxy does not know" in answer.error_message
