"""Attacks on the servers of Kafka's protocol that are more than one request: segments, connections, members, state."""

from __future__ import annotations

import itertools
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import cache, lru_cache
from typing import Any

from kafka_wire import (
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)

from krammar.broker.apis import RANGES
from krammar.wire.batches import Compression, Record, encode_batch
from tests.attack.batches import empty_records, raw_batch, with_headers, with_value
from tests.attack.generate import cases
from tests.attack.measure import ANSWER, MEGABYTE, Attack
from tests.attack.other import read_frame
from tests.attack.servers import BROKERS, KAFKA, PERIOD_MS, Server
from tests.broker.attacks import LONG_ID, frame
from tests.broker.requests import batch, open_transaction, produce, produce_request
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE

CODECS = tuple(codec for codec in Compression if codec)
CONNECTIONS = 1000
SESSIONS = 100
# The most bytes that each of many connections without a login may cost.
PER_CONNECTION = 64 * 1024
# Attacks by the servers that they are for.
ATTACKS: list[tuple[frozenset[str], Attack]] = []


def attack(
    name: str,
    kinds: frozenset[str] = KAFKA,
    memory: int = 256 * MEGABYTE,
    *,
    crowd: bool = False,
) -> Callable[[Callable[[Server], int]], Callable[[Server], int]]:
    """Add an attack to the list. ``kinds`` are the servers that it is for."""

    def add(run: Callable[[Server], int]) -> Callable[[Server], int]:
        ATTACKS.append((kinds, Attack(name, run, memory, crowd)))
        return run

    return add


def fill(server: Server) -> None:
    """Create what attacks request: topics with records, with a codec, with many partitions, and a transaction.

    Of several nodes, the one that coordinates groups is attacked, and leads all partitions.
    """
    with RawClient(server.admin) as client:
        groups, transactions = (
            client.call(FindCoordinatorRequest(key="key", key_type=kind), 3) for kind in (0, 1)
        )
    if server.kind == "nodes":
        server.port = server.other = groups.port
    with RawClient(groups.port) as client:
        found = client.call(MetadataRequest(topics=None), 12).topics
        if "wide" in {topic.name for topic in found}:
            return  # the folder of an earlier server
        for name, partitions, configs in _TOPICS:
            assignment = CreateTopicsRequest.CreatableReplicaAssignment
            topic = CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    assignment(partition_index=number, broker_ids=[groups.node_id])
                    for number in range(partitions)
                ],
                configs=configs,
            )
            request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            created = client.call(request, 7)
            assert created.topics[0].error_code == 0, created
        records = batch(random.Random(1).randbytes(900_000))
        for _ in range(12):
            assert produce(client, "large", records).error_code == 0
    if server.kind != "nodes":
        with RawClient(transactions.port) as client:
            open_transaction(client, LONG_ID)


def _settings(**values: str) -> list[Any]:
    return [
        CreateTopicsRequest.CreatableTopicConfig(name=name.replace("_", "."), value=value)
        for name, value in values.items()
    ]


_GZIP = _settings(compression_type="gzip")
_FRAMES = _settings(max_message_bytes=str(100 * MEGABYTE))  # batches as large as frames
_TOPICS: tuple[tuple[str, int, list[Any]], ...] = (
    ("large", 1, []),
    ("plain", 1, []),
    ("gzip", 1, _GZIP),
    ("frames", 1, _FRAMES),
    ("frames-gzip", 1, [*_FRAMES, *_GZIP]),
    ("wide", 1000, []),
)


# What attacks send.


def send(server: Server, *frames: bytes, answers: int | None = None) -> int:
    """Send frames on one connection, and read the responses, or until the server closes it."""
    sent = 0
    with suppress(OSError), server.connect() as client:
        client.settimeout(PATIENCE)
        # The server may refuse the first bytes already.
        with suppress(OSError):
            for data in frames:
                client.sendall(data)
                sent += len(data)
        for _ in range(len(frames) if answers is None else answers):
            read_frame(client)
    return sent


# The newest version of each API has room: all servers get it, in all builds.
@lru_cache(maxsize=len(RANGES))
def requests_of(key: int, version: int) -> list[Attack]:
    """The attacks with one request of the generator each."""
    return [_sends(case.name, frame(case.request, version)) for case in cases(key, version)]


def _sends(name: str, data: bytes) -> Attack:
    def run(server: Server) -> int:
        with suppress(OSError), server.connect() as client:
            client.settimeout(ANSWER)
            with suppress(OSError):  # refused before it was complete
                client.sendall(data)
            read_frame(client)
        return len(data)

    return Attack(name, run)


def _calls(server: Server, requests: Iterator[tuple[Any, int]]) -> int:
    """Send requests one after another, and read each response."""
    sent = 0
    with server.connect() as client:
        client.settimeout(PATIENCE)
        for request, version in requests:
            data = frame(request, version)
            client.sendall(data)
            sent += len(data)
            read_frame(client)
    return sent


# Records.


@cache
def _headers(codec: int, number: int) -> bytes:
    return raw_batch(with_headers(number), 1, codec)


@cache
def _bomb(codec: int, size: int) -> bytes:
    return raw_batch(with_value(size), 1, codec)


@cache
def _empty(codec: int, number: int) -> bytes:
    return raw_batch(empty_records(number), number, codec)


def _produce(topic: str, data: bytes) -> Callable[[Server], int]:
    return lambda server: send(server, frame(produce_request(topic, data), 12))


for codec, topic in itertools.product(CODECS, ("plain", "gzip")):
    name = f"Produce v12, topic {topic}, {codec.name.lower()}"
    for number in (63_000_000, 1_000_000):
        attack(f"{name}: {number:,} empty headers in a record", KAFKA)(
            lambda server, codec=codec, topic=topic, number=number: _produce(  # type: ignore[misc]
                topic, _headers(codec, number)
            )(server)
        )
    for size in (320 * MEGABYTE, 64 * MEGABYTE - 100, 16 * MEGABYTE):
        attack(f"{name}: {size / MEGABYTE:,.0f} MB of zeros", KAFKA)(
            lambda server, codec=codec, topic=topic, size=size: _produce(  # type: ignore[misc]
                topic, _bomb(codec, size)
            )(server)
        )
    attack(f"{name}: 300,000 empty records", KAFKA)(
        lambda server, codec=codec, topic=topic: _produce(  # type: ignore[misc]
            topic, _empty(codec, 300_000)
        )(server)
    )


@cache
def _noise(codec: int, size: int) -> bytes:
    """A batch that does not become smaller."""
    return encode_batch([Record(value=random.Random(1).randbytes(size))], compression=codec)


# Batches that are not compressed, as large as a frame.
for topic in ("frames", "frames-gzip"):
    for what, build, number in (
        ("47,000,000 empty headers in a record", _headers, 47_000_000),
        ("1,000,000 empty headers in a record", _headers, 1_000_000),
        ("99 MB of zeros", _bomb, 99 * MEGABYTE),
        ("63 MB of zeros", _bomb, 63 * MEGABYTE),
        ("63 MB of noise", _noise, 63 * MEGABYTE),
        ("8,000,000 empty records", _empty, 8_000_000),
        ("1,000,000 empty records", _empty, 1_000_000),
    ):
        attack(f"Produce v12, topic {topic}, not compressed: {what}", KAFKA)(
            lambda server, topic=topic, build=build, number=number: _produce(  # type: ignore[misc]
                topic, build(0, number)
            )(server)
        )


@attack("Produce v12: a bomb of 16 MB for each of 100 partitions", KAFKA)
def bombs(server: Server) -> int:
    data = _bomb(Compression.ZSTD, 16 * MEGABYTE)
    return send(server, frame(produce_request("wide", *[data] * 100), 12))


# Many requests in one segment.


@attack("20,000 ApiVersions v0 at once")
def many_api_versions(server: Server) -> int:
    return _pipelined(server, frame(ApiVersionsRequest(), 0) * 20_000)


@attack("1,000 Metadata v12 of a topic with 1,000 partitions at once")
def many_metadata(server: Server) -> int:
    topic = MetadataRequest.Topic(name="wide")
    return _pipelined(server, frame(MetadataRequest(topics=[topic]), 12) * 1000)


@attack("5,000 Produce v12 with acks=0 at once", BROKERS)
def many_produce(server: Server) -> int:
    return _pipelined(server, frame(produce_request("plain", batch(b"x"), acks=0), 12) * 5000)


def _pipelined(server: Server, data: bytes) -> int:
    """Send data while the responses are read, until both sides have ended."""
    import threading

    with server.connect() as client:
        client.settimeout(PATIENCE)
        reader = threading.Thread(target=_drain, args=(client,))
        reader.start()
        with suppress(OSError):
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        reader.join(PATIENCE)
    return len(data)


def _drain(client: socket.socket) -> None:
    with suppress(OSError):
        while client.recv(1 << 20):
            pass


# Many connections.


def _crowd(
    server: Server,
    prepare: Callable[[Server], socket.socket],
    data: bytes,
    number: int | None = None,
) -> int:
    """Open connections, then send the same on all of them, and keep them open for a moment."""
    with ExitStack() as stack:
        clients = []
        for _ in range(CONNECTIONS if number is None else number):
            with suppress(OSError):
                clients.append(stack.enter_context(prepare(server)))
        for client in clients:
            with suppress(OSError):
                client.settimeout(PATIENCE)
                if data:
                    client.sendall(data)
        time.sleep(0.5)  # for the peak: nothing else happens
        return len(data) * len(clients)


_LOGINLESS = CONNECTIONS * PER_CONNECTION


@attack("1,000 connections that send nothing", KAFKA, _LOGINLESS)
def silent(server: Server) -> int:
    return _crowd(server, Server.stranger, b"")


@attack(
    "1,000 connections without a login, each with 50 ApiVersions", KAFKA, _LOGINLESS, crowd=True
)
def crowd_of_api_versions(server: Server) -> int:
    return _crowd(server, _before_login, frame(ApiVersionsRequest(), 0) * 50)


@attack("1,000 connections without a login, each with a frame that ends early", KAFKA, _LOGINLESS)
def crowd_of_frames(server: Server) -> int:
    return _crowd(server, _before_login, frame(ApiVersionsRequest(), 3)[:12])


@attack(
    "1,000 connections without a login, each with half of a frame of 32 kB",
    BROKERS,
    # Beside the 16 kB that each has sent: with TLS, OpenSSL's buffer keeps the ciphertext until more arrives.
    _LOGINLESS + 2 * CONNECTIONS * 16_000,
)
def crowd_of_halves(server: Server) -> int:
    data = frame(ApiVersionsRequest(client_software_name="x" * 32_000), 3)
    return _crowd(server, _before_login, data[: len(data) // 2])


@attack("1,000 TLS handshakes that end early", frozenset({"tls"}), _LOGINLESS)
def half_handshakes(server: Server) -> int:
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)
    return _crowd(server, Server.stranger, hello)


@attack("1,000 wrong passwords", frozenset({"sasl"}), _LOGINLESS)
def wrong_passwords(server: Server) -> int:
    from kafka_wire import SaslAuthenticateRequest, SaslHandshakeRequest

    data = frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    data += frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    return _crowd(server, _before_login, data)


@attack("1,000 first messages of SCRAM", frozenset({"sasl"}), _LOGINLESS)
def scram(server: Server) -> int:
    from kafka_wire import SaslAuthenticateRequest, SaslHandshakeRequest

    data = frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    first = b"n,,n=" + b"u" * 200 + b",r=" + b"n" * 100
    data += frame(SaslAuthenticateRequest(auth_bytes=first), 2)
    return _crowd(server, _before_login, data)


def _before_login(server: Server) -> socket.socket:
    return server.connect(login=False)


@attack("300 connections, each with Metadata v12 of 1,000 partitions that is not read", crowd=True)
def unread(server: Server) -> int:
    topic = MetadataRequest.Topic(name="wide")
    return _crowd(server, Server.connect, frame(MetadataRequest(topics=[topic]), 12) * 5, 300)


@attack("24 connections, each with 8 MB of records that are not read", crowd=True)
def unread_records(server: Server) -> int:
    partition = FetchRequest.FetchPartition(partition_max_bytes=1 << 30)
    request = FetchRequest(
        max_bytes=1 << 30, topics=[FetchRequest.FetchTopic(topic="large", partitions=[partition])]
    )
    return _crowd(server, Server.connect, frame(request, 12) * 5, 24)


@attack("a batch of 60 MB, and 24 connections that fetch it and do not read it", crowd=True)
def unread_batch(server: Server) -> int:
    sent = _produce("frames", _bomb(0, 60 * MEGABYTE))(server)
    with server.client() as client:
        listed = client.call(_last_offset("frames"), 7).topics[0].partitions[0].offset
    partition = FetchRequest.FetchPartition(fetch_offset=listed - 1, partition_max_bytes=1 << 30)
    topic = FetchRequest.FetchTopic(topic="frames", partitions=[partition])
    request = FetchRequest(max_bytes=1 << 30, topics=[topic])
    return sent + _crowd(server, Server.connect, frame(request, 12) * 5, 24)


def _last_offset(topic: str) -> Any:
    partition = ListOffsetsRequest.ListOffsetsPartition(timestamp=-1)
    return ListOffsetsRequest(
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])]
    )


@attack("20 connections, each with half of a request of 16 MB", crowd=True)
def half_requests(server: Server) -> int:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name="x" * 32_000)] * 500)
    data = frame(request, 12)
    return _crowd(server, Server.connect, data[: len(data) // 2], 20)


# Frames that cannot be read.


@attack("a Metadata v9 of 2,000,000 topics")
def many_topics(server: Server) -> int:
    empty = frame(MetadataRequest(topics=[], allow_auto_topic_creation=False), 9)
    at = empty.rindex(b"\x01")
    count = b"\x81\x89\x7a"  # 2,000,001 as a varint
    body = empty[4:at] + count + b"\x02a\x00" * 2_000_000 + empty[at + 1 :]
    return send(server, struct.pack(">i", len(body)) + body)


@attack("a frame of 90 MB of zeros")
def zeros(server: Server) -> int:
    body = frame(FetchRequest(), 12)[4:12] + bytes(90 * MEGABYTE)
    return send(server, struct.pack(">i", len(body)) + body)


@attack("200 frames of 8 kB that end too early")
def malformed(server: Server) -> int:
    topics = [MetadataRequest.Topic(name="a") for _ in range(420)]
    whole = frame(MetadataRequest(topics=topics), 12)
    broken = struct.pack(">i", len(whole) - 5) + whole[4:-1]
    return sum(send(server, broken) for _ in range(200))


# Members of groups.


def _join(group: str, member: str, protocols: list[JoinGroupRequest.Protocol]) -> Any:
    return JoinGroupRequest(
        group_id=group,
        member_id=member,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=500,
        protocol_type="consumer",
        protocols=protocols,
    )


def _protocols(number: int, size: int, prefix: str = "p") -> list[Any]:
    return [
        JoinGroupRequest.Protocol(name=f"{prefix}{index}", metadata=bytes(size))
        for index in range(number)
    ]


def _group(server: Server, name: str, protocols: list[Any], members: int) -> int:
    """Let members join a group of the classic protocol, each on its own connection."""
    data = frame(_join(name, "", protocols), 3)  # this version needs no second JoinGroup
    sent = _crowd(server, Server.connect, data, members)
    _calls(server, iter([(DescribeGroupsRequest(groups=[name]), 5)]))
    return sent


@attack("500 members of a classic group, each with 10 kB of metadata", crowd=True)
def classic_members(server: Server) -> int:
    return _group(server, "metadata", _protocols(1, 10_000), 500)


@attack("100 members of a classic group, each with 5,000 protocols", crowd=True)
def classic_protocols(server: Server) -> int:
    return _group(server, "protocols", _protocols(5000, 0), 100)


@attack("20 members of a classic group, each with 10 MB of metadata", BROKERS)
def classic_metadata(server: Server) -> int:
    return _group(server, "megabytes", _protocols(1, 10 * MEGABYTE), 20)


@attack("5,000 ids for members that never join", BROKERS)
def pending_members(server: Server) -> int:
    request = _join("pending", "", _protocols(1, 10))
    return _calls(server, itertools.repeat((request, 4), 5000))


def _heartbeat(group: str, member: str, epoch: int = 0, **given: Any) -> Any:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        topic_partitions=[],
        **given,
    )


@attack("300 members of a consumer group with their own patterns of 2,000 topics, and a new topic")
def patterns(server: Server) -> int:
    names = [f"made-{number}" for number in range(2000)]
    sent = _create(server, *names)
    for number in range(300):
        given = {"subscribed_topic_regex": f"made-.*|{number}"}
        sent += _calls(server, iter([(_heartbeat("patterns", f"m{number}", **given), 1)]))
    sent += _create(server, "made-more")
    for number in range(300):
        epoch = _heartbeat("patterns", f"m{number}", 0, subscribed_topic_regex=f"made-.*|{number}")
        sent += _calls(server, iter([(epoch, 1)]))
    sent += _calls(server, iter([(ConsumerGroupDescribeRequest(group_ids=["patterns"]), 1)]))
    return sent


@attack("30 members of a consumer group, each with 10,000 names of topics", BROKERS)
def names_of_topics(server: Server) -> int:
    sent = 0
    for member in range(30):
        names = [f"topic-{member}-{number}" for number in range(10_000)]
        request = _heartbeat("names", f"m{member}", subscribed_topic_names=names)
        sent += _calls(server, iter([(request, 1)]))
    return sent + _calls(server, iter([(ConsumerGroupDescribeRequest(group_ids=["names"]), 1)]))


def _create(
    server: Server, *names: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> int:
    given = [
        CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
        for name, value in (configs or {}).items()
    ]
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=given
        )
        for name in names
    ]
    return _calls(server, iter([(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)]))


# State that many requests leave.


@attack("a topic of 10,000 partitions, then of 20,000, written, listed and deleted", BROKERS)
def partitions(server: Server) -> int:
    sent = _create(server, "many", partitions=10_000)
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name="many", count=20_000)
    topic = DeleteTopicsRequest.DeleteTopicState(name="many")
    described = DescribeTopicPartitionsRequest.TopicRequest(name="many")
    rest = [
        (CreatePartitionsRequest(topics=[grown], timeout_ms=60_000), 3),
        (MetadataRequest(topics=None), 12),
        (produce_request("many", *[batch(b"x")] * 2000), 12),
        (DescribeLogDirsRequest(topics=None), 4),
        (DescribeTopicPartitionsRequest(topics=[described]), 0),
        (DeleteTopicsRequest(topics=[topic], timeout_ms=60_000), 6),
    ]
    return sent + _calls(server, iter(rest))


def _let_pass(server: Server, topic: str, configs: dict[str, str]) -> int:
    """Write to 2,000 partitions of a topic with these settings, and wait for the broker's periodic work."""
    sent = _create(server, topic, partitions=2000, configs=configs)
    keyed = encode_batch([Record(key=b"k", value=b"x")])
    request = produce_request(topic, *[keyed] * 2000)
    sent += _calls(server, itertools.repeat((request, 12), 3))
    time.sleep(2.5 * PERIOD_MS / 1000)
    return sent


@attack("3 records in each of 2,000 partitions, which are forced to the disk", BROKERS)
def forced(server: Server) -> int:
    return _let_pass(server, "forced", {})


@attack("2,000 partitions whose records expire at once", BROKERS)
def expired(server: Server) -> int:
    return _let_pass(server, "expired", {"retention.ms": "1", "segment.ms": "1"})


@attack("2,000 partitions that are compacted at once", BROKERS)
def compacted(server: Server) -> int:
    configs = {
        "cleanup.policy": "compact",
        "segment.ms": "1",
        "min.cleanable.dirty.ratio": "0.01",
    }
    return _let_pass(server, "compacted", configs)


@attack("3,000 transactions that time out together", BROKERS)
def timed_out(server: Server) -> int:
    with server.client() as client:
        for number in range(3000):
            name = f"late-{number}"
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
            begun = client.call(request, 4)
            client.call(_adding(name, begun, [number % 1000]), 3)
    time.sleep(2.5)
    return 0


@attack("DeleteTopics v6 of 2,000 topics", BROKERS)
def delete_topics(server: Server) -> int:
    names = [f"made-{number}" for number in range(2000)]
    topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    _create(server, *names)
    return _calls(server, iter([(DeleteTopicsRequest(topics=topics, timeout_ms=60_000), 6)]))


def _commit(group: str, topic: str, partitions: range) -> Any:
    """Build a commit of offset 1 in each of a topic's partitions."""
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequest.Topic(
                name=topic,
                partitions=[
                    OffsetCommitRequest.Partition(partition_index=number, committed_offset=1)
                    for number in partitions
                ],
            )
        ],
    )


@attack(
    "30 groups with 1,000 offsets of a topic; all fetched, the topic and the groups deleted",
    BROKERS,
)
def offsets(server: Server) -> int:
    groups = [f"offsets-{number}" for number in range(30)]
    _create(server, "committed", partitions=1000)
    commits = ((_commit(name, "committed", range(1000)), 9) for name in groups)
    sent = _calls(server, commits)
    fetch = OffsetFetchRequest(
        groups=[OffsetFetchRequest.Group(group_id=name, topics=None) for name in groups]
    )
    topic = DeleteTopicsRequest.DeleteTopicState(name="committed")
    rest = [
        (fetch, 9),
        (DeleteTopicsRequest(topics=[topic], timeout_ms=60_000), 6),
        (DeleteGroupsRequest(groups_names=groups), 2),
    ]
    return sent + _calls(server, iter(rest))


@attack("10,000 groups; ListGroups v5", BROKERS)
def groups(server: Server) -> int:
    names = [f"group-{number}" for number in range(10_000)]
    sent = _calls(server, ((_commit(name, "plain", range(1)), 9) for name in names))
    sent += _calls(server, itertools.repeat((ListGroupsRequest(), 5), 3))
    return sent + _calls(server, iter([(DeleteGroupsRequest(groups_names=names), 2)]))


def _adding(name: str, begun: Any, partitions: list[int]) -> Any:
    """Add partitions of a topic to a transaction."""
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="wide", partitions=partitions)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=begun.producer_id,
        v3_and_below_producer_epoch=begun.producer_epoch,
        v3_and_below_topics=[topic],
    )


@attack("EndTxn v3 of a transaction with 1,000 partitions", BROKERS)
def transaction(server: Server) -> int:
    with server.client() as client:
        begun = client.call(
            InitProducerIdRequest(transactional_id="wide", transaction_timeout_ms=60_000), 4
        )
        client.call(_adding("wide", begun, list(range(1000))), 3)
        client.call(
            EndTxnRequest(
                transactional_id="wide",
                producer_id=begun.producer_id,
                producer_epoch=begun.producer_epoch,
                committed=True,
            ),
            3,
        )
    return 0


@attack("5,000 transactional ids; ListTransactions v1", BROKERS)
def transactional_ids(server: Server) -> int:
    begin = (
        (InitProducerIdRequest(transactional_id=f"t{number}", transaction_timeout_ms=60_000), 4)
        for number in range(5000)
    )
    return _calls(server, itertools.chain(begin, [(ListTransactionsRequest(), 1)]))


@attack("100 fetch sessions, each with 24,000 partitions", BROKERS)
def fetch_sessions(server: Server) -> int:
    partitions = [FetchRequest.FetchPartition(partition=number) for number in range(24_000)]
    topic = FetchRequest.FetchTopic(topic="nowhere", partitions=partitions)
    data = frame(FetchRequest(session_epoch=0, max_wait_ms=0, topics=[topic]), 12)
    with server.connect() as client:
        client.settimeout(PATIENCE)
        for _ in range(SESSIONS):
            client.sendall(data)
            read_frame(client)
    return SESSIONS * len(data)


@attack("100 requests of FindCoordinator v4 for 10,000 groups each", BROKERS)
def coordinators(server: Server) -> int:
    keys = [f"g{number}" for number in range(10_000)]
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=keys)
    return _calls(server, itertools.repeat((request, 4), 100))
