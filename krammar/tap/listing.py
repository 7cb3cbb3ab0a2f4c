"""What the tap has seen, as text: a line for each exchange or frame, JSON objects of frames, and the summary."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from krammar.tap.describe import Describer
from krammar.tap.exchanges import EVERYTHING, Exchanges, ExchangeSelection, State, TappedExchange
from krammar.tap.frame import Frame, Observer, Status
from krammar.util.printable import escape

Write = Callable[[str], None]


# Narrower terminals get lines without sizes and connections.
_NARROW = 110
_RED, _YELLOW, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[0m"


class ExchangeListing(Observer):
    """Writes one line per request and its response, and one for the beginning and the end of a connection.

    All lines of listings are printable: what clients, brokers and captures contain cannot control a terminal.

    Args:
        write: receives lines without a newline.
        only_bad: write only exchanges with a frame that is not good; see ``Frame.is_good``.
        select: the exchanges to write. If it selects, connections are not written.
        width: the number of columns of the terminal; 0 if there is none. Longer lines are cut.
        colour: whether errors are red.
    """

    def __init__(
        self,
        describe: Describer,
        write: Write,
        *,
        only_bad: bool = False,
        select: ExchangeSelection = EVERYTHING,
        width: int = 0,
        colour: bool = False,
    ) -> None:
        self._exchanges = Exchanges(describe, self._ended)
        self._write = write
        self._only_bad = only_bad
        self._select = select
        self._width = width
        self._colour = colour

    def frame(self, frame: Frame) -> None:
        self._exchanges.frame(frame)

    def opened(self, time_ns: int, connection: int, client: str, upstream: str) -> None:
        self._event(time_ns, connection, f"open   {client} to {upstream}")

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        self._exchanges.closed(time_ns, connection, reason)
        self._event(time_ns, connection, f"closed {reason}")

    def close(self) -> None:
        self._exchanges.close()

    def _event(self, time_ns: int, connection: int, text: str) -> None:
        if not self._only_bad and not self._select:
            self._write(self._cut(escape(f"{_clock(time_ns)} #{connection:<3} {text}")))

    def _ended(self, exchange: TappedExchange) -> None:
        if self._only_bad and all(frame.is_good for frame in exchange.frames):
            return
        if not self._select.matches(exchange):
            return
        line = self._cut(escape(exchange_line(exchange, narrow=0 < self._width < _NARROW)))
        if self._colour and exchange.is_error:
            line = f"{_RED}{line}{_PLAIN}"
        elif self._colour and exchange.state is State.WAITING:
            line = f"{_YELLOW}{line}{_PLAIN}"
        self._write(line)

    def _cut(self, line: str) -> str:
        if not 0 < self._width < len(line):
            return line
        return line[: self._width - 1] + "…"


def exchange_line(exchange: TappedExchange, *, narrow: bool = False) -> str:
    """Describe an exchange in one line: its time is the request's, and its status the worse of both frames."""
    first, request, response = exchange.first, exchange.request, exchange.response
    version = "" if first.version is None else f" v{first.version}"
    wait = None if response is None else response.latency_ns
    latency = "" if wait is None else f"{wait / 1e6:.1f} ms"
    bad = [str(frame.status) for frame in exchange.frames if not frame.is_good]
    odd = [str(frame.status) for frame in exchange.frames if frame.status is not Status.OK]
    state = [*bad, *odd, str(exchange.state)][0]
    begin = f"{_clock(first.time_ns)} #{first.connection:<3} "
    if narrow:
        begin = f"{_clock(first.time_ns)[:12]} "
        return f"{begin}{first.api + version:<24} {latency:>10}  {exchange.text or state}".rstrip()
    sizes = " ".join(f"{_size(frame):>11}" for frame in (request, response))
    return f"{begin}{first.api + version:<28} {sizes} {latency:>10}  {state:<11} {exchange.text}".rstrip()


def _size(frame: Frame | None) -> str:
    return "" if frame is None else f"{frame.size:,} B"


class Listing(Observer):
    """Writes one line per frame, and one for the beginning and the end of a connection.

    Args:
        write: receives lines without a newline.
        only_bad: write only frames that are not good; see ``Frame.is_good``.
    """

    def __init__(self, describe: Describer, write: Write, *, only_bad: bool = False) -> None:
        self._describe = describe
        self._write = write
        self._only_bad = only_bad

    def opened(self, time_ns: int, connection: int, client: str, upstream: str) -> None:
        if not self._only_bad:
            text = f"{_clock(time_ns)} #{connection:<3} open   {client} to {upstream}"
            self._write(escape(text))

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        if not self._only_bad:
            self._write(escape(f"{_clock(time_ns)} #{connection:<3} closed {reason}"))

    def frame(self, frame: Frame) -> None:
        # The describer learns from every frame, whether it is shown or not.
        description = self._describe(frame).text
        if self._only_bad and frame.is_good:
            return
        version = "" if frame.version is None else f" v{frame.version}"
        number = "" if frame.correlation_id is None else f"id {frame.correlation_id}"
        latency = "" if frame.latency_ns is None else f"{frame.latency_ns / 1e6:.1f} ms"
        parts = [part for part in (description, frame.error, frame.note) if part]
        line = (
            f"{_clock(frame.time_ns)} #{frame.connection:<3} {'->' if frame.is_request else '<-'} "
            f"{frame.api + version:<28} {number:<9} {frame.size:>9,} B {latency:>10}  "
            f"{frame.status:<11} {'; '.join(parts)}"
        )
        self._write(escape(line.rstrip()))


class JsonListing(Observer):
    """Writes one JSON object per frame, on one line, with the decoded message; see ``Listing``."""

    def __init__(self, write: Write, *, only_bad: bool = False) -> None:
        self._write = write
        self._only_bad = only_bad
        self._peers: dict[int, tuple[str, str]] = {}

    def opened(self, time_ns: int, connection: int, client: str, upstream: str) -> None:
        self._peers[connection] = (client, upstream)

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        self._peers.pop(connection, None)

    def frame(self, frame: Frame) -> None:
        if self._only_bad and frame.is_good:
            return
        client, upstream = self._peers.get(frame.connection, (None, None))
        has_offset = frame.status not in (Status.OK, Status.TOKEN) and frame.offset >= 0
        self._write(
            to_json(
                {
                    "time": _moment(frame.time_ns).isoformat(timespec="microseconds"),
                    "connection": frame.connection,
                    "client": client,
                    "upstream": upstream,
                    "direction": "request" if frame.is_request else "response",
                    "api": frame.api,
                    "api_key": frame.api_key,
                    "version": frame.version,
                    "correlation_id": frame.correlation_id,
                    "bytes": frame.size,
                    "latency_ms": None if frame.latency_ns is None else frame.latency_ns / 1e6,
                    "status": str(frame.status),
                    "error": frame.error or None,
                    "path": frame.path or None,
                    "offset": frame.offset if has_offset else None,
                    "changed": frame.note or None,
                    "header": None if frame.header is None else frame.header.to_dict(),
                    "message": None if frame.message is None else frame.message.to_dict(),
                }
            )
        )


def to_json(value: Any) -> str:
    """Encode a value as JSON; infinities and NaN become text, because JSON has no such numbers."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _moment(time_ns: int) -> datetime:
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)


def _clock(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{_clock_of(seconds)}.{rest // 1000:06}"


@lru_cache(maxsize=16)
def _clock_of(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%H:%M:%S")


# The summary: numbers, sizes and latencies of frames by api and version, and whether all are good.

# Hostile clients could send any number of keys and versions. After this many, they share a row.
_MAX_ROWS = 1_000
_OTHERS = ("(others)", None)


class Latencies:
    """Times in nanoseconds, rounded to three digits, so that any number of them needs little memory."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._number = 0
        self.longest: int | None = None

    def add(self, latency_ns: int) -> None:
        """Add a time in nanoseconds."""
        latency_ns = max(0, latency_ns)
        unit = 10 ** max(0, len(str(latency_ns)) - 3)
        self._counts[latency_ns // unit * unit] += 1
        self._number += 1
        self.longest = max(latency_ns, self.longest or 0)

    def merge(self, other: Latencies) -> None:
        """Add all times of another one."""
        self._counts.update(other._counts)
        self._number += other._number
        if other.longest is not None:
            self.longest = max(other.longest, self.longest or 0)

    @property
    def median(self) -> int | None:
        """The lower median, rounded to three digits; None if there are no times."""
        left = (self._number + 1) // 2
        for latency, count in sorted(self._counts.items()):
            left -= count
            if left <= 0:
                return latency
        return None


@dataclass(slots=True)
class Row:
    """The counts of one api and version, or of all frames. Sizes are in bytes, without length prefixes."""

    requests: int = 0
    responses: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    bad: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    def add(self, frame: Frame) -> None:
        """Count a frame."""
        if frame.is_request:
            self.requests += 1
            self.request_bytes += frame.size
        else:
            self.responses += 1
            self.response_bytes += frame.size
        if frame.latency_ns is not None:
            self.latencies.add(frame.latency_ns)
        if not frame.is_good:
            self.bad += 1

    def merge(self, other: Row) -> None:
        """Add all frames of another row."""
        self.requests += other.requests
        self.responses += other.responses
        self.request_bytes += other.request_bytes
        self.response_bytes += other.response_bytes
        self.bad += other.bad
        self.latencies.merge(other.latencies)


class Summary(Observer):
    """Counts frames; ``table`` and ``verdict`` describe the counts."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int | None], Row] = {}
        self.statuses: Counter[Status] = Counter()

    def frame(self, frame: Frame) -> None:
        key = (frame.api, frame.version)
        row = self.rows.get(key)
        if row is None:
            key = key if len(self.rows) < _MAX_ROWS else _OTHERS
            row = self.rows.setdefault(key, Row())
        row.add(frame)
        self.statuses[frame.status] += 1

    @property
    def total(self) -> Row:
        """The sum of all rows."""
        total = Row()
        for row in self.rows.values():
            total.merge(row)
        return total

    @property
    def all_good(self) -> bool:
        """Whether every frame was decoded, and encoded to the same bytes."""
        return self.total.bad == 0

    def verdict(self) -> str:
        """Return the summary in one sentence."""
        tokens, total = self.statuses[Status.TOKEN], self.total
        number = total.requests + total.responses - tokens
        frames = f"{number:,} frame{'' if number == 1 else 's'}"
        if not number:
            return "no frames"
        surplus = self.statuses[Status.SURPLUS]
        besides = f"; {surplus:,} of them with bytes after the message" if surplus else ""
        besides += f"; also {tokens:,} bare SASL tokens" if tokens else ""
        if self.all_good:
            return (
                f"{frames}: every frame decoded, every frame re-encoded to the same bytes{besides}"
            )
        counted = [
            f"{self.statuses[status]:,} {words}"
            for status, words in (
                (Status.MISMATCH, "re-encoded to other bytes"),
                (Status.UNDECODABLE, "undecodable"),
                (Status.UNKNOWN, "of unknown api or version"),
            )
            if self.statuses[status]
        ]
        return f"{frames}: {', '.join(counted)}{besides}"

    def table(self) -> str:
        """Return the table, with the verdict below it."""
        head = (
            "api",
            "version",
            "requests",
            "responses",
            "bytes sent",
            "bytes received",
            "median ms",
            "max ms",
            "not ok",
        )
        lines: list[tuple[str, ...]] = [head]
        for (api, version), row in sorted(
            self.rows.items(), key=lambda item: (item[0][0], item[0][1] or 0)
        ):
            lines.append((api, "" if version is None else str(version), *_cells(row)))
        lines.append(("all", "", *_cells(self.total)))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rule = "  ".join("-" * width for width in widths)
        shown = [
            "  ".join(
                cell.ljust(width) if index == 0 else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([shown[0], rule, *shown[1:-1], rule, shown[-1], "", self.verdict()])


def _cells(row: Row) -> tuple[str, ...]:
    median, longest = row.latencies.median, row.latencies.longest
    return (
        f"{row.requests:,}",
        f"{row.responses:,}",
        f"{row.request_bytes:,}",
        f"{row.response_bytes:,}",
        "" if median is None else f"{median / 1e6:.2f}",
        "" if longest is None else f"{longest / 1e6:.2f}",
        str(row.bad) if row.bad else "",
    )
