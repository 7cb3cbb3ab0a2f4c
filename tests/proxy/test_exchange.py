"""The coroutine of a message runs at once, and in a task from the first method on that is awaited."""

from __future__ import annotations

import asyncio
from typing import Any

import kafka_wire
import pytest
from kafka_wire import HeartbeatRequest, HeartbeatResponse

from krammar.proxy import Connection, Exchange, Filter, on
from krammar.proxy.chain import Chain
from krammar.proxy.errors import FilterError
from krammar.proxy.exchange import run_at_once, run_request, run_response
from krammar.proxy.route import Route


class Plain(Filter):
    @on(HeartbeatRequest, HeartbeatResponse)
    def see(self, message: Any, exchange: Exchange) -> None:
        exchange.notes.append("plain")


class Awaited(Filter):
    """Awaits something that only a task can await."""

    @on(HeartbeatRequest, HeartbeatResponse)
    async def see(self, message: Any, exchange: Exchange) -> None:
        async with asyncio.timeout(10):
            await asyncio.sleep(0)
        exchange.notes.append("awaited")


class Broken(Filter):
    @on(HeartbeatRequest)
    def see(self, request: HeartbeatRequest, exchange: Exchange) -> None:
        raise StopIteration("of the filter")


def begin(*filters: Filter) -> tuple[Route, Exchange]:
    async def send(*_: Any) -> Any:
        raise AssertionError

    chain = Chain(kafka_wire, filters)
    route = chain.routes[HeartbeatRequest.api_key << 16 | 4]
    assert route is not None
    return route, Exchange(Connection(1, "client", "broker"), 12, 4, 1, None, send)


def test_plain_methods_need_no_event_loop() -> None:
    route, exchange = begin(Plain(), Plain())
    request = HeartbeatRequest(group_id="g")
    rest, settled = run_at_once(run_request(route, request, exchange))
    assert rest is None
    assert settled == (request, None, -1)
    assert exchange.notes == ["plain", "plain"]


def test_methods_that_are_awaited_run_in_one_task() -> None:
    route, exchange = begin(Plain(), Awaited(), Awaited(), Plain())
    moved: list[list[str]] = []

    async def to_task() -> None:
        moved.append(list(exchange.notes))
        await asyncio.sleep(0)

    async def both() -> None:
        for message in (
            run_request(route, HeartbeatRequest(group_id="g"), exchange, to_task),
            run_response(route.responses, HeartbeatResponse(), exchange, to_task),
        ):
            exchange.notes.clear()
            loop = asyncio.get_running_loop()
            begun: asyncio.Future[Any] = loop.create_future()
            # As a transport calls it: no task runs.
            loop.call_soon(
                lambda message=message, begun=begun: begun.set_result(run_at_once(message))
            )
            rest, _ = await begun
            assert exchange.notes == ["plain"]
            await asyncio.ensure_future(rest)
            assert exchange.notes == ["plain", "awaited", "awaited", "plain"]

    asyncio.run(both())
    assert moved == [["plain"], ["plain"]]


def test_an_error_of_a_plain_method_is_raised_at_once() -> None:
    route, exchange = begin(Plain(), Broken())
    with pytest.raises(FilterError, match="raised StopIteration: of the filter"):
        run_at_once(run_request(route, HeartbeatRequest(group_id="g"), exchange))
    assert exchange.notes == ["plain"]
