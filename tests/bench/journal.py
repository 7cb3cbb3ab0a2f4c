"""Measure krammar.journal: framings, sequencing, and journals in files.

    python -m tests.bench.journal            everything; writes its section of docs/benchmarks.md
    python -m tests.bench.journal --quick    few messages and rounds

Every figure is the median of its rounds, by the processor's time of this process, with garbage
collection on.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import journal_wire as wire

from krammar.journal import (
    Clock,
    Envelope,
    FileJournals,
    Flags,
    Framing,
    JournalSpec,
    MustStartReplayError,
    ProducerID,
    Publisher,
    ReadCommittedIter,
    ReadUncommittedIter,
    Sequencer,
    append_intents,
    build_uuid,
    framing_by_content_type,
)
from krammar.spark.datasource import KrammarDataSource
from tests.bench.page import machine, markdown_table, put_file, section, subsection
from tests.journal.conftest import generate

_PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"

_DEFINITIONS = """\
Order => not top level, with version field, max version 0
  Version: int16
  UUID: uuid
  Customer: string
  Amount: int64
  Note: nullable-bytes
"""
_FRAMINGS = {"fixed": "application/x-krammar-fixed", "JSON": "application/x-ndjson"}
_TRANSACTION = 10


class Bench:
    """One run. Tables are rows of cells, figures in messages a second."""

    def __init__(self, order: type[Any], folder: Path, *, messages: int, rounds: int) -> None:
        self.order = order
        self.folder = folder
        self.messages = messages
        self.rounds = rounds

    def rate(self, run: Callable[[], int]) -> float:
        """Messages a second; ``run`` returns how many there were."""
        rates = []
        for _ in range(self.rounds):
            began = process_time()
            count = run()
            rates.append(count / (process_time() - began))
        return median(rates)

    # Framings.

    def framings(self) -> Iterator[tuple[str, ...]]:
        for size in (0, 1000):
            for name, content_type in _FRAMINGS.items():
                framing = framing_by_content_type(content_type)
                uuid = build_uuid(ProducerID.random(), Clock().tick(), Flags.OUTSIDE_TXN)
                note = bytes(range(256)) * 4
                message = self.order(
                    uuid=uuid, customer="customer-12345", amount=4200, note=note[:size] or None
                )
                count = self.messages // 4
                data = framing.marshal(message) * count

                def marshal(framing: Framing = framing, message: Any = message) -> int:
                    for _ in repeat(None, self.messages // 4):
                        framing.marshal(message)
                    return self.messages // 4

                def unpack(framing: Framing = framing, data: bytes = data) -> int:
                    begin = found = 0
                    while (end := framing.unpack(data, begin)) > begin:
                        begin = end
                        found += 1
                    return found

                def read(framing: Framing = framing, data: bytes = data) -> int:
                    begin = found = 0
                    while (end := framing.unpack(data, begin)) > begin:
                        framing.unmarshal(data[begin:end], self.order)
                        begin = end
                        found += 1
                    return found

                yield (
                    f"{name}, {len(data) // count:,} bytes a frame",
                    *(_thousands(self.rate(run)) for run in (marshal, unpack, read)),
                )
                say(f"framing {name} {size}")

    # Sequencing.

    def stream(self, producers: int, transaction: int = _TRANSACTION) -> list[Envelope]:
        """A journal in memory: transactions of producers, interleaved message by message."""
        chance = random.Random(1)
        ids = [ProducerID.random() for _ in range(producers)]
        pending = [0] * producers
        clock = Clock()
        envelopes = []
        for offset in range(self.messages):
            number = chance.randrange(producers)
            if pending[number] == transaction:
                pending[number] = 0
                flags = Flags.ACK_TXN
            else:
                pending[number] += 1
                flags = Flags.CONTINUE_TXN
            message = self.order(uuid=build_uuid(ids[number], clock.tick(), flags))
            envelopes.append(Envelope("orders/0", offset, offset + 1, message))
        return envelopes

    def sequence(self, envelopes: list[Envelope], buffer: int) -> tuple[int, int]:
        """Sequence all; how many came out, and how many had to be read again."""
        sequencer = Sequencer((), buffer)
        queue, take = sequencer.queue_uncommitted, sequencer.deque_committed
        came = again = 0
        for envelope in envelopes:
            queue(envelope)
            while True:
                try:
                    while take() is not None:
                        came += 1
                    break
                except MustStartReplayError:
                    replayed = [e for b, end in sequencer.replay_ranges() for e in envelopes[b:end]]
                    again += len(replayed)
                    sequencer.start_replay(replayed)
        return came, again

    def producers(self) -> Iterator[tuple[str, ...]]:
        for producers in (1, 10, 100, 1_000, 10_000):
            envelopes = self.stream(producers)
            came, again = self.sequence(envelopes, self.messages)
            rate = self.rate(lambda e=envelopes: len(e) * bool(self.sequence(e, self.messages)))  # type: ignore[misc]
            assert not again
            yield f"{producers:,}", f"{came:,}", _thousands(rate)
            say(f"{producers} producers: {rate:,.0f}")

    def outside(self) -> float:
        """Messages outside of transactions, of ten producers."""
        ids = [ProducerID.random() for _ in range(10)]
        clock = Clock()
        envelopes = [
            Envelope("o", n, n + 1, self.order(uuid=build_uuid(ids[n % 10], clock.tick(), 0)))
            for n in range(self.messages)
        ]
        return self.rate(lambda: self.sequence(envelopes, 1)[0])

    def buffers(self) -> Iterator[tuple[str, ...]]:
        envelopes = self.stream(100)
        for buffer in (10, 100, 500, 1_000, 2_000, 10_000, 100_000):
            _, again = self.sequence(envelopes, buffer)
            rate = self.rate(lambda b=buffer: len(envelopes) * bool(self.sequence(envelopes, b)))  # type: ignore[misc]
            yield f"{buffer:,}", f"{again / len(envelopes):.1f}", _thousands(rate)
            say(f"buffer of {buffer}: {rate:,.0f}")

    # Transactions that are larger than the buffer.

    def large(self) -> Iterator[tuple[str, ...]]:
        for producers, rows, run in ((128, 1_000, 1_000), (64, 5_000, 1)):
            rows = min(rows, self.messages // 40)
            order = "interleaved row by row" if run == 1 else "one after the other"
            name = f"{producers} tasks of {rows:,} rows, {order}"
            with FileJournals(self.folder / f"large-{run}") as journals:
                self._publish_large(journals, producers, rows, run)
                times: dict[str, list[float]] = {}
                for _ in range(self.rounds):
                    for kind, read in self._readers(journals):
                        began = process_time()
                        count = read()
                        times.setdefault(kind, []).append(process_time() - began)
                        expected = producers * (rows + ("uncommitted" in kind))
                        assert count == expected, (kind, count)
            for of in ("iterator", "Spark"):
                pairs = list(
                    zip(times[f"{of}, uncommitted"], times[f"{of}, committed"], strict=True)
                )
                yield (
                    f"{name}; {of}",
                    *(f"{median(values):.2f}" for values in zip(*pairs, strict=True)),
                    f"{median(committed / uncommitted for uncommitted, committed in pairs):.2f}",
                )
            say(f"large transactions, {name}")

    def _publish_large(self, journals: FileJournals, producers: int, rows: int, run: int) -> None:
        """Messages ``Row``, ``run`` of each producer at a time, and all acknowledgements at the end."""
        spec = journals.create("x/0")
        target = spec.name, spec.framing
        publishers = [Publisher(journals, Clock()) for _ in range(producers)]
        for begin in range(0, rows, run):
            for publisher in publishers:
                for _ in range(begin, min(begin + run, rows)):
                    row = wire.Row(key=b"customer", value=b"v" * 100)
                    publisher.publish_uncommitted(lambda _: target, row)
        intents = [intent for publisher in publishers for intent in publisher.build_ack_intents()]
        append_intents(journals, intents)

    def _readers(self, journals: FileJournals) -> Iterator[tuple[str, Callable[[], int]]]:
        """What reads the journal, and how many messages it gives; acknowledgements too if uncommitted."""
        for kind, iterator in (
            ("uncommitted", ReadUncommittedIter),
            ("committed", ReadCommittedIter),
        ):
            yield (
                f"iterator, {kind}",
                lambda it=iterator: sum(1 for _ in it(journals.reader("x/0"), wire.Row)),  # type: ignore[misc]
            )
            options = {
                "source": "journal",
                "path": str(journals.root),
                "kafka.isolation.level": f"read_{kind}",
                "minPartitions": "4",
            }
            yield f"Spark, {kind}", lambda given=options: _read_in_tasks(given)  # type: ignore[misc]

    # Files.

    def files(self) -> Iterator[tuple[str, ...]]:
        for name, content_type in _FRAMINGS.items():
            with FileJournals(self.folder / name) as journals:
                journals.create(JournalSpec("x", content_type))
                yield name, *(_thousands(self.rate(run)) for run in self._uses(journals))
            say(f"files, {name}")

    def _uses(self, journals: FileJournals) -> Iterator[Callable[[], int]]:
        """Publish transactions, publish and wait, and read what the first has published in two ways."""
        count = self.messages // 4
        message = self.order(customer="customer-12345", amount=4200)
        target = "x", journals.spec("x").framing
        publisher = Publisher(journals)

        def mapping(_: Any) -> tuple[str, Framing]:
            return target

        def publish() -> int:
            for number in range(1, count + 1):
                publisher.publish_uncommitted(mapping, message)
                if number % 1000 == 0 or number == count:
                    append_intents(journals, publisher.build_ack_intents())
            return count

        yield publish
        end = journals.offsets("x")[1] // self.rounds

        def wait() -> int:
            for _ in range(count // 10):
                publisher.publish_committed(mapping, message).result()
            return count // 10

        yield wait
        for kind in (ReadUncommittedIter, ReadCommittedIter):
            yield lambda kind=kind: sum(1 for _ in kind(journals.reader("x", 0, end), self.order))  # type: ignore[misc]

    # The report.

    def markdown(self) -> str:
        return section("journal", "python -m tests.bench.journal", self._lines())

    def _lines(self) -> Iterator[str]:
        yield "## Journals"
        yield ""
        yield "`make bench` (`python -m tests.bench.journal`) writes this section. It runs in one process and one thread. Every figure is"
        yield f"the median of {self.rounds} rounds, in processor time, with garbage collection on. Figures are thousands of messages per second."
        yield ""
        yield from machine()
        yield from subsection(
            "Framings",
            "A generated message with version, UUID, a string, an int64 and bytes. *Marshal* encodes it as a\n"
            "frame, *unpack* finds the ends of frames, and *read* also decodes the messages.",
            markdown_table(("Framing", "marshal", "unpack", "read"), self.framings()),
        )
        yield from subsection(
            "Sequencing, by the number of producers",
            f"{self.messages:,} messages in transactions of {_TRANSACTION} and their acknowledgements, interleaved at\n"
            "random. The ring buffer has room for all of them. The sequencer queues all messages and dequeues the committed ones.\n"
            f"Messages outside of transactions: {_thousands(self.outside())}.",
            markdown_table(("Producers", "committed", "messages"), self.producers()),
        )
        yield from subsection(
            "Sequencing, by the size of the ring buffer",
            f"The same with 100 producers, which have about {100 * _TRANSACTION // 2} messages open at any time and about\n"
            f"{100 * _TRANSACTION:,} between the beginning of a transaction and its end. Messages that have left the buffer are\n"
            "read again, from memory. The second column shows how many, per message.",
            markdown_table(("Buffer", "read again", "messages"), self.buffers()),
        )
        yield from subsection(
            "Transactions larger than the ring buffer",
            "Many tasks write rows of 100 bytes to one journal and are acknowledged at the end, so that readers\n"
            "of committed messages have to read nearly all a second time. Seconds of processor time.\n"
            "*Spark* is `source=journal` without Spark: planning, and 4 tasks one after the other.\n"
            "The aim is at most 2.5 times.",
            markdown_table(
                ("Journal", "uncommitted", "committed", "committed ÷ uncommitted"), self.large()
            ),
        )
        yield from subsection(
            "Journals in files",
            "*Publish* writes transactions of 1,000 messages; *publish and wait* waits for each message. Neither uses fsync.\n"
            "*Uncommitted* and *committed* are the two iterators, over the messages of *publish*.",
            markdown_table(
                ("Framing", "publish", "publish and wait", "uncommitted", "committed"), self.files()
            ),
        )


def _read_in_tasks(options: dict[str, str]) -> int:
    source = KrammarDataSource(options)
    reader = source.reader(source.schema())
    tasks = reader.partitions()
    return sum(batch.num_rows for task in tasks for batch in reader.read(task))


def _thousands(rate: float) -> str:
    return f"{rate / 1000:,.0f}"


def say(what: str) -> None:
    print(what, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.journal",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="few messages and rounds")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the report is written")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="krammar-bench-") as folder:
        sys.path.insert(0, str(generate(Path(folder), "journal_bench", _DEFINITIONS)))
        order = importlib.import_module("journal_bench").Order
        bench = Bench(
            order,
            Path(folder) / "journals",
            messages=20_000 if options.quick else 200_000,
            rounds=3 if options.quick else 5,
        )
        text = bench.markdown()
    output = options.output or (None if options.quick else _PAGE)
    if output is None:
        print(text)
    else:
        put_file(output, text)
        print(f"written to {output}")


if __name__ == "__main__":
    main()
