"""Requests that filters send: they pass the filters after the one that sends, and so do their responses. It does no I/O."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from krammar.proxy.chain import Chain
from krammar.proxy.interface import Close, Exchange, Method, Silence
from krammar.proxy.running import FilterError, run_request, run_response
from krammar.wire.framing import PREFIX

# The client id of requests of filters, and of the proxy itself.
CLIENT_ID = "krammar-proxy"
# A longer frame is decoded in a thread, so that other connections are served meanwhile.
_ONE_TURN = 256 * 1024


async def pass_on(
    chain: Chain,
    asking: Exchange,
    request: Any,
    exchange: Exchange,
    *,
    transmit: Callable[[Any, Exchange], Awaitable[Any]],
    silence: Callable[[], None],
) -> Any:
    """Return the response to a request of a filter.

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
    work = chain.after(asking.method, exchange.api_key, exchange.version)
    try:
        if work.requests:
            frame, message = await _copied(chain, work, request, exchange)
            exchange.received = frame, PREFIX
            settled = run_request(work, message, exchange)
            if inspect.isawaitable(settled):
                settled = await settled
            if isinstance(settled.answer, Silence):
                silence()
                await asyncio.get_running_loop().create_future()  # until the connection ends
            if settled.answer is not None:
                methods = chain.before(work, settled.answered_by)
                return await _answered(methods, settled.answer, exchange)
            request = settled.request
            chain.frames.check_answered(request)  # a filter can have changed its acks
        response = await transmit(request, exchange)
        return await _answered(work.responses, response, exchange)
    except (Close, FilterError) as error:
        asking.failure = error
        raise


async def _copied(chain: Chain, work: Any, request: Any, exchange: Exchange) -> tuple[bytes, Any]:
    """Return the frame of a request and a decoded copy of it: filters change messages in place."""
    frames = chain.frames
    frame = frames.request(exchange.correlation_id, CLIENT_ID, request, exchange.version)
    decode = partial(frames.read_request, work, frame)
    read = await asyncio.to_thread(decode) if len(frame) > _ONE_TURN else decode()
    return frame, read.message


async def _answered(methods: tuple[Method, ...], response: Any, exchange: Exchange) -> Any:
    found = run_response(methods, response, exchange)
    return await found if inspect.isawaitable(found) else found
