"""What compiled packages save those who use them: processor time of the broker, and of the Python part of a
read with Spark, in processes with ``KRAMMAR_PURE_PYTHON`` and without.

    python -m tests.bench.native_uses        the table, alone
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from krammar.wire import native
from tests.bench.broker.contenders import Ours

_SIZES = {100: 1_000_000, 1000: 250_000}
_ROUNDS = 3
_WAIT = 60

# What a task of Spark does, without Spark around it.
_READ = """
import sys, time
from krammar.spark.kafka.source import reader, schema
from krammar.spark.options import Options
options = Options({"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]})
found = reader(options, schema(options))
tasks = found.partitions()
rows = 0
for turn in range(2):  # the first one loads modules
    began = time.process_time()
    rows = sum(batch.num_rows for task in tasks for batch in found.read(task))
print(rows, time.process_time() - began)
"""


class _Broker(Ours):
    """With compiled packages or without."""

    pure = False

    def environment(self) -> dict[str, str]:
        return _environment(super().environment(), self.pure)

    def cpu(self) -> float:
        """Seconds of the processor so far."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _environment(given: dict[str, str], pure: bool) -> dict[str, str]:
    return {**given, native.PURE: "1" if pure else "0"}


def table() -> Iterator[str]:
    """Markdown: seconds of the processor a million records, pure and compiled, and their ratio."""
    figures: dict[str, dict[bool, list[float]]] = {}
    for _ in range(_ROUNDS):
        for pure in (True, False):
            with tempfile.TemporaryDirectory(prefix="krammar-bench-") as folder:
                broker = _Broker(Path(folder) / "broker")
                broker.pure = pure
                with broker:
                    for size, count in _SIZES.items():
                        for what, seconds in _costs(broker, size, count, pure):
                            found = figures.setdefault(what, {True: [], False: []})
                            found[pure].append(seconds / count * 1e6)
    yield "| Processor seconds per million records | pure | compiled | pure ÷ compiled |"
    yield "| --- | ---: | ---: | ---: |"
    for what, found in figures.items():
        before, after = median(found[True]), median(found[False])
        yield f"| {what} | {before:.2f} | {after:.2f} | {before / after:.2f} times |"


def _costs(broker: _Broker, size: int, count: int, pure: bool) -> Iterator[tuple[str, float]]:
    topic = f"of-{size}"
    servers = {"bootstrap.servers": broker.bootstrap}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(_WAIT)
    before = broker.cpu()
    producer = Producer(
        {**servers, "linger.ms": 5, "batch.size": 1 << 20, "queue.buffering.max.messages": count}
    )
    value = os.urandom(size)
    for index in range(count):
        producer.produce(topic, value, partition=0)
        if not index & 1023:
            producer.poll(0)
    assert producer.flush(_WAIT) == 0
    yield f"broker: {size} B produced", broker.cpu() - before
    before = broker.cpu()
    consumer = Consumer({**servers, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = 0
    until = time.monotonic() + _WAIT
    while seen < count and time.monotonic() < until:
        seen += len(consumer.consume(10_000, 1))
    consumer.close()
    assert seen == count
    yield f"broker: {size} B consumed", broker.cpu() - before
    done = subprocess.run(
        [sys.executable, "-c", _READ, broker.bootstrap, topic],
        env=_environment(dict(os.environ), pure),
        capture_output=True,
        text=True,
        check=True,
    )
    rows, seconds = done.stdout.split()
    assert int(rows) == count
    yield f"Python part of Spark's read of {size} B", float(seconds)


if __name__ == "__main__":
    print("\n".join(table()))
