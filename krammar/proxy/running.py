"""Runs the methods of filters over a message. It does no I/O."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from krammar.proxy.interface import Close, Exchange, Method, Silence
from krammar.proxy.work import Refused, Work
from krammar.util.printable import escape
from krammar.wire.errors import WireError


class FilterError(Exception):
    """A method of a filter has raised an exception, or returned something else than a message."""


# They end the process, also if a filter raises them.
_ENDS_PROCESS = (KeyboardInterrupt, SystemExit)


class Settled(NamedTuple):
    """What the methods for requests have decided: the request, and the answer or None."""

    request: Any
    answer: Any
    answered_by: int


def run_request(
    work: Work, request: Any, exchange: Exchange, first: int = 0
) -> Settled | Awaitable[Settled]:
    """Run the methods for a request. What is awaited is returned, so that plain methods need no task.

    Raises:
        Close: a filter closes the connection.
        FilterError: a filter has failed.
    """
    methods = work.requests
    for index in range(first, len(methods)):
        exchange.request = request
        result = _call(methods[index], request, exchange)
        if result is None:
            continue
        if inspect.isawaitable(result):
            return _await_request(work, request, exchange, index, result)
        settled = _settle(work, request, index, result)
        if settled.answer is not None:
            return settled
        request = settled.request
    exchange.request = request
    return Settled(request, None, -1)


async def _await_request(
    work: Work, request: Any, exchange: Exchange, index: int, result: Awaitable[Any]
) -> Settled:
    found = await _wait(work.requests[index], result, exchange)
    if found is not None:
        settled = _settle(work, request, index, found)
        if settled.answer is not None:
            return settled
        request = settled.request
    rest = run_request(work, request, exchange, index + 1)
    return rest if isinstance(rest, Settled) else await rest


def _settle(work: Work, request: Any, index: int, result: Any) -> Settled:
    if isinstance(result, type(request)):
        return Settled(result, None, -1)
    if isinstance(result, Silence):
        return Settled(request, result, index)
    cls = type(request).response_class
    if cls is not None and isinstance(result, cls):
        return Settled(request, result, index)
    raise FilterError(
        f"{name_of(work.requests[index])} returned {type(result).__name__} for "
        f"{type(request).__name__} (return None, a request or a response of this API)"
    )


def run_response(
    methods: tuple[Method, ...], response: Any, exchange: Exchange, first: int = 0
) -> Any:
    """Run methods for a response. Returns the response, or an awaitable of it; errors as ``run_request``."""
    for index in range(first, len(methods)):
        result = _call(methods[index], response, exchange)
        if result is None:
            continue
        if inspect.isawaitable(result):
            return _await_response(methods, response, exchange, index, result)
        response = _replaced(methods[index], response, result)
    return response


async def _await_response(
    methods: tuple[Method, ...],
    response: Any,
    exchange: Exchange,
    index: int,
    result: Awaitable[Any],
) -> Any:
    found = await _wait(methods[index], result, exchange)
    response = _replaced(methods[index], response, found)
    rest = run_response(methods, response, exchange, index + 1)
    return await rest if inspect.isawaitable(rest) else rest


def why_closed(error: BaseException) -> tuple[int, str]:
    """Return the level and the text of the log line for the error that closes a connection."""
    if isinstance(error, Close):
        return logging.INFO, f"closed by a filter: {escape(error.reason)}"
    if isinstance(error, (FilterError, Refused, WireError)):
        return logging.WARNING, f"closed: {escape(str(error))}"
    return logging.ERROR, "closed"  # a bug in krammar, which must not be hidden


def hook_error(each: object, name: str, error: BaseException) -> Exception:
    """Return the error that closes a connection because a filter's code has raised one, in a call that is not awaited.

    Args:
        each: the filter, or its watch.
        name: of its method.
    """
    return error if isinstance(error, Close) else _failed(f"{type(each).__name__}.{name}", error)


def patch_error(methods: tuple[Method, ...], error: BaseException) -> Exception:
    """Return the error that closes a connection because the patch of the only method has raised one."""
    return hook_error(methods[0].__self__, "patch", error)  # type: ignore[attr-defined]


def steps_for(delivery: Callable[[bytes], list[Any]], frame: bytes) -> list[Any]:
    """Return the steps in which a filter delivers the frame of a response. Raises Close or FilterError."""
    try:
        return delivery(frame)
    except Close:
        raise
    except BaseException as error:
        raise _failed(name_of(delivery), error) from error


def cancelled() -> FilterError:
    """Return the error for a task of a connection that was cancelled although the connection is open."""
    return FilterError("the task that ran its filters was cancelled")


def name_of(method: Method) -> str:
    """Return the name of a filter's method for people, such as ``OnlySmall.limit``."""
    return str(getattr(method, "__qualname__", method))


def _call(method: Method, message: Any, exchange: Exchange) -> Any:
    exchange.method = method
    try:
        return method(message, exchange)
    except Close:
        raise
    except BaseException as error:
        raise _failed(name_of(method), error) from error


async def _wait(method: Method, result: Awaitable[Any], exchange: Exchange) -> Any:
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
        raise _failed(name_of(method), error) from error
    except GeneratorExit as error:
        if _current_task() is not task:
            raise  # the coroutine is closed
        raise _failed(name_of(method), error) from error
    except BaseException as error:
        raise _failed(name_of(method), error) from error


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs
        return None


def _failed(name: str, error: BaseException) -> FilterError:
    text = str(error)
    what = f"{name} raised {type(error).__name__}" + (f": {text}" if text else "")
    if isinstance(error, _ENDS_PROCESS):
        # The event loop ends by it. uvloop would log it instead if a callback of a transport raised it.
        asyncio.get_running_loop().call_soon(_raise, error)
        what += ", which ends the process"
    return FilterError(what)


def _raise(error: BaseException) -> None:
    raise error


def _replaced(method: Method, response: Any, result: Any) -> Any:
    if result is None:
        return response
    if isinstance(result, type(response)):
        return result
    raise FilterError(
        f"{name_of(method)} returned {type(result).__name__} for {type(response).__name__} (return None "
        "or a response of this class)"
    )
