"""A pytest plugin: the fixture ``kafka_broker``, a Kafka-compatible broker in the test process.

It is installed with krammar (entry point ``pytest11``) and loads nothing until the fixture is used:

```python
def test_orders(kafka_broker):
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
```
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from krammar.broker import Broker


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A ``krammar.broker.Broker`` on a free port of loopback, empty, gone when the test is over.

    ``@pytest.mark.kafka_broker({"num.partitions": "3"})`` gives it settings, by Kafka's names.
    """
    from krammar.broker import Broker

    marker = request.node.get_closest_marker("kafka_broker")
    properties = marker.args[0] if marker is not None and marker.args else None
    with Broker.start(properties=properties) as broker:
        yield broker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "kafka_broker(properties): settings of the fixture kafka_broker's broker"
    )
