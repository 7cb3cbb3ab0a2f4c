"""Runs a proxy as several processes that share its ports (``krammar proxy --workers``).

A worker that dies is started again. If one ends before it listens, the proxy ends with an error, because the next one
would end for the same reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from krammar.proxy.addresses import Address, resolve
from krammar.proxy.clients import LOG
from krammar.proxy.server import ProxyError
from krammar.proxy.worker import LIMIT, VARIABLE, Key, line
from krammar.util.sockets import why

# Seconds that a worker must have lived to be started again at once.
_SHORT_LIFE = 1.0
# Seconds that workers may take to end, beyond the time for open requests.
_GRACE = 5.0


class WorkerError(ProxyError):
    """The workers cannot run."""


class _Process:
    def __init__(self, number: int) -> None:
        self.number = number
        self.ready = False
        self.process: asyncio.subprocess.Process | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.asked: asyncio.Future[Any] | None = None

    def send(self, message: bytes) -> None:
        if self.writer is not None and not self.writer.is_closing():
            self.writer.write(message)


class Supervisor:
    """The workers of a proxy.

    Args:
        command: the command that starts a worker.
        count: the number of workers.
        listen: the proxy's addresses by the name of the listener.
        drain_timeout: how long workers wait for responses when they end, in seconds.
        lost: called with the last numbers of the metrics of a worker that has died.
    """

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        listen: Mapping[str, Address],
        drain_timeout: float,
        lost: Callable[[Any], None],
    ) -> None:
        self._command = command
        self._count = count
        self._listen = listen
        self._drain_timeout = drain_timeout
        self._lost = lost
        self._secret = secrets.token_bytes(32)
        self._reserved: list[socket.socket] = []
        self._ports: dict[Key, int] = {}
        self._workers: list[_Process] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._allotting = asyncio.Lock()
        self._last: dict[int, Any] = {}
        self._stopping = False
        self.failed: asyncio.Future[None] | None = None
        self.addresses: dict[str, Address] = {}

    async def start(self) -> None:
        """Start all workers, and wait until they listen. Raises WorkerError."""
        if not hasattr(socket, "SO_REUSEPORT"):
            raise WorkerError("this system has no SO_REUSEPORT, so there can be only one worker")
        for name, listen in self._listen.items():
            try:
                self.addresses[name] = Address(listen.host, await self._reserve(listen))
            except (OSError, UnicodeError) as error:
                raise WorkerError(f"cannot listen on {listen}: {why(error)}") from None
        self.failed = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()
        ready: list[asyncio.Future[None]] = [loop.create_future() for _ in range(self._count)]
        self._tasks = [loop.create_task(self._run(n, each)) for n, each in enumerate(ready)]
        everyone = asyncio.gather(*ready)
        await asyncio.wait((everyone, self.failed), return_when=asyncio.FIRST_COMPLETED)
        if self.failed.done():
            everyone.cancel()
            await self.stop()
            self.failed.result()

    async def _run(self, number: int, ready: asyncio.Future[None]) -> None:
        """Run a worker, again and again, until the proxy ends."""
        loop = asyncio.get_running_loop()
        while not self._stopping:
            worker, began = _Process(number), loop.time()
            own, theirs = socket.socketpair()
            environment: Mapping[str, str] = {**os.environ, VARIABLE: str(theirs.fileno())}
            with theirs:
                worker.process = await asyncio.create_subprocess_exec(
                    *self._command, env=environment, pass_fds=(theirs.fileno(),)
                )
            reader, worker.writer = await asyncio.open_connection(sock=own, limit=LIMIT)
            # From here on it gets all further ports.
            self._workers.append(worker)
            ports = [[name, bind, *to, port] for (name, bind, to), port in self._ports.items()]
            begin = {"secret": self._secret.hex(), "listen": self.addresses, "ports": ports}
            worker.send(line(begin=begin))
            try:
                await self._serve(worker, reader, ready)
            finally:
                self._workers.remove(worker)
                worker.writer.close()
            code = await worker.process.wait()
            if self._stopping:
                return
            if worker.asked is not None and not worker.asked.done():
                worker.asked.cancel()
            self._lost(self._last.pop(number, None))
            ended = f"worker {number} has ended {_how(code)}"
            if not worker.ready:
                if self.failed is not None and not self.failed.done():
                    self.failed.set_exception(WorkerError(f"{ended} before it listened"))
                return
            LOG.error("%s; another one is started", ended)
            await asyncio.sleep(max(0.0, _SHORT_LIFE - (loop.time() - began)))

    async def _serve(
        self, worker: _Process, reader: asyncio.StreamReader, ready: asyncio.Future[None]
    ) -> None:
        while data := await reader.readline():
            for name, value in json.loads(data).items():
                if name == "ready":
                    worker.ready = True
                    if not ready.done():
                        ready.set_result(None)
                elif name == "want":
                    listener, bind_host, host, port = value
                    await self._allot(worker, (listener, bind_host, Address(host, port)))
                elif worker.asked is not None and not worker.asked.done():
                    worker.asked.set_result(value)

    async def _allot(self, worker: _Process, key: Key) -> None:
        name, bind_host, upstream = key
        place = [name, bind_host, *upstream]
        async with self._allotting:
            if key in self._ports:
                worker.send(line(open=[*place, self._ports[key]]))
                return
            try:
                port = await self._reserve(Address(bind_host, 0))
            except (OSError, UnicodeError) as error:
                worker.send(line(refuse=[*place, why(error)]))
                return
            self._ports[key] = port
            for each in self._workers:
                each.send(line(open=[*place, port]))

    async def _reserve(self, address: Address) -> int:
        """Bind a socket, which does not listen, so that no other program gets the port."""
        host, port = await resolve(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as alone:
            # Without SO_REUSEPORT, so that a port of another proxy is an error.
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind((host, port))
        shared = socket.socket(family)
        self._reserved.append(shared)
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        shared.bind((host, port))
        return int(shared.getsockname()[1])

    async def numbers(self) -> list[Any]:
        """Return the numbers of the metrics of all workers."""
        loop = asyncio.get_running_loop()
        asked = []
        for worker in self._workers:
            if worker.asked is None or worker.asked.done():
                worker.asked = loop.create_future()
                worker.send(line(numbers=True))
            asked.append((worker, worker.asked))
        if asked:
            await asyncio.wait([each for _, each in asked], timeout=_GRACE)
        for worker, answer in asked:
            if answer.done() and not answer.cancelled():
                self._last[worker.number] = answer.result()
        return list(self._last.values())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all workers."""
        for worker in self._workers:
            if worker.process is not None and worker.process.returncode is None:
                worker.process.send_signal(number)

    async def stop(self) -> None:
        """Let all workers end after the responses to requests in flight."""
        self._stopping = True
        self.signal(signal.SIGTERM)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._drain_timeout + _GRACE)
        self.signal(signal.SIGKILL)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in self._reserved:
            each.close()


def command() -> list[str]:
    """Return the command of this process, to start it again as a worker."""
    return [sys.executable, "-m", "krammar.cli", *sys.argv[1:]]


def _how(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
