"""A pytest plugin with the fixture ``kafka_broker``, a Kafka-compatible broker in the test process.

pytest finds it by the entry point ``pytest11``. It imports the broker when a test uses the fixture:

```python
def test_orders(kafka_broker):
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from krammar.broker import Broker


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """An empty ``krammar.broker.Broker`` on a free port of the loopback address, for one test.

    ``@pytest.mark.kafka_broker(num_partitions=3)``, or ``({"num.partitions": 3})``, passes settings with
    their names in Kafka. An unknown name fails the test.
    """
    from krammar.broker import Broker
    from krammar.broker.config import ConfigError

    marker = request.node.get_closest_marker("kafka_broker")
    properties = {} if marker is None else _properties(*marker.args, **marker.kwargs)
    try:
        broker = Broker.start(properties=properties)
    except ConfigError as error:
        pytest.fail(f"@pytest.mark.kafka_broker: {error}", pytrace=False)
    with broker:
        yield broker


def _properties(*given: Any, **settings: Any) -> dict[str, Any]:
    if len(given) > 1 or not all(isinstance(each, Mapping) for each in given):
        pytest.fail(
            "@pytest.mark.kafka_broker accepts one mapping of settings, such as "
            '{"num.partitions": 3}, and keywords with underscores for dots, such as num_partitions=3; '
            f"not {', '.join(map(repr, given))}",
            pytrace=False,
        )
    return {**(given[0] if given else {}), **settings}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafka_broker(properties, **settings): settings for the broker of the fixture kafka_broker, with "
        "their names in Kafka (num_partitions=3 is num.partitions)",
    )
