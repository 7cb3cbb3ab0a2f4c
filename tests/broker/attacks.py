"""Requests that are cheap to send and expensive to answer, and what each costs the broker.

``python -m tests.broker.attacks`` (``make attack``) prints a table; test_attacks.py runs the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import resource
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol
from unittest.mock import patch

import kafka_wire
from kafka_wire import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    ApiVersionsRequest,
    ConfigResourceType,
    ConsumerGroupHeartbeatRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    ErrorCode,
    FetchRequest,
    ListTransactionsRequest,
    MetadataRequest,
    ProduceRequest,
)

from krammar.broker import Broker
from krammar.wire.connection import ClientConnection
from tests.broker.requests import batch, create_topic, fetch_request, open_transaction, produce
from tests.broker.support import BrokerProcess, RawClient
from tests.support.waiting import PATIENCE

MEGABYTE = 1 << 20
TOPIC = "large"
# Of records in that topic.
STORED = 64 * MEGABYTE
PATTERN = "((a?b?c?d?e?f?g?h?i?j?){1000}){4}x"
LONG_ID = "abcdefghij" * 3000

PROPERTIES = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="secret";',
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class Target(Protocol):
    """The ports of a broker's listeners, which attacks use."""

    port: int
    sasl_port: int


def fill(port: int) -> None:
    """Write the topics and records that attacks request."""
    with RawClient(port) as client:
        create_topic(client, TOPIC)
        records = batch(random.Random(1).randbytes(900_000))
        for _ in range(STORED // len(records) + 1):
            assert produce(client, TOPIC, records).error_code == 0
        open_transaction(client, LONG_ID)


class Victim(BrokerProcess):
    """A broker process with some data."""

    def __init__(self, folder: Path) -> None:
        overrides = [f"--override={key}={value}" for key, value in PROPERTIES.items()]
        super().__init__(["--data-dir", folder, *overrides])
        ports = [int(found[1]) for line in self.lines if (found := re.search(r":(\d+)$", line))]
        self.port, self.sasl_port = ports
        self.log: list[str] = []
        # All its output is read, so that it never blocks.
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        fill(self.port)

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.log.extend(self.process.stdout)

    def end(self) -> None:
        """Stop it in order."""
        self.process.terminate()
        self._reader.join(PATIENCE)
        assert self.process.wait(PATIENCE) == 0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join()

    def memory(self, name: str) -> int:
        """``VmRSS`` or ``VmHWM`` (the peak), in bytes."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) * 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Attacker(RawClient):
    """Counts what it sends."""

    sent = 0

    def send(
        self, request: Any, version: int | None = None, *, expect_response: bool = True
    ) -> None:
        if version is None:
            version = type(request).max_version
        self.send_bytes(self.wire.send_request(request, version, expect_response=expect_response))

    def send_bytes(self, data: bytes) -> None:
        self.sent += len(data)
        # The broker may refuse the request before it is complete.
        with suppress(ConnectionError):
            self.socket.sendall(data)

    def is_closed(self) -> bool:
        """Return whether the broker closes the connection without a response."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


def frame(request: Any, version: int) -> bytes:
    """A request's frame, length prefix included."""
    return ClientConnection(kafka_wire, client_id="x").send_request(request, version)


@dataclass
class Attack:
    """``run`` sends it, checks the broker's answer and returns the bytes that it has sent."""

    name: str
    run: Callable[[Target], int]


ATTACKS: list[Attack] = []


def attack(name: str) -> Callable[[Callable[[Target], int]], Callable[[Target], int]]:
    def add(run: Callable[[Target], int]) -> Callable[[Target], int]:
        ATTACKS.append(Attack(name, run))
        return run

    return add


def _describe(
    victim: Target, kind: ConfigResourceType, names: Sequence[str]
) -> tuple[int, Counter[int]]:
    """Request all settings of these resources. Returns the bytes sent, and the results' error codes."""
    with Attacker(victim.port) as client:
        client.socket.settimeout(600)
        response = client.call(
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequest.DescribeConfigsResource(
                        resource_type=kind, resource_name=name, configuration_keys=None
                    )
                    for name in names
                ],
                include_synonyms=True,
                include_documentation=True,
            ),
            4,
        )
        return client.sent, Counter(result.error_code for result in response.results)


@attack("DescribeConfigs v4: the same broker 1,000 times")
def describe_configs(victim: Target) -> int:
    sent, codes = _describe(victim, ConfigResourceType.BROKER, ["1"] * 1000)
    assert codes == {ErrorCode.INVALID_REQUEST: 1000}
    return sent


@attack("ListTransactions v2: a pattern of 80,000 states")
def list_transactions(victim: Target) -> int:
    with Attacker(victim.port) as client:
        response = client.call(ListTransactionsRequest(transactional_id_pattern=PATTERN), 2)
        assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        return client.sent


@attack("ListTransactions v2: a pattern of 20,000 states")
def list_transactions_slowly(victim: Target) -> int:
    with Attacker(victim.port) as client:
        pattern = PATTERN.removesuffix("){4}x").removeprefix("(") + "x"
        response = client.call(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        assert response.error_code == ErrorCode.NONE and not response.transaction_states
        return client.sent


@attack("Produce v12: 2,000,000 topics")
def produce_topics(victim: Target) -> int:
    # Built from bytes: 2,000,000 objects are too many here too.
    return _refused(victim, frame(ProduceRequest(acks=-1), 12), b"\x02a\x01\x00", 2_000_000)


@attack("Metadata v9: 2,000,000 topics")
def metadata_topics(victim: Target) -> int:
    return _refused(
        victim,
        frame(MetadataRequest(topics=[], allow_auto_topic_creation=False), 9),
        b"\x02a\x00",
        2_000_000,
    )


def _refused(victim: Target, empty: bytes, element: bytes, number: int) -> int:
    """Send a request whose empty array is filled."""
    at = empty.rindex(b"\x01")
    count, left = b"", number + 1
    while left > 127:
        count += bytes([left & 127 | 128])
        left >>= 7
    body = empty[4:at] + count + bytes([left]) + element * number + empty[at + 1 :]
    with Attacker(victim.port) as client:
        client.send_bytes(struct.pack(">i", len(body)) + body)
        assert client.is_closed()
        return client.sent


@attack("Fetch v12: all there is, on 24 connections that never read")
def fetch_unread(victim: Target) -> int:
    clients = [Attacker(victim.port) for _ in range(24)]
    try:
        for client in clients:
            request = fetch_request([(TOPIC, 0, 0)], max_bytes=1 << 30, partition_max_bytes=1 << 30)
            client.send(request, 12)
        for client in clients:  # each has an answer
            assert client.socket.recv(1, socket.MSG_PEEK)
        return sum(client.sent for client in clients)
    finally:
        for client in clients:
            client.close()


@attack("Metadata v12: creates 2,000 topics")
def metadata_creates(victim: Target) -> int:
    with Attacker(victim.port) as client:
        client.socket.settimeout(600)
        topics = [MetadataRequest.Topic(name=f"made-{number}") for number in range(2000)]
        response = client.call(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
        assert [topic.error_code for topic in response.topics] == [0] * 2000
        return client.sent


@attack("ConsumerGroupHeartbeat v1: 100 members, each with its own pattern of 2,000 topics")
def join_with_patterns(victim: Target) -> int:
    with Attacker(victim.port) as client:
        client.socket.settimeout(600)
        for number in range(100):
            response = client.call(
                ConsumerGroupHeartbeatRequest(
                    group_id="patterns",
                    member_id=f"m{number}",
                    rebalance_timeout_ms=60_000,
                    subscribed_topic_regex=f"made-.*|{number}",
                    topic_partitions=[],
                ),
                1,
            )
            assert response.error_code == 0, response
        return client.sent


@attack("DescribeConfigs v4: 2,000 topics")
def describe_topics(victim: Target) -> int:
    names = [f"made-{number}" for number in range(2000)]
    sent, codes = _describe(victim, ConfigResourceType.TOPIC, names)
    assert set(codes) == {ErrorCode.NONE, ErrorCode.POLICY_VIOLATION}, codes
    assert codes[ErrorCode.NONE] > 1000, codes
    return sent


@attack("DeleteTopics v6: 2,000 topics")
def delete_topics(victim: Target) -> int:
    with Attacker(victim.port) as client:
        client.socket.settimeout(600)
        topics = [
            DeleteTopicsRequest.DeleteTopicState(name=f"made-{number}") for number in range(2000)
        ]
        response = client.call(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6)
        assert len(response.responses) == 2000
        return client.sent


@attack("CreateTopics v7: one topic of 1,000 partitions")
def create_partitions(victim: Target) -> int:
    with Attacker(victim.port) as client:
        client.socket.settimeout(600)
        topic = CreateTopicsRequest.CreatableTopic(
            name="wide", num_partitions=1000, replication_factor=1
        )
        response = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        assert response.topics[0].error_code == 0
        return client.sent


@attack("ElectLeaders v2: every partition, 20 times, and one 20,000 times")
def elect_leaders(victim: Target) -> int:
    with Attacker(victim.port) as client:
        for _ in range(20):
            assert client.call(ElectLeadersRequest(topic_partitions=None), 2).error_code == 0
        one = ElectLeadersRequest.TopicPartitions(topic="nowhere", partitions=[0] * 20_000)
        response = client.call(ElectLeadersRequest(topic_partitions=[one]), 2)
        assert len(response.replica_election_results[0].partition_result) == 20_000
        return client.sent


@attack("AlterPartitionReassignments v1: one partition 20,000 times")
def reassign(victim: Target) -> int:
    with Attacker(victim.port) as client:
        partition = AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=0, replicas=None
        )
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(
            name=TOPIC, partitions=[partition] * 20_000
        )
        response = client.call(AlterPartitionReassignmentsRequest(topics=[topic]), 1)
        assert len(response.responses[0].partitions) == 20_000
        return client.sent


@attack("Metadata v12: every topic, 100 times")
def metadata_all(victim: Target) -> int:
    with Attacker(victim.port) as client:
        for _ in range(100):
            assert client.call(MetadataRequest(topics=None), 12).topics
        return client.sent


def truncated_fetch() -> bytes:
    """A Fetch v12 of 510 kB without its last byte."""
    partitions = [FetchRequest.FetchPartition(partition=number) for number in range(15_000)]
    whole = frame(
        FetchRequest(topics=[FetchRequest.FetchTopic(topic="t", partitions=partitions)]), 12
    )
    return struct.pack(">i", len(whole) - 5) + whole[4:-1]


@attack("AlterReplicaLogDirs v2: 24,000 partitions that do not exist")
def move_partitions(victim: Target) -> int:
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(
        name="missing", partitions=range(24_000)
    )
    with Attacker(victim.port) as client:
        move = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path="/nowhere", topics=[topic])
        response = client.call(AlterReplicaLogDirsRequest(dirs=[move]), 2)
        assert len(response.results[0].partitions) == 24_000
        return client.sent


@attack("DescribeQuorum v2: 24,000 partitions")
def describe_quorum(victim: Target) -> int:
    partitions = [DescribeQuorumRequest.PartitionData(partition_index=n) for n in range(24_000)]
    topic = DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=partitions)
    with Attacker(victim.port) as client:
        response = client.call(DescribeQuorumRequest(topics=[topic]), 2)
        assert len(response.topics[0].partitions) == 24_000
        return client.sent


@attack("before login: a truncated Fetch v12")
def truncated_before_login(victim: Target) -> int:
    with Attacker(victim.sasl_port) as client:
        client.send_bytes(truncated_fetch())
        assert client.is_closed()
        return client.sent


@attack("a truncated Fetch v12")
def truncated(victim: Target) -> int:
    with Attacker(victim.port) as client:
        client.send_bytes(truncated_fetch())
        assert client.is_closed()
        return client.sent


@attack("500 malformed frames of 8 kB")
def malformed(victim: Target) -> int:
    topics = [MetadataRequest.Topic(name="a") for _ in range(420)]
    whole = frame(MetadataRequest(topics=topics), 12)
    broken = struct.pack(">i", len(whole) - 5) + whole[4:-1]
    assert 7_000 < len(broken) < 8_192
    sent = 0
    for _ in range(500):
        with Attacker(victim.port) as client:
            client.send_bytes(broken)
            assert client.is_closed()
            sent += client.sent
    return sent


@attack("20,000 ApiVersions at once")
def pipelined(victim: Target) -> int:
    with Attacker(victim.port) as client:
        one = frame(ApiVersionsRequest(), 0)
        reader = threading.Thread(target=_drain, args=(client.socket,))
        reader.start()
        client.send_bytes(one * 20_000)
        client.socket.shutdown(socket.SHUT_WR)
        reader.join()
        return client.sent


def _drain(plain: socket.socket) -> None:
    while plain.recv(1 << 20):
        pass


@dataclass
class Cost:
    """The cost of an attack. ``latencies`` of another client's Metadata, and those ``before`` the
    attack, are in seconds."""

    sent: int = 0
    cpu_seconds: float = 0.0
    grown: int = 0
    before: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)


@contextmanager
def other_client(victim: Victim, latencies: list[float]) -> Iterator[None]:
    """Asks for Metadata of one topic all the time."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def ask() -> None:
        request = MetadataRequest(topics=[MetadataRequest.Topic(name=TOPIC)])
        try:
            with RawClient(victim.port) as client:
                while not stop.wait(0.002):
                    began = time.perf_counter()
                    client.call(request, 12)
                    latencies.append(time.perf_counter() - began)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert errors == []


def measure(victim: Victim, run: Callable[[Target], int]) -> Cost:
    """Run an attack, and return what it cost the broker and another client."""
    cost = Cost()
    with other_client(victim, cost.latencies):
        while len(cost.latencies) < 100:
            time.sleep(0.01)
        cost.before = cost.latencies.copy()
        cost.latencies.clear()
        before, cpu = victim.memory("VmRSS"), victim.cpu_seconds
        victim.forget_peak()
        cost.sent = run(victim)
        while len(cost.latencies) < 100:
            time.sleep(0.01)
    cost.grown = max(0, victim.memory("VmHWM") - before)
    cost.cpu_seconds = victim.cpu_seconds - cpu
    return cost


@dataclass
class InProcess:
    """The ports of a broker in this process."""

    port: int
    sasl_port: int


def longest_turns(attacks: Sequence[Attack]) -> list[float]:
    """Return how long each attack held the loop at most, in seconds of processor time. Other programs on the
    machine do not change these."""
    logging.getLogger("krammar.broker").addHandler(logging.NullHandler())
    found = []
    longest = 0.0
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        nonlocal longest
        began = time.thread_time()
        run(handle)
        longest = max(longest, time.thread_time() - began)

    with (
        patch.object(asyncio.Handle, "_run", timed),
        patch("krammar.broker.broker.new_event_loop", asyncio.new_event_loop),
        Broker.start(properties=PROPERTIES) as broker,
    ):
        ports = {name: port for name, (_, port) in broker.addresses.items()}
        target = InProcess(ports["PLAINTEXT"], ports["SASL_PLAINTEXT"])
        fill(target.port)
        for each in attacks:
            longest = 0.0
            each.run(target)
            found.append(longest)
    return found


def p99_ms(latencies: list[float]) -> str:
    return f"{statistics.quantiles(latencies, n=100)[98] * 1000:.0f} ms"


def main(names: Sequence[str]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65536)), hard))
    chosen = [each for each in ATTACKS if not names or any(name in each.name for name in names)]
    turns = longest_turns(chosen)
    print(
        "| Request | Sent | CPU | Longest turn | Peak memory | Other client's p99 | Without attack |\n"
        "|---|--:|--:|--:|--:|--:|--:|"
    )
    with tempfile.TemporaryDirectory() as folder, Victim(Path(folder)) as victim:
        for each, turn in zip(chosen, turns, strict=True):
            cost = measure(victim, each.run)
            sent = f"{cost.sent:,} B" if cost.sent < 10_000 else f"{cost.sent / 1000:,.0f} kB"
            print(
                f"| {each.name} | {sent} | {cost.cpu_seconds:.2f} s | {turn * 1000:.0f} ms "
                f"| +{cost.grown / MEGABYTE:.0f} MB | {p99_ms(cost.latencies)} "
                f"| {p99_ms(cost.before)} |",
                flush=True,
            )
        victim.end()


if __name__ == "__main__":
    main(sys.argv[1:])
