"""Addresses, and one listening port per broker: clients choose a broker by its address."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from krammar.auth.tls_acceptor import TlsAcceptor
from krammar.util.sockets import address_text, why

# Seconds to wait for a broker to accept a connection.
CONNECT_TIMEOUT = 10.0

# The most listening ports, so that a response with very many brokers cannot exhaust the machine's ports.
MAX_LISTENERS = 1_024


class ListenError(Exception):
    """An address cannot be listened on."""


class Address(NamedTuple):
    """A host and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return address_text(self)

    @property
    def reachable_host(self) -> str:
        """The host by which this machine reaches what listens here, also on all addresses."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)

    @classmethod
    def parse(cls, text: str, default_host: str = "127.0.0.1") -> Address:
        """Parse ``host:port``, ``[::1]:port``, ``:port`` or ``port``. Raises ValueError for other text."""
        host, _, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if (bare == host and ":" in bare) or not port.isdecimal() or int(port) > 65_535:
            raise ValueError(f"{text!r} is not host:port")
        return cls(bare or default_host, int(port))


# In place of the address of a broker: any one of ``upstream``. No broker has this address.
ANY = Address("", 0)


class Upstreams:
    """The addresses of a cluster, of which one is enough.

    ``broker``  the broker of connections to the first port of a listener; ``ANY`` if there are several addresses

    Args:
        addresses: a list of ``host:port``, or a text with commas between them.

    Raises:
        ValueError: an address has another form, or there is none.
    """

    def __init__(self, addresses: str | Iterable[str]) -> None:
        texts = addresses.split(",") if isinstance(addresses, str) else addresses
        self._all = tuple(dict.fromkeys(Address.parse(each.strip()) for each in texts))
        if not self._all:
            raise ValueError("upstream has no address (give at least one host:port)")
        self.broker = self._all[0] if len(self._all) == 1 else ANY

    def to_try(self, broker: Address) -> tuple[Address, ...]:
        """Return the addresses for a connection to a broker, in the order in which to try them."""
        return self._all if broker == ANY else (broker,)

    def reached(self, address: Address) -> None:
        """Let the next connections to ``ANY`` begin with an address that was reached."""
        if address in self._all and address != self._all[0]:
            index = self._all.index(address)
            self._all = self._all[index:] + self._all[:index]


# Starts a server: the resolved address, the host as it was given, and the broker of its connections.
Serve = Callable[[Address, str, Address], Awaitable[asyncio.Server | TlsAcceptor]]

# Returns the port for the connections to a broker, for the host of a listener. Raises ListenError.
Allot = Callable[[str, Address], Awaitable[int]]


class Listeners:
    """The listening ports of a proxy: one per broker and local host.

    Args:
        serve: starts a server.
        notice: receives a line about each port that was opened, or could not be.
        limit: returns the most ports.
        allot: returns the port of a broker. Default: the system selects a free one.
    """

    def __init__(
        self,
        serve: Serve,
        notice: Callable[[str], None],
        limit: Callable[[], int],
        allot: Allot | None = None,
    ) -> None:
        self._allot = allot
        self._serve = serve
        self._notice = notice
        self._limit = limit
        self._open: dict[tuple[str, Address], tuple[asyncio.Server | TlsAcceptor, int]] = {}
        self._opening = asyncio.Lock()

    async def listen(self, listen: Address, upstream: Address) -> int:
        """Listen on an address for the connections to a broker.

        Returns:
            The port, which the system selects if it is 0.

        Raises:
            ListenError: the address is in use, or cannot be resolved.
        """
        try:
            # A host name may have several addresses, and port 0 would give each of them another port.
            host = (await resolve(listen)).host
            server = await self._serve(Address(host, listen.port), listen.host, upstream)
        except (OSError, UnicodeError) as error:
            raise ListenError(f"cannot listen on {listen}: {describe(error)}") from error
        port: int = server.sockets[0].getsockname()[1]
        self._open[listen.host, upstream] = (server, port)
        return port

    def known(self, bind_host: str, upstream: Address) -> int | None:
        """Return the port of a broker, or None if it has none yet."""
        found = self._open.get((bind_host, upstream))
        return None if found is None else found[1]

    async def port_for(self, bind_host: str, upstream: Address) -> int | None:
        """Return the port of a broker, opened now if necessary; None if that fails."""
        async with self._opening:
            if (known := self.known(bind_host, upstream)) is not None:
                return known
            if len(self._open) >= self._limit():
                self._notice(
                    f"no port for broker {upstream}: {self._limit()} ports are already open"
                )
                return None
            try:
                port = 0 if self._allot is None else await self._allot(bind_host, upstream)
                port = await self.listen(Address(bind_host, port), upstream)
            except ListenError as error:
                self._notice(f"no port for broker {upstream}: {error}")
                return None
            self._notice(f"listening on {Address(bind_host, port)} for broker {upstream}")
            return port

    async def open(self, bind_host: str, upstream: Address, port: int) -> None:
        """Listen on the port of a broker, unless it is open. Raises ListenError."""
        async with self._opening:
            if self.known(bind_host, upstream) is None:
                await self.listen(Address(bind_host, port), upstream)

    async def finish_accepting(self) -> None:
        """Accept no more connections, and let asyncio pass on those that it has accepted.

        If a server is closed between both, asyncio loses the connection and does not close it (python/cpython#109564).
        """
        loop = asyncio.get_running_loop()
        for server, _ in self._open.values():
            for listening in server.sockets:
                loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)

    def close(self) -> None:
        """Close the listening ports."""
        for server, _ in self._open.values():
            server.close()


async def resolve(address: Address) -> Address:
    """Return the first address of a host. Raises OSError."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, address.host)
            return address  # without a thread that asks the system
    found = await asyncio.get_running_loop().getaddrinfo(*address, type=socket.SOCK_STREAM)
    return Address(*found[0][4][:2])


def advertised_host(advertise: str | None, bind_host: str, local_host: str) -> str:
    """Return the proxy's host for a response.

    Args:
        advertise: the host that the user has set, or None.
        bind_host: the host of the listener; all addresses if empty, ``0.0.0.0`` or ``::``.
        local_host: the address to which the client has connected.
    """
    if advertise is not None:
        return advertise
    return local_host if bind_host in ("", "0.0.0.0", "::") else bind_host


def describe(error: OSError | UnicodeError) -> str:
    """Describe why an address cannot be used or reached."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return f"no answer within {CONNECT_TIMEOUT:.0f} s"
    return why(error)
