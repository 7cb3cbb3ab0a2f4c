"""The pace of new connections: `max.connection.creation.rate` of the broker and of its listeners (KIP-612)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from krammar.broker.quotas.meters import Rate

if TYPE_CHECKING:
    from krammar.broker.config import BrokerConfig, Listener

RATE = "max.connection.creation.rate"


@dataclass(eq=False)
class ConnectionPace:
    """Lets new connections wait while more are made than the limits allow. Times are those of the broker's clock.

    The connections of a listener wait one after another, as Kafka's acceptor accepts them. The broker's limit does not
    concern the listener between brokers, if there are others.
    """

    config: BrokerConfig
    _rates: dict[str, Rate] = field(init=False, default_factory=dict)
    _free_ms: dict[str, int] = field(init=False, default_factory=dict)  # by listener

    def delay_ms(self, listener: Listener, now_ms: int) -> int:
        """Count a connection. Returns the milliseconds after which it is served."""
        begin = max(now_ms, self._free_ms.get(listener.name, 0))
        own = self.config.get(f"listener.name.{listener.name.lower()}.{RATE}")
        wait = 0.0 if own is None else self._wait(listener.name, int(own), begin)
        if not self._is_protected(listener):
            wait = max(wait, self._wait("", self.config.max_connection_creation_rate, begin))
        self._free_ms[listener.name] = begin + round(wait)
        return begin + round(wait) - now_ms

    def _is_protected(self, listener: Listener) -> bool:
        between = self.config.get("inter.broker.listener.name") or "PLAINTEXT"
        return len(self.config.listeners) > 1 and listener.name == between

    def _wait(self, which: str, limit: int, now_ms: int) -> float:
        window_ms = self.config.quota_window_size_seconds * 1000
        rate = self._rates.get(which)
        if rate is None:
            rate = self._rates[which] = Rate(self.config.quota_window_num, window_ms)
        rate.add(1, now_ms)
        return min(window_ms, rate.wait_ms(limit, now_ms)) if limit else window_ms
