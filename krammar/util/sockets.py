"""Addresses of sockets as text, and descriptions of their errors."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any


def address_text(address: Sequence[Any]) -> str:
    """Return ``host:port`` for an address of a socket, with brackets around an IPv6 address."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def why(error: OSError | UnicodeError) -> str:
    """Describe why an address cannot be used, without the numbers and addresses that asyncio adds.

    Python raises UnicodeError for a host name with an empty label, or one of more than 63 characters.
    """
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return "the host name cannot be resolved"
    if error.errno is not None:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__
