"""Descriptions of errors of addresses and connections."""

from __future__ import annotations

import os
import socket


def why(error: OSError | UnicodeError) -> str:
    """Describe why an address cannot be used, without the numbers and addresses that asyncio adds.

    Python raises UnicodeError for a host name with an empty label, or one of more than 63 characters.
    """
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return "the host name cannot be resolved"
    if error.errno is not None:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__
