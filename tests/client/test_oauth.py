"""OAUTHBEARER: tokens from an identity provider, a file and a function; logins that are renewed."""

from __future__ import annotations

import socket
import sys
import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kafka_wire import FetchRequest, MetadataRequest

from krammar.auth.oauth import FirstMessage, Jwt, OAuthError
from krammar.broker import Broker
from krammar.client import Client, Settings
from krammar.client.deadline import Deadline
from krammar.client.errors import AuthenticationError, SettingsError
from krammar.client.oauth import Token, Tokens
from tests.broker.security.certificates import Authority
from tests.client.identity import (
    CLIENT_ID,
    SECRET,
    IdentityProvider,
    granted,
    identity_provider,
    token,
)
from tests.support.unsecured import unsecured_token

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker.start(properties=properties) as broker:
        yield broker


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as provider:
        yield provider


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An importable module for functions that return tokens."""
    module = ModuleType("some_tokens")
    monkeypatch.setitem(sys.modules, "some_tokens", module)
    return module


def oidc(provider: IdentityProvider, **more: Any) -> dict[str, Any]:
    return {
        "sasl.oauthbearer.token.endpoint.url": provider.url,
        "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def client(broker: Broker, settings: dict[str, Any]) -> Client:
    return Client(
        broker.bootstrap_servers,
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **settings},
        default_api_timeout_ms=20_000,
    )


def use(broker: Broker, settings: dict[str, Any]) -> None:
    with client(broker, settings) as used:
        assert used.topics() == {}


# Where tokens come from.


def test_client_credentials(broker: Broker, provider: IdentityProvider) -> None:
    use(broker, oidc(provider, sasl_oauthbearer_scope="kafka read"))
    assert provider.requests == [{"grant_type": "client_credentials", "scope": "kafka read"}]


def test_all_connections_of_a_process_share_a_token(
    broker: Broker, provider: IdentityProvider
) -> None:
    for _ in range(3):
        use(broker, oidc(provider))
    assert len(provider.requests) == 1


def test_the_settings_of_java_and_of_librdkafka(broker: Broker, provider: IdentityProvider) -> None:
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    java = {
        "sasl.login.callback.handler.class": handler,
        "sasl.oauthbearer.token.endpoint.url": provider.url,
        "sasl.jaas.config": f'{MODULE} clientId="{CLIENT_ID}" clientSecret="{SECRET}" scope="a" '
        'extension_logicalCluster="lkc-1";',
    }
    use(broker, java)
    librdkafka = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": provider.url,
        "sasl.oauthbearer.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.scope": "b",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
    }
    use(broker, librdkafka)
    assert [request["scope"] for request in provider.requests] == ["a", "b"]


def test_https_with_an_authority_of_its_own(broker: Broker, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with identity_provider(str(authority.issue("identity").store)) as provider:
        with pytest.raises(AuthenticationError, match=r"certificate is refused.*https\.ca"):
            use(broker, oidc(provider))
        use(broker, oidc(provider, https_ca_location=str(authority.certificate)))


def test_a_token_file_is_read_for_each_login(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "my token"
    settings = {"sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    file.write_text(token("alice") + "\n")
    use(broker, settings)
    file.write_text(token("alice", -10))
    with pytest.raises(AuthenticationError, match=r"refuses the token: .*the token has expired"):
        use(broker, settings)
    file.unlink()
    with pytest.raises(AuthenticationError, match="my%20token: it cannot be read: No such file"):
        use(broker, settings)


@pytest.mark.parametrize("form", ["text", "pair in ms", "azure", "object"])
def test_a_function_by_name(broker: Broker, functions: ModuleType, form: str) -> None:
    calls = []
    # azure-identity's AccessToken is a named tuple with seconds; AWS's signer gives milliseconds.
    access_token = namedtuple("access_token", "token expires_on")

    class Information:
        def __init__(self, value: str, expires_on: int) -> None:
            self.token = value
            self.expires_on = expires_on

    def provide() -> Any:
        calls.append(form)
        expires = int(time.time()) + 3600
        return {
            "text": token(),
            "pair in ms": (token(), expires * 1000),
            "azure": access_token(token(), expires),
            "object": Information(token(), expires),
        }[form]

    setattr(functions, f"provide_{len(form)}", provide)
    name = f"some_tokens:provide_{len(form)}"
    settings = {"krammar.oauthbearer.token.provider": name}
    use(broker, settings)
    use(broker, settings)
    assert len(calls) == 1
    # All forms mean the same time.
    at = Deadline(1000, "a test")
    found = Tokens().get(Settings.of({**login("krammar.oauthbearer.token.provider", name)}), at)
    assert found.expires_at is not None and abs(found.expires_at - time.time() - 3600) < 10


def login(*pair: str) -> dict[str, str]:
    return {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        pair[0]: pair[1],
    }


# When a token is replaced.


def test_a_token_is_replaced_after_80_percent_of_its_lifetime(functions: ModuleType) -> None:
    now = 1000.0
    given: Iterator[int] = iter(range(10))
    functions.numbered = lambda: (f"token-{next(given)}", (now + 100) * 1000)  # type: ignore[attr-defined]
    tokens = Tokens(lambda: now)
    settings = Settings.of(login("krammar.oauthbearer.token.provider", "some_tokens:numbered"))
    deadline = Deadline(1000, "a test")

    def value() -> str:
        return tokens.get(settings, deadline).value

    assert value() == "token-0"
    now += 79
    assert value() == "token-0"
    now += 1
    assert value() == "token-1"
    tokens.forget(settings)  # a broker has refused it
    assert value() == "token-2"


def test_a_token_that_cannot_be_replaced_is_used_until_it_expires(functions: ModuleType) -> None:
    now = 1000.0
    tokens = Tokens(lambda: now)
    asked = []

    def provide() -> tuple[str, float]:
        asked.append(now)
        if len(asked) > 1:
            raise RuntimeError("the endpoint is away")
        return "first", (now + 100) * 1000

    functions.provide = provide  # type: ignore[attr-defined]
    settings = Settings.of(login("krammar.oauthbearer.token.provider", "some_tokens:provide"))

    def get() -> str:
        return tokens.get(settings, Deadline(1000, "a test")).value

    assert get() == "first"
    now = 1085.0
    assert [get(), get()] == ["first", "first"]
    assert asked == [1000.0, 1085.0]  # not asked again at once
    now = 1096.0
    assert get() == "first" and len(asked) == 3
    now = 1100.0
    with pytest.raises(AuthenticationError, match="the endpoint is away"):
        get()


def test_a_refused_token_is_not_used_again(broker: Broker, provider: IdentityProvider) -> None:
    provider.answer = lambda: granted("of-no-kind")
    with pytest.raises(AuthenticationError, match=r"refuses the token: .*not a JSON web token"):
        use(broker, oidc(provider))
    provider.answer = lambda: granted(token())
    use(broker, oidc(provider))


def test_the_login_of_an_open_connection_is_renewed(broker: Broker, functions: ModuleType) -> None:
    """While a request is under way, and without a new connection (KIP-368)."""
    lifetimes = []

    def provide() -> str:
        lifetimes.append(30)
        return token("alice", 30)

    functions.short = provide  # type: ignore[attr-defined]
    settings = {"krammar.oauthbearer.token.provider": "some_tokens:short"}
    with client(broker, settings) as used:
        used.topics()
        [connection] = used.cluster.connections
        assert time.monotonic() < connection.session_ends < time.monotonic() + 30
        waiting = connection.send(FetchRequest(max_wait_ms=200, min_bytes=1))
        connection.session_ends = 0.0
        used.topics()
        assert used.cluster.connections == [connection]
        assert waiting.done
        assert connection.session_ends > time.monotonic()
    assert len(lifetimes) == 1  # shared


def test_brokers_cut_connections_whose_token_has_expired(
    broker: Broker, functions: ModuleType
) -> None:
    functions.brief = lambda: token("alice", 0.5)  # type: ignore[attr-defined]
    settings = {"krammar.oauthbearer.token.provider": "some_tokens:brief"}
    with client(broker, settings) as used:
        deadline = Deadline(20_000, "a test")
        connection = used.cluster.any(deadline)
        while connection.closed is None:  # requests on an expired login end it
            deadline.check()
            pending = connection.send(MetadataRequest(topics=[]))
            while not pending.done:
                connection.pump()
        assert connection.closed is not None


# Errors.


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            (400, b'{"error": "invalid_scope", "error_description": "no such scope"}'),
            "HTTP 400: invalid_scope: no such scope",
        ),
        ((404, b"<p>Not here</p>"), "HTTP 404: <p>Not here</p>"),
        ((302, b"http://127.0.0.1:1/elsewhere"), "HTTP 302"),
        ((200, b"[]"), "not a JSON object with access_token"),
        ((200, b'{"token_type": "Bearer"}'), "not a JSON object with access_token"),
        ((200, b'{"access_token": 3}'), "its access_token is not text"),
        ((200, b'{"access_token": "two words"}'), "other than visible ASCII"),
    ],
)
def test_answers_of_the_token_endpoint(
    broker: Broker, provider: IdentityProvider, answer: tuple[int, bytes], message: str
) -> None:
    provider.answer = lambda: answer
    with pytest.raises(AuthenticationError) as error:
        use(broker, oidc(provider))
    assert str(error.value).startswith(f"token endpoint {provider.url}: ")
    assert message in str(error.value)
    assert len(provider.requests) == 1


def test_an_endpoint_that_recovers(broker: Broker, provider: IdentityProvider) -> None:
    answers = iter([(503, b"busy"), (500, b""), granted(token())])
    provider.answer = lambda: next(answers)
    use(broker, oidc(provider, sasl_login_retry_backoff_ms="1"))
    assert len(provider.requests) == 3


def test_an_endpoint_that_is_away(broker: Broker) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/token"
        settings = Settings.of(
            {
                **login("sasl.oauthbearer.token.endpoint.url", url),
                "sasl.oauthbearer.client.id": "a",
                "sasl.oauthbearer.client.secret": "b",
            }
        )
        with pytest.raises(AuthenticationError, match=r"no token in 300 ms.*refused"):
            Tokens().get(settings, Deadline(300, "a test"))


def test_a_wrong_secret(broker: Broker, provider: IdentityProvider) -> None:
    settings = oidc(provider) | {"sasl.oauthbearer.client.secret": None}
    settings["sasl.oauthbearer.client.credentials.client.secret"] = "wrong-one"
    with pytest.raises(AuthenticationError, match="HTTP 401: invalid_client") as error:
        use(broker, settings)
    assert "wrong-one" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("no_such_module_here:token", None, "cannot be imported: No module named"),
        ("some_tokens:missing", None, "cannot be imported: "),
        ("some_tokens:number", lambda: 3, "it returns int; needed is a token as str"),
        ("some_tokens:broken", lambda: {}["nothing"], "it raises KeyError: 'nothing'"),
        ("some_tokens:empty", lambda: "", "the token is empty"),
    ],
)
def test_functions_that_fail(
    broker: Broker, functions: ModuleType, name: str, body: Any, message: str
) -> None:
    if body is not None:
        setattr(functions, name.partition(":")[2], body)
    with pytest.raises(AuthenticationError) as error:
        use(broker, {"krammar.oauthbearer.token.provider": name})
    assert str(error.value).startswith(f"token provider {name}: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {},
            "sasl.oauthbearer.token.endpoint.url: is required with OAUTHBEARER, unless krammar",
        ),
        ({"sasl.oauthbearer.token.endpoint.url": "ftp://a/b"}, "needs a URL that begins with"),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://a/b"},
            "sasl.oauthbearer.client.credentials.client.id: is required",
        ),
        ({"krammar.oauthbearer.token.provider": "tokens"}, "'tokens': needs module:function"),
        (
            {
                "krammar.oauthbearer.token.provider": "a:b",
                "sasl.oauthbearer.token.endpoint.url": "file:///x",
            },
            "cannot be combined with",
        ),
        ({"sasl.oauthbearer.extensions": "auth=x"}, "a name of letters other than 'auth'"),
        ({"sasl.oauthbearer.config": "principal=a"}, "to a function that returns tokens"),
        (
            {"sasl.login.callback.handler.class": "com.example.Handler"},
            "'com.example.Handler': is a Java class; krammar.oauthbearer.token.provider",
        ),
        (
            {"sasl.jaas.config": f'{MODULE} unsecuredLoginStringClaim_sub="alice";'},
            "krammar creates no unsecured tokens",
        ),
        ({"sasl.jaas.config": f'{MODULE} cat="x";'}, "sasl.jaas.config: cat is not supported"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "use OAUTHBEARER with krammar.oauthbearer"),
        ({"sasl.mechanism": "GSSAPI"}, "use one of PLAIN, SCRAM-SHA-256"),
    ],
)
def test_settings(settings: dict[str, str], message: str) -> None:
    given = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
    }
    with pytest.raises(SettingsError) as error:
        Settings.of(given | settings)
    assert message in str(error.value)


def test_secrets_are_not_shown() -> None:
    settings = Settings.of(
        login("sasl.oauthbearer.token.endpoint.url", "https://a/b")
        | {"sasl.jaas.config": f'{MODULE} clientId="i" clientSecret="hush-hush";'}
    )
    assert settings.sasl_oauthbearer_client_credentials_client_secret == "hush-hush"
    assert "hush" not in repr(settings)
    assert "value" not in repr(Token("value", 1.0))


# Messages and tokens.


def test_messages_round_trip() -> None:
    message = FirstMessage("a.b.c", {"logicalCluster": "lkc-1"}, "")
    assert message.encode() == b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01\x01"
    for each in (message, FirstMessage("x", {}, "alice")):
        assert FirstMessage.decode(each.encode()) == each


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer a\x01\x01x",
        b"n,,\x01auth=Bearer a\x01b1=2\x01\x01",
    ],
)
def test_malformed_messages(broker: Broker, message: bytes) -> None:
    with pytest.raises(OAuthError):
        FirstMessage.decode(message)


@pytest.mark.parametrize(
    "malformed", ["", "a.b", "a.b.c", "e30.W10.", "e30.%%%.", f"{'e30.' * 2}x.y"]
)
def test_malformed_tokens(malformed: str) -> None:
    with pytest.raises(OAuthError):
        Jwt.decode(malformed)


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"sub": "a"}, "no claim 'exp'"),
        ({"exp": 4102444800}, "no claim 'sub'"),
        ({"sub": "a", "exp": 1}, "has expired"),
        ({"sub": "a", "exp": "soon"}, "'exp' is not a number"),
    ],
)
def test_claims_that_our_broker_refuses(
    broker: Broker, functions: ModuleType, claims: dict[str, Any], message: str
) -> None:
    functions.odd = lambda: unsecured_token(claims)  # type: ignore[attr-defined]
    with pytest.raises(AuthenticationError) as error:
        use(broker, {"krammar.oauthbearer.token.provider": "some_tokens:odd"})
    assert message in str(error.value)
