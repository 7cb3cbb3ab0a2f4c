"""The five comparisons at the top of docs/benchmarks.md: charts of figures that stand in its tables.

    python -m tests.bench.charts

The tables are the only source: each bar is a cell of one of them. ``make bench`` draws the charts last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tests.bench.page import put_file, section

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "benchmarks.md"
IMAGES = DOCS / "images"

_HEADING = re.compile(r"(##+) (.*)")
_NUMBER = re.compile(r"[\d,]+(\.\d+)?")


@dataclass(frozen=True)
class Panel:
    """Bars on one scale.

    Attributes:
        title: what is measured, with the unit
        table: the headings above the table, from ``##`` on
        row: the row's first cells
        bars: the label of each bar, and its column; or, if ``transposed``, its row
        column: the column of all bars of a transposed table, whose rows are the contenders
        part: which number of the cell, from 0
    """

    title: str
    table: tuple[str, ...]
    bars: tuple[tuple[str, str], ...]
    row: tuple[str, ...] = ()
    column: str = ""
    part: int = 0


@dataclass(frozen=True)
class Chart:
    """Panels that answer one question of somebody who chooses."""

    name: str
    title: str
    note: str
    panels: tuple[Panel, ...]


def _same(*names: str, unit: str = "") -> tuple[tuple[str, str], ...]:
    return tuple((name, f"{name} {unit}".rstrip()) for name in names)


_LARGE = ("MetadataResponse, 200 topics x 12 partitions",)
_LIBRARIES = (("krammar", "krammar µs"), ("krammar, pure Python", "pure µs"))
_CODECS = (*_LIBRARIES, *_same("kio", "kafka-python", unit="µs"))
_BATCHES = (*_LIBRARIES, *_same("aiokafka", "kafka-python", unit="µs"))
_BROKERS = ("krammar", "Apache Kafka")
_KILOBYTE = ("1 kB, no compression",)
_SOURCES = (
    ("krammar", "krammar MB/s"),
    ("Spark's connector", "connector MB/s"),
    ("confluent-kafka in Python", "confluent-kafka MB/s"),
)
_PROXIES = (
    ("krammar", "proxy"),
    ("krammar with Tenants", "Tenants"),
    ("Kroxylicious", "Kroxylicious"),
    ("Kroxylicious with MultiTenant", "with MultiTenant"),
)

CHARTS = (
    Chart(
        "messages",
        "Messages",
        "A response to Metadata of 110 kB: 200 topics with 12 partitions each. Shorter is better.",
        (
            Panel("Decode, µs", ("Decoding messages",), _CODECS, _LARGE),
            Panel("Encode, µs", ("Encoding messages",), _CODECS, _LARGE),
        ),
    ),
    Chart(
        "records",
        "Record batches",
        "10,000 records of 100 bytes. Shorter is better.",
        tuple(
            Panel(f"{what}, µs", ("Record batches of 10,000 records",), _BATCHES, (row,))
            for what, row in (
                ("Decode", "decode 10,000 records"),
                ("Encode", "encode 10,000 records"),
                ("To Arrow columns", "10,000 records to Arrow columns"),
            )
        ),
    ),
    Chart(
        "broker",
        "A broker for tests",
        "Start and memory: shorter is better. Throughput: longer is better.",
        (
            *(
                Panel(f"{what}", ("Brokers", "Start and memory"), _same(*_BROKERS), column=column)
                for what, column in (
                    ("From start to the first answer, ms", "ready ms"),
                    ("Memory after a million records, MB", "after a million records MB"),
                )
            ),
            *(
                Panel(
                    f"{what} records of 1 kB, MB/s",
                    ("Brokers", what),
                    _same(*_BROKERS, unit="MB/s"),
                    ("1 kB, no compression, 1",),
                )
                for what in ("Produce", "Consume")
            ),
        ),
    ),
    Chart(
        "spark",
        "Spark",
        "Records of 1 kB, without compression. Longer is better.",
        (
            Panel("Read and count, MB/s", ("Spark", "Read and count"), _SOURCES, _KILOBYTE),
            Panel("Read into Parquet, MB/s", ("Spark", "Read into Parquet"), _SOURCES, _KILOBYTE),
            Panel(
                "A stream over 2,000,000 records, MB/s",
                ("Spark", "A stream over a long topic"),
                _SOURCES,
                _KILOBYTE,
            ),
        ),
    ),
    Chart(
        "proxy",
        "A proxy",
        "Shorter is better.",
        (
            Panel(
                "Processor time of a frame of Fetch with 1 kB, 16 in flight, µs",
                ("Proxy", "Processor time per frame, in µs"),
                _PROXIES,
                ("Fetch 1 kB v12", "16"),
            ),
            Panel(
                "Median latency of a client's request, µs",
                ("Proxy", "Clients"),
                (("no proxy", "direct"), *_PROXIES),
                ("latency p50 / p99, 100 B, µs",),
            ),
            Panel(
                "Memory after load, MiB",
                ("Proxy", "Clients"),
                _PROXIES,
                ("memory idle / after, MiB",),
                part=1,
            ),
        ),
    ),
)


def tables(page: str) -> dict[tuple[str, ...], list[dict[str, str]]]:
    """The first table under each heading: rows as cells by the name of their column, which is "" and "2" for nameless ones."""
    found: dict[tuple[str, ...], list[dict[str, str]]] = {}
    headings: list[str] = []
    head: list[str] = []
    for line in page.splitlines():
        if match := _HEADING.fullmatch(line):
            depth = len(match[1]) - 2
            headings = [*headings[:depth], match[2]]
            head = []
        elif line.startswith("| "):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if not head:
                head = cells
            elif not set(line) <= set("|-: "):
                found.setdefault(tuple(headings), []).append(dict(zip(head, cells, strict=False)))
    return found


def values(panel: Panel, page: str) -> Iterator[tuple[str, float]]:
    """The label and the figure of each bar. Raises LookupError with the cell that the page does not have."""
    rows = tables(page).get(panel.table, [])
    for label, name in panel.bars:
        start, column = (panel.row, name) if panel.row else ((name,), panel.column)
        for row in rows:
            if tuple(row.values())[: len(start)] == start and column in row:
                numbers = [match[0] for match in _NUMBER.finditer(row[column])]
                yield label, float(numbers[panel.part].replace(",", ""))
                break
        else:
            raise LookupError(f"no {column!r} of {start} in the table under {panel.table}")


_WIDTH, _LEFT, _RIGHT, _BAR, _STEP, _TITLE = 680, 210, 80, 14, 22, 26
# Bars can be seen on white and on the dark page alike. Text has a colour for each: the browser tells a picture the scheme
# of its page.
_ON_WHITE, _ON_DARK, _OURS, _THEIRS = "#5b6672", "#a3adb8", "#0e9f7e", "#8e9aa6"
_STYLE = f"@media (prefers-color-scheme: dark) {{ text {{ fill: {_ON_DARK} }} }}"


def svg(chart: Chart, page: str) -> str:
    """The chart as a picture: one group of bars per panel, each on a scale of its own."""
    shapes: list[str] = []
    y = 0
    for panel in chart.panels:
        bars = list(values(panel, page))
        longest = max(value for _, value in bars)
        y += _TITLE
        shapes.append(f'<text x="0" y="{y - 8}" font-weight="bold">{escape(panel.title)}</text>')
        for label, value in bars:
            width = max(2, round(value / longest * (_WIDTH - _LEFT - _RIGHT)))
            colour = _OURS if label.startswith("krammar") else _THEIRS
            middle = y + _BAR / 2
            shapes += [
                f'<text x="{_LEFT - 8}" y="{middle + 4:g}" text-anchor="end">{escape(label)}</text>',
                f'<rect x="{_LEFT}" y="{y}" width="{width}" height="{_BAR}" rx="2" fill="{colour}"/>',
                f'<text x="{_LEFT + width + 6}" y="{middle + 4:g}">{_figure(value)}</text>',
            ]
            y += _STEP
        y += 8
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" height="{y}"',
            f'     font-family="system-ui, sans-serif" font-size="13" fill="{_ON_WHITE}">',
            f"<title>{escape(chart.title)}</title>",
            f"<style>{_STYLE}</style>",
            *shapes,
            "</svg>",
            "",
        ]
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def image(chart: Chart) -> Path:
    return IMAGES / f"bench-{chart.name}.svg"


def comparisons(page: str) -> str:
    """The section of the page with the charts."""
    lines = ["## Five comparisons", ""]
    lines += ["Each bar is a figure of the tables below, which say what was measured and how.", ""]
    for chart in CHARTS:
        text = "; ".join(_sentence(panel, page) for panel in chart.panels)
        lines += [f"### {chart.title}", "", chart.note, ""]
        lines += [f"![{text}](images/{image(chart).name})", ""]
    return section("charts", "python -m tests.bench.charts", lines[:-1])


def _sentence(panel: Panel, page: str) -> str:
    figures: Sequence[str] = [f"{label} {_figure(value)}" for label, value in values(panel, page)]
    return f"{panel.title}: {', '.join(figures)}"


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for chart in CHARTS:
        image(chart).write_text(svg(chart, page), encoding="utf-8")
    put_file(PAGE, comparisons(page))
    print(f"drawn from {PAGE}: {', '.join(image(chart).name for chart in CHARTS)}")


if __name__ == "__main__":
    main()
