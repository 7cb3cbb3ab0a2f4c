"""Wafka: strings go in, and Kafka clients read them; all else is told what is wrong with it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from wafka_wire import (
    ErrorCode,
    ProduceRequest,
    ProduceRequestTopicData,
    ProduceRequestTopicDataPartitionData,
    ProduceResponse,
    ResponseHeader,
)

from krammar.broker import Broker
from krammar.broker.config import BrokerConfig, ConfigError
from krammar.cli import main
from krammar.client import At, Client
from krammar.client import TopicPartition as At0
from krammar.client.errors import DeadlineError, ProtocolError, TransportError
from krammar.client.wafka import WafkaClient, WafkaError
from krammar.wire.errors import EncodeError
from tests.broker.support import PATIENCE, BrokerProcess

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
    """Bytes to a Wafka listener, and what comes back."""

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
    data = ProduceRequestTopicDataPartitionData(index=partition, records=records)
    topics = [ProduceRequestTopicData(name=topic, partition_data=[data])]
    message = ProduceRequest(acks=acks, topic_data=topics, **more)  # type: ignore[arg-type]
    return header(0, 3, 9) + message.encode(3)


def values(broker: Broker, topic: str, count: int, partition: int = 0) -> list[bytes | None]:
    """What confluent-kafka reads."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "wafka"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = consumer.consume(count, PATIENCE)
        assert all(message.error() is None and message.key() is None for message in found)
        return [message.value() for message in found]
    finally:
        consumer.close()


def test_kafka_clients_read_what_wafka_clients_write(broker: Broker, client: WafkaClient) -> None:
    assert client.produce("greetings", ["hello", "", "wörld"]) == 0
    assert client.produce("greetings", ["again"], acks=1) == 3
    assert client.produce("greetings", ["elsewhere"], partition=1) == 0
    assert client.produce("greetings", ["no answer"], acks=0) == -1
    assert client.produce("greetings", ["x" * 32767]) == 5
    expected = [b"hello", b"", "wörld".encode(), b"again", b"no answer", b"x" * 32767]
    assert values(broker, "greetings", 6) == expected
    assert values(broker, "greetings", 1, 1) == [b"elsewhere"]


def test_bytes_by_hand(broker: Broker) -> None:
    with Raw(broker) as raw:
        raw.send(
            bytes.fromhex(
                "0000 0003 00000007 0001 63"
                "ffff 0001 00003a98 00000001 0003 6f6e65 00000001 00000001 00000001 0002 6869"
            )
        )
        assert raw._exactly(4 + 4 + 2 + 2 + 4 + 5 + 4 + 4 + 2 + 8 + 2) == bytes.fromhex(
            "00000025 00000007 0000 ffff"
            "00000001 0003 6f6e65 00000001 00000001 0000 0000000000000000 ffff"
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
        (0, 2, "api key 0, version 2: Wafka has Produce, key 0, in version 3 only"),
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
        (request("t", "a", transactional_id="me"), ErrorCode.INVALID_REQUEST, "TransactionalId"),
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
    client.produce("greetings", ["so that it is there"])
    with pytest.raises(WafkaError, match=says) as caught:
        client.produce(topic, ["a"], partition=partition)
    assert caught.value.code is code
    assert not caught.value.retriable
    assert client.produce("greetings", ["the connection goes on"]) > 0


def test_too_large(client: WafkaClient) -> None:
    with pytest.raises(WafkaError, match="MESSAGE_TOO_LARGE"):
        client.produce("greetings", ["x" * 30000] * 4)
    with pytest.raises(EncodeError):
        client.produce("greetings", ["x" * 32768])


def test_one_bad_partition_does_not_hold_up_others(broker: Broker) -> None:
    good = ProduceRequestTopicDataPartitionData(index=0, records=["good"])
    bad = ProduceRequestTopicDataPartitionData(index=5, records=["bad"])
    message = ProduceRequest(
        acks=1, topic_data=[ProduceRequestTopicData(name="both", partition_data=[bad, good])]
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
        pytest.raises(WafkaError, match="there is no topic absent"),
    ):
        client.produce("absent", ["a"])


def test_it_is_no_listener_that_kafka_clients_are_told_of(broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as kafka:
        assert [node.port for node in kafka.nodes().values()] == [broker.port]
    assert broker.port != broker.addresses["WAFKA"][1]


def test_a_broker_needs_a_kafka_listener_too() -> None:
    with pytest.raises(ConfigError, match="has none for Kafka's protocol"):
        BrokerConfig.defaults(listeners="WAFKA://127.0.0.1:0")


# The client's errors.


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(TransportError, match=f"127.0.0.1:{port}: .*refused"):
            WafkaClient("127.0.0.1", port)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", TransportError),
        (b"\0\0\0\x05\0\0\0\0x", ProtocolError),
        (b"\xff\xff\xff\xff", ProtocolError),
        (b"\0\0\0\x0c" + b"\0" * 4 + b"\0\0\xff\xff\0\0\0\0", ProtocolError),
    ],
)
def test_servers_that_break_the_rules(answer: bytes, error: type[Exception]) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        WafkaClient(*server.getsockname()) as client,
    ):
        connection, _ = server.accept()
        with connection:
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            with pytest.raises(error):
                client.produce("t", ["a"])


def test_a_server_that_does_not_answer() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        WafkaClient(*server.getsockname(), timeout_ms=50) as client,
        pytest.raises(DeadlineError, match="not done within 50 ms"),
    ):
        client.produce("t", ["a"])


def test_a_code_of_a_newer_server() -> None:
    error = WafkaError(999, "news")
    assert str(error) == "error 999: news"
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR


# The command line.


def test_commands(tmp_path: Path) -> None:
    arguments = ["--protocol", "wafka", "--data-dir", tmp_path, "--port", "0", "--kafka-port", "0"]
    with BrokerProcess(arguments) as process:
        ports = {
            line.split()[0]: line.rpartition(":")[2] for line in process.lines if " on " in line
        }
        server = f"127.0.0.1:{ports['WAFKA']}"
        lines = "".join(f"line {number}\n" for number in range(1234))
        run = CliRunner().invoke(main, ["wafka-produce", "-b", server, "t"], input=lines)
        assert (run.exit_code, run.output) == (0, "1234 records written to t-0\n")
        with Client(f"127.0.0.1:{ports['PLAINTEXT']}") as kafka:
            assert kafka.list_offsets({At0("t", 0): At.LATEST})[At0("t", 0)].offset == 1234
        for given, says in [
            (b"a\n" + b"x" * 32768 + b"\n", "line 2 has 32768 bytes"),
            (b"a\n\xff\n", "line 2 is not UTF-8 (0 records were written)"),
        ]:
            run = CliRunner().invoke(main, ["wafka-produce", "-b", server, "t"], input=given)
            assert run.exit_code == 1
            assert says in run.output
        run = CliRunner().invoke(main, ["wafka-produce", "-b", server, "-p", "9", "t"], input="a")
        assert run.exit_code == 1
        assert "UNKNOWN_TOPIC_OR_PARTITION: t has partitions 0 to 0 (0 records" in run.output


def test_commands_that_are_wrong(tmp_path: Path) -> None:
    run = CliRunner().invoke(main, ["wafka-produce", "-b", "nowhere", "t"], input="a")
    assert run.exit_code == 2
    assert "'nowhere' is not HOST:PORT" in run.output
    arguments = ["broker", "--data-dir", str(tmp_path), "--kafka-port", "1"]
    run = CliRunner().invoke(main, arguments)
    assert run.exit_code == 2
    assert "--kafka-port goes with --protocol wafka" in run.output
