"""A connection to one broker: TLS, login, versions, and several requests in flight.

After the set-up, the socket never blocks: requests are queued, and ``pump`` transfers bytes in both directions as far
as possible. Thus one thread can wait for many brokers (``wait``), and a broker that waits until the client reads
cannot prevent the client from writing.
"""

from __future__ import annotations

import selectors
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable
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
    raise_code,
)
from krammar.client.in_flight import ByVersion, RequestInFlight
from krammar.client.login import log_in, obtain_token
from krammar.client.probe import requires_login, wrong_protocol
from krammar.client.settings import Settings
from krammar.client.tls import handshake_failure
from krammar.client.transport import Address, Transport, connect
from krammar.util.sockets import address_text
from krammar.wire.connection import ClientConnection, ResponseError, ResponseReceived
from krammar.wire.errors import WireError
from krammar.wire.framing import MAX_FRAME
from krammar.wire.negotiation import offered_versions


class BrokerVersions:
    """The versions that a broker has, ``known`` by api key, and its ``features`` with their levels (KIP-584).

    It chooses the version of a request that both sides have.

    Args:
        broker: its address, for errors.
    """

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.known: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}

    def ask(self, call: Callable[[ApiVersionsRequest, int], Any]) -> None:
        """Ask the broker.

        Args:
            call: sends a request in a version, and returns the response.
        """
        version = ApiVersionsRequest.max_version
        request = ApiVersionsRequest(
            client_software_name="krammar", client_software_version=__version__
        )
        while True:
            response = call(request, version)
            known = offered_versions(response)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                break
            # KIP-511: the response has version 0, and may contain the broker's newest version.
            own = known.get(ApiVersionsRequest.api_key, (0, 0))[1]
            version = max(0, min(version - 1, own))
        raise_code(response.error_code, f"{self.broker}: ApiVersions")
        self.known = known
        self.features = {f.name: f.max_version_level for f in response.finalized_features}

    def of(self, request: Any, low: int = 0, high: int = 32767) -> int:
        """Return the newest version of a request, between ``low`` and ``high``, that both sides have.

        Args:
            request: a class, an instance, or what builds one.

        Raises:
            UnsupportedError: both sides have no common version.
        """
        cls: Any = request if isinstance(request, type) else type(request)
        if cls is ByVersion:
            cls = request.cls
        low, high = max(low, cls.min_version), min(high, cls.max_version)
        theirs = self.known.get(cls.api_key)
        if theirs is None:
            raise UnsupportedError(f"{self.broker}: the broker does not have {cls.__name__}")
        if max(low, theirs[0]) > min(high, theirs[1]):
            raise UnsupportedError(
                f"{self.broker}: {cls.__name__} is needed in a version from {low} to {high}, but the broker"
                f" has {theirs[0]} to {theirs[1]}"
            )
        return min(high, theirs[1])

    def has(self, request: type[Any], version: int) -> bool:
        """Return whether both sides have a request in that version or a newer one."""
        theirs = self.known.get(request.api_key)
        return theirs is not None and min(theirs[1], request.max_version) >= version


_FRAME_MARGIN = 1024 * 1024


class Connection:
    """A connection to a broker. The constructor connects, encrypts, asks for versions and logs in.

    ``versions`` are those of the broker.

    Args:
        deadline: ends the set-up, as ``socket.connection.setup.timeout.ms`` does.
        context: the TLS context; None for connections without TLS.

    Raises:
        TransportError: the broker cannot be reached in time.
        AuthenticationError: the login or a certificate is refused.
        UnsupportedError: the broker lacks a request that the set-up needs.
        ProtocolError: a response is malformed.
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
        self.versions = BrokerVersions(str(self))
        self.closed: ClientError | None = None
        self._context = context
        self._served = False  # whether the broker has answered a request that needs a login if the listener has logins
        self.throttled_until = 0.0
        self.used = time.monotonic()
        self.session_ends = float("inf")
        self._wire = ClientConnection(
            kafka_wire,
            client_id=settings.client_id,
            max_frame=max(MAX_FRAME, settings.fetch_max_bytes + _FRAME_MARGIN),
        )
        # In the order of the requests that wait in ``_wire``, which matches the responses.
        self._pending: deque[RequestInFlight] = deque()
        self._silent: deque[RequestInFlight] = deque()  # requests without a response
        # Before connecting: a slow provider of tokens is no fault of the broker.
        token = obtain_token(settings, deadline)
        limit = Deadline(
            min(deadline.left_ms, settings.socket_connection_setup_timeout_ms),
            f"connecting to {self}",
        )
        self.transport = Transport(connect(address, settings, limit), self._wire)
        try:
            self.transport.start(context, address, limit)
            self.versions.ask(lambda request, v: self.call(request, limit, version=v))
            if settings.sasl:
                self._log_in(limit, token)
        except DeadlineError as error:
            self.close()
            raise TransportError(
                str(self), f"no answer within {limit.timeout_ms:.0f} ms of connecting"
            ) from error
        except (TransportError, ProtocolError):  # Kafka answers bytes without TLS with an alert
            self.close()
            if self.versions.known:  # the broker has answered, so the protocol is right
                raise
            wrong = wrong_protocol(address, context is not None, limit.left)
            if wrong is None:
                raise
            raise AuthenticationError(str(self), wrong) from None
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return address_text(self.address)

    # Set-up.

    def _log_in(self, deadline: Deadline, token: str | None) -> None:
        self.session_ends = float("inf")
        lifetime = log_in(self.call, self.settings, str(self), deadline, token)
        if lifetime > 0:
            # Brokers cut a connection that outlives its login (KIP-368).
            self.session_ends = time.monotonic() + lifetime / 1000 * 0.85

    def renew_login(self, deadline: Deadline) -> None:
        """Log in again if the login expires soon (KIP-368). Requests in flight are still answered.

        The connection is closed if that fails.

        Raises:
            AuthenticationError: The broker refuses the login, or there is no token.
        """
        if self.closed is not None or time.monotonic() < self.session_ends:
            return
        token = obtain_token(self.settings, deadline)
        try:
            self._log_in(deadline, token)
        except (TransportError, DeadlineError):
            self.close()
        except BaseException:
            self.close()
            raise

    # Requests.

    def send(
        self,
        request: Any,
        *,
        version: int | None = None,
        low: int = 0,
        high: int = 32767,
        timeout_ms: float | None = None,
        expect_response: bool = True,
    ) -> RequestInFlight:
        """Queue a request.

        Args:
            request: an instance, or what builds one.
            version: the default is the newest common version between ``low`` and ``high``.
            timeout_ms: after this time, the connection is closed and the request ends with
                TransportError. Default: ``request.timeout.ms``.

        Raises:
            TransportError: the connection is closed.
            UnsupportedError: both sides have no common version.
            EncodeError: the request has a value that the version cannot carry.
        """
        if self.closed is not None:
            raise TransportError(str(self), f"the connection is closed: {self.closed}")
        if version is None:
            version = self.versions.of(request, low, high)
        if isinstance(request, ByVersion):
            request = request.build(version)
        frame = self._wire.send_request(request, version, expect_response=expect_response)
        self.transport.queue(frame)
        now = self.used = time.monotonic()
        limit = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        pending = RequestInFlight(self, request, version, now + limit / 1000, self.transport.queued)
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
        """Send a request and return its response. Raises DeadlineError, and the errors of ``send``."""
        pending = self.send(request, version=version, low=low, high=high)
        while not pending.done:
            deadline.check()
            wait((self,), deadline.left)
        return pending.result()

    @property
    def in_flight(self) -> int:
        """The number of requests that wait for a response, or to be written if they have none."""
        return len(self._pending) + len(self._silent)

    @property
    def expires(self) -> float:
        """When the oldest request expires, by ``time.monotonic``."""
        oldest = [queue[0].expires for queue in (self._pending, self._silent) if queue]
        return min(oldest, default=float("inf"))

    @property
    def usable(self) -> bool:
        """Whether new requests can be sent; detects that the broker has closed the connection."""
        if self.closed is not None:
            return False
        if self.in_flight:
            return True
        idle = self.settings.connections_max_idle_ms
        if 0 <= idle < (time.monotonic() - self.used) * 1000:
            self.close()
            return False
        self.pump()
        return self.closed is None

    # Bytes.

    def pump(self) -> None:
        """Write and read as much as possible without waiting. Errors are stored in the requests in flight."""
        if self.closed is None:
            self._attempt(self._write)
        if self.closed is None:
            self._attempt(self._read)

    def check_time(self) -> None:
        """Close the connection if a request has expired."""
        if self.closed is None and time.monotonic() >= self.expires:
            queue = self._pending or self._silent
            name = type(queue[0].request).__name__
            self.close(TransportError(str(self), f"no response to {name} in time"))

    def close(self, error: ClientError | None = None) -> None:
        """Close the connection; requests in flight end with ``error``."""
        if self.closed is not None:
            return
        self.closed = error or TransportError(str(self), "the connection was closed")
        self.transport.close()
        for pending in (*self._pending, *self._silent):
            pending.error = self.closed
            pending.done = True
        self._pending.clear()
        self._silent.clear()

    def _attempt(self, move: Any) -> None:
        try:
            move()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError) as error:
            self._lost(error.strerror or "the connection was reset")
        except ssl.SSLError as error:
            # With TLS 1.3, a refused client certificate is reported after the handshake.
            text = f"TLS: {handshake_failure(error)}"
            self.close(
                TransportError(str(self), text)
                if self.versions.known
                else AuthenticationError(str(self), text)
            )
        except OSError as error:
            self.close(TransportError(str(self), error.strerror or str(error)))
        except WireError as error:
            self.close(ProtocolError(f"{self}: {error}"))

    def _write(self) -> None:
        self.transport.write()
        silent = self._silent
        while silent and silent[0].end <= self.transport.written:
            silent.popleft().done = True

    def _read(self) -> None:
        ended = self.transport.read()
        self._take_responses()
        if ended:
            self._ended()

    def _ended(self) -> None:
        text = "the broker has closed the connection"
        if not self.versions.known:
            # With TLS 1.3, the client ends the handshake before the broker checks its certificate.
            tls = self.transport.is_encrypted
            what = "a client certificate" if tls else "another security.protocol"
            text += f" immediately: it may require {what}"
        self._lost(text)

    def _lost(self, text: str) -> None:
        """Close a connection that the broker has closed; find out whether the listener requires a login."""
        error: ClientError = TransportError(str(self), text)
        if self.versions.known and not self._served and not self.settings.sasl:
            patience = self.settings.socket_connection_setup_timeout_ms / 1000
            wrong = requires_login(self.address, self._context, patience)
            if wrong is not None:
                error = AuthenticationError(str(self), wrong)
        self.close(error)

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
            self._served = bool(self.versions.known)
            pending.response = event.response
            pending.done = True
            throttle = getattr(event.response, "throttle_time_ms", 0)
            if throttle > 0:  # KIP-219: the broker does not read requests for that time
                self.throttled_until = time.monotonic() + throttle / 1000


def wait(connections: Iterable[Connection], seconds: float) -> None:
    """Wait until a connection can be read or written, or the time is over; then pump the ready ones."""
    alive = [connection for connection in connections if connection.closed is None]
    if not alive:
        return
    ready = [connection for connection in alive if connection.transport.has_decrypted]
    if not ready:
        limit = min(connection.expires for connection in alive) - time.monotonic()
        with selectors.DefaultSelector() as selector:
            for connection in alive:
                transport = connection.transport
                selector.register(transport, transport.interest, connection)
            ready = [key.data for key, _ in selector.select(max(0.0, min(seconds, limit)))]
    for connection in ready:
        connection.pump()
    for connection in alive:
        connection.check_time()
