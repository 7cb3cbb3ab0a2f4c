"""A changed file of settings is checked, and taken over while the proxy runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from kafka_wire import MetadataRequest

from krammar.cli import main
from krammar.client import At
from krammar.client import Client as KafkaClient
from krammar.proxy import Connection, Filter, Proxy
from krammar.proxy.addresses import Address
from krammar.proxy.takeover import FileChanges
from krammar.testing import KafkaBroker
from tests.proxy.support import Client, address
from tests.proxy.test_tls import Certificates
from tests.support.waiting import PATIENCE, until

# A filter that reads all of Produce, holds a file and a thread, and notes what happens to it.
FILTER = '''
import os, threading
from kafka_wire import MetadataResponse, ProduceRequest
from krammar.proxy import Filter, on

class Marks(Filter):
    """Names the cluster after its argument, so that clients see which chain they have."""

    def __init__(self, mark="", broken=False):
        if broken:
            raise KeyError("broken on purpose")
        self.mark = mark
        self.file = open(os.devnull)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.stop.wait, name="marks", daemon=True)
        self.thread.start()
        self.note("made")

    def note(self, what):
        with open(f"log-{os.getpid()}", "a") as log:
            log.write(f"{what} {self.mark}\\n")

    @on(MetadataResponse)
    def named(self, response, exchange):
        response.cluster_id = self.mark

    @on(ProduceRequest)
    def produced(self, request, exchange):
        assert not self.file.closed

    def close(self):
        self.file.close()
        self.stop.set()
        self.note("closed")
'''


def text(upstream: str, mark: str, more: str = "") -> str:
    return (
        f'upstream = "{upstream}"\nlisten = "127.0.0.1:0"\n{more}\n'
        f'[[filter]]\nclass = "marks:Marks"\nmark = "{mark}"\n'
    )


def write(path: Path, content: str) -> None:
    """Replace a file, as editors and configuration tools do."""
    beside = path.with_suffix(".new")
    beside.write_text(content)
    beside.rename(path)


class Command:
    """``krammar proxy`` in a process, whose log is read all the time."""

    def __init__(self, folder: Path, *options: str) -> None:
        (folder / "marks.py").write_text(FILTER)
        command = [sys.executable, "-m", "krammar.cli", "proxy", "proxy.toml", *options]
        self.folder = folder
        self.process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        self.wait_for("listening on ")
        line = next(each for each in self.lines if each.startswith("listening on "))
        self.address = Address.parse(line.split()[2])

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def wait_for(self, part: str, count: int = 1) -> None:
        until(
            lambda: sum(part in line for line in self.lines) >= count
            or self.process.poll() is not None,
            after=lambda: time.sleep(0.01),
            state=lambda: self.lines,
        )
        assert sum(part in line for line in self.lines) >= count, self.lines

    def hang_up(self) -> None:
        os.kill(self.process.pid, signal.SIGHUP)

    def mark(self) -> str:
        with Client(self.address) as client:
            return str(client.ask(MetadataRequest(topics=[]), 12).response.cluster_id)

    def notes(self) -> list[str]:
        """What filters have noted, of all processes."""
        found = []
        for each in sorted(self.folder.glob("log-*")):
            found += each.read_text().splitlines()
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(PATIENCE)
        self._thread.join(PATIENCE)


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Command]:
    found = Command(folder, *options)
    try:
        yield found
    finally:
        found.close()
    assert found.process.returncode == 0, found.lines
    assert "Traceback" not in "".join(found.lines)


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
def test_sighup_takes_over_a_valid_file_and_keeps_the_chain_for_an_invalid_one(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "proxy.toml"
    with KafkaBroker.start() as broker:
        upstream = broker.bootstrap_servers
        path.write_text(text(upstream, "one"))
        with running(tmp_path, *options) as proxy, Client(proxy.address) as open_before:
            open_before.ask(MetadataRequest(topics=[]), 12)
            write(path, text(upstream, "two", "max_frame = 1_000_000"))
            proxy.hang_up()
            proxy.wait_for(
                "proxy.toml was read again; new connections use its filters and settings"
            )
            assert {proxy.mark() for _ in range(8)} == {"two"}
            assert open_before.ask(MetadataRequest(topics=[]), 12).response.cluster_id == "one"
            for broken, expected in (
                ("upstream = 7", 'upstream: 7 needs "host:port"'),
                ("no toml", "proxy.toml: "),
                (text(upstream, "x") + "broken = true", "KeyError: 'broken on purpose' ("),
                (text(upstream, "x") + "[clients]\na = 1", "clients: a: unknown setting"),
                (text(upstream, "x").replace("marks:", "absent:"), "'absent' is not found"),
            ):
                write(path, broken)
                count = len(proxy.lines)
                proxy.hang_up()
                proxy.wait_for("is not used; filters and settings remain as before: ")
                until(lambda count=count: "remain" in "".join(proxy.lines[count:]))  # type: ignore[misc]
                assert expected in "".join(proxy.lines[count:])
                assert {proxy.mark() for _ in range(4)} == {"two"}
            # What needs a restart is named; the rest is used.
            write(path, text(upstream, "three", 'metrics_port = 0\nbroker_ports = "40000"'))
            write(path, path.read_text().replace("metrics_port = 0", 'metrics_port = "0"'))
            proxy.hang_up()
            proxy.wait_for(
                "broker_ports, metrics_port cannot change while the proxy runs (restart it)"
            )
            proxy.wait_for("was read again", 2)
            assert {proxy.mark() for _ in range(8)} == {"three"}
            assert open_before.ask(MetadataRequest(topics=[]), 12).response.cluster_id == "one"
        notes = proxy.notes()
    # Every filter was closed, after its last connection.
    made, closed = ([n.split()[1] for n in notes if n.startswith(w)] for w in ("made", "closed"))
    assert sorted(made) == sorted(closed)
    assert {"one", "two", "three"} <= set(made)


def test_a_filter_is_closed_after_its_last_connection(tmp_path: Path) -> None:
    path = tmp_path / "proxy.toml"
    with KafkaBroker.start() as broker:
        path.write_text(text(broker.bootstrap_servers, "one"))
        with running(tmp_path) as proxy:
            with Client(proxy.address) as client:
                client.ask(MetadataRequest(topics=[]), 12)
                write(path, text(broker.bootstrap_servers, "two"))
                proxy.hang_up()
                proxy.wait_for("was read again")
                assert proxy.mark() == "two"
                assert "closed one" not in proxy.notes()
                client.ask(MetadataRequest(topics=[]), 12)
            until(lambda: "closed one" in proxy.notes())
            assert "closed two" not in proxy.notes()


def test_a_file_that_changes_is_taken_over_by_itself(tmp_path: Path) -> None:
    """As a ConfigMap of Kubernetes changes: a symbolic link leads to another folder."""
    with KafkaBroker.start() as broker:

        def publish(version: str, content: str) -> None:
            folder = tmp_path / version
            folder.mkdir()
            (folder / "proxy.toml").write_text(content)
            (tmp_path / "data.new").symlink_to(folder)
            (tmp_path / "data.new").rename(tmp_path / "data")

        (tmp_path / "proxy.toml").symlink_to(tmp_path / "data" / "proxy.toml")
        publish("a", text(broker.bootstrap_servers, "one", "reload = true"))
        with running(tmp_path) as proxy:
            assert proxy.mark() == "one"
            publish("b", text(broker.bootstrap_servers, "two", "reload = true"))
            until(lambda: proxy.mark() == "two")
            publish("c", "invalid")
            proxy.wait_for("is not used")
            assert proxy.mark() == "two"
            publish("d", text(broker.bootstrap_servers, "four"))  # it watches no longer
            until(lambda: proxy.mark() == "four")
            publish("e", text(broker.bootstrap_servers, "five"))
            proxy.hang_up()
            until(lambda: proxy.mark() == "five")
            assert sum("is not used" in line for line in proxy.lines) == 1


def test_a_file_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "proxy.toml"
    path.write_text("a")
    changes = FileChanges(path)
    assert not changes.look()
    for content in ("ab", "abc"):
        path.write_text(content)
        assert not changes.look()
    assert changes.look()
    path.unlink()
    assert [changes.look() for _ in range(2)] == [False, True]


# -- in Python


class Counted(Filter):
    def __init__(self) -> None:
        self.closings = 0
        self.connections = 0

    def opened(self, connection: Connection) -> None:
        self.connections += 1

    def close(self) -> None:
        self.closings += 1


def test_other_filters_in_python(tmp_path: Path) -> None:
    one, two, both = Counted(), Counted(), Counted()
    with KafkaBroker.start() as broker:
        with Proxy.start(broker.bootstrap_servers, [one, both]) as proxy:
            with pytest.raises(ValueError, match="max_frame = 0 is less than 1"):
                proxy.replace([two], max_frame=0)
            with pytest.raises(ValueError, match="TLS begins or ends only with a restart"):
                proxy.replace([two], clients=Certificates(tmp_path).clients)
            with Client(address(proxy)) as client:
                client.ask(MetadataRequest(topics=[]), 12)
                proxy.replace([two, both])
                with Client(address(proxy)) as other:
                    other.ask(MetadataRequest(topics=[]), 12)
                assert [one.connections, two.connections, both.connections] == [1, 1, 2]
                assert [one.closings, two.closings, both.closings] == [0, 0, 0]
            until(lambda: one.closings == 1)
            assert [two.closings, both.closings] == [0, 0]
        assert [one.closings, two.closings, both.closings] == [1, 1, 1]


# -- --check


def check(path: Path, *options: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, ["proxy", "--check", str(path), *options])
    return found.exit_code, found.output


def test_check_accepts_a_valid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checked_marks.py").write_text(FILTER)
    path = tmp_path / "proxy.toml"
    path.write_text(text("localhost:9092", "one").replace("marks:", "checked_marks:"))
    assert check(path) == (0, f"{path}: valid, with 1 filter\n")
    notes = [each.read_text() for each in tmp_path.glob("log-*")]
    assert notes == ["made one\nclosed one\n"]
    until(lambda: not [each for each in threading.enumerate() if each.name == "marks"])


def test_check_reports_everything_at_once(tmp_path: Path) -> None:
    path = tmp_path / "proxy.toml"
    path.write_text("""
        upstream = 7
        colour = "red"
        workers = 0
        [[filter]]
        class = "krammar.proxy.filters.deny:Deny"
        nothing = true
        [[filter]]
        class = "absent:Filter"
        """)
    code, output = check(path)
    assert code == 1
    for expected in (
        'upstream: 7 needs "host:port"',
        "colour: unknown setting",
        "workers: 0 needs a whole number from 1 on",
        "[[filter]] 1: krammar.proxy.filters.deny:Deny: ",
        "[[filter]] 2: module 'absent' is not found",
    ):
        assert expected in output
    path.write_text("""
        upstream = "here"
        listen = "there"
        max_frame = 0
        broker_port_timeout = 0
        [clients]
        security.protocol = "SSL"
        ssl.keystore.location = "absent.pem"
        [brokers]
        security.protocol = "SSL"
        ssl.ca.location = "absent-ca.pem"
        """)
    code, output = check(path)
    assert code == 1
    assert len(output.splitlines()) == 6
    for expected in (
        "'here'",
        "'there'",
        "absent.pem",
        "absent-ca.pem",
        "max_frame",
        "broker_port",
    ):
        assert expected in output


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        ("", (), "give --upstream HOST:PORT, or a FILE with upstream"),
        ('upstream = "a:1"\n[users]\na = "b"', (), "clients: security.protocol"),
        (
            'upstream = "a:1"\nusers = "absent.toml"\n[clients]\nsecurity.protocol = "SASL_PLAINTEXT"',
            (),
            "absent.toml",
        ),
        (
            'upstream = "a:1"\nbroker_ports = "9000-9100"',
            (),
            "port 9093 of node 93 is also that of the listener",
        ),
        ('upstream = "a:1"', ("--broker-ports", "9"), ""),
        ('upstream = "a:1"\nupstream = "a:2"', (), "Cannot overwrite a value"),
    ],
)
def test_check(content: str, options: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    path = tmp_path / "proxy.toml"
    path.write_text(content)
    code, output = check(path, *options)
    assert code == (1 if expected else 0), output
    assert expected in output


def test_check_without_a_file_is_misuse(tmp_path: Path) -> None:
    assert check(tmp_path / "absent.toml")[0] == 2


# -- under load


class Load:
    """Producers that send numbered records to partitions of their own, through the proxy."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.errors: list[str] = []
        self.sent = [0, 0, 0]
        self._stop = threading.Event()
        work: list[Callable[[], None]] = [
            lambda: self._confluent(0),
            lambda: self._confluent(1),
            lambda: self._krammar(2),
        ]
        self._threads = [threading.Thread(target=each) for each in work]
        for thread in self._threads:
            thread.start()

    def _confluent(self, partition: int) -> None:
        while not self._stop.is_set():  # each producer opens connections
            producer = Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "enable.idempotence": True,
                    "linger.ms": 1,
                    "error_cb": lambda error: self.errors.append(str(error)),
                }
            )
            for _ in range(50):
                producer.produce(
                    "orders",
                    str(self.sent[partition]).encode(),
                    partition=partition,
                    on_delivery=lambda error, _: error and self.errors.append(str(error)),
                )
                self.sent[partition] += 1
                producer.poll(0.001)
            if producer.flush(PATIENCE):
                self.errors.append("records remain")

    def _krammar(self, partition: int) -> None:
        while not self._stop.is_set():
            try:
                with KafkaClient(self.bootstrap) as client, client.producer() as producer:
                    for _ in range(50):
                        value = str(self.sent[partition]).encode()
                        producer.send("orders", value, partition=partition)
                        self.sent[partition] += 1
            except Exception as error:
                self.errors.append(repr(error))

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)


def churn(folder: Path, rounds: int, *options: str) -> None:
    path = folder / "proxy.toml"
    with KafkaBroker.start(topics={"orders": 3}) as broker:
        upstream = broker.bootstrap_servers
        path.write_text(text(upstream, "0"))
        with running(folder, *options) as proxy:
            load = Load(str(proxy.address))
            try:
                for number in range(1, rounds + 1):
                    valid = number % 3 != 0
                    write(path, text(upstream, str(number)) if valid else "half of a fi")
                    before = len(proxy.lines)
                    proxy.hang_up()
                    wanted = "was read again" if valid else "is not used"
                    until(
                        lambda before=before, wanted=wanted: any(  # type: ignore[misc]
                            wanted in line for line in proxy.lines[before:]
                        ),
                        after=lambda: time.sleep(0.005),
                        state=lambda: proxy.lines[-5:],
                    )
                    sent = sum(load.sent)
                    until(lambda sent=sent: sum(load.sent) > sent)  # type: ignore[misc]
            finally:
                load.stop()
            assert not load.errors
            assert min(load.sent) > 0
        with KafkaClient(upstream) as client:
            found: dict[int, list[int]] = {0: [], 1: [], 2: []}
            for place, record in client.records("orders", begin=At.EARLIEST, end=At.LATEST):
                assert record.value is not None
                found[place.partition].append(int(record.value))
        assert found == {each: list(range(load.sent[each])) for each in range(3)}
        notes = proxy.notes()
        assert sum(n.startswith("made") for n in notes) == sum(
            n.startswith("closed") for n in notes
        )


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
def test_nothing_is_lost_while_the_file_changes(options: tuple[str, ...], tmp_path: Path) -> None:
    churn(tmp_path, 12, *options)


@pytest.mark.search
@pytest.mark.parametrize("options", [(), ("--workers", "3")])
def test_nothing_is_lost_while_the_file_changes_for_long(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    churn(tmp_path, 200, *options)
