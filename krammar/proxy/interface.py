"""The interface of filters. It does no I/O.

A filter is a class with methods for requests and responses, plain or async::

    class OnlySmall(Filter):
        @on(ProduceRequest)
        async def limit(self, request: ProduceRequest, exchange: Exchange) -> ProduceResponse | None:
            ...
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from krammar.wire.message import Codec

_VERSIONS = re.compile(r"(\d+)(-(\d*))?")
_NEWEST = (1 << 15) - 1  # a version is an int16

Method = Callable[..., Any]
_Method = TypeVar("_Method", bound=Method)


class Silence:
    """The type of ``SILENCE``."""


# Returned by a method for requests: neither the request nor anything after it on its connection is passed on or answered.
SILENCE = Silence()


class Close(Exception):
    """Raised by a method of a filter to close the connection.

    Args:
        reason: why, for the log. The client does not see it.
        reset: whether the client gets a reset (RST) instead of an end (FIN).
    """

    def __init__(self, reason: str = "closed by a filter", *, reset: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.reset = reset


class Named(NamedTuple):
    """What ``on`` names: a class of requests or responses, and the first and the last version."""

    message: type[Codec]
    low: int
    high: int

    @property
    def is_request(self) -> bool:
        return hasattr(self.message, "response_class")


def on(*messages: type[Any], versions: str | None = None) -> Callable[[_Method], _Method]:
    """Call the decorated method of a filter for messages of these classes.

    The method gets the message and its ``Exchange``. For a request it returns

    - None to pass the request on, changed in place or not,
    - another request of the class to pass that one on,
    - a response of the request's class to answer the client; the broker does not see the request,
    - ``SILENCE`` to drop the request, and all that follows it on the connection.

    For a response it returns None or another response of the class. It raises ``Close`` to close the connection.

    Args:
        messages: classes of requests or responses from a generated package.
        versions: the versions, such as ``"3"``, ``"3-"`` or ``"3-5"``. Messages of other versions pass unread.
            Default: all.

    Raises:
        TypeError: a class is no request and no response.
        ValueError: ``versions`` has another form, or a class has none of these versions.
    """
    low, high = _range(versions)
    if not messages:
        raise TypeError("on() needs at least one class, such as on(ProduceRequest)")
    named = []
    for message in messages:
        if not hasattr(message, "response_class") and not hasattr(message, "request_class"):
            raise TypeError(f"on(): {message!r} is no request and no response of a protocol")
        if low > message.max_version or high < message.min_version:
            raise ValueError(
                f"on({message.__name__}, versions={versions!r}): it has versions "
                f"{message.min_version} to {message.max_version}"
            )
        named.append(Named(message, low, high))

    def mark(method: _Method) -> _Method:
        method._krammar_on = (*getattr(method, "_krammar_on", ()), *named)  # type: ignore[attr-defined]
        return method

    return mark


def _range(versions: str | None) -> tuple[int, int]:
    if versions is None:
        return 0, _NEWEST
    found = _VERSIONS.fullmatch(versions)
    if found is None:
        raise ValueError(f'versions={versions!r}: write "3", "3-" or "3-5"')
    low = int(found[1])
    high = low if found[2] is None else int(found[3] or _NEWEST)
    if low > high:
        raise ValueError(f"versions={versions!r}: the first version is greater than the last")
    return low, high


class Filter:
    """The base class of filters. One instance serves all connections of a proxy.

    Attributes of the instance are state of the proxy; ``exchange.connection.state`` is state of a connection.

    Attributes:
        refuse_unknown: whether the proxy closes connections that send an API or a version that the protocol does not
            define, for a filter that must see every request. Default: such requests pass.
        in_place: whether methods change messages in place. If none that reads a message does, and none returns
            another one, its bytes pass as they came. Default: they do, and messages are encoded again.
    """

    refuse_unknown = False
    in_place = True

    def attached(self, refresh: Callable[[], None]) -> None:
        """Handle that a chain has the filter. It calls ``refresh`` whenever ``methods`` has changed, in any thread."""

    def methods(self) -> list[tuple[Named, Method]]:
        """Return what the filter names and the methods for it: those that ``on`` marks, base classes first."""
        return methods_of(self)

    def opened(self, connection: Connection) -> None:
        """Handle a new connection of a client, before its first request."""

    def closed(self, connection: Connection) -> None:
        """Handle the end of a connection."""

    def close(self) -> None:
        """Release what the filter holds, such as files and threads, in the event loop.

        The proxy calls it once, after the last connection of the filter's chain has ended: when a changed file of settings
        has replaced the chain, and at the end of the proxy.
        """

    def patch(self, message: type[Any], version: int) -> Patch | None:
        """Return a function that changes frames of a frequent message as bytes, which costs less than decoding.

        The function gets bytes that contain the frame with its length prefix, the offsets at which it begins and ends,
        and the connection. It returns the pieces of the changed frame, which can be views of the same bytes; or None,
        and then the filter's methods get the decoded message. It raises ``Close`` as they do. It is called only if no
        other filter reads this message. An exchange whose request was changed so has no request, state and client id.
        Default: None.

        Args:
            message: a class of requests or responses that a method of the filter names.
        """
        return None

    def watch_connection(self, connection: Connection, relay: Relay) -> Watch | None:
        """Return what sees the bytes of a new connection as they arrive, without delaying them. Default: None.

        A filter that overrides this reads everything, so ApiVersions offers only versions that the protocol defines.
        """
        return None


class Watch:
    """Sees the bytes of a connection. ``Filter.watch_connection`` returns it. The methods of this class do nothing."""

    def arrived(self, is_request: bool, data: memoryview) -> None:
        """Handle bytes that have arrived, and are passed on or handled. They are valid until the method returns."""

    def noted(self, is_request: bool, correlation_id: int, notes: list[str]) -> None:
        """Handle what the proxy or a filter has done to a frame, before ``arrived`` if possible; see ``Relay``."""

    def decided(self) -> None:
        """Handle that ``Relay.is_undecided`` may have changed."""

    def closed(self) -> None:
        """Handle the end of the connection."""


class Relay(Protocol):
    """What a ``Watch`` can ask of its connection."""

    def is_undecided(self, is_request: bool, correlation_id: int) -> bool:
        """Return whether a frame that has arrived waits for filters, or for ports, so that notes can follow."""

    def pause(self, paused: bool) -> None:
        """Stop reading from client and broker, or go on."""


class Connection:
    """A connection of a client through the proxy.

    Attributes:
        number: from 1, in the order of the connections
        client: the client's address, such as ``"127.0.0.1:50312"``
        upstream: the broker's address
        node: the broker's node id, as far as it is known
        listener: the name of the proxy's listener; empty if it has none
        principal: who the client is: the name of an accepted login, or of a client certificate; None until it is known,
            and if nothing reads it
        ended: how the connection has ended, such as ``"by the client"``; empty while it is open
        state: for filters: anything that lasts as long as the connection. Use the filter, or a name that
            contains its name, as the key.
    """

    __slots__ = ("client", "ended", "listener", "node", "number", "principal", "state", "upstream")

    def __init__(self, number: int, client: str, upstream: str, listener: str = "") -> None:
        self.number = number
        self.client = client
        self.upstream = upstream
        self.listener = listener
        self.node: int | None = None
        self.principal: str | None = None
        self.ended = ""
        self.state: dict[Any, Any] = {}


# Changes the bytes of a frame, as ``Filter.patch`` describes.
Patch = Callable[
    [bytes | bytearray, int, int, Connection], list[bytes | bytearray | memoryview] | None
]
# Sends a request for the filter that handles an exchange; the version can be None.
Send = Callable[["Exchange", Any, int | None], Awaitable[Any]]


class Exchange:
    """A request and its response.

    Attributes:
        connection: the client's connection
        api_key, version, correlation_id, client_id: of the request's header
        request: the request; None for a response whose request no filter names
        received: the bytes of the request as it came, and where it begins after its length prefix; see ``frame``
        delivery: for filters: returns how the bytes of a response's frame reach the client; None sends them
        notes: for filters: what they have done to the message, in words, for those who watch the connection
        state: for filters: anything that the response's method needs from the request's
        method: the method of a filter that handles the exchange now; ``send`` needs to know whose it is
        failure: why the connection is closed when this method ends: another filter has decided so for a request
            of this one
    """

    __slots__ = (
        "_send",
        "api_key",
        "client_id",
        "connection",
        "correlation_id",
        "delivery",
        "failure",
        "method",
        "notes",
        "received",
        "request",
        "state",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        send: Send,
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.request: Any = None
        self.received = b"", 0
        self.delivery: Callable[[bytes], list[Any]] | None = None
        self.notes: list[str] = []
        self.state: dict[Any, Any] = {}
        self.method: Method | None = None
        self.failure: Exception | None = None
        self._send = send

    @property
    def frame(self) -> bytes:
        """The request as it came, without its length prefix; empty if no filter names it."""
        data, begin = self.received
        return data[begin:]

    async def send(self, request: Any, version: int | None = None) -> Any:
        """Send a request of the filter to the broker, and return its response.

        It passes the filters between this one and the broker, like any other request, and its response passes them
        back. So the filter gets the names that it also sees in messages of clients, and what the filters after it
        deny is denied. They get a copy of the request, with an exchange of its own.

        It uses the client's connection to the broker, so it has the client's rights, and the broker answers it
        after all requests that it has already received. Call it while the filter's method runs.

        Args:
            version: by default the newest one that both the definitions and the broker have, as far as the
                client has asked for the broker's versions; otherwise the newest one of the definitions.

        Raises:
            ValueError: the request gets no response (Produce with acks 0).
            EncodeError: the version cannot represent the request.
            DecodeError: the response is invalid.
            ConnectionError: the broker has closed the connection.
        """
        return await self._send(self, request, version)


def methods_of(each: Filter) -> list[tuple[Named, Method]]:
    """Return the methods of a filter that ``on`` names, in the order of the class, base classes first.

    Methods that are attributes of the instance follow: a filter whose arguments decide what it names creates them with
    ``MethodType(on(...)(function), self)``, where ``function`` is of this instance: ``on`` notes in it what it names.
    """
    names: dict[str, None] = {}
    for cls in reversed(type(each).__mro__):
        names.update(dict.fromkeys(vars(cls)))
    found = []
    for name in names:
        method = getattr(type(each), name, None)
        for named in getattr(method, "_krammar_on", ()):
            found.append((named, getattr(each, name)))
    for method in vars(each).values():
        for named in getattr(method, "_krammar_on", ()):
            found.append((named, method))
    return found


__all__ = [
    "SILENCE",
    "Close",
    "Connection",
    "Exchange",
    "Filter",
    "Method",
    "Named",
    "Patch",
    "Relay",
    "Silence",
    "Watch",
    "methods_of",
    "on",
]
