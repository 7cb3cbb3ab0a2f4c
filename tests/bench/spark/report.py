"""Spark's section of docs/benchmarks.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from statistics import median

from confluent_kafka import libversion

from krammar import __version__
from tests.bench.page import (
    Target,
    aims,
    failures,
    machine,
    markdown_table,
    section,
    subsection,
)
from tests.bench.spark.jobs import (
    CONFLUENT,
    CONNECTOR,
    COUNTS,
    JOURNALS,
    LOGS,
    LONG,
    OURS,
    PARTITIONS,
    TRANSACTION,
    Cost,
    Topic,
)

_TITLES = {
    "count": (
        "Read and count",
        "`load().count()`: all columns are read, because Spark does not tell Python data sources which columns it needs.",
    ),
    "parquet": (
        "Read into Parquet",
        "All columns, compressed with snappy, Spark's default.",
    ),
    "stream": (
        "A streaming query",
        "The whole topic with `Trigger.AvailableNow`, into `noop`, planning and checkpoint included. For each query Spark starts\n"
        "a Python process. Before the first micro-batch, this process compiles PySpark's modules from a zip, which takes one to\n"
        "two seconds on the machine of this table; krammar's own modules take a tenth of that. So topics of this size are\n"
        "slower than with the connector, unless PySpark is not in a zip (the next table) or topics are longer.",
    ),
    "unzipped_stream": (
        "A streaming query, PySpark not in a zip",
        "The same query [without PySpark's zips](spark.md#starting), in a session of its own.",
    ),
    "journals": (
        "A stream of journals",
        f"The streaming query with `source=kafka`, and with `source=journal` over the same records as rows of journals, in\n"
        f"transactions of {TRANSACTION:,} rows. The driver reads journals to find the end of a micro-batch, and the tasks read them again.",
    ),
    "long_count": (
        "Count of a long topic",
        f"{LONG:,} records, so that the start of a query matters little. The connector passes its bytes to Spark in the same\n"
        "process. krammar's bytes go from the socket to Python, into Arrow columns, through a socket to the JVM, and there out\n"
        "of the Arrow columns.",
    ),
    "long_stream": ("A stream over a long topic", f"The same {LONG:,} records."),
    "last_percent": (
        "The last percent of a topic",
        f"`where timestamp >= …` over {LONG:,} records. krammar pushes filters down, and the connector does not. *Read* is the\n"
        "data that the broker read from its logs.",
    ),
    "write": ("Write", "From Parquet to a new topic, not compressed."),
}


# Parts in which krammar is to be as fast as the connector for records of 1 kB.
_AS_FAST = {
    "count": "count",
    "parquet": "into Parquet",
    "stream": "stream",
    "unzipped_stream": "stream, PySpark not in a zip",
    "long_count": f"count of {LONG:,}",
    "long_stream": f"stream of {LONG:,}",
}


@dataclass
class Report:
    """Costs of one run: a list with one entry a round, by part, topic and contender."""

    missing: list[str]
    jars: str
    quick: bool = False
    costs: dict[str, dict[Topic, dict[str, list[Cost]]]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def add(self, part: str, topic: Topic, contender: str, cost: Cost) -> None:
        topics = self.costs.setdefault(part, {})
        topics.setdefault(topic, {}).setdefault(contender, []).append(cost)

    def targets(self) -> list[Target]:
        return list(self._targets())

    def _targets(self) -> Iterator[Target]:
        for part, what in _AS_FAST.items():
            for topic, runs in self.costs.get(part, {}).items():
                if topic.size != 1000:
                    continue
                for ours, whose in ((OURS, ""), (LOGS, " of log folders")):
                    ratio = _ratio(runs, CONNECTOR, ours)
                    if ratio is not None:
                        promise = f"{topic.title}, {what}{whose}: at least as fast as the connector"
                        yield Target(promise, f"{ratio:.2f} times", ratio >= 1)
        for topic, runs in self.costs.get("journals", {}).items():
            ratio = _ratio(runs, OURS, JOURNALS)
            if ratio is not None:
                promise = f"{topic.title}, stream of journals: at least 0.7 times as fast as `source=kafka`"
                yield Target(promise, f"{ratio:.2f} times", ratio >= 0.7)
        for topic, runs in self.costs.get("last_percent", {}).items():
            ratio = _ratio(runs, CONNECTOR, OURS)
            if topic.size == 1000 and ratio is not None:
                promise = (
                    f"{topic.title}, the last percent: at least 10 times as fast as the connector"
                )
                yield Target(promise, f"{ratio:.2f} times", ratio >= 10)

    def markdown(self) -> str:
        return section("spark", "python -m tests.bench.spark", self._lines())

    def _lines(self) -> Iterator[str]:
        yield "## Spark"
        yield ""
        yield "`make bench` (`python -m tests.bench.spark`) writes this section. One Spark session (`local[2]`, 1 GB for the driver) and"
        yield f"krammar's broker, a process of its own on loopback, share the processors. The topics have {PARTITIONS} partitions and {COUNTS[1000]:,}"
        yield f"records of 1 kB or {COUNTS[100]:,} of 100 B, in batches of up to 1 MB. Half of each record is random. `connector` is Spark's"
        yield "own Kafka connector with its defaults. `confluent-kafka` is a Python data source with one task per partition, which"
        yield "consumes the partition with librdkafka and converts the messages to Arrow columns. The contenders take turns. The first"
        yield "round of each does not count (before the first table, the first three). Figures are medians, and ratios are the median"
        yield "of the rounds' ratios: above 1, krammar is faster. CPU is the processor time of the JVM and the Python workers together."
        yield ""
        yield from machine()
        yield (
            f"krammar {__version__}, PySpark {version('pyspark')}, pyarrow {version('pyarrow')},"
            f" {self._connector()}"
        )
        yield f"confluent-kafka {version('confluent-kafka')} with librdkafka {libversion()[0]}."
        yield from self.missing
        if self.quick:
            yield ""
            yield "**A quick run: few rounds, a tenth of the records, figures for orientation only.**"
        for part, (title, note) in _TITLES.items():
            if part in self.costs:
                tables = {"last_percent": self._percent_table, "journals": self._journal_table}
                yield from tables.get(part, self._table)(title, note, self.costs[part])
        yield from failures(self.errors)
        yield from aims(self.targets())

    def _connector(self) -> str:
        found = re.search(r"spark-sql-kafka-0-10_2\.13-([^/:]+)\.jar", self.jars)
        return f"the connector {found[1]}," if found else "no connector,"

    def _table(
        self, title: str, note: str, costs: dict[Topic, dict[str, list[Cost]]]
    ) -> Iterator[str]:
        names = _names(costs)
        ours = [name for name in names if name in (OURS, LOGS)]
        peers = [name for name in names if name in (CONNECTOR, CONFLUENT)]
        head = [
            "Records",
            *(f"{name} MB/s" for name in names),
            *(f"{OURS} rows/s" for _ in (1,)),
            *(
                f"{mine} ÷ {peer}"
                for mine in ours
                for peer in peers
                if (mine, peer) != (LOGS, CONFLUENT)
            ),
            *(f"{name} CPU s" for name in names),
        ]
        rows = []
        for topic, runs in costs.items():
            clock = {name: _median(runs.get(name, []), lambda cost: cost.clock) for name in names}
            rows.append(
                (
                    topic.title,
                    *(_figure(topic.bytes / 1e6, clock[name], ",.0f") for name in names),
                    _figure(topic.records, clock.get(OURS), ",.0f"),
                    *(
                        _times(_ratio(runs, peer, mine))
                        for mine in ours
                        for peer in peers
                        if (mine, peer) != (LOGS, CONFLUENT)
                    ),
                    *(
                        f"{_median(runs.get(name, []), lambda cost: cost.spark) or 0:.2f}"
                        for name in names
                    ),
                )
            )
        yield from subsection(title, note, markdown_table(head, rows))

    def _journal_table(
        self, title: str, note: str, costs: dict[Topic, dict[str, list[Cost]]]
    ) -> Iterator[str]:
        names = (OURS, JOURNALS)
        head = [
            "Records",
            *(f"{name} MB/s" for name in names),
            f"{JOURNALS} ÷ {OURS}",
            *(f"{name} CPU s" for name in names),
        ]
        rows = []
        for topic, runs in costs.items():
            clock = [_median(runs.get(name, []), lambda cost: cost.clock) for name in names]
            used = [_median(runs.get(name, []), lambda cost: cost.spark) for name in names]
            rows.append(
                (
                    topic.title,
                    *(_figure(topic.bytes / 1e6, seconds, ",.0f") for seconds in clock),
                    _times(_ratio(runs, OURS, JOURNALS)),
                    *(f"{seconds or 0:.2f}" for seconds in used),
                )
            )
        yield from subsection(title, note, markdown_table(head, rows))

    def _percent_table(
        self, title: str, note: str, costs: dict[Topic, dict[str, list[Cost]]]
    ) -> Iterator[str]:
        names = _names(costs)
        head = [
            "Records",
            *(f"{name} ms" for name in names),
            *(f"÷ {name}" for name in names if name != OURS),
            *(f"{name} read MB" for name in names),
        ]
        rows = []
        for topic, runs in costs.items():
            clock = [_median(runs.get(name, []), lambda cost: cost.clock) for name in names]
            size = [_median(runs.get(name, []), lambda cost: cost.fetched) for name in names]
            rows.append(
                (
                    topic.title,
                    *("" if found is None else f"{found * 1000:,.0f}" for found in clock),
                    *(_times(_ratio(runs, name, OURS)) for name in names if name != OURS),
                    *("" if found is None else f"{found / 1e6:,.1f}" for found in size),
                )
            )
        yield from subsection(title, note, markdown_table(head, rows))


def _names(costs: dict[Topic, dict[str, list[Cost]]]) -> list[str]:
    found = {name for runs in costs.values() for name in runs}
    return [name for name in (OURS, CONNECTOR, CONFLUENT, LOGS) if name in found]


def _median(costs: Sequence[Cost], figure: Callable[[Cost], float]) -> float | None:
    return median(map(figure, costs)) if costs else None


def _ratio(runs: dict[str, list[Cost]], theirs: str, ours: str) -> float | None:
    """How often our time is in theirs."""
    pairs = list(zip(runs.get(theirs, []), runs.get(ours, []), strict=False))
    return median(one.clock / other.clock for one, other in pairs) if pairs else None


def _figure(amount: float, seconds: float | None, style: str) -> str:
    return format(amount / seconds, style) if seconds else ""


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"
