"""Listeners: where the broker can be reached, and by which security protocol."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from krammar.broker.config.definitions import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER = re.compile(r"(?P<name>[^:/]*)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]+)")
_WILDCARDS = ("0.0.0.0", "::", "0:0:0:0:0:0:0:0")


@dataclass(frozen=True, slots=True)
class Listener:
    """One address that the broker listens on.

    ``name``      in upper case, as Kafka keeps it
    ``protocol``  PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
    ``host``      empty for all interfaces; an IPv6 address without brackets
    ``port``      0 for any free port
    ``advertised_host``, ``advertised_port``  what clients are told; port 0 stands for the port that was bound
    """

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int

    @property
    def tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL_")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One entry of ``listeners`` or ``advertised.listeners``."""

    name: str
    host: str
    port: int


def parse_endpoints(key: str, texts: Sequence[str]) -> list[Endpoint]:
    """``NAME://host:port`` entries; an IPv6 host stands in brackets. Raises ConfigError."""
    whole = ",".join(texts)
    found: list[Endpoint] = []
    for text in texts:
        match = _LISTENER.fullmatch(text)
        bare_ipv6 = match is not None and ":" in match["host"] and "://[" not in text
        if match is None or bare_ipv6 or not match["name"]:
            raise ConfigError(key, text, "not a listener of the form NAME://host:port")
        port = int(match["port"])
        if not 0 <= port <= 65535:
            raise ConfigError(key, text, f"port {port} is not between 0 and 65535")
        found.append(Endpoint(match["name"].upper(), match["host"], port))
    names = [endpoint.name for endpoint in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                key, whole, f"each listener must have a different name: {name} is twice"
            )
    return found


def parse_protocol_map(key: str, text: str) -> dict[str, str]:
    """``NAME:PROTOCOL`` pairs with commas between them. Raises ConfigError."""
    protocols: dict[str, str] = {}
    for pair in filter(None, re.split(r"\s*,\s*", text.strip())):
        name, colon, protocol = pair.rpartition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or not name:
            raise ConfigError(key, pair, "not of the form NAME:PROTOCOL")
        if protocol not in PROTOCOLS:
            raise ConfigError(
                key, pair, f"security protocol must be one of: {', '.join(PROTOCOLS)}"
            )
        if name in protocols:
            raise ConfigError(key, text, f"listener {name} is twice")
        protocols[name] = protocol
    return protocols


def build_listeners(
    bound: Sequence[Endpoint], advertised: Sequence[Endpoint] | None, protocols: Mapping[str, str]
) -> list[Listener]:
    """The listeners of a broker, checked as Kafka checks them. Raises ConfigError."""
    _check_ports(bound)
    told = {endpoint.name: endpoint for endpoint in (bound if advertised is None else advertised)}
    names = {endpoint.name for endpoint in bound}
    for name in told:
        if name not in names:
            raise ConfigError(
                "advertised.listeners",
                name,
                f"listeners defines no such name: {', '.join(sorted(names))}",
            )
    found: list[Listener] = []
    for endpoint in bound:
        if endpoint.name not in protocols:
            raise ConfigError(
                "listener.security.protocol.map",
                None,
                f"No security protocol defined for listener {endpoint.name}",
            )
        shown = told.get(endpoint.name, endpoint)
        if shown.host in _WILDCARDS:
            raise ConfigError(
                "advertised.listeners",
                None if advertised is None else shown.host,
                f"cannot use the nonroutable meta-address {shown.host}: set a routable address there",
            )
        found.append(
            Listener(
                endpoint.name,
                protocols[endpoint.name],
                endpoint.host,
                endpoint.port,
                shown.host or socket.gethostname(),
                shown.port,
            )
        )
    return found


def _check_ports(bound: Sequence[Endpoint]) -> None:
    """A port may be twice only where one host is an IPv4 and the other an IPv6 address."""
    taken: dict[int, list[Endpoint]] = {}
    for endpoint in bound:
        if endpoint.port:
            taken.setdefault(endpoint.port, []).append(endpoint)
    for port, endpoints in taken.items():
        families = [":" in endpoint.host for endpoint in endpoints]
        both = (
            len(endpoints) == 2
            and sorted(families) == [False, True]
            and all(re.fullmatch(r"[0-9.]+|.*:.*", endpoint.host) for endpoint in endpoints)
        )
        if len(endpoints) > 1 and not both:
            raise ConfigError(
                "listeners",
                ",".join(
                    f"{endpoint.name}://{endpoint.host}:{endpoint.port}" for endpoint in endpoints
                ),
                f"each listener must have a different port: {port} is twice",
            )
