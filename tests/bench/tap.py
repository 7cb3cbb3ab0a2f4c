"""Measure what the tap costs its clients: nothing between them, the plain tap, with a rule, with its page.

    python -m tests.bench.tap            everything; writes its section of docs/benchmarks.md
    python -m tests.bench.tap --quick    few requests and rounds

The broker is a process that answers every Produce with the same bytes, so that the tap is what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlsplit

from kafka_wire import ProduceRequest, ProduceResponse, RequestHeader, ResponseHeader

from krammar.wire.batches import Record, encode_batch
from tests.bench.page import machine, markdown_table, put_file, section, subsection
from tests.interop.processes import unwind_on_sigterm

_PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
_VERSION = 9
_VALUE = 1_000  # bytes of the record in a request
_CONNECTIONS = 4
_WINDOW = 8  # requests in flight per connection, for the highest rate
_PACE = 5_000  # requests per second, for the latency: 10,000 frames per second
_RULE = """\
[[fault]]
name = "not these"
api = "Produce"
topic = "payments"
answer = "NOT_LEADER_OR_FOLLOWER"
"""


def request(number: int) -> bytes:
    """A Produce request of one record, with its length prefix."""
    partition = ProduceRequest.PartitionProduceData(
        index=0, records=encode_batch([Record(value=bytes(_VALUE))])
    )
    message = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[ProduceRequest.TopicProduceData(name="orders", partition_data=[partition])],
    )
    header = RequestHeader(
        request_api_key=0, request_api_version=_VERSION, correlation_id=number, client_id="bench"
    )
    data = header.encode(2) + message.encode(_VERSION)
    return len(data).to_bytes(4, "big") + data


def response() -> bytes:
    """The response, from its correlation id 0 on."""
    partition = ProduceResponse.PartitionProduceResponse(index=0, base_offset=7)
    message = ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(name="orders", partition_responses=[partition])
        ]
    )
    return bytes(ResponseHeader(correlation_id=0).encode(1) + message.encode(_VERSION))


class Broker(asyncio.Protocol):
    """Answers every request with the same response."""

    def __init__(self) -> None:
        self.data = b""
        self.rest = response()[4:]
        self.prefix = (len(self.rest) + 4).to_bytes(4, "big")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        position, out = 0, []
        while len(self.data) - position >= 4:
            end = position + 4 + int.from_bytes(self.data[position : position + 4], "big")
            if end > len(self.data):
                break
            out += [self.prefix, self.data[position + 8 : position + 12], self.rest]
            position = end
        self.data = self.data[position:]
        self.transport.write(b"".join(out))


async def serve() -> None:
    """The broker's process."""
    server = await asyncio.get_running_loop().create_server(Broker, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@dataclass
class Setup:
    """What is between clients and broker. ``pid`` is the tap's process, None without a tap."""

    port: int
    pid: int | None = None


@contextmanager
def started(*command: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    """Run a command, and stop it at the end of the block or on SIGTERM. Only the main thread can call this."""
    unwind_on_sigterm()
    early: list[int] = []
    # An exception that SIGTERM raised within Popen would leave a process that nobody ends.
    unwind = signal.signal(signal.SIGTERM, lambda number, _: early.append(number))
    process = subprocess.Popen(command, text=True, **options)  # type: ignore[call-overload]
    try:
        signal.signal(signal.SIGTERM, unwind)
        if early:
            signal.raise_signal(signal.SIGTERM)
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def tap(broker: int, *arguments: str) -> Iterator[tuple[Setup, list[str]]]:
    """A tap, and the lines that it printed first. Its listing goes into a file."""
    with tempfile.TemporaryFile() as out:
        command = [sys.executable, "-m", "krammar.cli", "tap", "--listen", "127.0.0.1:0"]
        command += ["--upstream", f"127.0.0.1:{broker}", *arguments]
        with started(*command, stdout=out, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            lines = []
            while not lines or not lines[-1].startswith("listening on "):
                lines.append(process.stderr.readline())
                assert lines[-1], lines
            port = int(lines[-1].split()[2].rpartition(":")[2])
            yield Setup(port, process.pid), lines


@contextmanager
def reader(url: str) -> Iterator[None]:
    """A page that reads all events."""
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname, parts.port))
    connection.sendall(f"GET /events?{parts.query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def read() -> None:
        with suppress(OSError):
            while connection.recv(1 << 20):
                pass

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        thread.join()
        connection.close()


@contextmanager
def running(name: str, broker: int, rule: Path) -> Iterator[Setup]:
    """One of ``NAMES``."""
    if name == DIRECT:
        yield Setup(broker)
    elif name == PLAIN:
        with tap(broker) as (setup, _):
            yield setup
    elif name == RULE:
        with tap(broker, "--faults", str(rule)) as (setup, _):
            yield setup
    else:
        with tap(broker, "--ui") as (setup, lines), ExitStack() as stack:
            if name == READ:
                stack.enter_context(reader(lines[0].split()[1]))
            yield setup


DIRECT, PLAIN, RULE = "direct connection", "tap", "tap with a rule"
UNREAD, READ = "tap with `--ui`, no page open", "tap with `--ui`, a page open"
NAMES = (DIRECT, PLAIN, RULE, UNREAD, READ)


class Connection:
    """A client's connection, on which responses are counted."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.size = len(response()) + 4
        self.data = request(0)

    def send(self, number: int) -> None:
        self.socket.sendall(self.data[:8] + number.to_bytes(4, "big") + self.data[12:])

    def receive(self) -> None:
        left = self.size
        while left:
            left -= len(self.socket.recv(left))


def highest_rate(port: int, requests: int) -> float:
    """Requests per second with a full window on each connection."""

    def talk(connection: Connection) -> None:
        for number in range(_WINDOW):
            connection.send(number)
        for number in range(_WINDOW, requests // _CONNECTIONS):
            connection.receive()
            connection.send(number)
        for _ in range(_WINDOW):
            connection.receive()
        connection.socket.close()

    connections = [Connection(port) for _ in range(_CONNECTIONS)]
    threads = [threading.Thread(target=talk, args=(each,)) for each in connections]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return requests / (time.perf_counter() - begin)


def latencies(port: int, requests: int, pace: float) -> list[float]:
    """Seconds from each request to its response, one request at a time, at most ``pace`` per second."""
    connection = Connection(port)
    found = []
    begin = time.perf_counter()
    for number in range(requests):
        due = begin + number / pace
        while time.perf_counter() < due:
            pass
        sent = time.perf_counter()
        connection.send(number)
        connection.receive()
        found.append(time.perf_counter() - sent)
    connection.socket.close()
    return found


def cpu(pid: int | None) -> float:
    """Seconds of processor time of a process (Linux)."""
    if pid is None:
        return 0.0
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Figures:
    """The figures of all rounds."""

    rates: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)


def measure(rounds: int, requests: int, broker: int, rule: Path) -> dict[str, Figures]:
    figures = {name: Figures() for name in NAMES}
    for _ in range(rounds):
        for name, own in figures.items():
            with running(name, broker, rule) as setup:
                highest_rate(setup.port, requests // 10)  # imports, and fills caches
                own.waits += latencies(setup.port, requests // 4, _PACE)
                before = cpu(setup.pid)
                own.rates.append(highest_rate(setup.port, requests))
                own.costs.append((cpu(setup.pid) - before) / requests / 2)
    return figures


def lines(figures: dict[str, Figures]) -> Iterator[str]:
    yield "## What the tap costs clients"
    yield ""
    yield from machine()
    yield ""
    yield f"Produce requests of one record of {_VALUE:,} bytes and their responses; a request is two frames. The"
    yield "rate is the highest one, on 4 connections with 8 requests in flight; the latency is that of single requests."
    yield "Compare processor times: rates and latencies also depend on what else runs on the machine."
    rows = []
    for name, own in figures.items():
        parts = quantiles(own.waits, n=100)
        rows.append(
            (
                name,
                f"{2 * median(own.rates):,.0f}",
                f"{median(own.costs) * 1e6:.0f} µs" if median(own.costs) else "",
                f"{parts[49] * 1e6:,.0f} µs",
                f"{parts[98] * 1e6:,.0f} µs",
            )
        )
    head = (
        "Between clients and broker",
        "Frames per second",
        "Processor time of the tap per frame",
        "Median latency",
        "99 %",
    )
    yield from subsection("Figures", "", markdown_table(head, rows))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.tap", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="few requests and rounds")
    parser.add_argument("--output", type=Path, default=_PAGE, help="page that takes the section")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    rounds, requests = (1, 4_000) if options.quick else (3, 10_000)
    with tempfile.TemporaryDirectory() as folder:
        rule = Path(folder, "rule.toml")
        rule.write_text(_RULE)
        command = (sys.executable, "-m", "tests.bench.tap", "--serve")
        with started(*command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            figures = measure(rounds, requests, int(process.stdout.readline()), rule)
    written = list(lines(figures))
    print("\n".join(written))
    if not options.quick:
        put_file(options.output, section("tap", "python -m tests.bench.tap", written))


if __name__ == "__main__":
    main()
