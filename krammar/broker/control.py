"""Commands for a running broker: rules of faults, the clock, and the nodes of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krammar.broker.broker import Broker
from krammar.faults.control import FaultsControl
from krammar.util.http_control import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

_NODES = ("stop", "start", "kill", "refuse")


class BrokerControl(FaultsControl):
    """The commands of faults, and

    ``GET /nodes``                 the nodes, and whether they run
    ``POST /nodes/2/stop``         stops a node; also ``start``, ``kill`` and ``refuse``
    ``POST /heal``                 ends what ``refuse`` began
    ``POST /clock/60000``          sets the clock ahead, in milliseconds; group members are spared
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.faults)
        self._broker = broker

    def run(self, method: str, parts: list[str], body: str) -> Reply:
        """Run a command. ``parts`` are the parts of the path."""
        try:
            match method, parts:
                case "GET", ["nodes"]:
                    return self._nodes()
                case "POST", ["clock", ms]:
                    if not ms.isdecimal():
                        return Reply(400, {"error": f"{ms} is not a number of milliseconds"})
                    timers = self._broker.timers
                    self._broker.call(lambda: timers.advance(int(ms), members=False))
                    return Reply(200, {"now_ms": self._broker.call(timers.now_ms)})
                case "POST", ["heal"]:
                    self._method("heal")()
                    return self._nodes()
                case "POST", ["nodes", node, verb] if verb in _NODES and node.isdecimal():
                    name = "refuse_connections" if verb == "refuse" else f"{verb}_node"
                    self._method(name)(int(node))
                    return self._nodes()
        except ValueError as error:
            return Reply(400, {"error": str(error)})
        return super().run(method, parts, body)

    def _nodes(self) -> Reply:
        running = self._broker.cluster.running
        listens = {key: node.server.is_listening for key, node in self._broker.nodes.items()}
        return Reply(
            200,
            [{"node": key, "runs": key in running, "accepts": on} for key, on in listens.items()],
        )

    def _method(self, name: str) -> Callable[..., None]:
        method: Callable[..., None] | None = getattr(self._broker, name, None)
        if method is None:
            raise ValueError("a broker with one node has no nodes to stop (start it with --nodes)")
        return method
