"""Quotas: our broker answers DescribeClientQuotas and AlterClientQuotas as Apache Kafka does, and throttles as much."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import kafka_wire as kw
import pytest
from kafka_wire import QuotaMatchType

from tests.broker.quotas.support import alter, answer, describe
from tests.broker.requests import batch, produce_request
from tests.broker.support import RawClient
from tests.interop.processes import Server
from tests.support.waiting import PATIENCE

EXACT, DEFAULT, SPECIFIED = QuotaMatchType.EXACT, QuotaMatchType.DEFAULT, QuotaMatchType.SPECIFIED
Entity = dict[str, str | None]

# Entities, and the values that they get.
CHANGES: list[tuple[Entity, dict[str, float | None]]] = [
    ({"user": "alice"}, {"producer_byte_rate": 1000}),
    ({"user": "alice"}, {"consumer_byte_rate": 2000, "request_percentage": 12.5}),
    ({"user": "alice"}, {"producer_byte_rate": None, "controller_mutation_rate": 0.5}),
    ({"user": "nobody"}, {"producer_byte_rate": None}),
    ({"user": None}, {"producer_byte_rate": 3000}),
    ({"user": "alice", "client-id": "app"}, {"producer_byte_rate": 4000}),
    ({"user": "alice", "client-id": None}, {"producer_byte_rate": 5000}),
    ({"user": None, "client-id": None}, {"producer_byte_rate": 6000}),
    ({"client-id": "app"}, {"producer_byte_rate": 7000.0000001}),
    ({"client-id": "äpp/ü"}, {"producer_byte_rate": 7000}),
    ({"ip": "192.0.2.1"}, {"connection_creation_rate": 8}),
    ({"ip": "2001:db8::1"}, {"connection_creation_rate": 8}),
    ({"ip": None}, {"connection_creation_rate": 1000}),
    # Refused.
    ({}, {"producer_byte_rate": 1}),
    ({"host": "a"}, {"producer_byte_rate": 1}),
    ({"user": ""}, {"producer_byte_rate": 1}),
    ({"ip": "192.0.2.1", "user": "a"}, {"producer_byte_rate": 1}),
    ({"ip": "nobody.invalid"}, {"connection_creation_rate": 1}),
    ({"user": "a"}, {"speed": 1}),
    ({"user": "a"}, {"speed": None}),
    ({"user": "a"}, {"connection_creation_rate": 1}),
    ({"ip": None}, {"producer_byte_rate": 1}),
    ({"user": "a"}, {"request_percentage": math.inf}),
    ({"user": "a"}, {"producer_byte_rate": math.nan}),
    ({"user": "a"}, {"producer_byte_rate": 0.0}),
    ({"user": "a"}, {"producer_byte_rate": -1}),
    ({"user": "a"}, {"producer_byte_rate": 1.5}),
    ({"user": "a"}, {"producer_byte_rate": 1e19}),
    ({"ip": None}, {"connection_creation_rate": 2.0**31}),
    ({"ip": None}, {"connection_creation_rate": 0.5}),
]
FILTERS: list[tuple[tuple[tuple[str, int, str | None], ...], bool]] = [
    *(((), strict) for strict in (False, True)),
    *(((("user", EXACT, "alice"),), strict) for strict in (False, True)),
    *(((("user", DEFAULT, None),), strict) for strict in (False, True)),
    *(((("user", SPECIFIED, None),), strict) for strict in (False, True)),
    *(((("client-id", SPECIFIED, None),), strict) for strict in (False, True)),
    ((("user", SPECIFIED, None), ("client-id", DEFAULT, None)), True),
    ((("user", EXACT, "alice"), ("client-id", EXACT, "app")), True),
    ((("ip", EXACT, "192.0.2.1"),), False),
    ((("ip", SPECIFIED, None),), True),
    ((("user", EXACT, "stranger"),), False),
    # Refused.
    ((("", EXACT, "a"),), False),
    ((("user", EXACT, "a"), ("user", DEFAULT, None)), False),
    ((("host", EXACT, "a"),), False),
    ((("user", EXACT, None),), False),
    ((("user", DEFAULT, "a"),), False),
    ((("user", SPECIFIED, "a"),), False),
    ((("user", 7, None),), False),
    ((("ip", SPECIFIED, None), ("user", SPECIFIED, None)), False),
]


@pytest.fixture(scope="module")
def clients(brokers: list[Server]) -> Iterator[list[RawClient]]:
    """A client of our broker, and one of Apache Kafka, after all changes."""
    ours, theirs = (RawClient(each.port) for each in brokers)
    with ours, theirs:
        yield [ours, theirs]


def _results(client: RawClient) -> list[Any]:
    found = []
    for entity, values in CHANGES:
        for version in (0, 1):
            result = alter(client, entity, values, version=version, validate_only=version == 0)
            named = {part.entity_type: part.entity_name for part in result.entity}
            found.append((entity, values, result.error_code, result.error_message, named))
    return found


def _plain(response: Any) -> Any:
    entries = response.entries
    if entries is not None:
        entries = [
            (
                sorted(((part.entity_type, part.entity_name) for part in each.entity), key=repr),
                sorted((value.key, value.value) for value in each.values),
            )
            for each in entries
        ]
        entries.sort(key=repr)
    return response.error_code, response.error_message, repr(entries)


def _wait(client: RawClient, count: int) -> None:
    """Wait until a broker describes so many entities: Kafka's learn of changes later."""
    until = time.monotonic() + PATIENCE
    while len(describe(client)) != count:
        assert time.monotonic() < until, describe(client)
        time.sleep(0.05)


def test_the_same_answers(clients: list[RawClient]) -> None:
    ours, theirs = map(_results, clients)
    for mine, kafkas in zip(ours, theirs, strict=True):
        # Kafka lacks a space in one text.
        said = str(kafkas[3]).replace("shouldnot", "should not")
        assert (*mine[:3], str(mine[3]), mine[4]) == (*kafkas[:3], said, kafkas[4])
    count = len(describe(clients[0]))
    _wait(clients[1], count)
    for components, strict in FILTERS:
        mine, kafkas = (_plain(answer(each, *components, strict=strict)) for each in clients)
        assert mine == kafkas, components


def test_the_same_throttle_time(clients: list[RawClient], brokers: list[Server]) -> None:
    times = []
    for admin, server in zip(clients, brokers, strict=True):
        entity: Entity = {"user": "ANONYMOUS", "client-id": "slow"}
        before = len(describe(admin))
        assert alter(admin, entity, {"producer_byte_rate": 1000}).error_code == 0
        _wait(admin, before + 1)
        topic = kw.CreateTopicsRequest.CreatableTopic(
            name="slow", num_partitions=1, replication_factor=1
        )
        assert admin.call(kw.CreateTopicsRequest(topics=[topic])).topics[0].error_code == 0
        with RawClient(server.port, client_id="slow") as client:
            until = time.monotonic() + PATIENCE
            while True:
                response = client.call(produce_request("slow", batch(bytes(15_000))), 12)
                if not response.responses[0].partition_responses[0].error_code:
                    break
                assert time.monotonic() < until, response
        times.append(response.throttle_time_ms)
    # 15,000 bytes and the rest of the request, of which 10,000 are free.
    assert times[0] == pytest.approx(times[1], rel=0.05)
    assert times[0] > 5_000


def test_the_same_refusal_of_partitions(clients: list[RawClient], brokers: list[Server]) -> None:
    found = []
    for admin, server in zip(clients, brokers, strict=True):
        entity: Entity = {"user": "ANONYMOUS", "client-id": "maker"}
        before = len(describe(admin))
        assert alter(admin, entity, {"controller_mutation_rate": 1}).error_code == 0
        _wait(admin, before + 1)
        answers = []
        with RawClient(server.port, client_id="maker") as client:
            for name, count in (("many", 20), ("more", 1)):
                topic = kw.CreateTopicsRequest.CreatableTopic(
                    name=name, num_partitions=count, replication_factor=1
                )
                response = client.call(kw.CreateTopicsRequest(topics=[topic]))
                (result,) = response.topics
                answers.append((result.error_code, result.error_message))
        assert 0 < response.throttle_time_ms <= 9_000
        found.append(answers)
    assert found[0] == found[1]
