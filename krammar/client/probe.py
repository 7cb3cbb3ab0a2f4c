"""Finds out why a broker closes new connections: its first bytes show whether a listener has TLS or requires a login.

Brokers send nothing before they close such connections, as when they stop. A retry helps only if they stop.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time

_PATIENCE = 5.0
# ApiVersions v0 without a client id. Every listener without TLS answers it, even before a login.
_CORRELATION = 0x6B726D
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, _CORRELATION, -1)
_HEAD = 8  # length and correlation id
# SaslHandshake v1 for PLAIN without a client id. Only listeners with logins answer it with NONE or
# UNSUPPORTED_SASL_MECHANISM (KIP-43); others answer ILLEGAL_SASL_STATE.
_SASL_HANDSHAKE = struct.pack(">ihhihh5s", 17, 17, 1, _CORRELATION, -1, 5, b"PLAIN")
_ASKS_FOR_LOGIN = (0, 33)
# The types of TLS records that a server sends first (RFC 8446, section 5.1): alert and handshake.
_TLS = (21, 22)


def wrong_protocol(address: tuple[str, int], tls: bool, timeout: float) -> str | None:
    """Return the error in ``security.protocol`` for which a listener closes connections; None without one.

    Args:
        address: host and port of the listener
        tls: whether the client uses TLS
        timeout: in seconds; at most 5 are used
    """
    limit = max(0.001, min(timeout, _PATIENCE))
    with contextlib.suppress(OSError):
        if tls and _answers_plainly(address, limit):
            return "the listener has no TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
        if not tls and _answers_tls(address, limit):
            return "the listener has TLS: set security.protocol to SSL or SASL_SSL"
    return None


def requires_login(
    address: tuple[str, int], context: ssl.SSLContext | None, timeout: float
) -> str | None:
    """Return the error in ``security.protocol`` if a listener closes connections because it requires a login.

    Args:
        address: host and port of the listener
        context: the TLS context; None for connections without TLS
        timeout: in seconds; at most 5 are used
    """
    limit = max(0.001, min(timeout, _PATIENCE))
    with contextlib.suppress(OSError):
        answer = _ask(address, _SASL_HANDSHAKE, limit, _HEAD + 2, context)
        if len(answer) == _HEAD + 2 and int.from_bytes(answer[_HEAD:], "big") in _ASKS_FOR_LOGIN:
            protocol = "SASL_PLAINTEXT" if context is None else "SASL_SSL"
            return f"the listener requires a login: set security.protocol to {protocol}, and sasl.mechanism"
    return None


def _answers_plainly(address: tuple[str, int], timeout: float) -> bool:
    head = _ask(address, _API_VERSIONS, timeout)
    return len(head) == _HEAD and head[4:] == _CORRELATION.to_bytes(4, "big")


def _answers_tls(address: tuple[str, int], timeout: float) -> bool:
    head = _ask(address, _client_hello(), timeout)
    return len(head) > 1 and head[0] in _TLS and head[1] == 3


def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent after the first message
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


def _ask(
    address: tuple[str, int],
    data: bytes,
    timeout: float,
    size: int = _HEAD,
    context: ssl.SSLContext | None = None,
) -> bytes:
    """Return the first bytes that a new connection answers. Raises OSError, also after ``timeout`` seconds."""
    ends = time.monotonic() + timeout
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection(address, timeout))
        if context is not None:
            connection = context.wrap_socket(connection, server_hostname=address[0])
            stack.enter_context(connection)
        connection.sendall(data)
        head = b""
        while len(head) < size:
            connection.settimeout(max(0.001, ends - time.monotonic()))
            part = connection.recv(size - len(head))
            if not part:
                break
            head += part
        return head


def is_refusal(error: BaseException) -> bool:
    """Return whether no server listens at an address, or its host name does not exist."""
    cause = error.__cause__
    if isinstance(cause, socket.gaierror):
        return cause.errno == socket.EAI_NONAME
    return isinstance(cause, ConnectionRefusedError)
