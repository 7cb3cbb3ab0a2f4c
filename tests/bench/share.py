"""Measure share groups beside Apache Kafka, with confluent-kafka's ShareConsumer as the client of both.

python -m tests.bench.share            some minutes; writes its section of docs/benchmarks.md
python -m tests.bench.share --quick    one round of a few records; prints it
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.bench.broker import contenders
from tests.bench.broker.measure import WAIT, client, values
from tests.bench.page import (
    Target,
    aims,
    failures,
    machine,
    markdown_table,
    put_file,
    section,
    subsection,
)
from tests.interop.processes import Server

_PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
_MEMBERS = 4
_SIZE, _BATCH = 100, 500
# What is promised for a partition with four members, in records per second.
_PROMISED = 10_000
_SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
}
_THROUGHPUT = f"""\
{_MEMBERS} share consumers read one partition with records of {_SIZE} B in batches of {_BATCH}, and accept them with the
next poll (the implicit mode). The time is from the first poll of all of them to the last record; records per second, and the
broker's processor time per record."""
_LATENCY = f"""\
One share consumer in explicit mode waits for one record of {_SIZE} B. *Delivery* is from produce to the record,
*acknowledgement* is a `commit_sync` that accepts it."""


@dataclass
class Figures:
    """What one broker has shown, one entry a round. Times in seconds."""

    rates: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    delivery: list[float] = field(default_factory=list)
    acknowledgement: list[float] = field(default_factory=list)


class Group:
    """A new topic with one partition, and a share group that reads it from the beginning."""

    _numbers = count()

    def __init__(self, broker: Server) -> None:
        self.broker = broker
        self.topic = f"share-{next(self._numbers)}"
        self.name = f"group-of-{self.topic}"
        admin = AdminClient(client(broker))
        admin.create_topics([NewTopic(self.topic, 1, 1)])[self.topic].result(WAIT)
        early = ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource("GROUP", self.name, incremental_configs=[early])
        admin.incremental_alter_configs([resource])[resource].result(WAIT)

    def member(self, **more: Any) -> ShareConsumer:
        found = ShareConsumer(client(self.broker, group_id=self.name, **more))
        found.subscribe([self.topic])
        return found

    def produce(self, records: int) -> None:
        # A member gets whole batches, and has them before it asks for them.
        producer = Producer(client(self.broker, linger_ms=20, batch_num_messages=_BATCH))
        some = values(_SIZE)
        for index in range(records):
            producer.produce(self.topic, some[index & 63])
            producer.poll(0)
        if producer.flush(WAIT):
            raise RuntimeError("records were not acknowledged")


def throughput(broker: Server, records: int) -> tuple[float, float]:
    """Return the records per second that all members get together, and the broker's seconds per record."""
    group = Group(broker)
    # The members have joined, and have their assignment, when each can get a record.
    members = [group.member() for _ in range(_MEMBERS)]
    group.produce(1)
    deadline = time.monotonic() + WAIT
    joined = 0
    while not joined:
        joined = sum(len(list(each.poll(0.1))) for each in members)
        if time.monotonic() > deadline:
            raise RuntimeError("the members get no record")
    for each in members:
        list(each.poll(0.5))
    group.produce(records)
    left = threading.Semaphore(0)
    seen = count()
    done = threading.Event()
    errors: list[str] = []

    def read(member: ShareConsumer) -> None:
        while not done.is_set():
            for message in member.poll(0.1):
                if message.error() is not None:
                    errors.append(str(message.error()))
                    done.set()
                if next(seen) + 1 >= records:
                    done.set()
        left.release()

    used, began = broker.processor_time(), time.perf_counter()
    threads = [threading.Thread(target=read, args=(each,)) for each in members]
    for thread in threads:
        thread.start()
    finished = done.wait(WAIT)
    seconds = time.perf_counter() - began
    done.set()
    for thread in threads:
        thread.join()
    processor = (broker.processor_time() - used) / records
    for each in members:
        each.close()
    if errors or not finished:
        raise RuntimeError(errors[0] if errors else f"{next(seen)} of {records} records arrived")
    return records / seconds, processor


class Latency:
    """One record on its way: produced, received, accepted."""

    def __init__(self, broker: Server) -> None:
        self._group = Group(broker)
        self._member = self._group.member(
            share_acknowledgement_mode="explicit", fetch_wait_max_ms=500
        )
        self._producer = Producer(client(broker, linger_ms=0))
        self._value = values(_SIZE)[0]
        self.ask(20)

    def ask(self, times: int) -> tuple[list[float], list[float]]:
        """Return the seconds of deliveries and of acknowledgements."""
        clock = time.perf_counter
        deliveries, acknowledgements = [], []
        for _ in range(times):
            began = clock()
            self._producer.produce(self._group.topic, self._value)
            self._producer.poll(0)
            found = self._receive()
            deliveries.append(clock() - began)
            began = clock()
            self._member.acknowledge(found)
            results = self._member.commit_sync(WAIT)
            acknowledgements.append(clock() - began)
            if any(error is not None for error in results.values()):
                raise RuntimeError(f"not acknowledged: {results}")
        return deliveries, acknowledgements

    def _receive(self) -> Any:
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            for message in self._member.poll(1):
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                return message
        raise RuntimeError("no record arrived")

    def close(self) -> None:
        self._member.close()


def measure(
    brokers: Mapping[str, type[Server]], folder: Path, *, quick: bool
) -> tuple[dict[str, Figures], list[str]]:
    """Let the brokers take turns. Returns the figures of each, and what failed."""
    rounds, records, asked = (1, 10_000, 20) if quick else (7, 100_000, 300)
    found: dict[str, Figures] = {}
    errors: list[str] = []
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(kind(folder / name.replace(" ", "-"), properties=_SETTINGS))  # type: ignore[call-arg]
            for name, kind in brokers.items()
        }
        latencies: dict[str, Latency] = {}
        for name, broker in running.items():
            try:
                for _ in range(1 if quick else 3):
                    throughput(broker, records // 4)
                latencies[name] = Latency(broker)
                stack.callback(latencies[name].close)
            except Exception as error:
                errors.append(f"{name}: {error}")
        for turn in range(rounds):
            order = list(latencies)
            for name in order[turn % len(order) :] + order[: turn % len(order)]:
                figures = found.setdefault(name, Figures())
                try:
                    rate, processor = throughput(running[name], records)
                    deliveries, acknowledgements = latencies[name].ask(asked)
                except Exception as error:
                    errors.append(f"{name}: {error}")
                    continue
                figures.rates.append(rate)
                figures.processor.append(processor)
                figures.delivery += deliveries
                figures.acknowledgement += acknowledgements
                print(f"{name:14} {rate:10,.0f} records/s", file=sys.stderr)
    return found, errors


def targets(found: Mapping[str, Figures]) -> Iterator[Target]:
    """What is promised, as far as it was measured."""
    ours, theirs = found.get(contenders.OURS), found.get(contenders.KAFKA)
    if ours is None or not ours.rates:
        return
    rate = median(ours.rates)
    yield Target(
        f"{_PROMISED:,} records per second of a partition with {_MEMBERS} members",
        f"{rate:,.0f}",
        rate >= _PROMISED,
    )
    if theirs is None or not theirs.delivery:
        return
    for what, mine, kafkas in (
        ("delivery", ours.delivery, theirs.delivery),
        ("acknowledgement", ours.acknowledgement, theirs.acknowledgement),
    ):
        one, other = median(mine), median(kafkas)
        yield Target(
            f"{what}: the median time no longer than Apache Kafka's",
            f"{one / other:.2f} of it ({one * 1e6:,.0f} µs, Kafka {other * 1e6:,.0f} µs)",
            one <= other,
        )


def lines(found: Mapping[str, Figures], missing: list[str], errors: list[str]) -> Iterator[str]:
    """The section of the page."""
    yield "## Share groups"
    yield ""
    yield from machine()
    yield from missing
    shown = {name: each for name, each in found.items() if each.rates}
    rows = [
        (name, f"{median(each.rates):,.0f}", f"{median(each.processor) * 1e6:.1f}")
        for name, each in shown.items()
    ]
    head = ("Broker", "records/s", "CPU µs per record")
    yield from subsection("Four members of one partition", _THROUGHPUT, markdown_table(head, rows))
    timed = [
        (name, *(cell for times in (each.delivery, each.acknowledgement) for cell in _cells(times)))
        for name, each in shown.items()
    ]
    head_of_times = (
        "Broker",
        *(
            f"{what} {figure} µs"
            for what in ("delivery", "acknowledgement")
            for figure in ("median", "99th percentile")
        ),
    )
    yield from subsection("One record", _LATENCY, markdown_table(head_of_times, timed))
    yield from failures(errors)
    yield from aims([*targets(found)])


def _cells(times: list[float]) -> tuple[str, str]:
    return f"{median(times) * 1e6:,.0f}", f"{quantiles(times, n=100)[98] * 1e6:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.share",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one round of a few records")
    parser.add_argument("--without", action="append", default=[], metavar="BROKER")
    parser.add_argument("--output", type=Path, metavar="FILE", help="page that takes the section")
    options = parser.parse_args()
    brokers, _, missing = contenders.available()
    brokers = {
        name: kind
        for name, kind in brokers.items()
        if name in (contenders.OURS, contenders.KAFKA) and name not in options.without
    }
    missing = [each for each in missing if not each.startswith(contenders.TANSU)]
    with tempfile.TemporaryDirectory(prefix="krammar-bench-") as folder:
        found, errors = measure(brokers, Path(folder), quick=options.quick)
    written = list(lines(found, missing, errors))
    print("\n".join(written))
    output = options.output or (None if options.quick or options.without else _PAGE)
    if output is not None:
        put_file(output, section("share", "python -m tests.bench.share", written))
    sys.exit(bool(options.quick and errors))


if __name__ == "__main__":
    main()
