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

The proxy is built of five primitives:

- A *link* is a connection of a client, and its connection to a broker. Each of both is a *side*, which reads and writes bytes
  (``link.py``, ``relay.py``).
- A *route* is what is done for the requests of one api key and version, and for their responses. The chain of filters makes
  the table of routes (``route.py``, ``chain.py``).
- A *scanner* cuts the bytes of a side into frames, and decides what happens to each one by its route: it passes, is
  rewritten as bytes, is read by filters, or closes the link (``scanner.py``).
- An *exchange* is a request and its response on their way through the chain (``interface.py``, ``exchange.py``).
- The *server* listens, has the ports of brokers and all links, and drains them. Several workers can share its ports
  (``server.py``, ``listeners.py``, ``workers.py``).
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
