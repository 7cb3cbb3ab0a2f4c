"""A broker with an authorizer: each API asks for what the table says, and refuses as the table says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import kafka_wire as kw
import pytest
from kafka_wire import AclOperation, ErrorCode

from krammar.authorization.table import CONFIGS, OPEN, TABLE
from krammar.broker import Broker
from krammar.broker.config import ConfigError
from tests.authorization.page import table
from tests.authorization.support import (
    ALL_ACLS,
    GROUP_NAME,
    TOPIC_NAME,
    TRANSACTION,
    USERS,
    acls,
    errors,
    log_in,
    requests_of,
    settings,
)
from tests.broker.requests import batch
from tests.broker.support import RawClient

_LISTENER = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start(properties={**settings("sasl_plaintext"), **_LISTENER}) as running:
        with log_in(running.port, "admin") as admin:
            created = admin.call(kw.CreateAclsRequest(creations=acls()))
            assert not any(each.error_code for each in created.results)
            _create(admin)
        yield running


def _create(admin: RawClient) -> UUID:
    topic = kw.CreateTopicsRequest.CreatableTopic(
        name=TOPIC_NAME, num_partitions=1, replication_factor=1
    )
    admin.call(kw.CreateTopicsRequest(topics=[topic]))
    named = kw.MetadataRequest(topics=[kw.MetadataRequest.Topic(name=TOPIC_NAME)])
    topic_id: UUID = admin.call(named).topics[0].topic_id
    return topic_id


def _codes(response: Any) -> set[int]:
    return {code for _, code in errors(response)}


def _served() -> list[str]:
    from krammar.broker.apis import APIS

    return [kw.request_class(key).__name__.removesuffix("Request") for key in APIS]


def test_every_api_has_a_row_or_is_open() -> None:
    rows = TABLE.keys() | CONFIGS.keys()
    assert not rows & OPEN
    assert set(_served()) - OPEN <= rows


@pytest.mark.parametrize("api", sorted({*TABLE, *CONFIGS} & set(_served())))
def test_who_has_no_right_gets_nothing(broker: Broker, api: str) -> None:
    """In each version: an error of authorization, or an answer that leaves out everything."""
    key = next(info.key for info in kw.requests() if info.api_name == api)
    with log_in(broker.port, "admin") as admin, log_in(broker.port, "nobody") as nobody:
        topic_id = _create(admin)
        served = {e.api_key: e for e in admin.call(kw.ApiVersionsRequest(), 2).api_keys}
        for version in range(served[key].min_version, served[key].max_version + 1):
            for request in requests_of(api, version, topic_id):
                try:
                    response = nobody.call(request, version)
                except ConnectionError:  # a version that only says why it is refused
                    assert (api, version) < ("Produce", 3)
                    nobody = log_in(broker.port, "nobody")
                    continue
                refused = [code for code in _codes(response) if code > 0]
                if api == "ListTransactions":
                    response.unknown_state_filters = []  # what the client has sent
                named = TOPIC_NAME in repr(response) or GROUP_NAME in repr(response)
                assert refused or not named, (api, version, response)
                for leak in ("partition_index=0, leader_id=1", "records=b'x"):
                    assert leak not in repr(response)


def test_a_right_is_enough_for_its_operation(broker: Broker) -> None:
    """Each user gets no error of authorization where the rights suffice, and one elsewhere."""
    with log_in(broker.port, "topic-describe") as client:
        topics = [kw.MetadataRequest.Topic(name=TOPIC_NAME)]
        assert _codes(client.call(kw.MetadataRequest(topics=topics))) == {0}
        assert [t.name for t in client.call(kw.MetadataRequest(topics=None)).topics] == [TOPIC_NAME]
    with log_in(broker.port, "nobody") as client:
        response = client.call(kw.MetadataRequest(topics=topics))
        assert [t.error_code for t in response.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert response.brokers, "the nodes are open to everyone"
        assert client.call(kw.MetadataRequest(topics=None)).topics == []


def _produce(acks: int = -1, *names: str) -> kw.ProduceRequest:
    part = kw.ProduceRequest.PartitionProduceData(index=0, records=batch(b"x"))
    return kw.ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            kw.ProduceRequest.TopicProduceData(name=name, partition_data=[part])
            for name in names or (TOPIC_NAME,)
        ],
    )


def test_the_permitted_part_of_a_request_is_handled(broker: Broker) -> None:
    with log_in(broker.port, "admin") as admin:
        other = kw.CreateTopicsRequest.CreatableTopic(
            name="other", num_partitions=1, replication_factor=1
        )
        admin.call(kw.CreateTopicsRequest(topics=[other]))
    with log_in(broker.port, "topic-write") as client:
        response = client.call(_produce(-1, "other", TOPIC_NAME), 9)
        codes = {
            topic.name: topic.partition_responses[0].error_code for topic in response.responses
        }
        assert codes == {"other": ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_NAME: 0}
    # Without acknowledgement, the client learns it from the end of the connection.
    client = log_in(broker.port, "topic-read")
    client.send(_produce(0), 9, expect_response=False)
    with pytest.raises(ConnectionError):
        client.call(kw.ApiVersionsRequest(), 2)


def _fetch(session_id: int = 0, epoch: int = -1, *names: str) -> kw.FetchRequest:
    part = kw.FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
    return kw.FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[kw.FetchRequest.FetchTopic(topic=name, partitions=[part]) for name in names],
    )


def test_a_fetch_session_ends_with_the_right_to_read(broker: Broker) -> None:
    """An incremental request names no topic, and must not read what it may no longer (KIP-227)."""
    right = kw.CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name="secret",
        resource_pattern_type=3,
        principal="User:topic-read",
        host="*",
        operation=AclOperation.READ,
        permission_type=3,
    )
    taken = kw.DeleteAclsRequest.DeleteAclsFilter(**{**ALL_ACLS, "resource_name_filter": "secret"})
    with log_in(broker.port, "admin") as admin, log_in(broker.port, "topic-read") as client:
        topic = kw.CreateTopicsRequest.CreatableTopic(
            name="secret", num_partitions=1, replication_factor=1
        )
        admin.call(kw.CreateTopicsRequest(topics=[topic]))
        refused = client.call(_fetch(0, 0, "secret"), 12)
        assert refused.session_id == 0
        assert _codes(refused) == {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        admin.call(kw.CreateAclsRequest(creations=[right]))
        opened = client.call(_fetch(0, 0, "secret"), 12)
        assert opened.session_id
        (result,) = admin.call(kw.DeleteAclsRequest(filters=[taken])).filter_results
        assert [each.resource_name for each in result.matching_acls] == ["secret"]
        admin.call(_produce(-1, "secret"), 9)
        ended = client.call(_fetch(opened.session_id, 1), 12)
        assert ended.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert not ended.responses


def test_bit_fields_have_the_operations_that_are_allowed(broker: Broker) -> None:
    def bits(*names: str) -> int:
        return sum(1 << AclOperation[name] for name in names)

    request = kw.MetadataRequest(
        topics=[kw.MetadataRequest.Topic(name=TOPIC_NAME)],
        include_topic_authorized_operations=True,
    )
    with log_in(broker.port, "topic-read") as client:
        (topic,) = client.call(request).topics
        assert topic.topic_authorized_operations == bits("READ", "DESCRIBE")
        cluster = kw.DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert client.call(cluster).cluster_authorized_operations == 0
    with log_in(broker.port, "cluster-describe") as client:
        assert client.call(cluster).cluster_authorized_operations == bits("DESCRIBE")
    with log_in(broker.port, "group-read") as client:
        described = client.call(
            kw.DescribeGroupsRequest(groups=[GROUP_NAME], include_authorized_operations=True)
        )
        if not described.groups[0].error_code:
            assert described.groups[0].authorized_operations == bits("READ", "DESCRIBE")


def test_the_name_of_a_topic_is_only_told_to_who_may_describe_it(broker: Broker) -> None:
    with log_in(broker.port, "admin") as admin:
        topic = kw.DeleteTopicsRequest.DeleteTopicState(topic_id=_create(admin))
    told = []
    for user in ("nobody", "topic-describe"):
        with log_in(broker.port, user) as client:
            (result,) = client.call(kw.DeleteTopicsRequest(topics=[topic])).responses
            assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            told.append(result.name)
    assert told == [None, TOPIC_NAME]


def test_a_topic_is_created_on_use_only_by_who_may(broker: Broker) -> None:
    request = kw.MetadataRequest(
        topics=[kw.MetadataRequest.Topic(name="fresh")], allow_auto_topic_creation=True
    )
    with log_in(broker.port, "topic-describe") as client:
        (topic,) = client.call(request).topics
        assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "fresh" not in broker.call(lambda: set(broker.cluster.topics))


def test_acls_survive_a_restart(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "data_dir": tmp_path,
        "properties": {**settings("sasl_plaintext"), **_LISTENER},
    }
    wanted = kw.DescribeAclsRequest(**ALL_ACLS)
    with Broker.start(**options) as running, log_in(running.port, "admin") as admin:
        admin.call(kw.CreateAclsRequest(creations=acls()))
        # What exists counts as created, once.
        again = admin.call(kw.CreateAclsRequest(creations=acls()))
        assert not any(each.error_code for each in again.results)
        before = admin.call(wanted).resources
        count = sum(len(resource.acls) for resource in before)
        assert count == sum(map(len, USERS.values()))
    with Broker.start(**options) as running, log_in(running.port, "admin") as admin:
        assert admin.call(wanted).resources == before
        everything = kw.DeleteAclsRequest.DeleteAclsFilter(**ALL_ACLS)
        (result,) = admin.call(kw.DeleteAclsRequest(filters=[everything])).filter_results
        assert len(result.matching_acls) == count
        assert admin.call(wanted).resources == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resource_type": 4, "resource_name": "x"}, "The only valid name for the CLUSTER"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"operation": 0}, "Invalid operation UNKNOWN"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"principal": "alice"}, "Could not parse principal from `alice`"),
    ],
)
def test_invalid_acls_are_refused(broker: Broker, changes: dict[str, Any], message: str) -> None:
    creation = acls()[0]
    for name, value in changes.items():
        setattr(creation, name, value)
    with log_in(broker.port, "admin") as admin:
        (result,) = admin.call(kw.CreateAclsRequest(creations=[creation])).results
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert message in result.error_message


def test_super_users_need_a_type() -> None:
    properties = {**settings("sasl_plaintext"), **_LISTENER, "super.users": "User:a;bob"}
    with pytest.raises(ConfigError, match=r"super\.users: .*'bob' is not a principal"):
        Broker.start(properties=properties)


def test_a_transaction_gets_all_of_its_partitions_or_none(broker: Broker) -> None:
    topics = [
        kw.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[0])
        for name in (TOPIC_NAME, "other")
    ]
    request = kw.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTION, v3_and_below_topics=topics
    )
    with log_in(broker.port, "producer") as client:
        response = client.call(request, 3)
    assert {
        topic.name: topic.results_by_partition[0].partition_error_code
        for topic in response.results_by_topic_v3_and_below
    } == {
        TOPIC_NAME: ErrorCode.OPERATION_NOT_ATTEMPTED,
        "other": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text("utf-8")
    assert f"\n{table()}\n" in page
