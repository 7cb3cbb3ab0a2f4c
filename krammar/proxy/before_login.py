"""The requests that a client can send before its login at the proxy."""

from __future__ import annotations

from krammar.proxy.chain import Chain
from krammar.proxy.work import Work
from krammar.wire.kafka import API_VERSIONS

# The requests of logins, and ApiVersions.
_BEFORE_LOGIN = frozenset({17, API_VERSIONS, 36})

# Bytes of a frame before the login, as Kafka's default for sasl.server.max.receive.size.
LARGEST_BEFORE_LOGIN = 524_288


class WorksBeforeLogin:
    """What is done for requests before the login of a client: all but a few are refused.

    It asks the chain each time, because filters can name other messages while the proxy runs.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def get(self, api: int, default: Work, /) -> Work | None:
        """Return the work for an api key and a version, given as one number of 32 bits."""
        work = self._chain.works.get(api, default)
        key = api >> 16
        if work is default or key in _BEFORE_LOGIN:
            return work
        return refused_before_login(key, api & 0xFFFF, self._chain.package.requests[key].name)


def refused_before_login(key: int, version: int, name: str) -> Work:
    """Return the refusal of a request, by its name."""
    return Work(key, version, refusal=f"{name} before the login of the client")
