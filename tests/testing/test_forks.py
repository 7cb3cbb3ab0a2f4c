"""Processes that are forked while servers run in the process of the test."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from krammar.broker import Broker
from krammar.proxy import Proxy
from krammar.testing import KafkaBroker, KafkaCluster
from krammar.util.clock import monotonic
from krammar.util.forks import ForkedError
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


@contextmanager
def forked() -> Iterator[None]:
    """Fork a process that does nothing until the end of the block."""
    context = multiprocessing.get_context("fork")
    begun, stop = context.Event(), context.Event()

    def work() -> None:
        begun.set()
        stop.wait()

    process = context.Process(target=work, daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks of processes with threads
        process.start()
    assert begun.wait(PATIENCE)
    try:
        yield
    finally:
        stop.set()
        process.join(PATIENCE)
        assert process.exitcode == 0


def in_child(function: Callable[[], object]) -> int:
    """Run a function in a forked process, and return its exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(PATIENCE)
            function()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def produce(broker: KafkaBroker | KafkaCluster, value: bytes) -> float:
    """Produce a record with a new producer, and return the seconds until it is acknowledged."""
    began = monotonic()
    producer = Producer(broker.clients.confluent_kafka)
    producer.produce("orders", value)
    assert producer.flush(PATIENCE) == 0
    return monotonic() - began


@pytest.mark.parametrize("tls", [False, True])
def test_a_dropped_connection_and_a_reset(tls: bool) -> None:
    with KafkaBroker.start(topics=["orders"], tls=tls) as broker:
        producer = Producer(broker.clients.confluent_kafka)
        producer.produce("orders", b"one")
        assert producer.flush(PATIENCE) == 0
        with forked():
            broker.faults.on("Produce").drop("after").once()
            producer.produce("orders", b"two")
            began = monotonic()
            assert producer.flush(PATIENCE) == 0
            # The producer would wait for the end of its request's time, a minute.
            assert monotonic() - began < 30
            broker.reset()
            produce(broker, b"three")
            assert [record.value for record in broker.records("orders")] == [b"three"]


def test_nodes_stop_and_start() -> None:
    with KafkaCluster.start(topics={"orders": 1}) as cluster:
        produce(cluster, b"one")
        with forked():
            node = cluster.leader("orders", 0)
            cluster.stop_node(node)
            assert produce(cluster, b"two") < 30
            cluster.start_node(node)
            cluster.kill_node(node)
        assert len(cluster.records("orders")) == 2


def test_clients_see_the_end_of_a_broker() -> None:
    with Broker.start(properties={"krammar.metrics": "127.0.0.1:0"}) as broker:
        addresses = [(broker.host, broker.port), broker.metrics_address]
        proxy = Proxy.start(broker.bootstrap_servers)
        host, _, port = proxy.bootstrap_servers.rpartition(":")
        addresses.append((host, int(port)))
        clients = [socket.create_connection(address, timeout=PATIENCE) for address in addresses]
        until(lambda: broker.call(lambda: len(broker.connections.open)) >= 2)
        with forked():
            proxy.close()
            broker.close()
            for client, address in zip(clients, addresses, strict=True):
                assert client.recv(1) == b""
                client.close()
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(address, timeout=PATIENCE)


def test_a_log_folder_is_free_after_the_end(tmp_path: Path) -> None:
    broker = Broker.start(data_dir=tmp_path)
    with forked():
        broker.close()
        Broker.start(data_dir=tmp_path).close()


def test_calls_in_the_child() -> None:
    with (
        KafkaCluster.start(topics={"orders": 1}, tls=True) as cluster,
        KafkaBroker.start(topics=["orders"], tls=True) as broker,
    ):
        rule = broker.faults.on("Fetch").delay(0)

        def child() -> None:
            calls: list[Callable[[], object]] = [
                lambda: broker.records("orders"),
                lambda: broker.groups,
                lambda: broker.wait_for_records("orders", 1),
                lambda: broker.create_topic("more"),
                lambda: broker.advance_clock(1),
                lambda: broker.faults,
                lambda: broker.broker.metrics,
                broker.reset,
                lambda: cluster.stop_node(1),
                lambda: cluster.leader("orders", 0),
                cluster.heal,
            ]
            for call in calls:
                with pytest.raises(ForkedError, match=f"runs in process {os.getppid()}, "):
                    call()
            # Clients work.
            produce(broker, b"of the child")
            broker.close()
            cluster.close()

        assert in_child(child) == 0
        assert [record.value for record in broker.records("orders")] == [b"of the child"]
        assert rule.fired == 0
        assert broker.tls is not None
        assert Path(broker.tls.ca).exists()
        assert all(path.exists() for path in broker.config.log_dirs)


def test_a_proxy_in_the_child() -> None:
    with Broker.start() as broker, Proxy.start(broker.bootstrap_servers) as proxy:

        def child() -> None:
            with pytest.raises(ForkedError, match="thread krammar-proxy runs in process"):
                proxy.replace([])
            proxy.close()

        assert in_child(child) == 0
        with socket.create_connection(proxy.bootstrap_servers.split(":"), timeout=PATIENCE):
            pass


def test_files_of_the_child_are_not_closed() -> None:
    """The numbers of closed sockets stay taken, so that their objects cannot close other files."""
    with KafkaBroker.start(topics=["orders"]) as broker:
        producer = Producer(broker.clients.confluent_kafka)
        producer.produce("orders", b"one")
        assert producer.flush(PATIENCE) == 0

        def child() -> None:
            nonlocal broker
            files = [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]
            broker = None  # type: ignore[assignment]
            import gc

            gc.collect()
            for each in files:
                os.fstat(each)

        assert in_child(child) == 0


def test_the_end_of_a_process_deletes_the_folder_of_a_broker(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from krammar.testing import KafkaBroker\n"
        "broker = KafkaBroker.start(topics=['orders'], tls=True)\n"
        "if os.fork() == 0:\n"
        "    sys.exit()\n"
        "os.wait()\n"
        "print(len(os.listdir(sys.argv[1])))\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    output = subprocess.check_output(command, env=environment, text=True, timeout=PATIENCE)
    assert output == "2\n"
    assert list(tmp_path.iterdir()) == []
