"""Measure krammar beside kafka-python, kio and aiokafka.

    python -m tests.bench                    everything; writes docs/benchmarks.md
    python -m tests.bench --quick            few rounds
    python -m tests.bench --only Metadata    what has this in its name: messages, frames, every,
                                             records, memory, gen, import

Only a full run writes docs/benchmarks.md, unless --output names a file. A missed target is said aloud
and in the report, and does not change the exit code: speed is no test.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from krammar.wire import engine_loading
from krammar.wire.engine_loading import ENGINE
from tests.bench import every_message, startup
from tests.bench.messages import CASES, LARGE_METADATA, UNCOPIED_FETCH
from tests.bench.page import keep_sections
from tests.bench.peers import PURE, VERSIONS, contenders, frames, memory
from tests.bench.report import Report
from tests.bench.timing import OURS, Statement, Timing, measure

_PAGE = startup.ROOT / "docs" / "benchmarks.md"

# A message that every client uses, the two with the largest modules, and a small one.
_IMPORTED = [
    "MetadataResponse",
    "FetchResponse",
    "StreamsGroupDescribeResponse",
    "HeartbeatRequest",
]


def main() -> None:
    options = _options()
    rounds, slice_ = (9, 0.002) if options.quick else (61, 0.005)
    report = Report(VERSIONS, large=LARGE_METADATA, uncopied=UNCOPIED_FETCH, quick=options.quick)

    for case in CASES:
        if not _wanted(options.only, case.name, "message"):
            continue
        libraries = contenders(case)
        report.sizes[case.name] = len(case.build().encode(version=case.version))
        for verb, timings in (("decode", report.decode), ("encode", report.encode)):
            if verb == "encode" and not case.copy:
                continue
            statements = {library.name: getattr(library, verb) for library in libraries}
            timings[case.name] = measure(statements, rounds=rounds, slice_=slice_)
            _say(f"{verb} {case.name}", timings[case.name])
        if case.name == LARGE_METADATA:
            report.memory = {library.name: memory(library) for library in libraries}

    if _wanted(options.only, "frames"):
        for name, statements in frames():
            report.frames[name] = measure(statements, rounds=rounds, slice_=slice_)
            _say(name, report.frames[name])
    if _wanted(options.only, "every message"):
        report.every = every_message.ratios(rounds=rounds // 4, slice_=slice_ / 5)

    if _wanted(options.only, "record batches"):
        from tests.bench.bench_records import cases as record_cases

        for name, runs in record_cases():
            if ENGINE is not None:
                runs = {OURS: runs[OURS], PURE: _without_loops(runs[OURS]), **runs}
            statements = {peer: Statement("run()", {"run": run}) for peer, run in runs.items()}
            # A call takes 10 to 100 ms here: as many rounds as messages get would take minutes.
            report.records[name] = measure(statements, rounds=rounds // 4, slice_=slice_)
            _say(name, report.records[name])
    if _wanted(options.only, "import"):
        report.imports = startup.imports(_IMPORTED, rounds=3 if options.quick else 15)
    if _wanted(options.only, "gen"):
        report.generate = startup.generate(rounds=1 if options.quick else 3)
        report.many = startup.generate_many(2000)
        report.lines = startup.generated_lines()

    page = report.markdown()
    output = options.output or (None if options.only or options.quick else _PAGE)
    if output is None:
        print(f"\n{page}")
    else:
        if output.exists():
            page = keep_sections(page, output.read_text(encoding="utf-8"))
        output.write_text(page, encoding="utf-8")
        print(f"\nwritten to {output}")
    for target in report.targets():
        print(f"{'met   ' if target.met else 'MISSED'}  {target.promise}: {target.measured}")


def _without_loops(run: Callable[[], Any]) -> Callable[[], Any]:
    """Make a run of record batches one in pure Python."""

    def pure() -> Any:
        with patch.object(engine_loading, "ENGINE", None):
            return run()

    return pure


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="NAME", help="measure only what has NAME in its name")
    parser.add_argument("--quick", action="store_true", help="few rounds, for orientation")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the report is written")
    return parser.parse_args()


def _wanted(only: str | None, *names: str) -> bool:
    return only is None or any(only.lower() in name.lower() for name in names)


def _say(what: str, timing: Timing) -> None:
    figures = "   ".join(
        f"{name} {timing.seconds(name) * 1e6:,.1f} µs"
        + (f" ({timing.ratio(name):.2f} times)" if i else "")
        for i, name in enumerate(timing.rounds)
    )
    print(f"{what:56} {figures}", file=sys.stderr)


if __name__ == "__main__":
    main()
