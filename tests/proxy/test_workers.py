"""Several workers that share the ports of a proxy."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient
from kafka_wire import MetadataResponse

from krammar.proxy.addresses import Address
from krammar.testing import KafkaBroker, KafkaCluster
from tests.proxy.support import Brokers, free_range, is_open, ports, reached
from tests.proxy.test_logins import USERS, own
from tests.proxy.test_tls import Certificates, confluent
from tests.support.frames import framed, read_frame
from tests.support.waiting import PATIENCE, until
from tests.tap.support import upstream as running

# A request for all topics, in version 0.
METADATA = framed(b"\0\x03\0\0\0\0\0\1\xff\xff\0\0\0\0")


class Running:
    """A proxy in processes of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.metrics = ""
        assert process.stderr is not None
        self._lines = process.stderr
        first = self.wait_for("listening on ")
        self.address = Address.parse(first.split()[2])

    def wait_for(self, text: str) -> str:
        """Return the next line of the log that contains a text."""
        seen = []
        while line := self._lines.readline():
            seen.append(line)
            if line.startswith("metrics on "):
                self.metrics = line.split()[2]
            if text in line:
                return line
        raise AssertionError(f"no line with {text!r} in {''.join(seen)}")

    @property
    def workers(self) -> list[int]:
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def number(self, name: str) -> float:
        with urlopen(self.metrics, timeout=PATIENCE) as page:
            lines = page.read().decode().splitlines()
        return sum(float(each.split()[-1]) for each in lines if each.startswith(name))


def command(upstream: str, *options: str) -> list[str]:
    first = [sys.executable, "-m", "krammar.cli", "proxy", "--upstream", upstream]
    return [*first, "--workers", "2", *options]


@contextmanager
def started(upstream: str, *options: str, folder: Path) -> Iterator[Running]:
    all_ = command(upstream, "--listen", "127.0.0.1:0", "--metrics-port", "0", *options)
    with subprocess.Popen(all_, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Running(process)
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


@pytest.fixture
def brokers_that_move() -> Iterator[Brokers]:
    found = Brokers()
    yield found
    found.close()


def brokers(place: Address) -> set[tuple[str, int]]:
    with socket.create_connection(place, timeout=PATIENCE) as client:
        client.sendall(METADATA)
        found = MetadataResponse.decode(read_frame(client)[8:], 0).brokers
    return {(each.host, each.port) for each in found}


def test_all_workers_have_the_same_ports(tmp_path: Path) -> None:
    with (
        KafkaCluster.start(nodes=3, topics={"orders": 3}) as cluster,
        started(cluster.bootstrap_servers.split(",")[0], folder=tmp_path) as proxy,
    ):
        told = {frozenset(brokers(proxy.address)) for _ in range(20)}
        assert len(told) == 1
        (places,) = told
        assert len(places) == 3
        for host, port in places:
            assert brokers(Address(host, port)) == places
        admin = AdminClient({"bootstrap.servers": str(proxy.address)})
        assert len(admin.list_topics(timeout=PATIENCE).brokers) == 3
        assert proxy.number("krammar_proxy_requests_total") >= 23


def test_all_workers_close_a_port_and_follow_a_broker(
    brokers_that_move: Brokers, tmp_path: Path
) -> None:
    (tmp_path / "proxy.toml").write_text("broker_port_timeout = 0.4\n")
    brokers_that_move.nodes = {1: "127.0.0.10", 2: "127.0.0.20"}
    with started(brokers_that_move.bootstrap, "proxy.toml", folder=tmp_path) as proxy:
        before = ports(proxy.address)
        brokers_that_move.nodes = {1: "127.0.0.11"}
        until(lambda: ports(proxy.address) and not is_open(before[2]), after=lambda: time.sleep(2))
        # Each connection can reach another worker, and all of them know where the broker is.
        assert {frozenset(ports(proxy.address).items()) for _ in range(8)} == {
            frozenset({(1, before[1])})
        }
        assert {reached(before[1]) for _ in range(8)} == {"127.0.0.11"}
        brokers_that_move.nodes = {node: f"127.0.0.{10 * node}" for node in range(1, 9)}
        with ThreadPoolExecutor(8) as pool:  # several workers ask for ports at once
            told = list(pool.map(lambda _: ports(proxy.address), range(16)))
        assert len({frozenset(each.items()) for each in told}) == 1
        assert told[0][2] == before[2]
        assert {reached(told[0][5]) for _ in range(8)} == {"127.0.0.50"}


def test_fixed_ports_of_all_workers(brokers_that_move: Brokers, tmp_path: Path) -> None:
    brokers_that_move.nodes = {1: "127.0.0.10", 2: "127.0.0.20"}
    with free_range(3) as first:
        options = ("--broker-ports", f"{first}-{first + 2}")
        with started(brokers_that_move.bootstrap, *options, folder=tmp_path) as proxy:
            assert ports(proxy.address) == {1: first + 1, 2: first + 2}
            assert {reached(first + 2) for _ in range(8)} == {"127.0.0.20"}
            for pid in proxy.workers:
                os.kill(pid, signal.SIGKILL)
            for _ in range(2):
                proxy.wait_for("has ended")
            # Workers that are started again know where the brokers are.
            until(lambda: is_open(first + 1))
            assert {reached(first + 1) for _ in range(4)} == {"127.0.0.10"}


def test_a_fixed_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        options = ("--listen", "127.0.0.1:0", "--broker-ports", f"3={port}")
        text = fails(command("127.0.0.1:1", *options), tmp_path)
    assert f"127.0.0.1:{port}: address already in use (the port of node 3)" in text


def test_several_listeners(tmp_path: Path) -> None:
    (tmp_path / "proxy.toml").write_text('listen = {blue = "127.0.0.1:0", red = "127.0.0.1:0"}\n')
    with KafkaBroker.start() as broker:
        all_ = command(broker.bootstrap_servers, "proxy.toml")
        with subprocess.Popen(all_, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                lines = [process.stderr.readline().split() for _ in range(2)]
                places = {line[3]: Address.parse(line[2]) for line in lines}
                for place in places.values():
                    for _ in range(4):
                        assert brokers(place) == {tuple(place)}
            finally:
                process.terminate()
                process.communicate(timeout=PATIENCE)
    assert places.keys() == {"(blue)", "(red)"}


def test_real_clients_with_tls_and_logins(tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    users = "\n".join(f'{name} = "{password}"' for name, password in USERS.items())
    (tmp_path / "proxy.toml").write_text(f"""
        [clients]
        security.protocol = "SASL_SSL"
        ssl.keystore.location = "{files.proxy}"
        [users]
        {users}
        """)
    settings = files.own | own("SCRAM-SHA-512") | {"security.protocol": "SASL_SSL"}
    with (
        KafkaBroker.start(topics=["orders"]) as broker,
        started(broker.bootstrap_servers, "proxy.toml", folder=tmp_path) as proxy,
    ):
        confluent(settings | {"bootstrap.servers": str(proxy.address)})


def test_a_worker_that_dies_is_started_again(tmp_path: Path) -> None:
    with (
        KafkaBroker.start() as broker,
        started(broker.bootstrap_servers, folder=tmp_path) as proxy,
    ):
        before = brokers(proxy.address)
        counted = proxy.number("krammar_proxy_requests_total")
        assert counted == 1
        for pid in proxy.workers:
            os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            assert "has ended by SIGKILL; another one is started" in proxy.wait_for("has ended")
        while len(proxy.workers) < 2:  # until both have begun again
            pass
        while True:
            try:
                assert brokers(proxy.address) == before
                break
            except ConnectionError:
                pass
        assert proxy.number("krammar_proxy_requests_total") >= counted + 1


def test_sigterm_waits_for_the_responses_of_all_workers(tmp_path: Path) -> None:
    arrived, go_on = threading.Semaphore(0), threading.Event()

    def serve(connection: socket.socket) -> None:
        frame = read_frame(connection)
        arrived.release()
        go_on.wait(PATIENCE)
        connection.sendall(framed(frame[8:12] + b"done"))

    with running(serve) as broker, started(str(broker.address), folder=tmp_path) as proxy:
        clients = []
        for _ in range(8):
            client = socket.create_connection(proxy.address, timeout=PATIENCE)
            client.sendall(framed(b"\0\x0c\0\0\0\0\0\1\xff\xff"))
            clients.append(client)
        for _ in clients:
            assert arrived.acquire(timeout=PATIENCE)
        proxy.process.terminate()
        proxy.wait_for("stopping")
        go_on.set()
        for client in clients:
            with client:
                assert read_frame(client)[8:] == b"done"
                assert client.recv(1) == b""
        assert proxy.process.wait(PATIENCE) == 0


def fails(all_: list[str], folder: Path) -> str:
    found = subprocess.run(all_, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    assert found.returncode == 1
    assert "Traceback" not in found.stderr
    return found.stderr


@pytest.mark.parametrize("shared", [False, True])
def test_a_port_in_use(shared: bool, tmp_path: Path) -> None:
    with socket.socket() as other:
        if shared:  # as another proxy with workers
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        place = str(Address(*other.getsockname()))
        text = fails(command("127.0.0.1:1", "--listen", place), tmp_path)
    assert f"cannot listen on {place}: address already in use" in text


def test_a_port_for_metrics_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        all_ = command("127.0.0.1:1", "--listen", "127.0.0.1:0", "--metrics-port", port)
        text = fails(all_, tmp_path)
        assert f"cannot listen on 127.0.0.1:{port} for metrics: address already in use" in text
        text = fails([each if each != "2" else "1" for each in all_], tmp_path)
    assert f"cannot listen on 127.0.0.1:{port} for metrics: address already in use" in text


def test_a_worker_that_cannot_begin_ends_the_proxy(tmp_path: Path) -> None:
    (tmp_path / "own_filters.py").write_text(
        "import os\n"
        "from krammar.proxy import Filter\n"
        "class OnlyOnce(Filter):\n"
        "    def __init__(self):\n"
        "        os.mkdir('made')\n"
    )
    all_ = command("127.0.0.1:1", "--listen", "127.0.0.1:0", "--filter", "own_filters:OnlyOnce")
    assert "has ended with exit code 2 before it listened" in fails(all_, tmp_path)
