"""The directions of a connection whose frames the proxy does not read.

Filters, faults and the order of responses need Kafka's headers, and a response to each request. The bytes of other
protocols pass as they come; the tap still reads a copy of them.
"""

from __future__ import annotations

from krammar.proxy.requests import Requests
from krammar.proxy.responses import Responses


class RelayedRequests(Requests):
    """Bytes of the client."""

    def _scan(self, start: int, size: int) -> None:
        self.peer.write_from(self._view[start:size])


class RelayedResponses(Responses):
    """Bytes of the server."""

    def _scan(self, start: int, size: int) -> None:
        self.peer.write_from(self._view[start:size])
