"""Measures what an attack costs a server: turns, the wait of another client, memory, and the time of a stop.

All times are processor time, which does not grow with what else the machine does.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_wire import MetadataRequest

from tests.attack.servers import Server
from tests.broker.attacks import frame
from tests.support.waiting import PATIENCE

MEGABYTE = 1 << 20
# The limits of one attack: seconds, seconds, bytes, seconds.
TURN, WAIT, MEMORY, STOP = 0.1, 0.25, 256 * MEGABYTE, 5.0
# A response that takes longer waits for other clients.
ANSWER = 2.0


@dataclass(frozen=True)
class Attack:
    """``run`` attacks a server, and returns the bytes that it has sent.

    ``memory``  replaces the limit, in bytes
    ``crowd``   whether many connections attack together: others wait for each of them once
    """

    name: str
    run: Callable[[Server], int]
    memory: int = MEMORY
    crowd: bool = False

    @property
    def wait(self) -> float:
        """The most seconds that another client may wait."""
        return math.inf if self.crowd else WAIT


@dataclass
class Cost:
    """The cost of an attack: bytes, seconds of processor time, and bytes above the idle server.

    ``used``   how long the server has worked
    ``error``  what has failed, if anything has
    """

    attack: Attack
    sent: int = 0
    turn: float = 0.0
    wait: float = 0.0
    used: float = 0.0
    memory: int = 0
    error: str = ""

    def over(self) -> list[str]:
        """Return which limits are exceeded."""
        found = [self.error] if self.error else []
        found += ["turn"] if self.turn > TURN else []
        found += ["wait"] if self.wait > self.attack.wait else []
        return found + (["memory"] if self.memory > self.attack.memory else [])

    @property
    def part(self) -> float:
        """How much of its limits it uses up; more than 1 is too much."""
        return max(self.turn / TURN, self.wait / self.attack.wait, self.memory / self.attack.memory)


@dataclass
class Other:
    """Another client, which sends small requests all the time. ``wait`` is the longest, in the server's time."""

    server: Server
    wait: float = 0.0
    asked: int = 0
    error: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Other:
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)

    def _ask(self) -> None:
        request = frame(MetadataRequest(topics=[MetadataRequest.Topic(name="large")]), 12)
        process = self.server.process
        try:
            with socket.create_connection(("127.0.0.1", self.server.other), PATIENCE) as client:
                while not self._stop.wait(0.002):
                    before = process.cpu
                    client.sendall(request)
                    read_frame(client)
                    self.wait = max(self.wait, process.cpu - before)
                    self.asked += 1
        except OSError as error:
            self.error = f"the other client: {error or type(error).__name__}"

    def asks_again(self) -> None:
        """Wait until it has got a few more responses."""
        goal, until = self.asked + 3, time.monotonic() + 2 * PATIENCE
        while self.asked < goal and not self.error and time.monotonic() < until:
            time.sleep(0.001)


def read_frame(client: socket.socket) -> int:
    """Read one frame and drop it. Returns its size in bytes. Raises ConnectionError."""
    head = b""
    while len(head) < 4:
        piece = client.recv(4 - len(head))
        if not piece:
            raise ConnectionError("the server has closed the connection")
        head += piece
    (left,) = size = struct.unpack(">i", head)
    while left:
        piece = client.recv(min(left, 1 << 20))
        if not piece:
            raise ConnectionError("the server has closed the connection")
        left -= len(piece)
    return int(size[0])


def measure(server: Server, attack: Attack, other: Other, idle: int | None = None) -> Cost:
    """Attack a server, and measure until it is idle again.

    ``idle`` is the memory of the server before its first attack, in bytes: memory that earlier attacks have left
    counts, because it would hide what this one needs.
    """
    process = server.process
    cost = Cost(attack)
    other.asks_again()
    if idle is None:
        idle = process.memory("VmRSS")
    before = process.cpu
    process.forget()
    other.wait = 0.0
    try:
        cost.sent = attack.run(server)
    except Exception as error:
        cost.error = f"{type(error).__name__}: {error}"
    other.asks_again()
    settle(server)
    cost.used = process.cpu - before
    other.asks_again()
    cost.turn, cost.wait = process.turn, other.wait
    cost.memory = max(0, process.memory("VmHWM") - idle)
    cost.error = cost.error or other.error
    if process.problems:
        cost.error = cost.error or f"the server has logged {process.problems.pop(0)}"
    return cost


def settle(server: Server, seconds: float = 60.0) -> None:
    """Wait until the server does little."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        before, began = server.process.cpu, time.monotonic()
        time.sleep(0.03)
        if server.process.cpu - before < 0.5 * (time.monotonic() - began):
            return


def stop_during(server: Server, attack: Attack) -> tuple[float, float]:
    """Send SIGTERM while an attack runs. Returns the time until the end, and its processor time, in seconds."""

    def run() -> None:
        with contextlib.suppress(Exception):  # its connections are closed
            attack.run(server)

    before = server.process.cpu
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until = time.monotonic() + 1.0
    while server.process.cpu - before < 0.05 and time.monotonic() < until:
        time.sleep(0.001)
    try:
        return server.process.terminate()
    finally:
        thread.join(PATIENCE)
