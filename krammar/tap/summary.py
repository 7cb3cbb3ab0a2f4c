"""The summary: numbers, sizes and latencies of frames by api and version, and whether all are good."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from krammar.tap.frame import Frame, Observer, Status

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
