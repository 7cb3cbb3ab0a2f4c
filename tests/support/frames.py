"""Frames of Kafka's protocol on a socket."""

from __future__ import annotations

import socket


def framed(body: bytes) -> bytes:
    """Put the length before a body."""
    return len(body).to_bytes(4, "big") + body


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """Return the next ``size`` bytes; nothing if the connection ends before."""
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return b""
        data += piece
    return data


def read_frame(connection: socket.socket) -> bytes:
    """Return the next frame with its prefix; empty at the end."""
    prefix = read_exactly(connection, 4)
    return prefix + read_exactly(connection, int.from_bytes(prefix, "big")) if prefix else b""
