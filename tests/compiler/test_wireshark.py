"""Dissectors for Wireshark, run by tshark: every field and value matches what krammar reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka_wire
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer

from krammar.broker import Broker
from krammar.cli import main
from krammar.proxy.addresses import Address
from krammar.tap import pcap
from krammar.tap.capture import CaptureWriter
from krammar.wire.batches import Record, encode_batch
from krammar.wire.layout import Layout
from krammar.wire.message import Request
from krammar.wire.package import package_of
from tests.compiler.conftest import write_files
from tests.compiler.tshark import (
    Conversation,
    Different,
    Shown,
    compare,
    frames,
    needs_tshark,
    tshark,
    write_pcap,
)
from tests.generated.catalogue import Message, by_name
from tests.generated.strategies import STYLES, samples
from tests.generated.test_frames import frame_of
from tests.generated.values import build
from tests.support.waiting import PATIENCE
from tests.tap.support import TapThread

pytestmark = needs_tshark
DEFINITIONS = Path(__file__).parents[2] / "definitions"
STRUCT_PORT = 7777

# A protocol of the test: a UDP packet has the name and the version of a struct, a zero byte, and the struct.
STRUCTS = """
local named = Proto("named_struct", "Named struct")
function named.dissector(tvb, pinfo, tree)
  local name = tvb():stringz()
  DissectorTable.get("kafka_wire.struct"):try(name, tvb(#name + 1):tvb(), pinfo, tree)
end
DissectorTable.get("udp.port"):add(7777, named)
"""


def gen(source: Path, out: Path, *more: str) -> Any:
    run = ["gen", str(source), "-o", str(out), "--backend", "wireshark", *more]
    return CliRunner().invoke(main, run)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wireshark")
    result = gen(DEFINITIONS, out)
    assert result.exit_code == 0, result.output
    return out / "kafka_wire" / "kafka_wire.lua"


Expected = list[tuple[Layout, dict[str, Any]]]


def expected_of(body: bytes, *layouts: Layout) -> Expected:
    """The parts of a frame as krammar reads them: header and body."""
    found, position = [], 0
    for layout in layouts:
        plain, position = layout.read_from(body, position)
        found.append((layout, plain))
    assert position == len(body)
    return found


def layouts_of(message: Message, version: int) -> list[Layout]:
    package: Any = message.package
    versions = package.header_versions(message.key, version)
    if issubclass(message.cls, Request):
        return [package.RequestHeader._layout(versions.request), message.layout(version)]
    return [package.ResponseHeader._layout(versions.response), message.layout(version)]


def differences(expected: Expected, shown: Shown, protocol: str = "kafka_wire") -> Iterator[str]:
    """The differences between a frame and what krammar reads."""
    parts = [item for item in shown.children if item.name == protocol] or [shown]
    if len(parts) != len(expected):
        yield f"{[item.label for item in parts]} for {[layout.name for layout, _ in expected]}"
    for (layout, plain), part in zip(expected, parts, strict=False):
        try:
            if part.label != f"{layout.name} v{layout.version}":
                raise Different(part.label)
            compare(layout, plain, part.children, layout.name)
        except Different as error:
            yield f"{layout.name} v{layout.version}: {error}"


def plain(message: Message, version: int, style: str) -> dict[str, Any]:
    return samples(message, version, seed=21)[STYLES.index(style)]


@pytest.mark.parametrize(
    "style",
    [
        "high",
        *(
            pytest.param(each, marks=pytest.mark.sweep)
            for each in STYLES
            if each not in ("high", "long")
        ),
    ],
)
def test_every_version_of_every_message_of_kafka(script: Path, style: str, tmp_path: Path) -> None:
    talks: list[Conversation] = []
    expected: list[Expected] = []
    names = by_name()
    for message in names.values():
        for version in message.versions:
            value = build(message, message.layout(version), plain(message, version, style))
            talk = Conversation(client=20000 + len(talks))
            if message.key is None:
                data = message.encode(value, version)
                talk.datagram(f"{message.name} {version}".encode() + b"\0" + data, STRUCT_PORT)
                expected.append(expected_of(data, message.layout(version)))
            elif issubclass(message.cls, Request):
                body = frame_of(message, version, value)
                talk.frame(body, by_client=True)
                expected.append(expected_of(body, *layouts_of(message, version)))
                answer = names[message.cls.response_class.__name__]
                value = build(answer, answer.layout(version), plain(answer, version, style))
                versions = kafka_wire.header_versions(message.key, version)
                header = kafka_wire.ResponseHeader(correlation_id=-7)
                body = header.encode(versions.response) + value.encode(version)
                talk.frame(body, by_client=False)
                expected.append(expected_of(body, *layouts_of(answer, version)))
            talks.append(talk)
    harness = tmp_path / "structs.lua"
    harness.write_text(STRUCTS)
    capture = write_pcap(tmp_path / "all.pcap", talks)
    shown = frames(script, capture, "kafka_wire", "-X", f"lua_script:{harness}")
    assert len(expected) == 875
    wrong = [text for pair in zip(expected, shown, strict=True) for text in differences(*pair)]
    assert wrong == []


# -- Conversations ---------------------------------------------------------------------------------


def test_a_real_conversation_that_the_tap_saved(script: Path, tmp_path: Path) -> None:
    """A producer, a transactional producer and a consumer group of librdkafka, through the tap."""
    writer = CaptureWriter(tmp_path / "real.tap")
    with (
        Broker.start(port=0) as broker,
        TapThread(Address(broker.host, broker.port), observers=[writer]) as tap,
    ):
        for codec in ("none", "gzip"):
            settings: dict[str, Any] = {"bootstrap.servers": str(tap.address)}
            settings |= {"compression.type": codec, "transactional.id": codec}
            producer = Producer(settings)
            producer.init_transactions(PATIENCE)
            producer.begin_transaction()
            for number in range(20):
                producer.produce("orders", key=str(number), value=f"größe {number} " * 50)
            producer.commit_transaction(PATIENCE)
        consumer = Consumer(
            {
                "bootstrap.servers": str(tap.address),
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        assert len(consumer.consume(40, PATIENCE)) == 40
        consumer.close()
        del producer, consumer
    writer.close()
    pcap.write_pcap(kafka_wire, tmp_path / "real.tap", tmp_path / "real.pcapng")

    found = frames(
        script, tmp_path / "real.pcapng", "kafka_wire", "-o", f"kafka_wire.ports:{broker.port}"
    )
    expected = []
    package = package_of(kafka_wire)
    for frame in tap.recorder.frames:
        assert frame.api_key is not None
        versions = package.header_versions(frame.api_key, frame.body_version)
        header = versions.request if frame.is_request else versions.response
        layouts = (
            type(frame.header)._layout(header),
            type(frame.message)._layout(frame.body_version),
        )
        expected.append(expected_of(frame.data, *layouts))
    asked = {frame.api for frame in tap.recorder.frames}
    assert {"Produce", "Fetch", "InitProducerId", "EndTxn", "JoinGroup", "OffsetCommit"} <= asked
    wrong = [text for pair in zip(expected, found, strict=True) for text in differences(*pair)]
    assert wrong == []
    assert not any(map(remarks, found))
    batches = [batch for shown in found for batch in shown.walk() if batch.label == "RecordBatch"]
    assert len(batches) >= 4
    values = [item.raw for batch in batches for item in batch.named("records.record.value")]
    assert values.count("größe 7 ".encode() * 50) == 2  # sent, and fetched
    assert any(batch.named("compressed_records") for batch in batches)


METADATA = bytes.fromhex("0003 0001 00000007 0001 63 00000001 0006") + b"orders"


def shown_of(script: Path, folder: Path, *bodies: bytes, more: tuple[str, ...] = ()) -> list[Shown]:
    """What Wireshark shows of requests, each in a packet."""
    talk = Conversation()
    for body in bodies:
        talk.frame(body, by_client=True)
    return frames(script, write_pcap(folder / "a.pcap", [talk]), "kafka_wire", *more)


def remarks(shown: Shown) -> list[str]:
    return [item.show for item in shown.named("_ws.expert.message")]


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_frames_in_any_packets(script: Path, tmp_path: Path, piece: int) -> None:
    talk = Conversation()
    data = (len(METADATA).to_bytes(4, "big") + METADATA) * 5
    for at in range(0, len(data), piece):
        talk.send(data[at : at + piece], by_client=True)
    capture = write_pcap(tmp_path / "a.pcap", [talk])

    found = frames(script, capture, "kafka_wire")

    assert [shown.named("metadata_request.topics.name")[0].show for shown in found] == [
        "orders"
    ] * 5
    assert "MetadataRequest v1" in tshark(script, capture)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (bytes.fromhex("7fff 0000 00000001"), "the definitions do not contain key 32767 v0"),
        (bytes.fromhex("0003 0063 00000001"), "the definitions do not contain MetadataRequest v99"),
        (bytes.fromhex("0003 00"), "too short for the header of a request"),
        (
            METADATA[:-2],
            "MetadataRequest.topics[0].name: needs 6 bytes at offset 17, 4 left",
        ),
        (METADATA + b"\0\0", "2 bytes left over"),
        (
            bytes.fromhex("0003 0001 00000007 ffff 00000001 ffff"),
            "MetadataRequest.topics[0].name: a length of -1 at offset 14",
        ),
        (
            bytes.fromhex("0003 0001 00000007 ffff 7fffffff"),
            "MetadataRequest.topics: 2147483647 elements, but only 0 bytes left",
        ),
        (
            bytes.fromhex("0003 0009 00000007 ffff 00 ffffffff7f"),
            "MetadataRequest.topics: the varint at offset 11 does not fit into 32 bits",
        ),
    ],
)
def test_bad_requests(script: Path, tmp_path: Path, body: bytes, message: str) -> None:
    bad, good = shown_of(script, tmp_path, body, METADATA)

    assert remarks(bad) == [message]
    assert remarks(good) == []


def test_bytes_that_are_no_frames(script: Path, tmp_path: Path) -> None:
    talk = Conversation()
    talk.send(b"\xff\xff\xff\xffrubbish", by_client=True)
    (shown,) = frames(script, write_pcap(tmp_path / "a.pcap", [talk]), "kafka_wire")

    assert remarks(shown) == ["the capture begins inside a frame: no frame begins in this packet"]


def test_a_size_that_is_impossible(script: Path, tmp_path: Path) -> None:
    """The next packet is searched for a frame again."""
    talk = Conversation()
    talk.frame(METADATA, by_client=True)
    talk.send(b"\xff\xff\xff\xffrubbish", by_client=True)
    talk.frame(METADATA, by_client=True)
    first, wrong, last = frames(script, write_pcap(tmp_path / "a.pcap", [talk]), "kafka_wire")

    assert remarks(wrong) == ["a frame of -1 bytes is impossible"]
    assert remarks(first) == remarks(last) == []


# -- Captures that begin inside a frame ---------------------------------------------------------------

SKIPPED = "the capture begins inside a frame: {} bytes are skipped up to the next one"
NONE = "the capture begins inside a frame: no frame begins in this packet"


def produce(value: bytes) -> bytes:
    """The body of a Produce request v3."""
    part = kafka_wire.ProduceRequest.PartitionProduceData(
        records=encode_batch([Record(value=value)])
    )
    topic = kafka_wire.ProduceRequest.TopicProduceData(name="orders", partition_data=[part])
    request = kafka_wire.ProduceRequest(topic_data=[topic])
    return bytes.fromhex("0000 0003 00000009 0003") + b"app" + request.encode(3)


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def topics(shown: Shown) -> list[str]:
    names = ("metadata_request.topics.name", "produce_request.topic_data.name")
    return [item.show for item in shown.walk() if item.name in names]


@pytest.mark.parametrize("more", [(), ("-2",)])
@pytest.mark.parametrize("cut", [1, 3, 4, 5, 9, 100, 170])
def test_the_next_frame_begins_in_the_same_packet(
    script: Path, tmp_path: Path, cut: int, more: tuple[str, ...]
) -> None:
    # Zeros could be sizes, keys and versions.
    data = framed(produce(bytes(90) + b"\0\0\0\x0c\0\0\0\3" * 5))
    assert len(data) > 200
    talk = Conversation()
    talk.send(data[cut:] + framed(METADATA, METADATA), by_client=True)
    talk.frame(METADATA, by_client=True)
    found = frames(script, write_pcap(tmp_path / "a.pcap", [talk]), "kafka_wire", *more)

    assert [remarks(each) for each in found] == [[SKIPPED.format(len(data) - cut)], [], [], []]
    assert found[0].named("skipped")[0].raw == data[cut:]
    assert [topics(each) for each in found] == [[], ["orders"], ["orders"], ["orders"]]


@pytest.mark.parametrize("more", [(), ("-2",)])
@pytest.mark.parametrize("size", [40, 300, 4000])
def test_the_next_frame_begins_in_a_later_packet(
    script: Path, tmp_path: Path, size: int, more: tuple[str, ...]
) -> None:
    data = framed(produce(bytes(3000)))[50:]
    talk = Conversation()
    for stream in (data, framed(produce(b"x" * 3000)), framed(METADATA)):
        for at in range(0, len(stream), size):
            talk.send(stream[at : at + size], by_client=True)
    found = frames(script, write_pcap(tmp_path / "a.pcap", [talk]), "kafka_wire", *more)

    *lost, big, small = found
    assert [remarks(each) for each in lost] == [[NONE]] * -(-len(data) // size)
    assert (remarks(big), topics(big), topics(small)) == ([], ["orders"], ["orders"])


@pytest.mark.parametrize("more", [(), ("-2",)])
def test_a_frame_that_continues_in_the_next_packets(
    script: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    data = framed(METADATA)[9:] + framed(METADATA, produce(b"x" * 500), METADATA)
    talk = Conversation()
    for at in range(0, len(data), 100):
        talk.send(data[at : at + 100], by_client=True)
    found = frames(script, write_pcap(tmp_path / "a.pcap", [talk]), "kafka_wire", *more)

    assert remarks(found[0]) == [SKIPPED.format(len(METADATA) - 5)]
    assert [topics(each) for each in found[1:]] == [["orders"]] * 3


def test_responses_of_a_capture_that_begins_inside_one(script: Path, tmp_path: Path) -> None:
    """Responses are found by the correlation ids of requests in the capture."""
    answer = bytes.fromhex("00000007") + kafka_wire.MetadataResponse(
        brokers=[kafka_wire.MetadataResponse.Broker(host="localhost")]
    ).encode(1)
    talk = Conversation()
    talk.send(bytes(300), by_client=False)
    talk.frame(METADATA, by_client=True)
    talk.send(bytes(50) + framed(answer), by_client=False)
    lost, asked, rest, found = frames(script, write_pcap(tmp_path / "a.pcap", [talk]), "kafka_wire")

    assert (remarks(lost), remarks(asked)) == ([NONE], [])
    assert remarks(rest) == [SKIPPED.format(50)]
    assert found.named("metadata_response.brokers.host")[0].show == "localhost"


def test_nothing_but_part_of_a_frame(script: Path, tmp_path: Path) -> None:
    talk = Conversation()
    for _ in range(3):
        talk.send(bytes(range(256)) * 4, by_client=True)
    capture = write_pcap(tmp_path / "a.pcap", [talk])

    assert [remarks(each) for each in frames(script, capture, "kafka_wire")] == [[NONE]] * 3
    assert tshark(script, capture).count("part of a frame") == 3


def test_responses_belong_to_requests_of_their_stream(script: Path, tmp_path: Path) -> None:
    """Two streams use the same correlation ids for other requests, and one uses an id twice."""
    heartbeat = bytes.fromhex("000c 0000 00000007 ffff") + bytes(8)
    other = Conversation(client=50001)
    other.frame(heartbeat, by_client=True)
    talk = Conversation()
    talk.frame(METADATA, by_client=True)
    talk.frame(bytes.fromhex("00000008"), by_client=False)
    talk.frame(bytes.fromhex("00000007") + bytes(12), by_client=False)
    talk.frame(heartbeat, by_client=True)
    talk.frame(bytes.fromhex("00000007 001b"), by_client=False)
    capture = write_pcap(tmp_path / "a.pcap", [other, talk])

    # Wireshark knows the response of a request when it shows the request again.
    found = frames(script, capture, "kafka_wire", "-2")

    assert remarks(found[2]) == ["no request with correlation id 8 is in this capture"]
    assert [item.show for item in found[3].named("response_to")] == ["2"]
    assert [item.show for item in found[1].named("response_in")] == ["4"]
    assert found[3].named("metadata_response.topics.elements")[0].show == "0"
    assert [item.show for item in found[5].named("response_to")] == ["5"]
    assert found[5].named("time")[0].show == "0.001000000"
    error = found[5].named("heartbeat_response.error_code")[0]
    assert error.label == "error_code: REBALANCE_IN_PROGRESS (27)"
    assert found[0].named("response_in") == []


def test_a_broker_that_does_not_know_the_version_of_api_versions(
    script: Path, tmp_path: Path
) -> None:
    talk = Conversation()
    talk.frame(bytes.fromhex("0012 0004 00000001 ffff 00 02 61 02 62 00"), by_client=True)
    talk.frame(bytes.fromhex("00000001 0023 00000001 0012 0000 0003"), by_client=False)
    _, shown = frames(script, write_pcap(tmp_path / "a.pcap", [talk]), "kafka_wire")

    assert remarks(shown) == []
    assert shown.named("api_versions_response.api_keys.max_version")[0].show == "3"


def test_record_batches_and_message_sets(script: Path, tmp_path: Path) -> None:
    batch = encode_batch([Record(key=b"k", value=b"v1", headers=[("h", b"x")]), Record(value=None)])
    broken = batch[:65] + b"\x7e" + batch[66:]  # the length of the first record's key
    old = bytes.fromhex("0000000000000005 00000010 00000000 00 00 ffffffff 00000002") + b"v0"
    data = old + broken + batch + batch[:40]
    request = kafka_wire.ProduceRequest(
        topic_data=[
            kafka_wire.ProduceRequest.TopicProduceData(
                partition_data=[kafka_wire.ProduceRequest.PartitionProduceData(records=data)]
            )
        ]
    )
    body = bytes.fromhex("0000 0003 00000001 ffff") + request.encode(3)

    (shown,) = shown_of(script, tmp_path, body)

    assert [item.raw for item in shown.named("records.message_v0.value")] == [b"v0"]
    assert [item.show for item in shown.named("records.record_batch.records_count")] == ["2", "2"]
    assert [item.raw for item in shown.named("records.record.value")] == [b"v1"]
    assert [item.show for item in shown.named("records.record.headers.key")] == ["h"]
    assert len(shown.named("records.record.value.is_null")) == 1
    assert shown.named("partial_batch")[0].raw == batch[:40]
    assert [text.partition(":")[0] for text in remarks(shown)] == ["RecordBatch.key"]


# -- Protocols of one's own ------------------------------------------------------------------------

OWN = """\
// How it is.
Health int8 (
  0: OK
  1: DEGRADED // retriable
)

ReportRequest => key 0, max version 2, flexible v2+
  // The "serial" number, C:\\\\ and more.
  Serial: string
  Matrix: [[uint16]]
  Health: enum-Health
  Rows: [=>]
    Elements: int32
    Place: nullable=>(null)
      X: float64
  Size: int16
  Rest: length-field-minus => Size - 2
  Inner: Self
  Far: varlong
  Near: varint
  Spot: nullable=>(null) // tag 0, ignorable
    Y: int8

ReportResponse =>
  Count: uint32

Self => not top level, with version field, max version 1
  Version: int16
  Name: string // v1+
"""


def test_every_type(tmp_path: Path, build: Any) -> None:
    package = build({"report.krm": OWN})
    source = write_files(tmp_path / "own" / "definitions", {"report.krm": OWN})
    result = gen(source, tmp_path / "out", "--option", "name=reports", "--option", "ports=1-2,7000")
    assert result.exit_code == 0, result.output
    row, place = package.ReportRequest.Row, package.ReportRequest.Place
    request = package.ReportRequest(
        serial="A\n7",
        matrix=[[1, 65535], []],
        health=1,
        rows=[row(elements=3), row(elements=4, place=place(x=-0.5))],
        size=5,
        rest=b"abc",
        inner=package.Self(version=1, name="ü"),
        far=-(2**63),
        near=-(2**31),
    )
    request.unknown_tags = {9: b"?"}
    talk = Conversation(server=7000)
    expected = []
    for version in (0, 1, 2):
        sent = package.RequestHeader(request_api_version=version, correlation_id=version)
        if version == 2:
            request.spot = package.ReportRequest.Spot(y=-1)
        headers = package.header_versions(0, version)
        body = sent.encode(headers.request) + request.encode(version)
        talk.frame(body, by_client=True)
        header, layout = (
            package.RequestHeader._layout(headers.request),
            package.ReportRequest._layout(version),
        )
        expected.append(expected_of(body, header, layout))
    found = frames(
        tmp_path / "out" / "reports.lua", write_pcap(tmp_path / "a.pcap", [talk]), "reports"
    )
    wrong = [
        text
        for pair in zip(expected, found, strict=True)
        for text in differences(*pair, protocol="reports")
    ]
    assert wrong == []
    assert found[0].named("report_request.health")[0].label == "health: DEGRADED (1)"


def test_a_protocol_without_requests(tmp_path: Path) -> None:
    source = write_files(tmp_path / "own", "Alone => not top level\n  Value: int8\n")
    assert gen(source, tmp_path / "out").exit_code == 0
    capture = write_pcap(tmp_path / "a.pcap", [])
    tshark(tmp_path / "out" / "own.lua", capture)


def test_a_name_that_wireshark_knows(tmp_path: Path) -> None:
    source = write_files(tmp_path / "http", OWN)
    assert gen(source, tmp_path / "out").exit_code == 0
    capture = write_pcap(tmp_path / "a.pcap", [])
    with pytest.raises(
        AssertionError, match=r"already has a protocol with the name http .*--option name="
    ):
        tshark(tmp_path / "out" / "http.lua", capture)


def test_a_folder_with_a_name_of_one_letter(tmp_path: Path) -> None:
    """Wireshark refuses protocols whose names have one character."""
    source = write_files(tmp_path / "x", {"report.krm": OWN})
    result = gen(source, tmp_path / "out")
    assert result.exit_code == 0, result.output
    [script] = (tmp_path / "out").glob("*.lua")
    assert script.name == "x_protocol.lua"
    assert 'NAME = "x_protocol"' in script.read_text()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("name=My Protocol", "option name=My Protocol: not a name of a protocol in Wireshark"),
        ("name=x", "option name=x: not a name of a protocol in Wireshark (use two or more"),
        ("ports=kafka", "option ports=kafka: not a list of ports (write 9092 or"),
        ("ports=70000", "option ports=70000: not a list of ports"),
    ],
)
def test_wrong_options(tmp_path: Path, option: str, message: str) -> None:
    source = write_files(tmp_path / "own", OWN)
    result = gen(source, tmp_path / "out", "--option", option)

    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "out").exists()
