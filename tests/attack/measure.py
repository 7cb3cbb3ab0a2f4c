"""Measures what an attack costs a server: turns, the wait of another client, memory, and the time of a stop.

All times are processor time, which does not grow with what else the machine does.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from kafka_wire import MetadataRequest

from tests.attack.other import STATE
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


class Other:
    """Another client in a process of its own (``tests.attack.other``)."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            file = stack.enter_context(tempfile.NamedTemporaryFile())
            file.write(STATE.pack(0.0, 0))
            file.flush()
            self._state = file.fileno()
            place = (self._server.other, self._server.process.process.pid, file.name)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.attack.other", *map(str, place)],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            stack.callback(self._end)
            assert self._process.stdin is not None
            topics = [MetadataRequest.Topic(name="large")]
            self._process.stdin.write(frame(MetadataRequest(topics=topics), 12))
            self._process.stdin.close()
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()

    @property
    def wait(self) -> float:
        """The longest wait since ``forget``, in seconds of the server's processor time."""
        return float(STATE.unpack(os.pread(self._state, STATE.size, 0))[0])

    @property
    def answered(self) -> int:
        """The number of responses."""
        return int(STATE.unpack(os.pread(self._state, STATE.size, 0))[1])

    @property
    def error(self) -> str:
        """Why it has ended, if it has."""
        if self._process.poll() is None:
            return ""
        assert self._process.stderr is not None
        if not self._reason:
            self._reason = f"the other client: {self._process.stderr.read().decode().strip()}"
        return self._reason

    _reason = ""

    def forget(self) -> None:
        """Begin to measure again."""
        os.pwrite(self._state, struct.pack("d", 0.0), 0)

    def asks_again(self) -> None:
        """Wait until it has got a few more responses."""
        goal, until = self.answered + 3, time.monotonic() + 2 * PATIENCE
        while self.answered < goal and not self.error and time.monotonic() < until:
            time.sleep(0.001)


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
    other.forget()
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
