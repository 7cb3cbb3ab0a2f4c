"""Attacks on the Wafka listener of a broker."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress

from wafka_wire import ProduceRequest, RequestHeader

from tests.attack.kafka import PER_CONNECTION
from tests.attack.measure import MEGABYTE, Attack
from tests.attack.other import read_frame
from tests.attack.servers import Server
from tests.support.waiting import PATIENCE

ATTACKS: list[tuple[frozenset[str], Attack]] = []


def attack(
    name: str, memory: int = 256 * MEGABYTE
) -> Callable[[Callable[[Server], int]], Callable[[Server], int]]:
    """Add an attack to the list."""

    def add(run: Callable[[Server], int]) -> Callable[[Server], int]:
        ATTACKS.append((frozenset({"wafka"}), Attack(name, run, memory)))
        return run

    return add


def framed(request: ProduceRequest) -> bytes:
    """A request's frame, length prefix included."""
    version = ProduceRequest.max_version
    header = RequestHeader(
        request_api_key=ProduceRequest.api_key,
        request_api_version=version,
        correlation_id=1,
        client_id="x",
    )
    body = header.encode(1) + request.encode(version)
    return struct.pack(">i", len(body)) + body


def produce(server: Server, topics: list[ProduceRequest.TopicData]) -> int:
    """Send one Produce, and read the response."""
    data = framed(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics))
    with suppress(OSError), server.stranger() as client:
        client.settimeout(PATIENCE)
        with suppress(OSError):
            client.sendall(data)
        read_frame(client)
    return len(data)


def _topic(name: str, *partitions: ProduceRequest.PartitionData) -> ProduceRequest.TopicData:
    return ProduceRequest.TopicData(name=name, partition_data=list(partitions))


def _strings(*texts: str, index: int = 0) -> ProduceRequest.PartitionData:
    return ProduceRequest.PartitionData(index=index, records=list(texts))


@attack("Produce v3: 2,000 new topics")
def topics(server: Server) -> int:
    return produce(server, [_topic(f"wafka-{number}", _strings("x")) for number in range(2000)])


@attack("Produce v3: the same topic 12,000 times")
def same(server: Server) -> int:
    return produce(server, [_topic("plain", _strings("x")) for _ in range(12_000 // 2)])


@attack("Produce v3: 24,000 strings for a partition")
def strings(server: Server) -> int:
    return produce(server, [_topic("plain", _strings(*["x"] * 24_000))])


@attack("Produce v3: 24,000 strings for a partition of a topic with compression.type=gzip")
def compressed(server: Server) -> int:
    return produce(server, [_topic("gzip", _strings(*["x" * 30] * 24_000))])


@attack("Produce v3: 400 strings of 32 kB")
def long_strings(server: Server) -> int:
    return produce(server, [_topic("plain", _strings(*["x" * 32_000] * 400))])


@attack("Produce v3: 12,000 partitions that do not exist")
def partitions(server: Server) -> int:
    many = [_strings("x", index=number + 10) for number in range(12_000)]
    return produce(server, [_topic("plain", *many)])


@attack("Produce v3: 6,000 names of 240 control characters")
def control_characters(server: Server) -> int:
    return produce(server, [_topic("\x1b" * 240 + str(n), _strings("x")) for n in range(6000)])


@attack("5,000 requests at once")
def at_once(server: Server) -> int:
    data = framed(ProduceRequest(acks=0, timeout_ms=0, topic_data=[_topic("plain", _strings("x"))]))
    with server.stranger() as client:
        client.settimeout(PATIENCE)
        with suppress(OSError):
            client.sendall(data * 5000)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass
    return 5000 * len(data)


@attack("1,000 connections that send nothing", 1000 * PER_CONNECTION)
def silent(server: Server) -> int:
    with ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(server.stranger())
        return 0


@attack("1,000 requests that are not Wafka's")
def invalid(server: Server) -> int:
    data = framed(ProduceRequest(acks=-1, timeout_ms=0, topic_data=[]))
    wrong = data[:4] + b"\x7f" + data[5:]  # another api key
    sent = 0
    for _ in range(1000):
        with suppress(OSError), server.stranger() as client:
            client.settimeout(PATIENCE)
            client.sendall(wrong)
            sent += len(wrong)
            read_frame(client)
    return sent
