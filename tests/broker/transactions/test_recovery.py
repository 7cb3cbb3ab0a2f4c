"""Transactions across restarts, timeouts, and failed writes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kafka_wire import ErrorCode, InitProducerIdRequest

from krammar.broker import Broker
from krammar.broker.log.log import PartitionLog
from krammar.broker.transactions.state import Transaction
from krammar.wire.batches import Record, read_batches
from tests.broker.requests import create_topic, fetch
from tests.broker.support import BrokerProcess, RawClient
from tests.broker.transactions.support import (
    Clock,
    Producer,
    await_bytes,
    committed_offset,
    describe,
    ends,
    find_coordinators,
    listed,
)

NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
T = ("t", 0)
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def broker(tmp_path: Path, clock: Clock) -> Iterator[Broker]:
    with Broker.start(data_dir=tmp_path, clock=clock) as broker:
        yield broker


@pytest.fixture
def client(client: RawClient) -> RawClient:
    find_coordinators(client)
    create_topic(client, "t", 2)
    return client


def states(broker: Broker) -> list[tuple[bytes, bytes | None]]:
    """Keys and values of the log of states."""
    log = log_of(broker, "__transaction_state")
    batches = broker.call(lambda: list(log.reader.batches()))
    return [(record.key or b"", record.value) for batch in batches for record in batch]


def log_of(broker: Broker, topic: str, partition: int = 0) -> PartitionLog:
    log = broker.logs.get(topic, partition)
    assert log is not None
    return log


def known(broker: Broker, name: str = "id") -> Transaction:
    return broker.call(broker.transactions.describe, name)


# Restarts.


def test_an_open_transaction_goes_on_after_a_restart(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        find_coordinators(client)
        create_topic(client, "t")
        producer = Producer(client).begun()
        assert producer.produce(T, b"1") is NONE
        assert producer.commit_offset("group", "t", 5) is NONE
        before = known(broker)
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert known(broker) == replace(before, last_epoch=-1)
        assert ends(client, "t") == (1, 0, [])
        assert committed_offset(client, "group", "t") == -1
        producer.client = client
        assert producer.produce(T, b"2") is NONE
        assert producer.end() is NONE
        assert ends(client, "t") == (3, 3, [])
        assert committed_offset(client, "group", "t") == 5


def test_an_open_transaction_times_out_after_a_crash(tmp_path: Path) -> None:
    arguments = ["--data-dir", tmp_path, "--port", "0"]
    with BrokerProcess(arguments) as process:
        with RawClient(process.port) as client:
            find_coordinators(client)
            create_topic(client, "t")
            producer = Producer(client).begun(timeout=1500)
            assert producer.produce(T, b"1") is NONE
            assert producer.commit_offset("group", "t", 5) is NONE
        process.kill()
    with BrokerProcess(arguments) as process, RawClient(process.port) as client:
        await_bytes(client, "t")  # no client of the transaction has asked for anything
        assert ends(client, "t") == (2, 2, [(producer.id, 0)])
        [state] = describe(client, "id")
        assert state.transaction_state == "CompleteAbort"
        assert state.producer_epoch == producer.epoch + 1
        assert committed_offset(client, "group", "t") == -1
        producer.client = client
        assert producer.produce(T, b"2") is ErrorCode.INVALID_PRODUCER_EPOCH


def test_time_that_passed_while_the_broker_was_down_counts(tmp_path: Path, clock: Clock) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        find_coordinators(client)
        create_topic(client, "t")
        assert Producer(client).begun(timeout=900000).produce(T) is NONE
    clock.ahead_ms = 900001
    with Broker.start(data_dir=tmp_path, clock=clock) as broker, RawClient(broker.port) as client:
        await_bytes(client, "t")
        assert known(broker).state.name == "CompleteAbort"


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_is_completed_at_the_next_start(
    tmp_path: Path, commit: bool
) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        find_coordinators(client)
        create_topic(client, "t")
        producer = Producer(client).begun()
        assert producer.produce(T) is NONE
        assert producer.commit_offset("group", "t", 5) is NONE
        used = producer.epoch
        log = log_of(broker, "t")
        broker.call(setattr, log.state, "closed", True)
        assert producer.end(commit) is NONE
        assert known(broker).is_prepared
        broker.call(setattr, log.state, "closed", False)
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        await_bytes(client, "t")
        assert ends(client, "t") == (2, 2, [] if commit else [(producer.id, 0)])
        after = known(broker)
        assert after.state.name == ("CompleteCommit" if commit else "CompleteAbort")
        assert after.epoch == used + 1
        assert committed_offset(client, "group", "t") == (5 if commit else -1)
        producer.client = client
        assert producer.produce(T) is NONE
        assert producer.end() is NONE


def test_markers_may_be_there_already(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        find_coordinators(client)
        create_topic(client, "t")
        producer = Producer(client).begun()
        assert producer.produce(T, b"1") is NONE
        opened = known(broker)
        assert producer.end() is NONE
        prepared = opened.ended(opened.producer_id, opened.epoch, True, 2, 1000, lambda: -1)
        # As if the complete state had not been written any more.
        broker.call(broker.transactions.store.put, "id", prepared)
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        producer.client = client
        assert producer.produce(T, b"2") is NONE
        assert producer.end() is NONE
        batches = list(read_batches(fetch(client, "t", isolation_level=1).records))
        assert [batch.is_control for batch in batches] == [False, True, True, False, True]
        assert ends(client, "t") == (5, 5, [])


def test_producer_ids_are_not_given_out_twice(tmp_path: Path) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
    found = []
    for _ in range(3):
        with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
            found += [client.call(request, 5).producer_id for _ in range(2)]
    assert found == [0, 1, 1000, 1001, 2000, 2001]


def test_what_is_no_state_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        find_coordinators(client)
        producer = Producer(client).begun()
        [(_, value)] = states(broker)
        assert value is not None
        strange = [
            Record(key=b"\0\7future kind", value=b"?"),
            Record(key=b"\0\0\0\2xx", value=b"\0\1short"),
            Record(key=b"\0\0\0\2yy", value=b"\0\7future version"),
            Record(key=b"\0\0\0\2zz", value=value[:16] + b"\x63" + value[17:]),
            Record(key=b"\0\0", value=value),
        ]
        broker.call(log_of(broker, "__transaction_state").append_records, strange)
    with (
        caplog.at_level(logging.WARNING),
        Broker.start(data_dir=tmp_path) as broker,
        RawClient(broker.port) as client,
    ):
        assert listed(client) == {"id": "Empty"}
        producer.client = client
        assert producer.init() is NONE
        assert producer.epoch == 1
    file = tmp_path / "__transaction_state-0" / f"{0:020}.log"
    skipped = [f"{file}: the record at offset {offset} is skipped" for offset in (2, 3, 4, 5)]
    assert [
        r.getMessage().partition(" skipped: ")[0] + " skipped" for r in caplog.records
    ] == skipped


def test_a_damaged_log_of_states_is_read_as_far_as_it_is_sound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        find_coordinators(client)
        for name in ("one", "two", "three"):
            Producer(client, name).begun()
    [path] = tmp_path.glob("__transaction_state-0/*.log")
    data = bytearray(path.read_bytes())
    data[data.index(b"two")] ^= 1
    path.write_bytes(data)
    with (
        caplog.at_level(logging.ERROR),
        Broker.start(data_dir=tmp_path) as broker,
        RawClient(broker.port) as client,
    ):
        assert listed(client) == {"one": "Empty"}
        assert Producer(client, "two").begun().epoch == 0
    assert "__transaction_state-0: the states after this error are lost" in caplog.text


# Time.


def test_transactions_time_out(broker: Broker, clock: Clock, client: RawClient) -> None:
    late, early = Producer(client, "late"), Producer(client, "early")
    assert late.begun(timeout=60000).produce(T) is NONE
    assert early.begun(timeout=20000).produce(("t", 1)) is NONE
    idle = Producer(client, "idle").begun(timeout=10000)
    expected = []
    for ahead in (19000, 1001, 38000, 2000):
        clock.ahead_ms += ahead
        broker.call(broker.transactions.abort_timed_out)
        expected.append((early.state, late.state, idle.state))
    assert expected == [
        ("Ongoing", "Ongoing", "Empty"),
        ("CompleteAbort", "Ongoing", "Empty"),
        ("CompleteAbort", "Ongoing", "Empty"),
        ("CompleteAbort", "CompleteAbort", "Empty"),
    ]
    assert early.produce(("t", 1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert early.end(True) is ErrorCode.INVALID_TXN_STATE
    assert early.end(False) is NONE
    assert early.produce(("t", 1)) is NONE


def test_a_timer_aborts_them(client: RawClient) -> None:
    assert Producer(client, "late").begun().produce(("t", 1)) is NONE
    assert Producer(client).begun(timeout=50).produce(T) is NONE
    await_bytes(client, "t")
    assert Producer(client).state == "CompleteAbort"
    assert Producer(client, "late").state == "Ongoing"


def test_fenced_producers_cannot_go_on_without_the_feature(
    broker: Broker, clock: Clock, client: RawClient
) -> None:
    broker.call(broker.cluster.features.__setitem__, "transaction.version", 0)
    producer = Producer(client).begun()
    producer.add(T)
    assert producer.produce(T, version=11) is NONE
    clock.ahead_ms += 60001
    broker.call(broker.transactions.abort_timed_out)
    assert producer.state == "CompleteAbort"
    assert producer.end(False, version=4) is ErrorCode.PRODUCER_FENCED
    assert producer.init(known=(producer.id, 0)) is ErrorCode.PRODUCER_FENCED
    assert all((value or b"")[:2] == b"\0\0" for _, value in states(broker))


def test_ids_out_of_use_are_forgotten(broker: Broker, clock: Clock, client: RawClient) -> None:
    old, busy = Producer(client, "old").begun(), Producer(client, "busy").begun()
    busy.add(T)
    clock.ahead_ms += 6 * DAY_MS
    fresh = Producer(client, "fresh").begun()
    broker.call(broker.transactions.expire)
    assert listed(client).keys() == {"old", "busy", "fresh"}
    clock.ahead_ms += DAY_MS + 1000
    broker.call(broker.transactions.expire)
    assert listed(client) == {"busy": "Ongoing", "fresh": "Empty"}
    assert states(broker)[-1] == (b"\0\0\0\3old", None)
    assert old.describe().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert old.end() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # A producer that was only idle continues with another id.
    used = old.id
    assert old.init(known=(used, 0)) is NONE
    assert old.epoch == 0
    assert old.id not in (used, busy.id, fresh.id)


def test_forgotten_ids_stay_forgotten(tmp_path: Path, clock: Clock) -> None:
    with (
        Broker.start(data_dir=tmp_path, clock=clock) as broker,
        RawClient(broker.port) as client,
    ):
        find_coordinators(client)
        Producer(client).begun()
        clock.ahead_ms += 8 * DAY_MS
        broker.call(broker.transactions.expire)
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert listed(client) == {}


# Disks that refuse.


def test_markers_are_tried_again(broker: Broker, client: RawClient) -> None:
    producer = Producer(client).begun()
    assert producer.produce(T) is NONE
    assert producer.produce(("t", 1)) is NONE
    log = log_of(broker, "t", 1)
    broker.call(setattr, log.state, "closed", True)
    used = producer.epoch
    assert producer.end() is NONE
    assert producer.epoch == used + 1
    described = producer.describe()
    assert described.transaction_state == "PrepareCommit"
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("t", [1])]
    assert producer.end(epoch=used) is BUSY
    assert producer.init() is BUSY
    assert producer.add(T) == {T: BUSY}
    assert producer.produce(T, version=12) is BUSY
    assert producer.produce(T, version=11) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert producer.commit_offset("group", "t", 1) is BUSY
    broker.call(setattr, log.state, "closed", False)
    await_bytes_of = fetch(client, "t", partition=1, isolation_level=1, max_wait_ms=50000)
    assert await_bytes_of.records
    assert producer.state == "CompleteCommit"
    assert producer.end(epoch=used) is NONE
    assert ends(client, "t") == (2, 2, [])
    assert producer.produce(T) is NONE


def test_what_cannot_be_written_has_not_happened(broker: Broker, client: RawClient) -> None:
    refused = ErrorCode.NOT_COORDINATOR
    producer = Producer(client).begun()
    assert producer.produce(T) is NONE
    log = log_of(broker, "__transaction_state")
    before = known(broker)
    broker.call(setattr, log.state, "closed", True)
    assert producer.add(("t", 1)) == {("t", 1): refused}
    assert producer.produce(("t", 1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert producer.end() is refused
    assert producer.init() is refused
    assert Producer(client, "new").init() is refused
    assert known(broker) == before
    assert ends(client, "t") == (1, 0, [])
    broker.call(setattr, log.state, "closed", False)
    assert producer.produce(("t", 1)) is NONE
    assert producer.end() is NONE
    assert Producer(client, "new").init() is NONE
    assert ends(client, "t") == (2, 2, [])


def test_a_time_out_that_cannot_be_written_is_tried_again(
    broker: Broker, clock: Clock, client: RawClient
) -> None:
    producer = Producer(client).begun()
    assert producer.produce(T) is NONE
    log = log_of(broker, "__transaction_state")
    broker.call(setattr, log.state, "closed", True)
    clock.ahead_ms += 60001
    broker.call(broker.transactions.abort_timed_out)
    assert producer.state == "Ongoing"
    broker.call(setattr, log.state, "closed", False)
    await_bytes(client, "t")
    assert producer.state == "CompleteAbort"


def test_ids_out_of_use_that_cannot_be_removed_stay(
    broker: Broker, clock: Clock, client: RawClient
) -> None:
    Producer(client).begun()
    clock.ahead_ms += 8 * DAY_MS
    log = log_of(broker, "__transaction_state")
    broker.call(setattr, log.state, "closed", True)
    broker.call(broker.transactions.expire)
    assert listed(client) == {"id": "Empty"}
    broker.call(setattr, log.state, "closed", False)
    broker.call(broker.transactions.expire)
    assert listed(client) == {}


def test_many_ids_are_forgotten_together(clock: Clock) -> None:
    """Their tombstones would not fit into one batch."""
    with (
        Broker.start(clock=clock, properties={"message.max.bytes": "100000"}) as broker,
        RawClient(broker.port) as client,
    ):
        find_coordinators(client)
        for number in range(60):
            Producer(client, f"{number}-" + "x" * 3000).begun()
        clock.ahead_ms += 8 * DAY_MS
        broker.call(broker.transactions.expire)
        assert listed(client) == {}
