"""Connections on which only some requests are served: before the login of a client, and before the broker is known."""

from __future__ import annotations

from krammar.proxy.chain import Chain
from krammar.proxy.work import Work
from krammar.wire.kafka import API_VERSIONS, METADATA

# The requests of logins, and ApiVersions.
_LOGIN = frozenset({17, API_VERSIONS, 36})

# Bytes of a frame before the login, as Kafka's default for sasl.server.max.receive.size.
LARGEST_BEFORE_LOGIN = 524_288


class LimitedWorks:
    """What is done for requests on a connection on which all but a few are refused.

    It asks the chain each time, because filters can name other messages while the proxy runs.

    Args:
        served: the api keys that are served.
        reason: why others are refused, to follow their name.
    """

    def __init__(self, chain: Chain, served: frozenset[int], reason: str) -> None:
        self._chain = chain
        self._served = served
        self._reason = reason

    def get(self, api: int, default: Work, /) -> Work | None:
        """Return the work for an api key and a version, given as one number of 32 bits."""
        work = self._chain.works.get(api, default)
        key = api >> 16
        if work is default or key in self._served:
            return work
        return self._refused(api, self._chain.package.requests[key].name)

    def unknown(self, api: int) -> Work | None:
        """Return the work for a request that the protocol does not define."""
        work = self._chain.unknown(api)
        if api >> 16 == API_VERSIONS or (work is not None and work.refusal):
            return work
        return self._refused(api, f"api key {api >> 16} v{api & 0xFFFF}")

    def _refused(self, api: int, name: str) -> Work:
        return Work(api >> 16, api & 0xFFFF, refusal=f"{name} {self._reason}")


def before_login(chain: Chain) -> LimitedWorks:
    """Return what is done for requests before the login of a client at the proxy."""
    return LimitedWorks(chain, _LOGIN, "before the login of the client")


def before_metadata(chain: Chain) -> LimitedWorks:
    """Return what is done for requests on the fixed port of a broker whose address is not known.

    The connection leads to any broker of the cluster. The client gets metadata there, and so the proxy knows the address.
    """
    return LimitedWorks(
        chain,
        _LOGIN | {METADATA},
        "on the port of a node whose address no response has named yet (the client connects again)",
    )
