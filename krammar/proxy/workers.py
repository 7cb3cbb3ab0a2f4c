"""Several processes that share the ports of a proxy (``krammar proxy --workers``): the supervisor, and its workers.

All workers listen on the same ports with SO_REUSEPORT, so the supervisor allots the port of each broker. Each worker has a
channel to it. Messages are lines of JSON, objects with one key.

A worker that dies is started again. If one ends before it listens, the proxy ends with an error, because the next one
would end for the same reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from krammar.proxy.addresses import ANY, Address, resolve
from krammar.proxy.clients import LOG
from krammar.proxy.listeners import ListenError
from krammar.proxy.ports import MAX_PORTS, FixedPorts, PortUses
from krammar.proxy.server import Proxy, ProxyError, Replacement
from krammar.proxy.settings import Settings, SettingsError
from krammar.proxy.takeover import discard, prepare
from krammar.util.sockets import why

# The environment variable with the number of the worker's socket.
VARIABLE = "KRAMMAR_PROXY_WORKER"
# The most bytes of a line. The longest lines are the numbers of metrics.
_LIMIT = 16 << 20
# Seconds that a worker must have lived to be started again at once.
_SHORT_LIFE = 1.0
# Seconds that workers may take to end, beyond the time for open requests.
_GRACE = 5.0
# Seconds that workers may take to check other settings, and to create their filters.
_PREPARE = 60.0
# Ports that the system offers for a broker, until one was not that of another broker.
_OFFERS = 64

# The name of a listener, and the node id of a broker.
Key = tuple[str, int]


class WorkerError(ProxyError):
    """The workers cannot run."""


def _line(**message: Any) -> bytes:
    """Return a message as a line."""
    return json.dumps(message).encode() + b"\n"


class Worker:
    """The channel of a worker.

    Attributes:
        secret: hides which users exist; the same for all workers
        listen: the addresses of the proxy by the name of the listener, with their ports
        settings: the text of the file of settings that all workers use; None if there is no file

    Args:
        channel: a connected socket, whose first line waits or will come.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        first = b""
        while not first.endswith(b"\n"):
            piece = channel.recv(1)  # not more, because the event loop reads the other lines
            if not piece:
                raise ConnectionError("the supervisor has ended")
            first += piece
        begin = json.loads(first)["begin"]
        self.secret = bytes.fromhex(begin["secret"])
        self.listen = {name: str(Address(*each)) for name, each in begin["listen"].items()}
        self.settings: str | None = begin["settings"]
        self._ports: list[list[Any]] = begin["ports"]
        self._asked: dict[Key, asyncio.Future[None]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._prepared: Replacement | None = None
        self._settled = (
            0  # the number of the last settings that all workers have accepted or refused
        )

    async def start(
        self, server: Proxy, load: Callable[[str], Settings], stop: Callable[[], object]
    ) -> None:
        """Open the ports that other workers have, report that this one listens, and handle messages.

        Args:
            server: the proxy, which listens.
            load: returns what the text of a file of settings contains. Raises SettingsError.
            stop: called if the supervisor has ended.

        Raises:
            ListenError: a port cannot be opened.
        """
        reader, self._writer = await asyncio.open_connection(sock=self._channel, limit=_LIMIT)
        for each in self._ports:
            await self._open(server, *each)
        self._writer.write(_line(ready=True))
        self._task = asyncio.ensure_future(self._read(reader, server, load, stop))

    # -- as ``SharedPorts``

    async def want(self, listener: str, node: int, upstream: Address) -> None:
        """Have the port of a broker opened in all workers, or led to an address. Raises ListenError."""
        asked = self._asked.get((listener, node))
        if asked is None:
            asked = self._asked[listener, node] = asyncio.get_running_loop().create_future()
            self._send(want=[listener, node, *upstream])
        await asyncio.shield(asked)

    def lost(self, listener: str, node: int) -> None:
        """Report that the address of a broker is not known any more."""
        self._send(want=[listener, node, *ANY])

    def used(self, listener: str, nodes: list[int]) -> None:
        """Report the brokers that responses have named, or whose ports have connections."""
        if nodes:
            self._send(used=[listener, nodes])

    def _send(self, **message: Any) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(_line(**message))

    # -- messages of the supervisor

    async def _read(
        self,
        reader: asyncio.StreamReader,
        server: Proxy,
        load: Callable[[str], Settings],
        stop: Callable[[], object],
    ) -> None:
        while data := await reader.readline():
            ((kind, value),) = json.loads(data).items()
            if kind == "numbers":
                metrics = server.metrics
                self._send(numbers=metrics and metrics.registry.numbers())
            elif kind == "open":
                listener, node = value[:2]
                try:
                    await self._open(server, *value)
                except ListenError as error:
                    LOG.warning("no port for node %d: %s", node, error)
                    self._answer((listener, node), error)
                else:
                    self._answer((listener, node), None)
            elif kind == "refuse":
                listener, node, reason = value
                self._answer((listener, node), ListenError(reason))
            elif kind == "close":
                listener, node = value
                server.listeners[listener].close_port(node)
            elif kind == "prepare":
                self._preparing = asyncio.ensure_future(self._prepare(server, load, *value))
            elif kind == "settle":
                self._settle(server, *value)
        stop()

    async def _open(
        self, server: Proxy, listener: str, node: int, host: str, port: int, number: int
    ) -> None:
        await server.listeners[listener].open(node, Address(host, port), number)

    def _answer(self, key: Key, error: ListenError | None) -> None:
        asked = self._asked.pop(key, None)
        if asked is None or asked.done():
            return
        if error is None:
            asked.set_result(None)
        else:
            asked.set_exception(error)
            asked.exception()  # the connection that has asked can have ended

    async def _prepare(
        self, server: Proxy, load: Callable[[str], Settings], number: int, text: str
    ) -> None:
        """Check other settings, and report the result: an empty text, or what is wrong."""
        try:
            replacement = (await prepare(server, load, text)).replacement
        except SettingsError as error:
            self._send(prepared=[number, str(error)])
            return
        if number <= self._settled:  # it has taken too long
            discard(replacement)
            return
        self._prepared = replacement
        self._send(prepared=[number, ""])

    def _settle(self, server: Proxy, number: int, adopt: bool) -> None:
        """Use the settings that were prepared, or forget them."""
        self._settled = number
        prepared, self._prepared = self._prepared, None
        if prepared is not None and adopt:
            server.adopt(prepared)
        elif prepared is not None:
            discard(prepared)


class _Process:
    def __init__(self, number: int) -> None:
        self.number = number
        self.ready = False
        self.process: asyncio.subprocess.Process | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.asked: asyncio.Future[Any] | None = None
        self.prepared: asyncio.Future[str] | None = None

    def send(self, message: bytes) -> None:
        if self.writer is not None and not self.writer.is_closing():
            self.writer.write(message)


class _SharedPort:
    """A port that all workers share: its number, the broker's address, and a socket that reserves it."""

    def __init__(self, socket_: socket.socket, upstream: Address) -> None:
        self.socket = socket_
        self.number = int(socket_.getsockname()[1])
        self.upstream = upstream


class Supervisor:
    """The workers of a proxy.

    Args:
        command: the command that starts a worker.
        count: the number of workers.
        listen: the proxy's addresses by the name of the listener.
        fixed: the ports of brokers by the name of the listener, if they are fixed.
        port_timeout: seconds after which another port closes that no response names and no connection uses.
        drain_timeout: how long workers wait for responses when they end, in seconds.
        settings: the text of the file of settings; None if there is no file.
        lost: called with the last numbers of the metrics of a worker that has died.
    """

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        listen: Mapping[str, Address],
        fixed: Mapping[str, FixedPorts],
        port_timeout: float,
        drain_timeout: float,
        settings: str | None,
        lost: Callable[[Any], None],
    ) -> None:
        self._command = command
        self._count = count
        self._listen = listen
        self._fixed = fixed
        self._settings = settings
        self._settling = asyncio.Lock()
        self._uses: PortUses[Key] = PortUses(port_timeout)
        self._drain_timeout = drain_timeout
        self._lost = lost
        self._secret = os.urandom(32)
        self._reserved: list[socket.socket] = []
        self._ports: dict[Key, _SharedPort] = {}
        self._workers: list[_Process] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[None] | None = None
        self._round = 0  # of other settings
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
            port = await self._reserve_first(listen, "")
            self._reserved.append(port)
            self.addresses[name] = Address(listen.host, port.getsockname()[1])
        for name, ports in self._fixed.items():
            for node, number in ports.by_node.items():
                place = Address(self._listen[name].host, number)
                reserved = await self._reserve_first(place, f" (the port of node {node})")
                self._ports[name, node] = _SharedPort(reserved, ANY)
        self.failed = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()
        ready: list[asyncio.Future[None]] = [loop.create_future() for _ in range(self._count)]
        self._tasks = [loop.create_task(self._run(n, each)) for n, each in enumerate(ready)]
        self._closing = loop.create_task(self._close_unused())
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
            reader, worker.writer = await asyncio.open_connection(sock=own, limit=_LIMIT)
            async with self._settling:  # so that it has the same settings as the others
                # From here on it gets all further ports.
                self._workers.append(worker)
                begin = {
                    "secret": self._secret.hex(),
                    "listen": self.addresses,
                    "settings": self._settings,
                    "ports": [
                        [*key, *port.upstream, port.number] for key, port in self._ports.items()
                    ],
                }
                worker.send(_line(begin=begin))
            try:
                await self._serve(worker, reader, ready)
            finally:
                self._workers.remove(worker)
                worker.writer.close()
                _answer(worker.prepared, "")  # the next one gets the settings of the others
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
            ((name, value),) = json.loads(data).items()
            if name == "ready":
                worker.ready = True
                if not ready.done():
                    ready.set_result(None)
            elif name == "want":
                listener, node, host, port = value
                await self._allot(worker, (listener, node), Address(host, port))
            elif name == "used":
                listener, nodes = value
                for node in nodes:
                    if (listener, node) in self._ports:
                        self._uses.use((listener, node))
            elif name == "prepared":
                number, reason = value
                if number == self._round:
                    _answer(worker.prepared, reason)
            else:
                _answer(worker.asked, value)

    # -- ports

    async def _allot(self, worker: _Process, key: Key, upstream: Address) -> None:
        async with self._allotting:
            port = self._ports.get(key)
            if port is None and upstream == ANY:
                return  # it is closed meanwhile
            if port is None:
                try:
                    port = await self._open(key, upstream)
                except (OSError, UnicodeError) as error:
                    worker.send(_line(refuse=[*key, why(error)]))
                    return
                except WorkerError as error:
                    worker.send(_line(refuse=[*key, str(error)]))
                    return
            elif port.upstream == upstream:
                worker.send(_line(open=[*key, *upstream, port.number]))
                return
            port.upstream = upstream
            if key[0] not in self._fixed:
                self._uses.use(key)
            for each in self._workers:
                each.send(_line(open=[*key, *upstream, port.number]))

    async def _open(self, key: Key, upstream: Address) -> _SharedPort:
        """Reserve a port for a broker. Raises WorkerError, and OSError."""
        name, _ = key
        if sum(listener == name for listener, _ in self._ports) >= MAX_PORTS - 1:
            # Workers report connections and responses at each look.
            oldest = self._uses.oldest(2 * self._uses.period, lambda each: each[0] != name)
            if oldest is None:
                raise WorkerError(f"{MAX_PORTS} ports are already open, and all are in use")
            self._close(oldest)
        host = self._listen[name].host
        others: list[socket.socket] = []
        try:
            if former := self._uses.former(key):
                with suppress(OSError):  # another program has it
                    found = await self._reserve(Address(host, former))
                    self._ports[key] = _SharedPort(found, upstream)
                    return self._ports[key]
            for _ in range(_OFFERS):
                found = await self._reserve(Address(host, 0))
                if not self._uses.is_of_another(key, int(found.getsockname()[1])):
                    self._ports[key] = _SharedPort(found, upstream)
                    return self._ports[key]
                others.append(found)
        finally:
            for each in others:  # later, so that the system does not offer them again
                each.close()
        raise WorkerError("the system offers only ports that other brokers have had")

    def _close(self, key: Key) -> None:
        port = self._ports.pop(key)
        self._uses.close(key, port.number)
        for each in self._workers:
            each.send(_line(close=list(key)))
        port.socket.close()

    async def _close_unused(self) -> None:
        while not self._stopping:
            await asyncio.sleep(self._uses.period)
            async with self._allotting:
                for key in self._uses.overdue():
                    self._close(key)

    async def _reserve_first(self, address: Address, whose: str) -> socket.socket:
        try:
            return await self._reserve(address)
        except (OSError, UnicodeError) as error:
            raise WorkerError(f"cannot listen on {address}: {why(error)}{whose}") from None

    async def _reserve(self, address: Address) -> socket.socket:
        """Return a bound socket, which does not listen, so that no other program gets the port. Raises OSError."""
        host, port = await resolve(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as alone:
            # Without SO_REUSEPORT, so that a port of another proxy is an error.
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind((host, port))
        shared = socket.socket(family)
        try:
            shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            shared.bind((host, port))
        except OSError:
            shared.close()
            raise
        return shared

    # -- settings

    async def replace(self, settings: str) -> None:
        """Let all workers use the text of another file of settings, or none of them. Raises SettingsError."""
        async with self._settling:
            loop = asyncio.get_running_loop()
            asked = list(self._workers)
            self._round += 1
            for worker in asked:
                worker.prepared = loop.create_future()
                worker.send(_line(prepare=[self._round, settings]))
            answers = [each.prepared for each in asked if each.prepared is not None]
            if answers:
                await asyncio.wait(answers, timeout=_PREPARE)
            wrong = []
            for worker, answer in zip(asked, answers, strict=True):
                if not answer.done():
                    wrong.append(f"worker {worker.number} has not answered within {_PREPARE:g} s")
                elif answer.result():
                    wrong.append(answer.result())
            for worker in asked:
                worker.send(_line(settle=[self._round, not wrong]))
            if wrong:
                raise SettingsError(wrong[0])
            self._settings = settings

    async def numbers(self) -> list[Any]:
        """Return the numbers of the metrics of all workers."""
        loop = asyncio.get_running_loop()
        asked = []
        for worker in self._workers:
            if worker.asked is None or worker.asked.done():
                worker.asked = loop.create_future()
                worker.send(_line(numbers=True))
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
        if self._closing is not None:
            self._closing.cancel()
        self.signal(signal.SIGTERM)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._drain_timeout + _GRACE)
        self.signal(signal.SIGKILL)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in (*self._reserved, *(port.socket for port in self._ports.values())):
            each.close()


def command() -> list[str]:
    """Return the command of this process, to start it again as a worker."""
    return [sys.executable, "-m", "krammar.cli", *sys.argv[1:]]


def _answer(future: asyncio.Future[Any] | None, value: Any) -> None:
    if future is not None and not future.done():
        future.set_result(value)


def _how(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
