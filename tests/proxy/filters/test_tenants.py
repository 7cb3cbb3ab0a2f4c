"""Tenants at krammar's broker: none sees or changes anything of another. Tests send the messages themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import kafka_wire as kw
import pytest
from kafka_wire import ConfigResourceType, ErrorCode

from krammar.proxy import Proxy
from krammar.proxy.addresses import Address
from krammar.proxy.filters.tenants import Tenants
from krammar.testing import KafkaBroker, KafkaCluster
from krammar.wire.batches import Record, encode_batch
from tests.proxy.filters.test_tenant_frames import request_frame
from tests.proxy.support import Client, address

Ask = Callable[..., Any]


class Place:
    """A broker with the tenants blue and red, each behind a proxy of its own."""

    def __init__(self, broker: KafkaBroker, blue: Proxy, red: Proxy) -> None:
        self.broker = broker
        self._clients = {
            "": Client(Address.parse(broker.bootstrap_servers)),
            "blue": Client(address(blue)),
            "red": Client(address(red)),
        }

    def ask(self, who: str, request: Any, version: int | None = None) -> Any:
        newest = type(request).max_version if version is None else version
        return self._clients[who].ask(request, newest).response

    def close(self) -> None:
        for each in self._clients.values():
            each.socket.close()


@pytest.fixture
def place() -> Iterator[Place]:
    with (
        KafkaBroker.start(topics={"blue.orders": 1, "red.orders": 1, "shared": 1}) as broker,
        Proxy.start(broker.bootstrap_servers, [Tenants("blue")]) as blue,
        Proxy.start(broker.bootstrap_servers, [Tenants("red")]) as red,
    ):
        found = Place(broker, blue, red)
        yield found
        found.close()


def topics(place: Place, who: str) -> dict[str, Any]:
    return {each.name: each for each in place.ask(who, kw.MetadataRequest(topics=None)).topics}


def id_of(place: Place, name: str) -> UUID:
    found: UUID = topics(place, "")[name].topic_id
    return found


def join(place: Place, who: str, group: str) -> Any:
    data = kw.ConsumerProtocolSubscription(version=1, topics=["orders"]).encode()
    protocol = kw.JoinGroupRequest.Protocol(name="range", metadata=data)
    request = kw.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=1_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    first = place.ask(who, request, 9)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    request.member_id = first.member_id
    joined = place.ask(who, request, 9)
    assert joined.error_code == 0
    return joined


def produce(place: Place, who: str, topic_id: UUID, value: bytes) -> Any:
    data = kw.ProduceRequest.PartitionProduceData(records=encode_batch([Record(value=value)]))
    topic = kw.ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])
    request = kw.ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])
    return place.ask(who, request).responses[0].partition_responses[0]


def fetch(place: Place, who: str, topic_id: UUID, **more: Any) -> Any:
    part = kw.FetchRequest.FetchPartition(partition_max_bytes=1 << 20)
    topic = kw.FetchRequest.FetchTopic(topic_id=topic_id, partitions=[part])
    return place.ask(who, kw.FetchRequest(max_bytes=1 << 20, topics=[topic], **more))


# -- where Kroxylicious 0.12.0 lets a tenant act on another


def test_partitions_are_added_to_the_tenants_own_topic(place: Place) -> None:
    def add(name: str) -> Any:
        topic = kw.CreatePartitionsRequest.CreatePartitionsTopic(
            name=name, count=3, assignments=None
        )
        request = kw.CreatePartitionsRequest(topics=[topic], timeout_ms=1_000)
        return place.ask("blue", request).results[0]

    assert (add("orders").name, add("red.orders").error_code) == (
        "orders",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    found = topics(place, "")
    assert len(found["blue.orders"].partitions) == 3
    assert len(found["red.orders"].partitions) == 1


def test_another_tenants_groups_are_not_deleted(place: Place) -> None:
    offset = kw.OffsetCommitRequest.Partition(committed_offset=1)
    topic = kw.OffsetCommitRequest.Topic(name="orders", partitions=[offset])
    for who in ("blue", "red"):
        committed = place.ask(who, kw.OffsetCommitRequest(group_id="g", topics=[topic]), 9)
        assert committed.topics[0].partitions[0].error_code == 0
        assert committed.topics[0].name == "orders"
    for name, expected in (("red.g", ErrorCode.GROUP_ID_NOT_FOUND), ("g", 0)):
        result = place.ask("blue", kw.DeleteGroupsRequest(groups_names=[name])).results[0]
        assert (result.group_id, result.error_code) == (name, expected)
    left = place.ask("", kw.ListGroupsRequest()).groups
    assert [each.group_id for each in left] == ["red.g"]


def test_configs_are_those_of_the_tenant(place: Place) -> None:
    resource = kw.DescribeConfigsRequest.DescribeConfigsResource
    kinds = ConfigResourceType
    asked = [(kinds.TOPIC, "orders"), (kinds.TOPIC, "red.orders"), (kinds.BROKER, "0")]
    found = place.ask(
        "blue",
        kw.DescribeConfigsRequest(
            resources=[resource(resource_type=kind, resource_name=name) for kind, name in asked]
        ),
    ).results
    assert [(each.resource_type, each.resource_name, each.error_code) for each in found] == [
        (kinds.TOPIC, "orders", 0),
        (kinds.TOPIC, "red.orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (kinds.BROKER, "0", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ]
    assert "blue" not in str(found)


@pytest.mark.parametrize(
    ("cls", "version"), [(kw.IncrementalAlterConfigsRequest, 1), (kw.AlterConfigsRequest, 2)]
)
def test_configs_of_others_are_not_changed(place: Place, cls: Any, version: int) -> None:
    entry, resource = cls.AlterableConfig, cls.AlterConfigsResource
    asked = [
        (ConfigResourceType.TOPIC, "orders"),
        (ConfigResourceType.TOPIC, "red.orders"),
        (ConfigResourceType.BROKER, ""),
    ]
    found = place.ask(
        "blue",
        cls(
            resources=[
                resource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[entry(name="retention.ms", value="5000")],
                )
                for kind, name in asked
            ]
        ),
        version,
    ).responses
    assert [each.resource_name for each in found] == ["orders", "red.orders", ""]
    assert found[0].error_code == 0
    assert found[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found[2].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    values = []
    for name in ("blue.orders", "red.orders"):
        one = kw.DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=name
        )
        (result,) = place.ask("", kw.DescribeConfigsRequest(resources=[one])).results
        values += [each.value for each in result.configs if each.name == "retention.ms"]
    assert values[0] == "5000"
    assert values[1] != "5000"


def test_ids_of_other_topics_are_unknown(place: Place) -> None:
    own, other = id_of(place, "blue.orders"), id_of(place, "red.orders")
    assert produce(place, "blue", own, b"mine").error_code == 0
    assert produce(place, "red", other, b"theirs").error_code == 0
    assert produce(place, "blue", other, b"no").error_code == ErrorCode.UNKNOWN_TOPIC_ID
    for topic_id in (own, other):
        (topic,) = fetch(place, "blue", topic_id).responses
        (part,) = topic.partitions
        assert topic.topic_id == topic_id
        if topic_id == own:
            assert b"mine" in part.records
        else:
            assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID
            assert not part.records
    (seen,) = place.ask(
        "blue",
        kw.MetadataRequest(topics=[kw.MetadataRequest.Topic(topic_id=other, name=None)]),
    ).topics
    assert (seen.error_code, seen.name, seen.topic_id) == (
        ErrorCode.UNKNOWN_TOPIC_ID,
        None,
        other,
    )
    (deleted,) = place.ask(
        "blue",
        kw.DeleteTopicsRequest(
            topics=[kw.DeleteTopicsRequest.DeleteTopicState(topic_id=other)], timeout_ms=1_000
        ),
    ).responses
    assert (deleted.error_code, deleted.name, deleted.topic_id) == (
        ErrorCode.UNKNOWN_TOPIC_ID,
        None,
        other,
    )
    assert "red.orders" in topics(place, "")


def test_an_answer_with_name_and_id_does_not_reveal_how_ids_are_replaced(place: Place) -> None:
    def delete(topic_id: UUID, name: str | None = None) -> Any:
        state = kw.DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id)
        request = kw.DeleteTopicsRequest(topics=[state], timeout_ms=1_000)
        return place.ask("blue", request).responses[0]

    other, unknown = id_of(place, "red.orders"), UUID(int=7)
    answered = delete(unknown, "orders")  # brokers refuse such a request, and repeat both
    assert (answered.error_code, answered.name) == (ErrorCode.INVALID_REQUEST, "orders")
    found = answered.topic_id
    assert delete(UUID(int=found.int ^ unknown.int ^ other.int)).error_code != 0
    assert delete(found).error_code != 0
    assert found == unknown
    assert "red.orders" in topics(place, "")


def test_deleting_by_id_deletes_the_tenants_own_topic(place: Place) -> None:
    topic_id = id_of(place, "blue.orders")
    state = kw.DeleteTopicsRequest.DeleteTopicState(topic_id=topic_id)
    request = kw.DeleteTopicsRequest(topics=[state], timeout_ms=1_000)
    (deleted,) = place.ask("blue", request).responses
    assert (deleted.error_code, deleted.name, deleted.topic_id) == (0, "orders", topic_id)
    assert "blue.orders" not in topics(place, "")


def test_an_unknown_request_closes_the_connection(place: Place) -> None:
    client = place._clients["blue"]
    client.socket.sendall((10).to_bytes(4, "big") + (4_000).to_bytes(2, "big") + bytes(8))
    assert client.read_to_end() == b""


# -- what else a tenant could reach for


def test_lists_have_only_what_is_the_tenants(place: Place) -> None:
    assert set(topics(place, "blue")) == {"orders"}
    described = place.ask("blue", kw.DescribeTopicPartitionsRequest(response_partition_limit=9))
    assert [each.name for each in described.topics] == ["orders"]
    for who in ("blue", "red"):
        kind = kw.CoordinatorType.TRANSACTION
        find = kw.FindCoordinatorRequest(key_type=kind, coordinator_keys=[f"t-{who}"])
        assert place.ask(who, find).coordinators[0].error_code == 0
        request = kw.InitProducerIdRequest(transactional_id=f"t-{who}", transaction_timeout_ms=9)
        assert place.ask(who, request, 5).error_code == 0
    listed = place.ask("blue", kw.ListTransactionsRequest(), 2).transaction_states
    assert [each.transactional_id for each in listed] == ["t-blue"]
    states = place.ask(
        "blue", kw.DescribeTransactionsRequest(transactional_ids=["t-blue", "red.t-red"])
    ).transaction_states
    assert [(each.transactional_id, each.error_code) for each in states] == [
        ("t-blue", 0),
        ("red.t-red", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
    ]
    resources = place.ask("blue", kw.ListConfigResourcesRequest()).config_resources
    assert {(each.resource_type, each.resource_name) for each in resources} == {
        (ConfigResourceType.TOPIC, "orders")
    }


def test_a_tenant_without_topics_sees_no_topics(place: Place) -> None:
    state = kw.DeleteTopicsRequest.DeleteTopicState(name="orders")
    place.ask("blue", kw.DeleteTopicsRequest(topics=[state], timeout_ms=1_000))
    described = place.ask("blue", kw.DescribeTopicPartitionsRequest(response_partition_limit=9))
    assert described.topics == []


def test_the_subscriptions_of_a_group_are_stored_with_prefixes(place: Place) -> None:
    joined = join(place, "blue", "g")
    data = kw.ConsumerProtocolSubscription(version=1, topics=["orders"]).encode()
    assert [each.metadata for each in joined.members] == [data]
    part = kw.ConsumerProtocolAssignment.TopicPartition(topic="orders", partitions=[0])
    assignment = kw.ConsumerProtocolAssignment(
        version=1, assigned_partitions=[part], user_data=b"orders"
    ).encode()
    synced = place.ask(
        "blue",
        kw.SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[
                kw.SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=assignment)
            ],
        ),
        4,
    )
    assert synced.assignment == assignment
    for who, group, prefix in (("", "blue.g", b"blue."), ("blue", "g", b"")):
        (found,) = place.ask(who, kw.DescribeGroupsRequest(groups=[group])).groups
        (member,) = found.members
        assert found.group_id == group
        for stored in (member.member_metadata, member.member_assignment):
            assert len(prefix) + len(b"orders") == int.from_bytes(
                stored[stored.index(prefix + b"orders") - 2 :][:2], "big"
            )
    (other,) = place.ask("red", kw.DescribeGroupsRequest(groups=["blue.g"])).groups
    assert not other.members


def test_bytes_that_are_no_subscription_are_refused(place: Place) -> None:
    protocol = kw.JoinGroupRequest.Protocol(name="range", metadata=b"\0\1\0\0\0\7")
    request = kw.JoinGroupRequest(
        group_id="g", session_timeout_ms=9_000, protocol_type="consumer", protocols=[protocol]
    )
    assert place.ask("blue", request).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_bytes_of_other_protocols_pass(place: Place) -> None:
    protocol = kw.JoinGroupRequest.Protocol(name="v1", metadata=b"\0\1\0\0\0\7")
    request = kw.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=9_000,
        rebalance_timeout_ms=1_000,
        protocol_type="connect",
        protocols=[protocol],
    )
    request.member_id = place.ask("blue", request).member_id
    joined = place.ask("blue", request)
    assert [each.metadata for each in joined.members] == [b"\0\1\0\0\0\7"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("orders", ["orders"]),
        ("^ord.*$", ["orders"]),
        ("shared|red\\.orders|x", []),
        (".*", ["orders"]),
    ],
)
def test_expressions_match_within_the_tenant(
    place: Place, pattern: str, expected: list[str]
) -> None:
    request = kw.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="AAAAAAAAAAAAAAAAAAAAAA",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=[],
        subscribed_topic_regex=pattern,
        topic_partitions=[],
    )
    found = place.ask("blue", request)
    assert found.error_code == 0, found
    names = {each.topic_id: name for name, each in topics(place, "blue").items()}
    again = kw.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=request.member_id, member_epoch=found.member_epoch
    )
    for _ in range(100):
        if found.assignment is not None and found.assignment.topic_partitions:
            break
        found = place.ask("blue", again)
        again.member_epoch = found.member_epoch
        assert found.error_code == 0, found
    got = found.assignment.topic_partitions if found.assignment is not None else []
    assert [names[each.topic_id] for each in got] == expected
    (group,) = place.ask("blue", kw.ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    (member,) = group.members
    assert member.subscribed_topic_regex == pattern.replace("^", "(?:)")


def test_an_expression_cannot_leave_its_group(place: Place) -> None:
    request = kw.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="AAAAAAAAAAAAAAAAAAAAAA",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=[],
        subscribed_topic_regex="x)|(?:.*",
        topic_partitions=[],
    )
    found = place.ask("blue", request)
    assert found.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert found.error_message == (
        "invalid regular expression: a parenthesis is closed that is not open"
    )


def test_a_fetch_session_of_another_tenant_cannot_be_used(place: Place) -> None:
    topic_id = id_of(place, "red.orders")
    produce(place, "red", topic_id, b"secret")
    session = fetch(place, "red", topic_id, session_epoch=0).session_id
    assert session
    stolen = place.ask(
        "blue", kw.FetchRequest(max_bytes=1 << 20, session_id=session, session_epoch=1)
    )
    assert (stolen.error_code, stolen.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    going_on = place.ask(
        "red", kw.FetchRequest(max_bytes=1 << 20, session_id=session, session_epoch=1)
    )
    assert going_on.error_code == 0


def test_names_of_topics_have_room_for_the_prefix(place: Place) -> None:
    create = kw.CreateTopicsRequest.CreatableTopic
    request = kw.CreateTopicsRequest(
        topics=[
            create(name=name, num_partitions=1, replication_factor=1)
            for name in ("x" * 244, "x" * 245, "", "more")
        ],
        timeout_ms=1_000,
    )
    found = {each.name: each for each in place.ask("blue", request).topics}
    assert found["x" * 244].error_code == found["more"].error_code == 0
    assert found["x" * 245].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert found["x" * 245].error_message == (
        "the name of a topic has 244 characters at most here, not 245 (Kafka's limit is 249, and the proxy adds a "
        "prefix of 5)"
    )
    assert found[""].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_error_messages_have_no_prefix(place: Place) -> None:
    topic = kw.CreateTopicsRequest.CreatableTopic(
        name="orders", num_partitions=1, replication_factor=1
    )
    (found,) = place.ask("blue", kw.CreateTopicsRequest(topics=[topic], timeout_ms=9)).topics
    assert found.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert "'orders'" in found.error_message
    assert "blue" not in found.error_message


def test_coordinators_are_found_by_the_tenants_names(place: Place) -> None:
    assert kw.FindCoordinatorRequest.max_version >= 4
    for version in range(kw.FindCoordinatorRequest.max_version + 1):
        request = kw.FindCoordinatorRequest(key="g") if version < 4 else None
        found = place.ask(
            "blue", request or kw.FindCoordinatorRequest(coordinator_keys=["g"]), version
        )
        keys = [each.key for each in found.coordinators]
        assert keys == ([] if version < 4 else ["g"])


REFUSED = [
    (kw.DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), "error_code"),
    (kw.DescribeClientQuotasRequest(), "error_code"),
    (kw.DescribeUserScramCredentialsRequest(), "error_code"),
    (kw.AlterPartitionReassignmentsRequest(), "error_code"),
    (kw.ElectLeadersRequest(), "error_code"),
    (kw.DescribeLogDirsRequest(), "error_code"),
    (kw.DescribeQuorumRequest(), "error_code"),
    (kw.UpdateFeaturesRequest(), "error_code"),
    (kw.UnregisterBrokerRequest(broker_id=0), "error_code"),
]


@pytest.mark.parametrize(
    ("request_", "attribute"), REFUSED, ids=[type(each).__name__ for each, _ in REFUSED]
)
def test_what_concerns_the_cluster_is_refused(place: Place, request_: Any, attribute: str) -> None:
    found = place.ask("blue", request_)
    assert getattr(found, attribute) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_users_and_quotas_are_not_changed(place: Place) -> None:
    deletion = kw.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="alice")
    found: Any = place.ask("blue", kw.AlterUserScramCredentialsRequest(deletions=[deletion]))
    assert [(each.user, each.error_code) for each in found.results] == [
        ("alice", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    ]
    entity = kw.AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="alice")
    entry = kw.AlterClientQuotasRequest.EntryData(entity=[entity])
    found = place.ask("blue", kw.AlterClientQuotasRequest(entries=[entry]))
    assert found.entries[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert found.entries[0].entity[0].entity_name == "alice"


def test_the_offered_versions_are_those_that_are_served(place: Place) -> None:
    request = kw.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    offered = {
        each.api_key: (each.min_version, each.max_version)
        for each in place.ask("blue", request, 4).api_keys
    }
    assert kw.ApiKey.WRITE_TXN_MARKERS not in offered
    assert offered[kw.ApiKey.FETCH][1] == 18


@pytest.mark.parametrize("name", ["", "a.b", "a_b", "a b", "ä", "x" * 249, 5])
def test_names_of_tenants_are_checked(name: Any) -> None:
    with pytest.raises(ValueError, match="tenant"):
        Tenants(name)


def test_tenants_are_chosen_in_one_way() -> None:
    with pytest.raises(ValueError, match="set one of"):
        Tenants()
    with pytest.raises(ValueError, match="set one of"):
        Tenants("blue", principals={"alice": "blue"})
    with pytest.raises(ValueError, match="set one of"):
        Tenants(listeners={"a": "blue"}, principals={"alice": "blue"})


def test_the_listener_chooses_the_tenant() -> None:
    listen = dict.fromkeys(("one", "two", "three"), "127.0.0.1:0")
    with (
        KafkaCluster.start(nodes=3, topics={"blue.orders": 3, "red.bills": 3}) as cluster,
        Proxy.start(
            cluster.bootstrap_servers.split(",")[0],
            [Tenants(listeners={"one": "blue", "two": "red"})],
            listen=listen,
        ) as proxy,
    ):
        assert list(proxy.addresses) == list(listen)
        seen, ports = {}, []
        for name in ("one", "two"):
            with Client(Address.parse(proxy.addresses[name])) as client:
                request = kw.MetadataRequest(topics=None)
                found = client.ask(request, 12).response
                seen[name] = [topic.name for topic in found.topics]
                ports += [broker.port for broker in found.brokers]
                # The same tenant at another broker, whose port belongs to the listener.
                other = next(
                    Address("127.0.0.1", broker.port)
                    for broker in found.brokers
                    if f"127.0.0.1:{broker.port}" != proxy.addresses[name]
                )
                with Client(other) as second:
                    again = second.ask(request, 12).response
                assert [topic.name for topic in again.topics] == seen[name]
                assert {each.port for each in again.brokers} == set(ports[-3:])
        assert seen == {"one": ["orders"], "two": ["bills"]}
        assert len(set(ports)) == 6
        with Client(Address.parse(proxy.addresses["three"])) as client:
            client.socket.sendall(client.connection.send_request(kw.MetadataRequest(), 12))
            assert client.read_to_end() == b""


def test_requests_that_arrive_together_are_answered_in_their_order(place: Place) -> None:
    client = place._clients["blue"]
    data = kw.ProduceRequest.PartitionProduceData(records=encode_batch([Record(value=b"x")]))
    topic = kw.ProduceRequest.TopicProduceData(name="orders", partition_data=[data])
    part = kw.FetchRequest.FetchPartition(partition_max_bytes=1 << 20)
    wanted = kw.FetchRequest.FetchTopic(topic="orders", partitions=[part])
    sent: list[tuple[Any, int]] = [
        (kw.MetadataRequest(topics=None), 9),
        (kw.ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic]), 9),
        (kw.HeartbeatRequest(group_id="g", member_id="m"), 4),
        (kw.FetchRequest(max_bytes=1 << 20, topics=[wanted]), 12),
        (kw.ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic]), 3),
    ]
    silent = kw.ProduceRequest(acks=0, timeout_ms=1_000, topic_data=[topic])
    frames = [request_frame(silent, 9)]
    frames += [client.connection.send_request(request, version) for request, version in sent]
    client.socket.sendall(b"".join(frames))
    found = [client.next().response for _ in sent]
    assert [type(each) for each in found] == [type(each).response_class for each, _ in sent]
    assert [each.name for each in found[0].topics] == ["orders"]
    assert found[1].responses[0].name == found[4].responses[0].name == "orders"
    assert found[1].responses[0].partition_responses[0].base_offset == 1
    assert found[3].responses[0].topic == "orders"


def test_what_arrives_before_a_refused_request_is_passed(place: Place) -> None:
    client = place._clients["blue"]
    data = kw.ProduceRequest.PartitionProduceData(records=encode_batch([Record(value=b"x")]))
    topic = kw.ProduceRequest.TopicProduceData(name="orders", partition_data=[data])
    silent = kw.ProduceRequest(acks=0, timeout_ms=1_000, topic_data=[topic])
    frames = [request_frame(silent, 9) for _ in range(2)]
    frames.append((10).to_bytes(4, "big") + (4_000).to_bytes(2, "big") + bytes(8))
    client.socket.sendall(b"".join(frames))
    assert client.read_to_end() == b""
    for _ in range(1_000):
        if len(place.broker.records("blue.orders")) == 2:
            break
        place.ask("", kw.MetadataRequest(topics=None))
    else:
        raise AssertionError("the records have not arrived")
