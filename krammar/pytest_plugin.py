"""A pytest plugin: a Kafka-compatible broker in the test process, as fixtures.

pytest finds it by the entry point ``pytest11``. It imports krammar when a test uses a fixture:

```python
def test_orders(kafka_broker):
    send_orders(kafka_broker.bootstrap_servers)
    assert [record.value for record in kafka_broker.records("orders")] == [b"one"]
```

docs/fixtures.md describes the fixtures and the marks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from krammar.faults import Faults
    from krammar.testing import KafkaBroker

_BROKER_MARK = "kafka_broker"
# The fixtures that kafka_topic and kafka_faults look for in a test, the first one wins.
_BROKERS = ("kafka_broker", "module_kafka_broker", "session_kafka_broker")


@pytest.fixture(scope="session")
def kafka_broker_settings() -> Mapping[str, Any]:
    """Keywords for all brokers, as in the mark ``kafka_broker``. Override it in ``conftest.py``.

    Keywords of a mark take precedence.
    """
    return {}


@pytest.fixture
def kafka_broker(
    request: pytest.FixtureRequest, kafka_broker_settings: Mapping[str, Any]
) -> Iterator[KafkaBroker]:
    """An empty ``krammar.testing.KafkaBroker`` on a free port of the loopback address, for one test.

    ``@pytest.mark.kafka_broker(num_partitions=3, topics={"orders": 4}, sasl="scram", tls=True)`` passes the
    keywords of ``KafkaBroker.start``. An unknown keyword fails the test.
    """
    with _start(request, kafka_broker_settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def module_kafka_broker(
    request: pytest.FixtureRequest, kafka_broker_settings: Mapping[str, Any]
) -> Iterator[KafkaBroker]:
    """A ``krammar.testing.KafkaBroker`` that the tests of a module share. ``pytestmark`` has its keywords.

    Nothing is deleted between tests: use ``kafka_topic`` or ``kafka_prefix`` for new names, or
    ``module_kafka_broker.reset()``.
    """
    with _start(request, kafka_broker_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def session_kafka_broker(
    request: pytest.FixtureRequest, kafka_broker_settings: Mapping[str, Any]
) -> Iterator[KafkaBroker]:
    """A ``krammar.testing.KafkaBroker`` that all tests share, one for each worker of pytest-xdist.

    The fixture ``kafka_broker_settings`` has its keywords; marks do not apply. Nothing is deleted between
    tests: use ``kafka_topic`` or ``kafka_prefix`` for new names, or ``session_kafka_broker.reset()``.
    """
    with _start(request, kafka_broker_settings) as broker:
        yield broker


@pytest.fixture
def kafka_prefix(request: pytest.FixtureRequest) -> str:
    """A prefix that no other test has, such as ``test_orders-3f0a91c2-``, for topics, groups and ids."""
    name = re.sub(r"[^a-zA-Z0-9_]+", "_", request.node.name)[:100]
    return f"{name}-{os.urandom(4).hex()}-"


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_prefix: str) -> str:
    """The name of a new topic in the broker of the test, with ``num.partitions`` partitions."""
    return _broker_of(request).create_topic(kafka_prefix.rstrip("-"))


@pytest.fixture
def kafka_faults(request: pytest.FixtureRequest) -> Iterator[Faults]:
    """The rules of faults of the broker of the test; see docs/faults.md.

    A test that passes fails afterwards if one of its rules has never fired. The rules end with the test.
    """
    faults = _broker_of(request).faults
    failed = request.session.testsfailed
    yield faults
    try:
        # If the test failed already, a fault that has not fired is no news.
        if request.session.testsfailed == failed:
            faults.expect()
    finally:
        faults.clear()


def _broker_of(request: pytest.FixtureRequest) -> KafkaBroker:
    name = next((name for name in _BROKERS if name in request.fixturenames), _BROKERS[0])
    broker: KafkaBroker = request.getfixturevalue(name)
    return broker


def _start(request: pytest.FixtureRequest, settings: Mapping[str, Any]) -> KafkaBroker:
    from krammar.broker import ConfigError
    from krammar.testing import KafkaBroker
    from krammar.util.extras import MissingExtra

    given, keywords, where = _keywords(request, _BROKER_MARK, settings)
    try:
        return KafkaBroker.start(given, **keywords)
    except (ConfigError, MissingExtra) as error:
        pytest.fail(f"{where}: {error}", pytrace=False)


def _keywords(
    request: pytest.FixtureRequest, mark: str, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return Kafka's settings, the other keywords, and what an error should name.

    The closest mark takes precedence over the fixture ``kafka_broker_settings``.
    """
    from krammar.testing.options import KEYWORDS

    others = {name: value for name, value in settings.items() if name not in KEYWORDS}
    keywords = {name: value for name, value in settings.items() if name in KEYWORDS}
    marker = request.node.get_closest_marker(mark)
    if marker is None:
        return others, keywords, "the fixture kafka_broker_settings"
    given = marker.args
    if len(given) > 1 or not all(isinstance(each, Mapping) for each in given):
        pytest.fail(
            f"@pytest.mark.{mark} accepts one mapping of settings, such as "
            '{"num.partitions": 3}, and keywords with underscores for dots, such as num_partitions=3; '
            f"not {', '.join(map(repr, given))}",
            pytrace=False,
        )
    return {**others, **dict(*given)}, {**keywords, **marker.kwargs}, f"@pytest.mark.{mark}"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafka_broker(settings, *, topics, sasl, users, tls, **more): keywords of KafkaBroker.start for the "
        "fixtures kafka_broker and module_kafka_broker; settings have their names in Kafka "
        "(num_partitions=3 is num.partitions)",
    )
