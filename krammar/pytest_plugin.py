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
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from krammar.faults import Faults
    from krammar.testing import KafkaBroker, KafkaCluster

B = TypeVar("B", "KafkaBroker", "KafkaCluster")

# The brokers that run, by the names of their fixtures, and when the setup of a test began, in nanoseconds since 1970.
_RUNNING = pytest.StashKey[dict[str, Any]]()
_BEGIN = pytest.StashKey[int]()

_NO_FAILURES = (pytest.skip.Exception, pytest.xfail.Exception)

# The fixtures that kafka_topic and kafka_faults look for in a test; the first one wins.
_BROKERS = (
    "kafka_broker",
    "kafka_cluster",
    "module_kafka_broker",
    "module_kafka_cluster",
    "session_kafka_broker",
    "session_kafka_cluster",
)


@pytest.fixture(scope="session")
def kafka_broker_settings() -> Mapping[str, Any]:
    """Keywords for all brokers and clusters, as in the marks. Override it in ``conftest.py``.

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
    yield from _broker(request, kafka_broker_settings)


@pytest.fixture(scope="module")
def module_kafka_broker(
    request: pytest.FixtureRequest, kafka_broker_settings: Mapping[str, Any]
) -> Iterator[KafkaBroker]:
    """A ``krammar.testing.KafkaBroker`` that the tests of a module share. ``pytestmark`` has its keywords.

    Nothing is deleted between tests: use ``kafka_topic`` or ``kafka_prefix`` for new names, or
    ``module_kafka_broker.reset()``.
    """
    yield from _broker(request, kafka_broker_settings)


@pytest.fixture(scope="session")
def session_kafka_broker(
    request: pytest.FixtureRequest, kafka_broker_settings: Mapping[str, Any]
) -> Iterator[KafkaBroker]:
    """A ``krammar.testing.KafkaBroker`` that all tests share, one for each worker of pytest-xdist.

    The fixture ``kafka_broker_settings`` has its keywords; marks do not apply. Nothing is deleted between
    tests: use ``kafka_topic`` or ``kafka_prefix`` for new names, or ``session_kafka_broker.reset()``.
    """
    yield from _broker(request, kafka_broker_settings)


@pytest.fixture
def kafka_cluster(
    request: pytest.FixtureRequest, kafka_broker_settings: Mapping[str, Any]
) -> Iterator[KafkaCluster]:
    """An empty ``krammar.testing.KafkaCluster`` with three nodes on loopback, for one test.

    ``@pytest.mark.kafka_cluster(nodes=5, topics={"orders": 4})`` passes the keywords of ``KafkaCluster.start``.
    """
    yield from _cluster(request, kafka_broker_settings)


@pytest.fixture(scope="module")
def module_kafka_cluster(
    request: pytest.FixtureRequest, kafka_broker_settings: Mapping[str, Any]
) -> Iterator[KafkaCluster]:
    """A ``krammar.testing.KafkaCluster`` that the tests of a module share, as ``module_kafka_broker``."""
    yield from _cluster(request, kafka_broker_settings)


@pytest.fixture(scope="session")
def session_kafka_cluster(
    request: pytest.FixtureRequest, kafka_broker_settings: Mapping[str, Any]
) -> Iterator[KafkaCluster]:
    """A ``krammar.testing.KafkaCluster`` that all tests share, as ``session_kafka_broker``."""
    yield from _cluster(request, kafka_broker_settings)


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
    except AssertionError:
        _show_requests(request.node, "teardown")  # before the broker ends
        raise
    finally:
        faults.clear()


def _broker_of(request: pytest.FixtureRequest) -> KafkaBroker | KafkaCluster:
    name = next((name for name in _BROKERS if name in request.fixturenames), _BROKERS[0])
    broker: KafkaBroker | KafkaCluster = request.getfixturevalue(name)
    return broker


def _broker(request: pytest.FixtureRequest, settings: Mapping[str, Any]) -> Iterator[KafkaBroker]:
    from krammar.testing import KafkaBroker

    return _running(KafkaBroker.start, request, "kafka_broker", settings)


def _cluster(request: pytest.FixtureRequest, settings: Mapping[str, Any]) -> Iterator[KafkaCluster]:
    from krammar.testing import KafkaCluster

    return _running(KafkaCluster.start, request, "kafka_cluster", settings)


def _running(
    start: Callable[..., B], request: pytest.FixtureRequest, mark: str, settings: Mapping[str, Any]
) -> Iterator[B]:
    """Yield a broker, whose requests failing tests show."""
    with _started(start, request, mark, settings) as broker:
        running = request.config.stash.setdefault(_RUNNING, {})
        running[str(request.fixturename)] = broker
        try:
            yield broker
        finally:
            del running[str(request.fixturename)]


def _started(
    start: Callable[..., B], request: pytest.FixtureRequest, mark: str, settings: Mapping[str, Any]
) -> B:
    from krammar.broker import ConfigError
    from krammar.util.extras import MissingExtra

    given, keywords, where = _keywords(request, mark, settings)
    keywords.setdefault("process", request.config.getini("kafka_broker_process"))
    try:
        return start(given, **keywords)
    except (ConfigError, MissingExtra) as error:
        problem = f"{where}: {error}"
    # Outside of the block, or pytest would print the error twice.
    pytest.fail(problem, pytrace=False)


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


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.config.stash.get(_RUNNING, None):  # shared brokers, which have requests of other tests
        from krammar.util.clock import time_ns

        item.stash[_BEGIN] = time_ns()
    for mark in item.own_markers:
        if mark.name in ("kafka_broker", "kafka_cluster"):
            fixtures = getattr(item, "fixturenames", ())
            other = "kafka_cluster" if mark.name == "kafka_broker" else "kafka_broker"
            if _uses(other, fixtures) and not _uses(mark.name, fixtures):
                pytest.fail(
                    f"@pytest.mark.{mark.name} has no effect on the fixture {other}: use the mark {other}, or the "
                    f"fixture {mark.name}",
                    pytrace=False,
                )
            shared = [f"{scope}_{mark.name}" for scope in ("module", "session")]
            if mark.name not in fixtures and any(name in fixtures for name in shared):
                pytest.fail(
                    f"@pytest.mark.{mark.name} of a test has no effect on {' and '.join(shared)}, which other "
                    f"tests share: use the fixture {mark.name}, or set pytestmark for the module, or "
                    "override the fixture kafka_broker_settings",
                    pytrace=False,
                )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    error = None if call.excinfo is None else call.excinfo.value
    # At the teardown, the brokers of the test have ended.
    if call.when != "teardown" and error is not None and not isinstance(error, _NO_FAILURES):
        _show_requests(item, call.when)


def _show_requests(item: pytest.Item, when: str) -> None:
    """Add the requests that the brokers of a test got to its report."""
    for name, broker in item.config.stash.get(_RUNNING, {}).items():
        try:
            lines = broker.requests(since_ns=item.stash.get(_BEGIN, 0))
        except Exception as error:  # a broker that has ended, for example; the report matters more
            lines = [f"unknown: {error}"]
        if lines:
            item.add_report_section(when, f"requests of {name}", "\n".join(lines) + "\n")


def _uses(name: str, fixtures: Collection[str]) -> bool:
    """Whether a test uses a fixture, or one of another scope that its mark is for."""
    return any(f"{scope}{name}" in fixtures for scope in ("", "module_", "session_"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "kafka_broker_process",
        "whether the brokers of fixtures run in processes of their own",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    for name, keywords in (("broker", ""), ("cluster", "nodes, ")):
        config.addinivalue_line(
            "markers",
            f"kafka_{name}(settings, *, {keywords}topics, records, sasl, users, acls, tls, filters, process, "
            f"kafka_like_delays, kafka_version, client_metrics, **more): keywords of Kafka{name.title()}.start for the fixtures "
            f"kafka_{name} and module_kafka_{name}; settings have their names in Kafka (num_partitions=3 is num.partitions)",
        )
