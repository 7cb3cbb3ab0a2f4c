"""Quotas are enforced over sockets, on the broker's clock: throttle times, muted connections, and what is not served."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import kafka_wire as kw
import pytest
from kafka_wire import ClientQuotaRecord, ErrorCode

from krammar.broker import Broker
from krammar.broker.dispatch import Handlers
from krammar.broker.handlers.fetch import FetchHandlers
from krammar.broker.quotas.enforcement import NodeQuotas
from krammar.testing.certificates import make_certificates
from tests.broker.quotas.support import set_quotas
from tests.broker.requests import batch, create_topic, fetch_request, produce_request
from tests.broker.support import RawClient
from tests.broker.test_admission import connected, is_closed
from tests.support.waiting import PATIENCE, until

ANONYMOUS: dict[str, str | None] = {"user": "ANONYMOUS"}
APP: dict[str, str | None] = {"client-id": "app"}


@pytest.fixture
def app(broker: Broker, client: RawClient) -> Iterator[RawClient]:
    """A client that quotas limit by its id. The topic ``t`` exists."""
    create_topic(client, "t")
    with RawClient(broker.port, client_id="app") as app:
        yield app


def muted(broker: Broker) -> int:
    """How many connections wait until they are throttled no longer."""

    def count() -> int:
        return sum(each._later is not None for each in broker.connections.open)

    return broker.call(count)


def produced(client: RawClient, size: int, *, topic: str = "t") -> int:
    """Produce so many bytes, and return the throttle time."""
    response = client.call(produce_request(topic, batch(bytes(size))), 12)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return int(response.throttle_time_ms)


def test_without_quotas_nothing_is_measured(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t")
    produced(client, 10)

    def guards(handlers: Handlers) -> int:
        return len(handlers._guards)

    assert broker.call(guards, broker.handlers) == 0
    set_quotas(client, APP, producer_byte_rate=10**6)
    set_quotas(client, ANONYMOUS, producer_byte_rate=10**6)
    assert broker.call(guards, broker.handlers) == 1
    set_quotas(client, APP, producer_byte_rate=None)
    assert broker.call(guards, broker.handlers) == 1
    set_quotas(client, ANONYMOUS, producer_byte_rate=None)
    assert broker.call(guards, broker.handlers) == 0
    assert produced(client, 10**6) == 0


def test_a_producer_is_throttled_and_its_connection_is_muted(
    broker: Broker, client: RawClient, app: RawClient
) -> None:
    set_quotas(client, APP, producer_byte_rate=1000)
    assert produced(app, 5_000) == 0
    wait = produced(app, 20_000)
    # 25,000 bytes and the rest of two requests, of which 10,000 are free.
    assert 15_000 <= wait < 15_500
    app.send(produce_request("t", batch(b"x")), 12)
    assert muted(broker) == 1
    # Others are not throttled.
    assert produced(client, 20_000) == 0
    broker.advance_clock(wait // 2)
    assert muted(broker) == 1
    broker.advance_clock(wait)
    assert app.receive().throttle_time_ms == 0
    assert muted(broker) == 0


def test_produce_without_acknowledgement_is_muted(
    broker: Broker, client: RawClient, app: RawClient
) -> None:
    set_quotas(client, APP, producer_byte_rate=1000)
    request = produce_request("t", batch(bytes(50_000)))
    request.acks = 0
    app.send(request, 12, expect_response=False)
    app.send(kw.ApiVersionsRequest(), 2)
    until(lambda: muted(broker) == 1)
    broker.advance_clock(60_000)
    assert app.receive().error_code == ErrorCode.NONE


def test_a_consumer_gets_an_empty_response(
    broker: Broker, client: RawClient, app: RawClient
) -> None:
    produced(client, 8_000)
    produced(client, 8_000)
    set_quotas(client, APP, consumer_byte_rate=1000)
    # As much as all full windows allow: one batch, and a part of the next.
    first = app.call(fetch_request([("t", 0, 0)]), 12)
    assert first.throttle_time_ms == 0
    assert len(first.responses[0].partitions[0].records) == 10_000
    second = app.call(fetch_request([("t", 0, 1)]), 12)
    assert second.throttle_time_ms > 5_000
    assert (second.responses, second.session_id) == ([], 0)
    app.send(fetch_request([("t", 0, 1)]), 12)
    assert muted(broker) == 1
    broker.advance_clock(11_000)
    third = app.receive()
    assert third.throttle_time_ms == 0
    assert len(third.responses[0].partitions[0].records) > 8_000


def test_a_throttled_fetch_session_loses_no_news(
    broker: Broker, client: RawClient, app: RawClient
) -> None:
    set_quotas(client, APP, consumer_byte_rate=1000)
    produced(client, 9_000)

    def asked(session_id: int, epoch: int, offset: int) -> kw.FetchRequest:
        request = fetch_request([("t", 0, offset)])
        request.session_id, request.session_epoch = session_id, epoch
        return request

    first = app.call(asked(0, 0, 0), 12)
    assert first.session_id and first.throttle_time_ms == 0
    produced(client, 9_000)
    throttled = app.call(asked(first.session_id, 1, 1), 12)
    assert throttled.throttle_time_ms and throttled.responses == []
    assert throttled.session_id == first.session_id
    broker.advance_clock(11_000)
    # The session continues, and the client learns of the records and of the new end.
    request = asked(first.session_id, 2, 1)
    request.topics = []
    last = app.call(request, 12)
    (partition,) = last.responses[0].partitions
    assert partition.high_watermark == 2 and len(partition.records) > 9_000


def test_a_new_session_of_a_throttled_client_is_forgotten(
    broker: Broker, client: RawClient, app: RawClient
) -> None:
    set_quotas(client, APP, consumer_byte_rate=100)
    produced(client, 5_000)
    request = fetch_request([("t", 0, 0)])
    request.session_epoch = 0
    answer = app.call(request, 12)
    assert answer.throttle_time_ms and answer.session_id == 0
    assert not broker.call(lambda: broker.handlers.of(FetchHandlers)._sessions._sessions)


def test_the_time_of_requests_is_limited(broker: Broker, client: RawClient, app: RawClient) -> None:
    set_quotas(client, APP, request_percentage=1e-6)
    response = app.call(kw.MetadataRequest(topics=None))
    # One window at most.
    assert response.throttle_time_ms == 1000
    app.send(kw.MetadataRequest(topics=None))
    assert muted(broker) == 1
    broker.advance_clock(1000)
    assert app.receive().throttle_time_ms == 1000
    # All requests count, also those that wait.
    broker.advance_clock(1000)
    waiting = fetch_request([("t", 0, 0)])
    waiting.max_wait_ms, waiting.min_bytes = 50, 1
    assert app.call(waiting, 12).throttle_time_ms == 1000


def test_partitions_that_are_created_are_limited(
    broker: Broker, client: RawClient, app: RawClient
) -> None:
    set_quotas(client, APP, controller_mutation_rate=1)
    kind = kw.CreateTopicsRequest

    def create(name: str, count: int, version: int = 7) -> kw.CreateTopicsResponse:
        topic = kind.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        response: kw.CreateTopicsResponse = app.call(kind(topics=[topic]), version)
        return response

    # All 11 tokens and 9 that the client does not have yet.
    assert create("many", 20).throttle_time_ms == 0
    refused = create("more", 1)
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.topics[0].error_message is None
    assert 8_000 < refused.throttle_time_ms <= 9_000
    broker.advance_clock(refused.throttle_time_ms)
    assert create("more", 5).topics[0].error_code == ErrorCode.NONE
    # Old versions do not know the error: their clients are throttled.
    broker.advance_clock(6_000)
    old = create("old", 10, 5)
    assert old.topics[0].error_code == ErrorCode.NONE
    assert old.throttle_time_ms > 0
    broker.advance_clock(old.throttle_time_ms)
    delete = kw.DeleteTopicsRequest(topic_names=["many"])
    assert app.call(delete, 5).responses[0].error_code == ErrorCode.NONE
    growing = kw.CreatePartitionsRequest.CreatePartitionsTopic(
        name="more", count=6, assignments=None
    )
    response = app.call(kw.CreatePartitionsRequest(topics=[growing]), 3)
    assert response.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_connections_of_an_address_are_limited(tls: bool, tmp_path: Path) -> None:
    properties = {"quota.window.num": "2"}
    if tls:
        _, properties = make_certificates(tmp_path)
        properties = {
            **properties,
            "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
            "quota.window.num": "2",
        }
    with Broker.start(properties=properties) as broker, RawClient(broker.port) as client:
        port = broker.addresses["SSL" if tls else "PLAINTEXT"][1]
        set_quotas(client, {"ip": None}, connection_creation_rate=1)
        with connected(port) as first:
            first.settimeout(0.2)
            until(lambda: broker.call(lambda: broker.connections.admission.count) == 2)
            begin = time.monotonic()
            with connected(port) as second:
                # It is held without service until a connection would be allowed.
                second.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
                assert is_closed(second)
            assert time.monotonic() - begin > 0.5
            with pytest.raises(TimeoutError):
                first.recv(1)
        set_quotas(client, {"ip": "127.0.0.1"}, connection_creation_rate=1000)
        with connected(port) as third:
            third.settimeout(0.2)
            with pytest.raises(TimeoutError):
                third.recv(1)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("scope", ["broker", "listener"])
def test_connections_above_the_rate_wait(tls: bool, scope: str, tmp_path: Path) -> None:
    rate, listener = "max.connection.creation.rate", "SSL" if tls else "OTHER"
    certificates, properties = make_certificates(tmp_path) if tls else (None, {})
    properties = {
        **properties,
        "listeners": f"PLAINTEXT://127.0.0.1:0,{listener}://127.0.0.1:0",
        "quota.window.num": "2",
    }
    if not tls:
        properties["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
    if scope == "listener":
        properties[f"listener.name.{listener.lower()}.{rate}"] = "1"
    with Broker.start(properties=properties) as broker:
        if scope == "broker":
            kind = kw.ConfigResourceType.BROKER
            broker.call(broker.topics.set_configs, kind, "", {rate: "1"})
        port = broker.addresses[listener][1]
        request = kw.ApiVersionsRequest(client_software_name="a", client_software_version="1")
        wrap = None
        if certificates is not None:
            context = ssl.create_default_context(cafile=certificates.ca)
            wrap = partial(context.wrap_socket, server_hostname="localhost")
        with RawClient(port, wrap=wrap) as first, RawClient(port, wrap=wrap) as second:
            assert first.call(request, 3).error_code == ErrorCode.NONE
            second.send(request, 3)
            second.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                second.receive()
            assert muted(broker) == 1
            # The limit of the other listener is not reached, and that between brokers has none.
            with RawClient(broker.port) as other:
                assert other.call(request, 3).error_code == ErrorCode.NONE
            second.socket.settimeout(PATIENCE)
            broker.advance_clock(2000)
            assert second.receive().error_code == ErrorCode.NONE


def test_the_quota_of_the_most_specific_entity_counts(
    broker: Broker, client: RawClient, app: RawClient
) -> None:
    """In Kafka's order: users take precedence over client ids, and names over defaults."""
    order: list[dict[str, str | None]] = [
        {"client-id": None},
        {"client-id": "app"},
        {"user": None},
        {"user": None, "client-id": None},
        {"user": None, "client-id": "app"},
        {"user": "ANONYMOUS"},
        {"user": "ANONYMOUS", "client-id": None},
        {"user": "ANONYMOUS", "client-id": "app"},
    ]
    for number, entity in enumerate(order):
        # Each quota is ten times the one before, so the one that counts shows in the time.
        set_quotas(client, entity, producer_byte_rate=1000 * 10**number)
        wait = produced(app, 900_000)
        expected = max(0, 900_000 / 10**number - 10_000)
        assert wait == pytest.approx(expected, rel=0.01, abs=10)
        broker.advance_clock(wait + 20_000)
    for number in reversed(range(1, len(order))):
        set_quotas(client, order[number], producer_byte_rate=None)


def test_a_user_shares_its_quota_among_its_clients(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t")
    set_quotas(client, ANONYMOUS, producer_byte_rate=1000)
    with RawClient(broker.port, client_id="a") as a, RawClient(broker.port, client_id=None) as b:
        assert produced(a, 9_000) == 0
        assert produced(b, 9_000) > 7_000


def test_clients_of_a_default_do_not_share_it(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t")
    set_quotas(client, {"client-id": None}, producer_byte_rate=1000)
    with RawClient(broker.port, client_id="a") as a, RawClient(broker.port, client_id="b") as b:
        assert produced(a, 9_000) == 0
        assert produced(b, 9_000) == 0
        assert produced(a, 9_000) > 7_000


def test_meters_are_limited(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NodeQuotas, "most_meters", 3)
    create_topic(client, "t")
    set_quotas(client, {"client-id": None}, producer_byte_rate=10**6)
    for number in range(10):
        with RawClient(broker.port, client_id=f"c{number}") as each:
            produced(each, 10)
    found = broker.call(
        lambda: len(broker.cluster.watchers["ClientQuotaRecord"].__self__._nodes[0]._meters)  # type: ignore[attr-defined]
    )
    assert found == 3


def test_quotas_in_a_folder_are_enforced_from_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kind = ClientQuotaRecord.EntityData
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        create_topic(client, "t")
        # Older versions of Kafka allow a quota of zero.
        old = ClientQuotaRecord(
            entity=[kind(entity_type="client-id", entity_name="zero")],
            key="producer_byte_rate",
            value=0.0,
        )
        broker.call(broker.cluster.append, [old])
        set_quotas(client, APP, producer_byte_rate=1000)
    caplog.clear()
    with (
        caplog.at_level(logging.WARNING, "krammar.broker"),
        Broker.start(data_dir=tmp_path) as broker,
        RawClient(broker.port, client_id="app") as app,
        RawClient(broker.port, client_id="zero") as zero,
    ):
        assert produced(app, 20_000) > 9_000
        assert produced(zero, 20_000) == 0
    assert "has no effect: Quota producer_byte_rate must be greater than 0" in caplog.text


def test_the_longest_time_fits_into_a_response(client: RawClient, app: RawClient) -> None:
    set_quotas(client, APP, request_percentage=5e-324, controller_mutation_rate=5e-324)
    topic = kw.CreateTopicsRequest.CreatableTopic(name="a", num_partitions=1, replication_factor=1)
    response = app.call(kw.CreateTopicsRequest(topics=[topic]), 5)
    assert response.throttle_time_ms == 2**31 - 1


def test_a_client_that_leaves_while_it_is_throttled(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t")
    set_quotas(client, APP, producer_byte_rate=1000)
    with RawClient(broker.port, client_id="app") as app:
        assert produced(app, 20_000)
        app.send(kw.ApiVersionsRequest(), 2)
        app.socket.shutdown(socket.SHUT_WR)
        broker.advance_clock(60_000)
        app.socket.settimeout(PATIENCE)
        assert app.receive().error_code == ErrorCode.NONE
        assert is_closed(app.socket)
