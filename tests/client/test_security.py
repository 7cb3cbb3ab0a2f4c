"""TLS and logins, with the right keys and passwords and with wrong ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from krammar.auth.scram import BY_NAME
from krammar.broker import Broker
from krammar.broker.security import scram
from krammar.broker.security.users import record_of
from krammar.client import Client
from krammar.client.errors import AuthenticationError, SettingsError, TransportError
from tests.broker.certificates import Authority, Pair

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
            record_of("alice", mechanism, scram.new_credential(mechanism, PASSWORD))
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
    with pytest.raises(AuthenticationError, match=f"127.0.0.1.*login of '{user}' refused") as error:
        use(
            site.server("SASL_PLAINTEXT"),
            "SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_username=user,
            sasl_password=password,
        )
    assert password not in str(error.value)
    assert not error.value.retriable


def test_a_mechanism_that_the_broker_does_not_have(tmp_path: Path) -> None:
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    with (
        Broker.start(properties=properties) as broker,
        pytest.raises(AuthenticationError, match=r"no PLAIN; it has SCRAM-SHA-256"),
    ):
        use(
            broker.bootstrap_servers,
            "SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="alice",
            sasl_password="x",
        )


def test_logins_that_end(site: Site) -> None:
    """A login that holds for a minute is followed by another before it is over (KIP-368)."""
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
        [second] = client.cluster.connections
        assert second is not first


def test_tls_with_files_and_with_text(site: Site) -> None:
    use(site.server("SSL"), "SSL", ssl_ca_location=str(site.authority.certificate))
    use(site.server("SSL"), "SSL", ssl_truststore_location=str(site.authority.certificate))
    use(site.server("SSL"), "SSL", ssl_ca_pem=site.authority.certificate.read_text())


@pytest.mark.parametrize("form", ["two files", "one file", "text", "encrypted"])
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


def test_no_certificate_where_one_is_required(site: Site) -> None:
    """With TLS 1.3 the broker refuses it after the handshake, by closing the connection."""
    with (
        Client(
            site.server("MUTUAL"),
            security_protocol="SSL",
            ssl_ca_location=str(site.authority.certificate),
        ) as client,
        pytest.raises((AuthenticationError, TransportError), match="certificate"),
    ):
        client.topics(timeout_ms=300)


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
    pair = authority.issue("elsewhere")
    extensions = tmp_path / "elsewhere.ext"
    extensions.write_text("subjectAltName=DNS:elsewhere.example\n")
    request = tmp_path / "elsewhere.csr"
    authority._run(
        *("x509", "-req", "-in", request, "-CA", authority.certificate, "-CAkey", authority.key),
        *("-CAcreateserial", "-days", "2", "-out", pair.certificate, "-extfile", extensions),
    )
    pair.store.write_text(pair.key.read_text() + pair.certificate.read_text())
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
        ({"ssl.certificate.location": "/nowhere.pem"}, "ssl.certificate.location"),
        ({"ssl.key.location": "/nowhere.pem"}, "ssl.certificate.location"),
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
