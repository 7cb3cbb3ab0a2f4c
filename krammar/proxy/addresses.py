"""Addresses of brokers and of the proxy."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from krammar.util.sockets import address_text, parse_address, why

# Seconds to wait for a broker to accept a connection.
CONNECT_TIMEOUT = 10.0


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
        return cls(*parse_address(text, default_host))


# In place of the address of a broker: any one of ``upstream``. No broker has this address.
ANY = Address("", 0)


class Upstreams:
    """The addresses of a cluster, of which one is enough.

    Attributes:
        broker: the broker of connections to the first port of a listener; ``ANY`` if there are several addresses

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
