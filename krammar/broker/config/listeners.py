"""Listeners: the addresses of the broker and their security protocols."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from krammar.broker.config.definitions import ConfigError
from krammar.util.settings import split_names

# Listeners of this name speak ``wafka_wire``, not Kafka's protocol (krammar.broker.wafka).
WAFKA = "WAFKA"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER = re.compile(
    r"(?P<name>[^:/]+)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]{1,10})"
)
_MAP = "listener.security.protocol.map"
_INNER = "inter.broker.listener.name"
_IPV4 = re.compile(r"[0-9]+(\.[0-9]+){3}")
_WILDCARDS = ("0.0.0.0", "::", "0:0:0:0:0:0:0:0")


@dataclass(frozen=True, slots=True)
class Listener:
    """One address that the broker listens on.

    Attributes:
        name: in upper case, as in Kafka
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, or WAFKA for a listener of that name
        host: empty for all interfaces; an IPv6 address without brackets
        port: 0 for any free port
        advertised_host, advertised_port: the address for clients; an empty host and port 0 mean
            the bound

    address
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
    def kafka(self) -> bool:
        """Whether clients speak Kafka's protocol on this listener."""
        return self.protocol != WAFKA

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL_")


class ListenerAddress(NamedTuple):
    """One entry of ``listeners`` or ``advertised.listeners``."""

    name: str
    host: str
    port: int


def _parse_endpoints(key: str, texts: Sequence[str]) -> list[ListenerAddress]:
    """Parse ``NAME://host:port`` entries; IPv6 hosts are in brackets. Raises ConfigError."""
    found = []
    for text in texts:
        match = _LISTENER.fullmatch(text)
        if match is None:
            raise ConfigError(key, text, "is not of the form NAME://host:port")
        port = int(match["port"])
        if not 0 <= port <= 65535:
            raise ConfigError(key, text, "has a port that is not between 0 and 65535")
        found.append(ListenerAddress(match["name"].upper(), match["host"], port))
    names = [endpoint.name for endpoint in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(key, ",".join(texts), f"names {name} twice")
    return found


def _parse_protocols(text: str) -> dict[str, str]:
    """Parse comma-separated ``NAME:PROTOCOL`` pairs; the last duplicate wins. Raises ConfigError."""
    protocols: dict[str, str] = {}
    for pair in split_names(text):
        name, colon, protocol = pair.rpartition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or not name:
            raise ConfigError(_MAP, pair, "is not of the form NAME:PROTOCOL")
        if protocol not in PROTOCOLS:
            raise ConfigError(_MAP, pair, f"has none of the protocols {', '.join(PROTOCOLS)}")
        protocols[name] = protocol
    return protocols


def read_listeners(
    values: Mapping[str, Any], given: Container[str], warnings: list[str]
) -> list[Listener]:
    """Return the listeners that a broker opens; the controller's are skipped.

    Args:
        values: all parsed settings, by Kafka's names
        given: the names of the settings that are not defaults
        warnings: a list to append warnings to

    Raises:
        ConfigError: the listeners are invalid.
    """
    key = "listeners"
    whole = ",".join(values[key])
    protocols = {WAFKA: WAFKA, **_parse_protocols(values[_MAP])}
    controllers = {name.upper() for name in values["controller.listener.names"] or ()}
    endpoints = _parse_endpoints(key, values[key])
    _check_ports(endpoints, whole)
    bound = [endpoint for endpoint in endpoints if endpoint.name not in controllers]
    if not bound:
        raise ConfigError(key, whole, "has only controller listeners")
    if not any(protocols.get(endpoint.name, "") != WAFKA for endpoint in bound):
        raise ConfigError(key, whole, "has no listener for Kafka's protocol")
    advertised = _read_advertised(values, [endpoint.name for endpoint in endpoints])
    names = [endpoint.name for endpoint in bound]
    found = []
    for name, host, port in bound:
        if name not in protocols:
            reason = f"has {name}, whose security protocol is unknown: add it to {_MAP}"
            raise ConfigError(key, whole, reason)
        if host in ("", *_WILDCARDS) and name not in advertised:
            warnings.append(
                f"{name} listens on all interfaces, but clients are sent to localhost: "
                "set advertised.listeners if clients run on other machines"
            )
        found.append(Listener(name, protocols[name], host, port, *advertised.get(name, ("", 0))))
    inner = values[_INNER]
    if inner is not None and "security.inter.broker.protocol" in given:
        reason = "cannot be combined with security.inter.broker.protocol"
        raise ConfigError(_INNER, inner, reason)
    if inner is not None and inner.upper() not in names:
        raise ConfigError(_INNER, inner, f"is not one of the listeners {', '.join(names)}")
    return found


def _read_advertised(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, tuple[str, int]]:
    key = "advertised.listeners"
    texts = values[key] or ()
    found: dict[str, tuple[str, int]] = {}
    for (name, host, port), text in zip(_parse_endpoints(key, texts), texts, strict=True):
        if name not in names:
            raise ConfigError(key, text, f"is not one of the listeners {', '.join(names)}")
        if host in _WILDCARDS:
            raise ConfigError(key, text, "is not an address that a client can connect to")
        found[name] = host, port
    return found


def _check_ports(endpoints: Sequence[ListenerAddress], whole: str) -> None:
    """Two listeners can share a port only if one host is an IPv4 and the other an IPv6 address."""
    taken: dict[int, list[str]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            taken.setdefault(endpoint.port, []).append(endpoint.host)
    for port, hosts in taken.items():
        families = sorted(":" in host for host in hosts)
        addresses = all(":" in host or _IPV4.fullmatch(host) for host in hosts)
        if len(hosts) > 1 and not (addresses and families == [False, True]):
            raise ConfigError("listeners", whole, f"has port {port} twice")
