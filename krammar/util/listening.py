"""Sockets that listen for connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from krammar.util.forks import close_sockets_in_children

# Connections that wait to be accepted.
_BACKLOG = 1024
# Connections that are accepted in one turn of the event loop, and TLS handshakes that begin in one (1 ms each). The
# steps of their setup run in the same turns, too.
AT_ONCE = 16


async def start_listening(
    protocol: Callable[[], asyncio.BaseProtocol],
    host: str | None,
    port: int,
    *,
    reuse_port: bool = False,
) -> asyncio.Server:
    """Return a server that listens on all addresses of a host; None means all hosts. Raises OSError.

    Args:
        reuse_port: whether several processes listen on the port.
    """
    server = await asyncio.get_running_loop().create_server(
        protocol, host, port, backlog=AT_ONCE, reuse_port=reuse_port or None
    )
    close_sockets_in_children(server)
    for each in server.sockets:
        # asyncio uses the number for both, and a client that does not fit into the queue tries again after a second.
        with each.dup() as listening:
            listening.listen(_BACKLOG)
    return server


async def listening_sockets(
    host: str | None, port: int, *, reuse_port: bool = False
) -> list[socket.socket]:
    """Return a listening socket for each address of a host; None means all. Raises OSError.

    Args:
        reuse_port: whether several processes listen on the port.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, number, _, address in dict.fromkeys(found):
            each = socket.socket(family, kind, number)
            sockets.append(each)
            close_sockets_in_children(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind(address)
            each.listen(_BACKLOG)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets
