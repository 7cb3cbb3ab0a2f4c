"""A blocking Kafka client, for tools and for the executors of Spark.

```python
from krammar.client import Client

with Client("localhost:9092") as client:
    for at, record in client.records("orders"):
        print(at, record.offset, record.value)
```

``Client`` is the door to everything; ``errors`` has what is raised, ``settings`` the settings.
"""

from __future__ import annotations

from krammar.client.client import Client
from krammar.client.delivery import Delivery
from krammar.client.errors import ClientError, KafkaError
from krammar.client.fetch import Fetched, Reader
from krammar.client.metadata import Node, Partition, Topic, TopicPartition
from krammar.client.offsets import At, OffsetAt
from krammar.client.produce import Producer
from krammar.client.settings import Settings
from krammar.client.transactions import Committed, GroupMember
from krammar.wire.record_format import Record

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
