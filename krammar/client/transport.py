"""The bytes of a connection: a socket that never blocks, and what waits to be written to it."""

from __future__ import annotations

import selectors
import socket
import ssl
from collections import deque

from krammar.client.deadline import Deadline
from krammar.client.errors import AuthenticationError, TransportError
from krammar.client.settings import Settings
from krammar.client.tls import handshake_failure
from krammar.util.sockets import address_text
from krammar.wire.connection import ClientConnection

Address = tuple[str, int]

_CHUNK = 256 * 1024
# The most bytes that one call of read reads, so that other connections get their turn.
_MOST_AT_ONCE = 16 * 1024 * 1024


def connect(address: Address, settings: Settings, limit: Deadline) -> socket.socket:
    """Connect to a broker. Raises TransportError."""
    name = address_text(address)
    try:
        plain = socket.create_connection(address, timeout=max(limit.left, 0.001))
    except TimeoutError:
        raise TransportError(name, f"no connection in {limit.timeout_ms:.0f} ms") from None
    except (OSError, UnicodeError) as error:
        raise TransportError(name, getattr(error, "strerror", "") or str(error)) from error
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, size in (
        (socket.SO_SNDBUF, settings.send_buffer_bytes),
        (socket.SO_RCVBUF, settings.receive_buffer_bytes),
    ):
        if size > 0:
            plain.setsockopt(socket.SOL_SOCKET, option, size)
    return plain


class Transport:
    """A socket, and the bytes that wait to be written to it.

    ``queued`` is the number of bytes that were queued so far, and ``written`` how many of them were written.
    """

    def __init__(self, connected: socket.socket, wire: ClientConnection) -> None:
        self._socket: socket.socket = connected
        self._wire = wire
        self._out: deque[memoryview] = deque()
        self._chunk = memoryview(bytearray(_CHUNK))
        self._tls_writes = False
        self.queued = self.written = 0

    def start(self, context: ssl.SSLContext | None, address: Address, limit: Deadline) -> None:
        """Begin TLS if there is a context. Afterwards the socket never blocks.

        Raises:
            TransportError: the broker does not answer in time, or closes the connection.
            AuthenticationError: a certificate is refused.
        """
        if context is not None:
            self._encrypt(context, address, limit)
        self._socket.setblocking(False)

    def _encrypt(self, context: ssl.SSLContext, address: Address, limit: Deadline) -> None:
        name = address_text(address)
        self._socket.settimeout(max(limit.left, 0.001))
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=address[0])
        except TimeoutError:
            raise TransportError(name, f"TLS: no handshake in {limit.timeout_ms:.0f} ms") from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
            raise TransportError(
                name, "TLS: the broker has closed the connection in the handshake"
            ) from None
        except ssl.SSLError as error:
            raise AuthenticationError(name, f"TLS: {handshake_failure(error)}") from None
        except OSError as error:
            raise TransportError(name, f"TLS: {error}") from None

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
        self._out.clear()

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return isinstance(self._socket, ssl.SSLSocket)

    @property
    def interest(self) -> int:
        """The events that ``selectors`` must wait for."""
        if self._out or self._tls_writes:
            return selectors.EVENT_READ | selectors.EVENT_WRITE
        return selectors.EVENT_READ

    @property
    def has_decrypted(self) -> bool:
        """Whether the TLS layer has buffered bytes, which selectors cannot see."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def queue(self, frame: bytes) -> None:
        """Append a frame to what is written."""
        self.queued += len(frame)
        self._out.append(memoryview(frame))

    def write(self) -> None:
        """Write as much as possible without waiting."""
        out = self._out
        while out:
            try:
                sent = self._socket.send(out[0])
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            self.written += sent
            if sent == len(out[0]):
                out.popleft()
            else:
                out[0] = out[0][sent:]

    def read(self) -> bool:
        """Read as much as possible without waiting. Return whether the broker has closed the connection."""
        view = self._chunk
        self._tls_writes = False
        left = _MOST_AT_ONCE
        while left > 0:
            room = self._wire.get_buffer()
            into = view if room is None else room
            try:
                size = self._socket.recv_into(into)
            except (BlockingIOError, ssl.SSLWantReadError):
                break
            except ssl.SSLWantWriteError:
                self._tls_writes = True
                break
            if not size:
                return True
            if room is None:
                self._wire.receive_data(view[:size])
            else:
                self._wire.received(size)
            left -= size
            if size < len(into) and not self.has_decrypted:
                break
        return False
