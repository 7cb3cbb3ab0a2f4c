"""Measure the compiled build beside the pure one and the peers, in one run, on the same bytes.

    python -m tests.bench.native [--quick] [--only NAME] [--output FILE]

Writes its section of docs/benchmarks.md; with --quick or --only it prints it, unless --output names a
page. ``make native`` comes first: it compiles what the wheels contain. Messages that are not compiled are skipped.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import kafka_wire

from krammar.wire import native
from krammar.wire.batches.records import compiled as records_compiled
from tests.bench import native_uses
from tests.bench.messages import CASES
from tests.bench.page import Target, aims, machine, put_file, section
from tests.bench.peers import KAFKA_PYTHON, KIO, Contender, contenders, memory
from tests.bench.timing import OURS, Statement, Timing, measure

PURE = "pure"
_PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
_INTRODUCTION = """\
## Compiled packages

This section shows what the [wheels](messages.md#compiled-packages) bring, compared with pure Python and with other
libraries. `make bench` compiles in place the messages that wheels contain, and then runs `python -m tests.bench.native`.
It is one run over the same bytes. Times are medians in µs. Numbers in brackets are multiples of the time of compiled
krammar (medians of the rounds' ratios).
""".splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.native", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, for orientation")
    parser.add_argument("--only", metavar="NAME", default="", help="only what has NAME in its name")
    parser.add_argument("--output", type=Path, metavar="FILE", help="page that takes the section")
    options = parser.parse_args()
    rounds, slice_ = (9, 0.002) if options.quick else (61, 0.005)
    pure = _pure_package()
    tables: dict[str, list[str]] = {"decode": [], "encode": []}
    kept: list[str] = []
    targets: list[Target] = []
    for case in CASES:
        if options.only.lower() not in case.name.lower():
            continue
        libraries = contenders(case)
        if not hasattr(type(case.build()), "_stands_for"):
            print(f"{case.name}: not compiled", file=sys.stderr)
            continue
        libraries.insert(1, _pure(pure, case))
        for verb, lines in tables.items():
            if verb == "encode" and not case.copy:
                continue
            statements = {library.name: getattr(library, verb) for library in libraries}
            timing = measure(statements, rounds=rounds, slice_=slice_)
            lines.append(_row(case.name, timing))
            if not case.copy:
                targets += _targets(case.name, timing)
        if "200 topics" in case.name:
            kept = [f"- {library.name}: {memory(library) / 1000:,.0f}" for library in libraries]
    if not tables["decode"]:
        print("nothing is compiled: run `make native`", file=sys.stderr)
        return
    page = [*_INTRODUCTION, "", *machine(), *aims(targets)]
    for verb, lines in tables.items():
        page += ["", f"### {verb.capitalize()}, compiled", "", *lines]
    if kept:
        page += ["", "### Memory of the decoded large MetadataResponse, in kB", "", *kept]
    if options.only.lower() in "record batches":
        page += ["", "### Record batches, compiled", "", *_records(rounds // 4, slice_)]
    if not options.only:
        page += ["", "### Programs that use compiled packages", "", *native_uses.table()]
    text = section("native", "python -m tests.bench.native", page)
    output = options.output or (None if options.quick or options.only else _PAGE)
    if output is None:
        print(text)
    else:
        put_file(output, text)
        print(f"written to {output}")


def _targets(name: str, timing: Timing) -> Iterator[Target]:
    """The peers copy the records; compiled krammar does not."""
    for peer in (KAFKA_PYTHON, KIO):
        ratio = timing.ratio(peer)
        promise = f"decode {name}, compiled: at least 5 times as fast as {peer}"
        yield Target(promise, f"{ratio:.2f} times", ratio >= 5)


def _pure_package() -> ModuleType:
    """kafka_wire once more, under another name, with nothing compiled."""
    path = kafka_wire.__file__
    assert path is not None
    name = "kafka_wire_pure"
    spec = spec_from_file_location(name, path, submodule_search_locations=[os.path.dirname(path)])
    assert spec is not None and spec.loader is not None
    package = sys.modules[name] = module_from_spec(spec)
    before = os.environ.get(native.PURE)
    os.environ[native.PURE] = "1"
    try:
        spec.loader.exec_module(package)
    finally:
        del os.environ[native.PURE]
        if before is not None:
            os.environ[native.PURE] = before
    return package


def _pure(package: ModuleType, case: Any) -> Contender:
    built = case.build()
    data = built.encode(version=case.version)
    cls = getattr(package, type(built).__name__)
    value = cls.decode(data, version=case.version)
    assert value.encode(version=case.version) == data
    assert value.to_dict() == type(built).decode(data, version=case.version).to_dict()
    names = {"cls": cls, "data": data, "value": value, "version": case.version}
    return Contender(
        PURE,
        Statement(f"cls.decode(data, version=version, copy={case.copy})", names),
        Statement("value.encode(version=version)", names),
        lambda: cls.decode(data, version=case.version),
    )


def _records(rounds: int, slice_: float) -> list[str]:
    """The loops of record batches, and beside Arrow's columns a copy of each record's bytes."""
    bench = importlib.import_module("tests.bench.bench_records")
    loops = records_compiled.loops()
    if loops is None:
        return []
    lines = []
    for name, runs in bench.cases():
        compiled = runs[OURS]

        def pure(run: Any = compiled) -> Any:
            records_compiled._loops = None
            try:
                return run()
            finally:
                records_compiled._loops = loops

        runs = {OURS: compiled, PURE: pure, **{k: run for k, run in runs.items() if k != OURS}}
        if "Arrow" in name:
            plain = bench.rows()
            data = bench.encode_batch([bench.Record(*row) for row in plain])
            step = len(data) // len(plain)
            runs["aiokafka, iterated only"] = lambda data=data: bench.aiokafka_read(data)
            runs["copy, record by record"] = lambda data=data, step=step: [
                data[at : at + step] for at in range(0, len(data), step)
            ]
            runs["copy, as one"] = lambda data=data: bytearray(data)
        statements = {peer: Statement("run()", {"run": run}) for peer, run in runs.items()}
        lines.append(_row(name, measure(statements, rounds=max(rounds, 5), slice_=slice_)))
    return lines


def _row(name: str, timing: Timing) -> str:
    figures = [f"{OURS} {timing.seconds(OURS) * 1e6:,.2f} µs"]
    figures += [
        f"{peer} {timing.seconds(peer) * 1e6:,.2f} ({timing.ratio(peer):.2f} times)"
        for peer in timing.rounds
        if peer != OURS
    ]
    line = f"- {name}: {', '.join(figures)}"
    print(line, file=sys.stderr)
    return line


if __name__ == "__main__":
    main()
