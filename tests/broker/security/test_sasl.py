"""Logins over a socket: responses, closed connections, and access after a login."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_wire import (
    ApiVersionsRequest,
    ErrorCode,
    InitProducerIdRequest,
    ListGroupsRequest,
    MetadataRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

from krammar.auth import scram_server
from krammar.auth.scram import BY_NAME
from krammar.broker import Broker, ConfigError
from krammar.broker.security.users import record_of
from tests.broker.security.support import ScramClient, plain
from tests.broker.support import RawClient

USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="alice-secret" user_bob="bob-secret";'
)
PROPERTIES = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.jaas.config": USERS,
    "connection.failed.authentication.delay.ms": "0",
}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
INVALID = "Authentication failed: Invalid username or password"


class Clock:
    """Milliseconds that only change when a test changes them."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


def add_scram_users(broker: Broker) -> None:
    records = [
        record_of(name, kind, scram_server.new_credential(kind, f"{name}-secret"))
        for kind in BY_NAME.values()
        for name in ("alice", "bob")
    ]
    broker.call(broker.cluster.append, records)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start(properties=PROPERTIES) as broker:
        add_scram_users(broker)
        yield broker


def log_in(client: RawClient, mechanism: str, user: str, password: str, version: int = 2) -> Any:
    """Send a handshake v1 and the messages after it. Returns the last response."""
    response = client.call(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert response.error_code == 0

    def say(message: bytes) -> Any:
        return client.call(SaslAuthenticateRequest(auth_bytes=message), version)

    if mechanism == "PLAIN":
        return say(plain(user, password))
    messages = ScramClient(mechanism, user, password)
    challenge = say(messages.first)
    assert challenge.error_code == 0
    assert challenge.session_lifetime_ms == 0
    return say(messages.final(challenge.auth_bytes))


def is_served(client: RawClient) -> bool:
    return client.call(MetadataRequest(topics=[])).brokers[0].port != 0


def is_closed(client: RawClient) -> bool:
    with pytest.raises(ConnectionError):
        client.receive()
    return True


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_logs_in(client: RawClient, mechanism: str, version: int) -> None:
    client.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
    response = log_in(client, mechanism, "alice", "alice-secret", version)
    assert response.error_code == 0
    assert response.session_lifetime_ms == 0
    assert (response.auth_bytes == b"") == (mechanism == "PLAIN")
    assert is_served(client)


def raw(client: RawClient, token: bytes) -> bytes:
    client.socket.sendall(struct.pack(">i", len(token)) + token)
    (size,) = struct.unpack(">i", _exactly(client, 4))
    return _exactly(client, size)


def _exactly(client: RawClient, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = client.socket.recv(size - len(data))
        if not piece:
            raise ConnectionError("closed")
        data += piece
    return data


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_logs_in_with_bare_tokens(client: RawClient, mechanism: str) -> None:
    assert client.call(SaslHandshakeRequest(mechanism=mechanism), 0).error_code == 0
    if mechanism == "PLAIN":
        assert raw(client, plain("alice", "alice-secret")) == b""
    else:
        messages = ScramClient(mechanism, "alice", "alice-secret")
        assert raw(client, messages.final(raw(client, messages.first))).startswith(b"v=")
    assert is_served(client)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_bare_tokens_with_a_wrong_password(client: RawClient, mechanism: str) -> None:
    client.call(SaslHandshakeRequest(mechanism=mechanism), 0)
    token = plain("alice", "wrong") if mechanism == "PLAIN" else b"rubbish"
    with pytest.raises((ConnectionError, struct.error)):
        raw(client, token)


@pytest.mark.parametrize("user", ["alice", "nobody"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_passwords_and_unknown_users(client: RawClient, mechanism: str, user: str) -> None:
    response = log_in(client, mechanism, user, "wrong")
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.auth_bytes == b""
    expected = (
        INVALID
        if mechanism == "PLAIN"
        else "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )
    assert response.error_message == expected
    assert is_closed(client)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (plain("", "x"), "Authentication failed: username not specified"),
        (plain("alice", ""), "Authentication failed: password not specified"),
        (
            plain("alice", "alice-secret\0"),
            "Invalid SASL/PLAIN response: expected 3 tokens, got 4",
        ),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0\xff\0x", INVALID),
        (plain("alice", "wrong", "bob"), INVALID),
        (
            plain("alice", "alice-secret", "bob"),
            "Authentication failed: Client requested an authorization id that is different from "
            "username",
        ),
    ],
)
def test_what_plain_refuses(client: RawClient, token: bytes, message: str) -> None:
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    response = client.call(SaslAuthenticateRequest(auth_bytes=token))
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == message
    assert is_closed(client)


def test_plain_with_the_own_identity(client: RawClient) -> None:
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = plain("alice", "alice-secret", "alice")
    assert client.call(SaslAuthenticateRequest(auth_bytes=token)).error_code == 0


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "", "SCRAM-SHA-1"])
def test_unknown_mechanism(client: RawClient, mechanism: str, version: int) -> None:
    response = client.call(SaslHandshakeRequest(mechanism=mechanism), version)
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == MECHANISMS
    assert is_closed(client)


def test_nothing_is_served_before_the_login(
    client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.send(MetadataRequest(topics=[]))
    assert is_closed(client)
    assert [record.getMessage().split(": ", 1)[1] for record in caplog.records] == [
        "MetadataRequest was sent before authentication; connection closed"
    ]


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (MetadataRequest(topics=[]), 13),
        (ApiVersionsRequest(), 2),
        (ListGroupsRequest(), 4),
        (InitProducerIdRequest(transactional_id="id"), 5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_request_during_the_login_gets_an_error(
    client: RawClient, request_: Any, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    response = client.call(request_, version)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_closed(client)
    assert f"{type(request_).__name__} during a login; connection closed" in caplog.text


def test_each_topic_of_a_request_during_the_login_gets_the_error(client: RawClient) -> None:
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    named = [MetadataRequest.Topic(name=name) for name in ("a", "b")]
    response = client.call(MetadataRequest(topics=named), 9)
    refused = ErrorCode.ILLEGAL_SASL_STATE
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("a", refused),
        ("b", refused),
    ]
    assert response.brokers == []
    assert is_closed(client)


def test_large_requests_and_such_without_a_response_end_the_login(broker: Broker) -> None:
    named = [MetadataRequest.Topic(name=f"{number:0100}") for number in range(100)]
    for request, version in (
        (MetadataRequest(topics=named), 9),
        (ProduceRequest(acks=0, timeout_ms=1000), 9),
    ):
        with RawClient(broker.port) as client:
            client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            client.send(request, version)
            assert is_closed(client)


def test_any_password_is_right_where_the_settings_say_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "krammar.plain.any.password": "true",
    }
    with Broker.start(properties=properties) as broker:
        for user in ("alice", "bob"):
            with RawClient(broker.port) as client:
                assert log_in(client, "PLAIN", user, "anything").error_code == 0
                assert is_served(client)
        with RawClient(broker.port) as client:
            assert log_in(client, "PLAIN", "alice", "").error_code != 0
    assert "accepts any user with any password: use it for tests only" in caplog.text


@pytest.mark.parametrize("host", ["", "0.0.0.0", "192.0.2.1", "[::]"])
def test_any_password_is_for_loopback_only(host: str) -> None:
    properties = {
        "listeners": f"SASL_PLAINTEXT://{host}:0",
        "advertised.listeners": "SASL_PLAINTEXT://localhost:9092",
        "krammar.plain.any.password": "true",
    }
    with pytest.raises(ConfigError, match="is for tests, on loopback addresses"):
        Broker.start(properties=properties)


def test_nothing_is_served_behind_a_failed_login(client: RawClient) -> None:
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    requests = [
        SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")),
        SaslAuthenticateRequest(auth_bytes=plain("alice", "alice-secret")),
        MetadataRequest(topics=[]),
    ]
    frames = [client.wire.send_request(each, type(each).max_version) for each in requests]
    client.socket.sendall(b"".join(frames))
    assert client.receive().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert is_closed(client)


def test_message_before_the_handshake(client: RawClient) -> None:
    token = plain("alice", "alice-secret")
    response = client.call(SaslAuthenticateRequest(auth_bytes=token))
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_closed(client)


def test_handshake_during_the_login(client: RawClient) -> None:
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    response = client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_closed(client)


def test_message_behind_the_login(client: RawClient) -> None:
    log_in(client, "PLAIN", "alice", "alice-secret")
    token = plain("alice", "alice-secret")
    response = client.call(SaslAuthenticateRequest(auth_bytes=token))
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert response.error_message
    assert is_served(client)


def test_large_frames_only_behind_the_login(client: RawClient) -> None:
    client.socket.sendall(struct.pack(">i", 524289))
    assert is_closed(client)


def test_a_listener_without_sasl(broker: Broker) -> None:
    with RawClient(broker.addresses["PLAINTEXT"][1]) as client:
        response = client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        response = client.call(SaslAuthenticateRequest(auth_bytes=b""))
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert is_served(client)


def test_failed_logins_are_logged_without_passwords(
    client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    log_in(client, "PLAIN", "alice\n" + "x" * 100, "wrong-secret")
    assert is_closed(client)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    text = record.getMessage()
    assert "authentication with PLAIN as 'alice\\nxxx" in text
    assert "unknown user or wrong password" in text
    assert "secret" not in text
    assert "x" * 80 not in text


# Renewing logins (KIP-368).


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def renewing(clock: Clock) -> Iterator[Broker]:
    properties = PROPERTIES | {
        "connections.max.reauth.ms": "60000",
        "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms": "5000",
    }
    with Broker.start(properties=properties, clock=clock) as broker:
        add_scram_users(broker)
        yield broker


@pytest.mark.parametrize(("mechanism", "lifetime"), [("PLAIN", 60000), ("SCRAM-SHA-512", 5000)])
def test_logins_expire_and_are_renewed(
    renewing: Broker, clock: Clock, mechanism: str, lifetime: int
) -> None:
    with RawClient(renewing.port) as client:
        for _ in range(3):
            response = log_in(client, mechanism, "alice", "alice-secret", 1)
            assert response.session_lifetime_ms == lifetime
            clock.now += lifetime
            assert is_served(client)
        clock.now += 1
        client.send(MetadataRequest(topics=[]))
        assert is_closed(client)


def test_a_login_expires_for_clients_that_cannot_renew_it(renewing: Broker, clock: Clock) -> None:
    with RawClient(renewing.port) as client:
        response = log_in(client, "PLAIN", "alice", "alice-secret", 0)
        assert response.session_lifetime_ms == 0
        clock.now += 60001
        client.send(MetadataRequest(topics=[]))
        assert is_closed(client)


def test_a_login_can_be_renewed_after_it_has_expired(renewing: Broker, clock: Clock) -> None:
    with RawClient(renewing.port) as client:
        log_in(client, "PLAIN", "alice", "alice-secret")
        clock.now += 100_000
        assert log_in(client, "PLAIN", "alice", "alice-secret").error_code == 0
        assert is_served(client)


def test_renewal_more_than_once_a_second(renewing: Broker, clock: Clock) -> None:
    with RawClient(renewing.port) as client:
        log_in(client, "PLAIN", "alice", "alice-secret")
        log_in(client, "PLAIN", "alice", "alice-secret")
        clock.now += 999
        response = client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert is_served(client)
        clock.now += 1
        assert log_in(client, "PLAIN", "alice", "alice-secret").error_code == 0


def test_renewal_by_another_user(renewing: Broker) -> None:
    with RawClient(renewing.port) as client:
        log_in(client, "PLAIN", "alice", "alice-secret")
        response = log_in(client, "PLAIN", "bob", "bob-secret")
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert response.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.bob"
        )
        assert is_closed(client)


def test_renewal_with_a_wrong_password(renewing: Broker) -> None:
    with RawClient(renewing.port) as client:
        log_in(client, "SCRAM-SHA-256", "alice", "alice-secret")
        response = log_in(client, "SCRAM-SHA-256", "alice", "wrong")
        assert response.error_message.startswith("Authentication failed during re-authentication")
        assert is_closed(client)


def test_renewal_with_another_mechanism(renewing: Broker) -> None:
    with RawClient(renewing.port) as client:
        log_in(client, "SCRAM-SHA-256", "alice", "alice-secret")
        assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        token = plain("alice", "alice-secret")
        response = client.call(SaslAuthenticateRequest(auth_bytes=token))
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert response.error_message == (
            "SASL mechanism 'PLAIN' requested by client is not supported for re-authentication of "
            "mechanism 'SCRAM-SHA-256'"
        )
        assert is_closed(client)


def test_nothing_is_served_during_a_renewal(renewing: Broker) -> None:
    with RawClient(renewing.port) as client:
        log_in(client, "PLAIN", "alice", "alice-secret")
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        response = client.call(MetadataRequest(topics=[]))
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert is_closed(client)


def test_failed_logins_are_answered_late() -> None:
    # How long is read off the timer: a measured time would depend on the machine.
    with Broker.start(
        properties=PROPERTIES | {"connection.failed.authentication.delay.ms": "150"}
    ) as broker:
        delays: list[float] = []
        call_later = broker.timers.call_later

        def noted(seconds: float, *arguments: Any) -> Any:
            delays.append(seconds)
            return call_later(seconds, *arguments)

        broker.timers.call_later = noted  # type: ignore[method-assign]
        with RawClient(broker.port) as client:
            response = log_in(client, "PLAIN", "alice", "wrong")
            assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert is_closed(client)
        assert 0.15 in delays


def test_a_broker_does_not_start_with_users_that_cannot_be_read() -> None:
    with pytest.raises(ConfigError, match="semicolon"):
        Broker.start(properties=PROPERTIES | {"sasl.jaas.config": USERS[:-1]})
