"""The broker's section of docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from statistics import fmean, median, quantiles

from confluent_kafka import libversion

from tests.bench.broker.contenders import FORCED, KAFKA, OURS
from tests.bench.broker.measure import Cell, Speed
from tests.bench.page import (
    Target,
    aims,
    failures,
    machine,
    markdown_table,
    section,
    subsection,
)

# What half of Kafka's throughput is promised for: 1 kB in batches of 1 MB.
PROMISED = ("1 kB, no compression, 1",)


@dataclass
class Report:
    """Figures of one run, each a list with one entry a round. Times in seconds, memory in bytes."""

    versions: dict[str, str]
    missing: list[str]
    quick: bool = False
    produce: dict[str, dict[str, list[Speed]]] = field(default_factory=dict)
    consume: dict[str, dict[str, list[Speed]]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    latency: dict[str, list[float]] = field(default_factory=dict)
    ready: dict[str, list[float]] = field(default_factory=dict)
    idle: dict[str, list[float]] = field(default_factory=dict)
    forced: dict[str, dict[str, list[Speed]]] = field(default_factory=dict)
    forced_latency: dict[str, list[float]] = field(default_factory=dict)
    filled: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def add(self, broker: str, cell: Cell, speeds: tuple[Speed, Speed]) -> None:
        self.sizes[cell.name] = cell.size
        for table, speed in zip((self.produce, self.consume), speeds, strict=True):
            table.setdefault(cell.name, {}).setdefault(broker, []).append(speed)

    def add_forced(self, broker: str, cell: Cell, speed: Speed) -> None:
        self.sizes[cell.name] = cell.size
        self.forced.setdefault(cell.name, {}).setdefault(broker, []).append(speed)

    def targets(self) -> list[Target]:
        return list(self._targets())

    def _targets(self) -> Iterator[Target]:
        if self.ready.get(KAFKA) and self.ready.get(OURS):
            ours, theirs = median(self.ready[OURS]), median(self.ready[KAFKA])
            figures = f"{ours * 1000:,.0f} ms, Kafka {theirs * 1000:,.0f} ms"
            yield _target(
                "ready 10 times sooner than Apache Kafka",
                f"{theirs / ours:.1f} times",
                figures,
                theirs / ours >= 10,
            )
        for what, table in (("idle", self.idle), ("after a million records", self.filled)):
            if table.get(KAFKA) and table.get(OURS):
                ours, theirs = median(table[OURS]), median(table[KAFKA])
                figures = f"{ours / 1e6:.1f} MB, Kafka {theirs / 1e6:.1f} MB"
                promise = f"at most a tenth of Apache Kafka's memory, {what}"
                part = ours / theirs
                yield _target(promise, f"{part:.3f} of it", figures, part <= 0.1)
        for verb, speeds in (("produce", self.produce), ("consume", self.consume)):
            for name in PROMISED:
                rates = {broker: _rate(runs) for broker, runs in speeds.get(name, {}).items()}
                if rates.get(KAFKA) and rates.get(OURS):
                    part = rates[OURS] / rates[KAFKA]
                    size = self.sizes[name]
                    ours_, theirs_ = (_megabytes(rates[one], size) for one in (OURS, KAFKA))
                    promise = f"{verb} {name} partition: at least half of Apache Kafka's throughput"
                    figures = f"{ours_} MB/s, Kafka {theirs_} MB/s"
                    yield _target(promise, f"{part:.2f} of it", figures, part >= 0.5)
        if self.latency.get(KAFKA) and self.latency.get(OURS):
            for what, figure in (("median", median), ("99th percentile", _p99)):
                ours, theirs = figure(self.latency[OURS]), figure(self.latency[KAFKA])
                promise = f"{what} of the latency no worse than Apache Kafka's"
                figures = f"{ours * 1e6:,.0f} µs, Kafka {theirs * 1e6:,.0f} µs"
                yield _target(promise, f"{ours / theirs:.2f} of it", figures, ours <= theirs)

    def markdown(self) -> str:
        return section("brokers", "python -m tests.bench.broker", self._lines())

    def _lines(self) -> Iterator[str]:
        yield "## Brokers"
        yield ""
        yield "`make bench` (`python -m tests.bench.broker`) writes this section. Every broker is a process of its own on loopback and"
        yield "starts with an empty folder. The client of all brokers is confluent-kafka, with the same settings, on the same"
        yield "processors. The brokers take turns, and every figure is the median of its rounds. The first start, and throughput"
        yield "before a warm-up, do not count. krammar's bytecode is compiled, as in an installed package. Apache Kafka has the heap"
        yield "and the garbage collector of its start script. Neither Kafka nor krammar waits for the disk before it acknowledges,"
        yield "except where the table says so; Tansu keeps everything in memory. CPU is the broker's own processor time. Above 1, a"
        yield "ratio of throughput means that krammar is faster, and a ratio of time or memory means that krammar needs less."
        yield ""
        yield from machine()
        yield ", ".join(f"{name} {number}" for name, number in self.versions.items()) + ";"
        client = f"confluent-kafka {version('confluent-kafka')} with librdkafka {libversion()[0]}"
        yield f"the client is {client}."
        yield from self.missing
        if self.quick:
            yield ""
            yield "**A quick run: few rounds, figures for orientation only.**"
        yield from self._speed_table("Produce", "acks=all, batches of up to 1 MB", self.produce)
        yield from self._speed_table("Consume", "one consumer, all partitions", self.consume)
        yield from self._latency_table(
            "Latency",
            "One record of 100 B in flight, acks=all, from produce to its acknowledgement.",
            self.latency,
        )
        forced = "krammar with `--fsync always`, Kafka with `flush.messages=1`, on the same disk"
        yield from self._speed_table(
            "Produce, each batch forced to the disk",
            f"{forced}; acks=all, batches of up to 1 MB",
            self.forced,
            [name for name in self.versions if name in FORCED],
        )
        yield from self._latency_table(
            "Latency, each record forced to the disk",
            f"One record of 100 B in flight, acks=all: {forced}.",
            self.forced_latency,
        )
        yield from self._process_table()
        yield from failures(self.errors)
        yield from aims(self.targets())

    def _speed_table(
        self,
        title: str,
        note: str,
        table: dict[str, dict[str, list[Speed]]],
        names: Sequence[str] = (),
    ) -> Iterator[str]:
        names = list(names or self.versions)
        others = names[1:]
        rows = []
        for cell, runs in table.items():
            rates = {name: _rate(runs.get(name, [])) for name in names}
            rows.append(
                (
                    cell,
                    *(_megabytes(rates[name], self.sizes[cell]) for name in names),
                    *(_ratio(rates[OURS], rates[name]) for name in others),
                    *(_processor(runs.get(name, []), self.sizes[cell]) for name in names),
                )
            )
        head = (
            "Records, codec, partitions",
            *(f"{name} MB/s" for name in names),
            *(f"krammar ÷ {name}" for name in others),
            *(f"{name} CPU ms/MB" for name in names),
        )
        if rows:
            yield from subsection(title, note, markdown_table(head, rows))

    def _latency_table(
        self, title: str, note: str, latency: dict[str, list[float]]
    ) -> Iterator[str]:
        if latency:
            ours = latency.get(OURS, [])
            rows = [
                (
                    name,
                    f"{median(found) * 1e6:,.0f}",
                    _times(median, found, ours),
                    f"{_p99(found) * 1e6:,.0f}",
                    _times(_p99, found, ours),
                    f"{len(found):,}",
                )
                for name, found in latency.items()
            ]
            head = (
                "Broker",
                "median µs",
                "÷ krammar",
                "99th percentile µs",
                "÷ krammar",
                "records",
            )
            yield from subsection(title, note, markdown_table(head, rows))

    def _process_table(self) -> Iterator[str]:
        if self.ready:
            tables = ((self.ready, 1e-3), (self.idle, 1e6), (self.filled, 1e6))
            rows = []
            for name in self.ready:
                row = [name]
                for table, unit in tables:
                    found = table.get(name, [])
                    row.append(f"{median(found) / unit:,.{int(unit > 1)}f}" if found else "")
                    row.append(_times(median, found, table.get(OURS, [])))
                rows.append(row)
            note = (
                "From the process's start to its first answer to ApiVersions; resident memory after that,\n"
                "and three seconds after a million records of 100 B were produced and consumed."
            )
            figures = ("ready ms", "idle MB", "after a million records MB")
            head = ["Broker", *(part for figure in figures for part in (figure, "÷ krammar"))]
            yield from subsection("Start and memory", note, markdown_table(head, rows))


def _rate(runs: Sequence[Speed]) -> float:
    return median(run.rate for run in runs) if runs else 0.0


def _p99(found: Sequence[float]) -> float:
    return quantiles(found, n=100)[98]


def _times(
    figure: Callable[[Sequence[float]], float], theirs: Sequence[float], ours: Sequence[float]
) -> str:
    """How often our figure is contained in another's; nothing for our own."""
    return f"{figure(theirs) / figure(ours):.2f}" if theirs and ours and theirs is not ours else ""


def _target(promise: str, ratio: str, figures: str, met: bool) -> Target:
    return Target(promise, f"{ratio} ({figures})", met)


def _ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}" if ours and theirs else ""


def _megabytes(rate: float, size: int) -> str:
    return f"{rate * size / 1e6:,.1f}" if rate else ""


def _processor(runs: Sequence[Speed], size: int) -> str:
    """Milliseconds a megabyte. The mean: the clock of processor time ticks in hundredths of a second."""
    return f"{fmean(run.processor for run in runs) * 1e9 / size:.1f}" if runs else ""
