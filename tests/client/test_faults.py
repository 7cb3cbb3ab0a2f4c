"""Servers that cannot be reached, do not answer, go and come back."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka_wire import ApiKey

from krammar.broker import Broker
from krammar.client import At, Client, Producer, Settings, TopicPartition
from krammar.client.cluster import AdvertisedAddresses
from krammar.client.errors import (
    AdvertisedAddressError,
    DeadlineError,
    KafkaError,
    ProtocolError,
    TransportError,
    UnreachableError,
)
from tests.client.conftest import broker_behind
from tests.client.proxy import Proxy
from tests.ports import free_port
from tests.support.waiting import PATIENCE


@pytest.fixture
def mute() -> Iterator[str]:
    """A server that takes connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_nobody_listens() -> None:
    ports = [free_port(), free_port()]
    servers = [f"127.0.0.1:{port}" for port in ports]
    begin = time.monotonic()
    with Client(servers) as client, pytest.raises(UnreachableError) as caught:
        client.topics(timeout_ms=PATIENCE * 1000)
    assert time.monotonic() - begin < PATIENCE / 2
    assert not caught.value.retriable
    assert set(caught.value.tried) == set(servers)
    assert all("refused" in why for why in caught.value.tried.values())
    assert all(server in str(caught.value) for server in servers)
    assert "krammar.retry.bootstrap" in str(caught.value)


def test_a_producer_that_nobody_listens_to() -> None:
    with pytest.raises(UnreachableError) as caught:
        Producer(Settings.of({"bootstrap.servers": f"127.0.0.1:{free_port()}"})).send("t", b"x")
    assert not caught.value.retriable


def test_a_broker_that_is_waited_for() -> None:
    port = free_port()
    settings = {"krammar.retry.bootstrap": "true", "retry.backoff.ms": 1}
    with Client(f"127.0.0.1:{port}", settings) as client:
        with pytest.raises(UnreachableError) as caught:
            client.topics(timeout_ms=50)
        assert caught.value.retriable and "krammar.retry.bootstrap" not in str(caught.value)
        with Broker.start(port=port):
            assert client.topics() == {}


def test_a_broker_that_was_reached_once_is_waited_for(proxy: Proxy, behind: Broker) -> None:
    with Client(behind.bootstrap_servers) as client:
        assert client.topics() == {}
        proxy.close()
        with pytest.raises((DeadlineError, UnreachableError)) as caught:
            client.topics(timeout_ms=200)
        assert caught.value.retriable
        with pytest.raises((DeadlineError, UnreachableError)) as caught:
            client.producer(max_block_ms=200).send("t", b"x")
        assert caught.value.retriable


@pytest.mark.parametrize(
    ("number", "retriable"), [(socket.EAI_NONAME, False), (socket.EAI_AGAIN, True)]
)
def test_a_name_that_does_not_exist(
    number: int, retriable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*_: object, **__: object) -> None:  # what machines answer here differs
        raise socket.gaierror(number, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with Client("no-such-host.invalid:9092") as client, pytest.raises(UnreachableError) as caught:
        client.topics(timeout_ms=300)
    assert "no-such-host.invalid:9092" in caught.value.tried
    assert caught.value.retriable is retriable


def test_a_server_that_does_not_answer(mute: str) -> None:
    with (
        Client(mute) as client,
        pytest.raises(UnreachableError, match="no answer within") as caught,
    ):
        client.topics(timeout_ms=300)
    assert set(caught.value.tried) == {mute}


def test_the_others_are_asked(mute: str, broker: Broker) -> None:
    """Whichever is first, one server that answers is enough."""
    dead = f"127.0.0.1:{free_port()}"
    for servers in ([dead, mute, broker.bootstrap_servers], [broker.bootstrap_servers, mute]):
        with Client(servers, socket_connection_setup_timeout_ms=200) as client:
            assert client.topics() == {}


@pytest.fixture
def hidden() -> Iterator[tuple[str, str]]:
    """A bootstrap server whose brokers advertise an address that cannot be reached, and that address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listening
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        properties = {
            "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "advertised.listeners": f"OUTSIDE://{address}",
        }
        with Broker.start(properties=properties) as broker:
            with Client("{}:{}".format(*broker.addresses["PLAINTEXT"])) as client:
                client.admin.create_topic("t", 2)
            yield "{}:{}".format(*broker.addresses["OUTSIDE"]), address


def list_latest(client: Client) -> None:
    client.list_offsets({("t", 0): At.LATEST, ("t", 1): At.LATEST})


def read_one(client: Client) -> None:
    list(client.fetch({("t", 0): 0}, until={("t", 0): 1}))


def send_one(client: Client) -> None:
    with client.producer() as producer:
        producer.send("t", b"x").result()


@pytest.mark.parametrize("operation", [list_latest, read_one, send_one])
def test_an_advertised_address_that_cannot_be_reached(
    hidden: tuple[str, str], operation: Callable[[Client], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AdvertisedAddresses, "PATIENCE", 0.5)
    bootstrap, address = hidden
    begin = time.monotonic()
    with Client(bootstrap) as client, pytest.raises(AdvertisedAddressError) as caught:
        operation(client)
    assert time.monotonic() - begin < PATIENCE
    assert not caught.value.retriable
    assert str(caught.value).startswith(f"{bootstrap} answers, but this machine (")
    assert f"advertise: {address} (Connection refused)" in str(caught.value)


def test_one_advertised_address_that_was_reached_is_waited_for(
    proxy: Proxy, behind: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AdvertisedAddresses, "PATIENCE", 0.0)
    with Client(behind.bootstrap_servers) as client:
        client.admin.create_topic("waited-for", 1)
        assert client.list_offsets({("waited-for", 0): At.LATEST})
        proxy.close()
        with pytest.raises((DeadlineError, UnreachableError)) as caught:
            client.list_offsets({("waited-for", 0): At.LATEST}, timeout_ms=300)
        assert not isinstance(caught.value, AdvertisedAddressError)


def test_no_server_of_kafka() -> None:
    """Another program answers, and the connection is closed."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            listener.close()  # the client would wait for an answer to another connection
            with closing(connection):
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with Client(address) as client, pytest.raises(ProtocolError, match="looks like HTTP"):
            client.topics(timeout_ms=PATIENCE * 1000)
        thread.join()


def test_a_call_ends_with_its_time(proxy: Proxy, behind: Broker) -> None:
    with Client(behind.bootstrap_servers) as client:
        assert client.topics() == {}
        proxy.flowing.clear()
        with pytest.raises((DeadlineError, UnreachableError)):
            client.topics(timeout_ms=200)
        with pytest.raises((DeadlineError, UnreachableError)):
            client.list_offsets({("t", 0): At.LATEST}, timeout_ms=200)
        with pytest.raises((DeadlineError, UnreachableError)):
            client.groups.list(timeout_ms=200)
        proxy.flowing.set()
        assert client.topics() == {}


def test_a_request_that_is_not_answered_is_sent_again(proxy: Proxy, behind: Broker) -> None:
    with Client(behind.bootstrap_servers, retry_backoff_ms=1) as client:
        client.admin.create_topic("t", 1)
        for key in (ApiKey.METADATA, ApiKey.LIST_OFFSETS):
            proxy.lose[key] = 2
        assert list(client.topics()) == ["t"]
        assert client.list_offsets({("t", 0): At.LATEST})[TopicPartition("t", 0)].offset == 0
        assert not +proxy.lose


def test_time_for_a_single_request(proxy: Proxy, behind: Broker) -> None:
    """A connection that has fallen silent is given up for another."""
    times = {"request_timeout_ms": 200, "socket_connection_setup_timeout_ms": 500}
    with Client(behind.bootstrap_servers, retry_backoff_ms=1, **times) as client:
        client.topics()
        proxy.flowing.clear()
        waker = threading.Timer(0.5, proxy.flowing.set)
        waker.start()
        assert client.topics(timeout_ms=PATIENCE * 1000) == {}
        waker.join()


def test_connections_that_were_cut_while_idle(proxy: Proxy, behind: Broker) -> None:
    with Client(behind.bootstrap_servers) as client, client.producer() as producer:
        client.admin.create_topic("t", 1)
        for i in range(3):
            producer.send("t", b"%d" % i).result()
            assert list(client.topics()) == ["t"]
            proxy.cut_all()
        assert [r.value for _, r in client.records("t")] == [b"0", b"1", b"2"]


def test_reading_over_lost_connections(proxy: Proxy, behind: Broker) -> None:
    with Client(
        behind.bootstrap_servers, retry_backoff_ms=1, max_partition_fetch_bytes=2000
    ) as client:
        client.admin.create_topic("t", 3)
        with client.producer(batch_size=500) as producer:
            for i in range(3000):
                producer.send("t", b"%d" % i, partition=i % 3)
        reader = client.fetch(
            dict.fromkeys(client.partitions("t"), 0),
            until=dict.fromkeys(client.partitions("t"), At.LATEST),
        )
        seen: list[tuple[int, int]] = []
        for number, fetched in enumerate(reader):
            seen += [(fetched.at.partition, record.offset) for record in fetched]
            if number % 10 == 3:
                proxy.lose[ApiKey.FETCH] = 1
            if number % 10 == 7:
                proxy.cut_all()
        assert sorted(seen) == [(p, offset) for p in range(3) for offset in range(1000)]


def test_a_broker_that_comes_back(tmp_path: Path, proxy: Proxy) -> None:
    """Reads and writes continue where they were, without losses or duplicates."""
    client = Client(proxy.address, retry_backoff_ms=1)
    producer = client.producer(batch_size=200)
    sent = []
    seen = []
    reader = client.fetch({("t", 0): 0})
    for run in range(3):
        with broker_behind(proxy, data_dir=tmp_path):
            if run == 0:
                client.admin.create_topic("t", 1)
            for i in range(100):
                sent.append(b"%d-%d" % (run, i))
                producer.send("t", sent[-1])
            producer.flush()
            # These are written after the broker is back.
            for i in range(100, 130):
                sent.append(b"%d-%d" % (run, i))
                producer.send("t", sent[-1])
            while len(seen) < len(sent) - 30:
                for fetched in reader.poll(PATIENCE * 1000):
                    seen += [record.value for record in fetched]
        proxy.cut_all()
    with broker_behind(proxy, data_dir=tmp_path):
        producer.close()
        while len(seen) < len(sent):
            for fetched in reader.poll(PATIENCE * 1000):
                seen += [record.value for record in fetched]
        assert [record.value for _, record in client.records("t")] == sent
    assert seen == sent
    client.close()


def test_a_broker_that_does_not_come_back(tmp_path: Path, proxy: Proxy) -> None:
    with Client(
        proxy.address,
        retry_backoff_ms=1,
        default_api_timeout_ms=500,
        socket_connection_setup_timeout_ms=200,
    ) as client:
        with broker_behind(proxy, data_dir=tmp_path):
            client.admin.create_topic("t", 1)
            reader = client.fetch({("t", 0): 0}, until={("t", 0): 5})
            assert reader.poll(0) == []
        proxy.cut_all()
        with pytest.raises((DeadlineError, TransportError)):
            list(reader)


def test_another_cluster_at_the_same_address(proxy: Proxy) -> None:
    """The topic is another one of that name: an error, rather than the other's records."""
    with Client(proxy.address, retry_backoff_ms=1) as client:
        with broker_behind(proxy):
            client.admin.create_topic("t", 1)
            reader = client.fetch({("t", 0): 0})
            reader.poll(1)
        proxy.cut_all()
        with broker_behind(proxy):
            assert client.topics() == {}


def _fetch_offsets(client: Client) -> None:
    client.groups.committed("g")


def _send(client: Client) -> None:
    with client.producer() as producer:
        producer.send("t", b"x").result()


def _fetch(client: Client) -> None:
    client.fetch({("t", 0): 0}).poll(PATIENCE * 1000)


@pytest.mark.parametrize(
    ("api", "code", "call", "message"),
    [
        ("FindCoordinator", "GROUP_AUTHORIZATION_FAILED", _fetch_offsets, "coordinator of group g"),
        ("InitProducerId", "CLUSTER_AUTHORIZATION_FAILED", _send, "InitProducerId"),
        ("Fetch", "TOPIC_AUTHORIZATION_FAILED", _fetch, "t-0"),
        ("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", lambda c: list(c.records("t")), "t-0"),
        ("DeleteTopics", "TOPIC_AUTHORIZATION_FAILED", lambda c: c.admin.delete_topic("t"), "t"),
    ],
)
def test_an_error_of_the_broker_says_what_was_refused(
    broker: Broker,
    client: Client,
    api: str,
    code: str,
    call: Callable[[Client], object],
    message: str,
) -> None:
    client.admin.create_topic("t", 1)
    rule = broker.faults.on(api).answer(code)
    with pytest.raises(KafkaError, match=f"{message}.*{code}|{code}.*{message}"):
        call(client)
    rule.expect()


def test_nothing_is_connected_before_it_is_needed(proxy: Proxy) -> None:
    with Client(proxy.address) as client, client.producer():
        client.fetch({("t", 0): 0})
    assert not proxy.requests
