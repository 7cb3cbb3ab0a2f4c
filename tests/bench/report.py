"""The report: tables in Markdown, and each target with what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median

from tests.bench.every_message import Ratio
from tests.bench.page import Target, machine, markdown_table, section, target_table
from tests.bench.startup import BEFORE, Run
from tests.bench.timing import OURS, Timing


@dataclass
class Report:
    """What one run measured. Parts that were not measured are empty and not shown."""

    versions: dict[str, str]
    sizes: dict[str, int] = field(default_factory=dict)
    decode: dict[str, Timing] = field(default_factory=dict)
    encode: dict[str, Timing] = field(default_factory=dict)
    frames: dict[str, Timing] = field(default_factory=dict)
    every: list[Ratio] = field(default_factory=list)
    records: dict[str, Timing] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    generate: tuple[Run, Run] | None = None
    many: Run | None = None
    lines: int = 0
    imports: tuple[float, dict[str, float]] | None = None
    large: str = ""
    uncopied: str = ""
    quick: bool = False

    def targets(self) -> list[Target]:
        return list(self._targets())

    def _targets(self) -> Iterator[Target]:
        large = self.large
        if large in self.decode:
            ratio = self.decode[large].ratio("kio")
            yield _at_least(
                "decode of the large MetadataResponse at least 2.8 times as fast as kio", ratio, 2.8
            )
        if self.decode:
            for what, limit, holds_bytes, why in (
                ("each message without records", 2, False, "most of it is the call"),
                ("each message with records", 1.1, True, "most of it is copying the records"),
            ):
                worst, name = min(
                    (timing.ratio("kio"), name)
                    for name, timing in self.decode.items()
                    if ("records" in name) == holds_bytes
                )
                promise = f"decode of {what} at least {limit} times as fast as kio"
                yield Target(promise, f"at least {worst:.2f} times ({name})", worst >= limit, why)
        if self.encode:
            ratio = median(timing.ratio("kio") for timing in self.encode.values())
            yield _at_least("encode at least 60 times as fast as kio (median)", ratio, 60)
        for timing in self.frames.values():
            yield _at_least(
                "`parse_request` of a whole Heartbeat frame in 1.67 times what kio takes for its body",
                timing.ratio("kio"),
                0.6,
            )
        if self.every:
            for verb, limit in (("decode", 4), ("encode", 5)):
                yield _at_least(
                    f"{verb} of 9 in 10 messages at least {limit} times as fast as pure Python",
                    self._slow(verb)[0],
                    limit,
                )
        if self.uncopied in self.decode:
            timing = self.decode[self.uncopied]
            for library in ("kafka-python", "kio"):
                yield _at_least(
                    f"decode of 1 MB of records with copy=False at least 5 times as fast as {library}",
                    timing.ratio(library),
                    5,
                )
        if self.decode:
            worst, name = min(
                (timing.ratio("kafka-python"), f"{name}, {verb}")
                for verb, timings in (("decode", self.decode), ("encode", self.encode))
                for name, timing in timings.items()
            )
            yield Target(
                "no message slower than kafka-python",
                f"at least {worst:.2f} times ({name})",
                worst >= 1,
            )
        for name, limit, why in (
            ("decode 10,000 records", 2, "most of it is making an object for each record"),
            ("encode 10,000 records", 3.5, ""),
            ("10,000 records to Arrow columns", 9, ""),
        ):
            if name in self.records:
                ratio = self.records[name].ratio("aiokafka")
                promise = f"{name}, at least {limit} times as fast as aiokafka"
                yield _at_least(promise, ratio, limit, why)
        if self.memory:
            ours, theirs = self.memory[OURS], self.memory["kafka-python"]
            yield Target(
                "the decoded large MetadataResponse takes less memory than kafka-python's",
                f"{ours / 1000:.0f} kB, kafka-python {theirs / 1000:.0f} kB",
                ours < theirs,
            )
        if self.generate:
            cold, warm = self.generate
            yield _below("`krammar gen` over all of Kafka, into an empty folder", cold.clock, 5)
            yield _below("`krammar gen` over all of Kafka, nothing changed", warm.clock, 2)
        if self.many:
            yield _below("`krammar gen` over 2,000 messages", self.many.clock, 30)
        if self.lines:
            measured = f"{self.lines:,}"
            yield Target("`generated/` has at most 65,000 lines", measured, self.lines <= 65_000)
        if self.imports:
            package, classes = self.imports
            slowest = max(classes, key=lambda name: classes[name])
            yield _below("`import kafka_wire`", package, 0.030)
            yield _below(f"the slowest module of a message (`{slowest}`)", classes[slowest], 0.010)

    def markdown(self) -> str:
        """The whole report. Ratios are of times: above 1, krammar is faster."""
        return "\n".join(_flat(self._sections())) + "\n"

    def _sections(self) -> Iterator[str | Iterable[str]]:
        yield "# Benchmarks"
        yield ""
        # Drawn last, when all tables are written.
        yield section("charts", "python -m tests.bench.charts", ())
        yield "## How messages and records are measured"
        yield ""
        yield "`make bench` (`python -m tests.bench`) measures these figures and writes this page. The first sections come from one"
        yield "run of one process, on the same bytes. Before the run, the benchmark checks that every library reads the same content"
        yield "from these bytes and writes the same bytes. The contenders take turns, and every figure is a median. Messages and"
        yield "records are timed in processor time, with garbage collection on. A ratio is the peer's time divided by krammar's:"
        yield "above 1, krammar is faster. The column `pure` is krammar without its [engine](messages.md#speed)."
        yield ""
        yield from machine()
        yield ", ".join(f"{name} {version}" for name, version in self.versions.items()) + "."
        yield "kio's decoder is written in Rust and aiokafka's record batches in Cython; everything else is Python."
        if self.quick:
            yield ""
            yield "**A quick run: few rounds, figures for orientation only.**"
        yield from _section("Decoding messages", self._message_rows(self.decode))
        yield from _section("Encoding messages", self._message_rows(self.encode))
        yield from _section("Whole frames", self._frame_rows())
        title = (
            f"The {len(self.every)} requests and responses of Kafka, newest versions, random values"
        )
        yield from _section(title, self._every_rows())
        yield from _section("Record batches of 10,000 records", self._record_rows())
        yield from _section("Memory of the decoded large MetadataResponse", self._memory_rows())
        yield from _section("Generating and importing", self._startup_rows())
        yield from _section("Aims of messages and records", self._target_rows())

    def _slow(self, verb: str) -> tuple[float, str]:
        """The ratio that nine in ten messages reach, and the slowest message."""
        found = sorted((getattr(each, verb), each.name) for each in self.every)
        return found[len(found) // 10][0], f"{found[0][0]:.2f} ({found[0][1]})"

    def _every_rows(self) -> list[str]:
        if not self.every:
            return []
        rows = []
        for verb in ("decode", "encode"):
            tenth, slowest = self._slow(verb)
            middle = median(getattr(each, verb) for each in self.every)
            rows.append((verb, f"{middle:.2f}", f"{tenth:.2f}", slowest))
        head = ("pure ÷ krammar", "median", "9 in 10 at least", "slowest")
        return markdown_table(head, rows)

    def _frame_rows(self) -> list[str]:
        if not self.frames:
            return []
        rows = [
            (name, *(_micros(t.seconds(n)) for n in t.rounds), f"{t.ratio('kio'):.2f}")
            for name, t in self.frames.items()
        ]
        return markdown_table(("Frame", "krammar µs", "kio µs", "kio ÷ krammar"), rows)

    def _target_rows(self) -> list[str]:
        targets = self.targets()
        return target_table("Aim", targets) if targets else []

    def _message_rows(self, timings: dict[str, Timing]) -> list[str]:
        if not timings:
            return []
        rows = [
            (
                name,
                f"{self.sizes[name]:,}",
                *(_micros(timing.seconds(library)) for library in timing.rounds),
                *(f"{timing.ratio(library):.2f}" for library in timing.rounds if library != OURS),
            )
            for name, timing in timings.items()
        ]
        libraries = list(next(iter(timings.values())).rounds)
        times = (f"{library} µs" for library in libraries)
        ratios = (f"{library} ÷ krammar" for library in libraries if library != OURS)
        return markdown_table(("Message", "bytes", *times, *ratios), rows)

    def _record_rows(self) -> list[str]:
        if not self.records:
            return []
        peers = list(dict.fromkeys(n for t in self.records.values() for n in t.rounds if n != OURS))
        rows = [
            (
                name,
                *(_micros(t.seconds(n)) if n in t.rounds else "" for n in (OURS, *peers)),
                *(f"{t.ratio(n):.2f}" if n in t.rounds else "" for n in peers),
            )
            for name, t in self.records.items()
        ]
        head = (
            "Batch",
            "krammar µs",
            *(f"{n} µs" for n in peers),
            *(f"{n} ÷ krammar" for n in peers),
        )
        return markdown_table(head, rows)

    def _memory_rows(self) -> list[str]:
        if not self.memory:
            return []
        rows = [(name, f"{size / 1000:,.0f}") for name, size in self.memory.items()]
        return markdown_table(("Library", "kB (tracemalloc)"), rows)

    def _startup_rows(self) -> list[str]:
        rows: list[tuple[str, ...]] = []
        if self.generate:
            cold, warm = self.generate
            for what, run, key in (
                ("into an empty folder", cold, "cold"),
                ("nothing changed", warm, "warm"),
            ):
                rows.append((f"`krammar gen` over all of Kafka, {what}", _run(run), BEFORE[key]))
        if self.many:
            rows.append(("`krammar gen` over 2,000 messages", _run(self.many), BEFORE["many"]))
        if self.lines:
            rows.append(("Lines in `generated/`", f"{self.lines:,}", BEFORE["lines"]))
        if self.imports:
            package, classes = self.imports
            rows.append(
                ("`import kafka_wire`, warm bytecode", _duration(package), BEFORE["package"])
            )
            rows += [
                (
                    f"then `kafka_wire.{name}`, the first message used",
                    _duration(seconds),
                    BEFORE.get(name, ""),
                )
                for name, seconds in classes.items()
            ]
        if not rows:
            return []
        return markdown_table(("", "Median", "Before"), rows)


def _run(run: Run) -> str:
    return f"{_duration(run.clock)} ({_duration(run.processor)} of processors)"


def _at_least(promise: str, ratio: float, limit: float, why: str = "") -> Target:
    return Target(promise, f"{ratio:.2f} times", ratio >= limit, why)


def _below(promise: str, seconds: float, limit: float) -> Target:
    why = "an absolute time, set on another machine"
    return Target(f"{promise}: below {_duration(limit)}", _duration(seconds), seconds < limit, why)


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s" if seconds % 1 else f"{seconds:.0f} s"
    milliseconds = seconds * 1000
    return f"{milliseconds:.1f} ms" if milliseconds % 1 else f"{milliseconds:.0f} ms"


def _micros(seconds: float) -> str:
    micros = seconds * 1e6
    return (
        f"{micros:,.0f}" if micros >= 100 else f"{micros:.1f}" if micros >= 10 else f"{micros:.2f}"
    )


def _section(title: str, rows: list[str]) -> Iterator[str]:
    if rows:
        yield ""
        yield f"## {title}"
        yield ""
        yield from rows


def _flat(parts: Iterable[str | Iterable[str]]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        else:
            yield from part
