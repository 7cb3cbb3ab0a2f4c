"""Commands for a running broker: the clock, nodes, leaders and coordinators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from krammar.broker.broker import Broker
from krammar.broker.several_nodes import Cluster
from krammar.util.http_server import Command, Reply

if TYPE_CHECKING:
    from krammar.broker.timers import Timers

# Longer numbers are no times and no ids.
_DIGITS = 15


class BrokerControl:
    """The commands.

    ``GET /nodes``                 the nodes, and whether they run
    ``POST /nodes/2/stop``         stops a node; also ``start``, ``kill`` and ``refuse``
    ``POST /nodes``                adds a node
    ``DELETE /nodes/3``            removes a node for good
    ``POST /heal``                 ends what ``refuse`` began
    ``POST /restart``              restarts all nodes
    ``POST /nodes/2/clock/60000``  sets the clock of a node ahead, in milliseconds; group members
                                   are spared
    ``POST /clock/60000``          sets the clock of all nodes ahead
    ``GET /partitions/orders/0``   the leader, its epoch, and the replicas of a partition
    ``POST /partitions/orders/0/leader/2``
                                   makes a node the leader
    ``POST /partitions/orders/0/unclean-election/3``
                                   lets a replica lead that lacks the last 3 records
    ``GET /coordinators/group/billing``
                                   the node that coordinates a group, or a ``transaction``
    ``POST /coordinators/group/billing/2``
                                   makes a node the coordinator
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __call__(self, command: Command) -> Reply | None:
        """Run a command. Returns None for another one. Raises ValueError."""
        match command.method, command.parts:
            case "GET", ("nodes",):
                return self._nodes()
            case "POST", ("nodes",):
                self._cluster("add to").add_node()
                return self._nodes()
            case "DELETE", ("nodes", node):
                self._cluster("remove").remove_node(_node(node))
                return self._nodes()
            case "POST", ("restart",):
                self._broker.restart()
                return self._nodes()
            case "POST", ("clock", ms):
                return self._advance(ms, self._broker.timers)
            case "POST", ("nodes", node, "clock", ms):
                number = _node(node)
                if number not in self._broker.nodes:
                    raise ValueError(f"there is no node {number}")
                return self._advance(ms, self._broker.nodes[number].timers)
            case "POST", ("heal",):
                self._cluster("stop").heal()
                return self._nodes()
            case "POST", ("nodes", node, "stop"):
                self._cluster("stop").stop_node(_node(node))
                return self._nodes()
            case "POST", ("nodes", node, "start"):
                self._cluster("stop").start_node(_node(node))
                return self._nodes()
            case "POST", ("nodes", node, "kill"):
                self._cluster("stop").kill_node(_node(node))
                return self._nodes()
            case "POST", ("nodes", node, "refuse"):
                self._cluster("stop").refuse_connections(_node(node))
                return self._nodes()
            case "GET", ("partitions", topic, index):
                return self._partition(topic, _partition(index))
            case "POST", ("partitions", topic, index, "leader", node):
                self._cluster().move_leader(topic, _partition(index), _node(node))
                return self._partition(topic, _partition(index))
            case "POST", ("partitions", topic, index, "unclean-election", lose):
                lost = _number(lose, "a number of records")
                end = self._cluster().unclean_election(topic, _partition(index), lose=lost)
                return Reply(200, {"end_offset": end})
            case "GET", ("coordinators", kind, key):
                return self._coordinator(_kind(kind), key)
            case "POST", ("coordinators", kind, key, node):
                self._cluster().move_coordinator(key, _node(node), _kind(kind))
                return self._coordinator(_kind(kind), key)
        return None

    def _cluster(self, use: str = "choose from") -> Cluster:
        """Return the broker, if it has several nodes. Raises ValueError, which names the use of nodes."""
        if not isinstance(self._broker, Cluster):
            raise ValueError(
                f"a broker with one node has no nodes to {use} (start it with --nodes)"
            )
        return self._broker

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

    def _partition(self, topic: str, index: int) -> Reply:
        found = self._cluster().partition(topic, index)
        names = ("leader", "leader_epoch", "replicas", "isr")
        return Reply(200, {name: getattr(found, name) for name in names})

    def _coordinator(self, kind: Literal["group", "transaction"], key: str) -> Reply:
        return Reply(200, {"node": self._cluster().coordinator(key, kind)})


def _node(text: str) -> int:
    return _number(text, "the id of a node")


def _partition(text: str) -> int:
    return _number(text, "the number of a partition")


def _number(text: str, what: str) -> int:
    """Return a number of a path. Raises ValueError."""
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS:
        raise ValueError(f"{text[:40]} is not {what}")
    return int(text)


def _kind(text: str) -> Literal["group", "transaction"]:
    match text:
        case "group":
            return "group"
        case "transaction":
            return "transaction"
    raise ValueError(f"nodes coordinate a group or a transaction, not a {text[:40]!r}")
