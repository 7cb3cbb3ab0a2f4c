"""A blocking Kafka client for tools and for Spark executors.

```python
from krammar.client import Client

with Client("localhost:9092") as client:
    for at, record in client.records("orders"):
        print(at, record.offset, record.value)
```

Start with ``Client``. ``krammar.client.errors`` defines the errors, ``krammar.client.settings`` the settings.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from krammar.client.client import Client
from krammar.client.errors import ClientError, KafkaError
from krammar.client.fetch import Fetched, Reader
from krammar.client.metadata import Node, Partition, Topic, TopicPartition
from krammar.client.offsets import At, OffsetAt
from krammar.client.settings import Settings
from krammar.wire.batches import Record

if TYPE_CHECKING:
    from krammar.client.committed import Committed, GroupMember
    from krammar.client.delivery import Delivery
    from krammar.client.produce import Producer

__all__ = [
    "At",
    "Committed",
    "Delivery",
    "GroupMember",
    "Producer",
    "Record",
    "Client",
    "ClientError",
    "Fetched",
    "KafkaError",
    "Node",
    "OffsetAt",
    "Partition",
    "Reader",
    "Settings",
    "Topic",
    "TopicPartition",
]

_LATER = {
    "Committed": "committed",
    "Delivery": "delivery",
    "GroupMember": "committed",
    "Producer": "produce",
}


def __getattr__(name: str) -> Any:
    # Programs that only read need not import the producer.
    if name in _LATER:
        return getattr(import_module(f"krammar.client.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
