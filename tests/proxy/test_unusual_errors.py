"""Whatever a filter raises closes its connection with one line in the log; only two exceptions end the process."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kafka_wire import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
)

from krammar.proxy import Connection, Exchange, Filter, Proxy, Relay, Watch, on
from krammar.proxy.addresses import Address
from krammar.proxy.interface import Patch
from krammar.testing import KafkaBroker
from krammar.wire.connection import ResponseReceived
from tests.proxy.support import Client, address, answering, asking
from tests.support.waiting import PATIENCE, until
from tests.tap.support import upstream


class Unusual(BaseException):
    """An exception that ``except Exception`` does not catch."""


class Raises(Filter):
    """Raises an exception at the place that is chosen."""

    def __init__(self) -> None:
        self.place = ""
        self.error: type[BaseException] = Unusual

    def fail(self, place: str) -> None:
        if place == self.place:
            raise self.error

    async def fail_later(self, place: str) -> None:
        await asyncio.sleep(0)
        if self.place == f"{place} of a task":  # of another task, which something else has ended
            task = asyncio.ensure_future(asyncio.sleep(60))
            task.cancel()
            await task
        self.fail(place)

    def opened(self, connection: Connection) -> None:
        self.fail("opened")

    def closed(self, connection: Connection) -> None:
        self.fail("closed")


class Plain(Raises):
    @on(MetadataRequest)
    def request(self, request: MetadataRequest, exchange: Exchange) -> None:
        self.fail("plain request")
        if self.place == "delivery":
            exchange.delivery = lambda frame: self.fail("delivery")  # type: ignore[assignment,return-value]

    @on(MetadataResponse)
    def response(self, response: MetadataResponse, exchange: Exchange) -> None:
        self.fail("plain response")


class Async(Raises):
    @on(MetadataRequest)
    async def request(self, request: MetadataRequest, exchange: Exchange) -> None:
        await self.fail_later("async request")
        if self.place.startswith("sent"):
            await exchange.send(FindCoordinatorRequest(key="g"), 3)
        if self.place == "own task":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(60)

    @on(MetadataResponse)
    async def response(self, response: MetadataResponse, exchange: Exchange) -> None:
        await self.fail_later("async response")
        if self.place == "own task of a response":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(60)


class Sent(Raises):
    @on(FindCoordinatorRequest)
    def request(self, request: FindCoordinatorRequest, exchange: Exchange) -> None:
        self.fail("sent, plain")

    @on(FindCoordinatorRequest)
    async def later(self, request: FindCoordinatorRequest, exchange: Exchange) -> None:
        await self.fail_later("sent, async")


class Patches(Raises):
    """Reads Heartbeat alone, so that its frames are changed as bytes."""

    @on(HeartbeatRequest, HeartbeatResponse)
    def read(self, message: Any, exchange: Exchange) -> None:
        raise AssertionError("the frame was decoded")

    def patch(self, message: Any, version: int) -> Patch:
        def change(data: Any, begin: int, end: int, connection: Connection) -> Any:
            self.fail(f"patch of {message.__name__}")
            return [data[begin:end]]

        return change


class Watches(Raises):
    def watch_connection(self, connection: Connection, relay: Relay) -> Watch:
        self.fail("watch_connection")
        return Seeing(self)


class Seeing(Watch):
    def __init__(self, raises: Raises) -> None:
        self._raises = raises

    def arrived(self, is_request: bool, data: memoryview) -> None:
        self._raises.fail(f"arrived {is_request}")

    def noted(self, is_request: bool, correlation_id: int, notes: list[str]) -> None:
        self._raises.fail("noted")

    def closed(self) -> None:
        self._raises.fail("watch closed")


METHODS = {
    "plain request": "Plain.request",
    "plain response": "Plain.response",
    "async request": "Async.request",
    "async response": "Async.response",
    "sent, plain": "Sent.request",
    "sent, async": "Sent.later",
    "opened": "Plain.opened",
    "delivery": "Plain.request.<locals>.<lambda>",
}
OF_THE_PROXY = {
    "patch of HeartbeatRequest": "Patches.patch",
    "patch of HeartbeatResponse": "Patches.patch",
    "watch_connection": "Watches.watch_connection",
    "arrived True": "Seeing.arrived",
    "arrived False": "Seeing.arrived",
    "noted": "Seeing.noted",
}
ERRORS = (Unusual, asyncio.CancelledError, GeneratorExit, StopIteration, ZeroDivisionError)
ALL = (Plain, Async, Sent)


class Place:
    """Filters in a broker or a proxy, and whoever connects to it."""

    def __init__(self, address: Address, filters: list[Raises], logger: str) -> None:
        self._address = address
        self._filters = filters
        self.logger = logger

    def set(self, place: str, error: type[BaseException] = Unusual) -> None:
        for each in self._filters:
            each.place, each.error = place, error

    def is_closed(self) -> bool:
        """Send some requests, and return whether the connection is closed instead of an answer."""
        requests = [
            (ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3),
            (HeartbeatRequest(group_id="g", member_id="m"), 4),
            (MetadataRequest(topics=[]), 12),
        ]
        with Client(self._address) as client:
            try:
                return not all(
                    isinstance(client.ask(request, version), ResponseReceived)
                    for request, version in requests
                )
            except ConnectionError:  # closed while requests were on their way
                return True


@pytest.fixture(scope="module")
def proxy() -> Iterator[Place]:
    filters = [each() for each in ALL]
    with upstream(answering()) as server, Proxy.start(str(server.address), filters) as proxy:
        yield Place(address(proxy), list(filters), "krammar.proxy")


@pytest.fixture(scope="module")
def bytewise() -> Iterator[Place]:
    filters = [Patches(), Watches()]
    with upstream(answering()) as server, Proxy.start(str(server.address), filters) as proxy:
        yield Place(address(proxy), list(filters), "krammar.proxy")


@pytest.fixture(scope="module")
def broker() -> Iterator[Place]:
    filters = [each() for each in ALL]
    with KafkaBroker.start(filters=filters) as broker:
        place = Place(Address(broker.host, broker.port), list(filters), "krammar.broker")
        place.set("")
        yield place


def check(place: Place, where: str, error: type[BaseException], method: str, caplog: Any) -> None:
    """Assert that an exception closes its connection with one line, and that the next connection is served."""
    caplog.set_level(logging.INFO, place.logger)
    place.set(where, error)
    try:
        assert place.is_closed()
    finally:
        place.set("")
    assert not place.is_closed()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().endswith(f"closed: {method} raised {error.__name__}")


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("where", METHODS)
@pytest.mark.parametrize("host", ["proxy", "broker"])
def test_any_exception_closes_its_connection(
    host: str, where: str, error: type[BaseException], request: pytest.FixtureRequest, caplog: Any
) -> None:
    if where.startswith(("async", "sent, async")) and error is StopIteration:
        error = ZeroDivisionError  # Python does not let a coroutine raise it
    check(request.getfixturevalue(host), where, error, METHODS[where], caplog)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("where", OF_THE_PROXY)
def test_any_exception_where_bytes_are_changed_or_watched(
    bytewise: Place, where: str, error: type[BaseException], caplog: Any
) -> None:
    check(bytewise, where, error, OF_THE_PROXY[where], caplog)


@pytest.mark.parametrize("where", ["async request", "async response", "sent, async"])
@pytest.mark.parametrize("host", ["proxy", "broker"])
def test_a_filter_that_awaits_a_cancelled_task(
    host: str, where: str, request: pytest.FixtureRequest, caplog: Any
) -> None:
    place = request.getfixturevalue(host)
    check(place, f"{where} of a task", asyncio.CancelledError, METHODS[where], caplog)


@pytest.mark.parametrize("where", ["own task", "own task of a response"])
@pytest.mark.parametrize("host", ["proxy", "broker"])
def test_a_filter_that_cancels_the_task_of_its_connection(
    host: str, where: str, request: pytest.FixtureRequest, caplog: Any
) -> None:
    place = request.getfixturevalue(host)
    place.set(where)
    try:
        assert place.is_closed()
    finally:
        place.set("")
    assert not place.is_closed()
    (record,) = caplog.records
    assert record.getMessage().endswith("closed: the task that ran its filters was cancelled")


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("where", ["closed", "watch closed"])
def test_an_exception_at_the_end_of_a_connection_is_logged(
    bytewise: Place, where: str, error: type[BaseException], caplog: Any
) -> None:
    bytewise.set(where, error)
    assert not bytewise.is_closed()
    until(lambda: len(caplog.records) == (2 if where == "closed" else 1))
    bytewise.set("")
    assert all(f"raised {error.__name__}" in each.getMessage() for each in caplog.records)


ENDING = """
import asyncio
from krammar.proxy import Filter, on
from kafka_wire import MetadataRequest, MetadataResponse

class Plain(Filter):
    @on(MetadataRequest, MetadataResponse)
    def end(self, message, exchange):
        if isinstance(message, NAMED):
            raise ERROR(7)

class Async(Filter):
    @on(MetadataRequest, MetadataResponse)
    async def end(self, message, exchange):
        await asyncio.sleep(0)
        if isinstance(message, NAMED):
            raise ERROR(7)

class Opened(Filter):
    def opened(self, connection):
        raise ERROR(7)

class Closed(Filter):
    def closed(self, connection):
        raise ERROR(7)
"""


# Each kind of place, with one of both exceptions.
ENDINGS = [
    ("Plain", "MetadataRequest", "SystemExit", 7),
    ("Plain", "MetadataResponse", "KeyboardInterrupt", 130),
    ("Async", "MetadataRequest", "KeyboardInterrupt", 130),
    ("Async", "MetadataResponse", "SystemExit", 7),
    ("Opened", "", "KeyboardInterrupt", 130),
    ("Closed", "", "SystemExit", 7),
]


@pytest.mark.parametrize(("kind", "message", "error", "code"), ENDINGS)
def test_two_exceptions_end_the_process(
    tmp_path: Path, kind: str, message: str, error: str, code: int
) -> None:
    text = ENDING.replace("NAMED", message or "()").replace("ERROR", error)
    (tmp_path / "ending.py").write_text(text)
    command = [sys.executable, "-m", "krammar", "proxy", "--listen", "127.0.0.1:0"]
    with upstream(answering()) as server:
        options = ["--upstream", str(server.address), "--filter", f"ending:{kind}"]
        process = subprocess.Popen(
            [*command, *options], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        with process:
            assert process.stderr is not None
            place = Address.parse(process.stderr.readline().split()[-1])
            with Client(place) as client, suppress(OSError):  # it may be closed at once
                client.socket.sendall(client.connection.send_request(asking(), 12))
                client.socket.shutdown(socket.SHUT_WR)
                while client.socket.recv(1024):
                    pass
            assert process.wait(PATIENCE) == code
            log = process.stderr.read()
            assert "Traceback" not in log
            assert f"{kind}.{'end' if message else kind.lower()} raised {error}: 7" in log
