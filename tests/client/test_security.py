"""TLS and logins, with the right keys and passwords and with wrong ones."""

from __future__ import annotations

import socket
import ssl
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from krammar.auth import scram_server
from krammar.auth.scram import BY_NAME
from krammar.broker import Broker
from krammar.broker.security.users import record_of
from krammar.client import Client
from krammar.client.errors import AuthenticationError, SettingsError, TransportError
from tests.broker.security.certificates import Authority, Pair

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PASSWORD = "al,ice=sécret"


@dataclass(frozen=True)
class Site:
    broker: Broker
    authority: Authority
    pair: Pair
    stranger: Pair

    def server(self, listener: str, host: str = "127.0.0.1") -> str:
        return f"{host}:{self.broker.addresses[listener][1]}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    server = authority.issue("server")
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "MUTUAL")
    protocols = {"MUTUAL": "SSL"}
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": ",".join(f"{n}:{protocols.get(n, n)}" for n in names),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms": "60000",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login} user_alice="{PASSWORD}";',
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{login} user_alice="{PASSWORD}";',
    }
    with Broker.start(properties=properties) as broker:
        records = [
            record_of("alice", mechanism, scram_server.new_credential(mechanism, PASSWORD))
            for mechanism in BY_NAME.values()
        ]
        broker.call(broker.cluster.append, records)
        stranger = Authority(folder, "stranger").issue("outsider")
        yield Site(broker, authority, authority.issue("client"), stranger)


def use(server: str, protocol: str, **settings: Any) -> None:
    """Write and read a record."""
    with Client(
        server, {"security.protocol": protocol}, default_api_timeout_ms=20_000, **settings
    ) as client:
        with client.producer() as producer:
            offset = producer.send("t", b"x").result().offset
        assert list(client.records("t", begin=offset))


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_logins(site: Site, protocol: str, mechanism: str) -> None:
    use(
        site.server(protocol),
        protocol,
        sasl_mechanism=mechanism,
        sasl_username="alice",
        sasl_password=PASSWORD,
        ssl_ca_location=str(site.authority.certificate),
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("mallory", PASSWORD)])
def test_a_wrong_password_is_refused_at_once(
    site: Site, mechanism: str, user: str, password: str
) -> None:
    with pytest.raises(
        AuthenticationError, match=f"127.0.0.1.*refuses the login of '{user}'"
    ) as error:
        use(
            site.server("SASL_PLAINTEXT"),
            "SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_username=user,
            sasl_password=password,
        )
    assert password not in str(error.value)
    assert not error.value.retriable


def test_a_server_that_asks_for_many_iterations(site: Site) -> None:
    kind = BY_NAME["SCRAM-SHA-256"]
    record = record_of("busy", kind, scram_server.new_credential(kind, PASSWORD, 150_000))
    site.broker.call(site.broker.cluster.append, [record])
    login = {
        "sasl_mechanism": kind.name,
        "sasl_username": "busy",
        "sasl_password": PASSWORD,
    }
    server = site.server("SASL_PLAINTEXT")
    with pytest.raises(AuthenticationError) as error:
        use(server, "SASL_PLAINTEXT", **login)
    assert str(error.value) == (
        f"{server}: SCRAM-SHA-256: the server requests 150000 iterations, more than the client's limit "
        "of 100000 (set krammar.scram.max.iterations to allow them)"
    )
    assert not error.value.retriable
    use(server, "SASL_PLAINTEXT", krammar_scram_max_iterations=150_000, **login)


def test_a_mechanism_that_the_broker_does_not_have(tmp_path: Path) -> None:
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    with (
        Broker.start(properties=properties) as broker,
        pytest.raises(AuthenticationError, match=r"does not support PLAIN, but SCRAM-SHA-256"),
    ):
        use(
            broker.bootstrap_servers,
            "SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="alice",
            sasl_password="x",
        )


def test_logins_that_end(site: Site) -> None:
    """A login that expires after a minute is renewed on the same connection (KIP-368)."""
    with Client(
        site.server("SASL_PLAINTEXT"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="alice",
        sasl_password=PASSWORD,
    ) as client:
        client.topics()
        [first] = client.cluster.connections
        assert first.session_ends < time.monotonic() + 60
        first.session_ends = 0.0
        client.topics()
        assert client.cluster.connections == [first]
        assert first.session_ends > time.monotonic()


def test_tls_with_files_and_with_text(site: Site) -> None:
    use(site.server("SSL"), "SSL", ssl_ca_location=str(site.authority.certificate))
    use(site.server("SSL"), "SSL", ssl_truststore_location=str(site.authority.certificate))
    text = site.authority.certificate.read_text()
    for pem in (text, text.replace("\n", " ")):
        use(site.server("SSL"), "SSL", ssl_ca_pem=pem)


@pytest.mark.parametrize(
    "form", ["two files", "one file", "text", "one line", "mixed", "encrypted"]
)
def test_certificates_of_clients(site: Site, form: str) -> None:
    pair = site.pair
    settings: dict[str, str] = {
        "two files": {
            "ssl.certificate.location": str(pair.certificate),
            "ssl.key.location": str(pair.key),
        },
        "one file": {"ssl.keystore.location": str(pair.store), "ssl.keystore.type": "PEM"},
        "text": {
            "ssl.keystore.certificate.chain": pair.certificate.read_text(),
            "ssl.keystore.key": pair.key.read_text(),
        },
        "one line": {
            "ssl.keystore.certificate.chain": pair.certificate.read_text().replace("\n", " "),
            "ssl.keystore.key": pair.key.read_text().replace("\n", " "),
        },
        "mixed": {
            "ssl.certificate.location": str(pair.certificate),
            "ssl.key.pem": pair.key.read_text(),
        },
        "encrypted": {
            "ssl.keystore.location": str(site.authority.encrypt(pair, "hush")),
            "ssl.key.password": "hush",
        },
    }[form]
    use(
        site.server("MUTUAL"),
        "SSL",
        ssl_ca_location=str(site.authority.certificate),
        **settings,
    )


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("who", ["nobody", "stranger"])
def test_certificates_that_are_refused(
    site: Site,
    loop: str,
    who: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With TLS 1.3 the broker refuses them after the client's handshake. The client learns why, and does
    not try again."""
    if loop == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    pair = None if who == "nobody" else site.stranger
    told = {
        "nobody": "the broker requires a client certificate: set ssl.certificate.location",
        "stranger": "the broker does not trust the client's certificate",
    }[who]
    logged = {
        "nobody": "the client sent no certificate, but ssl.client.auth=required",
        "stranger": "the client's certificate is not trusted: unable to get local issuer",
    }[who]
    properties = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(site.authority.issue("server").store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(site.authority.certificate),
        "ssl.client.auth": "required",
    }
    with (
        Broker.start(properties=properties) as broker,
        Client(
            broker.bootstrap_servers,
            security_protocol="SSL",
            ssl_ca_location=str(site.authority.certificate),
            **(
                {}
                if pair is None
                else {
                    "ssl_certificate_location": str(pair.certificate),
                    "ssl_key_location": str(pair.key),
                }
            ),
        ) as client,
    ):
        with pytest.raises(AuthenticationError, match=told) as error:
            client.topics(timeout_ms=100_000)
        assert not error.value.retriable
    [line] = [message for message in caplog.messages if "handshake" in message]
    assert logged in line


def test_a_server_that_is_not_trusted(site: Site) -> None:
    with pytest.raises(AuthenticationError, match="certificate is refused"):
        use(site.server("SSL"), "SSL")
    other = site.authority.folder / "stranger.pem"
    with pytest.raises(AuthenticationError, match="certificate is refused"):
        use(site.server("SSL"), "SSL", ssl_ca_location=str(other))
    with Client(
        site.server("SSL"), security_protocol="SSL", enable_ssl_certificate_verification=False
    ) as client:
        client.topics()


def test_the_name_of_the_server_is_checked(tmp_path: Path) -> None:
    """The certificate is for loopback by name and by address; here for another name alone."""
    authority = Authority(tmp_path)
    pair = authority.issue("elsewhere", names="DNS:elsewhere.example")
    properties = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pair.store),
    }
    trust = str(authority.certificate)
    with Broker.start(properties=properties) as broker:
        server = broker.bootstrap_servers
        with pytest.raises(AuthenticationError, match="certificate is refused"):
            use(server, "SSL", ssl_ca_location=trust)
        use(
            server,
            "SSL",
            ssl_ca_location=trust,
            ssl_endpoint_identification_algorithm="",
        )


def test_certificates_that_strict_verification_refuses(tmp_path: Path) -> None:
    """Java's clients and librdkafka accept them, and so do we on every Python."""
    authority = Authority(tmp_path, strict=False)
    properties = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("server").store),
    }
    strict = ssl.create_default_context(cafile=authority.certificate)
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    with Broker.start(properties=properties) as broker:
        address = broker.addresses["SSL"]
        with (
            socket.create_connection(address) as plain,
            pytest.raises(ssl.SSLCertVerificationError, match="key usage"),
        ):
            strict.wrap_socket(plain, server_hostname=address[0])
        use(broker.bootstrap_servers, "SSL", ssl_ca_location=str(authority.certificate))


def test_the_wrong_protocol_ends_in_time(site: Site) -> None:
    for listener, protocol in [("PLAINTEXT", "SSL"), ("SSL", "PLAINTEXT")]:
        with (
            Client(
                site.server(listener),
                security_protocol=protocol,
                socket_connection_setup_timeout_ms=500,
            ) as client,
            pytest.raises((AuthenticationError, TransportError)),
        ):
            client.topics(timeout_ms=1000)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"ssl.ca.location": "/nowhere.pem"}, "ssl.ca.location"),
        ({"ssl.ca.pem": "nonsense"}, "ssl.ca.pem"),
        ({"ssl.certificate.pem": "nonsense"}, "ssl.certificate.location"),
        ({"ssl.certificate.location": "/nowhere.pem"}, "ssl.certificate.location"),
        ({"ssl.key.location": "/nowhere.pem"}, "ssl.key.location"),
    ],
)
def test_files_that_cannot_be_used(settings: dict[str, str], name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Client("127.0.0.1:1", {"security.protocol": "SSL", **settings})
    assert caught.value.name == name


def test_a_password_that_does_not_fit_the_key(site: Site) -> None:
    store = site.authority.encrypt(site.pair, "hush")
    for password in ({}, {"ssl.key.password": "wrong"}):
        with pytest.raises(SettingsError, match=r"ssl\.certificate\.location"):
            Client(
                "127.0.0.1:1",
                {"security.protocol": "SSL", "ssl.keystore.location": str(store), **password},
            )
