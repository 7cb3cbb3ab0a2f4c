"""Carries out how the bytes of a response reach a client, if a filter says so."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from krammar.proxy.errors import filter_error, name_of
from krammar.proxy.interface import Close

if TYPE_CHECKING:
    from krammar.faults.steps import StepTo


def steps_for(delivery: Callable[[bytes], list[Any]], frame: bytes) -> list[Any]:
    """Return the steps in which a filter delivers the frame of a response. Raises Close or FilterError."""
    try:
        return delivery(frame)
    except Close:
        raise
    except BaseException as error:
        raise filter_error(name_of(delivery), error) from error


async def take(steps: Iterable[StepTo], transport: asyncio.Transport) -> None:
    """Take the steps of a delivery, one after the other. Stops if the connection is closed."""
    from krammar.faults.steps import Hold, Send, Wait  # only filters with rules have steps

    for step in steps:
        if isinstance(step, Wait):
            await asyncio.sleep(step.seconds)
        elif transport.is_closing():
            return
        elif isinstance(step, Send):
            transport.write(step.data)
        elif isinstance(step, Hold):
            loop = asyncio.get_running_loop()
            loop.call_later(step.seconds, _send_held, step.release, transport)
        elif step.reset:
            reset(transport)
        else:
            transport.close()


def reset(transport: asyncio.WriteTransport) -> None:
    """Close a connection with a reset (RST), so that bytes that were not delivered are lost."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _send_held(release: Callable[[], list[bytes]], transport: asyncio.Transport) -> None:
    if not transport.is_closing():
        for frame in release():
            transport.write(frame)
