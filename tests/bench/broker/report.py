"""The broker's section of docs/benchmarks.md."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

from tests.bench.broker.contenders import KAFKA, OURS
from tests.bench.broker.measure import Cell, Speed
from tests.bench.report import Target, cpu_model

BEGIN = "<!-- brokers: written by python -m tests.bench.broker -->"
END = "<!-- brokers: end -->"

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
    idle: dict[str, list[int]] = field(default_factory=dict)
    filled: dict[str, list[int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def add(self, broker: str, cell: Cell, speeds: tuple[Speed, Speed]) -> None:
        self.sizes[cell.name] = cell.size
        for table, speed in zip((self.produce, self.consume), speeds, strict=True):
            table.setdefault(cell.name, {}).setdefault(broker, []).append(speed)

    def targets(self) -> list[Target]:
        return list(self._targets())

    def _targets(self) -> Iterator[Target]:
        if self.ready.get(KAFKA) and self.ready.get(OURS):
            times = median(self.ready[KAFKA]) / median(self.ready[OURS])
            yield Target(
                "ready 10 times sooner than Apache Kafka", f"{times:.1f} times", times >= 10
            )
        for what, table in (("idle", self.idle), ("after a million records", self.filled)):
            if table.get(KAFKA) and table.get(OURS):
                part = median(table[OURS]) / median(table[KAFKA])
                promise = f"at most a tenth of Apache Kafka's memory, {what}"
                yield Target(promise, f"{part:.3f} of it", part <= 0.1)
        for verb, speeds in (("produce", self.produce), ("consume", self.consume)):
            for name in PROMISED:
                rates = {broker: _rate(runs) for broker, runs in speeds.get(name, {}).items()}
                if rates.get(KAFKA) and rates.get(OURS):
                    part = rates[OURS] / rates[KAFKA]
                    promise = f"{verb} {name} partition: at least half of Apache Kafka's throughput"
                    yield Target(promise, f"{part:.2f} of it", part >= 0.5)
        if self.latency.get(KAFKA) and self.latency.get(OURS):
            for what, figure in (("median", median), ("99th percentile", _p99)):
                ours, theirs = figure(self.latency[OURS]), figure(self.latency[KAFKA])
                promise = f"{what} of the latency no worse than Apache Kafka's"
                yield Target(promise, f"{ours * 1e6:.0f} µs, {theirs * 1e6:.0f} µs", ours <= theirs)

    def markdown(self) -> str:
        return "\n".join([BEGIN, *self._lines(), END]) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "## Brokers"
        yield ""
        yield "Written by `python -m tests.bench.broker`. Every broker is a process of its own on loopback and"
        yield "starts with an empty folder; confluent-kafka is the client of all, with the same settings, on"
        yield "the same processors. The brokers take turns, every figure is the median of its rounds. Apache"
        yield "Kafka has the heap and collector that its start script gives it; neither it nor krammar waits"
        yield "for the disk before it acknowledges, and the third keeps all in memory. CPU is the broker's own"
        yield "processor time."
        yield ""
        yield f"{datetime.date.today()}, {platform.python_implementation()} {platform.python_version()},"
        yield f"{platform.system()} on {cpu_model()}, {os.cpu_count()} cores."
        yield ", ".join(f"{name} {version}" for name, version in self.versions.items()) + "."
        yield from self.missing
        if self.quick:
            yield ""
            yield "**A quick run: few rounds, figures for orientation only.**"
        yield from self._target_table()
        yield from self._speed_table("Produce", "acks=all, batches of up to 1 MB", self.produce)
        yield from self._speed_table("Consume", "one consumer, all partitions", self.consume)
        yield from self._latency_table()
        yield from self._process_table()
        if self.errors:
            yield ""
            yield "### What did not run"
            yield ""
            yield from (f"- {error}" for error in self.errors)

    def _target_table(self) -> Iterator[str]:
        targets = self.targets()
        if targets:
            rows = [(t.promise, t.measured, "met" if t.met else "**missed**") for t in targets]
            yield from _section("Aims", "", ("Aim", "Measured", ""), rows, left=3)

    def _speed_table(
        self, title: str, note: str, table: dict[str, dict[str, list[Speed]]]
    ) -> Iterator[str]:
        names = list(self.versions)
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
            *(f"ours ÷ {name}" for name in others),
            *(f"{name} CPU ms/MB" for name in names),
        )
        if rows:
            yield from _section(title, note, head, rows)

    def _latency_table(self) -> Iterator[str]:
        if self.latency:
            rows = [
                (
                    name,
                    f"{median(found) * 1e6:,.0f}",
                    f"{_p99(found) * 1e6:,.0f}",
                    f"{len(found):,}",
                )
                for name, found in self.latency.items()
            ]
            note = "One record of 100 B in flight, acks=all, from produce to its acknowledgement."
            head = ("Broker", "median µs", "99th percentile µs", "records")
            yield from _section("Latency", note, head, rows)

    def _process_table(self) -> Iterator[str]:
        if self.ready:
            rows = [
                (
                    name,
                    f"{median(found) * 1000:,.0f}",
                    f"{median(self.idle[name]) / 1e6:,.1f}",
                    f"{median(self.filled[name]) / 1e6:,.1f}" if self.filled.get(name) else "",
                )
                for name, found in self.ready.items()
            ]
            note = (
                "From the process's start to its first answer to ApiVersions; resident memory after that,\n"
                "and after a million records of 100 B were produced and consumed."
            )
            head = ("Broker", "ready ms", "idle MB", "after a million records MB")
            yield from _section("Start and memory", note, head, rows)


def write(page: Path, section: str) -> None:
    """Put the section into a page, in the place of the last one, else at its end."""
    text = page.read_text(encoding="utf-8") if page.exists() else "# Benchmarks\n"
    page.write_text(keep(text, section), encoding="utf-8")


def keep(text: str, section: str) -> str:
    before, begin, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END) if begin else ("", "", "")
    return before.rstrip("\n") + "\n\n" + section + after.lstrip("\n")


def section_of(text: str) -> str:
    """The brokers' section of a page, or nothing."""
    _, begin, rest = text.partition(BEGIN)
    inside, end, _ = rest.partition(END)
    return f"{begin}{inside}{end}\n" if begin and end else ""


def _rate(runs: Sequence[Speed]) -> float:
    return median(run.rate for run in runs) if runs else 0.0


def _p99(found: Sequence[float]) -> float:
    return quantiles(found, n=100)[98]


def _ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}" if ours and theirs else ""


def _megabytes(rate: float, size: int) -> str:
    return f"{rate * size / 1e6:,.1f}" if rate else ""


def _processor(runs: Sequence[Speed], size: int) -> str:
    return f"{median(run.processor for run in runs) * 1e9 / size:.2f}" if runs else ""


def _section(
    title: str, note: str, head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1
) -> Iterator[str]:
    rule = ["---" if column < left else "---:" for column in range(len(head))]
    yield from ("", f"### {title}", "")
    if note:
        yield from (note, "")
    yield from (f"| {' | '.join(row)} |" for row in (head, rule, *rows))
