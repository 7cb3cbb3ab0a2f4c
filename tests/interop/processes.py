"""Brokers as processes: started on a free port of loopback, awaited, ended."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from tests.ports import free_port
from tests.support.waiting import PATIENCE

# ApiVersions v0, correlation id 7, no client id: what every broker answers first.
_PROBE = struct.pack(">ihhih", 10, 18, 0, 7, -1)


class Unavailable(Exception):
    """Something that is not part of the project is missing: Java, Maven, Node, jars."""


def unwind_on_sigterm() -> None:
    """Let SIGTERM raise SystemExit, as Ctrl-C raises KeyboardInterrupt, so that ``with`` ends what it has started."""
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def answers(port: int, timeout: float = 5) -> bool:
    """Whether a broker answers ApiVersions at ``port``."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout) as connection:
            connection.sendall(_PROBE)
            head = connection.recv(8, socket.MSG_WAITALL)
            return len(head) == 8 and head[4:] == b"\x00\x00\x00\x07"
    except OSError:
        return False


class Server(ABC):
    """A broker's process, in a process group of its own, on a data folder."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """What to run. May prepare the folder."""

    def environment(self) -> dict[str, str]:
        """Of the process."""
        return dict(os.environ)

    def answers(self) -> bool:
        """Whether the process has started."""
        return answers(self.port)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.out")

    def start(self, timeout: float = PATIENCE) -> float:
        """Start, wait for the first answer; seconds from start to it.

        Raises RuntimeError with the log's end if the process ends or stays silent.
        """
        unwind_on_sigterm()
        self.folder.mkdir(parents=True, exist_ok=True)
        command = self.command()
        self._log = self.log.open("ab")
        began = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        while not self.answers():
            if self.process.poll() is not None or time.perf_counter() - began > timeout:
                self.kill()
                said = self.log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{self.name} does not start\n{said}")
            time.sleep(0.001)
        return time.perf_counter() - began

    def stop(self, timeout: float = PATIENCE) -> int:
        """End it in order; its exit code."""
        code = self._end(signal.SIGTERM, timeout)
        return 0 if code is None else code

    def kill(self) -> None:
        self._end(signal.SIGKILL, 30)

    def _end(self, how: signal.Signals, timeout: float) -> int | None:
        process, self.process = self.process, None
        code = None
        if process is not None:
            if process.poll() is None:
                os.killpg(process.pid, how)
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait(PATIENCE)
        if self._log is not None:
            self._log.close()
            self._log = None
        return code

    def complaints(self) -> list[str]:
        """What its log has to say of its own faults."""
        return []

    def resident(self) -> int:
        """Bytes of memory that the process holds."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def processor_time(self) -> float:
        """Seconds of processor time, of all its threads, since the start."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        complaints = self.complaints()
        if complaints:
            said = "\n".join(complaints)
            raise RuntimeError(f"{self.name} has faults of its own\n{said}")


class Krammar(Server):
    """Our broker, as its command starts it."""

    name = "krammar"

    def __init__(self, folder: Path, *, properties: dict[str, str] | None = None) -> None:
        super().__init__(folder)
        self.properties = properties or {}

    def command(self) -> list[str]:
        config = self.folder.with_name(f"{self.folder.name}.krammar.properties")
        properties = {
            "node.id": "1",
            "log.dirs": str(self.folder),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.num.partitions": "5",
            "group.initial.rebalance.delay.ms": "0",
            **self.properties,
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return [sys.executable, "-m", "krammar", "broker", str(config)]

    def complaints(self) -> list[str]:
        """An exception in the log is a bug, even if the clients worked."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        first = text.find("Traceback (most recent call last)")
        return [] if first < 0 else [text[max(0, first - 300) : first + 3000]]


@dataclass(frozen=True)
class Through:
    """The address of a proxy, in place of a broker's."""

    bootstrap: str
