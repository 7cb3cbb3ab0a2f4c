"""DescribeClientQuotas and AlterClientQuotas, over a socket."""

from __future__ import annotations

import math
from pathlib import Path

import kafka_wire as kw
import pytest
from kafka_wire import ErrorCode, QuotaMatchType

from krammar.broker import Broker
from krammar.broker.handlers import quotas
from tests.broker.quotas.support import alter, answer, describe, set_quotas
from tests.broker.support import RawClient

EXACT, DEFAULT, SPECIFIED = QuotaMatchType.EXACT, QuotaMatchType.DEFAULT, QuotaMatchType.SPECIFIED
ALICE = (("user", "alice"),)
ANYONE = (("user", None),)
BOTH = (("user", "alice"), ("client-id", "app"))
APP = (("client-id", "app"),)
HERE = (("ip", "127.0.0.1"),)


@pytest.fixture
def filled(client: RawClient) -> RawClient:
    """A client of a broker with quotas of five entities."""
    set_quotas(client, dict(ALICE), producer_byte_rate=1000, request_percentage=12.5)
    set_quotas(client, dict(ANYONE), consumer_byte_rate=2000)
    set_quotas(client, dict(BOTH), controller_mutation_rate=0.5)
    set_quotas(client, dict(APP), producer_byte_rate=3000)
    set_quotas(client, dict(HERE), connection_creation_rate=1000)
    return client


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ((), False, {ALICE, ANYONE, BOTH, APP, HERE}),
        ((), True, set()),
        ((("user", EXACT, "alice"),), False, {ALICE, BOTH}),
        ((("user", EXACT, "alice"),), True, {ALICE}),
        ((("user", DEFAULT, None),), False, {ANYONE}),
        ((("user", SPECIFIED, None),), True, {ALICE, ANYONE}),
        ((("user", SPECIFIED, None), ("client-id", SPECIFIED, None)), False, {BOTH}),
        ((("user", EXACT, "alice"), ("client-id", EXACT, "app")), True, {BOTH}),
        ((("client-id", SPECIFIED, None),), False, {BOTH, APP}),
        ((("ip", SPECIFIED, None),), False, {HERE}),
        ((("user", EXACT, "bob"),), False, set()),
    ],
)
def test_a_filter_selects_entities(
    filled: RawClient,
    components: tuple[tuple[str, int, str | None], ...],
    strict: bool,
    found: set[tuple[tuple[str, str | None], ...]],
) -> None:
    assert describe(filled, *components, strict=strict).keys() == found


def test_values_are_described(filled: RawClient) -> None:
    assert describe(filled, ("user", EXACT, "alice")) == {
        ALICE: {"producer_byte_rate": 1000, "request_percentage": 12.5},
        BOTH: {"controller_mutation_rate": 0.5},
    }


@pytest.mark.parametrize(
    ("components", "code", "text"),
    [
        ((("", EXACT, "a"),), ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        (
            (("user", EXACT, "a"), ("user", DEFAULT, None)),
            ErrorCode.INVALID_REQUEST,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ((("host", EXACT, "a"),), ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type host"),
        (
            (("user", EXACT, None),),
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            (("user", DEFAULT, "a"),),
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            (("user", SPECIFIED, "a"),),
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ((("user", 7, None),), ErrorCode.INVALID_REQUEST, "Unknown match type 7"),
        (
            (("ip", EXACT, "1.2.3.4"), ("user", EXACT, "a")),
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with"
            " user or clientId filter component.",
        ),
    ],
)
def test_invalid_filters_are_refused(
    filled: RawClient,
    components: tuple[tuple[str, int, str | None], ...],
    code: ErrorCode,
    text: str,
) -> None:
    response = answer(filled, *components)
    assert (response.error_code, response.error_message) == (code, text)
    assert response.entries is None


@pytest.mark.parametrize(
    ("entity", "values", "text"),
    [
        ({}, {}, "Invalid empty client quota entity"),
        ({"host": "a"}, {}, "Unhandled client quota entity type: host"),
        ({"user": ""}, {}, "Empty user not supported"),
        ({"ip": "1.2.3.4", "user": "a"}, {}, "IP entity should not be combined with User"),
        ({"ip": "nobody.example"}, {}, "nobody.example is not a valid IP or resolvable host."),
        ({"user": "a"}, {"speed": 1}, "Invalid configuration key speed"),
        ({"user": "a"}, {"connection_creation_rate": 1}, "Invalid configuration key connection"),
        ({"ip": None}, {"producer_byte_rate": 1}, "Invalid configuration key producer_byte_rate"),
        ({"user": "a"}, {"producer_byte_rate": math.nan}, "must be a finite number"),
        ({"user": "a"}, {"request_percentage": math.inf}, "must be a finite number"),
        ({"user": "a"}, {"request_percentage": 0.0}, "Quota request_percentage must be greater"),
        ({"user": "a"}, {"producer_byte_rate": -1}, "Quota producer_byte_rate must be greater"),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, "cannot be a fractional value."),
        ({"user": "a"}, {"producer_byte_rate": 1e19}, "too large for a LONG."),
        ({"ip": None}, {"connection_creation_rate": 2**31}, "too large for an INT."),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_invalid_quotas_are_refused(
    client: RawClient,
    entity: dict[str, str | None],
    values: dict[str, float | None],
    text: str,
    version: int,
) -> None:
    result = alter(client, entity, {**values}, version=version)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert text in result.error_message
    assert {part.entity_type: part.entity_name for part in result.entity} == entity
    assert describe(client) == {}


def test_quotas_change_one_by_one(client: RawClient, broker: Broker) -> None:
    set_quotas(client, dict(ALICE), producer_byte_rate=1000, consumer_byte_rate=2000)
    set_quotas(client, dict(ALICE), producer_byte_rate=None, request_percentage=50)
    assert describe(client) == {ALICE: {"consumer_byte_rate": 2000, "request_percentage": 50}}
    before = broker.call(lambda: broker.cluster.last_offset)
    set_quotas(client, dict(ALICE), request_percentage=50, producer_byte_rate=None)
    assert broker.call(lambda: broker.cluster.last_offset) == before
    set_quotas(client, dict(ALICE), consumer_byte_rate=None, request_percentage=None)
    assert describe(client) == {}


def test_validation_changes_nothing(client: RawClient) -> None:
    result = alter(client, dict(ALICE), {"producer_byte_rate": 1000}, validate_only=True)
    assert result.error_code == ErrorCode.NONE
    assert describe(client) == {}


def test_each_entity_has_its_own_result(client: RawClient) -> None:
    kind = kw.AlterClientQuotasRequest

    def entry(name: str, *values: tuple[str, float]) -> kw.AlterClientQuotasRequest.EntryData:
        return kind.EntryData(
            entity=[kind.EntityData(entity_type="user", entity_name=name)],
            ops=[kind.OpData(key=key, value=value) for key, value in values],
        )

    request = kind(
        entries=[
            entry("alice", ("producer_byte_rate", 1)),
            entry("bob", ("producer_byte_rate", 1), ("consumer_byte_rate", -1)),
            entry("carol", ("producer_byte_rate", 1), ("producer_byte_rate", 2)),
            entry("dave", ("producer_byte_rate", 1)),
            entry("dave", ("consumer_byte_rate", 1)),
        ]
    )
    results = {
        each.entity[0].entity_name: (each.error_code, each.error_message)
        for each in client.call(request).entries
    }
    refused = ErrorCode.INVALID_REQUEST
    assert results == {
        "alice": (ErrorCode.NONE, None),
        "bob": (refused, "Quota consumer_byte_rate must be greater than 0"),
        "carol": (refused, "Ignoring duplicate entity {user=carol}"),
        "dave": (refused, "Ignoring duplicate entity {user=dave}"),
    }
    assert describe(client) == {
        ALICE: {"producer_byte_rate": 1},
        (("user", "dave"),): {"producer_byte_rate": 1},
    }


def test_too_many_changes_are_refused_together(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "MOST_RECORDS", 150)
    kind = kw.AlterClientQuotasRequest

    def request(count: int) -> kw.AlterClientQuotasRequest:
        return kind(
            entries=[
                kind.EntryData(
                    entity=[kind.EntityData(entity_type="client-id", entity_name=f"c{number}")],
                    ops=[kind.OpData(key="producer_byte_rate", value=1)],
                )
                for number in range(count)
            ]
        )

    refused = client.call(request(151)).entries
    assert {each.error_code for each in refused} == {ErrorCode.POLICY_VIOLATION}
    assert len(refused) == 151
    assert describe(client) == {}
    assert {each.error_code for each in client.call(request(150)).entries} == {ErrorCode.NONE}
    assert len(describe(client)) == 150


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        set_quotas(client, dict(BOTH), producer_byte_rate=1000)
        set_quotas(client, dict(HERE), connection_creation_rate=1000)
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        broker.call(broker.cluster._snapshot)
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert describe(client) == {
            BOTH: {"producer_byte_rate": 1000},
            HERE: {"connection_creation_rate": 1000},
        }
