"""The newest exchanges and connections, in bounded memory, for the pages that show them.

A page gets a short row per exchange. It asks for the fields and bytes of an exchange when a reader opens it, so nothing
is decoded for the page while frames pass.

What is stored are tuples of strings, numbers and bytes, which the garbage collector does not track. As objects, 100,000
exchanges would stop the tap, and its clients, for half a second at each full collection.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import islice
from typing import Any

from krammar.tap.exchanges import TappedExchange
from krammar.tap.fields import masked
from krammar.tap.frame import Frame, Observer, Status
from krammar.util.printable import escape
from krammar.wire.package import Package

MAX_ROWS = 100_000
MAX_BYTES = 256 << 20
MAX_CONNECTIONS = 10_000

_MAX_TOPICS = 20
_MAX_TEXT = 400

Json = list[Any]
Row = tuple[Any, ...]
Packed = tuple[Any, ...]
# The attributes of a frame in Packed.
_FIELDS = (
    *("time_ns", "connection", "is_request", "data", "size", "api", "api_key", "version"),
    *("correlation_id", "body_version", "status", "error", "path", "offset", "note", "raw"),
)
_DATA = _FIELDS.index("data")


def row_of(exchange: TappedExchange) -> Row:
    """Return an exchange as a row of the page; ``page.js`` names its elements."""
    first, request, response = exchange.first, exchange.request, exchange.response
    latency = None if response is None else response.latency_ns
    return (
        exchange.number,
        first.time_ns // 1000,
        first.connection,
        first.api,
        first.version,
        exchange.client_id,
        tuple(exchange.topics[:_MAX_TOPICS]),
        exchange.about[:_MAX_TEXT],
        None if request is None else request.size,
        None if response is None else response.size,
        None if latency is None else latency // 1000,
        exchange.state.value,
        (*exchange.told.errors, *(f.status.value for f in exchange.frames if not f.is_good)),
    )


def pack(package: Package, frame: Frame | None, *, secrets: bool) -> Packed | None:
    """Return a frame without its message, with masked secrets unless ``secrets`` is set."""
    if frame is None:
        return None
    return (
        frame.time_ns,
        frame.connection,
        frame.is_request,
        frame.data if secrets else masked(package, frame),
        frame.size,
        frame.api,
        frame.api_key,
        frame.version,
        frame.correlation_id,
        frame.body_version,
        frame.status.value,
        frame.error,
        frame.path,
        frame.offset,
        frame.note,
        frame.raw,
    )


def unpack(packed: Packed | None) -> Frame | None:
    """Return the frame that ``pack`` has packed."""
    if packed is None:
        return None
    values = dict(zip(_FIELDS, packed, strict=True))
    return Frame(**values | {"status": Status(values["status"])})


class Connections(Observer):
    """The newest connections as JSON-able values: number, client, broker, opened, closed, reason; times in µs."""

    def __init__(self) -> None:
        self.all: OrderedDict[int, Json] = OrderedDict()

    def opened(self, time_ns: int, connection: int, client: str, upstream: str) -> None:
        self.all[connection] = [
            connection,
            escape(client),
            escape(upstream),
            time_ns // 1000,
            None,
            "",
        ]
        if len(self.all) > MAX_CONNECTIONS:
            self.all.popitem(last=False)

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        if (known := self.all.get(connection)) is not None:
            known[4:] = [time_ns // 1000, escape(reason)]


class Feed(Observer):
    """Stores what pages show. ``begun`` and ``ended`` receive exchanges.

    Args:
        secrets: whether passwords and tokens are stored; otherwise their bytes are masked.
        max_rows: the number of exchanges that are stored.
        max_bytes: the bytes of frames that are stored. The oldest exchanges make room for new ones.
    """

    def __init__(
        self,
        package: Package,
        *,
        secrets: bool = False,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.package = package
        self.changes = 0
        self._secrets = secrets
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._bytes = 0
        # Numbers are consecutive, so the place of an exchange follows from its number and that of the first one.
        self._first = 1
        self._stored: deque[tuple[Row, Packed | None, Packed | None]] = deque()
        # What changed, newest last: numbers of exchanges, and negative ones of connections. Pages remember how
        # far they have read.
        self._changed: deque[int] = deque(maxlen=3 * max_rows)
        self._connections = Connections()

    def opened(self, time_ns: int, connection: int, client: str, upstream: str) -> None:
        self._connections.opened(time_ns, connection, client, upstream)
        self._note(-connection)

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        self._connections.closed(time_ns, connection, reason)
        self._note(-connection)

    def begun(self, exchange: TappedExchange) -> None:
        self._store(exchange)

    def ended(self, exchange: TappedExchange) -> None:
        place = exchange.number - self._first
        if place < 0:
            return  # forgotten while its response was awaited
        if place >= len(self._stored):
            self._store(exchange)
            return
        _, request, _ = self._stored[place]
        response = pack(self.package, exchange.response, secrets=self._secrets)
        self._stored[place] = (row_of(exchange), request, response)
        self._bytes += _size(response)
        self._note(exchange.number)
        self._make_room()

    def find(self, number: int) -> tuple[Frame | None, Frame | None] | None:
        """Return the request and the response of an exchange; None if it is not stored any more."""
        place = number - self._first
        if not 0 <= place < len(self._stored):
            return None
        _, request, response = self._stored[place]
        return unpack(request), unpack(response)

    def batch(self, cursor: int, limit: int) -> tuple[dict[str, Any], int]:
        """Return what has changed since ``cursor``, at most ``limit`` changes, and the next cursor.

        ``first`` is the number of the oldest exchange that is stored.
        """
        cursor = min(max(cursor, self.changes - len(self._changed)), self.changes)
        count = self.changes - cursor
        some = min(count, limit)
        changed = list(islice(reversed(self._changed), count - some, count))
        numbers = dict.fromkeys(reversed(changed))
        connections = self._connections.all
        batch = {
            "rows": [self._stored[n - self._first][0] for n in numbers if n >= self._first],
            "connections": [connections[-n] for n in numbers if -n in connections],
            "first": self._first,
        }
        return batch, cursor + some

    def _store(self, exchange: TappedExchange) -> None:
        request = pack(self.package, exchange.request, secrets=self._secrets)
        response = pack(self.package, exchange.response, secrets=self._secrets)
        if not self._stored:
            self._first = exchange.number
        self._stored.append((row_of(exchange), request, response))
        self._bytes += _size(request) + _size(response)
        self._note(exchange.number)
        self._make_room()

    def _make_room(self) -> None:
        while len(self._stored) > 1 and (
            len(self._stored) > self._max_rows or self._bytes > self._max_bytes
        ):
            _, request, response = self._stored.popleft()
            self._first += 1
            self._bytes -= _size(request) + _size(response)

    def _note(self, change: int) -> None:
        self.changes += 1
        self._changed.append(change)


def _size(packed: Packed | None) -> int:
    return 0 if packed is None else len(packed[_DATA])
