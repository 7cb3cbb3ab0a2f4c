"""A Kafka-compatible broker with one node, built on the generated classes.

```python
from krammar.broker import Broker

with Broker.start() as broker:
    print(broker.bootstrap_servers)
```
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from krammar.broker.broker import Broker as Broker
    from krammar.broker.config import BrokerConfig as BrokerConfig
    from krammar.broker.config import ConfigError as ConfigError
    from krammar.broker.errors import BrokerError as BrokerError
    from krammar.broker.several_nodes import Cluster as Cluster

_MODULES = {
    "Broker": "broker",
    "BrokerConfig": "config",
    "BrokerError": "errors",
    "Cluster": "several_nodes",
    "ConfigError": "config",
}

__all__ = ["Broker", "BrokerConfig", "BrokerError", "Cluster", "ConfigError"]


def __getattr__(name: str) -> Any:
    # Every module below imports this package first, so the broker itself is loaded on demand.
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
