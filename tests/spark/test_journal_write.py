"""Writing to journals, with Spark and without, and reading them again with Spark."""

from __future__ import annotations

import json
import logging
import os
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

import journal_wire as wire
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from krammar.broker import Broker
from krammar.client import Client
from krammar.journal import (
    JSON_CONTENT_TYPE,
    AppendError,
    FileJournals,
    JournalSpec,
    ProducerState,
    ReadCommittedIter,
    ReadUncommittedIter,
    Sequencer,
    TopicJournals,
    append_intents,
)
from krammar.spark.datasource import KafkaWriter, KrammarDataSource
from krammar.spark.errors import BrokerError, OptionError, SchemaError, SparkSourceError
from krammar.spark.journal import delivery as delivery_module
from krammar.spark.journal import rows_out
from krammar.spark.journal.delivery import JournalDelivery
from krammar.spark.journal.intents import FOLDER
from krammar.spark.journal.rows_out import Published
from krammar.spark.kafka.rows_out import RowError
from krammar.spark.schema import HEADERS_TYPE, arrow_schema
from krammar.spark.writing import Count
from tests.spark.support import fails

SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("key", BinaryType()),
        StructField("value", StringType()),
        StructField("partition", IntegerType()),
        StructField("headers", HEADERS_TYPE),
    ]
)
Row = tuple[Any, ...]


def batch(*rows: Row, schema: StructType = SCHEMA) -> pa.RecordBatch:
    columns = arrow_schema(schema)
    given = [dict(zip(schema.names, row, strict=False)) for row in rows]
    return pa.RecordBatch.from_pylist(given, schema=columns)


def writer(folder: Path, schema: Any = SCHEMA, **options: object) -> KafkaWriter:
    """A batch writer without Spark, as tasks get it."""
    given = {"delivery": "journal", "path": f"{folder}/journals", "intents": f"{folder}/intents"}
    given.update((name.replace("__", "."), str(value)) for name, value in options.items())
    if "kafka.bootstrap.servers" in given:
        del given["path"]
    made = KrammarDataSource(given).writer(schema, False)
    assert isinstance(made, KafkaWriter)
    copy: KafkaWriter = pickle.loads(pickle.dumps(made))
    return copy


def write(made: KafkaWriter, *tasks: list[Row], commit: bool = True) -> list[Published]:
    messages = [made.write(iter([batch(*rows)])) for rows in tasks]
    assert all(isinstance(message, Published) for message in messages)
    published: list[Any] = pickle.loads(pickle.dumps(messages))
    if commit:
        made.commit(published)
    return published


def committed(folder: Path, prefix: str = "") -> dict[str, list[Any]]:
    with FileJournals(folder / "journals") as journals:
        return {
            spec.name: [
                envelope.message
                for envelope in ReadCommittedIter(journals.reader(spec.name), wire.Row)
            ]
            for spec in journals.list(prefix)
        }


def values(folder: Path, prefix: str = "") -> list[str]:
    found = committed(folder, prefix).values()
    return sorted(message.value.decode() for messages in found for message in messages)


def intents(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "intents").iterdir())


# Writes.


def test_rows_become_messages(tmp_path: Path) -> None:
    made = writer(tmp_path, journalsPerTopic=3)
    headers = [("h", b"1"), ("h", None)]
    [message] = write(
        made,
        [
            ("a", b"k", "first", 2, [dict(zip(("key", "value"), h, strict=True)) for h in headers]),
            ("a", None, None, 0, None),
            ("b", b"", "", None, []),
        ],
    )
    assert message.topics == {"a": Count(2, 6), "b": Count(1, 0)}
    found = committed(tmp_path)
    assert sorted(found) == ["a/0", "a/1", "a/2", "b/0", "b/1", "b/2"]
    [row] = found["a/2"]
    assert (row.key, row.value) == (b"k", b"first")
    assert [(header.key, header.value) for header in row.headers] == headers
    [row] = found["a/0"]
    assert (row.key, row.value, row.headers) == (None, None, [])
    assert [row.value for name in found for row in found[name] if name[0] == "b"] == [b""]


def test_rows_of_a_key_stay_together_and_in_order(tmp_path: Path) -> None:
    rows = [("t", b"%d" % (n % 7), str(n), None, None) for n in range(200)]
    write(writer(tmp_path, journalsPerTopic=4), rows[:100])
    write(writer(tmp_path, journalsPerTopic=4), rows[100:])
    place: dict[bytes, str] = {}
    for name, messages in committed(tmp_path).items():
        numbers: dict[bytes, list[int]] = {}
        for message in messages:
            assert place.setdefault(message.key, name) == name
            numbers.setdefault(message.key, []).append(int(message.value))
        assert all(found == sorted(found) for found in numbers.values())
    assert len(place) == 7 and len(set(place.values())) > 1


def test_rows_without_a_key_are_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_out.RowPublisher, "run", 5)
    write(
        writer(tmp_path, journalsPerTopic=2), [("t", None, str(n), None, None) for n in range(200)]
    )
    found = committed(tmp_path)
    assert all(found.values())
    assert sorted(map(int, values(tmp_path))) == list(range(200))


def test_a_journal_keeps_its_framing(tmp_path: Path) -> None:
    with FileJournals(tmp_path / "journals") as journals:
        journals.create(JournalSpec("t/part-000", JSON_CONTENT_TYPE))
    write(writer(tmp_path), [("t", b"k", "in JSON", None, None)])
    write(writer(tmp_path, contentType=JSON_CONTENT_TYPE), [("u", b"k", "too", None, None)])
    for name in ("t/part-000", "u/0"):
        [fragment] = (tmp_path / "journals" / name).glob("*.fragment")
        lines = fragment.read_text().splitlines()
        assert len(lines) == 3 and all(json.loads(line)["uuid"] for line in lines)
    assert values(tmp_path) == ["in JSON", "too"]


def test_messages_of_a_class(tmp_path: Path) -> None:
    """Fields that are missing have their defaults, and the UUID is the writer's."""
    kind = StructType().add("uuid", "string").add("key", "binary").add("value", "binary")
    schema = StructType([StructField("key", StringType()), StructField("value", kind)])
    made = writer(tmp_path, schema, topic="t", message="journal_wire.Row")
    given = [("a", {"uuid": "x", "key": b"1", "value": b"v"}), ("b", {"value": b"w"})]
    made.commit([made.write(iter([batch(*given, schema=schema)]))])
    [messages] = committed(tmp_path).values()
    assert [(row.key, row.value, row.headers) for row in messages] == [
        (b"1", b"v", []),
        (None, b"w", []),
    ]
    for row, text in ((("a", None), "null value"), (("a", {"value": None, "key": None}), None)):
        if text:
            with pytest.raises(RowError, match=text):
                made.write(iter([batch(row, schema=schema)]))


# Exactly once.


ROWS = [("t", b"%d" % n, str(n), None, None) for n in range(6)]
VALUES = [row[2] for row in ROWS]


def open_sequences(folder: Path) -> int:
    """Return the number of open transactions that a reader must remember."""
    return sum(state.begin >= 0 for state in producers(folder))


def producers(folder: Path) -> list[ProducerState]:
    """The producers that a reader has to keep in mind."""
    states = []
    with FileJournals(folder / "journals") as journals:
        for spec in journals.list():
            sequencer = Sequencer()
            for _ in ReadCommittedIter(journals.reader(spec.name), wire.Row, sequencer):
                pass
            states += sequencer.producer_states()
    return states


def test_readers_forget_attempts_that_have_ended(tmp_path: Path) -> None:
    made = writer(tmp_path, journalsPerTopic=3)
    for _ in range(5):
        write(made, ROWS[:3], ROWS[3:])
    [published] = write(made, ROWS, commit=False)
    made.abort([published, None])  # another task has failed
    with pytest.raises(RuntimeError, match="the query's own"):
        made.write(failing())
    assert producers(tmp_path) == []
    assert sorted(values(tmp_path)) == sorted(5 * VALUES)
    # Acknowledgements that are appended again, as after a crash, commit nothing.
    with FileJournals(tmp_path / "journals") as journals:
        append_intents(journals, published.intents)
    assert sorted(values(tmp_path)) == sorted(5 * VALUES)


def failing() -> Iterator[pa.RecordBatch]:
    yield batch(*ROWS)
    raise RuntimeError("the query's own")


def test_producers_are_not_ended_before_they_are_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = writer(tmp_path, writeId="w")
    published = write(made, ROWS, commit=False)

    def fail(*_: object) -> None:
        raise AppendError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(delivery_module, "append_intents", fail)
        with pytest.raises(SparkSourceError, match="the disk is full"):
            made.commit(published)
    [state] = producers(tmp_path)
    assert state.begin >= 0
    made.commit(published)
    assert values(tmp_path) == VALUES and producers(tmp_path) == []


def test_nothing_is_seen_before_the_commit(tmp_path: Path) -> None:
    made = writer(tmp_path, journalsPerTopic=2)
    published = write(made, ROWS[:3], ROWS[3:], commit=False)
    assert values(tmp_path) == [] and open_sequences(tmp_path) > 0
    made.commit(published)
    assert values(tmp_path) == VALUES and open_sequences(tmp_path) == 0
    # A write without an id cannot be repeated, so its intents are removed.
    assert intents(tmp_path) == []


def test_an_attempt_of_a_task_that_does_not_count(tmp_path: Path) -> None:
    made = writer(tmp_path)
    write(made, ROWS, commit=False)
    write(made, ROWS)
    assert values(tmp_path) == VALUES


def test_a_task_that_fails_rolls_back(tmp_path: Path) -> None:
    made = writer(tmp_path)
    with pytest.raises(RuntimeError, match="the query's own"):
        made.write(failing())
    assert values(tmp_path) == [] and open_sequences(tmp_path) == 0


def test_an_abort_rolls_back(tmp_path: Path) -> None:
    made = writer(tmp_path, journalsPerTopic=2)
    [published] = write(made, ROWS, commit=False)
    made.abort([published, None])
    assert values(tmp_path) == [] and open_sequences(tmp_path) == 0


def test_an_abort_after_the_intents_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark aborts a write whose commit has raised. The write is committed if its intents are stored."""
    made = writer(tmp_path, journalsPerTopic=2)
    published = write(made, ROWS, commit=False)

    def fail(*_: object) -> None:
        raise AppendError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(delivery_module, "append_intents", fail)
        with pytest.raises(SparkSourceError, match=r"committing unnamed-.* the disk is full"):
            made.commit(published)
    made.abort(published)
    assert values(tmp_path) == [] and len(intents(tmp_path)) == 1
    # The next one does it first.
    writer(tmp_path)
    assert values(tmp_path) == VALUES and intents(tmp_path) == []


def test_a_write_with_an_id_is_done_once(tmp_path: Path) -> None:
    first = writer(tmp_path, writeId="day 1/2")
    write(first, ROWS)
    again = writer(tmp_path, writeId="day 1/2")
    assert write(again, ROWS)[0].topics == {}
    # One that was planned before the first was done has published; it is rolled back.
    planned = writer(tmp_path, writeId="2")
    write(writer(tmp_path, writeId="2"), [("t", b"x", "x", None, None)])
    assert write(planned, [("t", b"x", "x", None, None)])[0].topics
    assert values(tmp_path) == [*VALUES, "x"] and open_sequences(tmp_path) == 0
    assert intents(tmp_path) == [
        "id-2-once.intents",
        f"{quote('id-day 1/2', safe='')}-once.intents",
    ]


def test_damaged_intents_are_an_error(tmp_path: Path) -> None:
    write(writer(tmp_path, writeId="1"), ROWS)
    [path] = (tmp_path / "intents").iterdir()
    data = path.read_bytes()
    for damaged in (b"", data[:-1], data[:5] + b"x" + data[6:]):
        path.write_bytes(damaged)
        with pytest.raises(SparkSourceError, match="its checksum is wrong"):
            writer(tmp_path)


# Refused writes.


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"message": "JournalHead"}, "option 'message'"),
        ({"message": "journal_wire.JournalHead"}, "its definition has no field UUID: uuid"),
        ({"contentType": "text/plain"}, "option 'contentType': no framing"),
        ({"intents": "hdfs://x/y"}, "option 'intents': 'hdfs://x/y' is not in a file"),
        ({"kafka.acks": "1"}, "no meaning with a path"),
        ({"delivery": "at-least-once"}, "'path': has no meaning with source=kafka"),
        ({"delivery": "maybe"}, "option 'delivery': 'maybe': needs one of at-least-once, journal"),
        ({"journalsPerTopic": "0"}, "option 'journalsPerTopic'"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as failure:
        writer(tmp_path, **options)
    assert text in str(failure.value)


def test_options_that_are_missing(tmp_path: Path) -> None:
    given = {"delivery": "journal", "path": str(tmp_path)}
    with pytest.raises(OptionError, match="'intents': is required for batch writes"):
        KrammarDataSource(given).writer(SCHEMA, False)
    with pytest.raises(OptionError, match="'checkpointLocation': is required"):
        KrammarDataSource(given).streamWriter(SCHEMA, False)
    for place in ("/nowhere/checkpoint", "s3://bucket/checkpoint"):
        with pytest.raises(OptionError, match="that the driver has mounted"):
            KrammarDataSource({**given, "checkpointLocation": place}).streamWriter(SCHEMA, False)
    with pytest.raises(OptionError, match="'failOnDataLoss': has no meaning in write without"):
        KrammarDataSource(
            {"kafka.bootstrap.servers": "x:1", "topic": "t", "failOnDataLoss": "true"}
        ).writer(SCHEMA, False)
    with pytest.raises(OptionError, match="'writeId': has no meaning in writeStream"):
        KrammarDataSource({**given, "writeId": "1"}).streamWriter(SCHEMA, False)
    given = {"repeatedBatch": "skip", "journalsPerTopic": "1"}
    for name in ("intents", "message", "writeId", "contentType", *given):
        with pytest.raises(OptionError, match=f"'{name}': has no meaning without delivery=journal"):
            KrammarDataSource({name: given.get(name, "1")})


@pytest.mark.parametrize("setting", [{"kafka.acks": "1"}, {"kafka.enable.idempotence": "false"}])
def test_brokers_have_to_confirm(tmp_path: Path, setting: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"journal needs kafka\.enable\.idempotence=true"):
        writer(tmp_path, kafka__bootstrap__servers="127.0.0.1:1", **setting)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ((None, b"k", "v", None, None), "null topic"),
        (("", b"k", "v", None, None), "empty topic"),
        (("t", b"k", "v", 5, None), "a row has partition 5, but the topic has 1 partitions"),
        (("../t", b"k", "v", None, None), "is not a valid name of a journal"),
    ],
)
def test_rows_that_do_not_fit(tmp_path: Path, row: Row, text: str) -> None:
    with pytest.raises(RowError, match=text):
        write(writer(tmp_path), [row])


def test_columns_of_messages_that_do_not_fit(tmp_path: Path) -> None:
    def check(schema: StructType) -> None:
        writer(tmp_path, schema, topic="t", message="journal_wire.Row")

    with pytest.raises(SchemaError, match="'value' is string, but must be a struct"):
        check(StructType().add("value", "string"))
    with pytest.raises(SchemaError, match="column 'value' is required, but missing"):
        check(StructType().add("key", "string"))
    with pytest.raises(SchemaError, match="has the field 'amount', which Row does not have"):
        check(StructType().add("value", StructType().add("amount", "integer")))


# Through Spark.


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t{random.getrandbits(40):x}"
    with Client(broker.bootstrap_servers) as client:
        client.admin.create_topic(name, 3)
    return name


def loaded(frame: DataFrame) -> list[str]:
    return sorted(row[0] for row in frame.selectExpr("cast(value as string)").collect())


def test_a_batch_to_files(spark: SparkSession, tmp_path: Path) -> None:
    options = {"delivery": "journal", "intents": str(tmp_path / "intents"), "journalsPerTopic": "2"}

    def save_to_files(frame: DataFrame) -> None:
        given = frame.write.format("krammar").mode("append").options(**options)
        given.save(str(tmp_path / "journals"))

    rows = spark.range(500).selectExpr("'orders' topic", "cast(id as string) value")
    save_to_files(rows.withColumn("key", rows["value"]).repartition(3))
    reader = spark.read.format("krammar").option("source", "journal")
    assert loaded(reader.load(str(tmp_path / "journals"))) == sorted(map(str, range(500)))
    found = reader.option("splitBytes", 10_000).load(str(tmp_path / "journals"))
    assert loaded(found) == sorted(map(str, range(500)))
    row = found.where("journal = 'orders/1'").first()
    assert row is not None and bytes(row.key) == bytes(row.value) and row.flags == 1
    with fails("a row has partition 7, but the topic has 2 partitions"):
        save_to_files(rows.selectExpr("topic", "value", "7 as partition"))
    assert len(values(tmp_path)) == 500


def test_a_batch_of_messages_to_topics(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """And read as messages again."""
    servers = {"kafka.bootstrap.servers": str(broker.bootstrap_servers)}
    frame = spark.range(50).selectExpr(
        "named_struct('value', cast(cast(id as string) as binary)) value"
    )
    frame.write.format("krammar").mode("append").options(
        **servers,
        delivery="journal",
        topic=topic,
        intents=str(tmp_path / "intents"),
        message="journal_wire.Row",
    ).save()
    found = (
        spark.read.format("krammar")
        .options(**servers, source="journal", subscribe=topic, decode="journal_wire.Row")
        .load()
    )
    assert loaded(found.selectExpr("value.value", "uuid")) == sorted(map(str, range(50)))
    assert found.where("uuid = value.uuid").count() == 50


Stream = Callable[..., None]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    """Run a query over text files, one per micro-batch, until all existing files are written."""

    def run(**options: object) -> None:
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1)
        query = (
            lines.load(str(tmp_path / "in"))
            .selectExpr("value as key", "value")
            .writeStream.format("krammar")
            .option("delivery", "journal")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .options(**{name.replace("__", "."): str(value) for name, value in options.items()})
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()

    (tmp_path / "in").mkdir()
    return run


def line(folder: Path, number: int) -> None:
    path = folder / f"{number}.new"
    path.write_text(f"{number}-a\n{number}-b\n")
    os.utime(path, (1_700_000_000 + number,) * 2)  # Spark takes the oldest first
    path.rename(folder / "in" / f"{number}.txt")


@pytest.mark.parametrize("name", ["a%20b", "run#1"])
def test_checkpoints_by_uri(stream: Stream, tmp_path: Path, name: str) -> None:
    """Spark and the delivery use the same folder."""
    line(tmp_path, 1)
    stream(
        checkpointLocation=f"file://{tmp_path}/{name}", path=tmp_path / "journals", topic="orders"
    )
    assert {"metadata", FOLDER} <= {path.name for path in (tmp_path / name).iterdir()}


def forget_last(folder: Path) -> None:
    """Spark's note that its last batch is committed."""
    last = max((folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def test_a_stream_to_files_restarts(stream: Stream, tmp_path: Path) -> None:
    """A batch that Spark runs again, for its own note of it is lost, is not even published."""
    options = {"topic": "t", "path": tmp_path / "journals"}
    for number in (0, 1):
        line(tmp_path, number)
    stream(**options)
    assert values(tmp_path) == ["0-a", "0-b", "1-a", "1-b"]
    forget_last(tmp_path)
    line(tmp_path, 2)
    stream(**options)
    expected = ["0-a", "0-b", "1-a", "1-b", "2-a", "2-b"]
    assert values(tmp_path) == expected
    with FileJournals(tmp_path / "journals") as journals:
        every = ReadUncommittedIter(journals.reader("t/0"), wire.Row)
        assert sum(envelope.message.value is not None for envelope in every) == len(expected)
    [kept] = (tmp_path / "checkpoint" / FOLDER).iterdir()
    names = sorted(path.name for path in kept.iterdir())
    assert [name[:21] for name in names] == 2 * [f"{2:020}-"]
    assert [Path(name).suffix for name in names] == [".intents", ".last"]


def test_a_stream_whose_last_batch_is_planned_again(stream: Stream, tmp_path: Path) -> None:
    """Spark's files of it are lost. With the same rows it is done already; with others it is an error, and what it
    had stays."""
    options = {"topic": "t", "path": tmp_path / "journals"}
    checkpoint = tmp_path / "checkpoint"

    def forget_plan(number: int) -> None:
        for folder in ("offsets", "commits", "sources/0"):
            for path in (checkpoint / folder).glob(f"*{number}*"):
                path.unlink()

    for number in (0, 2):
        line(tmp_path, number)
    stream(**options)
    expected = ["0-a", "0-b", "2-a", "2-b"]
    forget_plan(1)
    stream(**options)
    assert values(tmp_path) == expected
    forget_plan(1)
    line(tmp_path, 1)  # which comes first
    with fails("was committed with 2 rows, and now has 2 different rows"):
        stream(**options)
    assert values(tmp_path) == expected
    # As the error and docs/spark-journals.md have it, what was committed is written a second time then.
    stream(**options, intents=tmp_path / "new")
    assert values(tmp_path) == sorted([*expected, "1-a", "1-b", "2-a", "2-b"])


def test_a_stream_whose_checkpoint_is_restored(stream: Stream, tmp_path: Path) -> None:
    """The checkpoint is two batches old. docs/spark-journals.md describes this case in a table."""
    options = {"topic": "t", "path": tmp_path / "journals", "intents": tmp_path / "elsewhere"}
    checkpoint = tmp_path / "checkpoint"

    def restore() -> None:
        rmtree(checkpoint)
        copytree(tmp_path / "saved", checkpoint)

    line(tmp_path, 0)
    stream(**options)
    copytree(checkpoint, tmp_path / "saved")
    copytree(tmp_path / "elsewhere", tmp_path / "saved" / FOLDER)
    for number in (2, 4):
        line(tmp_path, number)
    stream(**options)
    expected = ["0-a", "0-b", "2-a", "2-b", "4-a", "4-b"]
    restore()
    stream(**options)
    assert values(tmp_path) == expected
    restore()
    line(tmp_path, 1)
    with fails("was committed with 2 rows, and now has 2 different rows"):
        stream(**options)
    assert values(tmp_path) == expected
    # With its intents, in the checkpoint, all is written again.
    restore()
    del options["intents"]
    stream(**options)
    assert values(tmp_path) == sorted([*expected, "1-a", "1-b", "2-a", "2-b", "4-a", "4-b"])


def test_a_stream_to_topics_goes_on_after_a_failure(
    stream: Stream, broker: Broker, topic: str, tmp_path: Path
) -> None:
    options = {"topic": topic, "intents": tmp_path / "elsewhere"}
    line(tmp_path, 0)
    with fails("127.0.0.1:1"):
        stream(
            **options, kafka__bootstrap__servers="127.0.0.1:1", kafka__default__api__timeout__ms=500
        )
    line(tmp_path, 1)
    servers = str(broker.bootstrap_servers)
    stream(**options, kafka__bootstrap__servers=servers)
    forget_last(tmp_path)
    stream(**options, kafka__bootstrap__servers=servers)
    found = []
    with TopicJournals(servers) as journals:
        for spec in journals.list(topic):
            with ReadCommittedIter(journals.reader(spec.name), wire.Row) as messages:
                found += [envelope.message.value.decode() for envelope in messages]
    assert sorted(found) == ["0-a", "0-b", "1-a", "1-b"]


def test_a_batch_write_in_foreach_batch_is_no_micro_batch(tmp_path: Path) -> None:
    """Spark passes the query's micro-batch to its tasks too."""
    made = writer(tmp_path)
    assert isinstance(made.delivery, JournalDelivery) and not made.delivery.is_stream
    assert made.delivery._write().batch == -1


def test_what_is_done_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "krammar.spark.journal.delivery"):
        planned = writer(tmp_path, writeId="1")
        write(writer(tmp_path, writeId="1"), ROWS)
        write(planned, ROWS)
        planned = writer(tmp_path, writeId="2")
        planned.abort(write(planned, ROWS, commit=False))
    assert caplog.messages == [
        "id-1: committed 6 rows",
        "id-1 was committed before: rolling back its repeated rows",
        "id-2 has failed: rolling back its rows",
    ]


def test_brokers_that_are_not_there(tmp_path: Path) -> None:
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": 100}
    made = writer(tmp_path, **nowhere)
    with pytest.raises(BrokerError, match=r"writing, brokers 127\.0\.0\.1:1"):
        write(made, ROWS)
