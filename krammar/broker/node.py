"""One node of a broker: its listeners and connections, its handlers, and the groups that it coordinates."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from krammar.broker.config.broker_config import attribute
from krammar.broker.config.definitions import ConfigError
from krammar.broker.connections import Connections
from krammar.broker.errors import BrokerError
from krammar.broker.nodes import Addresses
from krammar.util.sockets import why

if TYPE_CHECKING:
    import ssl

    from krammar.broker.config import BrokerConfig
    from krammar.broker.dispatch import Handlers
    from krammar.broker.groups.coordinator import GroupCoordinator
    from krammar.broker.server import Server
    from krammar.broker.timers import Timers

_FACTORS = {
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
}


class Node:
    """One node.

    Attributes:
        groups, handlers, server, timers: exist after the broker has assembled them
    """

    groups: GroupCoordinator
    handlers: Handlers
    server: Server
    timers: Timers

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.addresses = Addresses(config)
        self.connections = Connections(config)
        self._tls: dict[str, ssl.SSLContext] = {}

    def read_tls(self) -> None:
        """Read the keys and certificates. Raises ConfigError."""
        for listener in self.config.listeners:
            if listener.tls:
                from krammar.broker.security.tls import listener_context

                self._tls[listener.name] = listener_context(self.config, listener)

    async def listen(self) -> None:
        """Open the listeners, on the same ports as before, if they are closed. Raises BrokerError."""
        if self.server.is_listening:
            return
        for each in self.config.listeners:
            _, port = self.addresses.get(each.name, ("", each.port))
            tls = self._tls.get(each.name)
            try:
                self.addresses[each.name] = await self.server.listen(each, port, tls)
            except (OSError, UnicodeError) as error:
                await self.server.close()
                raise BrokerError(f"cannot listen on {each.host}:{port}: {why(error)}") from None

    def begin_upkeep(self) -> None:
        """Begin the periodic work on groups and idle connections."""
        self.groups.start()
        self.server.sweep_idle()


def node_configs(config: BrokerConfig, count: int) -> list[BrokerConfig]:
    """Return the settings of each node: ids and ports count up from those of ``config``.

    Several nodes have three replicas by default, as in Kafka, or as many as there are nodes.
    """
    factors = dict.fromkeys(_FACTORS - config.static.keys(), min(count, 3))
    racks = config.racks.split(",") if config.racks else [config.broker_rack or ""]
    found = []
    for number in range(count):
        own = copy(config)
        shift = number * len(config.listeners)
        own.node_id = config.node_id + number
        own.broker_rack = racks[number % len(racks)].strip() or None
        own.listeners = [
            replace(
                each,
                port=each.port and each.port + shift,
                advertised_port=each.advertised_port and each.advertised_port + shift,
            )
            for each in config.listeners
        ]
        for name, value in factors.items():
            setattr(own, attribute(name), value)
        own.static = {
            **config.static,
            **{name: str(value) for name, value in factors.items()},
            "node.id": str(own.node_id),
            **({"broker.rack": own.broker_rack} if own.broker_rack else {}),
            "listeners": ",".join(
                f"{each.name}://{each.host}:{each.port}" for each in own.listeners
            ),
        }
        found.append(own)
    if (last := max(max(each.port, each.advertised_port) for each in own.listeners)) > 0xFFFF:
        raise ConfigError("listeners", None, f"need ports up to {last}, but 65535 is the highest")
    return found
