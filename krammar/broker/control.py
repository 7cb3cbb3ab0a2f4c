"""Commands for a running broker: rules of faults, the clock, and the nodes of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krammar.broker.broker import Broker
from krammar.faults.control import FaultsControl
from krammar.util.http_server import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from krammar.broker.timers import Timers

_NODES = ("stop", "start", "kill", "refuse")
# Longer numbers are no times and no ids.
_DIGITS = 15


class BrokerControl(FaultsControl):
    """The commands of faults, and

    ``GET /nodes``                 the nodes, and whether they run
    ``POST /nodes/2/stop``         stops a node; also ``start``, ``kill`` and ``refuse``
    ``POST /heal``                 ends what ``refuse`` began
    ``POST /nodes/2/clock/60000``  sets the clock of a node ahead, in milliseconds; group members
                                   are spared
    ``POST /clock/60000``          sets the clock of all nodes ahead
    ``POST /partitions/orders/0/unclean-election/3``
                                   lets a replica lead that lacks the last 3 records
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
                    return self._advance(ms, self._broker.timers)
                case "POST", ["nodes", node, "clock", ms]:
                    number = _number(node, "the id of a node")
                    if number not in self._broker.nodes:
                        raise ValueError(f"there is no node {number}")
                    return self._advance(ms, self._broker.nodes[number].timers)
                case "POST", ["partitions", topic, index, "unclean-election", lose]:
                    partition = _number(index, "the number of a partition")
                    lost = _number(lose, "a number of records")
                    elect = self._method("unclean_election")
                    return Reply(200, {"end_offset": elect(topic, partition, lose=lost)})
                case "POST", ["heal"]:
                    self._method("heal")()
                    return self._nodes()
                case "POST", ["nodes", node, verb] if verb in _NODES:
                    name = "refuse_connections" if verb == "refuse" else f"{verb}_node"
                    self._method(name)(_number(node, "the id of a node"))
                    return self._nodes()
        except ValueError as error:
            return Reply(400, {"error": str(error)})
        return super().run(method, parts, body)

    def _advance(self, ms: str, timers: Timers) -> Reply:
        ahead = _number(ms, "a number of milliseconds")
        self._broker.call(lambda: timers.advance(ahead, members=False))
        return Reply(200, {"now_ms": self._broker.call(timers.now_ms)})

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


def _number(text: str, what: str) -> int:
    """Return a number of a path. Raises ValueError."""
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS:
        raise ValueError(f"{text[:40]} is not {what}")
    return int(text)
