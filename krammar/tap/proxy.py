"""The tap: a proxy that changes nothing but addresses and versions, and reports each frame to observers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from krammar.faults import Faults
from krammar.proxy.addresses import CONNECT_TIMEOUT, Address
from krammar.proxy.link import Link
from krammar.proxy.listeners import ListenError
from krammar.proxy.partial_frames import LargeFrames
from krammar.proxy.ports import FixedPorts, fixed_ports
from krammar.proxy.server import Proxy, ProxyError
from krammar.tap.frame import Observer
from krammar.tap.watching import Watcher
from krammar.wire.package import package_of

# The default of the largest frame that is decoded. Text can take four times the memory of its bytes.
MAX_DECODED = 16 << 20


class TapError(Exception):
    """The tap cannot run."""


class TapArgumentError(TapError):
    """An argument is invalid."""


class Forward(NamedTuple):
    """An address to listen on, and the broker to which its connections lead. Port 0 means any free port.

    Attributes:
        ports: the ports of brokers by node id, as ``FixedPorts`` describes; None for free ones
    """

    listen: Address
    upstream: Address
    ports: str | None = None


class Tap(Proxy):
    """The tap of one cluster.

    Args:
        protocol: a generated package.
        forwards: where to listen, and for which brokers.
        advertise: the tap's host in responses. Default: the host on which it listens, or, if that means
            all addresses, the address to which the client has connected.
        max_frame: larger frames are passed on without decoding, in bytes. So are frames of more than 64 kB
            while all large frames together take more than 64 MB, or twice ``max_frame``.
        stay: whether the tap continues when all brokers are gone.
        faults: rules that are applied to the frames that are passed on.
        clients: TLS of clients, as the settings of ``Proxy``.
        brokers: TLS to brokers, as the settings of ``Proxy``.

    Raises:
        ValueError: a setting is invalid, or names a file that cannot be read.
        TapError: the ports of brokers are invalid.

    Attributes:
        max_large_frames: the bytes of large frames of all connections, unless ``max_frame`` needs
            more
    """

    max_large_frames = 64 << 20

    def __init__(
        self,
        protocol: ModuleType,
        forwards: list[Forward],
        observers: list[Observer],
        *,
        advertise: str | None = None,
        max_frame: int = MAX_DECODED,
        stay: bool = False,
        faults: Faults | None = None,
        clients: Mapping[str, Any] | None = None,
        brokers: Mapping[str, Any] | None = None,
    ) -> None:
        names = ["", *(f"#{number}" for number in range(2, len(forwards) + 1))]
        fixed = _fixed_ports(dict(zip(names, forwards, strict=True)))
        large = LargeFrames(max(self.max_large_frames, 2 * max_frame))
        self._watcher = Watcher(package_of(protocol), observers, max_frame, large, self._fail)
        super().__init__(
            str(forwards[0].upstream),
            [self._watcher] if faults is None else [self._watcher, faults],
            listen=str(forwards[0].listen),
            advertise=advertise,
            protocol=protocol,
            max_frame=max_frame,
            clients=clients,
            brokers=brokers,
            broker_ports=forwards[0].ports,
            pass_unreadable=True,
        )
        first = self.listeners[""].first
        for name, forward in zip(names[1:], forwards[1:], strict=True):
            found = self._new_listeners("", forward.listen.host, fixed.get(name), first)
            self.listeners[name] = found
        self._resources.large = large
        self._forwards = forwards
        self._stay = stay
        self._finished: asyncio.Future[str] | None = None
        self._open = 0
        self._reached = False
        self._checks: set[asyncio.Task[None]] = set()

    async def run(self, started: Callable[[list[Forward]], None] | None = None) -> str:
        """Listen, and pass on frames until ``stop`` is called or the brokers are gone.

        Args:
            started: called when the tap listens, with the forwards and their actual ports.

        Returns:
            Why it has ended.

        Raises:
            TapError: the tap cannot listen. Errors of observers are raised unchanged.
        """
        self._finished = asyncio.get_running_loop().create_future()
        try:
            listening: list[Forward] = []
            for listeners, forward in zip(self.listeners.values(), self._forwards, strict=True):
                try:
                    if not listening:
                        await self.serve()
                    else:
                        await listeners.listen(forward.listen, forward.upstream)
                        await listeners.open_fixed()
                except (ListenError, ProxyError) as error:
                    raise TapError(str(error)) from error
                address = Address(forward.listen.host, listeners.first_port)
                listening.append(Forward(address, forward.upstream))
            if started is not None:
                started(listening)
            return await self._finished
        finally:
            for task in self._checks:
                task.cancel()
            await self.abort()
            await self._watcher.finish()

    def stop(self, reason: str = "stopped") -> None:
        """End ``run``. Call this in the event loop that runs it."""
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(reason)

    def _fail(self, error: BaseException) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_exception(error)

    # -- what happens in the proxy

    def notice(self, text: str) -> None:
        self._watcher.report("notice", text)

    def log(self, level: int, text: str, bug: BaseException | None) -> None:
        if bug is not None:
            self._fail(bug)
        elif level >= logging.WARNING:
            self._watcher.report("notice", text)

    def opened(self, link: Link) -> None:
        super().opened(link)
        self._open += 1

    def lost(self, link: Link) -> None:
        super().lost(link)
        self._open -= 1
        self._reached = self._reached or link.is_connected
        if not link.is_connected or "broker" in link.connection.ended.partition(":")[0]:
            task = asyncio.ensure_future(self._check_gone())
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def _check_gone(self) -> None:
        """End the tap if no connection is open, and no broker of the forwards accepts connections."""
        if self._stay or not self._reached or self._open:
            return
        for forward in self._forwards:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    _, writer = await asyncio.open_connection(*forward.upstream)
            except (OSError, UnicodeError):
                continue
            writer.transport.abort()
            return
        if not self._open:
            gone = ", ".join(str(forward.upstream) for forward in self._forwards)
            verb = "does" if len(self._forwards) == 1 else "do"
            self.stop(f"stopped: {gone} {verb} not accept connections any more")


def _fixed_ports(forwards: Mapping[str, Forward]) -> dict[str, FixedPorts]:
    given = {name: forward.ports for name, forward in forwards.items() if forward.ports is not None}
    if not given:
        return {}
    try:
        return fixed_ports(given, {name: each.listen.port for name, each in forwards.items()}, None)
    except ValueError as error:
        raise TapArgumentError(f"--broker-ports: {error}") from None
