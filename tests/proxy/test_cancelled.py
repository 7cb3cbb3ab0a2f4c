"""A connection that ends in the turn in which something begins to be awaited for it: no coroutine is left unawaited."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from typing import Any

import pytest
from kafka_wire import HeartbeatRequest, MetadataRequest, MetadataResponse

from krammar.proxy import Exchange, Filter, Proxy, on
from krammar.proxy.link import Link
from tests.proxy.support import Client, address, answering
from tests.support.waiting import PATIENCE
from tests.tap.support import Upstream, upstream


class Ending(Proxy):
    """Closes connections as soon as they are accepted, if ``end`` is set."""

    end = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.all: list[Link] = []

    def opened(self, link: Link) -> None:
        super().opened(link)
        self.all.append(link)
        if self.end:
            link.abort()

    def abort_all(self) -> None:
        """Close all connections at once."""
        for link in self.all:
            link.abort()


class Ends(Filter):
    """Closes the connection, before an async method of the next filter is called."""

    proxy: Ending

    def __init__(self, *named: type[Any]) -> None:
        self._named = named

    @on(MetadataRequest, MetadataResponse)
    def end(self, message: Any, exchange: Exchange) -> None:
        if isinstance(message, self._named):
            self.proxy.abort_all()


class Waits(Filter):
    def __init__(self) -> None:
        self.began = 0

    @on(MetadataRequest, MetadataResponse)
    async def wait(self, message: Any, exchange: Exchange) -> None:
        self.began += 1
        await asyncio.sleep(0)


def warned(recwarn: pytest.WarningsRecorder) -> list[str]:
    gc.collect()
    return [str(each.message) for each in recwarn]


@pytest.fixture
def server() -> Any:
    with upstream(answering()) as serving:
        yield serving


def test_a_connection_that_ends_before_the_broker_is_asked(
    server: Upstream, recwarn: pytest.WarningsRecorder
) -> None:
    with Ending.start(str(server.address)) as proxy:
        proxy.end = True
        with Client(address(proxy)) as client:
            assert client.read_to_end() == b""
    assert warned(recwarn) == []


@pytest.mark.parametrize("named", [MetadataRequest, MetadataResponse])
def test_a_connection_that_ends_before_a_filter_waits(
    server: Upstream, recwarn: pytest.WarningsRecorder, named: type[Any]
) -> None:
    ends, waits = Ends(named), Waits()
    # Requests pass the filters in order, responses in reverse order.
    filters = [ends, waits] if named is MetadataRequest else [waits, ends]
    with Ending.start(str(server.address), filters) as proxy, Client(address(proxy)) as client:
        ends.proxy = proxy
        client.socket.sendall(client.connection.send_request(MetadataRequest(topics=[]), 12))
        assert client.read_to_end() == b""
    assert warned(recwarn) == []
    assert waits.began == (1 if named is MetadataRequest else 2)


def test_a_filter_that_waits_for_the_broker_is_cancelled_when_its_connection_ends() -> None:
    asked, ended = threading.Event(), []

    def silent(connection: socket.socket) -> None:
        while connection.recv(65536):
            asked.set()

    class Asks(Filter):
        @on(MetadataRequest)
        async def ask(self, request: MetadataRequest, exchange: Exchange) -> None:
            try:
                await exchange.send(MetadataRequest(topics=[]))
            except BaseException as error:
                ended.append(type(error))
                raise

        @on(HeartbeatRequest)
        def end(self, request: HeartbeatRequest, exchange: Exchange) -> None:
            proxy.abort_all()

    with (
        upstream(silent) as server,
        Ending.start(str(server.address), [Asks()]) as proxy,
        Client(address(proxy)) as client,
        Client(address(proxy)) as other,
    ):
        client.socket.sendall(client.connection.send_request(MetadataRequest(topics=[]), 12))
        assert asked.wait(PATIENCE)
        other.socket.sendall(other.connection.send_request(HeartbeatRequest(), 4))
        assert client.read_to_end() == b""
    assert ended == [asyncio.CancelledError]
