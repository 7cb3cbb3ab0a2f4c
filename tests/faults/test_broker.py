"""Faults of the broker, as a client sees them on its socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_wire import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    ErrorCode,
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

from krammar.broker import Broker
from krammar.wire.batches import Record, encode_batch
from krammar.wire.connection import CorrelationError, ResponseError
from tests.broker.support import RawClient


@pytest.fixture
def broker() -> Iterator[Broker]:
    with (
        Broker.start() as broker,
        RawClient(broker.port) as client,
    ):
        orders = CreateTopicsRequest.CreatableTopic(
            name="orders", num_partitions=2, replication_factor=1
        )
        assert client.call(CreateTopicsRequest(topics=[orders]), 5).topics[0].error_code == 0
        yield broker


def produce(*partitions: int, topic: str = "orders", acks: int = -1) -> ProduceRequest:
    """Build a Produce request with one record for each partition."""
    records = encode_batch([Record(value=b"x")])
    parts = [
        ProduceRequest.PartitionProduceData(index=index, records=records) for index in partitions
    ]
    return ProduceRequest(
        acks=acks, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=parts)]
    )


def codes(response: object) -> dict[int, int]:
    """Return the error code of each partition of a Produce response."""
    return {
        partition.index: partition.error_code
        for topic in response.responses  # type: ignore[attr-defined]
        for partition in topic.partition_responses
    }


def end_of(client: RawClient, partition: int) -> int:
    """Return the end offset of a partition of the topic orders."""
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="orders", partitions=[wanted])
    response = client.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
    return int(response.topics[0].partitions[0].offset)


def test_one_partition_is_refused_and_the_other_written(broker: Broker) -> None:
    rule = broker.faults.on("Produce", topic="orders", partition=1)
    rule.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER).times(2)
    with RawClient(broker.port) as client:
        assert codes(client.call(produce(0, 1), 9)) == {0: 0, 1: 6}
        assert codes(client.call(produce(1), 9)) == {1: 6}
        assert codes(client.call(produce(1), 9)) == {1: 0}
        assert (end_of(client, 0), end_of(client, 1)) == (1, 1)
    rule.expect(times=2)


def test_topics_of_new_versions_are_known_by_their_ids(broker: Broker) -> None:
    topic_id = broker.call(lambda: broker.cluster.topics["orders"].topic_id)
    broker.faults.on("Produce", topic="orders").answer("KAFKA_STORAGE_ERROR")
    request = produce(0)
    request.topic_data[0].topic_id = topic_id
    with RawClient(broker.port) as client:
        assert codes(client.call(request, 13)) == {0: ErrorCode.KAFKA_STORAGE_ERROR}


@pytest.mark.parametrize(("when", "written"), [("before", 0), ("after", 1), ("middle", 1)])
def test_connections_are_dropped(broker: Broker, when: str, written: int) -> None:
    rule = broker.faults.on("Produce").drop(when).once()
    with RawClient(broker.port) as client:
        with pytest.raises(ConnectionError):
            client.call(produce(0), 9)
        assert (client.wire.buffered > 0) == (when == "middle")
    rule.expect()
    with RawClient(broker.port) as client:
        assert end_of(client, 0) == written


def test_a_request_is_handled_and_then_refused(broker: Broker) -> None:
    broker.faults.on("Produce").answer(ErrorCode.REQUEST_TIMED_OUT, after=True)
    with RawClient(broker.port) as client:
        assert codes(client.call(produce(0), 9)) == {0: 7}
        assert end_of(client, 0) == 1


def test_a_delayed_request_keeps_the_order(broker: Broker) -> None:
    rule = broker.faults.on("Metadata").delay(30, of="request").delay(30).trickle(7, every_ms=1)
    with RawClient(broker.port) as client:
        client.send(MetadataRequest(topics=[MetadataRequest.Topic(name="orders")]), 9)
        client.send(HeartbeatRequest(group_id="g"), 4)
        assert client.receive().topics[0].name == "orders"
        assert client.receive().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    rule.expect(times=1)


def test_a_black_hole_answers_nothing_more_on_its_connection(broker: Broker) -> None:
    rule = broker.faults.on("Metadata", client_id="lost").black_hole()
    with RawClient(broker.port, client_id="lost") as lost, RawClient(broker.port) as other:
        lost.send(MetadataRequest(), 9)
        lost.send(HeartbeatRequest(group_id="g"), 4)
        rule.wait()
        assert other.call(MetadataRequest(), 9).brokers
        lost.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            lost.receive()
    assert rule.fired == 1


def test_two_responses_change_places(broker: Broker) -> None:
    rule = broker.faults.on("Metadata").reorder(ms=60_000).once()
    with RawClient(broker.port) as client:
        client.send(MetadataRequest(), 9)
        client.send(HeartbeatRequest(group_id="g"), 4)
        with pytest.raises(CorrelationError) as error:
            client.receive()
    assert (error.value.correlation_id, error.value.expected) == (1, 0)
    rule.expect()
    broker.faults.on("Metadata").reorder(ms=1)
    with RawClient(broker.port) as client:  # no response follows: it comes by itself
        assert client.call(MetadataRequest(), 9).brokers


def test_responses_with_broken_bytes(broker: Broker) -> None:
    broker.faults.on("Metadata").truncate(3).once()
    broker.faults.on("Heartbeat").correlation_id(5)
    with RawClient(broker.port) as client:
        with pytest.raises(ResponseError):
            client.call(MetadataRequest(), 9)
        with pytest.raises(CorrelationError):
            client.call(HeartbeatRequest(group_id="g"), 4)


def test_versions_that_the_broker_does_not_offer(broker: Broker) -> None:
    broker.faults.on("ApiVersions").offer({"Produce": "3-7", "Fetch": None})
    with RawClient(broker.port) as client:
        offered = {
            each.api_key: (each.min_version, each.max_version)
            for each in client.call(ApiVersionsRequest(), 2).api_keys
        }
    assert offered[0] == (3, 7) and 1 not in offered and 3 in offered


def test_batches_are_corrupt_on_their_way_in_and_out(broker: Broker) -> None:
    broker.faults.on("Produce").corrupt("crc").once()
    out = broker.faults.on("Fetch").corrupt("crc")
    with RawClient(broker.port) as client:
        assert codes(client.call(produce(0), 9)) == {0: ErrorCode.CORRUPT_MESSAGE}
        assert codes(client.call(produce(0), 9)) == {0: 0}
        part = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
        topic = FetchRequest.FetchTopic(topic="orders", partitions=[part])
        response = client.call(FetchRequest(topics=[topic], max_bytes=1 << 20), 11)
    (partition,) = response.responses[0].partitions
    sent = produce(0).topic_data[0].partition_data[0].records
    assert sent is not None and partition.records[17] == sent[17] ^ 0xFF
    out.expect()


def test_a_login_expires_when_the_clock_is_set_ahead(broker: Broker) -> None:
    jaas = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" '
        'password="a" user_alice="secret";'
    )
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "connections.max.reauth.ms": "3600000",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    with Broker.start(properties=settings) as secure:
        rule = secure.faults.on("Heartbeat", principal="User:alice").advance_clock(3_600_001)
        for closes in (False, True):
            with RawClient(secure.port) as client:
                client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
                login = client.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 1)
                assert login.error_code == 0 and login.session_lifetime_ms > 0
                assert client.call(MetadataRequest(), 9).brokers
                if closes:
                    client.call(HeartbeatRequest(group_id="g"), 4)
                    with pytest.raises(ConnectionError):
                        client.call(MetadataRequest(), 9)
        rule.expect(times=1)


def test_timers_run_when_the_clock_is_set_ahead(broker: Broker) -> None:
    """A fetch that waits for an hour is answered at once."""
    broker.faults.on("Heartbeat").advance_clock(3_600_000)
    with RawClient(broker.port) as waiting, RawClient(broker.port) as client:
        part = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
        topic = FetchRequest.FetchTopic(topic="orders", partitions=[part])
        waits = broker.faults.on("Fetch").delay(0, of="request")
        waiting.send(
            FetchRequest(topics=[topic], max_wait_ms=3_600_000, min_bytes=1, max_bytes=1 << 20), 11
        )
        waits.wait()
        before = broker.call(broker.timers.now_ms)
        client.call(MetadataRequest(), 9)  # the fetch is waiting by now
        client.call(HeartbeatRequest(group_id="g"), 4)
        assert waiting.receive().responses[0].partitions[0].error_code == 0
        assert broker.call(broker.timers.now_ms) >= before + 3_600_000


def test_rules_are_added_and_removed_while_clients_are_connected(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        assert codes(client.call(produce(0), 9)) == {0: 0}
        rule = broker.faults.on("Produce").answer("NOT_LEADER_OR_FOLLOWER")
        assert codes(client.call(produce(0), 9)) == {0: 6}
        broker.faults.remove(rule)
        assert codes(client.call(produce(0), 9)) == {0: 0}
        client.send(produce(0, acks=0), 9, expect_response=False)
        broker.faults.on("Produce").drop()
        client.send(produce(0, acks=0), 9, expect_response=False)
        with pytest.raises(ConnectionError):
            client.receive()
    (event,) = [each for each in broker.faults.history if each.rule is rule]
    assert event.request == produce(0) and event.frame[:2] == b"\0\0"


@pytest.mark.parametrize("members", [False, True])
def test_members_of_groups_outlive_a_clock_that_is_set_ahead(broker: Broker, members: bool) -> None:
    broker.faults.on("Metadata").advance_clock(3_600_000, members=members)
    protocol = JoinGroupRequest.Protocol(name="range", metadata=b"")
    with RawClient(broker.port) as client:
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        member = client.call(join, 2)
        assert member.error_code == 0
        beat = HeartbeatRequest(
            group_id="g", generation_id=member.generation_id, member_id=member.member_id
        )
        client.call(MetadataRequest(), 9)
        client.call(MetadataRequest(topics=[]), 9)  # timers that were due have run
        gone = ErrorCode.UNKNOWN_MEMBER_ID
        assert (client.call(beat, 2).error_code == gone) == members
