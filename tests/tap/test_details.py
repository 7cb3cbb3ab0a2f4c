"""The fields of frames with their bytes, and which bytes are masked."""

from __future__ import annotations

import base64
import json
import random
from typing import Any
from uuid import UUID

import kafka_wire
import pytest
from kafka_wire import (
    AlterUserScramCredentialsRequest,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    MetadataRequest,
    MetadataResponse,
    RenewDelegationTokenRequest,
    SaslAuthenticateRequest,
)

from krammar.tap.describe import Describer
from krammar.tap.details import details
from krammar.tap.exchanges import Exchanges
from krammar.tap.feed import Feed
from krammar.tap.fields import fields_of, has_secrets, masked
from krammar.tap.frame import Frame, Status
from krammar.tap.pcap import PcapWriter
from krammar.wire.batches import Compression, Record, encode_batch
from krammar.wire.package import package_of
from tests.support.groups import in_groups
from tests.tap.support import inspector
from tests.tap.test_inspector import request, response
from tests.tap.test_listing import produce

PACKAGE = package_of(kafka_wire)


def sent(message: Any, version: int) -> Frame:
    return inspector().request(request(message, version), 0)


def answered(asking: Any, message: Any, version: int) -> Frame:
    seen = inspector()
    seen.request(request(asking, version), 0)
    return seen.response(response(message, version), 1)


def tree(frame: Frame, **options: int) -> dict[str, list[Any]]:
    """The nodes by path."""
    shown = details(PACKAGE, frame, **options)
    assert shown is not None
    found: dict[str, list[Any]] = {}

    def visit(node: list[Any], path: str) -> None:
        found[path] = node
        begin, end = node[2], node[3]
        assert 0 <= begin <= end <= len(frame.data)
        for child in node[5]:
            assert begin <= child[2] <= child[3] <= end, (path, child)
            visit(child, f"{path}.{child[0]}")

    for part in shown["tree"]:
        visit(part, part[0])
    return found


def test_every_byte_belongs_to_a_field() -> None:
    frame = sent(MetadataRequest(topics=[MetadataRequest.Topic(name="orders")]), 12)
    nodes = tree(frame)
    leaves = [node for node in nodes.values() if not node[5]]
    assert sum(node[3] - node[2] for node in leaves) == len(frame.data) - 1  # the count of topics
    topic = nodes["MetadataRequest.topics.[0].name"]
    assert frame.data[topic[2] : topic[3]] == b"\x07orders"
    assert topic[4] == '"orders"'
    assert nodes["RequestHeader.request_api_key"][4] == "3 Metadata"
    assert nodes["MetadataRequest.topics.[0].topic_id"][4] == str(UUID(int=0))
    assert nodes["MetadataRequest.allow_auto_topic_creation"][4] == "true"
    assert nodes["MetadataRequest.topics"][4] == "1 element"


def test_record_batches_have_fields_too() -> None:
    message = produce()
    plain = encode_batch([Record(key=b"k", value=b"one"), Record(value=b"\xff\x00")])
    packed = encode_batch([Record(value=b"x" * 100)], compression=Compression.GZIP)
    message.topic_data[0].partition_data[0].records = plain + packed
    message.topic_data[0].partition_data[1].records = b"no batch at all"
    frame = sent(message, 9)
    nodes = tree(frame)
    batches = "ProduceRequest.topic_data.[0].partition_data.[0].records"
    assert nodes[f"{batches}.[0].records.[0].value"][4] == '3 bytes "one"'
    assert nodes[f"{batches}.[0].records.[1].value"][4] == "2 bytes ff 00"
    assert nodes[f"{batches}.[0].records.[1].key"][4] == "null"
    value = nodes[f"{batches}.[0].records.[0].value"]
    assert frame.data[value[2] : value[3]] == b"\x06one"
    # Compressed records stay bytes, and so do bytes that are not a batch.
    assert nodes[f"{batches}.[1].records_count"][4] == "1"
    assert nodes[f"{batches}.[1].records"][5] == []
    other = nodes["ProduceRequest.topic_data.[0].partition_data.[1].records"]
    assert (other[4], other[5]) == ('15 bytes "no batch at all"', [])


@in_groups("cut", range(1, 60), size=60)
def test_batches_that_are_cut_are_no_error(cut: int) -> None:
    message = produce()
    message.topic_data[0].partition_data[0].records = encode_batch([Record(value=b"v")])[:-cut]
    assert "ProduceRequest.timeout_ms" in tree(sent(message, 9))


def test_an_undecodable_frame_shows_the_fields_before_the_error() -> None:
    told = MetadataResponse(brokers=[MetadataResponse.Broker(node_id=1, host="h", port=9)])
    seen = inspector()
    seen.request(request(MetadataRequest(), 12), 0)
    frame = seen.response(response(told, 12)[:20], 1)
    assert frame.status is Status.UNDECODABLE
    nodes = tree(frame)
    assert nodes["MetadataResponse.brokers.[0].host"][4] == '"h"'
    shown = details(PACKAGE, frame)
    assert shown is not None
    assert shown["error"] == frame.error
    assert shown["offset"] == frame.offset


@in_groups("length", range(30), size=30)
def test_cut_requests(length: int) -> None:
    frame = sent(MetadataRequest(topics=[MetadataRequest.Topic(name="orders")]), 12)
    tree(inspector().request(frame.data[:length], 0))


def test_frames_without_fields() -> None:
    seen = inspector()
    for frame in (
        seen.raw(True, b"\xff\xff\xff\xffGET /", 0),
        seen.request(b"\x7f\xff\x00\x00\x00\x00\x00\x01", 0),
        seen.request(b"\x00\x03\x7f\xff\x00\x00\x00\x01", 0),
        seen.response(b"\x00\x00\x00\x63", 0),
    ):
        assert fields_of(PACKAGE, frame).parts == []
        shown = details(PACKAGE, frame)
        assert shown is not None
        assert base64.b64decode(shown["data"]) == frame.data
    assert details(PACKAGE, None) is None


def test_large_messages_are_limited() -> None:
    frame = sent(MetadataRequest(topics=[MetadataRequest.Topic(name="t")] * 100), 12)
    shown = details(PACKAGE, frame, max_nodes=50, max_bytes=64)
    assert shown is not None
    assert shown["omitted"] is True
    assert len(base64.b64decode(shown["data"])) == 64
    assert shown["size"] == len(frame.data)
    assert len(tree(frame, max_nodes=50)) <= 51


def test_hostile_texts_are_escaped() -> None:
    frame = sent(
        MetadataRequest(topics=[MetadataRequest.Topic(name="\x1b[2J\u202e" + "x" * 900)]), 12
    )
    value = tree(frame)["MetadataRequest.topics.[0].name"][4]
    assert value.startswith(r'"\u001b[2J\u202e')
    assert len(value) < 450


SECRET = b"correct horse"
NAMED = [
    sent(SaslAuthenticateRequest(auth_bytes=SECRET), 2),
    sent(
        AlterUserScramCredentialsRequest(
            upsertions=[
                AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                    name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=SECRET
                )
            ]
        ),
        0,
    ),
    answered(CreateDelegationTokenRequest(), CreateDelegationTokenResponse(hmac=SECRET), 3),
    sent(RenewDelegationTokenRequest(hmac=SECRET), 2),
    answered(
        DescribeDelegationTokenRequest(),
        DescribeDelegationTokenResponse(
            tokens=[DescribeDelegationTokenResponse.DescribedDelegationToken(hmac=SECRET)]
        ),
        3,
    ),
]


@pytest.mark.parametrize("frame", NAMED, ids=lambda frame: frame.api)
def test_secrets_are_masked_in_place(frame: Frame) -> None:
    assert frame.status is Status.OK
    data = masked(PACKAGE, frame)
    assert frame.data.count(SECRET) == 1
    expected = frame.data.replace(SECRET, b"*" * len(SECRET))
    assert data.replace(b"salt", b"****") == expected.replace(b"salt", b"****")
    assert (b"salt" in data) is False


@pytest.mark.parametrize("frame", NAMED, ids=lambda frame: frame.api)
@pytest.mark.parametrize("cut", [1, 2, 5, 12])
def test_secrets_of_damaged_frames_are_masked(frame: Frame, cut: int) -> None:
    seen = inspector()
    if frame.is_request:
        damaged = seen.request(frame.data[:-cut], 0)
    else:
        asking = (
            CreateDelegationTokenRequest()
            if frame.api.startswith("Create")
            else DescribeDelegationTokenRequest()
        )
        seen.request(request(asking, 3), 0)
        damaged = seen.response(frame.data[:-cut], 0)
    assert SECRET[:8] not in masked(PACKAGE, damaged)
    more = seen.oversized(frame.is_request, frame.data, 500_000_000, 0)
    if frame.is_request:
        assert SECRET[:8] not in masked(PACKAGE, more)
    raw = seen.raw(frame.is_request, b"\0\0\1\0" + frame.data, 0)
    assert SECRET[:8] not in masked(PACKAGE, raw)


def test_messages_with_secrets() -> None:
    names = {
        cls.__name__
        for info in PACKAGE.request_infos()
        for cls in (PACKAGE.request_class(info.key), PACKAGE.response_class(info.key))
        if has_secrets(cls)
    }
    tokens = {"CreateDelegationTokenResponse", "DescribeDelegationTokenResponse"}
    tokens |= {"ExpireDelegationTokenRequest", "RenewDelegationTokenRequest"}
    logins = {"SaslAuthenticateRequest", "SaslAuthenticateResponse"}
    others = {"AlterUserScramCredentialsRequest", "EnvelopeRequest", "EnvelopeResponse"}
    assert names == tokens | logins | others


def test_mutated_frames_are_shown_stored_and_written() -> None:
    chance = random.Random(15)
    feed = Feed(PACKAGE, max_rows=20)
    exchanges = Exchanges(Describer(PACKAGE), feed.ended, feed.begun)
    pcap = PcapWriter(PACKAGE, lambda data: None)
    requests = [frame for frame in NAMED if frame.is_request]
    for number in range(300):
        frame = chance.choice(NAMED)
        data = bytearray(frame.data)
        for _ in range(chance.randrange(5)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 127, 128, 255))
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        seen = inspector()
        for asking in requests:
            seen.request(asking.data, 0)
        read = seen.request if frame.is_request else seen.response
        mutated = read(bytes(data), number)
        exchanges.frame(mutated)
        pcap.frame(mutated)
        batch, _ = feed.batch(feed.changes - 1, 1)
        (row,) = batch["rows"]
        stored = feed.find(row[0])
        assert stored is not None
        assert json.dumps([row, *(details(PACKAGE, each) for each in stored)])
