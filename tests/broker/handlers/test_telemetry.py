"""Client telemetry (KIP-714): subscriptions as settings, what clients are asked for, and their pushes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from kafka_wire import (
    ApiKey,
    ApiVersionsRequest,
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsRequest,
    ErrorCode,
    GetTelemetrySubscriptionsRequest,
    ListConfigResourcesRequest,
    PushTelemetryRequest,
)

from krammar.broker import Broker
from krammar.broker.client_metrics import Instances
from krammar.broker.handlers.telemetry import TelemetryHandlers
from krammar.util import extras
from krammar.wire.batches import Compression
from krammar.wire.batches.compression import compress
from tests.broker.requests import subscribe
from tests.broker.support import RawClient
from tests.support.waiting import until

KIND = ConfigResourceType.CLIENT_METRICS
NO_ID = UUID(int=0)
EVERY = 5 * 60 * 1000


def ask(client: RawClient, instance_id: UUID = NO_ID) -> Any:
    return client.call(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))


def push(client: RawClient, subscription: Any, data: bytes = b"x", **changes: Any) -> int:
    """Push what a response has asked for, and return the error code."""
    request = {
        "client_instance_id": subscription.client_instance_id,
        "subscription_id": subscription.subscription_id,
        "metrics": data,
    }
    code: int = client.call(PushTelemetryRequest(**{**request, **changes})).error_code
    return code


# Sets the broker's clock ahead, in milliseconds.
Clock = Callable[[int], None]


@pytest.fixture
def clock(broker: Broker) -> Clock:
    return broker.advance_clock


@pytest.fixture
def received(broker: Broker) -> list[bytes]:
    """What a receiver of the broker gets."""
    found: list[bytes] = []
    handlers = broker.call(broker.handlers.of, TelemetryHandlers)
    handlers.receivers.append(lambda session, request, data: found.append(data))
    return found


@pytest.mark.parametrize("on", [False, True])
def test_only_with_the_setting_clients_learn_of_it(on: bool) -> None:
    with (
        Broker.start(properties={"krammar.client.telemetry": on}) as broker,
        RawClient(broker.port) as client,
    ):
        asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        keys = {each.api_key for each in client.call(asked).api_keys}
        pair = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
        assert keys & pair == (pair if on else set())
        assert ask(client).error_code == 0


def test_without_subscriptions_nothing_is_wanted(client: RawClient) -> None:
    response = ask(client)
    assert response.error_code == 0
    assert response.client_instance_id.int > 1
    assert (response.requested_metrics, response.push_interval_ms) == ([], EVERY)
    assert response.accepted_compression_types == [4, 3, 1, 2]
    assert response.telemetry_max_bytes == 1 << 20
    assert response.delta_temporality
    other = ask(client)
    assert other.client_instance_id != response.client_instance_id
    assert other.subscription_id != response.subscription_id


def test_subscriptions_are_combined(client: RawClient) -> None:
    assert subscribe(client, "a", metrics="x.,y.", interval_ms="2000") == (0, None)
    assert subscribe(client, "b", metrics="y.,z.", interval_ms="1000") == (0, None)
    assert subscribe(client, "c", metrics="other.", match="client_id=other") == (0, None)
    response = ask(client)
    assert (response.requested_metrics, response.push_interval_ms) == (["x.", "y.", "z."], 1000)
    # A star stands for all.
    assert subscribe(client, "a", metrics="x.,*") == (0, None)
    assert ask(client).requested_metrics == ["*"]
    assert subscribe(client, "a", metrics=None, interval_ms=None) == (0, None)
    response = ask(client)
    assert (response.requested_metrics, response.push_interval_ms) == (["y.", "z."], 1000)


@pytest.mark.parametrize(
    ("match", "is_wanted"),
    [
        ("client_id=test", True),
        ("client_id = te.t ", True),
        ("client_id=tes", False),
        ("client_id=es", False),
        ("client_id=test==", True),
        ("client_software_name=lib-a,client_software_version=1\\.2\\..*", True),
        ("client_software_name=lib-a,client_software_version=1.3.*", False),
        ("client_source_address=127\\.0\\.0\\.1,client_source_port=[0-9]+", True),
        ("client_source_port=0", False),
        ("client_instance_id=[A-Za-z0-9_-]{22}", True),
        # The last one of a parameter wins.
        ("client_id=nobody,client_id=test", True),
    ],
)
def test_patterns(client: RawClient, match: str, is_wanted: bool) -> None:
    named = ApiVersionsRequest(client_software_name="lib-a", client_software_version="1.2.3")
    assert client.call(named).error_code == 0
    assert subscribe(client, "s", metrics="x.", match=match) == (0, None)
    assert ask(client).requested_metrics == (["x."] if is_wanted else [])


def test_clients_that_do_not_name_themselves(client: RawClient) -> None:
    assert subscribe(client, "a", metrics="x.", match="client_software_name=unknown") == (0, None)
    assert ask(client).requested_metrics == ["x."]
    assert client.call(ApiVersionsRequest(), 2).error_code == 0
    assert ask(client).requested_metrics == ["x."]


def test_a_client_without_an_id_matches_no_pattern_of_ids(broker: Broker) -> None:
    with RawClient(broker.port, client_id=None) as client:
        assert subscribe(client, "a", metrics="x.", match="client_id=.*") == (0, None)
        assert ask(client).requested_metrics == []


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        ({"speed": "1"}, 42, "Unknown client metrics configuration: speed"),
        (
            {"interval_ms": "99"},
            42,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            {"interval_ms": "3600001"},
            42,
            "Invalid value 3600001 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            {"interval_ms": "soon"},
            40,
            "Invalid value soon for configuration interval.ms: Not a number of type INT",
        ),
        ({"match": "client_id=a,"}, 40, "Configuration 'match' values must not be empty."),
        ({"match": "client_id"}, 40, "Illegal client matching pattern: client_id"),
        ({"match": "client_id="}, 40, "Illegal client matching pattern: client_id="),
        ({"match": "client_id=a=b"}, 40, "Illegal client matching pattern: client_id=a=b"),
        ({"match": "speed=a"}, 40, "Illegal client matching pattern: speed=a"),
        ({"match": "=a"}, 40, "Illegal client matching pattern: =a"),
        ({"match": "client_id=("}, 40, "Illegal client matching pattern: client_id=("),
    ],
)
def test_settings_that_are_refused(
    client: RawClient, settings: dict[str, str], code: int, message: str
) -> None:
    assert subscribe(client, "s", metrics="x.", **settings) == (code, message)
    assert subscribe(client, "", metrics="x.")[0] == ErrorCode.INVALID_REQUEST
    assert ask(client).requested_metrics == []


def test_patterns_without_re2(client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert subscribe(client, "s", metrics="x.", match="client_id=test") == (0, None)
    assert ask(client).requested_metrics == ["x."]
    code, message = subscribe(client, "s", match="client_id=t.*")
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None and "krammar[re2]" in message


def test_subscriptions_are_listed_and_described(client: RawClient) -> None:
    assert subscribe(client, "b", metrics="x.,y.") == (0, None)
    assert subscribe(client, "a", interval_ms="700") == (0, None)
    for version, request in (
        (0, ListConfigResourcesRequest()),
        (1, ListConfigResourcesRequest(resource_types=[KIND])),
    ):
        listed = client.call(request, version).config_resources
        assert [each.resource_name for each in listed] == ["a", "b"]
    kind = DescribeConfigsRequest
    resources = [
        kind.DescribeConfigsResource(resource_type=KIND, resource_name=each) for each in "ab"
    ]
    response = client.call(kind(resources=resources, include_synonyms=True))
    first, second = ({each.name: each for each in result.configs} for result in response.results)
    assert {name: each.value for name, each in first.items()} == {
        "interval.ms": "700",
        "match": "",
        "metrics": "",
    }
    assert second["metrics"].value == "x.,y."
    assert second["metrics"].config_source == ConfigSource.CLIENT_METRICS_CONFIG
    assert second["interval.ms"].config_source == ConfigSource.DEFAULT_CONFIG
    synonyms = {name: [it.source for it in each.synonyms] for name, each in first.items()}
    assert synonyms == {
        "interval.ms": [ConfigSource.CLIENT_METRICS_CONFIG],
        "match": [],
        "metrics": [],
    }


@pytest.mark.parametrize("codec", [None, *Compression])
def test_pushes(client: RawClient, received: list[bytes], codec: Compression | None) -> None:
    subscription = ask(client)
    data = b"metrics " * 100
    code = push(
        client,
        subscription,
        data if codec is None else compress(data, codec),
        compression_type=codec or 0,
    )
    assert code == 0
    assert received == [data]


def test_an_empty_push_has_nothing_to_receive(client: RawClient, received: list[bytes]) -> None:
    assert push(client, ask(client), b"") == 0
    assert received == []


def test_pushes_without_a_receiver(client: RawClient) -> None:
    assert push(client, ask(client)) == 0
    code = push(client, ask(client), b"no gzip", compression_type=Compression.GZIP)
    assert code == ErrorCode.INVALID_RECORD


def test_pushes_that_are_refused(client: RawClient, received: list[bytes], clock: Clock) -> None:
    subscription = ask(client)
    for data, changes, code in (
        (b"x", {"subscription_id": subscription.subscription_id ^ 1}, "UNKNOWN_SUBSCRIPTION_ID"),
        (b"x", {"compression_type": 9}, "UNSUPPORTED_COMPRESSION_TYPE"),
        (bytes((1 << 20) + 1), {}, "TELEMETRY_TOO_LARGE"),
        (compress(bytes((1 << 20) + 1), 1), {"compression_type": 1}, "INVALID_RECORD"),
        (b"no gzip", {"compression_type": 1}, "INVALID_RECORD"),
        (b"x", {"client_instance_id": NO_ID}, "INVALID_REQUEST"),
        (b"x", {"client_instance_id": UUID(int=1)}, "INVALID_REQUEST"),
    ):
        clock(EVERY)
        assert push(client, subscription, data, **changes) == ErrorCode[code]
    assert received == []
    clock(EVERY)
    assert push(client, subscription) == 0
    assert received == [b"x"]


def test_the_interval(client: RawClient, clock: Clock) -> None:
    subscription = ask(client)
    instance = subscription.client_instance_id
    # The first push may come at once, because clients vary the interval.
    clock(1)
    assert push(client, subscription) == 0
    clock(EVERY - 10)
    for refused in (push(client, subscription), ask(client, instance).error_code):
        assert refused == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    clock(10)
    assert push(client, subscription) == 0
    clock(EVERY)
    assert ask(client, instance).error_code == 0


def test_a_refused_client_asks_again_at_once(client: RawClient) -> None:
    subscription = ask(client)
    instance = subscription.client_instance_id
    assert subscribe(client, "s", metrics="x.") == (0, None)
    assert push(client, subscription) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = ask(client, instance)
    assert (again.error_code, again.requested_metrics) == (0, ["x."])
    assert again.subscription_id != subscription.subscription_id
    assert ask(client, instance).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_the_last_push(client: RawClient, received: list[bytes], clock: Clock) -> None:
    subscription = ask(client)
    clock(1)
    assert push(client, subscription) == 0
    assert push(client, subscription, b"last", terminating=True) == 0
    assert received == [b"x", b"last"]
    clock(EVERY)
    assert push(client, subscription) == ErrorCode.INVALID_REQUEST


def test_a_client_of_another_node_continues(client: RawClient) -> None:
    """The node does not know it, but its id and the subscriptions result in the same subscription id."""
    subscription = ask(client)
    with Broker.start() as other, RawClient(other.port) as there:
        assert push(there, subscription) == 0


def known(broker: Broker) -> Callable[[UUID], bool]:
    instances = broker.call(broker.handlers.of, TelemetryHandlers).instances
    return lambda instance: broker.call(instances.__contains__, instance)


def test_clients_are_known_until_they_disconnect(broker: Broker) -> None:
    knows = known(broker)
    with RawClient(broker.port) as client:
        first, second = (ask(client).client_instance_id for _ in range(2))
        assert knows(first) and knows(second)
        with RawClient(broker.port) as other:
            third = ask(other).client_instance_id
    # As in Kafka, the end of a connection is the end of the client that came last on it.
    until(lambda: not knows(second) and not knows(third))
    assert knows(first)


def test_a_silent_client_is_forgotten(client: RawClient, clock: Clock) -> None:
    assert subscribe(client, "s", metrics="x.", interval_ms="100") == (0, None)
    subscription = ask(client)
    clock(1)
    assert push(client, subscription, terminating=True) == 0
    clock(59_000)
    assert push(client, subscription) == ErrorCode.INVALID_REQUEST
    clock(1)
    assert push(client, subscription, terminating=True) == 0
    clock(60_000)
    assert push(client, subscription) == 0


def test_a_node_knows_a_limited_number(
    client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Instances, "most", 3)
    knows = known(broker)
    found = [ask(client).client_instance_id for _ in range(5)]
    assert [knows(each) for each in found] == [False, False, True, True, True]
