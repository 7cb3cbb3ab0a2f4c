"""Accepts TLS connections. A client that sends nothing costs a socket; TLS begins with its first byte.

TLS buffers of a connection need up to 300 kB, and handshakes that begin together block the event loop together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from asyncio import sslproto
from collections import deque
from collections.abc import Callable
from functools import partial

from krammar.util.forks import close_sockets_in_children
from krammar.util.listening import AT_ONCE

# How long a client may take for its first byte, and for the handshake.
HANDSHAKE_SECONDS = 30.0
# The size in bytes of asyncio's buffer for each TLS connection: that of the largest TLS record. asyncio's default is
# 256 KiB, all of it in use.
BUFFER = 16 * 1024
# The pause in seconds after an error of accept, such as too many open files.
PAUSE = 1.0


class TlsAcceptor:
    """A listening socket whose connections get TLS.

    Attributes:
        most_handshakes: at the same time; one more replaces the oldest, which takes longer than
            those of real clients
    """

    most_handshakes = 512

    def __init__(
        self,
        listening: socket.socket,
        context: Callable[[], ssl.SSLContext],
        protocol: Callable[[str], asyncio.BaseProtocol],
        *,
        enter: Callable[[str, int], bool],
        leave: Callable[[str], None],
        log: logging.Logger,
        name: str,
        held_seconds: Callable[[str], float] = lambda host: 0.0,
    ) -> None:
        """Begin to accept connections.

        Args:
            listening: the socket, which listens
            context: returns the TLS context of a new connection
            protocol: returns the protocol of a connection, for the client's address
            enter: returns whether a connection is accepted, for the client's address and the socket's number
            leave: called for an accepted connection that ends before its protocol begins
            name: the listener's name for the log
            held_seconds: returns for how long a connection from the address is held, and then closed without
                service; 0 to serve it
        """
        self.sockets = (listening,)
        self._listening = listening
        self._context = context
        self._protocol = protocol
        self._enter = enter
        self._leave = leave
        self._held_seconds = held_seconds
        self._log = log
        self._name = name
        self._loop = asyncio.get_running_loop()
        # Clients that have sent nothing, and the end of their time.
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}  # the oldest first
        # Clients that have sent something, in order.
        self._ready: deque[tuple[socket.socket, str]] = deque()
        self._closed = False
        # uvloop has other classes, whose buffers only take the memory that is used.
        sslproto.SSLProtocol.max_size = min(sslproto.SSLProtocol.max_size, BUFFER)
        listening.setblocking(False)
        self._loop.add_reader(listening, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                client, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._log.error("listener %s accepts no connection: %s", self._name, error)
                self._loop.remove_reader(self._listening)
                self._loop.call_later(PAUSE, self._resume)
                return
            close_sockets_in_children(client)
            host = address[0]
            client.setblocking(False)
            with contextlib.suppress(OSError):
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self._enter(host, client.fileno()):
                client.close()
                continue
            held = self._held_seconds(host)
            self._silent[client] = self._loop.call_later(
                held or HANDSHAKE_SECONDS, self._give_up, client, host
            )
            if not held:
                self._loop.add_reader(client, self._begin, client, host)

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening, self._accept)

    def _stop_watching(self, client: socket.socket) -> None:
        self._loop.remove_reader(client)
        self._silent.pop(client).cancel()

    def _give_up(self, client: socket.socket, host: str) -> None:
        self._stop_watching(client)
        client.close()
        self._leave(host)

    def _begin(self, client: socket.socket, host: str) -> None:
        self._stop_watching(client)
        if not _has_sent(client):
            client.close()
            self._leave(host)
            return
        self._ready.append((client, host))
        if len(self._ready) == 1:
            self._loop.call_soon(self._begin_some)

    def _begin_some(self) -> None:
        for _ in range(min(AT_ONCE, len(self._ready))):
            client, host = self._ready.popleft()
            if len(self._handshakes) >= self.most_handshakes:
                oldest = self._handshakes.pop(next(iter(self._handshakes)))
                # Its handshake fails then. uvloop does not close the connection of a task that is cancelled.
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            task = self._loop.create_task(self._shake_hands(client, host))
            self._handshakes[task] = client
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))
        if self._ready:
            self._loop.call_soon(self._begin_some)

    async def _shake_hands(self, client: socket.socket, host: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                partial(self._protocol, host),
                client,
                ssl=self._context(),
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
        except (OSError, asyncio.CancelledError) as error:
            client.close()
            self._leave(host)
            if isinstance(error, asyncio.CancelledError):
                raise
            # The frames of the traceback refer to the error: this cycle would store 60 kB until it is collected.
            error.__traceback__ = None
        # From here on, the connection counts itself out.

    def finish_accepting(self) -> None:
        """Accept no more connections; accepted ones continue."""
        self._closed = True
        self._loop.remove_reader(self._listening)

    def close(self) -> None:
        """Stop listening, and close the connections that have not finished their handshake."""
        self.finish_accepting()
        self._listening.close()
        for client in list(self._silent):
            self._stop_watching(client)
            client.close()
        for client, _ in self._ready:
            client.close()
        self._ready.clear()
        for task in self._handshakes:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until all handshakes have ended."""
        await asyncio.gather(*self._handshakes, return_exceptions=True)


def _has_sent(client: socket.socket) -> bool:
    """Return whether a readable socket has bytes. Otherwise its client is gone."""
    try:
        return bool(client.recv(1, socket.MSG_PEEK))
    except OSError:
        return False
