"""Signed tokens: accepted and refused ones, key rotation, and a missing JWKS."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from kafka_wire import ErrorCode, MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest

from krammar.auth.oauth import ERROR_ANSWER, FirstMessage
from krammar.broker import Broker
from krammar.broker.config import ConfigError
from krammar.broker.errors import BrokerError
from krammar.broker.security.jwt import SignedTokens
from krammar.client import Client
from krammar.testing.tokens import TokenIssuer
from krammar.util import extras
from tests.broker.support import RawClient
from tests.support.unsecured import unsecured_token
from tests.support.waiting import PATIENCE, until

URL = "sasl.oauthbearer.jwks.endpoint.url"
QUICK = {
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "10",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "20",
}


def start(issuer: TokenIssuer, **properties: str) -> Broker:
    return Broker.start(
        properties={
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "connection.failed.authentication.delay.ms": "0",
            **issuer.properties,
            **QUICK,
            **properties,
        }
    )


@pytest.fixture
def issuer(tmp_path: Path) -> TokenIssuer:
    return TokenIssuer(tmp_path / "jwks.json")


@pytest.fixture
def broker(issuer: TokenIssuer) -> Iterator[Broker]:
    with start(issuer) as broker:
        yield broker


@dataclass
class Login:
    """The end of a login: the code, the text, and the milliseconds until the next one."""

    code: int
    text: str | None
    lifetime_ms: int


def log_in(client: RawClient, token: str) -> Login:
    assert client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0
    message = FirstMessage(token, {}, "").encode()
    response = client.call(SaslAuthenticateRequest(auth_bytes=message))
    if response.auth_bytes:
        response = client.call(SaslAuthenticateRequest(auth_bytes=ERROR_ANSWER))
    return Login(response.error_code, response.error_message, response.session_lifetime_ms)


def try_token(broker: Broker, token: str) -> Login:
    with RawClient(broker.port) as client:
        return log_in(client, token)


def refusal(broker: Broker, token: str) -> str:
    """Log in with a token that is refused. Returns the reason."""
    login = try_token(broker, token)
    assert login.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert login.text is not None
    return login.text.removeprefix("Authentication failed: ")


@pytest.mark.parametrize("algorithm", ["RS256", "PS512", "ES256", "ES384", "ES512", "Ed25519"])
def test_algorithms(tmp_path: Path, algorithm: str) -> None:
    issuer = TokenIssuer(tmp_path / "jwks.json", algorithm=algorithm)
    with start(issuer) as broker, RawClient(broker.port) as client:
        login = log_in(client, issuer.token(lifetime=100))
        assert login.code == 0
        assert 50_000 < login.lifetime_ms <= 100_000
        assert client.call(MetadataRequest(topics=[]), 12).brokers
        [connection] = broker.connections.open
        assert connection.session.principal == "User:alice"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"lifetime": -60}, "the token has expired"),
        ({"exp": None}, "the token's claim 'exp' is missing or not accepted"),
        ({"exp": "soon"}, "the token's claim 'exp' is missing or not accepted"),
        ({"exp": 1e999}, "the token's claim 'exp' is missing or not accepted"),
        ({"iat": None}, "the token's claim 'iat' is missing or not accepted"),
        ({"nbf": time.time() + 3600}, "the token"),
        ({"sub": None}, "the token's claim 'sub' is missing or not accepted"),
        ({"sub": ""}, "the token's claim 'sub' is missing or not accepted"),
        ({"sub": 7}, "the token's claim 'sub' is missing or not accepted"),
        ({"aud": None}, "the token's claim 'aud' is missing or not accepted"),
        ({"aud": "mail"}, "the token's claim 'aud' is missing or not accepted"),
        ({"iss": "https://other.example"}, "the token's claim 'iss' is missing or not accepted"),
        ({"scope": 5}, "the token's claim 'scope' is missing or not accepted"),
        ({"aud": [{}]}, "the token's claim 'aud' is missing or not accepted"),
    ],
)
def test_claims_that_are_refused(
    broker: Broker, issuer: TokenIssuer, claims: dict[str, object], reason: str
) -> None:
    assert refusal(broker, issuer.token(**claims)).startswith(reason)  # type: ignore[arg-type]


def test_one_of_several_audiences(broker: Broker, issuer: TokenIssuer) -> None:
    assert try_token(broker, issuer.token(aud=["mail", "kafka"])).code == 0


def test_the_clocks_may_differ(issuer: TokenIssuer) -> None:
    with start(issuer, **{"sasl.oauthbearer.clock.skew.seconds": "120"}) as broker:
        assert try_token(broker, issuer.token(lifetime=-60)).code == 0
        assert refusal(broker, issuer.token(lifetime=-180)) == "the token has expired"


def test_names_of_claims_and_scopes(issuer: TokenIssuer) -> None:
    properties = {
        "sasl.oauthbearer.sub.claim.name": "user",
        "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.scope.claim.name": "scp",
        "krammar.oauthbearer.required.scope": "read,write",
    }
    with start(issuer, **properties) as broker:
        assert try_token(broker, issuer.token(user="bob", scp="write other read")).code == 0
        assert try_token(broker, issuer.token(user="bob", scp=["read", "write"])).code == 0
        assert "'scp'" in refusal(broker, issuer.token(user="bob", scp=["read", {}]))
        assert "'scp'" in refusal(broker, issuer.token(user="bob", scope="read write"))
        assert "'user'" in refusal(broker, issuer.token(scp="read write"))


def hmac_token(header: dict[str, Any], claims: dict[str, Any], secret: bytes) -> str:
    """Sign a token with a shared secret. joserfc refuses to do so with a public key."""

    def encode(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    parts = ".".join(encode(json.dumps(part).encode()) for part in (header, claims))
    hashed = hmac.digest(secret, parts.encode(), f"sha{header['alg'][2:]}")
    return f"{parts}.{encode(hashed)}"


def test_signatures_and_algorithms_that_are_refused(tmp_path: Path) -> None:
    issuer = TokenIssuer(tmp_path / "jwks.json", algorithm="RS256")
    header = {"kid": issuer.key.kid}
    claims = {"sub": "eve", "iss": issuer.issuer, "aud": issuer.audience}
    claims |= {"iat": int(time.time()), "exp": int(time.time()) + 60}  # type: ignore[dict-item]
    with start(issuer) as broker:
        assert "alg" in refusal(broker, unsecured_token(claims))
        # The public key, which everyone knows, as a shared secret.
        secret = issuer.key.as_bytes("PEM", private=False)
        for algorithm in ("HS256", "HS512"):
            forged = hmac_token({**header, "alg": algorithm}, claims, secret)
            assert "alg" in refusal(broker, forged)
        other = RSAKey.generate_key(2048)
        forged = jwt.encode({**header, "alg": "RS256"}, claims, other)
        assert refusal(broker, forged) == "the token's signature is wrong"
        curve = ECKey.generate_key("P-256")
        forged = jwt.encode({**header, "alg": "ES256"}, claims, curve)
        assert refusal(broker, forged).startswith("the token is not accepted: ")
        start_, body, signature = issuer.token().split(".")
        changed = jwt.encode({"alg": "RS256"}, claims, other).split(".")[1]
        assert (
            refusal(broker, f"{start_}.{changed}.{signature}") == "the token's signature is wrong"
        )
        for token in ("x", "a.b.c", "....", f"{start_}.{body}."):
            assert refusal(broker, token).startswith("the token")
        assert try_token(broker, issuer.token()).code == 0


def test_a_key_in_the_token_proves_nothing(broker: Broker, issuer: TokenIssuer) -> None:
    own = ECKey.generate_key("P-256")
    header = {"alg": "ES256", "kid": issuer.key.kid, "jwk": own.as_dict(private=False)}
    claims = {"sub": "eve", "iss": issuer.issuer, "aud": issuer.audience}
    forged = jwt.encode(header, {**claims, "iat": 1, "exp": int(time.time()) + 60}, own)
    assert refusal(broker, forged) == "the token's signature is wrong"


def test_a_renewed_login(broker: Broker, issuer: TokenIssuer) -> None:
    with RawClient(broker.port) as client:
        assert log_in(client, issuer.token(lifetime=100)).code == 0
        broker.call(broker.timers.advance, 2000)
        login = log_in(client, issuer.token(lifetime=1000))
        assert login.code == 0
        assert login.lifetime_ms > 900_000
        assert client.call(MetadataRequest(topics=[]), 12).brokers
        broker.call(broker.timers.advance, 2000)
        login = log_in(client, issuer.token("bob"))
        assert login.code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_rotated_keys_are_found(broker: Broker, issuer: TokenIssuer) -> None:
    old = issuer.token()
    assert try_token(broker, old).code == 0
    issuer.rotate()
    assert refusal(broker, issuer.token()) == "the token's key is not in the JWKS"
    until(lambda: try_token(broker, issuer.token()).code == 0)
    assert refusal(broker, old) == "the token's key is not in the JWKS"


def test_keys_are_read_again_in_time(broker: Broker, issuer: TokenIssuer) -> None:
    old = issuer.token()
    assert try_token(broker, old).code == 0
    issuer.rotate()
    broker.call(broker.timers.advance, 3_600_000)
    until(lambda: "JWKS" in (try_token(broker, old).text or ""))
    assert try_token(broker, issuer.token(lifetime=7200)).code == 0


def test_keys_that_cannot_be_read_again_remain(
    broker: Broker, issuer: TokenIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    assert issuer.file is not None
    with caplog.at_level(logging.WARNING):
        issuer.file.write_text("{")
        broker.call(broker.timers.advance, 3_600_000)
        until(lambda: "is not a JWKS: " in caplog.text)
    assert "; it will be retried" in caplog.text
    assert try_token(broker, issuer.token(lifetime=7200)).code == 0
    issuer.rotate()
    until(lambda: try_token(broker, issuer.token(lifetime=7200)).code == 0)


@contextmanager
def web_server(issuer: TokenIssuer, port: int = 0) -> Iterator[str]:
    """An HTTP server with the JWKS of an issuer. Yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(issuer.jwks).encode()
            self.send_response(200 if self.path == "/jwks" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/jwks"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_endpoint_that_is_down_for_a_while(
    issuer: TokenIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    with web_server(issuer) as url:
        port = int(url.split(":")[2].split("/")[0])
    with caplog.at_level(logging.WARNING), start(issuer, **{URL: url}) as broker:
        assert f"the JWKS {url} cannot be read: " in caplog.text
        reason = "the broker has no keys to verify tokens with yet"
        assert refusal(broker, issuer.token()) == reason
        with web_server(issuer, port):
            until(lambda: try_token(broker, issuer.token()).code == 0)
        # Known keys outlive the endpoint.
        broker.call(broker.timers.advance, 3_600_000)
        assert try_token(broker, issuer.token(lifetime=7200)).code == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: "),
        ("", "is not a JWKS: "),
        ("[]", "is not a JWKS: "),
        ('{"keys": 5}', "is not a JWKS: "),
        ('{"keys": [{"kty": "RSA"}]}', "is not a JWKS: "),
        ('{"keys": []}', "has no public keys"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "has no public keys"),
        ('{"keys": ' + "[" * 100_000, "is not a JWKS: "),
        (" " * (1 << 20) + "{}", "has more than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_jwks(issuer: TokenIssuer, content: str | None, reason: str) -> None:
    assert issuer.file is not None
    issuer.file.unlink()
    if content is not None:
        issuer.file.write_text(content)
    with pytest.raises(ConfigError) as error:
        start(issuer)
    assert str(error.value).startswith(f"{URL}: {issuer.file.as_uri()!r} {reason}")


def test_nested_json_does_not_end_the_refresh(broker: Broker, issuer: TokenIssuer) -> None:
    assert issuer.file is not None
    issuer.file.write_text('{"keys": ' + "[" * 100_000)
    broker.call(broker.timers.advance, 3_600_000)
    issuer.rotate()
    until(lambda: try_token(broker, issuer.token(lifetime=7200)).code == 0)


@pytest.mark.parametrize("exp", [10**30, 1e300, 253_402_300_800])
def test_tokens_that_expire_too_late_for_a_response(
    broker: Broker, issuer: TokenIssuer, caplog: pytest.LogCaptureFixture, exp: float
) -> None:
    login = try_token(broker, issuer.token(exp=exp))
    assert login.code == 0
    assert 0 < login.lifetime_ms < 253_402_300_800_000
    assert not [record for record in caplog.records if record.exc_info]


@contextmanager
def dripping_server() -> Iterator[str]:
    """Sends a byte of its headers now and then, forever. Yields its URL."""
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def drip() -> None:
        while not ended.is_set():
            with suppress(OSError):
                client, _ = listening.accept()
                with client:
                    client.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                    while not ended.wait(0.02):
                        client.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/jwks"
    finally:
        ended.set()
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def test_a_server_that_drips(
    issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Start and stop do not wait for it."""
    monkeypatch.setattr(SignedTokens, "read_seconds", 0.2)
    with dripping_server() as url, start(issuer, **{URL: url}) as broker:
        assert "cannot be read: the answer was not complete within 0.2 s" in caplog.text
        # The stop comes in the middle of a read, which has a long time.
        monkeypatch.setattr(SignedTokens, "read_seconds", PATIENCE * 10)
        until(lambda: any(t.name == "krammar-worker" for t in threading.enumerate()))
        broker.close()


@pytest.mark.parametrize("url", ["jwks.json", "ftp://a/b", "data:,x"])
def test_urls_of_other_kinds(issuer: TokenIssuer, url: str) -> None:
    with pytest.raises(ConfigError, match="is not a URL of the kinds https, http and file"):
        start(issuer, **{URL: url})


def test_without_the_extra(issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("krammar.auth.jwt", "krammar.broker.security.jwt"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "joserfc", None)
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    with pytest.raises(BrokerError, match=r"needs joserfc: pip install 'krammar\[oauth\]'"):
        start(issuer)


def test_librdkafka_logs_in(broker: Broker, issuer: TokenIssuer) -> None:
    def admin(token: str) -> AdminClient:
        return AdminClient(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (token, time.time() + 3600),
                "log_level": 0,
            }
        )

    assert admin(issuer.token()).list_topics(timeout=PATIENCE).brokers
    with pytest.raises(KafkaException):
        admin(issuer.token(lifetime=-60)).list_topics(timeout=1)


def test_our_client_logs_in(
    broker: Broker, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("signed_tokens")
    module.alice = issuer.token  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "signed_tokens", module)
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "krammar.oauthbearer.token.provider": "signed_tokens:alice",
    }
    with Client(broker.bootstrap_servers, settings) as client:
        with client.producer() as producer:
            producer.send("logins", b"x").result()
        assert [record.value for _, record in client.records("logins")] == [b"x"]
