"""The versions of requests that a broker has, and the choice between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_wire import ApiVersionsRequest, ErrorCode

from krammar import __version__
from krammar.client.errors import UnsupportedError, raise_code
from krammar.client.in_flight import ByVersion
from krammar.wire.negotiation import offered_versions


class BrokerVersions:
    """The versions that a broker has, ``known`` by api key, and its ``features`` with their levels (KIP-584).

    Args:
        broker: its address, for errors.
    """

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.known: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}

    def ask(self, call: Callable[[ApiVersionsRequest, int], Any]) -> None:
        """Ask the broker.

        Args:
            call: sends a request in a version, and returns the response.
        """
        version = ApiVersionsRequest.max_version
        request = ApiVersionsRequest(
            client_software_name="krammar", client_software_version=__version__
        )
        while True:
            response = call(request, version)
            known = offered_versions(response)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                break
            # KIP-511: the response has version 0, and may contain the broker's newest version.
            own = known.get(ApiVersionsRequest.api_key, (0, 0))[1]
            version = max(0, min(version - 1, own))
        raise_code(response.error_code, f"{self.broker}: ApiVersions")
        self.known = known
        self.features = {f.name: f.max_version_level for f in response.finalized_features}

    def of(self, request: Any, low: int = 0, high: int = 32767) -> int:
        """Return the newest version of a request, between ``low`` and ``high``, that both sides have.

        Args:
            request: a class, an instance, or what builds one.

        Raises:
            UnsupportedError: both sides have no common version.
        """
        cls: Any = request if isinstance(request, type) else type(request)
        if cls is ByVersion:
            cls = request.cls
        low, high = max(low, cls.min_version), min(high, cls.max_version)
        theirs = self.known.get(cls.api_key)
        if theirs is None:
            raise UnsupportedError(f"{self.broker}: the broker does not have {cls.__name__}")
        if max(low, theirs[0]) > min(high, theirs[1]):
            raise UnsupportedError(
                f"{self.broker}: {cls.__name__} is needed in a version from {low} to {high}, but the broker"
                f" has {theirs[0]} to {theirs[1]}"
            )
        return min(high, theirs[1])

    def has(self, request: type[Any], version: int) -> bool:
        """Return whether both sides have a request in that version or a newer one."""
        theirs = self.known.get(request.api_key)
        return theirs is not None and min(theirs[1], request.max_version) >= version
