"""The proxy's metrics, which ``metrics.csv`` lists. With several workers, their numbers are summed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from importlib.resources import files
from typing import Any

from krammar.util.clock import perf_counter
from krammar.util.http_server import HttpPage
from krammar.util.prometheus import CONTENT_TYPE, Registry
from krammar.util.turns import Slices
from krammar.wire.package import Package

_TABLE = files("krammar.proxy") / "metrics.csv"
_PREFIX = "krammar_proxy"


class ProxyMetrics:
    """The numbers of one process.

    Args:
        connections: returns the number of open connections.
    """

    def __init__(self, package: Package, connections: Callable[[], int]) -> None:
        self._names = {key: found.api_name for key, found in package.requests.items()}
        self.registry = found = Registry.of_table(
            _TABLE,
            {
                f"{_PREFIX}_connections": connections,
                f"{_PREFIX}_connections_total": lambda: self.accepted,
                "process_cpu_seconds_total": time.process_time,
            },
        )
        self.accepted = 0
        self._requests = found.counter(f"{_PREFIX}_requests_total")
        self._received = found.counter(f"{_PREFIX}_request_bytes_total")
        self._sent = found.counter(f"{_PREFIX}_response_bytes_total")
        self._errors = found.counter(f"{_PREFIX}_errors_total")
        self._filters = found.counter(f"{_PREFIX}_filter_errors_total")
        self._times = found.histogram(f"{_PREFIX}_request_time_ms")

    def _name(self, api_key: int) -> str:
        return self._names.get(api_key, "unknown")

    def request(self, api_key: int, size: int) -> None:
        """Count a request of a number of bytes."""
        api = (self._name(api_key),)
        self._requests[api] += 1
        self._received[api] += size

    def response(self, api_key: int, size: int, started: float) -> None:
        """Count a response, for a request that arrived at a time of ``time.perf_counter``."""
        name = self._name(api_key)
        self._sent[(name,)] += size
        self._times.observe((perf_counter() - started) * 1000, name)

    def error(self, api_key: int, reason: str) -> None:
        """Count a request without a response."""
        self._errors[self._name(api_key), reason] += 1

    def filter_error(self, method: str) -> None:
        """Count an error of a filter's method."""
        self._filters[(method,)] += 1


class Total:
    """The numbers of several workers, and of those that have died."""

    def __init__(self) -> None:
        self._died = Registry.of_table(_TABLE, {})

    def lost(self, numbers: Any) -> None:
        """Retain the counters of a worker that has died, so that sums do not fall."""
        if numbers is not None:
            kinds = {metric.name: metric.kind for metric in self._died.all}
            self._died.add({name: n for name, n in numbers.items() if kinds[name] != "gauge"})

    def of(self, workers: Iterable[Any]) -> Registry:
        """Return the sum of the numbers of workers."""
        total = Registry.of_table(_TABLE, {})
        for numbers in (self._died.numbers(), *workers):
            total.add(numbers)
        return total


def page(registry: Callable[[], Awaitable[Registry]]) -> HttpPage:
    """Return the page with the metrics."""
    slices = Slices()

    async def text() -> str:
        return await slices.run_from_start((await registry()).text())

    return HttpPage("/metrics", CONTENT_TYPE, text)
