"""Logins: of clients at the proxy, and of the proxy at brokers."""

from __future__ import annotations

import logging
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import kafka_wire
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka_wire import (
    ApiVersionsRequest,
    MetadataRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

from krammar.auth.scram import Mechanism
from krammar.broker import Broker
from krammar.client.errors import AuthenticationError
from krammar.proxy import Exchange, Filter, Proxy, on
from krammar.testing import KafkaBroker
from krammar.testing.tokens import TokenIssuer
from krammar.wire.connection import ClientConnection, ResponseReceived
from tests.proxy.support import address
from tests.proxy.test_tls import Certificates, confluent, connect, krammar, to
from tests.support.waiting import PATIENCE

USERS = {"carol": "carol's secret", "dave": "d,a=ve"}


class Watch(Filter):
    """Collects the principals of requests, and the logins that reach the filters."""

    def __init__(self) -> None:
        self.principals: set[str | None] = set()
        self.logins = 0

    @on(ProduceRequest, MetadataRequest)
    def watch(self, message: Any, exchange: Exchange) -> None:
        self.principals.add(exchange.connection.principal)

    @on(SaslAuthenticateRequest)
    def login(self, message: Any, exchange: Exchange) -> None:
        self.logins += 1


def own(mechanism: str, user: str = "carol", password: str = USERS["carol"]) -> dict[str, str]:
    """Return the settings of a client that logs in as a user."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


AT_PROXY = {"security.protocol": "SASL_PLAINTEXT"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("upstream", [None, "plain", "scram-sha-256", "scram-sha-512"])
def test_clients_log_in_at_the_proxy(mechanism: str, upstream: str | None) -> None:
    watch = Watch()
    with (
        KafkaBroker.start(topics=["orders"], sasl=upstream) as broker,
        Proxy.start(
            broker.bootstrap_servers, [watch], clients=AT_PROXY, users=USERS, brokers=to(broker)
        ) as proxy,
    ):
        settings = {"bootstrap.servers": proxy.bootstrap_servers, **own(mechanism)}
        (krammar if mechanism == "PLAIN" else confluent)(settings)
    assert watch.principals == {"carol"}
    assert not watch.logins


@pytest.mark.parametrize("upstream", ["plain", "scram-sha-256", "scram-sha-512"])
def test_the_proxy_logs_in(upstream: str) -> None:
    with (
        KafkaBroker.start(topics=["orders"], sasl=upstream) as broker,
        Proxy.start(broker.bootstrap_servers, brokers=to(broker)) as proxy,
    ):
        confluent({"bootstrap.servers": proxy.bootstrap_servers})


@pytest.mark.parametrize("mechanism", ["scram-sha-256", "scram-sha-512"])
def test_the_proxy_salts_its_password_once(
    mechanism: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The salt and the iterations are the same for all connections of a user."""
    caplog.set_level(logging.DEBUG)
    salted = Counter[int]()
    derive = Mechanism.salted_password

    def counting(self: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
        salted[iterations] += 1
        return derive(self, password, salt, iterations)

    with KafkaBroker.start(sasl=mechanism) as broker:
        settings = to(broker)
        monkeypatch.setattr(Mechanism, "salted_password", counting)
        with Proxy.start(broker.bootstrap_servers, brokers=settings) as proxy:
            for _ in range(10):
                client = Raw(proxy)
                with client.socket:
                    assert client.ask(MetadataRequest(), 9).brokers
    assert list(salted.values()) == [1]
    assert settings["sasl.password"] not in caplog.text


def test_the_proxy_logs_in_with_a_token(tmp_path: Path) -> None:
    issuer = TokenIssuer(tmp_path / "jwks.json")
    (tmp_path / "token").write_text(issuer.token("proxy"))
    brokers = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri(),
    }
    properties = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **issuer.properties}
    with (
        Broker.start(properties=properties) as broker,
        Proxy.start(broker.bootstrap_servers, brokers=brokers) as proxy,
    ):
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap_servers})
        assert len(admin.list_topics(timeout=PATIENCE).brokers) == 1


def test_logins_over_tls_on_both_sides(tmp_path: Path) -> None:
    files, watch = Certificates(tmp_path), Watch()
    clients = files.ask | {
        "security.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    with (
        KafkaBroker.start(topics=["orders"], sasl="scram", tls=True) as broker,
        Proxy.start(
            broker.bootstrap_servers, [watch], clients=clients, users=USERS, brokers=to(broker)
        ) as proxy,
    ):
        settings = files.own | own("SCRAM-SHA-256", "dave", USERS["dave"])
        settings |= {"security.protocol": "SASL_SSL", "bootstrap.servers": proxy.bootstrap_servers}
        confluent(settings)
    assert watch.principals == {"dave"}  # the login, not the certificate


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("user", ["carol", "nobody"])
def test_a_wrong_password(mechanism: str, user: str, caplog: pytest.LogCaptureFixture) -> None:
    with (
        KafkaBroker.start() as broker,
        Proxy.start(broker.bootstrap_servers, clients=AT_PROXY, users=USERS) as proxy,
    ):
        settings = {"bootstrap.servers": proxy.bootstrap_servers, **own(mechanism, user, "guess")}
        with pytest.raises(AuthenticationError, match="refuses the login"), connect(settings) as it:
            it.topics()
    assert f"the login as {user!r} failed: unknown user or wrong password" in caplog.text
    assert "guess" not in caplog.text


def test_a_mechanism_that_is_not_enabled() -> None:
    only = AT_PROXY | {"sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    with (
        KafkaBroker.start() as broker,
        Proxy.start(broker.bootstrap_servers, clients=only, users=USERS) as proxy,
    ):
        settings = {"bootstrap.servers": proxy.bootstrap_servers, **own("PLAIN")}
        with pytest.raises(AuthenticationError, match="SCRAM-SHA-512"), connect(settings) as client:
            client.topics()


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (b"\0\x03\0\x09\0\0\0\1\xff\xff\0\1\1\1\0", "MetadataRequest"),
        (b"\x0f\xa0\0\0\0\0\0\1\xff\xff", "api key 4000 v0"),
    ],
)
def test_nothing_is_served_before_the_login(
    request_: bytes, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        KafkaBroker.start() as broker,
        Proxy.start(broker.bootstrap_servers, clients=AT_PROXY, users=USERS) as proxy,
        socket.create_connection(address(proxy), timeout=PATIENCE) as client,
    ):
        client.sendall(len(request_).to_bytes(4, "big") + request_)
        assert client.recv(1) == b""
    assert f"closed: {name} before the login of the client" in caplog.text


def test_frames_before_the_login_are_small(caplog: pytest.LogCaptureFixture) -> None:
    size = 524_289
    with (
        KafkaBroker.start() as broker,
        Proxy.start(broker.bootstrap_servers, clients=AT_PROXY, users=USERS) as proxy,
        socket.create_connection(address(proxy), timeout=PATIENCE) as client,
    ):
        client.sendall(size.to_bytes(4, "big") + b"\0\x24\0\0\0\0\0\1\xff\xff")
        assert client.recv(1) == b""
    assert (
        f"a request of {size} bytes is too large for filters (524288 bytes at most)" in caplog.text
    )


class Raw:
    """A client that sends exactly the requests of the test."""

    def __init__(self, proxy: Proxy) -> None:
        self.socket = socket.create_connection(address(proxy), timeout=PATIENCE)
        self._wire = ClientConnection(kafka_wire)

    def ask(self, request: Any, version: int) -> Any:
        self.socket.sendall(self._wire.send_request(request, version))
        while True:
            data = self.socket.recv(65536)
            if not data:
                return None
            self._wire.receive_data(data)
            for event in self._wire.events():
                assert isinstance(event, ResponseReceived)
                return event.response


def test_versions_of_logins_and_a_login_as_another_user() -> None:
    with (
        KafkaBroker.start() as broker,
        Proxy.start(broker.bootstrap_servers, clients=AT_PROXY, users=USERS) as proxy,
    ):
        client = Raw(proxy)
        with client.socket:
            offered = {
                each.api_key: (each.min_version, each.max_version)
                for each in client.ask(ApiVersionsRequest(), 0).api_keys
            }
            assert (offered[17], offered[36][0]) == ((1, 1), 0)
            assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            token = f"\0carol\0{USERS['carol']}".encode()
            assert client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0
            assert client.ask(MetadataRequest(), 9).brokers
            # The same user may log in again, another one may not.
            assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            assert client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0
            client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            token = f"\0dave\0{USERS['dave']}".encode()
            answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            assert (answer.error_code, "Cannot change" in answer.error_message) == (58, True)
            assert client.socket.recv(1) == b""


def test_a_refused_login_of_the_proxy(caplog: pytest.LogCaptureFixture) -> None:
    with KafkaBroker.start(sasl="plain") as broker:
        brokers = to(broker) | {"sasl.password": "outdated"}
        with (
            Proxy.start(broker.bootstrap_servers, brokers=brokers) as proxy,
            socket.create_connection(address(proxy), timeout=PATIENCE) as client,
        ):
            assert client.recv(1) == b""
    assert "cannot log in at 127.0.0.1:" in caplog.text
    assert "the broker refuses the login of 'alice'" in caplog.text
    assert "outdated" not in caplog.text


def test_a_client_that_logs_in_although_the_proxy_does(caplog: pytest.LogCaptureFixture) -> None:
    with (
        KafkaBroker.start(sasl="plain") as broker,
        Proxy.start(broker.bootstrap_servers, brokers=to(broker)) as proxy,
    ):
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap_servers, **own("PLAIN")})
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=2)


def test_the_proxy_logs_in_again_before_its_login_ends(caplog: pytest.LogCaptureFixture) -> None:
    """The broker closes connections whose login has ended (KIP-368); requests continue through several logins."""
    caplog.set_level(logging.INFO)
    with (
        KafkaBroker.start(
            {"connections.max.reauth.ms": 1500}, topics=["orders"], sasl="scram"
        ) as broker,
        Proxy.start(broker.bootstrap_servers, brokers=to(broker)) as proxy,
    ):
        renewed = 0
        client = Raw(proxy)
        with client.socket:
            while renewed < 3:  # the broker's own log line is the clock
                found = client.ask(MetadataRequest(), 9)
                assert found is not None, caplog.text
                metrics = broker.broker.metrics
                renewed = int(
                    metrics.value(
                        "kafka_network_requestmetrics_requests_total", request="SaslHandshake"
                    )
                )
            assert client.ask(MetadataRequest(), 9).brokers


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": AT_PROXY}, "clients: security.protocol: 'SASL_PLAINTEXT' needs users"),
        ({"users": USERS}, "users need SASL_PLAINTEXT or SASL_SSL"),
        ({"clients": AT_PROXY, "users": {}}, "users: has no user"),
        ({"clients": AT_PROXY, "users": {"eve": ""}}, "'eve' needs a password"),
        (
            {"clients": AT_PROXY, "users": "/no/users.toml"},
            "users: '/no/users.toml' cannot be read",
        ),
        (
            {"clients": AT_PROXY | {"sasl.enabled.mechanisms": "OAUTHBEARER"}, "users": USERS},
            "sasl.enabled.mechanisms: 'OAUTHBEARER' is not one of PLAIN",
        ),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Proxy("localhost:9092", **options)
