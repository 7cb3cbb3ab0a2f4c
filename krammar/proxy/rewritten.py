"""Responses that the proxy has already rewritten, so that repeated ones are not decoded again.

Clients ask for the same metadata and versions again and again, and brokers mostly send the same bytes. What the proxy
builds from a response depends only on these bytes, on the ports of the proxy, and on what filters name. When a port closes,
the responses are forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from krammar.proxy.route import Route
from krammar.wire.kafka import API_VERSIONS

# Responses that repeat: Metadata, FindCoordinator, ApiVersions, DescribeCluster. Others contain offsets or records.
_REPEATED = frozenset({3, 10, API_VERSIONS, 60})
# Entries of a cache, and their bytes. If it is full, it is emptied: what clients still ask for is soon there again.
MAX_ENTRIES = 64
MAX_BYTES = 4 << 20

Versions = Mapping[int, tuple[int, int]]


class Known(NamedTuple):
    """A rewritten response.

    ``rest``     the bytes after the correlation id; None if the response does not change
    ``prefix``   the length prefix of the rewritten frame
    ``offered``  the broker's versions, for a response to ApiVersions
    ``notes``    what has changed, in words
    """

    rest: bytes | None
    prefix: bytes
    offered: Versions | None
    notes: tuple[str, ...] = ()


class Rewritten:
    """The rewritten responses for clients that see the proxy under one address.

    ``forgotten``  whether it remembers nothing any more, because it could name ports that are closed
    """

    def __init__(self) -> None:
        self.forgotten = False
        # By the bytes of the response after its correlation id. The route is another one after filters have changed.
        self.known: dict[tuple[Route, bytes], Known] = {}
        self._bytes = 0

    def add(
        self,
        route: Route,
        before: bytes,
        after: bytes,
        offered: Versions | None,
        notes: tuple[str, ...] = (),
    ) -> None:
        """Remember a response. ``Known`` describes the other arguments.

        Args:
            before: the frame from the broker.
            after: the frame for the client, which is the same object if nothing has changed.
        """
        if self.forgotten:
            return
        changed = after is not before
        size = len(before) + (len(after) if changed else 0)
        if route.api_key not in _REPEATED or size > MAX_BYTES // 4:
            return
        if len(self.known) >= MAX_ENTRIES or self._bytes + size > MAX_BYTES:
            self.known.clear()
            self._bytes = 0
        self._bytes += size
        rest = after[8:] if changed else None
        self.known[route, before[8:]] = Known(rest, after[:4], offered, notes)

    def forget(self) -> None:
        """Forget all responses, also those that are being rewritten now."""
        self.forgotten = True
        self.known.clear()


# Hosts under which clients see a listener, whose responses are remembered.
_MAX_VIEWS = 4


class Views:
    """The rewritten responses of a listener, by the host under which clients see it."""

    def __init__(self) -> None:
        self._views: dict[str, Rewritten] = {}

    def get(self, host: str) -> Rewritten:
        """Return the responses of a view. The others are forgotten if there are too many."""
        if host not in self._views and len(self._views) >= _MAX_VIEWS:
            self.forget()
        return self._views.setdefault(host, Rewritten())

    def forget(self) -> None:
        """Forget all responses: they can name ports that have changed."""
        for each in self._views.values():
            each.forget()
        self._views.clear()
