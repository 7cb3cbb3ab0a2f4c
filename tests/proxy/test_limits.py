"""Many clients at once: the budget of a turn, large frames that arrive in part, and connections in one moment."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from contextlib import ExitStack

import pytest
from kafka_wire import MetadataRequest, MetadataResponse, ProduceRequest

from krammar.proxy import Connection, Exchange, Filter, Proxy, on
from krammar.util import listening
from krammar.util.turns import Budget
from tests.proxy.support import Client, address, answering, link
from tests.support.waiting import PATIENCE, until
from tests.tap.support import upstream


class Slow(Filter):
    """Takes 2 ms for each message, and counts the messages of each turn of the event loop."""

    SECONDS = 0.002

    def __init__(self) -> None:
        self.by_turn: Counter[int] = Counter()
        self._turn = 0

    def opened(self, connection: Connection) -> None:
        if not self._turn:
            self._beat()

    def _beat(self) -> None:
        self._turn += 1
        asyncio.get_running_loop().call_soon(self._beat)  # in the next turn

    def _count(self) -> None:
        self.by_turn[self._turn] += 1
        time.sleep(self.SECONDS)

    @on(MetadataRequest)
    def ask(self, request: MetadataRequest, exchange: Exchange) -> None:
        self._count()

    @on(MetadataResponse)
    def told(self, response: MetadataResponse, exchange: Exchange) -> None:
        self._count()


def test_all_connections_have_one_budget_per_turn() -> None:
    """Without it, each of 40 connections would run its requests or responses in the same turn."""
    number, each = 40, 10
    slow = Slow()
    with (
        upstream(answering()) as server,
        Proxy.start(str(server.address), [slow]) as proxy,
        ExitStack() as stack,
    ):
        clients = [stack.enter_context(Client(address(proxy))) for _ in range(number)]
        for client in clients:
            send = client.connection.send_request
            client.socket.sendall(
                b"".join(send(MetadataRequest(topics=[]), 12) for _ in range(each))
            )
        with Client(address(proxy)) as other:
            other.ask(MetadataRequest(topics=[]), 12)
        for client in clients:
            for _ in range(each):
                client.next()
    assert sum(slow.by_turn.values()) == 2 * (number * each + 1)
    # The beats of two turns can have the work of both between them.
    assert max(slow.by_turn.values()) <= 2 * (Budget().seconds / slow.SECONDS + 1)


class Reading(Filter):
    @on(ProduceRequest)
    def read(self, request: ProduceRequest, exchange: Exchange) -> None:
        exchange.notes.append("read")


def test_the_largest_of_too_many_incomplete_frames_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Proxy, "max_collected", 0)
    begin = (900_000).to_bytes(4, "big") + b"\0\0\0\3" + bytes(4)
    with (
        upstream(answering()) as server,
        Proxy.start(str(server.address), [Reading()], max_frame=1_000_000) as proxy,
        ExitStack() as stack,
    ):
        # The limit is two frames of ``max_frame`` then.
        sizes = [800_000, 700_000, 400_000]
        clients = [stack.enter_context(Client(address(proxy))) for _ in sizes]
        large = proxy._resources.large
        for number, client in enumerate(clients, 1):
            client.socket.sendall(begin + bytes(sizes[number - 1] - len(begin)))
            until(lambda number=number: large.held == sum(sizes[:number]))
        with Client(address(proxy)) as last:
            last.socket.sendall(begin + bytes(200_000))
            clients[0].socket.settimeout(PATIENCE)
            assert clients[0].socket.recv(1) == b""
            until(lambda: large.held == sum(sizes[1:]) + 200_000 + len(begin))
            # Others are served, and what they hold is freed at their end.
            with Client(address(proxy)) as other:
                other.ask(MetadataRequest(topics=[]), 12)
        until(lambda: large.held == sum(sizes[1:]))
        for client in clients:
            client.socket.close()
        until(lambda: large.held == 0 and not large.by_frame)
    [line] = [each.getMessage() for each in caplog.records if "a frame of" in each.getMessage()]
    assert "the largest of those that wait for their end" in line and "(2000000 at most)" in line


class Reads(Filter):
    @on(ProduceRequest)
    def read(self, request: ProduceRequest, exchange: Exchange) -> None:
        raise AssertionError("the frame never ends")


def test_a_frame_that_comes_in_single_bytes_takes_no_more_memory() -> None:
    head = ProduceRequest.api_key.to_bytes(2, "big") + bytes([0, 11, 0, 0, 0, 7, 255, 255, 0])

    async def collect(count: int) -> int:
        end = link(Proxy("127.0.0.1:1", [Reads()]))

        async def feed(data: bytes) -> None:
            memory = end.get_buffer(-1)
            memory[: len(data)] = data
            end.buffer_updated(len(data))
            while end.waits:
                await asyncio.sleep(0)

        await feed((10 * count).to_bytes(4, "big") + head)
        tracemalloc.start()
        try:
            for _ in range(count):
                await feed(b"\0")
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert 100_000 <= asyncio.run(collect(100_000)) < 200_000


def test_few_connections_are_accepted_in_one_turn() -> None:
    """asyncio would accept all that wait, and set them up in the same turns."""
    number = 3 * listening.AT_ONCE
    by_turn: Counter[int] = Counter()

    async def run() -> None:
        turn = 0

        class Counting(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                by_turn[turn] += 1
                transport.close()

        server = await listening.start_listening(Counting, "127.0.0.1", 0)
        with ExitStack() as stack:
            for _ in range(number):  # the system accepts them meanwhile
                client = socket.create_connection(server.sockets[0].getsockname(), PATIENCE)
                stack.enter_context(client)
            while by_turn.total() < number:
                turn += 1
                await asyncio.sleep(0)
        server.close()
        await server.wait_closed()

    asyncio.run(run())
    assert max(by_turn.values()) <= listening.AT_ONCE + 1  # Python 3.12 accepts one more


def test_a_large_response_imports_no_faults() -> None:
    """Importing them takes a long turn of the event loop, which other clients would wait for."""
    code = (
        "import sys\n"
        "from kafka_wire import MetadataRequest\n"
        "from krammar.broker import Broker\n"
        "from krammar.proxy import Proxy\n"
        "from tests.broker.support import RawClient\n"
        "with Broker.start() as broker, Proxy.start(broker.bootstrap_servers) as proxy:\n"
        "    port = int(proxy.bootstrap_servers.rpartition(':')[2])\n"
        "    with RawClient(port) as client:\n"
        "        topics = [MetadataRequest.Topic(name=f'missing-{n}') for n in range(5000)]\n"
        "        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)\n"
        "        response = client.call(request, 12)\n"
        "assert len(response.encode(12)) > 150_000\n"
        "assert 'krammar.faults' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
