"""What is measured: jobs of one Spark session, and what they cost."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import journal_wire as wire
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from krammar.client import Client
from krammar.journal import (
    FIXED_CONTENT_TYPE,
    Publisher,
    TopicJournals,
    append_intents,
    framing_by_content_type,
)
from tests.bench.broker.measure import WAIT, client
from tests.interop.processes import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS = "krammar"
CONNECTOR = "connector"
CONFLUENT = "confluent-kafka"
LOGS = "krammar, log folders"
JOURNALS = "krammar, journals"
ROWS = "constant rows in Python"

FORMATS = {
    OURS: "krammar",
    CONNECTOR: "kafka",
    CONFLUENT: "confluent",
    JOURNALS: "krammar",
    ROWS: "rows",
}

PARTITIONS = 4
# Rows of a transaction of journals.
TRANSACTION = 10_000
# Of the first record, in milliseconds since 1970; each record is a millisecond after the one before.
BEGAN = 1_750_000_000_000


# Records, by their size in bytes; and in the topic of which the last percent is read.
COUNTS = {1000: 300_000, 100: 800_000}
LONG = 2_000_000


@dataclass(frozen=True)
class Topic:
    """Records of ``size`` bytes each, with short keys."""

    size: int
    codec: str
    records: int

    @property
    def name(self) -> str:
        return f"r{self.size}-{self.codec}-{self.records}"

    @property
    def journal(self) -> str:
        """The topic that has the same records as the rows of a journal."""
        return f"{self.name}-journal"

    @property
    def title(self) -> str:
        size = f"{self.size} B" if self.size < 1000 else f"{self.size // 1000} kB"
        return f"{size}, {'no compression' if self.codec == 'none' else self.codec}"

    @property
    def bytes(self) -> int:
        return self.size * self.records


def topics(*, quick: bool) -> list[Topic]:
    """Return the topics that the jobs read: each record size, compressed or not."""
    return [
        Topic(size, codec, count // (10 if quick else 1))
        for size, count in COUNTS.items()
        for codec in ("none", "zstd")
    ]


def long_topic(*, quick: bool) -> Topic:
    """One whose last percent is worth looking for."""
    return Topic(1000, "none", LONG // (10 if quick else 1))


def values(topic: Topic) -> Iterator[bytes]:
    """The values of a topic. Half of each is its own and random, so that it compresses to about half."""
    source = random.Random(topic.size)
    rest = b"abcdefghij" * (topic.size // 20)
    for _ in range(topic.records):
        yield source.randbytes(topic.size // 2) + rest


def fill_journal(broker: Server, topic: Topic) -> None:
    """Write the records as rows of journals, in acknowledged transactions of ``TRANSACTION`` rows."""
    framing = framing_by_content_type(FIXED_CONTENT_TYPE)
    targets = [(f"{topic.journal}/{number}", framing) for number in range(PARTITIONS)]
    with Client(broker.bootstrap) as admin, _writer(broker) as journals:
        admin.admin.create_topic(topic.journal, PARTITIONS)
        publisher = Publisher(journals)
        for index, value in enumerate(values(topic)):
            row = wire.Row(key=b"%d" % index, value=value)
            target = targets[index % PARTITIONS]
            publisher.publish_uncommitted(lambda _, target=target: target, row)  # type: ignore[misc]
            if not (index + 1) % TRANSACTION or index + 1 == topic.records:
                append_intents(journals, publisher.build_ack_intents())


def _writer(broker: Server) -> TopicJournals:
    """Batches of the same size as those of ``fill``."""
    return TopicJournals(broker.bootstrap, {"batch.size": 1_000_000, "linger.ms": 50}, linger_ms=50)


def fill(broker: Server, topic: Topic) -> None:
    """Write the records of a topic."""
    admin = AdminClient(client(broker))
    admin.create_topics([NewTopic(topic.name, PARTITIONS, 1)])[topic.name].result(WAIT)
    producer = Producer(
        client(
            broker,
            acks="all",
            compression_type=topic.codec,
            linger_ms=50,
            batch_size=1_000_000,
            batch_num_messages=1_000_000,
            queue_buffering_max_messages=2_000_000,
            queue_buffering_max_kbytes=1_000_000,
        )
    )
    for index, value in enumerate(values(topic)):
        producer.produce(
            topic.name,
            value,
            b"%d" % index,
            partition=index % PARTITIONS,
            timestamp=BEGAN + index,
        )
        if not index & 1023:
            producer.poll(0)
    if producer.flush(WAIT):
        raise RuntimeError(f"{topic.title}: not all of it was written")


def without_zips(folder: Path) -> Path:
    """A SPARK_HOME without the zips that Python's workers would import PySpark from."""
    import pyspark

    home = folder / "spark-home"
    home.mkdir()
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__path__[0], name))
    return home


def end_spark(session: SparkSession) -> None:
    """Stop it with its JVM, so that the next one has a JVM of its own."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(WAIT)
    SparkContext._gateway = SparkContext._jvm = None


def start_spark(folder: Path, jars: str | None, home: Path | None = None) -> SparkSession:
    """A session on two processors that finds krammar and, with ``jars``, the connector. ``home`` is its
    SPARK_HOME, if not PySpark's own; then workers begin as ``krammar.spark.session`` starts them.
    """
    from pyspark.sql import SparkSession

    import krammar.spark
    from tests.bench.spark.confluent_source import ConfluentSource
    from tests.bench.spark.rows_source import RowsSource

    if home is not None:
        os.environ["SPARK_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers load bytecode, as those of an installed package do, and the functions of this module.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    root = str(Path(__file__).parents[3])
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [root, os.environ.get("PYTHONPATH", "")])
    )
    os.environ["PYTHONPYCACHEPREFIX"] = str(Path(root) / "build" / "interop" / "bytecode")
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    )
    if home is not None:
        builder = builder.config("spark.python.daemon.module", "krammar.spark.daemon")
    if jars:
        builder = builder.config("spark.jars", jars.replace(":", ","))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    krammar.spark.register(session, pushdown=True)
    session.dataSource.register(ConfluentSource)
    session.dataSource.register(RowsSource)
    return session


@dataclass(frozen=True)
class Cost:
    """Of one run of a job: seconds by the clock, seconds of the processors in Spark (the JVM and Python's
    workers) and in the broker, and bytes that the broker read from its logs."""

    clock: float
    spark: float
    broker: float
    fetched: int


class Jobs:
    """The jobs, by contender. Each reads all of a topic and gives the number of its rows."""

    def __init__(self, spark: SparkSession, broker: Server, folder: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.folder = folder
        self.made = 0

    def measure(self, job: Callable[[], int], expected: int) -> Cost:
        before = self._spark_time(), self.broker.processor_time(), self._read()
        began = time.perf_counter()
        rows = job()
        clock = time.perf_counter() - began
        if rows != expected:
            raise RuntimeError(f"{rows} rows, not {expected}")
        spark, broker, fetched = before
        return Cost(
            clock,
            self._spark_time() - spark,
            self.broker.processor_time() - broker,
            self._read() - fetched,
        )

    def _spark_time(self) -> float:
        assert self.broker.process is not None
        return processor_time(os.getpid(), self.broker.process.pid)

    def _read(self) -> int:
        assert self.broker.process is not None
        status = Path(f"/proc/{self.broker.process.pid}/io").read_text()
        return int(status.split()[1])

    def load(self, contender: str, topic: Topic) -> DataFrame:
        if contender == LOGS:
            reader = self.spark.read.format("krammar").option("source", "logs")
            return reader.option("subscribe", topic.name).load(str(self.broker.folder))
        return self._kafka(self.spark.read, contender, topic).load()  # type: ignore[no-any-return]

    def _kafka(self, reader: Any, contender: str, topic: Topic) -> Any:
        reader = reader.format(FORMATS[contender])
        reader = reader.option("kafka.bootstrap.servers", self.broker.bootstrap)
        if contender == JOURNALS:
            return reader.option("source", "journal").option("subscribe", topic.journal)
        return reader.option("subscribe", topic.name).option("startingOffsets", "earliest")

    def count(self, contender: str, topic: Topic) -> int:
        return self.load(contender, topic).count()

    def parquet(self, contender: str, topic: Topic) -> int:
        target = str(self.folder / "parquet")
        self.load(contender, topic).write.mode("overwrite").parquet(target)
        return topic.records  # checked by rows_in_parquet, once

    def rows_in_parquet(self) -> int:
        return self.spark.read.parquet(str(self.folder / "parquet")).count()

    def stream(self, contender: str, topic: Topic) -> int:
        """Read everything in one micro-batch without storing it, and return the number of rows that it reported."""
        self.made += 1
        place = self.folder / f"checkpoint-{self.made}"
        query = (
            self._kafka(self.spark.readStream, contender, topic)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(place))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(300)
        rows = sum(progress["numInputRows"] for progress in query.recentProgress)
        shutil.rmtree(place, ignore_errors=True)
        return int(rows)

    def last_percent(self, contender: str, topic: Topic) -> int:
        first = BEGAN + topic.records * 99 // 100
        frame = self.load(contender, topic)
        return frame.where(f"timestamp >= timestamp_millis({first})").count()

    def write(self, contender: str, topic: Topic) -> int:
        """The last rows of ``parquet``, of 1 kB each, to a new topic."""
        self.made += 1
        name = f"written-{self.made}"
        admin = AdminClient(client(self.broker))
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(WAIT)
        frame = self.spark.read.parquet(str(self.folder / "source"))
        writer = frame.write.format(FORMATS[contender]).mode("append")
        writer = writer.option("kafka.bootstrap.servers", self.broker.bootstrap)
        writer.option("topic", name).save()
        with Client(self.broker.bootstrap) as counting:
            ends = counting.list_offsets({(name, index): -1 for index in range(PARTITIONS)})
        admin.delete_topics([name], operation_timeout=WAIT)[name].result(WAIT)
        return sum(end.offset for end in ends.values())

    def prepare_write(self, topic: Topic) -> None:
        frame = self.load(OURS, topic).select("key", "value")
        frame.write.mode("overwrite").parquet(str(self.folder / "source"))


def processor_time(root: int, but: int) -> float:
    """Seconds of processor time of all processes below ``root``, of those that have ended too, but not of
    ``but``."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    total = 0
    for process, used in ticks.items():
        if process == but:
            continue
        above = parents[process]
        while above and above != root:
            above = parents.get(above, 0)
        if above == root:
            total += used
    return total / os.sysconf("SC_CLK_TCK")
