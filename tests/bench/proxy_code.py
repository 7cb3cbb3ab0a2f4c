"""Measure the proxy's own code: bytes are passed to a connection without sockets and without an event loop's turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast
from uuid import UUID

from krammar.proxy import Filter, Proxy
from krammar.proxy.addresses import Address
from krammar.proxy.filters.tenants import Tenants
from krammar.proxy.link import Link
from krammar.proxy.listeners import Port
from krammar.proxy.relay import Side
from tests.bench.page import markdown_table

_BROKER = Address("127.0.0.1", 1)  # no connection to it is opened
_ROUNDS = 20


class Frames(NamedTuple):
    """A request and its response, with their length prefixes."""

    name: str
    request: bytes
    response: bytes


class _Sink:
    """A transport that writes nowhere."""

    def write(self, data: bytes) -> None:
        pass

    def writelines(self, pieces: Sequence[bytes]) -> None:
        pass

    def is_closing(self) -> bool:
        return False


def _connection(filters: Sequence[Filter]) -> Link:
    proxy = Proxy(str(_BROKER), filters)
    found = proxy._link(proxy.listeners[""], Port(None, _BROKER))
    for side in (found.client, found.broker):
        side.transport = cast(asyncio.Transport, _Sink())
    return found


def _feed(side: Side, data: bytes) -> float:
    """Pass bytes to a side as the event loop does. Returns the seconds of processor time."""
    began, position = time.process_time(), 0
    while position < len(data):
        memory = side.get_buffer(-1)
        size = min(len(memory), len(data) - position)
        memory[:size] = data[position : position + size]
        side.buffer_updated(size)
        position += size
    return time.process_time() - began


async def _per_frame(link: Link, frames: Frames, window: int, count: int) -> tuple[float, float]:
    """Return the least microseconds of a request and of a response."""
    request, response = frames.request * window, frames.response * window
    times = []
    for _ in range(_ROUNDS):
        spent = []
        for _ in range(count):
            spent.append((_feed(link.client, request), _feed(link.broker, response)))
            await asyncio.sleep(0)  # the next turn, so that no frame has to wait for one
        times.append([sum(each) / count / window * 1e6 for each in zip(*spent, strict=True)])
    assert not link.is_busy
    assert not link.is_closed
    least = [min(each) for each in zip(*times, strict=True)]
    return least[0], least[1]


def own_code(
    all_frames: Iterable[Frames], windows: Sequence[int], names: dict[UUID, str], count: int
) -> list[str]:
    """Return a table of the processor time of requests and responses, without filters and with Tenants.

    Args:
        names: the names of topic ids at the broker, which Tenants would ask for.
        count: requests per round.
    """

    async def measure() -> list[tuple[str, ...]]:
        rows = []
        for frames in all_frames:
            for window in windows:
                tenants = Tenants("blue")
                for topic_id, name in names.items():
                    tenants._memory.ids.learn(topic_id, name)
                cells = []
                for filters in ([], [tenants]):
                    link = _connection(filters)
                    times = await _per_frame(link, frames, window, max(count // window, 1))
                    cells += [f"{each:.1f}" for each in times]
                rows.append((frames.name, str(window), *cells))
        return rows

    columns = ("request", "response", "request, Tenants", "response, Tenants")
    return markdown_table(("Frames", "In flight", *columns), asyncio.run(measure()))
