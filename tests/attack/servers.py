"""Every server of krammar, each in a process whose turns, processor time and memory are measured."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import kafka_wire
from kafka_wire import SaslAuthenticateRequest, SaslHandshakeRequest

from krammar.testing.certificates import make_certificates
from krammar.wire.connection import ClientConnection
from krammar.wire.engine_loading import PURE
from tests.attack.other import processor_time
from tests.attack.process import SECONDS
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE

PASSWORD = "secret"


@dataclass(frozen=True)
class Build:
    """How a server runs: the event loop (asyncio or uvloop), and whether the engine encodes and decodes."""

    loop: str = "asyncio"
    engine: bool = False

    def __str__(self) -> str:
        return f"{self.loop}, {'engine' if self.engine else 'pure Python'}"


BUILDS = tuple(Build(loop, engine) for engine in (False, True) for loop in ("asyncio", "uvloop"))


_ADDRESSES = re.compile(
    r"(?P<listener>\w+) listening on \S*:(?P<at>\d+)$|^listening on \S*:(?P<port>\d+)"
    r"|http://\S*:(?P<metrics>\d+)/metrics|page: (?P<page>\S+)"
)


class Process:
    """One process of krammar. ``lines`` are its last lines of output, and ``problems`` the tracebacks in them."""

    def __init__(self, arguments: Sequence[object], ready: str, build: Build, folder: Path) -> None:
        file = folder / f"turns-{time.monotonic_ns()}"
        file.write_bytes(SECONDS.pack(0.0))
        self._turns = file.open("r+b", buffering=0)
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        environment.pop(PURE, None)
        if not build.engine:
            environment[PURE] = "1"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.attack.process", file, build.loop, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        )
        self.lines: deque[str] = deque(maxlen=1000)
        self.problems: list[str] = []
        # The ports by name, and the page's address.
        self.found: dict[str, str] = {}
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            for match in _ADDRESSES.finditer(line):
                for name, value in match.groupdict().items():
                    if name == "listener" and value is not None:
                        self.found.setdefault(value, match["at"])
                    elif value is not None:
                        self.found.setdefault(name, value)
            if re.search(ready, line):
                break
        else:
            raise AssertionError("the server did not start:\n" + "".join(self.lines))
        # All output is read, so that the process never blocks.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        trace = ""
        for line in self.process.stdout:
            self.lines.append(line)
            if trace:
                trace += line
                if not line.startswith(" "):
                    self.problems = [*self.problems[-9:], trace]
                    trace = ""
            elif "Traceback" in line:
                trace = line

    @property
    def turn(self) -> float:
        """The longest turn of the event loop since ``forget``, in seconds of processor time."""
        return float(SECONDS.unpack(os.pread(self._turns.fileno(), SECONDS.size, 0))[0])

    @property
    def cpu(self) -> float:
        """The processor time of the process so far, in seconds."""
        return processor_time(self.process.pid)

    def memory(self, name: str) -> int:
        """``VmRSS`` or ``VmHWM`` (the peak), in bytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) * 1024

    def forget(self) -> None:
        """Begin to measure again: turns, and the peak of the memory."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        os.pwrite(self._turns.fileno(), SECONDS.pack(0.0), 0)

    def terminate(self) -> tuple[float, float]:
        """Send SIGTERM. Returns the time until the process has ended, and its processor time in between, in seconds."""
        before, began = self.cpu, time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        _, _, used = os.wait4(self.process.pid, 0)
        wall = time.monotonic() - began
        self.process.returncode = 0
        return wall, max(0.0, used.ru_utime + used.ru_stime - before)

    def close(self) -> None:
        """End it at once."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(PATIENCE)
        self._turns.close()


@dataclass
class Server:
    """A running server, as its attackers see it.

    ``process``  the one that is measured
    ``port``     the attacked one
    ``admin``    a port of the broker for Kafka clients without logins
    ``other``    a port of the measured process through which another client sends requests of Kafka
    ``tls``      the context for clients of the attacked port, or None
    ``token``    the tap's page has it in its URL
    """

    kind: str
    process: Process
    port: int
    admin: int
    other: int
    tls: ssl.SSLContext | None = None
    logs_in: bool = False
    token: str = ""

    def stranger(self) -> socket.socket:
        """A connection on which nothing was sent, not even TLS."""
        plain = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return plain

    def connect(self, *, login: bool = True) -> socket.socket:
        """A connection on which requests are served."""
        plain = self.stranger()
        if self.tls is not None:
            plain = self.tls.wrap_socket(plain)
        if self.logs_in and login:
            log_in(plain)
        return plain

    def client(self) -> RawClient:
        """A client of Kafka on the attacked port."""
        return Client(self.connect())


class Client(RawClient):
    """A client on a connection that exists."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.wire = ClientConnection(kafka_wire, client_id="x")


def log_in(connected: socket.socket, password: str = PASSWORD) -> int:
    """Log in as alice with PLAIN. Returns the error code."""
    client = Client(connected)
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = f"\0alice\0{password}".encode()
    return int(client.call(SaslAuthenticateRequest(auth_bytes=token), 2).error_code)


# How often the broker does what it does by its clock. Flushes have this interval by default.
PERIOD_MS = 1000
_BASE = {
    "log.cleaner.backoff.ms": str(PERIOD_MS),
    "log.retention.check.interval.ms": str(PERIOD_MS),
    "offsets.retention.check.interval.ms": str(PERIOD_MS),
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "connection.failed.authentication.delay.ms": "0",
    "auto.create.topics.enable": "true",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_alice="{PASSWORD}";',
}
LISTENERS = {"tls": "SSL", "sasl": "SASL_PLAINTEXT", "wafka": "WAFKA"}
KINDS = ("plain", "tls", "sasl", "nodes", "wafka", "metrics", "tap", "tap-page", "proxy")
# The servers to which requests of Kafka go.
KAFKA = frozenset({"plain", "tls", "sasl", "nodes", "tap", "proxy"})
BROKERS = frozenset({"plain", "tls", "sasl", "nodes"})


class Running:
    """A server with all that it needs, in a folder that later servers of the same kind can use again."""

    def __init__(self, kind: str, build: Build, folder: Path) -> None:
        self._opened = ExitStack()
        try:
            self.server = self._start(kind, build, folder)
        except BaseException:
            self._opened.close()
            raise

    def _process(self, *given: Any) -> Process:
        process = Process(*given)
        self._opened.callback(process.close)
        return process

    def _start(self, kind: str, build: Build, folder: Path) -> Server:
        properties = dict(_BASE)
        listeners = ["PLAINTEXT://127.0.0.1:0"]
        context = None
        if kind in LISTENERS:
            listeners.append(f"{LISTENERS[kind]}://127.0.0.1:0")
        if kind == "tls":
            files, settings = make_certificates(folder)
            properties |= settings
            context = ssl.create_default_context(cafile=str(files.ca))
            context.check_hostname = False
        properties["listeners"] = ",".join(listeners)
        file = folder / "broker.properties"
        file.write_text("".join(f"{key}={_escaped(value)}\n" for key, value in properties.items()))
        arguments: list[object] = ["broker", file, "--data-dir", folder / "data"]
        if kind == "nodes":
            arguments += ["--nodes", 3]
        if kind == "metrics":
            arguments += ["--metrics", 0]
        broker = self._process(arguments, r"^ready ", build, folder)
        plain = int(broker.found["PLAINTEXT"])
        if kind in ("tap", "tap-page"):
            given = ["--listen", "127.0.0.1:0", "--upstream", f"127.0.0.1:{plain}", "--stay"]
            ui = ["--ui"] if kind == "tap-page" else []
            tap = self._process(["tap", *given, *ui], r"^listening on .* for ", build, folder)
            port = int(tap.found["port"])
            if kind == "tap":
                return Server(kind, tap, port, plain, port)
            page = urlsplit(tap.found["page"])
            token = parse_qs(page.query)["token"][0]
            return Server(kind, tap, page.port or 0, plain, port, token=token)
        if kind == "proxy":
            given = ["--listen", "127.0.0.1:0", "--upstream", f"127.0.0.1:{plain}"]
            given += ["--filter", "tests.attack.filters:Reads"]
            proxy = self._process(["proxy", *given], r"^listening on ", build, folder)
            port = int(proxy.found["port"])
            return Server(kind, proxy, port, plain, port)
        port = int(broker.found[LISTENERS.get(kind, "PLAINTEXT")])
        if kind == "metrics":
            port = int(broker.found["metrics"])
        return Server(kind, broker, port, plain, plain, context, kind == "sasl")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
