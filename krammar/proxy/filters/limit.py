"""Limit: bytes per second of each client or user, with throttle times as Kafka sets them.

```python
from krammar.proxy import Proxy
from krammar.proxy.filters.limit import Limit

filters = [Limit(produce=1_000_000, fetch=5_000_000, by="login")]
with Proxy.start(upstream="localhost:9092", filters=filters) as proxy:
    ...
```
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Any, Literal

from kafka_wire import (
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

from krammar.proxy.filters.logins import SeesLogins
from krammar.proxy.interface import Exchange, on
from krammar.util.clock import monotonic

# Clients that are remembered. One that is forgotten starts again without debt.
_MOST = 100_000


class Limit(SeesLogins):
    """Slows down clients that produce or fetch more bytes of records than a rate allows.

    A client can use the bytes of one second at once. If it uses more, its response has the time to wait as
    ``throttle_time_ms``, and the next Produce or Fetch of the connection waits that long, with all requests after it:
    the response comes first (KIP-219).

    Args:
        produce: bytes per second that a client can produce. Default: not limited.
        fetch: bytes per second that a client can fetch. Default: not limited.
        by: what shares a rate: clients with the same ``client_id``, the same ``login``, or each ``connection``.

    Raises:
        ValueError: an argument is invalid; the text begins with its name.
    """

    def __init__(
        self,
        produce: float | None = None,
        fetch: float | None = None,
        by: Literal["client_id", "login", "connection"] = "client_id",
    ) -> None:
        self._rates: dict[str, float] = {}
        for name, rate in (("produce", produce), ("fetch", fetch)):
            if rate is None:
                continue
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0:
                raise ValueError(f"{name} = {rate!r}: write bytes per second, more than 0")
            self._rates[name] = rate
        if not self._rates:
            raise ValueError("produce, fetch: give at least one of them")
        if by not in ("client_id", "login", "connection"):
            raise ValueError(f"by = {by!r}: write 'client_id', 'login' or 'connection'")
        self._by = by
        # By client: when its debt is paid, in seconds. The bytes of one second are free.
        self._paid: dict[Any, float] = {}

    def now(self) -> float:
        """Return a time in seconds. Tests replace it."""
        return monotonic()

    async def wait(self, seconds: float) -> None:
        """Wait. Tests replace it."""
        await asyncio.sleep(seconds)

    @on(ProduceRequest)
    async def on_produce(self, request: ProduceRequest, exchange: Exchange) -> None:
        await self._muted(exchange)
        size = _size(each for topic in request.topic_data for each in topic.partition_data)
        exchange.state[self] = self._spend("produce", size, exchange)

    @on(FetchRequest, ShareFetchRequest)
    async def on_fetch(self, request: Any, exchange: Exchange) -> None:
        await self._muted(exchange)

    @on(ProduceResponse)
    def on_produced(self, response: ProduceResponse, exchange: Exchange) -> None:
        wait = exchange.state.get(self, 0)
        response.throttle_time_ms = max(response.throttle_time_ms, wait)

    @on(FetchResponse, ShareFetchResponse)
    def on_fetched(self, response: Any, exchange: Exchange) -> None:
        size = _size(each for topic in response.responses for each in topic.partitions)
        wait = self._spend("fetch", size, exchange)
        response.throttle_time_ms = max(response.throttle_time_ms, wait)

    async def _muted(self, exchange: Exchange) -> None:
        wait = exchange.connection.state.get(self, 0.0) - self.now()
        if wait > 0:
            await self.wait(wait)

    def _spend(self, what: str, size: int, exchange: Exchange) -> int:
        """Count bytes, mute the connection if they are too many, and return for how many milliseconds."""
        rate = self._rates.get(what)
        if rate is None or not size:
            return 0
        client: Any = exchange.client_id
        if self._by == "login":
            client = exchange.connection.principal
        elif self._by == "connection":
            client = exchange.connection.number
        now = self.now()
        paid = max(self._paid.pop((what, client), now), now) + size / rate
        if len(self._paid) >= _MOST:
            del self._paid[next(iter(self._paid))]
        self._paid[what, client] = paid
        wait = paid - now - 1
        if wait <= 0:
            return 0
        state = exchange.connection.state
        state[self] = max(state.get(self, now), now + wait)
        return min(math.ceil(wait * 1000), 0x7FFFFFFF)


def _size(partitions: Iterable[Any]) -> int:
    return sum(len(each.records or b"") for each in partitions)


__all__ = ["Limit"]
