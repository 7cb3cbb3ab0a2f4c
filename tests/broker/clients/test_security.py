"""Real clients on listeners with all security protocols, with valid and invalid credentials."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka_wire import ApiVersionsRequest, MetadataRequest

from krammar.auth import scram_server
from krammar.auth.scram import BY_NAME, SHA_256
from krammar.auth.tls_acceptor import HANDSHAKE_SECONDS
from krammar.broker import Broker
from krammar.broker.security.users import record_of
from tests.broker.requests import create_topic
from tests.broker.security.certificates import Authority, Pair
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE, until

TOPIC = "letters"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True)
class Site:
    """A broker with a listener for each security protocol, and its users."""

    broker: Broker
    authority: Authority
    client: Pair
    stranger: Pair

    def port(self, listener: str) -> int:
        return self.broker.addresses[listener][1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    server = authority.issue("server")
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "MUTUAL")
    properties = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": ",".join(
            f"{name}:{'SSL' if name == 'MUTUAL' else name}" for name in names
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_alice="alice-secret";',
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker.start(properties=properties) as broker:
        with RawClient(broker.port) as client:
            create_topic(client, TOPIC)
        broker.call(
            broker.cluster.append,
            [
                record_of("alice", kind, scram_server.new_credential(kind, "alice-secret"))
                for kind in BY_NAME.values()
            ],
        )
        yield Site(
            broker,
            authority,
            authority.issue("client", "/O=Example/CN=alice"),
            Authority(folder, "other-authority").issue("stranger"),
        )


@dataclass(frozen=True)
class Door:
    """The way in which a client connects."""

    listener: str
    protocol: str
    mechanism: str | None = None
    password: str = "alice-secret"
    pair: Pair | None = None
    trusting: bool = True
    options: dict[str, Any] = field(default_factory=dict)


class Refused(Exception):
    """A client reports that its login failed."""


def through_confluent(site: Site, door: Door, value: bytes) -> bytes:
    errors: list[confluent_kafka.KafkaError] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{site.port(door.listener)}",
        "security.protocol": door.protocol,
        "error_cb": errors.append,
        "log_level": 0,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 20,
    }
    if door.trusting:
        settings["ssl.ca.location"] = str(site.authority.certificate)
    if door.mechanism is not None:
        settings |= {
            "sasl.mechanisms": door.mechanism,
            "sasl.username": "alice",
            "sasl.password": door.password,
        }
    if door.pair is not None:
        settings |= {
            "ssl.certificate.location": str(door.pair.certificate),
            "ssl.key.location": str(door.pair.key),
        }
    delivered: list[confluent_kafka.Message] = []
    producer = confluent_kafka.Producer(settings)
    producer.produce(TOPIC, value, on_delivery=lambda error, message: delivered.append(message))
    while not delivered and not errors:
        producer.poll(0.05)
    if errors:
        producer.purge()
        producer.flush(PATIENCE)
        raise Refused(errors[0].name())
    consumer = confluent_kafka.Consumer(settings | {"group.id": "unused"})
    try:
        offset = delivered[0].offset()
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, offset)])
        message = consumer.poll(PATIENCE)
        assert message is not None and message.error() is None
        return bytes(message.value())
    finally:
        consumer.close()


def tls_of(site: Site, door: Door) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=site.authority.certificate if door.trusting else None
    )
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # Python's default since 3.13
    if door.pair is not None:
        context.load_cert_chain(door.pair.store)
    return context


def through_kafka_python(site: Site, door: Door, value: bytes) -> bytes:
    settings: dict[str, Any] = {
        "bootstrap_servers": f"127.0.0.1:{site.port(door.listener)}",
        "security_protocol": door.protocol,
        "ssl_context": tls_of(site, door),
    }
    if door.mechanism is not None:
        settings |= {
            "sasl_mechanism": door.mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": door.password,
        }
    try:
        producer = kafka.KafkaProducer(**settings, bootstrap_timeout_ms=500)
    except kafka.errors.KafkaError as error:
        raise Refused(type(error).__name__) from error
    try:
        sent = producer.send(TOPIC, value).get(PATIENCE)
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(**settings)
    try:
        partition = kafka.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, sent.offset)
        return bytes(next(consumer).value)
    finally:
        consumer.close()


def through_aiokafka(site: Site, door: Door, value: bytes) -> bytes:
    settings: dict[str, Any] = {
        "bootstrap_servers": f"127.0.0.1:{site.port(door.listener)}",
        "security_protocol": door.protocol,
        "ssl_context": tls_of(site, door),
    }
    if door.mechanism is not None:
        settings |= {
            "sasl_mechanism": door.mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": door.password,
        }

    async def run() -> bytes:
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
        except aiokafka.errors.KafkaError as error:
            raise Refused(type(error).__name__) from error
        finally:
            if not producer.client.cluster.brokers():
                await producer.stop()
        try:
            sent = await producer.send_and_wait(TOPIC, value)
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(**settings)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(TOPIC, 0)
            consumer.assign([partition])
            consumer.seek(partition, sent.offset)
            return bytes((await consumer.getone()).value)
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(run(), PATIENCE))


Client = Callable[[Site, Door, bytes], bytes]
CLIENTS = [through_confluent, through_kafka_python, through_aiokafka]


@pytest.fixture(params=CLIENTS, ids=lambda each: each.__name__.removeprefix("through_"))
def client(request: pytest.FixtureRequest) -> Client:
    chosen: Client = request.param
    return chosen


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_logs_in(site: Site, client: Client, protocol: str, mechanism: str) -> None:
    assert client(site, Door(protocol, protocol, mechanism), b"hello") == b"hello"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_wrong_password(site: Site, client: Client, protocol: str, mechanism: str) -> None:
    with pytest.raises(Refused):
        client(site, Door(protocol, protocol, mechanism, "wrong"), b"hello")
    assert client(site, Door(protocol, protocol, mechanism), b"hello") == b"hello"


def test_tls(site: Site, client: Client) -> None:
    assert client(site, Door("SSL", "SSL"), b"hello") == b"hello"


def test_certificate_of_the_client(site: Site, client: Client) -> None:
    assert client(site, Door("MUTUAL", "SSL", pair=site.client), b"hello") == b"hello"


def test_missing_certificate_of_the_client(site: Site, client: Client) -> None:
    with pytest.raises(Refused):
        client(site, Door("MUTUAL", "SSL"), b"hello")
    with pytest.raises(Refused):
        client(site, Door("MUTUAL", "SSL", pair=site.stranger), b"hello")
    assert client(site, Door("MUTUAL", "SSL", pair=site.client), b"hello") == b"hello"


def test_certificate_of_the_broker_that_a_client_does_not_trust(site: Site, client: Client) -> None:
    with pytest.raises(Refused):
        client(site, Door("SSL", "SSL", trusting=False), b"hello")


@pytest.mark.parametrize(
    "door",
    [
        Door("SSL", "PLAINTEXT"),
        Door("PLAINTEXT", "SSL"),
        Door("SASL_SSL", "SASL_PLAINTEXT", "PLAIN"),
        Door("SASL_PLAINTEXT", "SASL_SSL", "PLAIN"),
        Door("SASL_PLAINTEXT", "PLAINTEXT"),
        Door("PLAINTEXT", "SASL_PLAINTEXT", "PLAIN"),
    ],
    ids=lambda door: f"{door.protocol} to {door.listener}",
)
def test_wrong_kind_of_listener(site: Site, door: Door) -> None:
    with pytest.raises(Refused):
        through_confluent(site, door, b"hello")
    assert through_confluent(site, Door("PLAINTEXT", "PLAINTEXT"), b"hello") == b"hello"


def wrap(site: Site, pair: Pair | None = None) -> Callable[[socket.socket], socket.socket]:
    context = tls_of(site, Door("SSL", "SSL", pair=pair))
    return lambda plain: context.wrap_socket(plain, server_hostname="localhost")


def principals(site: Site) -> set[str]:
    def look() -> set[str]:
        return {connection.session.principal for connection in site.broker.connections.open}

    return site.broker.call(look)


def test_principal_of_a_certificate(site: Site) -> None:
    port = site.port("MUTUAL")
    with RawClient(port, wrap=wrap(site, site.client)) as client:
        assert client.call(MetadataRequest(topics=[])).brokers[0].port == port
        assert "User:CN=alice,O=Example" in principals(site)


def test_tls_listener_tells_its_own_address(site: Site) -> None:
    for listener in ("SSL", "PLAINTEXT"):
        port = site.port(listener)
        with RawClient(port, wrap=wrap(site) if listener == "SSL" else None) as client:
            assert client.call(MetadataRequest(topics=[])).brokers[0].port == port


def one_line(caplog: pytest.LogCaptureFixture) -> str:
    """Return the warning of the broker, which its thread may log after the client has seen the end."""
    (record,) = until(lambda: caplog.records)
    assert record.levelno == logging.WARNING
    assert record.exc_info is None
    text = record.getMessage()
    assert "\n" not in text
    return text


def wait_for_close(plain: socket.socket, patience: float = PATIENCE) -> None:
    plain.settimeout(patience)
    try:
        while plain.recv(65536):
            pass
    except ConnectionResetError:
        pass


def test_plain_text_to_a_tls_port(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def send() -> list[logging.LogRecord]:
        with RawClient(site.port("SSL")) as client:
            client.send(ApiVersionsRequest(), 0)
            # Long before the handshake times out: OpenSSL sends no alert that the client could read.
            wait_for_close(client.socket, HANDSHAKE_SECONDS / 2)
        return caplog.records

    # The listener logs such a line once per second, and may have logged one for the test before.
    until(send)
    assert "listener SSL: TLS handshake failed" in one_line(caplog)
    assert through_confluent(site, Door("SSL", "SSL"), b"hello") == b"hello"


def test_tls_to_a_plain_port(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    plain = socket.create_connection(("127.0.0.1", site.port("PLAINTEXT")), timeout=PATIENCE)
    with plain, pytest.raises((ssl.SSLError, ConnectionError)):
        wrap(site)(plain)
    assert "connection closed" in one_line(caplog)


def test_missing_certificate_is_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with RawClient(site.port("MUTUAL"), wrap=wrap(site)) as client:
        client.socket.settimeout(PATIENCE)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            client.call(ApiVersionsRequest(), 0)
    assert "the client sent no certificate" in one_line(caplog)


def test_random_bytes_to_a_tls_port(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    rng = Random(0)
    hello = client_hello(site)
    for number in range(300):
        data = bytearray(hello if number % 2 else rng.randbytes(rng.randrange(1, 400)))
        for _ in range(number % 4):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with socket.create_connection(("127.0.0.1", site.port("SSL")), timeout=PATIENCE) as plain:
            plain.sendall(data)
            plain.shutdown(socket.SHUT_WR)
            wait_for_close(plain)
    assert all(record.exc_info is None for record in caplog.records)
    assert all("TLS handshake failed" in record.getMessage() for record in caplog.records)
    assert through_confluent(site, Door("SSL", "SSL"), b"hello") == b"hello"


def client_hello(site: Site) -> bytes:
    out = ssl.MemoryBIO()
    started = tls_of(site, Door("SSL", "SSL")).wrap_bio(
        ssl.MemoryBIO(), out, server_hostname="localhost"
    )
    with pytest.raises(ssl.SSLWantReadError):
        started.do_handshake()
    return out.read()


def test_users_by_a_client(site: Site) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{site.port('PLAINTEXT')}"})
    kind = ScramMechanism.SCRAM_SHA_512

    def alter(change: Any) -> None:
        (future,) = admin.alter_user_scram_credentials([change]).values()
        future.result(PATIENCE)

    def described(name: str) -> list[tuple[ScramMechanism, int]]:
        found = admin.describe_user_scram_credentials([name])[name].result(PATIENCE)
        infos = found.scram_credential_infos
        return [(info.mechanism, info.iterations) for info in infos]

    alter(UserScramCredentialUpsertion("carol", ScramCredentialInfo(kind, 8192), b"first"))
    assert described("carol") == [(kind, 8192)]
    alter(UserScramCredentialUpsertion("carol", ScramCredentialInfo(kind, 4096), b"second"))
    assert described("carol") == [(kind, 4096)]
    alter(UserScramCredentialDeletion("carol", kind))
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        described("carol")
    assert caught.value.args[0].name() == "RESOURCE_NOT_FOUND"
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        alter(UserScramCredentialDeletion("carol", kind))
    assert caught.value.args[0].name() == "RESOURCE_NOT_FOUND"


def produce_with_confluent(settings: dict[str, str]) -> Callable[[], None]:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": settings["servers"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
        }
    )

    def produce() -> None:
        producer.produce(TOPIC, b"hello")
        assert producer.flush(PATIENCE) == 0

    return produce


def produce_with_kafka_python(settings: dict[str, str]) -> Callable[[], None]:
    producer = kafka.KafkaProducer(
        bootstrap_servers=settings["servers"],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="alice",
        sasl_plain_password="alice-secret",
    )
    return lambda: producer.send(TOPIC, b"hello").get(PATIENCE)


@pytest.mark.parametrize("client", [produce_with_confluent, produce_with_kafka_python])
def test_clients_renew_their_logins(client: Callable[[dict[str, str]], Callable[[], None]]) -> None:
    """On the same connection, before its login expires (KIP-368)."""
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "connections.max.reauth.ms": "1000",
    }
    with Broker.start(properties=properties) as broker:
        kind = SHA_256
        record = record_of("alice", kind, scram_server.new_credential(kind, "alice-secret"))
        broker.call(broker.cluster.append, [record])
        broker.call(broker.topics.create, TOPIC, 1)

        def logins() -> dict[str, int | None]:
            sessions = [connection.session for connection in broker.connections.open]
            return {each.connection_id: each.expires_at for each in sessions}

        produce = client({"servers": broker.bootstrap_servers})
        produce()
        first = broker.call(logins)

        def is_renewed() -> bool:
            return any(
                (before := first.get(name)) is not None and expires is not None and expires > before
                for name, expires in broker.call(logins).items()
            )

        until(is_renewed, after=produce)
