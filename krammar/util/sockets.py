"""Addresses of sockets, to and from text, and descriptions of their errors."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Sequence
from typing import Any

_ADDRESS = re.compile(
    r"(?:(?:\[(?P<bracketed>[^\[\]\s]+)\]|(?P<host>[^\[\]\s]*)):)?(?P<port>[0-9]{1,5})"
)


def address_text(address: Sequence[Any]) -> str:
    """Return ``host:port`` for an address of a socket, with brackets around an IPv6 address."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a host is an address or the name of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(
    text: str, default_host: str | None = None, *, lowest: int = 0, bare_ipv6: bool = False
) -> tuple[str, int]:
    """Return host and port of ``host:port``, or of ``[host]:port``, as IPv6 addresses are written.

    Args:
        default_host: the host of ``:port`` and ``port``; None if the text must name one
        lowest: the lowest port; 0 where it lets the system choose a free one
        bare_ipv6: whether an IPv6 address may have no brackets, as Kafka's clients accept it

    Raises:
        ValueError: the text has another form, or the port is out of range.
    """
    match = _ADDRESS.fullmatch(text)
    if match is not None:
        host = match["bracketed"] or match["host"] or default_host
        is_clear = bare_ipv6 or ":" not in (match["host"] or "")
        if host and is_clear and lowest <= int(match["port"]) <= 0xFFFF:
            return host, int(match["port"])
    raise ValueError(f"{text!r} is not host:port")


def why(error: OSError | UnicodeError) -> str:
    """Describe why an address cannot be used, without the numbers and addresses that asyncio adds.

    Python raises UnicodeError for a host name with an empty label, or one of more than 63 characters.
    """
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return "the host name cannot be resolved"
    if error.errno is not None:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__
