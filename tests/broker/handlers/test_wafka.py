"""Wafka: Kafka clients read the strings that Wafka clients write; invalid requests get an error."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka_wire import MetadataRequest
from wafka_wire import ErrorCode, ProduceRequest, ProduceResponse, ResponseHeader

from krammar.broker import Broker
from krammar.broker.config import BrokerConfig, ConfigError
from krammar.client import Client
from krammar.client.wafka import WafkaClient, WafkaError
from krammar.wire.errors import EncodeError
from tests.broker.support import BrokerProcess, RawClient
from tests.support.waiting import PATIENCE

_LISTENERS = {"listeners": "WAFKA://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}
_MORE = {"auto.create.topics.enable": "true", "num.partitions": "2", "message.max.bytes": "100000"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start(properties=_LISTENERS | _MORE) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[WafkaClient]:
    with WafkaClient(*broker.addresses["WAFKA"]) as client:
        yield client


class Raw:
    """A raw connection to a Wafka listener."""

    def __init__(self, broker: Broker) -> None:
        self.socket = socket.create_connection(broker.addresses["WAFKA"], timeout=PATIENCE)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def send(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> tuple[int, ProduceResponse]:
        (size,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(size)
        header, used = ResponseHeader.decode_from(frame, 0, 0)
        return header.correlation_id, ProduceResponse.decode(frame[used:], 3)

    def ended(self) -> bool:
        return self.socket.recv(1) == b""

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            assert piece, "the connection was closed"
            data += piece
        return data


def header(key: int, version: int, number: int) -> bytes:
    return struct.pack(">hhih", key, version, number, -1)


def request(topic: str, *records: str, partition: int = 0, acks: int = 1, **more: str) -> bytes:
    data = ProduceRequest.PartitionData(index=partition, records=records)
    topics = [ProduceRequest.TopicData(name=topic, partition_data=[data])]
    message = ProduceRequest(acks=acks, topic_data=topics, **more)  # type: ignore[arg-type]
    return header(0, 3, 9) + message.encode(3)


def values(broker: Broker, topic: str, count: int, partition: int = 0) -> list[bytes | None]:
    """The values that confluent-kafka reads."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "wafka"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = consumer.consume(count, PATIENCE)
        assert all(message.error() is None and message.key() is None for message in found)
        return [message.value() for message in found]
    finally:
        consumer.close()


def test_kafka_clients_read_what_wafka_clients_write(broker: Broker, client: WafkaClient) -> None:
    assert client.produce("greetings", ["hello", "", "wörld"], partition=0) == 0
    assert client.produce("greetings", ["again"], partition=0, acks=1) == 3
    assert client.produce("greetings", ["elsewhere"], partition=1) == 0
    assert client.produce("greetings", ["no answer"], partition=0, acks=0) == -1
    assert client.produce("greetings", ["x" * 32767], partition=0) == 5
    expected = [b"hello", b"", "wörld".encode(), b"again", b"no answer", b"x" * 32767]
    assert values(broker, "greetings", 6) == expected
    assert values(broker, "greetings", 1, 1) == [b"elsewhere"]


def test_round_robin(broker: Broker, client: WafkaClient) -> None:
    assert client.partition_count("turns") == 2
    assert [client.produce("turns", [str(number)]) for number in range(3)] == [0, 0, 1]
    assert client.produce("turns", ["3"], acks=0) == -1
    assert client.produce("turns", ["a choice"], partition=0) == 2
    assert client.produce("turns", ["4"]) == 3
    assert values(broker, "turns", 4) == [b"0", b"2", b"a choice", b"4"]
    assert values(broker, "turns", 2, 1) == [b"1", b"3"]


def test_round_robin_over_partitions_that_are_added(broker: Broker, client: WafkaClient) -> None:
    client.produce("grows", ["a"])
    with Client(broker.bootstrap_servers) as kafka:
        kafka.admin.create_partitions("grows", 3)
    client.produce("grows", ["b"])  # whose answer has the new number
    assert [client.next_partition("grows") for _ in range(4)] == [2, 0, 1, 2]
    assert client.produce("grows", ["c"], partition=2) == 0


def test_partitions_of_no_topic(client: WafkaClient) -> None:
    with pytest.raises(WafkaError, match="no/such"):
        client.partition_count("no/such")


def test_bytes_by_hand(broker: Broker) -> None:
    with Raw(broker) as raw:
        raw.send(
            bytes.fromhex(
                "0000 0003 00000007 0001 63"
                "ffff 0001 00003a98 00000001 0003 6f6e65 00000001 00000001 00000001 0002 6869"
            )
        )
        assert raw._exactly(4 + 4 + 2 + 2 + 4 + 5 + 4 + 4 + 4 + 2 + 8 + 2) == bytes.fromhex(
            "00000029 00000007 0000 ffff"
            "00000001 0003 6f6e65 00000002 00000001 00000001 0000 0000000000000000 ffff"
        )
    assert values(broker, "one", 1, 1) == [b"hi"]


def test_no_records_are_no_error(broker: Broker) -> None:
    with Raw(broker) as raw:
        raw.send(request("greetings"))
        _, response = raw.receive()
        assert response.topics[0].partitions[0].base_offset == -1
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("key", "version", "says"),
    [
        (0, 2, "api key 0, version 2 is not served: Wafka only has Produce (key 0), version 3"),
        (0, 9, "api key 0, version 9"),
        (18, 3, "api key 18, version 3"),
        (-1, -1, "api key -1, version -1"),
    ],
)
def test_other_keys_and_versions(broker: Broker, key: int, version: int, says: str) -> None:
    with Raw(broker) as raw:
        raw.send(header(key, version, 77) + b"\0" * 40)
        number, response = raw.receive()
        assert number == 77
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert says in (response.error_message or "")
        raw.send(request("greetings", "the connection goes on"))
        assert raw.receive()[1].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("frame", "code", "says"),
    [
        (request("t", "a")[:-1], ErrorCode.INVALID_REQUEST, "records"),
        (request("t", "a") + b"x", ErrorCode.INVALID_REQUEST, "1 byte"),
        (
            request("t", "a", transactional_id="me"),
            ErrorCode.INVALID_REQUEST,
            "transactions are not supported: TransactionalId must be null",
        ),
        (request("t", "a", acks=2), ErrorCode.INVALID_REQUIRED_ACKS, "Acks is 2"),
    ],
)
def test_requests_that_are_wrong(broker: Broker, frame: bytes, code: int, says: str) -> None:
    with Raw(broker) as raw:
        raw.send(frame)
        number, response = raw.receive()
        assert number == 9
        assert (response.error_code, response.topics) == (code, [])
        assert says in (response.error_message or "")


@pytest.mark.parametrize("frame", [b"\0\0\0", b"\x7f\xff\xff\xff"])
def test_what_cannot_be_answered_ends_the_connection(broker: Broker, frame: bytes) -> None:
    with Raw(broker) as raw:
        if len(frame) == 4:
            raw.socket.sendall(frame)  # a frame of 2 GiB
        else:
            raw.send(frame)
        assert raw.ended()


@pytest.mark.parametrize(
    ("topic", "partition", "code", "says"),
    [
        ("greetings", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "partitions 0 to 1"),
        ("greetings", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "partitions 0 to 1"),
        ("no/such", 0, ErrorCode.INVALID_TOPIC_EXCEPTION, "no/such"),
        ("__consumer_offsets", 0, ErrorCode.INVALID_TOPIC_EXCEPTION, "internal"),
    ],
)
def test_partitions_that_cannot_take_records(
    client: WafkaClient, topic: str, partition: int, code: ErrorCode, says: str
) -> None:
    client.produce("greetings", ["so that it is there"], partition=0)
    with pytest.raises(WafkaError, match=says) as caught:
        client.produce(topic, ["a"], partition=partition)
    assert caught.value.code is code
    assert not caught.value.retriable
    assert client.produce("greetings", ["the connection goes on"], partition=0) > 0


def test_too_large(client: WafkaClient) -> None:
    with pytest.raises(WafkaError, match="MESSAGE_TOO_LARGE"):
        client.produce("greetings", ["x" * 30000] * 4)
    with pytest.raises(EncodeError):
        client.produce("greetings", ["x" * 32768])


def test_one_bad_partition_does_not_hold_up_others(broker: Broker) -> None:
    good = ProduceRequest.PartitionData(index=0, records=["good"])
    bad = ProduceRequest.PartitionData(index=5, records=["bad"])
    message = ProduceRequest(
        acks=1, topic_data=[ProduceRequest.TopicData(name="both", partition_data=[bad, good])]
    )
    with Raw(broker) as raw:
        raw.send(header(0, 3, 1) + message.encode(3))
        codes = [each.error_code for each in raw.receive()[1].topics[0].partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert values(broker, "both", 1) == [b"good"]


def test_a_failure_without_acknowledgement_ends_the_connection(broker: Broker) -> None:
    with Raw(broker) as raw:
        raw.send(request("greetings", "a", partition=7, acks=0))
        assert raw.ended()


def test_a_compacted_topic_wants_keys(broker: Broker, client: WafkaClient) -> None:
    with Client(broker.bootstrap_servers) as kafka:
        kafka.admin.create_topic("compacted", 1, configs={"cleanup.policy": "compact"})
    with pytest.raises(WafkaError, match="INVALID_RECORD"):
        client.produce("compacted", ["a"])


def test_topics_are_not_made_where_that_is_off(tmp_path: Path) -> None:
    off = _LISTENERS | {"auto.create.topics.enable": "false"}
    with (
        Broker.start(properties=off) as broker,
        WafkaClient(*broker.addresses["WAFKA"]) as client,
        pytest.raises(WafkaError, match="topic absent does not exist"),
    ):
        client.produce("absent", ["a"])


def test_it_is_no_listener_that_kafka_clients_are_told_of(broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as kafka:
        assert [node.port for node in kafka.nodes().values()] == [broker.port]
    assert broker.port != broker.addresses["WAFKA"][1]


def test_a_broker_needs_a_kafka_listener_too() -> None:
    with pytest.raises(ConfigError, match="has no listener for Kafka's protocol"):
        BrokerConfig.defaults(listeners="WAFKA://127.0.0.1:0")


@pytest.mark.parametrize("acks", [0, 1])
def test_many_new_topics_are_created_in_slices(broker: Broker, acks: int) -> None:
    """Another client is served before the request is done."""
    names = [f"sliced-{acks}-{number}" for number in range(300)]
    topics = [
        ProduceRequest.TopicData(
            name=name, partition_data=[ProduceRequest.PartitionData(index=0, records=["x"])]
        )
        for name in names
    ]
    message = ProduceRequest(acks=acks, topic_data=topics).encode(3)
    before = broker.call(lambda: broker.connections.slices.count)
    with Raw(broker) as client, RawClient(broker.port) as other:
        client.send(header(0, 3, 9) + message)
        seen = set()
        while names[-1] not in seen:
            answer = other.call(MetadataRequest(topics=None), 12)
            seen = {topic.name for topic in answer.topics}
        if acks:
            _, response = client.receive()
            assert [each.partitions[0].error_code for each in response.topics] == [0] * 300
    assert broker.call(lambda: broker.connections.slices.count) > before


def test_names_of_clients_cannot_forge_log_lines(tmp_path: Path) -> None:
    forged = "x\n2026-01-01 00:00:00,000 ERROR forged\x1b[2J"
    listeners = "listeners=WAFKA://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
    with BrokerProcess(["--data-dir", tmp_path, f"--override={listeners}"]) as process:
        address = ("127.0.0.1", process.port)
        with socket.create_connection(address, PATIENCE) as plain:
            frame = request(forged, "text", acks=0)
            plain.sendall(struct.pack(">i", len(frame)) + frame)
            assert plain.recv(1) == b""
        _, output = process.stop()
    lines = [line for line in output.split("\n") if "forged" in line]
    assert len(lines) == 1 and r"x\n2026-01-01" in lines[0] and "\x1b" not in lines[0]
