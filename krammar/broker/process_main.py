"""What the process of a ``BrokerProcess`` runs: it starts a broker and runs the calls of the other process."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from krammar.broker.broker import Broker
from krammar.broker.config import BrokerConfig
from krammar.broker.several_nodes import Cluster
from krammar.util.calls import Channel, serve

if TYPE_CHECKING:
    from krammar.faults import Faults
    from krammar.faults.remote import ServedFaults

_KINDS = {"Broker": Broker, "Cluster": Cluster}


class Starter:
    """Starts the broker, and adds the objects that the other process calls.

    Args:
        targets: gets the objects, by name
        more: returns further objects for a broker
    """

    def __init__(
        self, targets: dict[str, Any], more: Callable[[Broker], Mapping[str, Any]] = lambda _: {}
    ) -> None:
        self._targets = targets
        self._more = more
        self.broker: Broker | None = None

    def start(self, kind: str, options: dict[str, Any]) -> tuple[str, str, int, dict[str, str]]:
        """Start a broker, instead of the one before, and return its addresses and settings."""
        if self.broker is not None:
            self.broker.close()
        if "config" in options:
            options["config"] = BrokerConfig(options["config"])
        broker = self.broker = _KINDS[kind].start(**options)
        self._targets.update(
            broker=broker,
            faults=_Lazy(cache(lambda: _served(broker.faults))),
            wafka_faults=_Lazy(cache(lambda: _served(broker.wafka_faults))),
            metrics=_Lazy(lambda: broker.metrics),
            **self._more(broker),
        )
        return broker.bootstrap_servers, broker.host, broker.port, dict(broker.config.static)


def _served(faults: Faults) -> ServedFaults:
    from krammar.faults.remote import ServedFaults  # most tests have no rules

    return ServedFaults(faults)


class _Lazy:
    """An object that is found when it is used: faults and metrics cost each request something."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find

    def __getattr__(self, name: str) -> Any:
        return getattr(self._find(), name)


def serve_broker(number: str, more: Callable[[Broker], Mapping[str, Any]] = lambda _: {}) -> None:
    """Serve a broker until the other process ends or closes the socket.

    Args:
        number: the number of the socket
        more: returns further objects that the other process calls, for a broker
    """
    # Ctrl-C in a terminal reaches both processes. The other one decides about the end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    targets: dict[str, Any] = {}
    starter = targets["start"] = Starter(targets, more)
    with socket.socket(fileno=int(number)) as connected:
        connected.setblocking(True)  # gevent's sockets do not block, also in this process
        try:
            serve(Channel(connected), targets)
        finally:
            if starter.broker is not None:
                starter.broker.close()


if __name__ == "__main__":
    serve_broker(sys.argv[1])
