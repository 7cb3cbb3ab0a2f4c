"""One request and its response on their way through the chain of filters. It does no I/O, so broker and proxy run it.

Each message is a coroutine, which ``run_at_once`` starts. Without an async method it ends there, without a task.
Before the first result of a method is awaited, it waits for one turn of the event loop, and a task of the caller
runs the rest. So plain and async methods share one path, and what is awaited runs in a task.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import coroutine as generator_coroutine
from typing import Any, NamedTuple, TypeVar

from krammar.proxy.chain import Chain
from krammar.proxy.errors import FilterError, filter_error, name_of
from krammar.proxy.interface import Close, Exchange, Method, Silence
from krammar.proxy.route import Route
from krammar.util.turns import in_thread
from krammar.wire.framing import PREFIX

# The client id of requests of filters, and of the proxy itself.
CLIENT_ID = "krammar-proxy"
# A longer request of a filter is decoded in a thread, so that others are served meanwhile.
_LOOP_BYTES = 256 * 1024

T = TypeVar("T")

# Awaited before the first result of a method: the coroutine continues in a task.
ToTask = Callable[[], Awaitable[None]]


def run_at_once(coroutine: Coroutine[Any, Any, T]) -> tuple[Awaitable[T] | None, T | None]:
    """Run a coroutine up to its first wait, which is for a turn of the event loop.

    Returns:
        The rest, to be awaited in a task, or None if the coroutine has ended; and its result then. Its error is raised.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        return None, end.value
    return _rest(coroutine), None


@generator_coroutine
def _rest(coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    # ``await`` refuses a coroutine that has begun.
    return (yield from coroutine.__await__())


class Settled(NamedTuple):
    """What the methods for requests have decided: the request, and the answer or None."""

    request: Any
    answer: Any
    answered_by: int


async def run_request(
    route: Route, request: Any, exchange: Exchange, to_task: ToTask | None = None
) -> Settled:
    """Run the methods for a request.

    Args:
        to_task: what to await before the first result of a method; None if a task runs this.

    Raises:
        Close: a filter closes the connection.
        FilterError: a filter has failed.
    """
    for index, method in enumerate(route.requests):
        exchange.request = request
        result = _call(method, request, exchange)
        if result is not None and inspect.isawaitable(result):
            result, to_task = await _wait(method, result, exchange, to_task), None
        if result is None:
            continue
        if isinstance(result, type(request)):
            request = result
            continue
        response = type(request).response_class
        if isinstance(result, Silence) or (response is not None and isinstance(result, response)):
            return Settled(request, result, index)
        raise FilterError(
            f"{name_of(method)} returned {type(result).__name__} for "
            f"{type(request).__name__} (return None, a request or a response of this API)"
        )
    exchange.request = request
    return Settled(request, None, -1)


async def run_response(
    methods: tuple[Method, ...], response: Any, exchange: Exchange, to_task: ToTask | None = None
) -> Any:
    """Run methods for a response, and return the response. Arguments and errors are as for ``run_request``."""
    for method in methods:
        result = _call(method, response, exchange)
        if result is not None and inspect.isawaitable(result):
            result, to_task = await _wait(method, result, exchange, to_task), None
        if result is None:
            continue
        if not isinstance(result, type(response)):
            raise FilterError(
                f"{name_of(method)} returned {type(result).__name__} for {type(response).__name__} "
                "(return None or a response of this class)"
            )
        response = result
    return response


def _call(method: Method, message: Any, exchange: Exchange) -> Any:
    exchange.method = method
    try:
        return method(message, exchange)
    except Close:
        raise
    except BaseException as error:
        raise filter_error(name_of(method), error) from error


async def _wait(
    method: Method, result: Awaitable[Any], exchange: Exchange, to_task: ToTask | None
) -> Any:
    if to_task is not None:
        await to_task()
    task = _current_task()
    try:
        found = await result
        if exchange.failure is not None:
            raise exchange.failure
        return found
    except (Close, FilterError):  # the latter of a filter that has got a request of this one
        raise
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling():
            raise  # the connection ends
        # The filter has awaited something that was cancelled.
        raise filter_error(name_of(method), error) from error
    except GeneratorExit as error:
        if _current_task() is not task:
            raise  # the coroutine is closed
        raise filter_error(name_of(method), error) from error
    except BaseException as error:
        raise filter_error(name_of(method), error) from error


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs
        return None


async def pass_on(
    chain: Chain,
    asking: Exchange,
    request: Any,
    exchange: Exchange,
    *,
    transmit: Callable[[Any, Exchange], Awaitable[Any]],
    silence: Callable[[], None],
) -> Any:
    """Return the response to a request of a filter, which passes the filters after it, and so does its response.

    Args:
        asking: the exchange that the sender handles.
        exchange: of the request.
        transmit: sends a request to the broker, and returns its response.
        silence: ends all answers of the connection, because a filter has returned ``SILENCE``.

    Raises:
        ValueError: the request gets no response.
        EncodeError: the version cannot represent the request.
        Close, FilterError: a filter closes the connection, or has failed. The connection is closed, also if the sender
            catches the error.
    """
    route = chain.after(asking.method, exchange.api_key, exchange.version)
    try:
        if route.requests:
            frame, message = await _copied(chain, route, request, exchange)
            exchange.received = frame, PREFIX
            settled = await run_request(route, message, exchange)
            if isinstance(settled.answer, Silence):
                silence()
                await asyncio.get_running_loop().create_future()  # until the connection ends
            if settled.answer is not None:
                methods = chain.before(route, settled.answered_by)
                return await run_response(methods, settled.answer, exchange)
            request = settled.request
            chain.frames.check_answered(request)  # a filter can have changed its acks
        response = await transmit(request, exchange)
        return await run_response(route.responses, response, exchange)
    except (Close, FilterError) as error:
        asking.failure = error
        raise


async def _copied(
    chain: Chain, route: Route, request: Any, exchange: Exchange
) -> tuple[bytes, Any]:
    """Return the frame of a request and a decoded copy of it: filters change messages in place."""
    frames = chain.frames
    frame = frames.request(exchange.correlation_id, CLIENT_ID, request, exchange.version)
    if len(frame) > _LOOP_BYTES:
        read = await in_thread(frames.read_request, route, frame)
    else:
        read = frames.read_request(route, frame)
    return frame, read.message
