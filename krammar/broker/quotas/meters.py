"""Meters: what a client has used of a limit, in the way of Kafka's metrics. Times are milliseconds of the broker's clock."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _Window:
    begin: int
    last: int  # when something was added last
    amount: float = 0.0


@dataclass(slots=True, eq=False)
class Rate:
    """An amount per second, over the last windows (``quota.window.num``, ``quota.window.size.seconds``)."""

    windows: int
    window_ms: int
    _used: deque[_Window] = field(init=False, default_factory=deque)

    def add(self, amount: float, now_ms: int) -> None:
        used = self._used
        if not used or now_ms - used[-1].begin >= self.window_ms:
            used.append(_Window(now_ms, now_ms))
        used[-1].amount += amount
        used[-1].last = now_ms
        self._forget(now_ms)

    def wait_ms(self, limit: float, now_ms: int) -> float:
        """Return the milliseconds without use after which the rate is no longer above a limit; 0 if it is not."""
        self._forget(now_ms)
        total = sum(each.amount for each in self._used)
        return max(0.0, total * 1000 / limit - self._span(now_ms))

    def _span(self, now_ms: int) -> int:
        """Return the milliseconds that the rate is the average of.

        All windows but the current one count in full, even in the beginning, so that a client can
        use several windows at once.
        """
        elapsed = max(0, now_ms - self._used[0].begin) if self._used else 0
        missing = self.windows - 1 - elapsed // self.window_ms
        return max(1, elapsed + max(0, missing) * self.window_ms)

    def _forget(self, now_ms: int) -> None:
        used, most = self._used, self.windows * self.window_ms
        while used and now_ms - used[0].last >= most:
            used.popleft()


@dataclass(slots=True, eq=False)
class TokenBucket:
    """Tokens that return at the rate of a limit, at most those of all windows (KIP-599).

    A use is accepted while there are tokens, whatever its size, so the bucket can be in debt.
    """

    windows: int
    window_ms: int
    _tokens: float = field(init=False, default=math.inf)  # full
    _filled_at: int = field(init=False, default=0)

    def take(self, amount: float, limit: float, now_ms: int) -> None:
        self._fill(limit, now_ms)
        self._tokens -= amount

    def wait_ms(self, limit: float, now_ms: int) -> float:
        """Return the milliseconds after which the bucket is out of debt; 0 if it is."""
        self._fill(limit, now_ms)
        return max(0.0, -self._tokens / limit * 1000)

    def _fill(self, limit: float, now_ms: int) -> None:
        most = limit * self.windows * self.window_ms / 1000
        new = limit * max(0, now_ms - self._filled_at) / 1000
        self._tokens = min(most, self._tokens + new)
        self._filled_at = now_ms
