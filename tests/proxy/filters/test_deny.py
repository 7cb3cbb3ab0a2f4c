"""Deny: APIs, versions, topics and groups, for all clients and by login."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from kafka_wire import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    ErrorCode,
    FetchRequest,
    JoinGroupRequest,
    MetadataRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

from krammar.client import At
from krammar.client import Client as KrammarClient
from krammar.client.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
)
from krammar.proxy import Proxy
from krammar.proxy.addresses import Address
from krammar.proxy.filters.deny import Deny
from krammar.testing import KafkaBroker
from krammar.wire.batches import Record, encode_batch
from tests.proxy.filters.support import Client, address, fetch, produce, through, topic_id


def test_apis() -> None:
    with (
        through(Deny(apis=["CreateTopics"])) as (broker, proxy),
        KrammarClient(proxy.bootstrap_servers) as client,
    ):
        with pytest.raises(ClusterAuthorizationFailed):
            client.admin.create_topic("more")
        assert set(broker.topics) == {"orders"}
        client.admin.delete_topic("orders")


@pytest.mark.parametrize("version", [3, 9, 13])
def test_topics_are_denied_and_the_others_are_served(version: int) -> None:
    denied, allowed = ("secret-plans", 0), ("orders", 0)
    topics = {"orders": 1, "secret-plans": 1}
    with through(Deny(topics=["secret-*"]), topics=topics) as (broker, proxy):
        with Client(address(proxy)) as client:
            everything = client.ask(MetadataRequest(topics=None), 12).response.topics
            assert [each.name for each in everything] == ["orders"]
        if version < 13:
            found = produce(proxy, version, {denied: [b"x"], allowed: [b"y"]})
            assert found[denied].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert found[allowed].error_code == 0
        assert not broker.records("secret-plans")


def test_a_topic_by_its_id() -> None:
    with through(Deny(topics=["secret"]), topics={"secret": 1}) as (broker, proxy):
        with Client(Address.parse(broker.bootstrap_servers)) as direct:
            asked = MetadataRequest(topics=[MetadataRequest.Topic(name="secret")])
            secret = direct.ask(asked, 12).response.topics[0].topic_id
        with Client(address(proxy)) as client:
            by_id = MetadataRequest(topics=[MetadataRequest.Topic(topic_id=secret, name=None)])
            (topic,) = client.ask(by_id, 12).response.topics
            assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert not topic.partitions


def test_configs_of_a_topic() -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    with (
        through(Deny(topics=["secret"]), topics={"secret": 1}) as (_, proxy),
        Client(address(proxy)) as client,
    ):
        asked = DescribeConfigsRequest(
            resources=[resource(resource_type=2, resource_name="secret")]
        )
        (found,) = client.ask(asked, 4).response.results
        assert found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not found.configs


def test_fetch() -> None:
    with through(topics={"secret": 1}) as (broker, proxy):
        produce(proxy, 9, {("secret", 0): [b"x"]})
        assert fetch(proxy, 12, "secret").records
        with Proxy.start(broker.bootstrap_servers, [Deny(topics=["secret"])]) as denying:
            found = fetch(denying, 12, "secret")
            assert found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert not found.records


def test_groups() -> None:
    with through(Deny(groups=["payroll"])) as (_, proxy), Client(address(proxy)) as client:
        joining = JoinGroupRequest(
            group_id="payroll",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
        )
        found = client.ask(joining, 5).response
        assert found.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        joining.group_id = "others"
        assert client.ask(joining, 5).response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        with (
            KrammarClient(proxy.bootstrap_servers) as admin,
            pytest.raises(GroupAuthorizationFailed),
        ):
            admin.groups.committed("payroll")


def test_versions_are_not_offered_and_close_the_connection() -> None:
    with (
        through(Deny(versions={"Metadata": "0-8", "Heartbeat": "0-"})) as (_, proxy),
        Client(address(proxy)) as client,
    ):
        offered = client.ask(ApiVersionsRequest(), 2).response.api_keys
        assert [each.min_version for each in offered if each.api_key == 3] == [9]
        assert 12 not in [each.api_key for each in offered]
        client.ask(MetadataRequest(), 9)
        client.socket.sendall(client.connection.send_request(MetadataRequest(), 8))
        assert client.read_to_end() == b""


@pytest.mark.parametrize("sasl", ["plain", "scram"])
def test_logins(sasl: str) -> None:
    with through(
        Deny(topics=["orders"], logins=["guest"]),
        Deny(apis=["CreateTopics"], logins=["g*"]),  # each of several filters sees the login
        sasl=sasl,
        users={"alice": "a-secret", "guest": "g-secret"},
    ) as (broker, proxy):
        for user in ("alice", "guest"):
            settings = broker.clients_as(user).krammar
            with KrammarClient(
                **settings | {"bootstrap_servers": proxy.bootstrap_servers}
            ) as client:
                if user == "alice":
                    with client.producer() as producer:
                        producer.send("orders", b"x")
                    found = client.records("orders", begin=At.EARLIEST, end=At.LATEST)
                    assert [record.value for _, record in found] == [b"x"]
                else:
                    with pytest.raises(TopicAuthorizationFailed):
                        client.partitions("orders")
                    with pytest.raises(ClusterAuthorizationFailed):
                        client.admin.create_topic("more")


@pytest.mark.parametrize("version", [12, 17])
def test_the_fetch_session_of_another_user(version: int) -> None:
    def log_in(client: Client, user: str) -> None:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = f"\0{user}\0{user}-secret".encode()
        assert not client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).response.error_code

    with (
        through(
            Deny(topics=["orders"], logins=["guest"]),
            sasl="plain",
            users={"guest": "guest-secret", "alice": "alice-secret"},
        ) as (_, proxy),
        Client(address(proxy)) as alice,
        Client(address(proxy)) as guest,
    ):
        log_in(alice, "alice")
        log_in(guest, "guest")
        named: dict[str, Any] = {"topic": "orders"}
        if version > 12:
            named = {"topic_id": topic_id(alice, "orders")}
        part = FetchRequest.FetchPartition(partition_max_bytes=1 << 20)
        wanted = FetchRequest.FetchTopic(**named, partitions=[part])
        begin = FetchRequest(max_bytes=1 << 20, session_epoch=0, topics=[wanted])
        session = alice.ask(begin, version).response.session_id
        assert session
        batch = encode_batch([Record(value=b"plans")])
        data = ProduceRequest.PartitionProduceData(records=batch)
        topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[data])
        produced = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
        assert not (alice.ask(produced, 9).response.responses[0].partition_responses[0].error_code)
        more = FetchRequest(max_bytes=1 << 20, session_id=session, session_epoch=1)
        assert guest.ask(more, version).response.responses == []


def test_logins_at_the_proxy() -> None:
    with (
        KafkaBroker.start(topics=["orders"]) as broker,
        Proxy.start(
            broker.bootstrap_servers,
            [Deny(topics=["orders"], logins=["guest"])],
            clients={"security.protocol": "SASL_PLAINTEXT"},
            users={"guest": "guest-secret", "alice": "alice-secret"},
        ) as proxy,
    ):
        for user, denied in (("alice", 0), ("guest", ErrorCode.TOPIC_AUTHORIZATION_FAILED)):
            with Client(address(proxy)) as client:
                client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
                token = f"\0{user}\0{user}-secret".encode()
                client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
                asked = MetadataRequest(topics=[MetadataRequest.Topic(name="orders")])
                assert client.ask(asked, 12).response.topics[0].error_code == denied


def test_requests_that_do_not_wait_for_the_login_are_refused() -> None:
    with (
        through(
            Deny(apis=["CreateTopics"], logins=["guest"]),
            sasl="plain",
            users={"guest": "g-secret"},
        ) as (broker, proxy),
        Client(address(proxy)) as client,
    ):
        topic = CreateTopicsRequest.CreatableTopic(
            name="more", num_partitions=1, replication_factor=1
        )
        sent: list[tuple[Any, int]] = [
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (SaslAuthenticateRequest(auth_bytes=b"\0guest\0g-secret"), 2),
            (CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 7),
        ]
        frames = [client.connection.send_request(request, version) for request, version in sent]
        client.socket.sendall(b"".join(frames))
        client.socket.shutdown(socket.SHUT_WR)
        client.read_to_end()
        assert set(broker.topics) == {"orders"}


def test_a_login_that_hides_its_user_is_refused() -> None:
    with (
        through(Deny(topics=["x"], logins=["guest"])) as (_, proxy),
        Client(address(proxy)) as client,
    ):
        request = SaslHandshakeRequest(mechanism="PLAIN")
        client.socket.sendall(client.connection.send_request(request, 0))
        assert client.read_to_end() == b""


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "apis, versions, topics, groups: give at least one of them"),
        ({"apis": ["CreateTopic"]}, "apis: no API 'CreateTopic' can be denied; .*CreateTopics"),
        ({"apis": ["ApiVersions"]}, "apis: no API 'ApiVersions' can be denied"),
        ({"versions": {"Produce": "x"}}, "versions: Produce: .*write"),
        ({"topics": "secret"}, "topics = 'secret': write a list"),
        ({"topics": ["x"], "logins": [3]}, "logins: 3 is no pattern"),
    ],
)
def test_wrong_settings(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Deny(**arguments)
