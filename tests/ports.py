"""A port for a server that starts later, or for none."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """Choose a free port, outside the range of outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(11_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
