"""Real clients through the tap: confluent-kafka against librdkafka's mock cluster."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka_wire
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from krammar.proxy.addresses import Address
from krammar.tap.capture import Capture, CaptureWriter, replay
from krammar.tap.frame import Frame, Status
from krammar.tap.listing import Summary
from krammar.wire.package import package_of
from tests.support.waiting import PATIENCE
from tests.tap.support import Recorder, TapThread

LOG = logging.getLogger("tests.tap.librdkafka")
LOG.propagate = False
LOG.addHandler(logging.NullHandler())

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EACH = 20

# Known errors in frames of the mock brokers: newer versions of Metadata end with one byte too many, and
# the error response to ApiVersions v3 has a wrong array length.
CARELESS = {("Metadata", 13), ("ApiVersions", 3)}


def client(kind: Any, bootstrap: str, **options: object) -> Any:
    settings = {"bootstrap.servers": bootstrap}
    settings |= {
        name if name.endswith("_cb") else name.replace("_", "."): value
        for name, value in options.items()
    }
    return kind(settings, logger=LOG)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Address]:
    owner = client(Producer, "ignored:1", test_mock_num_brokers=3)
    brokers = owner.list_topics(timeout=PATIENCE).brokers
    yield Address(brokers[1].host, brokers[1].port)
    del owner


class Conversation:
    """What was said, and where the clients were connected."""

    def __init__(self, tap: TapThread, path: Path, summary: Summary) -> None:
        self.tap = tap
        self.path = path
        self.summary = summary
        self.connected: set[str] = set()

    @property
    def frames(self) -> list[Frame]:
        return self.tap.recorder.frames

    def note(self, statistics: str) -> None:
        for broker in json.loads(statistics)["brokers"].values():
            if broker["connects"] and broker["nodeid"] >= 0:
                self.connected.add(broker["nodename"])


@pytest.fixture(scope="module")
def conversation(
    cluster: Address, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Conversation]:
    """A producer in each codec, an idempotent one, a consumer group and an admin client, talking."""
    path = tmp_path_factory.mktemp("tap") / "clients.tap"
    writer, summary = CaptureWriter(path), Summary()
    with TapThread(cluster, observers=[writer, summary], stay=True) as tap:
        talk = Conversation(tap, path, summary)
        bootstrap = str(tap.address)
        for codec in CODECS:
            producer = client(
                Producer,
                bootstrap,
                compression_type=codec,
                enable_idempotence=codec == "zstd",
                linger_ms=20,
                statistics_interval_ms=20,
                stats_cb=talk.note,
            )
            for number in range(EACH):
                value = f"{codec} {number} " * 20
                producer.produce("orders", key=str(number), value=value, partition=number % 4)
            assert producer.flush(PATIENCE) == 0
        consumer = client(
            Consumer,
            bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            statistics_interval_ms=20,
            stats_cb=talk.note,
        )
        consumer.subscribe(["orders"])
        messages = consumer.consume(EACH * len(CODECS), timeout=PATIENCE)
        assert len(messages) == EACH * len(CODECS)
        assert not any(message.error() for message in messages)
        consumer.commit(asynchronous=False)
        consumer.close()
        admin = client(AdminClient, bootstrap)
        partition = TopicPartition("orders", 0)
        (latest,) = admin.list_offsets({partition: OffsetSpec.latest()}).values()
        assert latest.result(PATIENCE).offset > 0
        told = admin.list_topics(timeout=PATIENCE).brokers.values()
        assert {f"{broker.host}:{broker.port}" for broker in told} <= tap.ports
        del producer, consumer, admin
        yield talk
    writer.close()


def test_every_frame_is_read_and_encodes_to_the_same_bytes(conversation: Conversation) -> None:
    bad = [(f.api, f.version, f.status, f.error) for f in conversation.frames if not f.is_good]
    assert bad == []
    careless = {(f.api, f.version) for f in conversation.frames if f.status == Status.SURPLUS}
    assert careless <= CARELESS
    apis = {frame.api for frame in conversation.frames}
    assert apis >= {
        "ApiVersions",
        "Fetch",
        "FindCoordinator",
        "Heartbeat",
        "InitProducerId",
        "JoinGroup",
        "LeaveGroup",
        "ListOffsets",
        "Metadata",
        "OffsetCommit",
        "OffsetFetch",
        "Produce",
        "SyncGroup",
    }
    assert conversation.summary.all_good
    assert "every frame re-encoded to the same bytes" in conversation.summary.table()


def test_clients_connect_to_the_tap_alone(conversation: Conversation, cluster: Address) -> None:
    assert conversation.connected
    assert conversation.connected <= conversation.tap.ports
    assert str(cluster) not in conversation.connected
    # The mock cluster draws the leaders of "orders": up to three brokers, sometimes fewer.
    leaders = {
        partition.leader_id
        for frame in conversation.frames
        if not frame.is_request and frame.api == "Metadata"
        for topic in frame.message.topics
        for partition in topic.partitions
        if partition.leader_id >= 0
    }
    assert leaders
    assert len({up for _, up in conversation.tap.recorder.connections.values()}) >= len(leaders)


def test_all_records_came_by(conversation: Conversation) -> None:
    sent = sum(
        len(partition.records)
        for frame in conversation.frames
        if frame.is_request and frame.api == "Produce"
        for topic in frame.message.topic_data
        for partition in topic.partition_data
    )
    fetched = sum(
        len(partition.records or b"")
        for frame in conversation.frames
        if not frame.is_request and frame.api == "Fetch"
        for topic in frame.message.responses
        for partition in topic.partitions
    )
    assert 0 < sent <= fetched


def test_responses_have_latencies(conversation: Conversation) -> None:
    answers = [frame for frame in conversation.frames if not frame.is_request]
    assert all(frame.latency_ns is not None and frame.latency_ns >= 0 for frame in answers)
    assert conversation.summary.total.latencies.median is not None


def test_the_capture_says_the_same(conversation: Conversation) -> None:
    recorder, summary = Recorder(), Summary()
    capture = Capture(conversation.path)
    replay(capture, package_of(kafka_wire), [recorder, summary])
    assert capture.torn == ""
    assert len(recorder.frames) >= len(conversation.frames)
    asked: dict[tuple[int, int | None], int] = {}
    for was, found in zip(conversation.frames, recorder.frames, strict=False):
        assert (was.data, was.status, was.api, was.version) == (
            found.data,
            found.status,
            found.api,
            found.version,
        )
        assert (was.latency_ns is None) == (found.latency_ns is None)
        if was.is_request:
            asked[was.connection, was.correlation_id] = was.time_ns
        elif was.latency_ns is not None and found.latency_ns is not None:
            # Reported times never decrease, so those of frames that had to wait are a little later. The capture has
            # the reported times.
            assert found.latency_ns == was.time_ns - asked[was.connection, was.correlation_id]
            assert abs(was.latency_ns - found.latency_ns) < 100_000_000
        assert was.message == found.message
    assert summary.all_good


def test_records_that_are_consumed_by_assignment(cluster: Address) -> None:
    with TapThread(cluster, stay=True) as tap:
        producer = client(Producer, str(tap.address), acks=0)
        producer.produce("unacknowledged", value=b"v", partition=0)
        assert producer.flush(PATIENCE) == 0
        consumer = client(Consumer, str(tap.address), group_id="h")
        consumer.assign([TopicPartition("unacknowledged", 0, OFFSET_BEGINNING)])
        (message,) = consumer.consume(1, timeout=PATIENCE)
        assert message.value() == b"v"
        consumer.close()
        frames = tap.recorder.frames
        (produced,) = (f for f in frames if f.is_request and f.api == "Produce")
        assert produced.message.acks == 0
        assert [(f.api, f.version, f.error) for f in frames if not f.is_good] == []
