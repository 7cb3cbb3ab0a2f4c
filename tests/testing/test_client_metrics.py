"""Clients' metrics in the test kit: real clients push them, and tests read them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer

from krammar.broker import ConfigError
from krammar.testing import ClientMetric, ClientMetricsPush, KafkaBroker, KafkaCluster
from krammar.testing.client_metrics import Pushes
from krammar.testing.options import read_options
from tests.broker.requests import subscribe
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE

CREATED = "org.apache.kafka.producer.connection.creation.total"


def push_from(broker: KafkaBroker | KafkaCluster, client_id: str = "app") -> None:
    """Run a producer until it has pushed metrics."""
    before = len(broker.client_metrics)
    settings = {**broker.clients.confluent_kafka, "client.id": client_id, "log_level": 0}
    producer = Producer(settings)
    producer.produce("orders", b"one")
    assert producer.flush(PATIENCE) == 0
    broker.wait_until(lambda: broker.client_metrics[before:])


@pytest.mark.parametrize("process", [False, True])
def test_a_producer_pushes(process: bool) -> None:
    with KafkaBroker.start(client_metrics=True, process=process) as broker:
        settings = {**broker.clients.confluent_kafka, "client.id": "app", "log_level": 0}
        producer = Producer(settings)
        producer.produce("orders", b"one")
        assert producer.flush(PATIENCE) == 0
        broker.wait_until(lambda: len(broker.client_metrics) >= 2)
        del producer
        first, second, *_ = broker.client_metrics
        assert (first.client_id, first.is_last) == ("app", False)
        assert first.software_name == "confluent-kafka-python"
        assert first.client_instance_id == second.client_instance_id
        assert first.time_ms < second.time_ms
        found = {each.name: each for each in first.metrics}
        assert (found[CREATED].kind, found[CREATED].labels) == ("sum", {})
        latency = found["org.apache.kafka.producer.node.request.latency.avg"]
        assert (latency.kind, latency.labels) == ("gauge", {"node.id": "1"})
        broker.wait_until(lambda: broker.client_metrics[-1].is_last)


def test_a_consumer_of_a_match_pushes() -> None:
    asked = {"metrics": ["org.apache.kafka.consumer."], "match": {"client_id": "billing"}}
    with KafkaBroker.start(client_metrics=asked, topics=["orders"]) as broker:
        settings = {**broker.clients.confluent_kafka, "group.id": "billing", "log_level": 0}
        consumers = [Consumer({**settings, "client.id": name}) for name in ("billing", "other")]
        for each in consumers:
            each.subscribe(["orders"])
        broker.wait_until(lambda: [each.poll(0.05) for each in consumers] and broker.client_metrics)
        for each in consumers:
            each.close()
        pushes = broker.client_metrics
        assert {each.client_id for each in pushes} == {"billing"}
        names = {each.name for push in pushes for each in push.metrics}
        assert names
        assert all(name.startswith("org.apache.kafka.consumer.") for name in names)


def test_other_subscriptions() -> None:
    with KafkaBroker.start({"krammar.client.telemetry": True}) as broker:
        with RawClient(broker.port) as client:
            subscribe(client, "mine", metrics=CREATED, interval_ms="100")
        push_from(broker)
        assert [each.name for each in broker.client_metrics[0].metrics] == [CREATED]


def test_metrics_of_all_nodes_survive_a_restart() -> None:
    with KafkaCluster.start(nodes=2, client_metrics=True) as cluster:
        for client_id in ("first", "second"):
            push_from(cluster, client_id)
            cluster.restart()
        names = [each.client_id for each in cluster.client_metrics]
        assert names == sorted(names)
        assert {*names} == {"first", "second"}


def test_without_the_keyword_no_client_pushes() -> None:
    with KafkaBroker.start() as broker:
        producer = Producer(broker.clients.confluent_kafka)
        producer.produce("orders", b"one")
        assert producer.flush(PATIENCE) == 0
        assert broker.client_metrics == []
        assert not [line for line in broker.requests() if "Telemetry" in line]


def test_reset_empties_and_subscribes_again() -> None:
    with KafkaBroker.start(client_metrics={"interval_ms": 200}) as broker:
        for _ in range(2):
            assert broker.client_metrics == []
            push_from(broker)
            broker.reset()


def test_the_settings_of_the_keyword() -> None:
    def settings(asked: Any) -> Any:
        return read_options(client_metrics=asked).client_metrics

    assert settings(False) is None
    assert settings(True) == settings({}) == {"metrics": "*", "interval.ms": "100"}
    asked = {"interval_ms": 500, "metrics": ["a.", "b."], "match": {"client_id": "x"}}
    assert settings(asked) == {"metrics": "a.,b.", "interval.ms": "500", "match": "client_id=x"}


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ("*", "client_metrics: '*' is neither True nor the settings of a subscription"),
        ({"speed": 1}, "client_metrics: Unknown client metrics configuration: speed"),
        ({"interval_ms": 1}, "interval must be between 100 and 3600000"),
        ({"match": {"speed": 1}}, "Illegal client matching pattern: speed=1"),
    ],
)
def test_errors_of_the_keyword(asked: Any, error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        KafkaBroker.start(client_metrics=asked)
    assert error in str(raised.value)


# OpenTelemetry's form.


def _field(number: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    assert len(data) < 1 << 14
    return bytes((number << 3 | 2, len(data) & 127 | 128, len(data) >> 7)) + data


def _push(data: bytes) -> ClientMetricsPush:
    return ClientMetricsPush("app", UUID(int=7), "lib", "1", 5, False, data)


def _metrics_data(*metrics: bytes, attributes: bytes = b"") -> bytes:
    scope = b"".join(_field(2, each) for each in metrics)
    return _field(1, _field(1, attributes) + _field(2, scope))


def _attribute(number: int, name: str, value: bytes) -> bytes:
    return _field(number, _field(1, name) + _field(2, value))


def test_the_values_of_all_forms() -> None:
    time = b"\x19" + (9).to_bytes(8, "little")
    whole = b"\x31" + (-5).to_bytes(8, "little", signed=True)
    half = b"\x21" + bytes.fromhex("000000000000e03f")
    labels = _attribute(7, "a", _field(1, "é")) + _attribute(7, "b", b"\x10\x01")
    gauge = _field(1, "g") + _field(5, _field(1, half + time + labels))
    total = _field(1, "s") + _field(7, _field(1, whole) + _field(1, half) + b"\x10\x01")
    histogram = _field(1, "h") + _field(9, _field(1, half))
    more = b"".join(
        (
            _attribute(1, "double", b"\x21" + bytes.fromhex("000000000000e03f")),
            _attribute(1, "int", b"\x18" + b"\xff" * 9 + b"\x01"),
            _attribute(1, "off", b"\x10\x00"),
        )
    )
    push = _push(_metrics_data(gauge, total, histogram, attributes=more))
    assert push.metrics == [
        ClientMetric("g", "gauge", 0.5, {"a": "é", "b": "true"}, 9),
        ClientMetric("s", "sum", -5),
        ClientMetric("s", "sum", 0.5),
    ]
    assert push.labels == {"double": "0.5", "int": "-1", "off": "false"}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\xff", "a number is cut off at byte 1"),
        (b"\xff" * 11, "a number is cut off at byte 10"),
        (b"\x0a\x05x", "field 1 is cut off"),
        (b"\x09\x01", "field 1 is cut off"),
        (b"\x0b", "field 1 has the form 3"),
        (_metrics_data(_field(1, b"\xff") + _field(5, _field(1, b""))), "a name is not UTF-8"),
    ],
)
def test_pushes_that_are_no_metrics(data: bytes, error: str) -> None:
    with pytest.raises(ValueError, match=f"the push is no MetricsData: {error}"):
        print(_push(data).metrics)


def test_the_oldest_pushes_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pushes, "most_bytes", 10)
    pushes = Pushes()
    for size in (4, 4, 5, 1):
        pushes.add(_push(bytes(size)))
    assert [len(each.data) for each in pushes.all()] == [4, 5, 1]
    pushes.add(_push(bytes(11)))
    assert pushes.all() == []
