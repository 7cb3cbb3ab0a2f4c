"""Requests that the broker does not serve: each gets an error in a response of its own type."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka_wire
import pytest
from confluent_kafka import Consumer, KafkaError
from kafka_wire import (
    ApiKey,
    ConsumerGroupDescribeRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    ElectLeadersRequest,
    ErrorCode,
    FeatureLevelRecord,
    MetadataRequest,
    StreamsGroupDescribeRequest,
)

from krammar.broker import Broker
from krammar.broker.apis import APIS, RANGES, UNSERVED, answer_with_error
from krammar.broker.handlers.unserved import MOST_GROUPS
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE

# Listed by ApiVersions although they are not served.
LISTED = [key for key, api in APIS.items() if api.find is answer_with_error]
# The errors of features that are off; all others get UNSUPPORTED_VERSION.
OFF = {
    **dict.fromkeys(
        (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS), ErrorCode.SECURITY_DISABLED
    ),
    **dict.fromkeys(
        (
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ),
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ),
}
# Requests between brokers and controllers.
INTERNAL = {
    *(ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA),
    *(ApiKey.CONTROLLED_SHUTDOWN, ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH),
    *(ApiKey.END_QUORUM_EPOCH, ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE, ApiKey.FETCH_SNAPSHOT),
    *(ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.ALLOCATE_PRODUCER_IDS),
    *(ApiKey.CONTROLLER_REGISTRATION, ApiKey.ASSIGN_REPLICAS_TO_DIRS, ApiKey.UPDATE_RAFT_VOTER),
}
# Requests with an error per entry: two entries each.
ENTRIES: dict[int, Any] = {
    ApiKey.CREATE_ACLS: lambda: CreateAclsRequest(
        creations=[CreateAclsRequest.AclCreation(resource_type=2, operation=2, permission_type=2)]
        * 2
    ),
    ApiKey.DELETE_ACLS: lambda: DeleteAclsRequest(
        filters=[
            DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=2, operation=2, permission_type=2
            )
        ]
        * 2
    ),
    ApiKey.ELECT_LEADERS: lambda: ElectLeadersRequest(
        topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0, 7])]
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: lambda: StreamsGroupDescribeRequest(group_ids=["a", "b"]),
}


def errors(message: Any) -> Iterator[int]:
    """The error codes of a message and of all its parts."""
    if isinstance(message, list):
        for each in message:
            yield from errors(each)
    for name in getattr(message, "_fields", ()):
        part = getattr(message, name)
        if name == "error_code":
            yield part
        else:
            yield from errors(part)


def request_class(key: int) -> Any:
    return kafka_wire.request_class(key)


def test_every_api_is_served_or_refused_or_internal() -> None:
    assert set(RANGES) | set(UNSERVED) | INTERNAL == set(ApiKey)
    assert not (set(RANGES) | set(UNSERVED)) & INTERNAL
    assert not set(RANGES) & set(UNSERVED)
    for key in (*UNSERVED, *LISTED):
        low, high = UNSERVED.get(key) or RANGES[key]
        assert request_class(key).min_version <= low <= high == request_class(key).max_version


@pytest.mark.parametrize("key", [*UNSERVED, *LISTED], ids=lambda key: ApiKey(key).name)
def test_the_response_says_that_an_api_is_not_served(client: RawClient, key: int) -> None:
    low, high = UNSERVED.get(key) or RANGES[key]
    for version in range(low, high + 1):
        request = ENTRIES[key]() if key in ENTRIES else request_class(key)()
        codes = list(errors(client.call(request, version)))
        if (key, version) == (ApiKey.ELECT_LEADERS, 0):
            codes.remove(0)  # only later versions have one for the whole request
        assert set(codes) == {OFF.get(key, ErrorCode.UNSUPPORTED_VERSION)}
        assert len(codes) >= (2 if key in ENTRIES else 1)
    # The connection lives on.
    assert client.call(MetadataRequest(topics=[])).brokers


def test_a_request_about_too_many_groups_ends_the_connection(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    request = StreamsGroupDescribeRequest(group_ids=["a"] * (MOST_GROUPS + 1))
    with (
        caplog.at_level(logging.WARNING, "krammar.broker"),
        RawClient(broker.port) as client,
        pytest.raises(ConnectionError),
    ):
        client.call(request)
    assert f"it names more than {MOST_GROUPS} groups" in caplog.text


def test_a_consumer_is_told_that_the_new_protocol_is_off() -> None:
    properties = {"group.coordinator.rebalance.protocols": "classic"}
    with Broker.start(properties=properties) as broker:
        _refused(broker)


def test_a_consumer_is_told_that_the_cluster_lacks_the_feature(broker: Broker) -> None:
    # As in a folder of Kafka 3.9.
    broker.call(broker.cluster.append, [FeatureLevelRecord(name="group.version", feature_level=0)])
    _refused(broker)


def _refused(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        (group,) = client.call(ConsumerGroupDescribeRequest(group_ids=["g"])).groups
        assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "group.protocol": "consumer",
        "log_level": 0,
    }
    with contextlib.closing(Consumer(settings)) as consumer:
        consumer.subscribe(["t"])
        message = consumer.poll(PATIENCE)
        assert message is not None
        assert message.error().code() == KafkaError._FATAL
        assert "ConsumerGroupHeartbeat" in message.error().str()
        assert "API version not supported" in message.error().str()


def test_the_documentation_lists_them_all() -> None:
    text = (Path(__file__).parents[3] / "docs" / "broker.md").read_text("utf-8")
    section = text.split("## What is served\n", 1)[1].split("\n## ", 1)[0]
    named = set(re.findall(r"`(\w+)`", section))
    wanted = {request_class(key).__name__.removesuffix("Request") for key in (*UNSERVED, *LISTED)}
    assert wanted
    assert wanted - named == set()
