"""The broker in a separate process: ``krammar broker server.properties``."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.ports import free_port
from tests.support.waiting import PATIENCE


def kraft_properties(
    log_dir: Path, port: int, controller_port: int, overrides: Mapping[str, str] | None = None
) -> str:
    """Kafka's ``server.properties`` for KRaft mode, on loopback and with our ports."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@localhost:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "num.network.threads": "3",
        "num.io.threads": "8",
        "socket.send.buffer.bytes": "102400",
        "socket.receive.buffer.bytes": "102400",
        "socket.request.max.bytes": "104857600",
        "log.dirs": str(log_dir),
        "num.partitions": "1",
        "num.recovery.threads.per.data.dir": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "log.retention.hours": "168",
        "log.segment.bytes": "1073741824",
        "log.retention.check.interval.ms": "300000",
        **(overrides or {}),
    }
    lines = ["############################# Server Basics #############################", ""]
    lines += [f"{name}={value}" for name, value in settings.items()]
    return "\n".join(lines) + "\n"


class BrokerProcess:
    """A broker that was started by ``start`` and is ended by its process id alone."""

    def __init__(
        self,
        folder: Path,
        port: int,
        *,
        overrides: Mapping[str, str] | None = None,
        preexec: Callable[[], None] | None = None,
    ) -> None:
        """``server.properties`` and the output are in ``folder``, the logs in its folder ``data``."""
        self.folder = folder
        self.data = folder / "data"
        self.port = port
        self.output = folder / "output.txt"
        self.properties = folder / "server.properties"
        self.properties.write_text(kraft_properties(self.data, port, free_port(), overrides))
        self._preexec = preexec
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """The output of the broker so far."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def spawn(self) -> None:
        """Start the process and return at once."""
        assert not self.alive
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "krammar", "broker", str(self.properties)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                preexec_fn=self._preexec,
            )

    def wait_ready(self) -> None:
        """Wait until the port accepts connections."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                pass
            assert time.monotonic() < deadline, f"the broker does not listen:\n{self.log()}"
            # Either it ends, or the next attempt is due.
            code = self.wait(0.01)
            assert code is None, f"the broker ended with {code}:\n{self.log()}"

    def start(self) -> Self:
        self.spawn()
        self.wait_ready()
        return self

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None while the process runs on."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self.wait(PATIENCE)
        if code is None:
            self.kill()
            raise AssertionError(f"the broker does not stop:\n{self.log()}")
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.alive:
            self.kill()
