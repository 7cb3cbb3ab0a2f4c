"""Clients that tasks share one after the other."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from krammar.spark.kafka.tasks import TaskReader
from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark", reason="PySpark is not installed")

from kafka_wire import ApiKey

from krammar.broker import Broker
from krammar.client import Client, Settings
from krammar.client.fetch import Reader
from krammar.spark.brokers import CLIENTS, ClientPool
from krammar.spark.datasource import KrammarDataSource
from tests.client.conftest import broker_behind
from tests.client.proxy import Proxy
from tests.spark.stream_support import produce


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start() as started:
        with Client(started.bootstrap_servers) as client:
            client.admin.create_topic("orders", 1)
        yield started


@pytest.fixture
def settings(broker: Broker) -> Settings:
    return Settings.of({"bootstrap.servers": broker.bootstrap_servers})


def used(clients: ClientPool, settings: Settings) -> Client:
    """Borrow a client, connect it, and give it back."""
    with clients.borrow(settings) as client:
        client.nodes()
    return client


def is_closed(client: Client) -> bool:
    return not client.cluster.connections


def test_next_task_gets_the_same_client_with_its_connections(settings: Settings) -> None:
    clients = ClientPool()
    first = used(clients, settings)
    connections = first.cluster.connections
    second = used(clients, settings)
    assert second is first
    assert second.cluster.connections == connections
    clients.close()
    assert is_closed(first)


def test_other_settings_get_another_client(settings: Settings) -> None:
    clients = ClientPool()
    first = used(clients, settings)
    second = used(clients, settings.with_(isolation_level="read_committed"))
    assert second is not first
    assert used(clients, settings) is first
    clients.close()


def test_client_is_lent_to_one_task_at_a_time(settings: Settings) -> None:
    clients = ClientPool()
    used(clients, settings)
    with clients.borrow(settings) as first, clients.borrow(settings) as second:
        assert first is not second
    clients.close()


def test_client_of_a_failed_task_is_closed(settings: Settings) -> None:
    clients = ClientPool()
    borrowed = clients.borrow(settings)
    client = borrowed.__enter__()
    client.nodes()
    # Spark raises it in the task's generator if it needs no more rows.
    assert not borrowed.__exit__(GeneratorExit, GeneratorExit(), None)
    assert is_closed(client)
    assert len(clients) == 0


def test_client_with_a_request_in_flight_is_closed(settings: Settings) -> None:
    clients = ClientPool()
    with clients.borrow(settings) as client:
        reader: Reader = client.fetch({("orders", 0): 0})
        assert reader.poll(0) == []
        assert client.cluster.connections[0].in_flight
    assert is_closed(client)
    assert len(clients) == 0


def test_oldest_clients_are_closed_beyond_the_limit(settings: Settings) -> None:
    clients = ClientPool(most=2)
    found = [used(clients, settings.with_(client_id=name)) for name in ("a", "b", "c")]
    assert [is_closed(client) for client in found] == [True, False, False]
    assert len(clients) == 2
    clients.close()


def test_idle_client_is_closed_after_its_time(settings: Settings) -> None:
    others = threading.enumerate()
    clients = ClientPool(idle_seconds=0.05)
    client = used(clients, settings)
    for thread in threading.enumerate():
        if thread not in others and thread.name == "krammar-idle-clients":
            thread.join(PATIENCE)
    assert len(clients) == 0
    assert is_closed(client)
    # A later task has a client that is closed in its turn.
    assert used(clients, settings) is not client
    clients.close()


def test_connection_that_broke_while_idle_is_replaced() -> None:
    clients = ClientPool()
    with Broker.start() as broker:
        settings = Settings.of({"bootstrap.servers": broker.bootstrap_servers})
        first = used(clients, settings)
        port = broker.port
    with Broker.start(port=port):
        assert used(clients, settings) is first
        assert first.cluster.connections
    clients.close()


def test_second_task_of_a_worker_only_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskReader, "clients", idle := ClientPool())
    with Proxy() as proxy, broker_behind(proxy) as broker:
        produce(broker, "orders", {0: 10})
        source = KrammarDataSource(
            {"kafka.bootstrap.servers": proxy.address, "subscribe": "orders"}
            | {"maxRecordsPerPartition": "5"}
        )
        reader = source.reader(source.schema())
        first, second = reader.partitions()
        assert sum(batch.num_rows for batch in reader.read(first)) == 5
        before = Counter(proxy.requests)
        assert sum(batch.num_rows for batch in reader.read(second)) == 5
        assert proxy.requests - before == {ApiKey.FETCH: 1}
        idle.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_child_process_does_not_use_the_connections_of_its_parent(settings: Settings) -> None:
    client = used(CLIENTS, settings)
    child = os.fork()
    if child == 0:
        os._exit(0 if len(CLIENTS) == 0 and is_closed(client) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert used(CLIENTS, settings) is client
    client.nodes()
    CLIENTS.close()
