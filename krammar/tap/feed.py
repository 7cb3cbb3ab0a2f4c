"""The newest exchanges and connections, in bounded memory, for the pages that show them.

A page gets a short row per exchange. It asks for the fields and bytes of an exchange when a reader opens it, so nothing
is decoded for the page while frames pass.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import islice
from typing import Any

from krammar.tap.exchanges import Exchange
from krammar.tap.fields import masked
from krammar.tap.inspector import Frame
from krammar.tap.observer import Observer
from krammar.util.printable import escape
from krammar.wire.package import Package

MAX_ROWS = 100_000
MAX_BYTES = 256 << 20
MAX_CONNECTIONS = 10_000

_MAX_TOPICS = 20
_MAX_TEXT = 400

Json = list[Any]


def row_of(exchange: Exchange) -> Json:
    """Return an exchange as a row of the page; ``page.js`` names its elements."""
    first, request, response = exchange.first, exchange.request, exchange.response
    latency = None if response is None else response.latency_ns
    return [
        exchange.number,
        first.time_ns // 1000,
        first.connection,
        first.api,
        first.version,
        exchange.client_id,
        exchange.topics[:_MAX_TOPICS],
        exchange.text[:_MAX_TEXT],
        None if request is None else request.size,
        None if response is None else response.size,
        None if latency is None else latency // 1000,
        str(exchange.state),
        [*exchange.told.errors, *(str(f.status) for f in exchange.frames if not f.is_good)],
    ]


def kept(package: Package, frame: Frame | None, *, secrets: bool) -> Frame | None:
    """Return a frame without its message, and with masked secrets unless ``secrets`` is set."""
    if frame is None:
        return None
    return Frame(
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
        status=frame.status,
        error=frame.error,
        path=frame.path,
        offset=frame.offset,
        latency_ns=frame.latency_ns,
        note=frame.note,
        raw=frame.raw,
    )


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


@dataclass(slots=True, eq=False)
class _Stored:
    """A row, and the frames behind it. Rows are built when a page asks for them."""

    exchange: Exchange
    size: int = 0


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
        # Numbers are consecutive, so the place of an exchange follows from its number.
        self._stored: deque[_Stored] = deque()
        # What changed, newest last: exchanges or connections. Pages remember how far they have read.
        self._changed: deque[Exchange | Json] = deque(maxlen=3 * max_rows)
        self._connections = Connections()

    def opened(self, time_ns: int, connection: int, client: str, upstream: str) -> None:
        self._connections.opened(time_ns, connection, client, upstream)
        self._note(self._connections.all[connection])

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        self._connections.closed(time_ns, connection, reason)
        if (known := self._connections.all.get(connection)) is not None:
            self._note(known)

    def begun(self, exchange: Exchange) -> None:
        self._store(self._kept(exchange))

    def ended(self, exchange: Exchange) -> None:
        stored = self._find(exchange.number)
        if stored is None:
            if self._stored and exchange.number < self._stored[0].exchange.number:
                return  # forgotten while its response was awaited
            self._store(self._kept(exchange))
            return
        mine = stored.exchange
        mine.state, mine.told = exchange.state, exchange.told
        mine.response = kept(self.package, exchange.response, secrets=self._secrets)
        if mine.response is not None:
            stored.size += len(mine.response.data)
            self._bytes += len(mine.response.data)
        self._note(mine)
        self._make_room()

    def find(self, number: int) -> Exchange | None:
        """Return an exchange; None if it is not stored any more."""
        stored = self._find(number)
        return None if stored is None else stored.exchange

    def batch(self, cursor: int, limit: int) -> tuple[dict[str, Any], int]:
        """Return what has changed since ``cursor``, at most ``limit`` changes, and the next cursor.

        ``first`` is the number of the oldest exchange that is stored.
        """
        cursor = min(max(cursor, self.changes - len(self._changed)), self.changes)
        count = self.changes - cursor
        some = min(count, limit)
        changed = list(islice(reversed(self._changed), count - some, count))[::-1]
        first = self._stored[0].exchange.number if self._stored else 1
        rows = {
            each.number: each
            for each in changed
            if isinstance(each, Exchange) and each.number >= first
        }
        connections = {each[0]: each for each in changed if isinstance(each, list)}
        batch = {
            "rows": [row_of(each) for each in rows.values()],
            "connections": list(connections.values()),
            "first": first,
        }
        return batch, cursor + some

    def _kept(self, exchange: Exchange) -> Exchange:
        return Exchange(
            exchange.number,
            kept(self.package, exchange.request, secrets=self._secrets),
            kept(self.package, exchange.response, secrets=self._secrets),
            exchange.client_id,
            exchange.state,
            exchange.asked,
            exchange.told,
        )

    def _store(self, exchange: Exchange) -> None:
        size = sum(len(frame.data) for frame in exchange.frames)
        self._stored.append(_Stored(exchange, size))
        self._bytes += size
        self._note(exchange)
        self._make_room()

    def _make_room(self) -> None:
        while len(self._stored) > 1 and (
            len(self._stored) > self._max_rows or self._bytes > self._max_bytes
        ):
            oldest = self._stored.popleft()
            self._bytes -= oldest.size
            # The list of changes may still name it.
            oldest.exchange.request = oldest.exchange.response = None

    def _find(self, number: int) -> _Stored | None:
        if not self._stored:
            return None
        place = number - self._stored[0].exchange.number
        return self._stored[place] if 0 <= place < len(self._stored) else None

    def _note(self, change: Exchange | Json) -> None:
        self.changes += 1
        self._changed.append(change)
