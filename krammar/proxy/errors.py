"""Why the proxy closes a connection: a frame that it refuses, or a filter that fails or asks for it. It does no I/O."""

from __future__ import annotations

import asyncio
import logging

from krammar.proxy.interface import Close, Method
from krammar.util.printable import escape
from krammar.wire.errors import WireError


class Refused(Exception):
    """A frame cannot be passed on, and its connection must be closed."""


class FilterError(Exception):
    """A method of a filter has raised an exception, or returned something else than a message."""


# They end the process, also if a filter raises them.
_ENDS_PROCESS = (KeyboardInterrupt, SystemExit)


def why_closed(error: BaseException) -> tuple[int, str]:
    """Return the level and the text of the log line for the error that closes a connection."""
    if isinstance(error, Close):
        return logging.INFO, f"closed by a filter: {escape(error.reason)}"
    if isinstance(error, (FilterError, Refused, WireError)):
        return logging.WARNING, f"closed: {escape(str(error))}"
    return logging.ERROR, "closed"  # a bug in krammar, which must not be hidden


def name_of(method: Method) -> str:
    """Return the name of a filter's method for people, such as ``OnlySmall.limit``."""
    return str(getattr(method, "__qualname__", method))


def filter_error(name: str, error: BaseException) -> Exception:
    """Return the error that closes a connection because a filter's code has raised one: a Close, or a FilterError.

    Args:
        name: of the method that has raised it.
    """
    if isinstance(error, Close):
        return error
    text = str(error)
    what = f"{name} raised {type(error).__name__}" + (f": {text}" if text else "")
    if isinstance(error, _ENDS_PROCESS):
        # The event loop ends by it. uvloop would log it instead if a callback of a transport raised it.
        asyncio.get_running_loop().call_soon(_raise, error)
        what += ", which ends the process"
    return FilterError(what)


def hook_error(each: object, name: str, error: BaseException) -> Exception:
    """Return what ``filter_error`` returns, for a method without an exchange.

    Args:
        each: the filter, or its watch.
        name: of its method.
    """
    return filter_error(f"{type(each).__name__}.{name}", error)


def patch_error(methods: tuple[Method, ...], error: BaseException) -> Exception:
    """Return what ``filter_error`` returns, for the patch of the only filter that reads a message."""
    return hook_error(methods[0].__self__, "patch", error)  # type: ignore[attr-defined]


def cancelled() -> FilterError:
    """Return the error for a task of a connection that was cancelled although the connection is open."""
    return FilterError("the task that ran its filters was cancelled")


def _raise(error: BaseException) -> None:
    raise error
