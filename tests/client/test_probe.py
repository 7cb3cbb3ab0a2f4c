"""A wrong security.protocol."""

from __future__ import annotations

import socket
import threading

import pytest

from krammar.client import Client
from krammar.client.errors import AuthenticationError, TransportError
from krammar.client.probe import wrong_protocol
from krammar.testing import KafkaBroker

_LONG = {
    "default_api_timeout_ms": 600_000
}  # without the check of the first bytes, the test would take this long


@pytest.mark.kafka_broker(tls=True)
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_a_listener_with_tls(kafka_broker: KafkaBroker, protocol: str) -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"}
    settings = {"security_protocol": protocol, **(login if "SASL" in protocol else {}), **_LONG}
    with (
        Client(kafka_broker.bootstrap_servers, **settings) as client,
        pytest.raises(AuthenticationError, match=r"has TLS: set security.protocol to SSL or"),
    ):
        client.topics()


@pytest.mark.parametrize("sasl", [None, "plain"])
def test_a_listener_without_tls(sasl: str | None) -> None:
    with KafkaBroker.start(sasl=sasl) as broker:
        settings = {"security_protocol": "SSL", **_LONG}
        with (
            Client(broker.bootstrap_servers, **settings) as client,
            pytest.raises(AuthenticationError, match=r"has no TLS: set security.protocol to PLAIN"),
        ):
            client.topics()


_LOGIN = {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"}


@pytest.mark.parametrize("tls", [False, True])
def test_a_listener_with_logins(tls: bool) -> None:
    end = "SSL" if tls else "PLAINTEXT"
    with KafkaBroker.start(sasl="scram", users={"a": "b"}, tls=tls) as broker:
        settings = {**_trusting(broker), "security_protocol": end, **_LONG}
        text = f"requires a login: set security.protocol to SASL_{end}, and sasl.mechanism"
        with (
            Client(broker.bootstrap_servers, **settings) as client,
            pytest.raises(AuthenticationError, match=text),
        ):
            client.topics()


@pytest.mark.parametrize("tls", [False, True])
def test_a_listener_without_logins(tls: bool) -> None:
    end = "SSL" if tls else "PLAINTEXT"
    with KafkaBroker.start(tls=tls) as broker:
        settings = {**_trusting(broker), "security_protocol": f"SASL_{end}", **_LOGIN, **_LONG}
        with (
            Client(broker.bootstrap_servers, **settings) as client,
            pytest.raises(AuthenticationError, match=f"no logins: set security.protocol to {end}$"),
        ):
            client.topics()


def test_other_closed_connections_are_tried_again(kafka_broker: KafkaBroker) -> None:
    """A listener without logins closes connections for other reasons."""
    kafka_broker.faults.on("Metadata").times(1).drop()
    with Client(kafka_broker.bootstrap_servers) as client:
        assert client.topics() is not None


def _trusting(broker: KafkaBroker) -> dict[str, str]:
    """Return the settings of a client that trusts the broker's certificate."""
    settings = broker.clients.confluent_kafka
    return {key: value for key, value in settings.items() if key.startswith("ssl.")}


@pytest.mark.parametrize("tls", [False, True])
def test_a_server_that_closes_every_connection(tls: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            connection.close()

        thread = threading.Thread(target=refuse)
        thread.start()
        assert wrong_protocol(server.getsockname(), tls, 5) is None
        thread.join()


def test_a_failed_login_opens_no_second_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has answered before, so the protocol is right."""
    probed: list[object] = []
    monkeypatch.setattr("krammar.client.connection.wrong_protocol", lambda *of: probed.append(of))
    with KafkaBroker.start(sasl="plain", users={"a": "b"}) as broker:
        broker.faults.on("SaslAuthenticate").drop()
        settings = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "a",
            "sasl_password": "b",
        }
        with (
            Client(broker.bootstrap_servers, **settings, default_api_timeout_ms=500) as client,
            pytest.raises(TransportError),
        ):
            client.topics()
    assert probed == []


def test_a_server_that_is_gone_stays_a_transport_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with Client(address) as client, pytest.raises(TransportError):
        client.topics()
