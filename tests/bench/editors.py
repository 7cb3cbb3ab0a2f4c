"""Measure the language server on the definitions of Kafka, as an editor would notice it.

    python -m tests.bench.editors [--rounds N] [--output FILE]

A client starts ``krammar lsp`` and edits a copy of ``definitions/kafka_wire``. Each round types a letter, waits
for the diagnostics of the folder, and asks for hover and completion. Writes its section of docs/benchmarks.md, or of
FILE. The processor time is Linux's count of the server's main thread, and is much the same on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from time import perf_counter

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

from tests.bench.page import machine, markdown_table, put_file, section

ROOT = Path(__file__).resolve().parents[2]
_PAGE = ROOT / "docs" / "benchmarks.md"
_KAFKA = ROOT / "definitions" / "kafka_wire"
# The field that is typed, and its mistyped form, whose diagnostic needs the names of the whole folder.
_FILE, _FIELD = "fetch.krm", "  RackId: string // v11+\n"
# What the server waits for further changes, in milliseconds.
_WAIT = 20


@dataclass
class Samples:
    """Seconds of requests of one kind: on the clock, and of the server's processor."""

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


class Watch:
    """Measures what happens between two calls."""

    def __init__(self, server: int) -> None:
        self._file = Path(f"/proc/{server}/schedstat")
        self.samples: dict[str, Samples] = {}

    def start(self) -> None:
        self._processor, self._clock = self._used(), perf_counter()

    def stop(self, name: str) -> None:
        samples = self.samples.setdefault(name, Samples())
        samples.clock.append(perf_counter() - self._clock)
        samples.processor.append(self._used() - self._processor)

    def _used(self) -> float:
        return int(self._file.read_text().split()[0]) / 1e9 if self._file.exists() else 0.0


async def measure(rounds: int) -> dict[str, Samples]:
    """Return the seconds of each kind of request."""
    client = LanguageClient("bench", "1")
    published: asyncio.Queue[lsp.PublishDiagnosticsParams] = asyncio.Queue()

    @client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def publish(params: lsp.PublishDiagnosticsParams) -> None:
        published.put_nowait(params)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kafka_wire" / _FILE
        shutil.copytree(_KAFKA, path.parent)
        await client.start_io(sys.executable, "-m", "krammar", "lsp")
        await client.initialize_async(lsp.InitializeParams(lsp.ClientCapabilities()))
        client.initialized(lsp.InitializedParams())
        assert client._server is not None
        watch = Watch(client._server.pid)
        await _rounds(client, published, path, rounds, watch)
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()
    return watch.samples


async def _rounds(
    client: LanguageClient,
    published: asyncio.Queue[lsp.PublishDiagnosticsParams],
    path: Path,
    rounds: int,
    watch: Watch,
) -> None:
    text = path.read_text("utf-8")
    assert _FIELD in text
    line = text[: text.index(_FIELD)].count("\n")
    hovered = text[: text.index("  Topics: [=>]\n")].count("\n")
    document = lsp.TextDocumentIdentifier(path.as_uri())
    item = lsp.TextDocumentItem(document.uri, "krammar", 0, text + " \n")
    watch.start()
    client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    await published.get()
    watch.stop("first diagnostics")
    for number in range(1, rounds + 1):
        # Two wrong names in turn, so that every change has other diagnostics.
        wrong = _FIELD.replace("string", "strin" if number % 2 else "strng")
        watch.start()
        client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(number, document.uri),
                [lsp.TextDocumentContentChangeWholeDocument(text.replace(_FIELD, wrong))],
            )
        )
        diagnostics = (await published.get()).diagnostics
        watch.stop("diagnostics")
        assert [each.code for each in diagnostics] == ["E204"]
        watch.start()
        hover = await client.text_document_hover_async(
            lsp.HoverParams(document, lsp.Position(hovered, 4))
        )
        watch.stop("hover")
        watch.start()
        place = lsp.Position(line, len("  RackId: str"))
        offered = await client.text_document_completion_async(lsp.CompletionParams(document, place))
        watch.stop("completion")
        assert isinstance(offered, lsp.CompletionList) and len(offered.items) > 20
        assert hover is not None


def lines(samples: dict[str, Samples]) -> Iterator[str]:
    files = len(list(_KAFKA.glob("*.krm")))
    rounds = len(samples["diagnostics"].clock)
    yield "## Editors"
    yield ""
    yield f"Milliseconds from a request to its answer, over pipes, on the {files} files of `kafka_wire`, while a letter of"
    yield f"`{_FILE}` changes {rounds:,} times. Diagnostics are those of all files; in the first {_WAIT} ms the server waits for"
    yield "further changes. The processor time is that of the server; the rest is the client, and waiting."
    yield ""
    rows = []
    for name in ("diagnostics", "hover", "completion"):
        figures = [
            f"{cuts[cut] * 1e3:.1f}"
            for each in (samples[name].clock, samples[name].processor)
            for cuts in (quantiles(each, n=100),)
            for cut in (49, 98)
        ]
        rows.append((name, *figures))
    yield from markdown_table(("", "p50", "p99", "processor p50", "processor p99"), rows)
    yield ""
    first = samples["first diagnostics"]
    yield f"The first diagnostics, for which all files are read, take {first.clock[0] * 1e3:.0f} ms, {first.processor[0] * 1e3:.0f} ms of them of the"
    yield "processor."
    yield ""
    load = os.getloadavg()[0]
    yield from (
        f"{line} Load average: {load:.1f}." if line.startswith("Linux") else line
        for line in machine()
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.editors", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=300, help="changes that are measured")
    parser.add_argument("--output", type=Path, default=_PAGE, help="page that gets the section")
    arguments = parser.parse_args()
    found = list(lines(asyncio.run(measure(arguments.rounds))))
    put_file(arguments.output, section("editors", "python -m tests.bench.editors", found))
    print("\n".join(found))


if __name__ == "__main__":
    main()
