"""What drivers store of their writes: of two drivers one commits, a batch with other rows is an error, and journals that
are gone hold up nothing for ever."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from shutil import rmtree
from stat import S_ISDIR
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

import journal_wire as wire
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from krammar.broker import Broker
from krammar.client import Client
from krammar.journal import (
    AckIntent,
    FileJournals,
    ReadCommittedIter,
    ReadUncommittedIter,
    TopicJournals,
)
from krammar.spark.datasource import KafkaStreamWriter, KrammarDataSource
from krammar.spark.errors import SparkSourceError
from krammar.spark.journal import delivery as delivery_module
from krammar.spark.journal import intents as intents_module
from krammar.spark.journal.intents import IntentStore, RowTotals, Write
from krammar.spark.journal.rows_out import Published
from krammar.spark.schema import arrow_schema

SCHEMA = StructType().add("topic", "string").add("key", "binary").add("value", "string")
QUERY = "5c0f"


class Query:
    """A driver and the tasks of a streaming query, as Spark calls them."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.options = {
            "delivery": "journal",
            "path": str(folder / "journals"),
            "intents": str(folder / "intents"),
            **{name.replace("__", "."): value for name, value in options.items()},
        }
        if "kafka.bootstrap.servers" in self.options:
            del self.options["path"]

    def writer(self) -> KafkaStreamWriter:
        """Made for the tasks of a batch, and once more for its commit."""
        made = KrammarDataSource(self.options).streamWriter(SCHEMA, False)
        assert isinstance(made, KafkaStreamWriter)
        return made

    def publish(self, number: int, *tasks: list[str], topic: str = "t") -> list[Published]:
        writer = self.writer()
        return [self.task(writer, number, values, topic) for values in tasks]

    def task(self, writer: Any, number: int, values: list[str], topic: str = "t") -> Published:
        context = TaskContext._getOrCreate()
        context._localProperties = {
            "streaming.sql.batchId": str(number),
            "sql.streaming.queryId": QUERY,
        }
        rows = [{"topic": topic, "key": value.encode(), "value": value} for value in values]
        try:
            published: Published = writer.write(
                pa.RecordBatch.from_pylist([row], schema=arrow_schema(SCHEMA)) for row in rows
            )
        finally:
            TaskContext._taskContext = None
        return published

    def commit(self, number: int, published: list[Published]) -> None:
        self.writer().commit(published, number)

    def run(self, number: int, *tasks: list[str], topic: str = "t") -> None:
        self.commit(number, self.publish(number, *tasks, topic=topic))


def committed(folder: Path) -> list[str]:
    """Return the values of all committed messages of all journals."""
    found = []
    with FileJournals(folder / "journals") as journals:
        for spec in journals.list():
            with ReadCommittedIter(journals.reader(spec.name), wire.Row) as messages:
                found += [envelope.message.value.decode() for envelope in messages]
    return sorted(found)


def written(folder: Path) -> int:
    """All messages, acknowledgements too."""
    with FileJournals(folder / "journals") as journals:
        return sum(
            sum(1 for _ in ReadUncommittedIter(journals.reader(spec.name), wire.Row))
            for spec in journals.list()
        )


def files(folder: Path) -> list[str]:
    """Return the names of the query's stored files."""
    [query] = (folder / "intents").iterdir()
    return sorted(path.name for path in query.iterdir())


# The store.

ONE, TWO = [AckIntent("j", b"1")], [AckIntent("j", b"2")]
ROWS = RowTotals(1, b"x")


def test_of_two_drivers_one_commits(tmp_path: Path) -> None:
    store = IntentStore(str(tmp_path))
    for write, last in (
        (Write("query-x", 3), None),
        (Write("id-x"), None),
        (Write("query-x", 4), 3),
    ):
        before = store.last(write)
        assert (before and before.write.batch) == last
        made = store.store(write, ONE, ROWS, before)
        assert made is not None and made.intents == ONE
        assert store.store(write, TWO, ROWS, before) is None
        assert store.last(write) == made
        store.appended(made)
        found = store.last(write)
        assert found is not None and found.appended and not found.intents
        assert found == made._replace(appended=True, intents=[])
    store.forget_before(write)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "id-x-once.intents",
        "query-x.batches",
    ]
    names = sorted(path.name for path in (tmp_path / "query-x.batches").iterdir())
    assert names == [f"{4:020}-{made.hash.hex()}{end}" for end in (".intents", ".last")]


def test_batch_writes_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems behave like this."""

    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    store = IntentStore(str(tmp_path))
    write = Write("a" * 300)
    assert store.store(write, ONE, ROWS, None)
    assert store.store(write, TWO, ROWS, None) is None
    found = store.last(write)
    assert found is not None and found.intents == ONE
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("write", [Write("id-x"), Write("query-x", 1)])
def test_a_failed_fsync_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    store = IntentStore(str(tmp_path))
    if write.batch > 0:
        store.store(write._replace(batch=0), ONE, ROWS, None)
    last = store.last(write)
    before = sorted(tmp_path.rglob("*"))
    real = os.fsync

    def fsync(file: int) -> None:
        if not S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        real(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="Input/output error"):
            store.store(write, ONE, ROWS, last)
        assert sorted(tmp_path.rglob("*")) == before
    made = store.store(write, ONE, ROWS, last)
    assert made is not None
    after = sorted(tmp_path.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="Input/output error"):
            store.appended(made)
    assert sorted(tmp_path.rglob("*")) == after


def test_what_is_missing_is_an_error(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.run(0, ["a"])
    [folder] = (tmp_path / "intents").iterdir()
    [stored] = folder.glob("*.intents")
    [token] = folder.glob("*.last")
    kept = stored.rename(tmp_path / "kept")
    with pytest.raises(SparkSourceError, match=r"\.intents is missing\. .* new folder"):
        query.run(1, ["b"])
    kept.rename(stored)
    token.unlink()
    with pytest.raises(SparkSourceError, match=r"has no file \*\.last\. .* new folder"):
        query.run(1, ["b"])
    assert committed(tmp_path) == ["a"]


def test_a_server_that_asks_again_after_renaming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS: the answer to the first request is lost, and the second one finds nothing to rename."""
    real = os.rename

    def rename(old: Any, new: Any) -> None:
        real(old, new)
        if str(new).endswith(".last"):
            real(old, new)

    monkeypatch.setattr(os, "rename", rename)
    query = Query(tmp_path)
    for number in range(3):
        query.run(number, [str(number)])
    assert committed(tmp_path) == ["0", "1", "2"]


# Two drivers.


class Schedule:
    """Runs drivers, one at a time, and switches between them where they access stored files."""

    def __init__(self, order: Iterator[int]) -> None:
        self.order = order
        self.turns: list[threading.Semaphore] = []
        self.back = threading.Semaphore(0)
        self.alive: list[bool] = []
        self.failures: list[BaseException] = []
        self.own = threading.local()

    def step(self) -> None:
        """Called by drivers: let others run."""
        number = getattr(self.own, "number", None)
        if number is not None:
            self.back.release()
            self.turns[number].acquire()

    def run(self, *drivers: Callable[[], None]) -> None:
        threads = []
        for number, driver in enumerate(drivers):
            self.turns.append(threading.Semaphore(0))
            self.alive.append(True)
            threads.append(threading.Thread(target=self._drive, args=(number, driver)))
        for thread in threads:
            thread.start()
        while any(self.alive):
            number = next(self.order)
            if self.alive[number]:
                self.turns[number].release()
                self.back.acquire()
        for thread in threads:
            thread.join()

    def _drive(self, number: int, driver: Callable[[], None]) -> None:
        self.turns[number].acquire()
        self.own.number = number
        try:
            driver()
        except BaseException as error:
            self.failures.append(error)
        self.alive[number] = False
        self.back.release()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **more: Any) -> Any:
                self.step()
                return real(*args, **more)

            return call

        called = {name: getattr(os, name) for name in dir(os) if not name.startswith("_")}
        for name in ("listdir", "link", "rename", "replace", "open"):
            called[name] = wrap(called[name])
        patch.setattr(intents_module, "os", SimpleNamespace(**called))
        patch.setattr(intents_module, "read_intents", wrap(intents_module.read_intents))
        for name in ("store", "appended", "forget_before", "latest"):
            patch.setattr(IntentStore, name, wrap(getattr(IntentStore, name)))
        patch.setattr(delivery_module, "append_intents", wrap(delivery_module.append_intents))


def orders(chance: random.Random) -> Iterator[int]:
    """The first driver stalls somewhere, the second one runs for a while, then they take turns."""
    for _ in range(chance.randrange(25)):
        yield 0
    for _ in range(chance.randrange(80)):
        yield 1
    while True:
        yield from [chance.randrange(2)] * chance.randrange(1, 12)


BATCHES = [["0-a", "0-b"], ["1-a", "1-b"], ["2-a"]]
EACH = sorted(value for values in BATCHES for value in values)
SCHEDULES = [range(150), pytest.param(range(150, 1000), marks=pytest.mark.sweep)]


@pytest.mark.parametrize("seeds", SCHEDULES, ids=str)
def test_two_drivers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    """In every order, each row is committed once, although one driver has already passed the batch that the
    other one wants to commit."""
    monkeypatch.setattr(os, "fsync", lambda file: None)  # no power is cut here
    doubled = []
    for seed in seeds:
        folder = tmp_path / str(seed)
        query = Query(folder)
        first = [query.publish(number, BATCHES[number]) for number in (0, 1)]
        second = [query.publish(number, BATCHES[number]) for number in (0, 1, 2)]

        def drive(batches: list[list[Published]], query: Query = query) -> None:
            for number, published in enumerate(batches):
                query.commit(number, published)

        schedule = Schedule(orders(random.Random(seed)))
        with monkeypatch.context() as patch:
            schedule.install(patch)
            schedule.run(lambda f=first: drive(f), lambda s=second: drive(s))  # type: ignore[misc]
        assert not schedule.failures, f"seed {seed}: {schedule.failures[0]!r}"
        if committed(folder) != EACH:
            doubled.append(seed)
    assert not doubled, f"{len(doubled)} of {len(seeds)} schedules: {doubled[:20]}"


def test_an_abort_after_another_driver_has_gone_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producers are committed: a rollback must not be appended."""
    query = Query(tmp_path)
    published = query.publish(0, ["a"], ["b"])

    def fail(*_: object) -> None:
        raise OSError("the driver is cut off")

    with monkeypatch.context() as patch:
        patch.setattr(delivery_module, "append_intents", fail)
        with pytest.raises(SparkSourceError, match="the driver is cut off"):
            query.commit(0, published)
    other = Query(tmp_path)
    for number, value in ((0, ["a", "b"]), (1, ["c"])):
        other.run(number, value)
        before = written(tmp_path)
        query.writer().abort(published, 0)
        assert written(tmp_path) == before
    assert committed(tmp_path) == ["a", "b", "c"]


def test_an_abort_of_a_batch_that_another_driver_has_committed(tmp_path: Path) -> None:
    """A driver rolls back the messages of which it knows that they are not committed."""
    query = Query(tmp_path)
    published = query.publish(0, ["a"])
    query.run(0, ["a"])
    before = written(tmp_path)
    query.writer().abort(published, 0)
    # The rollback, and the end of the producer.
    assert written(tmp_path) == before + 2
    # A task has failed, so the rows of the others cannot be committed either.
    one = query.publish(1, ["b"])
    query.writer().abort([*one, None], 1)
    assert written(tmp_path) == before + 5
    assert committed(tmp_path) == ["a"]


# Batches that are planned again.


def test_a_batch_with_the_same_rows_is_written_once(tmp_path: Path) -> None:
    """The order of the rows and the number of tasks do not matter."""
    query = Query(tmp_path)
    query.run(0, ["a", "b", "b"], ["c"])
    query.run(1, ["d"])
    query.run(2)
    before = written(tmp_path)
    query.run(1, ["d"])
    query.run(1, [], ["d"])
    query.run(0, ["c"], ["b"], ["a", "b"])
    query.run(2, [])
    assert written(tmp_path) == before
    assert committed(tmp_path) == ["a", "b", "b", "c", "d"]


@pytest.mark.parametrize(
    ("number", "tasks"),
    [(1, [["d", "e"]]), (1, [[]]), (1, [["x"]]), (0, [["a"]]), (0, [["a", "b", "b"]])],
)
def test_a_batch_with_other_rows_is_an_error(
    tmp_path: Path, number: int, tasks: list[list[str]]
) -> None:
    query = Query(tmp_path)
    query.run(0, ["a", "b"])
    query.run(1, ["d"])
    rows = sum(map(len, tasks))
    with pytest.raises(SparkSourceError) as failure:
        query.run(number, *tasks)
    assert (
        f"batch {number} of query-{QUERY} was committed with {2 - number} rows, and now has {rows} "
        "different rows, which were not written. Probably the checkpoint was restored"
    ) in str(failure.value)
    assert committed(tmp_path) == ["a", "b", "d"]
    # The solutions that the error names.
    Query(tmp_path, repeatedBatch="skip").run(number, *tasks)
    assert committed(tmp_path) == ["a", "b", "d"]
    Query(tmp_path, intents=str(tmp_path / "new")).run(number, *tasks)
    assert committed(tmp_path) == sorted(["a", "b", "d", *chain(*tasks)])


def test_a_batch_that_was_planned_before_another_driver_committed_it(tmp_path: Path) -> None:
    """Its tasks have published, and what they have is rolled back."""
    query = Query(tmp_path)
    published = query.publish(0, ["a", "other"])
    query.run(0, ["a"])
    with pytest.raises(SparkSourceError, match="now has 2 different rows"):
        query.commit(0, published)
    # Three rows, and twice an acknowledgement and the end of the producer.
    assert written(tmp_path) == 7 and committed(tmp_path) == ["a"]


def test_intents_that_are_deleted_while_a_batch_runs(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.run(0, ["a"])
    published = query.publish(0, ["a"])
    rmtree(tmp_path / "intents")
    with pytest.raises(SparkSourceError, match=r"but is not committed now: .*intents has changed"):
        query.commit(0, published)


def test_a_batch_that_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IntentStore, "remembered", 2)
    query = Query(tmp_path)
    for number in range(4):
        query.run(number, [str(number)])
    query.run(1, ["1"])
    with pytest.raises(
        SparkSourceError,
        match=r"Spark runs batch 0 of query-5c0f, but batch 3 is already committed, .* which rows",
    ):
        query.run(0, ["0"])
    assert committed(tmp_path) == ["0", "1", "2", "3"]


def test_an_id_with_other_rows_is_an_error(tmp_path: Path) -> None:
    def save(*values: str) -> None:
        options = {**Query(tmp_path).options, "writeId": "day 1"}
        made: Any = KrammarDataSource(options).writer(SCHEMA, False)
        rows = [{"topic": "t", "key": b"k", "value": value} for value in values]
        batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SCHEMA))
        made.commit([made.write(iter([batch]))])

    save("a", "b")
    save("b", "a")
    with pytest.raises(SparkSourceError, match=r"id-day 1 was committed with 2 rows, .* writeId"):
        save("a", "b", "c")
    assert committed(tmp_path) == ["a", "b"]


# Journals that are gone.


def test_files_that_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(tmp_path)
    writer = query.writer()
    published = [query.task(writer, 0, [topic], topic) for topic in ("gone", "t")]
    (tmp_path / "journals" / "gone").rename(tmp_path / "moved")
    text = r"batch 0 of query-5c0f is committed, but gone/0 .* does not exist any more"
    with pytest.raises(SparkSourceError, match=text):
        query.commit(0, published)
    # The other journals are acknowledged, and the error remains.
    assert committed(tmp_path) == ["t"]
    with pytest.raises(SparkSourceError, match=text):
        query.run(1, ["next"])
    # Without all of them, a file system is not mounted.
    (tmp_path / "journals").rename(tmp_path / "unmounted")
    lenient = Query(tmp_path, failOnDataLoss="false")
    with pytest.raises(SparkSourceError, match=r"journal .* does not exist"):
        lenient.run(1, ["next"])
    (tmp_path / "unmounted").rename(tmp_path / "journals")
    lenient.run(1, ["next"])
    query.run(2, ["last"])
    assert committed(tmp_path) == ["last", "next", "t"]


def test_a_topic_that_is_deleted_between_intents_and_acknowledgements(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Broker.start(properties={"auto.create.topics.enable": "false"}) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        for topic in ("gone", "t"):
            client.admin.create_topic(topic, 2)
        options = {
            "kafka__bootstrap__servers": str(broker.bootstrap_servers),
            "kafka__max__block__ms": "300",
            "kafka__retry__backoff__ms": "10",
        }
        query = Query(tmp_path, **options)
        writer = query.writer()
        published = [query.task(writer, 0, list("abcdef"), topic) for topic in ("gone", "t")]
        client.admin.delete_topic("gone")
        with pytest.raises(
            SparkSourceError, match=r"gone/0, gone/1 \(.*\) does not exist any more.*failOnDataLoss"
        ):
            query.commit(0, published)
        with pytest.raises(SparkSourceError, match="does not exist any more"):
            query.writer()
        Query(tmp_path, failOnDataLoss="false", **options).writer()
        assert "giving up its rows in gone/0, gone/1" in caplog.text
        query.run(1, ["next"])
        found = []
        with TopicJournals(str(broker.bootstrap_servers)) as journals:
            for spec in journals.list("t"):
                with ReadCommittedIter(journals.reader(spec.name), wire.Row) as messages:
                    found += [envelope.message.value.decode() for envelope in messages]
        assert sorted(found) == ["a", "b", "c", "d", "e", "f", "next"]
