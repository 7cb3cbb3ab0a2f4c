"""One connection to one broker: TLS, login, versions, and several requests under way.

After it has been set up the socket never blocks: requests are queued, and ``pump`` moves what can be
moved in both directions. So one thread waits for many brokers at once (``wait``), and a broker that
waits for us to read cannot stop us from writing.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import kafka_wire
from kafka_wire import ApiVersionsRequest, ErrorCode

from krammar import __version__
from krammar.client.deadline import Deadline
from krammar.client.errors import (
    AuthenticationError,
    ClientError,
    DeadlineError,
    ProtocolError,
    TransportError,
    UnsupportedError,
    kafka_error,
)
from krammar.client.login import log_in
from krammar.client.settings import Settings
from krammar.wire.connection import ClientConnection, ResponseError, ResponseReceived
from krammar.wire.errors import WireError
from krammar.wire.framing import MAX_FRAME

Address = tuple[str, int]

_CHUNK = 256 * 1024
# What one call of pump reads at most, so that other connections have their turn.
_MOST_AT_ONCE = 16 * 1024 * 1024
_FRAME_MARGIN = 1024 * 1024


def address_text(address: Address) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Pending:
    """A request under way. When ``done``, ``response`` is there, or ``error``."""

    __slots__ = ("_end", "connection", "done", "error", "expires", "request", "response", "version")

    def __init__(
        self, connection: Connection, request: Any, version: int, expires: float, end: int
    ) -> None:
        self.connection = connection
        self.request = request
        self.version = version
        self.expires = expires  # by time.monotonic
        self.response: Any = None
        self.error: ClientError | None = None
        self.done = False
        self._end = end

    def result(self) -> Any:
        """The response. Raises TransportError and ProtocolError."""
        if self.error is not None:
            raise self.error
        return self.response


class Connection:
    """A connection, set up: connected, encrypted, logged in, and its broker's versions known.

    ``versions`` has first and last version by api key, ``features`` the levels of the cluster's
    finalized features (KIP-584). Setting up takes ``socket.connection.setup.timeout.ms`` at most, and
    ends with the ``deadline``. Raises TransportError, AuthenticationError, UnsupportedError and
    ProtocolError.
    """

    def __init__(
        self,
        address: Address,
        settings: Settings,
        deadline: Deadline,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        self.settings = settings
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        self.closed: ClientError | None = None
        self.throttled_until = 0.0
        self.used = time.monotonic()
        self.session_ends = float("inf")
        self._wire = ClientConnection(
            kafka_wire,
            client_id=settings.client_id,
            max_frame=max(MAX_FRAME, settings.fetch_max_bytes + _FRAME_MARGIN),
        )
        self._pending: deque[Pending] = deque()
        self._silent: deque[Pending] = deque()  # requests without a response
        self._out: deque[memoryview] = deque()
        self._queued = self._written = 0
        self._chunk = bytearray(_CHUNK)
        self._tls_writes = False
        limit = Deadline(
            min(deadline.left_ms, settings.socket_connection_setup_timeout_ms),
            f"connecting to {self}",
        )
        self._socket = self._connect(limit)
        try:
            if context is not None:
                self._encrypt(context, limit)
            self._socket.setblocking(False)
            self._ask_versions(limit)
            if settings.sasl:
                lifetime = log_in(self, limit)
                if lifetime > 0:
                    # Brokers cut a connection that outlives its login (KIP-368).
                    self.session_ends = time.monotonic() + lifetime / 1000 * 0.85
        except DeadlineError as error:
            self.close()
            raise TransportError(
                str(self), f"no answer in {limit.timeout_ms:.0f} ms while the connection is set up"
            ) from error
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return address_text(self.address)

    # Set-up.

    def _connect(self, limit: Deadline) -> socket.socket:
        try:
            plain = socket.create_connection(self.address, timeout=max(limit.left, 0.001))
        except TimeoutError:
            raise TransportError(str(self), f"no connection in {limit.timeout_ms:.0f} ms") from None
        except (OSError, UnicodeError) as error:
            raise TransportError(str(self), getattr(error, "strerror", "") or str(error)) from None
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, size in (
            (socket.SO_SNDBUF, self.settings.send_buffer_bytes),
            (socket.SO_RCVBUF, self.settings.receive_buffer_bytes),
        ):
            if size > 0:
                plain.setsockopt(socket.SOL_SOCKET, option, size)
        return plain

    def _encrypt(self, context: ssl.SSLContext, limit: Deadline) -> None:
        self._socket.settimeout(max(limit.left, 0.001))
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=self.address[0])
        except TimeoutError:
            raise TransportError(
                str(self), f"TLS: no handshake in {limit.timeout_ms:.0f} ms"
            ) from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
            raise TransportError(str(self), "TLS: the connection ended in the handshake") from None
        except ssl.SSLError as error:
            raise AuthenticationError(str(self), f"TLS: {_reason(error)}") from None
        except OSError as error:
            raise TransportError(str(self), f"TLS: {error}") from None

    def _ask_versions(self, deadline: Deadline) -> None:
        version = ApiVersionsRequest.max_version
        request = ApiVersionsRequest(
            client_software_name="krammar", client_software_version=__version__
        )
        while True:
            response = self.call(request, deadline, version=version)
            known = {k.api_key: (k.min_version, k.max_version) for k in response.api_keys}
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                break
            # KIP-511: it was answered in version 0, which may say how far the broker goes.
            own = known.get(ApiVersionsRequest.api_key, (0, 0))[1]
            version = max(0, min(version - 1, own))
        if response.error_code:
            raise kafka_error(response.error_code, f"{self}: ApiVersions")
        self.versions = known
        self.features = {f.name: f.max_version_level for f in response.finalized_features}

    # Requests.

    def version_of(self, request: Any, low: int = 0, high: int = 32767) -> int:
        """The newest version of a request (its class or an instance) that both sides have, between
        ``low`` and ``high``. Raises UnsupportedError."""
        cls: Any = request if isinstance(request, type) else type(request)
        low, high = max(low, cls.min_version), min(high, cls.max_version)
        theirs = self.versions.get(cls.api_key)
        if theirs is None:
            raise UnsupportedError(f"{self}: the broker does not have {cls.__name__}")
        if max(low, theirs[0]) > min(high, theirs[1]):
            raise UnsupportedError(
                f"{self}: {cls.__name__} is needed in a version from {low} to {high}, the broker"
                f" has {theirs[0]} to {theirs[1]}"
            )
        return min(high, theirs[1])

    def has(self, request: type[Any], version: int) -> bool:
        """Whether both sides have a request in that version or a newer one."""
        theirs = self.versions.get(request.api_key)
        return theirs is not None and min(theirs[1], request.max_version) >= version

    def send(
        self,
        request: Any,
        *,
        version: int | None = None,
        low: int = 0,
        high: int = 32767,
        timeout_ms: float | None = None,
        expect_response: bool = True,
    ) -> Pending:
        """Queue a request, in the newest common version between ``low`` and ``high`` unless
        ``version`` is given.

        After ``timeout_ms``, ``request.timeout.ms`` unless given, the connection is closed and the
        request ends with TransportError. Raises TransportError, UnsupportedError and EncodeError.
        """
        if self.closed is not None:
            raise TransportError(str(self), f"the connection is closed: {self.closed}")
        if version is None:
            version = self.version_of(request, low, high)
        frame = self._wire.send_request(request, version, expect_response=expect_response)
        self._queued += len(frame)
        self._out.append(memoryview(frame))
        now = self.used = time.monotonic()
        limit = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        pending = Pending(self, request, version, now + limit / 1000, self._queued)
        (self._pending if expect_response else self._silent).append(pending)
        self._attempt(self._write)
        return pending

    def call(
        self,
        request: Any,
        deadline: Deadline,
        *,
        version: int | None = None,
        low: int = 0,
        high: int = 32767,
    ) -> Any:
        """Send a request and wait for its response. Raises as ``send`` does, and DeadlineError."""
        pending = self.send(request, version=version, low=low, high=high)
        while not pending.done:
            deadline.check()
            wait((self,), deadline.left)
        return pending.result()

    @property
    def in_flight(self) -> int:
        """The number of requests that were not answered, or not written where they need no answer."""
        return len(self._pending) + len(self._silent)

    @property
    def expires(self) -> float:
        """When the oldest request is too old, by ``time.monotonic``."""
        oldest = [queue[0].expires for queue in (self._pending, self._silent) if queue]
        return min(oldest, default=float("inf"))

    @property
    def usable(self) -> bool:
        """Whether a new request may go out here. What the broker has closed meanwhile is noticed."""
        if self.closed is not None:
            return False
        if self.in_flight:
            return True
        now = time.monotonic()
        idle = self.settings.connections_max_idle_ms
        if now >= self.session_ends or 0 <= idle < (now - self.used) * 1000:
            self.close()
            return False
        self.pump()
        return self.closed is None

    # Bytes.

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def interest(self) -> int:
        """What ``selectors`` is to wait for."""
        if self._out or self._tls_writes:
            return selectors.EVENT_READ | selectors.EVENT_WRITE
        return selectors.EVENT_READ

    @property
    def has_decrypted(self) -> bool:
        """Whether bytes wait in TLS's buffer, where no selector sees them."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def pump(self) -> None:
        """Write and read what can be without waiting; errors end up in the requests under way."""
        if self.closed is None:
            self._attempt(self._write)
        if self.closed is None:
            self._attempt(self._read)

    def check_time(self) -> None:
        """Give up where a request has waited too long."""
        if self.closed is None and time.monotonic() >= self.expires:
            queue = self._pending or self._silent
            name = type(queue[0].request).__name__
            self.close(TransportError(str(self), f"no answer to {name} in time"))

    def close(self, error: ClientError | None = None) -> None:
        """Close; what is under way ends with ``error``."""
        if self.closed is not None:
            return
        self.closed = error or TransportError(str(self), "the connection was closed")
        self._socket.close()
        self._out.clear()
        for pending in (*self._pending, *self._silent):
            pending.error = self.closed
            pending.done = True
        self._pending.clear()
        self._silent.clear()

    def _attempt(self, move: Any) -> None:
        try:
            move()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError) as error:
            self.close(TransportError(str(self), error.strerror or "the connection was cut"))
        except ssl.SSLError as error:
            # TLS 1.3 tells only now what is wrong with a client's certificate.
            text = f"TLS: {_reason(error)}"
            self.close(
                TransportError(str(self), text)
                if self.versions
                else AuthenticationError(str(self), text)
            )
        except OSError as error:
            self.close(TransportError(str(self), error.strerror or str(error)))
        except WireError as error:
            self.close(ProtocolError(f"{self}: {error}"))

    def _write(self) -> None:
        out = self._out
        while out:
            try:
                sent = self._socket.send(out[0])
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            self._written += sent
            if sent == len(out[0]):
                out.popleft()
            else:
                out[0] = out[0][sent:]
        silent = self._silent
        while silent and silent[0]._end <= self._written:
            silent.popleft().done = True

    def _read(self) -> None:
        chunk = self._chunk
        view = memoryview(chunk)
        self._tls_writes = False
        left = _MOST_AT_ONCE
        while left > 0:
            try:
                size = self._socket.recv_into(chunk)
            except (BlockingIOError, ssl.SSLWantReadError):
                break
            except ssl.SSLWantWriteError:
                self._tls_writes = True
                break
            if not size:
                self._take_responses()
                self._ended()
                return
            self._wire.receive_data(view[:size])
            left -= size
            if size < _CHUNK and not self.has_decrypted:
                break
        self._take_responses()

    def _ended(self) -> None:
        text = "the broker has closed the connection"
        if not self.versions:
            # With TLS 1.3 the handshake is over for us before the broker looks at our certificate.
            tls = isinstance(self._socket, ssl.SSLSocket)
            hint = "want a certificate of the client" if tls else "want another security.protocol"
            text += f" at once (does it {hint}?)"
        self.close(TransportError(str(self), text))

    def _take_responses(self) -> None:
        while self._pending:
            try:
                event = self._wire.next_event()
            except ResponseError as error:
                pending = self._pending.popleft()
                pending.error = ProtocolError(f"{self}: {error}")
                pending.done = True
                continue
            if not isinstance(event, ResponseReceived):
                return
            pending = self._pending.popleft()
            pending.response = event.response
            pending.done = True
            throttle = getattr(event.response, "throttle_time_ms", 0)
            if throttle > 0:  # KIP-219: the broker stops listening for as long
                self.throttled_until = time.monotonic() + throttle / 1000


def wait(connections: Iterable[Connection], seconds: float) -> None:
    """Wait until something happens on one of the connections, or the time is over, and pump them."""
    alive = [connection for connection in connections if connection.closed is None]
    if not alive:
        return
    ready = [connection for connection in alive if connection.has_decrypted]
    if not ready:
        limit = min(connection.expires for connection in alive) - time.monotonic()
        with selectors.DefaultSelector() as selector:
            for connection in alive:
                selector.register(connection, connection.interest)
            ready = [key.fileobj for key, _ in selector.select(max(0.0, min(seconds, limit)))]  # type: ignore[misc]
    for connection in ready:
        connection.pump()
    for connection in alive:
        connection.check_time()


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is refused: {error.verify_message}"
    return error.reason or str(error)
