"""TLS on both sides of the proxy, with real clients."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, Producer
from kafka_wire import ApiVersionsRequest, ApiVersionsResponse

from krammar.client import At, Client
from krammar.client.errors import AuthenticationError, TransportError, UnreachableError
from krammar.proxy import Connection, Exchange, Filter, Proxy, on
from krammar.testing import KafkaBroker
from tests.proxy.support import address, answering
from tests.support.waiting import PATIENCE
from tests.tap.support import upstream as running

VALUES = [b"order %d" % number for number in range(50)]


class Certificates:
    """The files of one authority: the proxy's certificate, and a client's."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca = str(folder / "ca.pem")
        self.proxy = str(folder / "proxy.pem")
        self.client = str(folder / "client.pem")
        self.authority.cert_pem.write_to_path(self.ca)
        self.issue(self.proxy, "localhost", "127.0.0.1", "::1")
        self.issue(self.client, "alice@example.org", common_name="alice")

    def issue(self, path: str, *names: str, common_name: str | None = None) -> None:
        issued = self.authority.issue_cert(*names, common_name=common_name)
        text = issued.private_key_pem.bytes() + issued.cert_chain_pems[0].bytes()
        Path(path).write_bytes(text)

    @property
    def clients(self) -> dict[str, str]:
        """The proxy's settings for its clients."""
        return {"security.protocol": "SSL", "ssl.keystore.location": self.proxy}

    @property
    def ask(self) -> dict[str, str]:
        """The same, with certificates of clients."""
        more = {"ssl.client.auth": "required", "ssl.truststore.location": self.ca}
        return self.clients | more

    @property
    def own(self) -> dict[str, str]:
        """A client's settings."""
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.client,
            "ssl.key.location": self.client,
        }


@pytest.fixture
def files(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


class Principals(Filter):
    """Collects who has asked for versions."""

    def __init__(self) -> None:
        self.opened_by: list[str | None] = []
        self.asked: list[str | None] = []

    def opened(self, connection: Connection) -> None:
        self.opened_by.append(connection.principal)

    @on(ApiVersionsRequest, ApiVersionsResponse)
    def watch(self, message: Any, exchange: Exchange) -> None:
        self.asked.append(exchange.connection.principal)


Talk = Callable[[dict[str, str]], list[bytes | None]]


def confluent(settings: dict[str, str]) -> list[bytes | None]:
    """Send ``VALUES`` through confluent-kafka, and return what it reads."""
    producer = Producer(settings)
    for value in VALUES:
        producer.produce("orders", value)
    assert producer.flush(PATIENCE) == 0
    consumer = Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found: list[bytes | None] = []
    while len(found) < len(VALUES):
        message = consumer.poll(PATIENCE)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return found


def connect(settings: dict[str, Any]) -> Client:
    """Return krammar's client for settings with dots in their names."""
    return Client(**{name.replace(".", "_"): value for name, value in settings.items()})


def krammar(settings: dict[str, str]) -> list[bytes | None]:
    """Send ``VALUES`` through krammar's client, and return what it reads."""
    with connect(settings) as client:
        with client.producer() as producer:
            for value in VALUES:
                producer.send("orders", value)
        records = client.records("orders", begin=At.EARLIEST, end=At.LATEST)
        return [record.value for _, record in records]


@pytest.mark.parametrize("talk", [confluent, krammar])
def test_tls_of_clients(talk: Talk, files: Certificates) -> None:
    watch = Principals()
    with (
        KafkaBroker.start(topics=["orders"]) as broker,
        Proxy.start(broker.bootstrap_servers, [watch], clients=files.ask) as proxy,
    ):
        assert talk({"bootstrap.servers": proxy.bootstrap_servers, **files.own}) == VALUES
    names = {*watch.opened_by, *watch.asked}
    assert len(names) == 1
    assert str(names.pop()).startswith("CN=alice,")


def test_principals_follow_the_mapping_rules(files: Certificates) -> None:
    watch = Principals()
    rules = files.ask | {"ssl.principal.mapping.rules": "RULE:^CN=([^,]*),.*$/$1/U"}
    with (
        KafkaBroker.start(topics=["orders"]) as broker,
        Proxy.start(broker.bootstrap_servers, [watch], clients=rules) as proxy,
        connect({"bootstrap.servers": proxy.bootstrap_servers, **files.own}) as client,
    ):
        assert set(client.topics()) == {"orders"}
    assert set(watch.asked) == {"ALICE"}


def test_a_certificate_without_a_rule_is_refused(
    files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    rules = files.ask | {"ssl.principal.mapping.rules": "RULE:^CN=nobody$/x/"}
    own = files.own | {"default.api.timeout.ms": "2000", "request.timeout.ms": "2000"}
    with (
        KafkaBroker.start() as broker,
        Proxy.start(broker.bootstrap_servers, clients=rules) as proxy,
        pytest.raises((TransportError, UnreachableError)),
        connect({"bootstrap.servers": proxy.bootstrap_servers, **own}) as client,
    ):
        client.topics()
    assert "no mapping rule matches CN=alice," in caplog.text


def test_a_client_without_certificate_is_refused(
    files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"security.protocol": "SSL", "ssl.ca.location": files.ca}
    with (
        KafkaBroker.start() as broker,
        Proxy.start(broker.bootstrap_servers, clients=files.ask) as proxy,
        pytest.raises(AuthenticationError, match="requires a client certificate"),
        connect({"bootstrap.servers": proxy.bootstrap_servers, **settings}) as client,
    ):
        client.topics()
    assert "the client sent no certificate, but ssl.client.auth=required" in caplog.text


def test_a_client_without_tls_is_refused(
    files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        KafkaBroker.start() as broker,
        Proxy.start(broker.bootstrap_servers, clients=files.clients) as proxy,
        socket.create_connection(address(proxy), timeout=PATIENCE) as client,
    ):
        client.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
        assert client.recv(1) == b""
    assert "TLS handshake failed" in caplog.text


@pytest.mark.parametrize("talk", [confluent, krammar])
def test_tls_to_brokers(talk: Talk) -> None:
    with (
        KafkaBroker.start({"ssl.client.auth": "required"}, topics=["orders"], tls=True) as broker,
        Proxy.start(broker.bootstrap_servers, brokers=to(broker)) as proxy,
    ):
        assert talk({"bootstrap.servers": proxy.bootstrap_servers}) == VALUES


def test_tls_on_both_sides(files: Certificates) -> None:
    with (
        KafkaBroker.start(topics=["orders"], tls=True) as broker,
        Proxy.start(broker.bootstrap_servers, clients=files.clients, brokers=to(broker)) as proxy,
    ):
        assert confluent({"bootstrap.servers": proxy.bootstrap_servers, **files.own}) == VALUES


def to(broker: KafkaBroker) -> dict[str, Any]:
    """The proxy's settings for a broker."""
    settings = broker.clients.confluent_kafka
    return {name: value for name, value in settings.items() if name != "bootstrap.servers"}


def test_a_broker_that_is_not_trusted(
    files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"security.protocol": "SSL", "ssl.ca.location": files.ca}
    with (
        KafkaBroker.start(tls=True) as broker,
        Proxy.start(broker.bootstrap_servers, brokers=settings) as proxy,
        socket.create_connection(address(proxy), timeout=PATIENCE) as client,
    ):
        assert client.recv(1) == b""
    assert "TLS: the server's certificate is refused: " in caplog.text


def test_a_broker_with_another_name(files: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    files.issue(files.proxy, "other.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.proxy)

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1)

    settings = {"security.protocol": "SSL", "ssl.ca.location": files.ca}
    with (
        running(serve) as broker,
        Proxy.start(str(broker.address), brokers=settings) as proxy,
        socket.create_connection(address(proxy), timeout=PATIENCE) as client,
    ):
        assert client.recv(1) == b""
    assert "IP address mismatch, certificate is not valid for '127.0.0.1'" in caplog.text


def test_a_broker_that_requires_a_certificate(
    files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with KafkaBroker.start({"ssl.client.auth": "required"}, tls=True) as broker:
        assert broker.clients.tls is not None
        settings = {"security.protocol": "SSL", "ssl.ca.location": broker.clients.tls.ca}
        with (
            Proxy.start(broker.bootstrap_servers, brokers=settings) as proxy,
            socket.create_connection(address(proxy), timeout=PATIENCE) as client,
        ):
            assert client.recv(1) == b""
    assert "TLS: the broker requires a client certificate" in caplog.text


def test_a_broker_without_tls(files: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"security.protocol": "SSL", "ssl.ca.location": files.ca}
    with (
        running(lambda connection: connection.sendall(b"\0\0\0\0\0\0")) as broker,
        Proxy.start(str(broker.address), brokers=settings) as proxy,
        socket.create_connection(address(proxy), timeout=PATIENCE) as client,
    ):
        assert client.recv(1) == b""
    assert f"cannot reach {broker.address}: TLS: " in caplog.text


def test_a_plain_client_that_closes_its_side_gets_its_response_from_a_tls_broker(
    files: Certificates,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.proxy)

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            answering()(secured)

    settings = {"security.protocol": "SSL", "ssl.ca.location": files.ca}
    with (
        running(serve) as broker,
        Proxy.start(str(broker.address), brokers=settings) as proxy,
        socket.create_connection(address(proxy), timeout=PATIENCE) as client,
    ):
        client.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
        client.shutdown(socket.SHUT_WR)
        data = b""
        while piece := client.recv(65536):
            data += piece
        assert data[4:8] == b"\0\0\0\1"


def test_draining_over_tls_waits_for_responses(files: Certificates) -> None:
    with KafkaBroker.start(topics=["orders"]) as broker:
        proxy = Proxy.start(broker.bootstrap_servers, clients=files.clients)
        producer = Producer({"bootstrap.servers": proxy.bootstrap_servers, **files.own})
        for value in VALUES:
            producer.produce("orders", value)
        assert producer.flush(PATIENCE) == 0
        proxy.close()
        assert len(broker.records("orders")) == len(VALUES)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: 'TLS' needs one of PLAINTEXT, SSL"),
        ({"security.protocol": "SSL"}, "ssl.keystore.location: is missing"),
        ({"ssl.keystore.location": "x"}, "needs security.protocol=SSL or SASL_SSL"),
        ({"acks": "1"}, "clients: acks: unknown setting"),
        (
            {"security.protocol": "SSL", "ssl.keystore.location": "/no/file.pem"},
            "clients: ssl.keystore.location: '/no/file.pem' cannot be read: No such file",
        ),
    ],
)
def test_bad_settings_for_clients(clients: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Proxy("localhost:9092", clients=clients)


@pytest.mark.parametrize(
    ("brokers", "message"),
    [
        ({"acks": "1"}, "brokers: acks: is not about TLS or logins"),
        ({"security.protocol": "TLS"}, "brokers: security.protocol: "),
        ({"security.protocol": "SASL_SSL"}, "brokers: sasl.mechanism: is required"),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/no/file.pem"},
            "brokers: ssl.ca.location: /no/file.pem cannot be used",
        ),
    ],
)
def test_bad_settings_for_brokers(brokers: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Proxy("localhost:9092", brokers=brokers)
