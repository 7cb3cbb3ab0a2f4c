"""Notices that a client reaches its bootstrap servers, but no address that the brokers advertise."""

from __future__ import annotations

import time
from collections.abc import Iterable

from krammar.client.connection import Connection
from krammar.client.errors import AdvertisedAddressError, TransportError
from krammar.client.transport import Address
from krammar.util.sockets import address_text

# How long a client tries, in seconds. A broker that has just started may answer before its name is published.
_PATIENCE = 5.0


class AdvertisedAddresses:
    """The failures until a client reaches an advertised address; ``reached`` is true from then on."""

    def __init__(self) -> None:
        self.reached = False
        self._since: float | None = None
        self._tried: dict[str, str] = {}

    def failed(
        self,
        address: Address,
        error: TransportError,
        began: float,
        *,
        advertised: Iterable[Address],
        connections: Iterable[Connection],
    ) -> None:
        """Note that an advertised address cannot be reached.

        Args:
            began: when connecting began, by ``time.monotonic``.
            advertised: all addresses in the cluster's metadata.
            connections: the open connections.

        Raises:
            AdvertisedAddressError: no address was reached for five seconds, but a bootstrap server answers.
        """
        if self._since is None:
            self._since = began
        name = address_text(address)
        self._tried[name] = str(error).removeprefix(f"{name}: ")
        open_to = {connection.address for connection in connections}
        if time.monotonic() - self._since < _PATIENCE or not open_to or open_to & set(advertised):
            return
        raise AdvertisedAddressError(min(map(address_text, open_to)), self._tried) from error
