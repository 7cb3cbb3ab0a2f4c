"""A proxy for Kafka's protocol, whose filters are Python methods on messages.

```python
from kafka_wire import CreateTopicsRequest
from krammar.proxy import Close, Exchange, Filter, Proxy, on

class NoTopics(Filter):
    @on(CreateTopicsRequest)
    def refuse(self, request: CreateTopicsRequest, exchange: Exchange) -> None:
        raise Close("topics are created elsewhere")

with Proxy.start(upstream="localhost:9092", filters=[NoTopics()]) as proxy:
    print(proxy.bootstrap_servers)
```
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from krammar.proxy.interface import (
    SILENCE,
    Close,
    Connection,
    Exchange,
    Filter,
    Relay,
    Watch,
    on,
)

if TYPE_CHECKING:
    from krammar.proxy.server import Proxy as Proxy
    from krammar.proxy.server import ProxyError as ProxyError

__all__ = [
    "SILENCE",
    "Close",
    "Connection",
    "Exchange",
    "Filter",
    "Proxy",
    "ProxyError",
    "Relay",
    "Watch",
    "on",
]


def __getattr__(name: str) -> Any:
    # Brokers run filters without the proxy's server.
    if name not in ("Proxy", "ProxyError"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("krammar.proxy.server"), name)
