"""Runs the methods of filters over a message. It does no I/O."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable
from typing import Any, NamedTuple

from krammar.proxy.interface import Close, Exchange, Filter, Method, Silence
from krammar.proxy.work import Refused, Work
from krammar.util.printable import escape
from krammar.wire.errors import WireError


class FilterError(Exception):
    """A method of a filter has raised an exception, or returned something else than a message."""


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
    found = await _wait(work.requests[index], result)
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
    found = await _wait(methods[index], result)
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


def hook_error(each: Filter, name: str, error: Exception) -> FilterError | Close:
    if isinstance(error, Close):
        return error
    return FilterError(f"{type(each).__name__}.{name} raised {type(error).__name__}: {error}")


def name_of(method: Method) -> str:
    """Return the name of a filter's method for people, such as ``OnlySmall.limit``."""
    return str(getattr(method, "__qualname__", method))


def _call(method: Method, message: Any, exchange: Exchange) -> Any:
    try:
        return method(message, exchange)
    except Close:
        raise
    except Exception as error:
        raise _failed(method, error) from error


async def _wait(method: Method, result: Awaitable[Any]) -> Any:
    try:
        return await result
    except Close:
        raise
    except Exception as error:
        raise _failed(method, error) from error


def _failed(method: Method, error: Exception) -> FilterError:
    return FilterError(f"{name_of(method)} raised {type(error).__name__}: {error}")


def _replaced(method: Method, response: Any, result: Any) -> Any:
    if result is None:
        return response
    if isinstance(result, type(response)):
        return result
    raise FilterError(
        f"{name_of(method)} returned {type(result).__name__} for {type(response).__name__} (return None "
        "or a response of this class)"
    )
