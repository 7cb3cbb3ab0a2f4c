"""Which port a broker has: ports that the user has fixed by node id, and how long other ports stay open. It does no I/O."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

from krammar.util.clock import monotonic

# The most listening ports of a listener, so that a response with very many brokers cannot exhaust the machine's ports.
MAX_PORTS = 1_024
# Seconds after which a port closes that no response has named and no connection has used: three times the default of
# Kafka's clients for metadata.max.age.ms, after which a client asks again.
PORT_TIMEOUT = 900.0
# Seconds between two looks at the ports, at most.
_LONGEST_LOOK = 10.0

_RANGE = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?")
_NEWEST_NODE = (1 << 31) - 1

Key = TypeVar("Key", bound=Hashable)


class FixedPorts:
    """The ports of brokers by node id, as the user has fixed them.

    Attributes:
        by_node: the ports

    Args:
        given: a range of ports for the node ids from 0, such as ``"19092-19191"``; or ports by node id, as a text such as
            ``"1=19092,1000-1099=19100-19199"``, or as a table whose keys are node ids or ranges of them.

    Raises:
        ValueError: the text has another form, a node or a port occurs twice, or there are too few ports.
    """

    def __init__(self, given: str | Mapping[str, str | int]) -> None:
        self.by_node: dict[int, int] = {}
        entries = _entries(given) if isinstance(given, str) else list(given.items())
        for nodes, ports in entries:
            self._add(str(nodes), str(ports))
        if not self.by_node:
            raise ValueError("no ports (write a range such as 19092-19191)")

    def _add(self, nodes: str, ports: str) -> None:
        numbers = _numbers(ports, "port", 65_535)
        if not numbers.start:
            raise ValueError(f"port {ports}: 0 is no port that clients can connect to")
        ids = _numbers(nodes, "node id", _NEWEST_NODE) if nodes else range(len(numbers))
        if len(self.by_node) + max(len(ids), len(numbers)) > MAX_PORTS:
            raise ValueError(f"there are more than {MAX_PORTS} ports")
        if len(ids) != len(numbers):
            raise ValueError(
                f"nodes {nodes} need {len(ids)} ports, but {ports} has {len(numbers)} (give each node one port)"
            )
        taken = set(self.by_node.values())
        for node, port in zip(ids, numbers, strict=True):
            if node in self.by_node:
                raise ValueError(f"node {node} has two ports, {self.by_node[node]} and {port}")
            if port in taken:
                raise ValueError(f"port {port} belongs to two nodes")
            self.by_node[node] = port

    def __str__(self) -> str:
        low, high = min(self.by_node), max(self.by_node)
        if high - low + 1 == len(self.by_node):
            return f"node {low}" if low == high else f"nodes {low} to {high}"
        return f"nodes {', '.join(map(str, sorted(self.by_node)))}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FixedPorts) and self.by_node == other.by_node

    __hash__ = None  # type: ignore[assignment]


def _entries(text: str) -> list[tuple[str, str]]:
    found = []
    for each in text.split(","):
        nodes, equals, ports = each.strip().rpartition("=")
        if equals and not nodes:
            raise ValueError(f"{each.strip()!r}: write NODE=PORT")
        found.append((nodes.strip(), ports.strip()))
    if len(found) > 1 and not all(nodes for nodes, _ in found):
        raise ValueError(f"{text!r}: write one range of ports, or NODE=PORT for each of them")
    return found


def _numbers(text: str, kind: str, most: int) -> range:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no {kind} and no range of {kind}s (such as 19092-19191)")
    low = int(found[1])
    high = low if found[2] is None else int(found[2])
    if high > most:
        raise ValueError(f"{kind} {high} is greater than {most}")
    if low > high:
        raise ValueError(f"the range {text} of {kind}s ends before it begins")
    return range(low, high + 1)


def fixed_ports(
    given: str | Mapping[str, Any], listen: Mapping[str, int], metrics: int | None
) -> dict[str, FixedPorts]:
    """Return the ports of brokers by the name of the listener.

    Args:
        given: as for ``FixedPorts``; with several listeners, such values by the name of the listener.
        listen: the port of each listener by its name.
        metrics: the port of the page with metrics, or None.

    Raises:
        ValueError: ``given`` has another form, names other listeners, or a port belongs to two things.
    """
    by_name: Mapping[str, Any]
    if isinstance(given, Mapping) and given and not any(_RANGE.fullmatch(str(n)) for n in given):
        by_name = given
    elif len(listen) == 1:
        by_name = dict.fromkeys(listen, given)
    else:
        example = ", ".join(f'{name} = "19092-19191"' for name in list(listen)[:1])
        raise ValueError(
            f"each of the listeners {', '.join(listen)} needs ports of its own: {{ {example}, … }}"
        )
    for name in by_name:
        if name not in listen:
            raise ValueError(f"there is no listener {name!r} (there are {', '.join(listen)})")
    for name in listen:
        if name not in by_name:
            raise ValueError(f"the listener {name!r} has no ports (give each listener its own)")
    found: dict[str, FixedPorts] = {}
    taken = {port: f"the listener{_named(name)}" for name, port in listen.items() if port}
    if metrics:
        taken.setdefault(metrics, "the page with metrics")
    for name, value in by_name.items():
        try:
            found[name] = FixedPorts(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}" if name else str(error)) from None
        for node, port in found[name].by_node.items():
            whose = f"node {node}" + (f" of the listener {name!r}" if name else "")
            if port in taken:
                raise ValueError(
                    f"port {port} of {whose} is also that of {taken[port]} (choose other ports)"
                )
            taken[port] = whose
    return found


def _named(name: str) -> str:
    return f" {name!r}" if name else ""


class PortUses(Generic[Key]):
    """The ports that were opened for brokers: when each was last used, and which numbers were ports of others.

    Args:
        seconds: how long a port stays open without a use.

    Attributes:
        most_retired: ports that were closed, and that no other broker gets meanwhile
    """

    most_retired = 4_096

    def __init__(self, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._last: OrderedDict[Key, float] = OrderedDict()  # the oldest first
        self._retired: OrderedDict[int, Key] = OrderedDict()
        self._former: dict[Key, int] = {}

    @property
    def period(self) -> float:
        """Seconds between two looks at the ports."""
        return min(self.seconds / 4, _LONGEST_LOOK)

    def use(self, key: Key) -> None:
        """Note that a response has named a broker, or that a connection uses its port."""
        self._last[key] = self._clock()
        self._last.move_to_end(key)

    def since(self, moment: float) -> list[Key]:
        """Return the brokers whose ports were used after a moment of ``time.monotonic``."""
        return [key for key, last in self._last.items() if last >= moment]

    def overdue(self) -> list[Key]:
        """Return the brokers whose ports are to be closed."""
        # Uses are noticed late: responses that repeat are not counted until the next look, nor are those of other processes.
        limit = self._clock() - self.seconds - 2 * self.period
        return [key for key, last in self._last.items() if last < limit]

    def oldest(self, idle: float, busy: Callable[[Key], object] = lambda key: False) -> Key | None:
        """Return the broker whose port was not used for the longest time; None if there is none to close.

        Args:
            idle: the seconds for which it must not have been used.
            busy: returns whether a broker's port has connections.
        """
        limit = self._clock() - idle
        for key, last in self._last.items():
            if last > limit:
                break
            if not busy(key):
                return key
        return None

    def close(self, key: Key, port: int) -> None:
        """Note that the port of a broker is closed. Clients can remember it, so no other broker gets it soon."""
        del self._last[key]
        self._former.pop(key, None)
        self._retired[port] = key
        self._retired.move_to_end(port)
        self._former[key] = port
        if len(self._retired) > self.most_retired:
            oldest, whose = self._retired.popitem(last=False)
            if self._former.get(whose) == oldest:
                del self._former[whose]

    def former(self, key: Key) -> int:
        """Return the port that a broker has had, 0 if there is none."""
        return self._former.get(key, 0)

    def is_of_another(self, key: Key, port: int) -> bool:
        """Return whether a port that the system offers was that of another broker."""
        return self._retired.get(port, key) != key


__all__ = ["MAX_PORTS", "PORT_TIMEOUT", "FixedPorts", "PortUses", "fixed_ports"]
