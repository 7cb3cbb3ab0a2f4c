"""Slows down clients that guess passwords."""

from __future__ import annotations

from collections.abc import Callable

from krammar.util.clock import monotonic


class Guesses:
    """Slows down clients that guess passwords: each failed login of an address doubles the delay of its next one.

    Kafka has one delay for all, ``connection.failed.authentication.delay.ms``. The first failures have that delay, so
    that clients with an old password are not slowed down together.
    """

    FREE = 10
    MOST_SECONDS = 10.0
    # After this time in seconds without a failure, an address begins again.
    FORGET_SECONDS = 60.0
    MOST_HOSTS = 10_000

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        # The number of failures and the time of the last one, the oldest first.
        self._hosts: dict[str, tuple[int, float]] = {}

    def failed(self, host: str, delay: float) -> float:
        """Count a failed login. Returns the delay of its response in seconds, ``delay`` for the first ones."""
        now = self._clock()
        count, last = self._hosts.pop(host, (0, now))
        count = 1 if now - last > self.FORGET_SECONDS else count + 1
        self._hosts[host] = count, now
        if len(self._hosts) > self.MOST_HOSTS:
            del self._hosts[next(iter(self._hosts))]
        doubled = delay * 2.0 ** min(max(count - self.FREE, 0), 30)
        return max(delay, min(doubled, self.MOST_SECONDS))
