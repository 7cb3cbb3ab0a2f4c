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

from krammar.proxy.interface import Close, Connection, Exchange, Filter, on
from krammar.proxy.server import Proxy, ProxyError

__all__ = ["Close", "Connection", "Exchange", "Filter", "Proxy", "ProxyError", "on"]
