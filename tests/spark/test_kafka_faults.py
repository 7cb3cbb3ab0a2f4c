"""``source=kafka`` where logins, brokers, topics or batches fail, or change while a query runs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark", reason="PySpark is not installed")

from confluent_kafka import Producer
from kafka_wire import ErrorCode
from pyspark.sql import SparkSession

from krammar.auth import scram_server
from krammar.auth.scram import BY_NAME
from krammar.broker import Broker
from krammar.broker.security.users import record_of
from krammar.client import Client
from krammar.client.cluster import AdvertisedAddresses
from krammar.spark import PUSHDOWN_SETTING
from krammar.spark.datasource import KrammarDataSource
from krammar.spark.errors import BrokerError, DataLossError
from krammar.wire.batches import HeaderKey, read_headers
from tests.spark.logs_support import FIRST_MS, STEP_MS
from tests.spark.support import fails, moment
from tests.spark.test_kafka import load, planned, read, servers

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "al,ice=sécret"


def topic(broker: Broker, name: str, counts: list[int], **configs: str) -> None:
    """Create a topic with these numbers of records in its partitions, one batch each."""
    with Client(servers(broker)) as client:
        client.admin.create_topic(name, len(counts), configs=configs)
    append(broker, name, counts)


def append(broker: Broker, name: str, counts: list[int]) -> None:
    producer = Producer({"bootstrap.servers": servers(broker), "linger.ms": "0"})
    for partition, count in enumerate(counts):
        for number in range(count):
            producer.produce(name, b"v%d" % number * 20, partition=partition)
            assert producer.flush(PATIENCE) == 0


# Logins.


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login} user_alice="{PASSWORD}";',
    }
    with Broker.start(properties=properties) as broker:
        credentials = [
            record_of("alice", mechanism, scram_server.new_credential(mechanism, PASSWORD))
            for mechanism in BY_NAME.values()
        ]
        broker.call(broker.cluster.append, credentials)
        port = broker.addresses["PLAINTEXT"][1]
        with Client(f"127.0.0.1:{port}") as client:
            client.admin.create_topic("secrets", 1)
            with client.producer() as producer:
                producer.send("secrets", b"x").result()
        yield broker


def login(broker: Broker, mechanism: str, password: str) -> dict[str, object]:
    return {
        "subscribe": "secrets",
        "kafka__bootstrap__servers": f"127.0.0.1:{broker.addresses['SASL_PLAINTEXT'][1]}",
        "kafka__security__protocol": "SASL_PLAINTEXT",
        "kafka__sasl__mechanism": mechanism,
        "kafka__sasl__username": "alice",
        "kafka__sasl__password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_logins(guarded: Broker, mechanism: str) -> None:
    options = login(guarded, mechanism, PASSWORD)
    address = str(options.pop("kafka__bootstrap__servers"))
    assert read(planned(address, **options)) == [(0, 0)]
    options["kafka__sasl__password"] = "wrong"
    with pytest.raises(BrokerError, match=f"brokers {address}: .*refuses the login of 'alice'"):
        planned(address, **options).partitions()


def test_spark_tells_of_a_wrong_password_but_not_the_password(
    spark: SparkSession, guarded: Broker
) -> None:
    assert load(spark, guarded, **login(guarded, "SCRAM-SHA-512", PASSWORD)).count() == 1
    with pytest.raises(Exception, match="refuses the login of 'alice'") as failure:
        load(spark, guarded, **login(guarded, "PLAIN", "hunter2")).count()
    assert "hunter2" not in str(failure.value)


# Servers.


def test_a_server_that_says_nothing() -> None:
    """Connections are accepted, by the system, and that is all."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        options = {"subscribe": "x", "kafka__default__api__timeout__ms": 400}
        with pytest.raises(BrokerError, match=f"planning, brokers {address}: .*{address}"):
            planned(address, **options).partitions()


def test_spark_names_all_servers_that_cannot_be_reached(spark: SparkSession, live: Broker) -> None:
    with socket.socket() as one, socket.socket() as other:
        for taken in (one, other):
            taken.bind(("127.0.0.1", 0))  # without listening
        addresses = ",".join(f"127.0.0.1:{s.getsockname()[1]}" for s in (one, other))
        options = {"subscribe": "sizes", "kafka__default__api__timeout__ms": 300}
        with fails(f"BrokerError: planning, brokers {addresses}: no server can be reached"):
            load(spark, live, kafka__bootstrap__servers=addresses, **options).count()
        # One that can be is enough.
        both = f"{addresses},{servers(live)}"
        assert load(spark, live, kafka__bootstrap__servers=both, subscribe="sizes").count() == 4


@pytest.mark.parametrize("stream", [False, True])
def test_a_driver_that_reaches_no_advertised_address(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is in a network of its own, while the executors are in the brokers' network."""
    monkeypatch.setattr(AdvertisedAddresses, "PATIENCE", 0.5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listening
        hidden = f"127.0.0.1:{taken.getsockname()[1]}"
        properties = {
            "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "advertised.listeners": f"OUTSIDE://{hidden}",
        }
        with Broker.start(properties=properties) as broker:
            with Client("{}:{}".format(*broker.addresses["PLAINTEXT"])) as client:
                client.admin.create_topic("t", 1)
            outside = "{}:{}".format(*broker.addresses["OUTSIDE"])
            source = KrammarDataSource({"kafka.bootstrap.servers": outside, "subscribe": "t"})
            schema = source.schema()
            reason = (
                f"brokers {outside}: {outside} answers, but this machine .* advertise: {hidden}"
            )
            if stream:
                begin: Callable[[], object] = source.streamReader(schema).initialOffset
            else:
                begin = source.reader(schema).partitions
            with pytest.raises(BrokerError, match=reason):
                begin()


def test_a_broker_that_stops_before_a_task_reads(tmp_path: Path) -> None:
    """The task waits as long as the option allows, and names the offsets that it has not read."""
    with Broker.start(data_dir=tmp_path) as broker:
        topic(broker, "left", [5])
        address = servers(broker)
        reader = planned(broker, subscribe="left", kafkaConsumer__pollTimeoutMs=300)
        [task] = reader.partitions()
    with pytest.raises(BrokerError, match=f"reading offsets 0 to 4 of left-0, brokers {address}: "):
        list(reader.read(task))


# Topics that change.


def test_a_topic_that_is_deleted_before_a_task_reads(live: Broker) -> None:
    topic(live, "short-lived", [3])
    quick = {"kafkaConsumer__pollTimeoutMs": 2000, "kafka__retry__backoff__ms": 10}
    strict = planned(live, subscribe="short-lived", **quick)
    tolerant = planned(live, subscribe="short-lived", failOnDataLoss="false", **quick)
    [task] = strict.partitions()
    with Client(servers(live)) as client:
        client.admin.delete_topic("short-lived")
    with pytest.raises(DataLossError, match="short-lived-0"):
        list(strict.read(task))
    assert not list(tolerant.read(task))


def test_an_offset_that_a_new_leader_has_after_all_is_read(live: Broker) -> None:
    topic(live, "refused-once", [3])
    reader = planned(live, subscribe="refused-once", failOnDataLoss="false")
    [task] = reader.partitions()
    refused = live.faults.on("Fetch").once().answer(ErrorCode.OFFSET_OUT_OF_RANGE)
    found = [offset for batch in reader.read(task) for offset in batch.column("offset").to_pylist()]
    live.faults.remove(refused.expect())
    assert found == [0, 1, 2]


def test_what_is_written_while_a_query_runs_is_not_read(spark: SparkSession, live: Broker) -> None:
    """Spark reads the second partition after the first one, when both have more records."""
    topic(live, "growing", [3, 4])
    found = []
    for row in load(spark, live, subscribe="growing").toLocalIterator():
        if not found:
            append(live, "growing", [2, 2])
        found.append((row.partition, row.offset))
    assert sorted(found) == [*((0, n) for n in range(3)), *((1, n) for n in range(4))]
    assert load(spark, live, subscribe="growing").count() == 11


def test_times_of_the_broker(spark: SparkSession, live: Broker) -> None:
    topic(live, "stamped", [2], **{"message.timestamp.type": "LogAppendTime"})
    with Client(servers(live)) as client:
        expected = [(r.timestamp, 1) for _, r in client.records("stamped", end=2)]
    frame = load(spark, live, subscribe="stamped").orderBy("offset")
    found = frame.selectExpr("unix_millis(timestamp)", "timestampType").collect()
    assert [tuple(row) for row in found] == expected


# Batches.


@pytest.mark.parametrize(
    ("position", "left"),
    [
        (16, [0, 1]),  # the format: where the next batch begins is not known
        (17, [0, 1, 3, 4]),  # the checksum
        (-1, [0, 1, 3, 4]),  # the last byte that is summed
    ],
)
def test_a_batch_that_is_damaged(
    spark: SparkSession, tmp_path: Path, position: int, left: list[int]
) -> None:
    with Broker.start(data_dir=tmp_path) as broker:
        topic(broker, "torn", [5])
        log = tmp_path / "torn-0" / f"{0:020}.log"
        data = bytearray(log.read_bytes())
        third, fourth = list(read_headers(bytes(data)))[2:4]
        data[(third if position >= 0 else fourth).position + position] ^= 0xFF
        with log.open("r+b") as file:  # the broker keeps it open
            file.write(data)
        with fails("DataLossError: torn-0"):
            load(spark, broker, subscribe="torn").count()
        tolerant = load(spark, broker, subscribe="torn", failOnDataLoss="false")
        assert sorted(row.offset for row in tolerant.collect()) == left


# Filters.


class Meter:
    """Passes connections on to a broker and counts the bytes that come back."""

    def __init__(self) -> None:
        self.received = 0
        self.target = ("127.0.0.1", 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def close(self) -> None:
        # It wakes up the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=run, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.target)
            self._start(self._pass, client, server, False)
            self._start(self._pass, server, client, True)

    def _pass(self, source: socket.socket, sink: socket.socket, back: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if back:
                    self.received += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()


def spread(address: str) -> None:
    """A megabyte in a hundred batches, ten seconds apart."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": "0"})
    for number in range(100):
        at = FIRST_MS + number * STEP_MS
        producer.produce("metered", bytes(10_000), partition=0, timestamp=at)
        assert producer.flush(PATIENCE) == 0


def test_filters_of_spark_save_bytes(spark: SparkSession, tmp_path: Path) -> None:
    meter = Meter()
    properties = {"advertised.listeners": f"PLAINTEXT://{meter.address}"}
    spark.conf.set(PUSHDOWN_SETTING, "true")
    try:
        with Broker.start(data_dir=tmp_path, properties=properties) as broker:
            meter.target = broker.addresses["PLAINTEXT"]
            spread(meter.address)

            def cost(condition: str, expected: int) -> int:
                before = meter.received
                frame = load(
                    spark,
                    broker,
                    kafka__bootstrap__servers=meter.address,
                    # This many bytes may follow the last requested offset.
                    kafka__max__partition__fetch__bytes=20_000,
                    subscribe="metered",
                )
                assert frame.where(condition).count() == expected
                return meter.received - before

            everything = cost("true", 100)
            assert everything > 1_000_000
            late = moment(FIRST_MS + 98 * STEP_MS)
            assert cost(f"timestamp >= {late}", 2) < everything / 20
            assert cost(f"timestamp > {late} and partition = 0", 1) < everything / 20
            assert cost("offset between 40 and 43", 4) < everything / 10
            # What cannot be pushed down is read, and filtered by Spark.
            assert cost(f"timestamp < {late}", 98) > everything * 0.9
    finally:
        spark.conf.unset(PUSHDOWN_SETTING)
        meter.close()


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("loss", [False, True])
def test_keys_of_headers_that_are_not_utf8(tmp_path: Path, headers: bool, loss: bool) -> None:
    """All rows of the batch are read, from brokers and from files, as Java's client reads them."""
    options = {"failOnDataLoss": str(loss), "includeHeaders": str(headers)}
    with Broker.start(data_dir=tmp_path) as broker, Client(servers(broker)) as client:
        with client.producer() as producer:
            for number in range(4):
                keys = [(HeaderKey(b"h\xe9"), b"x")] if number == 1 else []
                producer.send("t", b"%d" % number, headers=keys, partition=0)
        live = {"kafka.bootstrap.servers": servers(broker), "subscribe": "t", **options}
        found = [_rows(live)]
    found.append(_rows({"source": "logs", "path": str(tmp_path / "t-0"), **options}))
    for rows in found:
        assert [row["value"] for row in rows] == [b"0", b"1", b"2", b"3"]
        if headers:
            shown = [{"key": "h\ufffd", "value": b"x"}]
            assert [row["headers"] for row in rows] == [None, shown, None, None]


def _rows(options: dict[str, str]) -> list[dict[str, Any]]:
    source = KrammarDataSource(options)
    reader: Any = source.reader(source.schema())
    return [
        row
        for task in reader.partitions()
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]


# Retention while a query runs.


def _tasks(broker: Broker, name: str, **options: str) -> tuple[Any, list[Any]]:
    """A reader and the tasks that it has planned."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    source = KrammarDataSource(
        {"kafka.bootstrap.servers": servers(broker), "subscribe": name, **given}
    )
    reader = source.reader(source.schema())
    return reader, list(reader.partitions())


def _offsets(reader: Any, tasks: list[Any]) -> list[tuple[int, int]]:
    rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    return sorted((row["partition"], row["offset"]) for row in rows)


@pytest.mark.parametrize("size", [{}, {"minPartitions": "6"}, {"minRecordsPerPartition": "1"}])
@pytest.mark.parametrize(
    "starting",
    [
        {},
        {"startingOffsets": "earliest"},
        {"startingOffsets": '{"early": {"0": -2, "1": -2}}'},
        {"startingGroup": "early"},
    ],
)
def test_earliest_is_what_it_is_when_a_task_begins(
    broker: Broker, starting: dict[str, str], size: dict[str, str]
) -> None:
    with Client(servers(broker)) as client:
        if "early" in client.topics():
            client.admin.delete_topic("early")
        topic(broker, "early", [10, 10])
        expected = [(p, offset) for p in range(2) for offset in range(10)]
        if "startingGroup" in starting:  # only one of the partitions
            client.groups.commit("early", {("early", 1): 0})
        reader, tasks = _tasks(broker, "early", **starting, **size)
        for before in (0, 4, 7, 10):
            client.admin.delete_records({("early", 0): before})
            assert _offsets(reader, tasks) == [each for each in expected if each >= (0, before)]
        if "startingGroup" in starting:
            client.admin.delete_records({("early", 1): 1})
            with pytest.raises(DataLossError, match="early-1"):
                _offsets(reader, tasks)


@pytest.mark.parametrize("starting", ['{"numbers": {"0": 0}}', "earliest"])
def test_deleted_offsets_that_were_asked_for(broker: Broker, starting: str) -> None:
    """A number, or a later offset of a task that has begun."""
    with Client(servers(broker)) as client:
        if "numbers" in client.topics():
            client.admin.delete_topic("numbers")
        client.admin.create_topic("numbers", 1)
        with client.producer() as producer:
            for _ in range(3000):
                producer.send("numbers", bytes(1000), partition=0)
        reader, tasks = _tasks(broker, "numbers", startingOffsets=starting)
        (task,) = tasks
        batches = reader.read(task)
        if starting == "earliest":
            next(batches)
        client.admin.delete_records({("numbers", 0): 2900})
        with pytest.raises(DataLossError, match="numbers-0"):
            list(batches)
