"""``krammar tap`` as a process: started, stopped by signals, misused, replayed."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from kafka_wire import ApiVersionsRequest, MetadataRequest

from krammar.proxy.addresses import Address
from krammar.tap.capture import Capture, CaptureWriter
from tests.ports import free_port
from tests.support.frames import framed
from tests.support.waiting import PATIENCE
from tests.tap.support import Client, Upstream, broker, upstream

COMMAND = (sys.executable, "-m", "krammar.cli", "tap")


class Process:
    """The command, its two outputs, and where it listens."""

    def __init__(
        self,
        upstreams: list[Address],
        *arguments: str,
        command: tuple[str, ...] = COMMAND,
        first: str = "",
    ) -> None:
        line = [*command, *arguments]
        for one in upstreams:
            line += ["--listen", "127.0.0.1:0", "--upstream", str(one)]
        self.process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        assert self.process.stderr is not None
        self.before = [self.process.stderr.readline()] if first else []
        assert all(line.startswith(first) for line in self.before), self.before
        lines = [self.process.stderr.readline() for _ in upstreams]
        assert all(line.startswith("listening on ") for line in lines), lines
        self.addresses = [Address.parse(line.split()[2]) for line in lines]

    @property
    def address(self) -> Address:
        return self.addresses[0]

    def end(self, number: int | None = None) -> tuple[int, str, str]:
        """Exit code and both outputs, after a signal or by itself."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


@contextmanager
def started(
    upstreams: list[Address],
    *arguments: str,
    command: tuple[str, ...] = COMMAND,
    first: str = "",
) -> Iterator[Process]:
    """Run a tap in a separate process, and stop it at the end of the block."""
    process = Process(upstreams, *arguments, command=command, first=first)
    try:
        yield process
    finally:
        process.process.kill()
        process.process.communicate()


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )


def talk(address: Address) -> None:
    """Send ApiVersions and Metadata to an address."""
    with Client(address) as client:
        client.ask(ApiVersionsRequest(client_software_name="test"), 3)
        client.ask(MetadataRequest(topics=[]), 12)


def talk_until_cut(address: Address) -> None:
    with Client(address) as client:
        client.socket.sendall(client.connection.send_request(MetadataRequest(topics=[]), 12))
        client.read_to_end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_the_table(number: int) -> None:
    with upstream(broker) as server, started([server.address], "--summary") as tap:
        talk(tap.address)
        code, out, err = tap.end(number)
    assert code == 0
    lines = out.splitlines()
    assert " ApiVersions v3 " in lines[1]
    assert any(" Metadata v12 " in line and " ok " in line for line in lines)
    assert lines[-1] == "4 frames: every frame decoded, every frame re-encoded to the same bytes"
    assert any(line.split()[:4] == ["Metadata", "12", "1", "1"] for line in lines)
    assert "for broker localhost:" in err
    assert err.splitlines()[-1] == "stopped"
    assert "Traceback" not in err


def test_a_signal_while_clients_are_connected() -> None:
    with (
        upstream(broker) as server,
        started([server.address]) as tap,
        Client(tap.address) as client,
    ):
        client.ask(MetadataRequest(topics=[]), 12)
        code, out, err = tap.end(signal.SIGTERM)
        assert client.read_to_end() == b""
    assert code == 0
    assert out.splitlines()[-1].endswith("closed by the tap")
    assert err.splitlines()[-1].startswith("2 frames: every frame decoded")


def test_it_ends_when_the_broker_has_gone() -> None:
    server = Upstream(broker)
    with started([server.address], "--summary") as tap, Client(tap.address) as client:
        client.ask(MetadataRequest(topics=[]), 12)
        server.close()
        code, out, err = tap.end()
    assert code == 0
    assert f"{server.address} does not accept connections any more" in err
    assert out.splitlines()[-1].startswith("2 frames: every frame decoded")


def test_the_exit_code_is_1_after_an_undecodable_frame() -> None:
    def garbage(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(framed(b"\0\0\0\0\0\xff\xff\xff\xff\xff"))
        connection.recv(1)

    with upstream(garbage) as server, started([server.address], "--quiet") as tap:
        with Client(tap.address) as client:
            client.socket.sendall(client.connection.send_request(MetadataRequest(topics=[]), 12))
            client.read_exactly(14)
        code, out, err = tap.end(signal.SIGINT)
    assert code == 1
    (line,) = out.splitlines()
    assert "undecodable" in line
    assert "MetadataResponse v12: " in line
    assert err.splitlines()[-1] == "2 frames: 1 undecodable"


def test_saved_frames_are_listed_again(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    with upstream(broker) as server, started([server.address], "--save", str(path)) as tap:
        talk(tap.address)
        _, live, _ = tap.end(signal.SIGTERM)
    listed = run(path)
    assert listed.returncode == 0
    # The same lines, except that the replay does not know what the tap changed.
    was = [line.split("; ")[0] for line in live.splitlines()]
    assert [line.split("; ")[0] for line in listed.stdout.splitlines()] == was
    assert "changed by the tap" in listed.stdout
    assert "4 frames: every frame decoded" in listed.stderr

    table = run(path, "--summary", "--quiet")
    assert table.returncode == 0
    assert table.stdout.splitlines()[0].startswith("api ")
    objects = [json.loads(line) for line in run(path, "--json").stdout.splitlines()]
    assert [(o["api"], o["direction"]) for o in objects] == [
        ("ApiVersions", "request"),
        ("ApiVersions", "response"),
        ("Metadata", "request"),
        ("Metadata", "response"),
    ]
    assert objects[0]["message"]["client_software_name"] == "test"
    assert objects[3]["changed"] == "changed by the tap"
    both = run(path, "--json", "--summary")
    assert len(both.stdout.splitlines()) == 4
    assert both.stderr.startswith("api ")


def test_json_live() -> None:
    with upstream(broker) as server, started([server.address], "--json") as tap:
        talk(tap.address)
        _, out, _ = tap.end(signal.SIGTERM)
    objects = [json.loads(line) for line in out.splitlines()]
    assert len(objects) == 4
    assert objects[3]["upstream"] == str(server.address)
    assert f"{server.address} replaced by {tap.address}" in objects[3]["changed"]


def test_a_capture_survives_kill_and_a_torn_tail_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    with (
        upstream(broker) as server,
        started([server.address], "--save", str(path)) as tap,
        Client(tap.address) as client,
    ):
        for _ in range(2):  # the first response is stored before the second request is read
            client.ask(MetadataRequest(topics=[]), 12)
        tap.end(signal.SIGKILL)
    assert len([record for record in Capture(path) if record.kind < 2]) >= 3
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 3)
    listed = run(path)
    assert listed.returncode == 0
    assert "is incomplete" in listed.stderr
    assert listed.stdout


def test_several_upstreams() -> None:
    with (
        upstream(broker) as one,
        upstream(broker) as two,
        started([one.address, two.address]) as tap,
    ):
        for address in tap.addresses:
            talk(address)
        code, out, _ = tap.end(signal.SIGTERM)
    assert code == 0
    assert f" to {one.address}" in out
    assert f" to {two.address}" in out


def test_nobody_reads_on() -> None:
    with upstream(broker) as server, started([server.address]) as tap:
        assert tap.process.stdout is not None
        tap.process.stdout.close()
        with Client(tap.address) as client:
            client.socket.sendall(client.connection.send_request(MetadataRequest(topics=[]), 12))
            assert tap.process.wait(PATIENCE) == 1
        assert tap.process.stderr is not None
        assert "Traceback" not in tap.process.stderr.read()


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address(*taken.getsockname()[:2])
        result = run("--listen", str(address), "--upstream", "127.0.0.1:1")
    assert result.returncode == 1
    assert f"cannot listen on {address}: address already in use" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_port_in_use_for_commands() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listen = f"127.0.0.1:{free_port()}"
        result = run("--listen", listen, "--upstream", "127.0.0.1:1", "--control", str(port))
    assert result.returncode == 1
    error = f"Error: cannot listen on 127.0.0.1:{port} for commands: address already in use\n"
    assert result.stderr.endswith(error)


def test_a_broker_that_is_down_is_a_line() -> None:
    server = Upstream(broker)
    server.close()
    with started([server.address]) as tap:
        with Client(tap.address) as client:
            assert client.read_to_end() == b""
        code, _, err = tap.end(signal.SIGTERM)
    assert code == 0
    assert f": cannot reach {server.address}: connection refused" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --upstream HOST:PORT, or the FILE of a capture"),
        (("--upstream", "nonsense"), "--upstream: 'nonsense' is not HOST:PORT, such as"),
        (("--upstream", "a:1", "--listen", "x"), "--listen: 'x' is not HOST:PORT"),
        (("--upstream", "a:1", "--ui", "99999"), "--ui: '99999' is not PORT or HOST:PORT"),
        (("--upstream", "a:1", "--upstream", "b:1"), "give one --listen for each --upstream"),
        (("--upstream", "a:1", "--listen", ":1", "--listen", ":2"), "give one --listen"),
        (("--upstream", "a:1", "--max-frame", "0"), "--max-frame"),
        (("--upstream", "a:1", "--broker-ports", "x"), "--broker-ports: 'x' is no port"),
        (
            ("--upstream", "a:1", "--broker-ports", "1", "--broker-ports", "2"),
            "give one --broker-ports for each --upstream",
        ),
        (("/nowhere/a.tap",), "does not exist"),
        ((__file__,), "is not a capture"),
        ((__file__, "--upstream", "a:1"), "FILE cannot be combined with"),
        (("--listen", ":0", "--upstream", "a:1", "--save", __file__), "so it is not overwritten"),
    ],
)
def test_misuse(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_a_tap_that_cannot_listen_leaves_the_capture(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    with closing(CaptureWriter(path)) as writer:
        writer.opened(1, 1, "127.0.0.1:5", "127.0.0.1:9092")
    before = path.read_bytes()
    new = tmp_path / "new.tap"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        for save in (path, new):
            result = run("--listen", listen, "--upstream", "127.0.0.1:1", "--save", str(save))
            assert result.returncode == 1
            assert f"cannot listen on {listen}: address already in use" in result.stderr
    assert path.read_bytes() == before and not new.exists()


def test_a_host_name_that_cannot_be_one() -> None:
    result = run("--listen", "a..b:0", "--upstream", "127.0.0.1:1")
    assert result.returncode == 1
    assert "cannot listen on a..b:0: the host name cannot be resolved" in result.stderr


def test_a_file_that_cannot_grow_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    with upstream(broker) as server:
        # As on a full disk: writing beyond so many bytes fails.
        limit = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (200, 200)); "
        code = limit + "from krammar.cli import main; main()"
        with started(
            [server.address], "--save", str(path), command=(sys.executable, "-c", code, "tap")
        ) as tap:
            talk_until_cut(tap.address)
            exit_code, _, err = tap.end()
    assert exit_code == 1
    assert f"File too large: '{path}'" in err
    assert "Traceback" not in err
    assert len(list(Capture(path))) > 0
