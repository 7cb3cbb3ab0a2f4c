"""OAUTHBEARER: our client on Apache Kafka, and librdkafka and Java's tools on our broker."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from confluent_kafka.admin import AdminClient

from krammar.client import Client
from krammar.client.deadline import Deadline
from krammar.client.errors import AuthenticationError
from krammar.testing.tokens import TokenIssuer
from tests.client.identity import token
from tests.interop.apache import ApacheKafka, tool
from tests.interop.conftest import our_broker
from tests.interop.processes import Server
from tests.ports import free_port
from tests.support.unsecured import unsecured_token
from tests.support.waiting import PATIENCE

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
VALIDATOR = f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler"
CLIENT_HANDLER = f"{_PACKAGE}.OAuthBearerLoginCallbackHandler"
LOGIN = f'{MODULE} required unsecuredLoginStringClaim_sub="alice";'


def add_listener(server: Server) -> int:
    """Add a listener with unsecured tokens, and return its port."""
    port = free_port()
    listeners = {"PLAINTEXT": server.port, "SASL_PLAINTEXT": port}
    if isinstance(server, ApacheKafka):
        listeners["CONTROLLER"] = server.controller_port
    server.properties |= {
        "listeners": ",".join(f"{name}://127.0.0.1:{at}" for name, at in listeners.items()),
        "listener.security.protocol.map": ",".join(
            f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in listeners
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": LOGIN,
    }
    return port


@pytest.fixture(scope="module")
def kafka(kafka_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Apache Kafka's listener with OAUTHBEARER."""
    server = ApacheKafka(tmp_path_factory.mktemp("kafka") / "data")
    port = add_listener(server)
    with server:
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our broker's listener with OAUTHBEARER."""
    server = our_broker(tmp_path_factory.mktemp("ours") / "data")
    port = add_listener(server)
    with server:
        yield f"127.0.0.1:{port}"


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("interop_tokens")
    monkeypatch.setitem(sys.modules, "interop_tokens", module)
    return module


def client(servers: str, function: str, **more: str) -> Client:
    """A client that gets its tokens from a function. Tokens are shared by the function's name."""
    return Client(
        servers,
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "krammar.oauthbearer.token.provider": f"interop_tokens:{function}",
        },
        default_api_timeout_ms=30_000,
        **more,
    )


def test_our_client_logs_in(kafka: str, tokens: ModuleType) -> None:
    tokens.good = token  # type: ignore[attr-defined]
    with client(kafka, "good", sasl_oauthbearer_extensions="traceId=123") as used:
        with used.producer() as producer:
            producer.send("logins", b"x").result()
        assert [record.value for _, record in used.records("logins")] == [b"x"]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("expired", unsecured_token({"sub": "a", "exp": 1})), ("malformed", "of-no-kind")],
)
def test_kafka_refuses_a_token(kafka: str, tokens: ModuleType, name: str, wrong: str) -> None:
    setattr(tokens, name, lambda: wrong)
    with (
        client(kafka, name) as used,
        pytest.raises(AuthenticationError, match="refuses the token") as error,
    ):
        used.topics()
    assert str(error.value).startswith(f"{kafka}: ")


def test_a_login_is_renewed_before_its_token_expires(kafka: str, tokens: ModuleType) -> None:
    """Kafka cuts a connection whose token has expired. Ours stays open past that (KIP-368)."""
    tokens.brief = lambda: token("alice", 3)  # type: ignore[attr-defined]
    with client(kafka, "brief") as used:
        deadline = Deadline(30_000, "a test")
        used.topics()
        [connection] = used.cluster.connections
        first = connection.session_ends
        assert first < time.monotonic() + 3
        while connection.session_ends < first + 5:
            deadline.check()
            used.topics()
        assert used.cluster.connections == [connection]


def test_librdkafka_logs_in(ours: str) -> None:
    admin = AdminClient(
        {
            "bootstrap.servers": ours,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token(), time.time() + 3600),
        }
    )
    assert admin.list_topics(timeout=PATIENCE).brokers


def test_java_logs_in(kafka_jars: str, ours: str, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={LOGIN}\n"
    )
    done = tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", ours, "--command-config", str(config)),
        *("--create", "--topic", "from-java"),
    )
    assert "Created topic from-java" in done.stdout


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("issuer") / "jwks.json", algorithm="RS256")


@pytest.fixture(scope="module")
def signed(issuer: TokenIssuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our broker's listener with signed tokens, with the settings as Kafka needs them."""
    server = our_broker(tmp_path_factory.mktemp("signed") / "data")
    port = add_listener(server)
    handler = "sasl.server.callback.handler.class"
    server.properties |= issuer.properties | {
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{MODULE} required;",
        f"listener.name.sasl_plaintext.oauthbearer.{handler}": VALIDATOR,
    }
    with server:
        yield f"127.0.0.1:{port}"


@pytest.mark.parametrize("valid", [True, False])
def test_java_logs_in_with_a_signed_token(
    kafka_jars: str, signed: str, issuer: TokenIssuer, tmp_path: Path, valid: bool
) -> None:
    """Java's client reads the token from a file."""
    file = tmp_path / "token"
    file.write_text(issuer.token(aud="kafka" if valid else "mail"))
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={MODULE} required;\n"
        f"sasl.oauthbearer.token.endpoint.url={file.as_uri()}\n"
        f"sasl.login.callback.handler.class={CLIENT_HANDLER}\n"
    )
    done = tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", signed, "--command-config", str(config)),
        *("--create", "--topic", "signed"),
        check=False,
        jvm=(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={file.as_uri()}",),
    )
    assert ("Created topic signed" in done.stdout) is valid
    if not valid:
        assert "the token's claim 'aud' is missing or not accepted" in done.stdout + done.stderr
