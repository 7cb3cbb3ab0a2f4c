"""Lines, JSON and the table."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import kafka_wire
import pytest
from kafka_wire import (
    ApiVersionsRequest,
    DescribeClientQuotasResponse,
    FetchRequest,
    JoinGroupRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)

from krammar.tap.describe import Describer, shorten
from krammar.tap.frame import Frame, Status
from krammar.tap.listing import JsonListing, Latencies, Listing, Summary
from krammar.wire.package import package_of
from tests.tap.support import inspector
from tests.tap.test_inspector import request, response

PACKAGE = package_of(kafka_wire)
TOPIC_ID = UUID("00000000-0000-0000-0000-000000000abc")


def sent(message: Any, version: int, time_ns: int = 0) -> Frame:
    frame = inspector().request(request(message, version), time_ns)
    assert frame.status == Status.OK, frame.error
    return frame


def answered(asking: Any, message: Any, version: int) -> Frame:
    seen = inspector()
    seen.request(request(asking, version), 1_700_000_000_000_000_000)
    frame = seen.response(response(message, version), 1_700_000_000_001_500_000)
    assert frame.status == Status.OK, frame.error
    return frame


def metadata(*topics: str) -> Frame:
    message = MetadataResponse(
        brokers=[MetadataResponse.Broker(node_id=1, host="h", port=9)],
        cluster_id="c1",
        topics=[
            MetadataResponse.Topic(
                name=name,
                topic_id=UUID(int=TOPIC_ID.int + index),
                partitions=[
                    MetadataResponse.Partition(partition_index=number) for number in range(5)
                ],
            )
            for index, name in enumerate(topics)
        ],
    )
    return answered(kafka_wire.MetadataRequest(topics=None), message, 12)


def produce() -> ProduceRequest:
    """Build a Produce request for two partitions."""
    partitions = [
        ProduceRequest.PartitionProduceData(index=index, records=b"x" * 700) for index in (0, 2)
    ]
    return ProduceRequest(
        acks=-1,
        topic_data=[ProduceRequest.TopicProduceData(name="orders", partition_data=partitions)],
    )


def test_descriptions() -> None:
    describe = Describer(PACKAGE)
    assert describe(sent(produce(), 9)).text == "orders[0,2], 1,400 B of records"
    assert describe(metadata("orders")).text == "1 broker, cluster c1, orders[5]"
    assert describe(metadata(*"abcdef")).text == "1 broker, cluster c1, a[5] b[5] c[5] and 3 more"
    asking = ApiVersionsRequest(client_software_name="lib", client_software_version="1.2")
    assert describe(sent(asking, 3)).text == "lib, 1.2"
    joining = JoinGroupRequest(group_id="g", member_id="m", protocol_type="consumer")
    assert describe(sent(joining, 5)).text == "group g, member m"
    answer = ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name="orders",
                partition_responses=[
                    ProduceResponse.PartitionProduceResponse(index=index, error_code=code)
                    for index, code in enumerate((0, 6, 6, 12345))
                ],
            )
        ]
    )
    assert (
        describe(answered(produce(), answer, 9)).text
        == "orders[4], NOT_LEADER_OR_FOLLOWER x2, error 12345"
    )
    broken = inspector().request(b"", 0)
    assert describe(broken).text == ""


def test_offsets_are_shown() -> None:
    describe = Describer(PACKAGE)
    commit = kafka_wire.OffsetCommitRequest
    places = [
        commit.Partition(partition_index=index, committed_offset=offset)
        for index, offset in ((0, 17), (1, 4))
    ]
    topics = [commit.Topic(name="orders", partitions=places)]
    committing = commit(group_id="g", topics=topics)
    assert describe(sent(committing, 8)).text == "group g, orders[0@17,1@4]"
    found = kafka_wire.ListOffsetsResponse
    partitions = [
        found.ListOffsetsPartitionResponse(partition_index=0, offset=120),
        found.ListOffsetsPartitionResponse(partition_index=1, offset=-1),
    ]
    answer = found(topics=[found.ListOffsetsTopicResponse(name="orders", partitions=partitions)])
    listing = kafka_wire.ListOffsetsRequest()
    assert describe(answered(listing, answer, 7)).text == "orders[0@120,1]"
    fetched = kafka_wire.OffsetFetchResponse
    stored = [fetched.Partition(partition_index=2, committed_offset=9)]
    answer = fetched(topics=[fetched.Topic(name="orders", partitions=stored)])
    assert describe(answered(kafka_wire.OffsetFetchRequest(group_id="g"), answer, 7)).text == (
        "orders[2@9]"
    )


def test_records_of_share_groups_are_counted() -> None:
    describe = Describer(PACKAGE)
    describe(metadata("orders"))
    fetch, told = kafka_wire.ShareFetchRequest, kafka_wire.ShareFetchResponse
    runs = [(0, 9, [1]), (10, 13, [2, 1, 1, 3]), (14, 15, [9]), (99, 20, [1])]
    batches = [
        fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in runs
    ]
    partition = fetch.FetchPartition(partition_index=3, acknowledgement_batches=batches)
    topics = [fetch.FetchTopic(topic_id=TOPIC_ID, partitions=[partition])]
    asking = fetch(group_id="g", member_id="m", topics=topics)
    assert describe(sent(asking, 2)).text == (
        "group g, member m, orders[3], 12 accepted, 1 released, 1 rejected, 2 of type 9"
    )
    acquired = [
        told.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1)
        for first, last in ((0, 999), (2000, 2499))
    ]
    part = told.PartitionData(
        partition_index=3, records=b"x" * 40, acquired_records=acquired, acknowledge_error_code=121
    )
    topic = told.ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=[part])
    assert describe(answered(asking, told(responses=[topic]), 2)).text == (
        "orders[3], 40 B of records, 1,500 acquired, INVALID_RECORD_STATE"
    )
    acknowledge = kafka_wire.ShareAcknowledgeRequest
    batch = acknowledge.AcknowledgementBatch(
        first_offset=4, last_offset=5, acknowledge_types=[0, 4]
    )
    own = acknowledge.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    telling = acknowledge(
        group_id="g",
        member_id="m",
        topics=[acknowledge.AcknowledgeTopic(topic_id=TOPIC_ID, partitions=[own])],
    )
    assert describe(sent(telling, 2)).text == "group g, member m, orders[0], 1 skipped, 1 renewed"


def test_topic_ids_are_shown_by_the_names_that_were_seen() -> None:
    describe = Describer(PACKAGE)
    fetching = FetchRequest(
        topics=[
            FetchRequest.FetchTopic(
                topic_id=TOPIC_ID, partitions=[FetchRequest.FetchPartition(partition=3)]
            )
        ]
    )
    assert describe(sent(fetching, 13)).text == f"{TOPIC_ID}[3]"
    describe(metadata("orders"))
    assert describe(sent(fetching, 13)).text == "orders[3]"


def test_the_names_that_were_learned_first_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server could name topics without end."""
    monkeypatch.setattr(Describer, "most_names", 3)
    describe = Describer(PACKAGE)

    def known() -> list[str]:
        ids = [UUID(int=TOPIC_ID.int + index) for index in range(5)]
        topics = [FetchRequest.FetchTopic(topic_id=each) for each in ids]
        frames = [sent(FetchRequest(topics=[topic]), 13) for topic in topics]
        return [name for frame in frames for name in describe(frame).topics if "-" not in name]

    describe(metadata("a", "b", "c"))
    assert known() == ["a", "b", "c"]
    describe(metadata("a", "b", "c", "d"))
    assert known() == ["b", "c", "d"]
    describe(metadata("x"))
    assert known() == ["x", "c", "d"]
    describe(metadata("x", "y", "z", "v", "w"))
    assert known() == ["z", "v", "w"]


def test_a_large_message_is_described_from_its_beginning() -> None:
    text = Describer(PACKAGE)(metadata(*(f"t{index}" for index in range(3000)))).text
    assert text.startswith("1 broker, cluster c1, t0[5] t1[5] t2[5] and ")


def test_text_from_the_wire_cannot_write_to_the_terminal() -> None:
    assert shorten("a\x1b[2Jb\n") == "a\\x1b[2Jb\\n"
    assert shorten("é") == "é"
    assert shorten("x" * 100) == "x" * 57 + "..."
    asking = ApiVersionsRequest(client_software_name="\x1b[31m", client_software_version="\r")
    lines: list[str] = []
    Listing(Describer(PACKAGE), lines.append).frame(sent(asking, 3))
    assert lines[0].isprintable()


def test_lines() -> None:
    lines: list[str] = []
    listing = Listing(Describer(PACKAGE), lines.append)
    listing.opened(0, 1, "127.0.0.1:5", "127.0.0.1:9092")
    listing.frame(sent(produce(), 9))
    frame = metadata("orders")
    frame.note = "h:9 is 127.0.0.1:4"
    listing.frame(frame)
    broken = inspector().request(b"\0\3\0\x0c\0\0\0\x02", 0)
    listing.frame(broken)
    listing.closed(0, 1, "by the client")
    bare = [line[line.index("#") :] for line in lines]
    assert bare[0] == "#1   open   127.0.0.1:5 to 127.0.0.1:9092"
    assert bare[1].split() == (
        [
            "#1",
            "->",
            "Produce",
            "v9",
            "id",
            "1",
            "1,444",
            "B",
            "ok",
            "orders[0,2],",
            "1,400",
            "B",
            "of",
            "records",
        ]
    )
    assert bare[2].split() == (
        f"#1 <- Metadata v12 id 1 {frame.size} B 1.5 ms ok 1 broker, cluster c1, orders[5]; "
        "h:9 is 127.0.0.1:4".split()
    )
    assert bare[3].split()[:9] == [
        "#1",
        "->",
        "Metadata",
        "v12",
        "id",
        "2",
        "8",
        "B",
        "undecodable",
    ]
    assert bare[3].endswith(broken.error)
    assert bare[4] == "#1   closed by the client"
    assert all(line == line.rstrip() for line in lines)


def test_quiet_lists_what_is_wrong() -> None:
    for kind in (
        lambda w: Listing(Describer(PACKAGE), w, only_bad=True),
        lambda w: JsonListing(w, only_bad=True),
    ):
        lines: list[str] = []
        listing = kind(lines.append)
        listing.opened(0, 1, "a", "b")
        listing.frame(sent(produce(), 9))
        listing.frame(inspector().request(b"", 0))
        listing.closed(0, 1, "r")
        assert len(lines) == 1
        assert "undecodable" in lines[0]


def test_json() -> None:
    lines: list[str] = []
    listing = JsonListing(lines.append)
    listing.opened(0, 1, "127.0.0.1:5", "127.0.0.1:9092")
    frame = metadata("orders")
    listing.frame(frame)
    listing.closed(0, 1, "r")
    listing.frame(inspector().request(b"\0\3\0\x0c\0\0\0\x02", 1_000))
    first, second = map(json.loads, lines)
    assert first == {
        "time": "2023-11-14T22:13:20.001500+00:00",
        "connection": 1,
        "client": "127.0.0.1:5",
        "upstream": "127.0.0.1:9092",
        "direction": "response",
        "api": "Metadata",
        "api_key": 3,
        "version": 12,
        "correlation_id": 1,
        "bytes": frame.size,
        "latency_ms": 1.5,
        "status": "ok",
        "error": None,
        "path": None,
        "offset": None,
        "changed": None,
        "header": {"correlation_id": 1},
        "message": frame.message.to_dict(),
    }
    assert MetadataResponse.from_dict(first["message"]) == frame.message
    assert second["status"] == "undecodable"
    assert second["direction"] == "request"
    assert second["error"]
    assert second["offset"] is not None
    assert (second["client"], second["message"], second["latency_ms"]) == (None, None, None)


def test_json_has_no_word_for_infinity() -> None:
    quotas = DescribeClientQuotasResponse(
        entries=[
            DescribeClientQuotasResponse.EntryData(
                values=[DescribeClientQuotasResponse.ValueData(key="k", value=float("inf"))]
            )
        ]
    )
    lines: list[str] = []
    asking = kafka_wire.DescribeClientQuotasRequest()
    JsonListing(lines.append).frame(answered(asking, quotas, 1))
    value = json.loads(lines[0], parse_constant=pytest.fail)
    assert value["message"]["entries"][0]["values"][0]["value"] == "inf"


def test_latencies() -> None:
    latencies = Latencies()
    assert latencies.median is None
    assert latencies.longest is None
    for number in (5, 1, 3):
        latencies.add(number)
    assert (latencies.median, latencies.longest) == (3, 5)
    latencies.add(123_456_789)
    assert latencies.median == 3
    for _ in range(4):
        latencies.add(123_456_789)
    assert latencies.median == 123_000_000
    assert latencies.longest == 123_456_789
    for number in range(1, 100_000):
        latencies.add(number)
    assert len(latencies._counts) < 3_000


def test_the_table() -> None:
    summary = Summary()
    assert summary.verdict() == "no frames"
    summary.frame(sent(produce(), 9))
    first = metadata("orders")
    summary.frame(first)
    assert summary.all_good
    assert summary.verdict() == (
        "2 frames: every frame decoded, every frame re-encoded to the same bytes"
    )
    lines = summary.table().splitlines()
    assert lines[0].split("  ")[0] == "api"
    assert lines[2].split() == ["Metadata", "12", "0", "1", "0", str(first.size), "1.50", "1.50"]
    assert lines[3].split() == ["Produce", "9", "1", "0", "1,444", "0"]
    assert lines[5].split() == ["all", "1", "1", "1,444", str(first.size), "1.50", "1.50"]
    assert lines[-1] == summary.verdict()


def test_verdicts() -> None:
    summary = Summary()
    seen = inspector()
    summary.frame(seen.request(request(produce(), 9) + b"x", 0))
    assert summary.all_good
    assert summary.verdict() == (
        "1 frame: every frame decoded, every frame re-encoded to the same bytes; "
        "1 of them with bytes after the message"
    )
    for data in (b"", b"\x7f\0\0\0\0\0\0\0", b"\x7f\0\0\1\0\0\0\0"):
        summary.frame(seen.request(data, 0))
    longer = request(ProduceRequest(), 9).replace(b"\0\1c\0", b"\0\1c\x80\0")
    mismatch = seen.request(longer, 0)
    assert mismatch.status == Status.MISMATCH
    summary.frame(mismatch)
    assert not summary.all_good
    assert summary.verdict() == (
        "5 frames: 1 re-encoded to other bytes, 1 undecodable, 2 of unknown api or version; "
        "1 of them with bytes after the message"
    )
    rows = {line.split("  ")[0]: line.split()[-1] for line in summary.table().splitlines() if line}
    assert rows["Produce"] == "1"
    assert rows["all"] == "4"


def test_hostile_keys_take_no_memory_without_end() -> None:
    summary = Summary()
    seen = inspector()
    for number in range(3000):
        summary.frame(seen.request(b"\x7f\0" + number.to_bytes(2, "big") + b"\0\0\0\0", 0))
    assert len(summary.rows) == 1001
    assert summary.rows["(others)", None].requests == 2000
    assert "(others)" in summary.table()
