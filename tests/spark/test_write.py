"""Writing to a live broker with Spark, read back by librdkafka."""

from __future__ import annotations

import os
import pickle
import random
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark", reason="PySpark is not installed")

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType, _parse_datatype_string

from krammar.broker import Broker
from krammar.client import Client
from krammar.client.partitioner import partition_of_key
from krammar.spark import register
from krammar.spark.datasource import KafkaStreamWriter, KafkaWriter, KrammarDataSource
from krammar.spark.errors import BrokerError, OptionError, SchemaError
from krammar.spark.kafka import rows_out
from krammar.spark.kafka.rows_out import RowError, partitions_of_keys
from krammar.spark.kafka.sink import AtLeastOnce
from krammar.spark.schema import arrow_schema
from krammar.spark.writing import Count, Written
from tests.spark.support import fails, started

# Schemas are parsed by Spark.
pytestmark = pytest.mark.usefixtures("spark")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADERS = "array<struct<key: string, value: binary>>"


class Message(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of three partitions for each test."""
    name = f"t{random.getrandbits(40):x}"
    make(broker, name)
    return name


def make(broker: Broker, name: str, partitions: int = 3, **configs: str) -> None:
    with Client(broker.bootstrap_servers) as client:
        configs = {name.replace("_", "."): value for name, value in configs.items()}
        client.admin.create_topic(name, partitions, configs=configs)


def messages(broker: Broker, topic: str) -> list[Message]:
    """All of a topic, in order of partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
        }
    )
    try:
        found = consumer.list_topics(topic, PATIENCE).topics[topic].partitions
        consumer.assign([TopicPartition(topic, index, 0) for index in found])
        left = set(found)
        result: dict[int, list[Message]] = {index: [] for index in sorted(found)}
        while left:
            message = consumer.poll(PATIENCE)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
                continue
            given: Any = message
            result[given.partition()].append(
                Message(given.partition(), given.key(), given.value(), given.headers())
            )
        return [message for part in result.values() for message in part]
    finally:
        consumer.close()


def save(frame: DataFrame, broker: Broker | str, **options: object) -> None:
    given = frame.write.format("krammar").mode("append")
    servers = broker if isinstance(broker, str) else broker.bootstrap_servers
    given = given.option("kafka.bootstrap.servers", str(servers))
    for name, value in options.items():
        given = given.option(name.replace("__", "."), str(value))
    given.save()


def writer(
    columns: str | StructType, broker: Broker | str = "127.0.0.1:1", **options: object
) -> KafkaWriter:
    """A writer without Spark, as tasks get it."""
    schema = _parse_datatype_string(columns) if isinstance(columns, str) else columns
    assert isinstance(schema, StructType)
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    given["kafka.bootstrap.servers"] = (
        broker if isinstance(broker, str) else str(broker.bootstrap_servers)
    )
    made = KrammarDataSource(given).writer(schema, False)
    assert isinstance(made, KafkaWriter)
    copy: KafkaWriter = pickle.loads(pickle.dumps(made))
    return copy


def rows(columns: str, *values: tuple[Any, ...]) -> pa.RecordBatch:
    """What Spark hands over."""
    kind = _parse_datatype_string(columns)
    assert isinstance(kind, StructType)
    schema = arrow_schema(kind)
    return pa.RecordBatch.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in values], schema=schema
    )


# Writes.


def test_all_columns(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Null and empty keys and values, headers with null values, and columns that records do not have."""
    other = f"{topic}-other"
    make(broker, other, 2)
    columns = f"topic string, value binary, key binary, partition int, headers {HEADERS}, more int"
    data: list[tuple[Any, ...]] = [
        (topic, b"1", b"k", 2, [("a", b"\x00\xff"), ("null", None), ("a", b"")], 1),
        (topic, None, b"tombstone", 1, None, 2),
        (topic, b"", b"", 1, [], 3),
        (topic, b"4", None, 0, [("é", b"4")], 4),
        (other, b"5", None, 1, None, None),
        (other, None, None, 0, None, None),
    ]
    save(spark.createDataFrame(data, columns).coalesce(1), broker)
    assert messages(broker, topic) == [
        Message(0, None, b"4", [("é", b"4")]),
        Message(1, b"tombstone", None, None),
        Message(1, b"", b"", None),
        Message(2, b"k", b"1", [("a", b"\x00\xff"), ("null", None), ("a", b"")]),
    ]
    assert messages(broker, other) == [
        Message(0, None, None, None),
        Message(1, None, b"5", None),
    ]


def test_text_and_the_topic_of_the_option(spark: SparkSession, broker: Broker, topic: str) -> None:
    """The option takes precedence over the column, whose type does not matter. includeHeaders is accepted
    without effect, as by Spark's connector."""
    columns = f"topic int, key string, value string, headers {HEADERS}"
    frame = spark.createDataFrame([(7, "ключ", "wert ß", [("h", b"1")])], columns)
    save(frame, broker, topic=topic, includeHeaders=False)
    [message] = messages(broker, topic)
    assert message[1:] == ("ключ".encode(), "wert ß".encode(), [("h", b"1")])


def test_keys_go_where_librdkafka_puts_them(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    """Rows go to the partitions that Java's default partitioner selects. Rows of one key keep their order."""
    theirs = f"{topic}-theirs"
    make(broker, theirs, 3)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    keys = [str(number * 7919)[: number % 12 + 1] for number in range(400)]
    for number, key in enumerate(keys):
        producer.produce(theirs, b"%d" % number, key.encode())
    assert producer.flush(PATIENCE) == 0
    frame = spark.createDataFrame(
        [(key, str(number)) for number, key in enumerate(keys)], "key string, value string"
    )
    save(frame.coalesce(1), broker, topic=topic)
    assert messages(broker, topic) == messages(broker, theirs)


def test_a_partition_that_is_null_follows_the_key(broker: Broker, topic: str) -> None:
    columns = "key binary, value binary, partition int"
    values = [(b"a", b"1", 2), (b"a", b"2", None), (None, b"3", 1), (None, b"4", None)]
    message = writer(columns, broker, topic=topic).write(iter([rows(columns, *values)]))
    assert message == Written({topic: Count(4, 6)})
    places = {found.value: found.partition for found in messages(broker, topic)}
    assert (places[b"1"], places[b"2"], places[b"3"]) == (2, partition_of_key(b"a", 3), 1)
    assert b"4" in places


def test_only_rows_of_another_topic_have_partitions(broker: Broker, topic: str) -> None:
    columns = "topic string, value binary, partition int"
    make(broker, f"{topic}-other")
    values = [(topic, b"1", 2), (f"{topic}-other", b"2", None)]
    writer(columns, broker).write(iter([rows(columns, *values)]))
    assert [message[:3] for message in messages(broker, topic)] == [(2, None, b"1")]
    assert [message.value for message in messages(broker, f"{topic}-other")] == [b"2"]


def test_keys_are_hashed_alike_with_numpy_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(5)
    keys = [None if n % 9 == 0 else chance.randbytes(n % 40) for n in range(2000)]
    keys += [b"x" * 300_000, b""]
    expected = [-1 if key is None else partition_of_key(key, 7) for key in keys]
    for kind in (pa.binary(), pa.large_binary()):
        column = pa.array([b"first", *keys], kind).slice(1)
        assert partitions_of_keys(column, 7).to_pylist() == expected
        assert partitions_of_keys(pa.array([None, b""], kind), 3).to_pylist() == [
            -1,
            partition_of_key(b"", 3),
        ]
    monkeypatch.setattr(rows_out, "np", None)
    assert partitions_of_keys(pa.array(keys), 7).to_pylist() == expected


def test_rows_without_a_key_are_spread(spark: SparkSession, broker: Broker, topic: str) -> None:
    frame = spark.range(3000).selectExpr("cast(id as string) as value")
    save(frame, broker, topic=topic, kafka__batch__size=2000)
    found = messages(broker, topic)
    assert {message.partition for message in found} == {0, 1, 2}
    assert sorted(int(message.value or b"") for message in found) == list(range(3000))


def test_many_topics_in_one_batch(spark: SparkSession, broker: Broker, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(5)]
    for name in names:
        make(broker, name, 2)
    frame = spark.range(1000).selectExpr(
        f"concat('{topic}-', id % 5) as topic", "cast(id as string) value", "'k' as key"
    )
    save(frame.coalesce(1), broker)
    for number, name in enumerate(names):
        found = messages(broker, name)
        assert [int(message.value or b"") for message in found] == list(range(number, 1000, 5))
        assert len({message.partition for message in found}) == 1


@pytest.mark.parametrize("codec", CODECS)
def test_compression(broker: Broker, topic: str, codec: str) -> None:
    columns = "value string, partition int"
    batch = rows(columns, *((f"value {number}", 0) for number in range(500)))
    made = writer(columns, broker, topic=topic, kafka__compression__type=codec)
    made.write(iter([batch]))
    with Client(broker.bootstrap_servers) as client:
        reader = client.fetch({(topic, 0): 0}, until={(topic, 0): 500})
        batches = [batch for fetched in reader for batch in fetched.batches]
    # Written idempotently, by one producer.
    assert {batch.compression.name.lower() for batch in batches} == {codec}
    assert len({batch.producer_id for batch in batches}) == 1 and batches[0].producer_id >= 0
    assert [message.value for message in messages(broker, topic)] == [
        b"value %d" % number for number in range(500)
    ]


def test_what_was_read_is_written(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Headers, nulls, empty and large values, from one topic to another."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    source = f"{topic}-source"
    make(broker, source, 3)
    large = random.Random(1).randbytes(900_000)
    for number, value in enumerate([b"1", None, b"", large, large[::-1], b"2"]):
        producer.produce(
            source,
            value,
            None if number == 5 else b"" if number == 4 else b"key-%d" % number,
            partition=number % 3,
            headers=[("n", None), ("n", b"%d" % number)] if number % 2 else None,
        )
    assert producer.flush(PATIENCE) == 0
    frame = (
        spark.read.format("krammar")
        .option("kafka.bootstrap.servers", str(broker.bootstrap_servers))
        .option("subscribe", source)
        .option("includeHeaders", "true")
        .load()
    )
    # Both have the column partition; topic, offset and timestamp are not copied.
    save(frame, broker, topic=topic)
    assert messages(broker, topic) == messages(broker, source)


def test_a_small_buffer(broker: Broker, topic: str) -> None:
    """Some hundred times as much is written as the producer may hold."""
    columns = "key binary, value binary"
    batches = (
        rows(columns, *((b"%d" % row, b"%d " % row * 100) for row in range(500))) for _ in range(20)
    )
    options = {"kafka.buffer.memory": 20_000, "kafka.batch.size": 2000, "topic": topic}
    written = writer(columns, broker, **options).write(batches)
    assert written.topics[topic].rows == len(messages(broker, topic)) == 10_000


def test_a_topic_is_made_by_the_first_row(spark: SparkSession, broker: Broker, topic: str) -> None:
    save(spark.range(1).selectExpr("'x' value"), broker, topic=f"{topic}-new")
    assert [message.value for message in messages(broker, f"{topic}-new")] == [b"x"]


def test_nothing_to_write_needs_no_broker(spark: SparkSession) -> None:
    save(spark.range(0).selectExpr("cast(id as string) value"), "127.0.0.1:1", topic="t")
    columns = "topic string, value string"
    assert writer(columns).write(iter([rows(columns)])) == Written()


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_acknowledgements(broker: Broker, topic: str, acks: str) -> None:
    columns = "value string"
    writer(columns, broker, topic=topic, kafka__acks=acks).write(iter([rows(columns, ("x",))]))
    with Client(broker.bootstrap_servers) as client:
        until = {(topic, 0): 1, (topic, 1): 1, (topic, 2): 1}
        reader = client.fetch(dict.fromkeys(until, 0), until=until)
        # With acks=0 it may still be under way.
        assert next(iter(reader.records()))[1].value == b"x"


def test_defaults_of_the_producer() -> None:
    delivery = writer("value string", topic="t").delivery
    assert isinstance(delivery, AtLeastOnce)
    assert delivery.settings.acks == -1 and delivery.settings.enable_idempotence
    assert delivery.settings.batch_size == 256 * 1024
    given = writer("value string", topic="t", kafka__batch__size=5, kafka__linger__ms=7).delivery
    assert isinstance(given, AtLeastOnce)
    assert (given.settings.batch_size, given.settings.linger_ms) == (5, 7)


# Errors before anything is sent.


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("key string", "column 'value' is required, but missing; the columns are: key"),
        ("Value string", "column 'value' is required, but missing; the columns are: Value"),
        ("value int", "column 'value' is int, but must be string or binary"),
        ("value string, key bigint", "column 'key' is bigint, but must be string or binary"),
        ("value string, headers map<string,binary>", "column 'headers' is map<string,binary>"),
        (
            "value string, headers array<struct<key: string, value: string>>",
            "must be array<struct<key:string,value:binary>>",
        ),
        ("value string, partition bigint", "column 'partition' is bigint, but must be int"),
    ],
)
def test_columns_that_do_not_fit(columns: str, text: str) -> None:
    with pytest.raises(SchemaError) as failure:
        writer(columns, topic="t")
    assert text in str(failure.value)


def test_topics_that_do_not_fit(spark: SparkSession) -> None:
    with pytest.raises(SchemaError, match="no topic is given: set the option 'topic'"):
        writer("value string")
    with pytest.raises(SchemaError, match="column 'topic' is int, but must be string"):
        writer("value string, topic int")
    with pytest.raises(OptionError, match="no topic is named"):
        writer("value string", topic="")
    # As Spark shows it, when the query is planned.
    with fails("column 'value' is bigint, but must be string or binary"):
        save(spark.range(1).selectExpr("id as value"), "127.0.0.1:1", topic="t")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("kafka.key.serializer", "x", "columns key and value are string or binary"),
        ("kafka.value.serializer", "x", "columns key and value are string or binary"),
        ("kafka.transactional.id", "x", "producers cannot share a transaction"),
        ("kafka.acks", "2", "'2': needs one of all"),
        ("kafka.compression.type", "rar", "needs one of none, gzip"),
        ("kafka.liner.ms", "5", "linger.ms"),
        ("kafka.partitioner.class", "x", "murmur2"),
        ("kafka.max.in.flight.requests.per.connection", "0", "needs at least 1"),
        ("topics", "t", 'did you mean "topic"?'),
        ("subscribe", "t", "has no meaning in write"),
        ("startingOffsets", "earliest", "has no meaning in write"),
        ("decode", "OffsetCommitValue", "has no meaning in write"),
        ("path", "/x", "has no meaning with source=kafka"),
        ("source", "frames", "has no meaning with source=frames"),
    ],
)
def test_options_that_do_not_fit(name: str, value: str, text: str) -> None:
    with pytest.raises(OptionError) as failure:
        writer("value string", topic="t", **{name: value})
    assert text in str(failure.value)


def test_sources_that_are_not_written() -> None:
    for source in ("logs", "frames"):
        with pytest.raises(OptionError, match=f"'{source}' can be read, but not written"):
            KrammarDataSource({"source": source}).writer(StructType(), False)
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        KrammarDataSource({"topic": "t"}).writer(StructType().add("value", "string"), False)


def test_save_modes(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Spark itself lets data sources in Python have two modes."""
    frame = spark.range(1).selectExpr("'x' value")

    def write(mode: str) -> None:
        given = frame.write.format("krammar").mode(mode).option("topic", topic)
        given.option("kafka.bootstrap.servers", str(broker.bootstrap_servers)).save()

    with fails("mode overwrite is not supported: use mode append"):
        write("overwrite")
    for mode in ("error", "ignore"):
        with fails("Append"):
            write(mode)
    assert messages(broker, topic) == []


# Errors while rows are written.


def test_a_null_topic(spark: SparkSession, broker: Broker, topic: str) -> None:
    columns = "topic string, value string"
    data = [(topic, "1"), (None, "2")]
    with fails("a row has a null topic; set the option 'topic' to name one for all rows"):
        save(spark.createDataFrame(data, columns).coalesce(1), broker)
    assert messages(broker, topic) == []
    save(spark.createDataFrame(data, columns), broker, topic=topic)
    assert len(messages(broker, topic)) == 2


def test_rows_that_are_no_records(broker: Broker, topic: str) -> None:
    columns = f"value string, partition int, headers {HEADERS}"
    made = writer(columns, broker, topic=topic)
    with pytest.raises(RowError, match=f"'{topic}': a row has partition -1"):
        made.write(iter([rows(columns, ("x", -1, None))]))
    with pytest.raises(RowError, match=f"'{topic}': a row has a header without a key"):
        made.write(iter([rows(columns, ("x", 1, [{"key": None, "value": b"x"}]))]))
    with pytest.raises(BrokerError, match=f"{topic}-3"):
        made.write(iter([rows(columns, ("x", 3, None))]))
    assert messages(broker, topic) == []


def test_values_that_are_too_large(spark: SparkSession, broker: Broker, topic: str) -> None:
    """For the producer's limit, or for the topic's, which only the broker knows."""
    frame = spark.range(1).selectExpr("repeat('x', 2000000) value")
    with fails(f"{topic}: a record of 2000021 bytes exceeds max.request.size"):
        save(frame, broker, topic=topic)
    small = f"{topic}-small"
    make(broker, small, 1, max_message_bytes="10000")
    with pytest.raises(BrokerError, match=rf"{broker.bootstrap_servers}.*{small}-0.*MESSAGE_TOO_L"):
        writer("value string", broker, topic=small).write(
            iter([rows("value string", ("x" * 20_000,))])
        )
    large = f"{topic}-large"
    make(broker, large, 1, max_message_bytes="3000000")
    save(frame, broker, topic=large, kafka__max__request__size=3_000_000)
    [message] = messages(broker, large)
    assert message.value == b"x" * 2_000_000


def test_unreachable_brokers(spark: SparkSession) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with fails(f"brokers {address}"):
            save(
                spark.range(1).selectExpr("'x' value"),
                address,
                topic="t",
                kafka__max__block__ms=300,
            )


def test_a_wrong_password() -> None:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login} user_alice="secret";',
    }
    with Broker.start(properties=properties) as broker:
        servers = f"127.0.0.1:{broker.addresses['SASL_PLAINTEXT'][1]}"

        def write(password: str) -> Written:
            made = writer(
                "value string",
                servers,
                topic="t",
                kafka__security__protocol="SASL_PLAINTEXT",
                kafka__sasl__mechanism="PLAIN",
                kafka__sasl__jaas__config=f'{login} username="alice" password="{password}";',
            )
            return made.write(iter([rows("value string", ("x",))]))

        with pytest.raises(BrokerError, match=servers) as failure:
            write("not this one")
        assert "not this one" not in str(failure.value)
        assert write("secret") == Written({"t": Count(1, 1)})


# Brokers that come and go.


def test_a_broker_restarts_in_the_middle(tmp_path: Path) -> None:
    """Every row once: what was not acknowledged is sent again, by its sequence number."""
    broker = Broker.start(data_dir=tmp_path / "data")
    address = broker.addresses["PLAINTEXT"]
    make(broker, "t", 2)
    columns = "key string, value string"

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal broker
        for number in range(10):
            if number in (3, 7):
                broker.close()
                broker = Broker.start(data_dir=tmp_path / "data", port=address[1])
            yield rows(columns, *((f"{row}", f"{number} {row}") for row in range(300)))

    try:
        made = writer(columns, f"127.0.0.1:{address[1]}", topic="t", kafka__batch__size=1000)
        assert made.write(batches()).topics["t"].rows == 3000
        found = messages(broker, "t")
    finally:
        broker.close()
    values = [(message.key or b"").decode() for message in found]
    assert len(values) == 3000
    for key in range(300):
        of_key = [message.value for message in found if message.key == b"%d" % key]
        assert of_key == [b"%d %d" % (number, key) for number in range(10)]


def test_a_broker_that_stays_away(tmp_path: Path) -> None:
    broker = Broker.start(data_dir=tmp_path / "data")
    servers = str(broker.bootstrap_servers)
    make(broker, "t", 1)
    columns = "value string"

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(columns, ("1",))
        broker.close()
        yield rows(columns, ("2",))

    made = writer(
        columns,
        servers,
        topic="t",
        kafka__delivery__timeout__ms=700,
        kafka__request__timeout__ms=300,
    )
    with pytest.raises(BrokerError, match=rf"brokers {servers}: .*t-0") as failure:
        made.write(batches())
    assert "not done within" in str(failure.value)


# As a stream.


Stream = Callable[..., None]


@pytest.fixture
def stream(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> Stream:
    """Run a query over text files, one per micro-batch, until all existing files are written."""

    def run(mode: str = "append", servers: str = "", **options: object) -> None:
        lines = (
            spark.readStream.format("text")
            .option("maxFilesPerTrigger", 1)
            .load(str(tmp_path / "in"))
        )
        frame = lines.selectExpr("value as key", "concat(value, '!') as value")
        if mode == "complete":
            frame = frame.groupBy("key").count().selectExpr("key", "cast(count as string) value")
        given = (
            frame.writeStream.format("krammar")
            .outputMode(mode)
            .queryName(topic)
            .option("kafka.bootstrap.servers", servers or str(broker.bootstrap_servers))
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        for name, value in options.items():
            given = given.option(name.replace("__", "."), str(value))
        query = given.start()
        try:
            query.awaitTermination(PATIENCE)
        finally:
            query.stop()

    (tmp_path / "in").mkdir()
    return run


def lines(folder: Path, number: int, *texts: str) -> None:
    (folder / f"new-{number}").write_text("\n".join(texts) + "\n")
    # Spark takes the oldest first.
    os.utime(folder / f"new-{number}", (1_700_000_000 + number,) * 2)
    (folder / f"new-{number}").rename(folder / "in" / f"{number}.txt")


def values_of(broker: Broker, topic: str) -> list[str]:
    return sorted((message.value or b"").decode() for message in messages(broker, topic))


def test_a_stream_restarts(stream: Stream, broker: Broker, topic: str, tmp_path: Path) -> None:
    """A committed batch is not written again. A batch whose commit is lost is written again completely."""
    for number in (1, 2):
        lines(tmp_path, number, f"a{number}", f"b{number}")
    stream()
    expected = ["a1!", "a2!", "b1!", "b2!"]
    assert values_of(broker, topic) == expected
    lines(tmp_path, 3, "a3")
    stream()
    expected.append("a3!")
    assert values_of(broker, topic) == sorted(expected)
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    lines(tmp_path, 4, "a4")
    stream()
    assert values_of(broker, topic) == sorted([*expected, "a3!", "a4!"])


def test_a_stream_in_complete_mode(
    stream: Stream, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Each batch writes all rows of the result, as with Spark's connector."""
    lines(tmp_path, 0, "a", "a", "b")
    lines(tmp_path, 1, "a")
    stream("complete")
    of_key: dict[bytes | None, list[bytes | None]] = {}
    for message in messages(broker, topic):
        of_key.setdefault(message.key, []).append(message.value)
    assert of_key == {b"a": [b"2", b"3"], b"b": [b"1", b"1"]}


def test_a_stream_that_fails_goes_on_later(
    stream: Stream, broker: Broker, topic: str, tmp_path: Path
) -> None:
    lines(tmp_path, 0, "a")
    with fails("brokers 127.0.0.1:1"):
        stream(servers="127.0.0.1:1", kafka__max__block__ms=200)
    lines(tmp_path, 1, "b")
    stream()
    assert values_of(broker, topic) == ["a!", "b!"]


def test_from_topic_to_topic(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """With a restart of the query, and nothing lost or written twice."""
    source = f"{topic}-source"
    make(broker, source, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    # Sources have no limits before PySpark 4.2.
    limit = {"maxOffsetsPerTrigger": "150"} if find_spec("pyspark.sql.streaming.datasource") else {}

    def run(first: int, last: int) -> None:
        for number in range(first, last):
            producer.produce(
                source,
                b"%d" % number if number % 3 else None,
                b"key-%d" % (number % 5),
                headers=[("n", b"%d" % number)] if number % 2 else None,
                partition=number % 2,
            )
        assert producer.flush(PATIENCE) == 0
        common = {"kafka.bootstrap.servers": str(broker.bootstrap_servers)}
        query = (
            spark.readStream.format("krammar")
            .options(**common, subscribe=source, startingOffsets="earliest")
            .options(includeHeaders="true", **limit)
            .load()
            .writeStream.format("krammar")
            .options(**common, topic=topic, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        started(
            query, tmp_path / "checkpoint", lambda query: query.awaitTermination(PATIENCE)
        ).stop()

    run(0, 250)
    assert messages(broker, topic) == messages(broker, source)
    run(250, 350)
    found = messages(broker, topic)
    assert found == messages(broker, source) and len(found) == 350


def test_a_stream_is_checked_when_it_starts() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    source = KrammarDataSource(given)
    with pytest.raises(SchemaError, match="column 'value' is int"):
        source.streamWriter(StructType().add("value", "integer"), False)
    with pytest.raises(OptionError, match="has no meaning in writeStream"):
        KrammarDataSource({**given, "maxOffsetsPerTrigger": "5"}).streamWriter(StructType(), False)
    made = source.streamWriter(StructType().add("value", "string"), False)
    assert isinstance(made, DataSourceStreamArrowWriter)
    assert isinstance(writer("value string", topic="t"), DataSourceArrowWriter)


def test_counts_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """By the driver, for all tasks; a task that failed has none."""
    told = [Written({"t": Count(1, 10), "u": Count(5, 7)}), Written({"t": Count(2, 20)}), None]
    batch = writer("value string", topic="t")
    stream = KafkaStreamWriter(batch.delivery)
    with caplog.at_level("INFO", "krammar.spark.kafka.sink"):
        batch.commit(told)
        batch.abort(told)
        stream.commit([Written()], 4)
        stream.abort([None], 5)
        stream.abort(told, 5)
    totals = "t: 3 rows, 30 bytes; u: 5 rows, 7 bytes"
    assert caplog.messages == [
        f"written: {totals}",
        f"writing has failed; rows already written remain: {totals}",
        "written in batch 4: nothing",
        f"writing in batch 5 has failed; rows already written remain: {totals}",
    ]


# Other threads.


def test_threads(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    """Spark looks for the source in the active session of the JVM's thread, which a new Python thread does not have."""
    register(spark)
    servers = str(broker.bootstrap_servers)

    def write(frame: DataFrame) -> None:
        texts = frame.selectExpr("CAST(id AS STRING) AS value")
        writer = texts.write.format("krammar").mode("append").option("topic", topic)
        writer.option("kafka.bootstrap.servers", servers).save()

    def in_threads(frame: DataFrame, _: int = 0) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(write, [frame, frame]))

    in_threads(spark.range(3))
    assert len(messages(broker, topic)) == 6
    spark.range(2).write.parquet(str(tmp_path / "rows"))
    rows = spark.readStream.schema("id long").parquet(str(tmp_path / "rows"))
    writer = rows.writeStream.foreachBatch(in_threads)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(found.value or b"" for found in messages(broker, topic)) == sorted(
        [b"0", b"1", b"2"] * 2 + [b"0", b"1"] * 2
    )
