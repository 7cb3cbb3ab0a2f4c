"""Transactional producers that outlive a power cut of the broker commit no half transaction, and none that they have aborted."""

from __future__ import annotations

import asyncio
import copy
import errno
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka_wire import ErrorCode

from krammar.broker import Broker
from krammar.broker.timers import Timers
from krammar.broker.transactions.state import Transaction
from krammar.broker.transactions.store import StateStore
from krammar.util import boot as boot_module
from tests.broker.faulty_disk import CALLS, Disk
from tests.broker.power import MODELS, Power, State, materialize
from tests.broker.requests import create_topic
from tests.broker.support import RawClient
from tests.broker.transactions.support import Producer, find_coordinators, restart
from tests.broker.transactions.test_lost_states import (
    NEW,
    OLD,
    T1,
    T,
    both,
    committed,
    produce,
    transact,
)
from tests.support.waiting import PATIENCE

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
FSYNCS = ("interval", "never", "off")
HOUR = {"krammar.fsync.interval.ms": "3600000"}


def start(folder: Path, fsync: str = "interval", port: int = 0) -> Broker:
    return Broker.start(data_dir=folder, properties={"krammar.fsync": fsync, **HOUR}, port=port)


def crash(folder: Path, fsync: str, run: Callable[[RawClient], None]) -> Path:
    """The files after ``run``, as a broker leaves them that does not shut down."""
    with start(folder / "before", fsync) as broker, RawClient(broker.port) as client:
        find_coordinators(client)
        create_topic(client, "t", 2)
        run(client)
        broker.call(lambda: shutil.copytree(folder / "before", folder / "after"))
    return folder / "after"


def lose_records(folder: Path) -> None:
    """Lose all records of a partition that were not forced to the disk."""
    (folder / "t-0" / f"{0:020}.log").write_bytes(b"")


@both
@pytest.mark.parametrize("fsync", FSYNCS)
def test_a_producer_cannot_commit_the_rest_of_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str, versions: tuple[int, int]
) -> None:
    producers: list[Producer] = []

    def run(client: RawClient) -> None:
        producers.append(Producer(client).begun())
        produce(producers[0], versions, b"lost")

    folder = crash(tmp_path, fsync, run)
    lose_records(folder)
    restart(monkeypatch)
    with start(folder, fsync) as broker, RawClient(broker.port) as client:
        old = producers[0]
        old.client = client
        assert old.produce(T, b"rest", version=versions[0]) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert old.end(version=versions[1]) is FENCED
        assert old.init(known=(old.id, old.epoch)) is FENCED
        assert committed(broker) == []
        new = Producer(client).begun()
        assert new.id != old.id
        transact(new, versions, b"new")
        assert committed(broker) == [b"new"]
        assert old.init(known=(old.id, old.epoch)) is FENCED


@pytest.mark.parametrize("fsync", FSYNCS)
def test_a_producer_cannot_commit_what_it_has_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str
) -> None:
    """The abort is lost, both its state and its marker. Older clients use the same epoch for all transactions."""
    producers: list[Producer] = []

    def run(client: RawClient) -> None:
        producers.append(Producer(client).begun())
        assert producers[0].add(T) == {T: NONE}
        assert producers[0].produce(T, b"aborted", version=11) is NONE
        folder = tmp_path / "before"
        shutil.copytree(folder, tmp_path / "early")
        assert producers[0].end(False, version=4) is NONE

    crash(tmp_path, fsync, run)
    restart(monkeypatch)
    with start(tmp_path / "early", fsync) as broker, RawClient(broker.port) as client:
        old = producers[0]
        old.client = client
        assert old.add(T1) == {T1: FENCED}
        assert old.end(version=4) is FENCED
        assert committed(broker) == []


def test_a_producer_whose_last_states_are_lost_has_no_valid_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each transaction has its own epoch. The states show an older one than the producer has."""
    producers: list[Producer] = []

    def run(client: RawClient) -> None:
        producers.append(Producer(client).begun())
        shutil.copytree(tmp_path / "before", tmp_path / "early")
        transact(producers[0], NEW, b"1")
        produce(producers[0], NEW, b"2")

    crash(tmp_path, "interval", run)
    restart(monkeypatch)
    with start(tmp_path / "early") as broker, RawClient(broker.port) as client:
        old = producers[0]
        old.client = client
        assert old.produce(T, b"3") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert old.end() is FENCED
        assert committed(broker) == []


@both
@pytest.mark.parametrize("reason", ["a kill", "always"])
def test_nobody_is_fenced_if_nothing_can_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, versions: tuple[int, int]
) -> None:
    producers: list[Producer] = []

    def run(client: RawClient) -> None:
        producers.append(Producer(client).begun())
        produce(producers[0], versions, b"1")

    folder = crash(tmp_path, "always" if reason == "always" else "interval", run)
    if reason == "always":
        restart(monkeypatch)
    with start(folder) as broker, RawClient(broker.port) as client:
        producers[0].client = client
        produce(producers[0], versions, b"2")
        assert producers[0].end(version=versions[1]) is NONE
        assert committed(broker) == [b"1", b"2"]


def test_records_that_an_earlier_broker_has_not_forced_can_still_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker that ran during the power cut forces its own records."""
    producers: list[Producer] = []

    def run(client: RawClient) -> None:
        producers.append(Producer(client).begun())
        produce(producers[0], NEW, b"lost")

    folder = crash(tmp_path, "never", run)
    with start(folder, "always") as broker:
        broker.call(lambda: shutil.copytree(folder, tmp_path / "again"))
    lose_records(tmp_path / "again")
    restart(monkeypatch)
    with start(tmp_path / "again", "always") as broker, RawClient(broker.port) as client:
        producers[0].client = client
        assert producers[0].end() is FENCED
        assert committed(broker) == []


def test_many_producers_are_fenced_in_many_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers: list[Producer] = []

    def run(client: RawClient) -> None:
        producers.extend(Producer(client, f"id{number}").begun() for number in range(5))

    folder = crash(tmp_path, "interval", run)
    restart(monkeypatch)
    happened: list[str] = []
    put = StateStore.put

    def noted_put(store: StateStore, transactional_id: str, transaction: Transaction) -> None:
        put(store, transactional_id, transaction)
        happened.append("fenced")
        asyncio.get_running_loop().call_soon(happened.append, "turn")

    in_turns = Timers.in_turns

    def one_per_turn(timers: Timers, *of: Any) -> None:
        timers.budget.seconds = 0
        in_turns(timers, *of)

    monkeypatch.setattr(StateStore, "put", noted_put)
    monkeypatch.setattr(Timers, "in_turns", one_per_turn)
    with start(folder) as broker, RawClient(broker.port) as client:
        for producer in producers:
            producer.client = client
            assert producer.end() is FENCED
            while producer.init() is ErrorCode.CONCURRENT_TRANSACTIONS:
                pass
        assert happened[:2] == ["fenced", "turn"]
        assert not broker.logs.lost_power


def test_a_clean_shutdown_before_a_restart_of_the_machine_fences_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(tmp_path) as broker, RawClient(broker.port) as client:
        find_coordinators(client)
        create_topic(client, "t", 1)
        producer = Producer(client).begun()
        produce(producer, NEW, b"1")
    restart(monkeypatch)
    with start(tmp_path) as broker, RawClient(broker.port) as client:
        producer.client = client
        assert producer.end() is NONE
        assert committed(broker) == [b"1"]


@pytest.mark.parametrize("what", ["no file", "zeros", "no boot id"])
def test_an_unknown_run_counts_as_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    if what == "no boot id":
        restart(monkeypatch, boot_module.UNKNOWN_BOOT)
    producers: list[Producer] = []
    folder = crash(tmp_path, "interval", lambda client: producers.append(Producer(client).begun()))
    if what == "no file":
        (folder / ".krammar_running").unlink()
    elif what == "zeros":
        (folder / ".krammar_running").write_bytes(bytes(40))
    with start(folder) as broker, RawClient(broker.port) as client:
        producers[0].client = client
        assert producers[0].end() is FENCED


def test_the_next_start_fences_if_this_one_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers: list[Producer] = []
    folder = crash(tmp_path, "interval", lambda client: producers.append(Producer(client).begun()))
    before = (folder / ".krammar_running").read_bytes()
    restart(monkeypatch)
    with monkeypatch.context() as patch:
        disk = Disk(folder, patch)
        disk.fail("p?writev?", "__transaction_state-0/.*[.]log", errno.ENOSPC)
        with start(folder) as broker, RawClient(broker.port) as client:
            producers[0].client = client
            assert producers[0].end() is FENCED
            assert producers[0].init() is ErrorCode.CONCURRENT_TRANSACTIONS
        assert disk.failed
        disk.mend()
    assert (folder / ".krammar_running").read_bytes() == before
    # A clean shutdown does not hide the power cut.
    with start(folder) as broker, RawClient(broker.port) as client:
        producers[0].client = client
        assert producers[0].end() is FENCED
        assert producers[0].init() is NONE
    assert (folder / ".krammar_running").read_bytes() != before


def test_the_fence_takes_effect_when_the_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers: list[Producer] = []
    folder = crash(tmp_path, "interval", lambda client: producers.append(Producer(client).begun()))
    before = (folder / ".krammar_running").read_bytes()
    restart(monkeypatch)
    with monkeypatch.context() as patch:
        disk = Disk(folder, patch)
        disk.fail("p?writev?", "__transaction_state-0/.*[.]log", errno.ENOSPC)
        with start(folder) as broker, RawClient(broker.port) as client:
            producers[0].client = client
            assert producers[0].init() is ErrorCode.CONCURRENT_TRANSACTIONS
            disk.mend()
            while producers[0].init() is ErrorCode.CONCURRENT_TRANSACTIONS:
                pass  # the coordinator repeats the write
            assert (folder / ".krammar_running").read_bytes() != before


@pytest.mark.parametrize("fsync", ["always", "interval"])
def test_a_failed_flush_counts_as_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str
) -> None:
    """The kernel can have dropped the states of a transaction whose records and markers are on the disk."""
    with monkeypatch.context() as patch:
        disk = Disk(tmp_path, patch)
        with start(tmp_path, fsync) as broker, RawClient(broker.port) as client:
            find_coordinators(client)
            create_topic(client, "t", 2)
            producer = Producer(client).begun()
            transact(producer, NEW, b"1")
            produce(producer, NEW, b"2")
            with disk.failing("f(data)?sync", "__transaction_state-0/.*"):
                if fsync == "always":
                    assert producer.produce(T1, b"lost") is not NONE
                else:
                    broker.call(broker.logs.flush)
    with start(tmp_path, fsync) as broker, RawClient(broker.port) as client:
        producer.client = client
        if fsync == "always":  # nothing was acknowledged that can be lost
            assert producer.end() is NONE
            assert committed(broker) == [b"1", b"2"]
        else:
            assert producer.end() is FENCED
            assert committed(broker) == [b"1"]
            transact(Producer(client).begun(), NEW, b"new")
    with start(tmp_path, fsync) as broker:
        assert not broker.logs.lost_power


def test_the_next_start_aborts_what_this_one_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction of a lost transactional id, in a partition that is full or offline."""

    def run(client: RawClient) -> None:
        find_coordinators(client)
        assert Producer(client).begun().produce(T, b"lost") is NONE

    folder = crash(tmp_path, "interval", run)
    (folder / "__transaction_state-0" / f"{0:020}.log").write_bytes(b"")
    restart(monkeypatch)
    for call, error in (("p?writev?", errno.ENOSPC), ("pread", errno.EIO)):
        with monkeypatch.context() as patch:
            disk = Disk(folder, patch, [*CALLS, "pread"])
            disk.fail(call, "t-0/.*[.]log", error)
            with start(folder) as broker, RawClient(broker.port) as client:
                Producer(client, "other").begun()
                assert broker.logs.lost_power
            assert disk.failed
    with start(folder) as broker, RawClient(broker.port) as client:
        transact(Producer(client).begun(), NEW, b"new")
        assert committed(broker) == [b"new"]
        assert not broker.logs.lost_power


def test_a_client_gets_a_fatal_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start(tmp_path / "before") as broker:
        port = broker.port
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": "id",
                "log_level": 0,
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("t", b"lost")
        producer.flush(PATIENCE)
        broker.call(lambda: shutil.copytree(tmp_path / "before", tmp_path / "after"))
    lose_records(tmp_path / "after")
    restart(monkeypatch)
    with start(tmp_path / "after", port=port) as broker:
        producer.produce("t", b"rest")
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            producer.commit_transaction(30)
        error = caught.value.args[0]
        assert error.fatal() and error.code() == confluent_kafka.KafkaError._FENCED, error
        assert committed(broker) == []


@dataclass
class Cut:
    """A state of the disk, and the producer's knowledge at that time."""

    where: str
    state: State
    producer: Producer
    committed: set[bytes]
    open: set[bytes]


def cuts(
    folder: Path, fsync: str, versions: tuple[int, int], patch: pytest.MonkeyPatch
) -> list[Cut]:
    """Let a producer work, and collect what power cuts between its requests can leave."""
    found: list[Cut] = []
    done: set[bytes] = set()
    open_: set[bytes] = set()
    power = Power(folder, patch)
    with start(folder, fsync) as broker, RawClient(broker.port) as client:
        find_coordinators(client)
        create_topic(client, "t", 2)
        broker.call(broker.logs.flush)
        producer = Producer(client).begun()

        def take(name: str) -> None:
            for model in MODELS:
                own = copy.copy(producer)
                own.sequences = dict(producer.sequences)
                state = broker.call(power.state, model)
                found.append(Cut(f"{model}, {name}", state, own, set(done), set(open_)))

        def step(value: bytes, partition: tuple[str, int] = T) -> None:
            if versions == OLD:
                assert producer.add(partition) == {partition: NONE}
            assert producer.produce(partition, value, version=versions[0]) is NONE
            open_.add(value)
            take(f"after {value!r}")

        def end(commit: bool) -> None:
            assert producer.end(commit, version=versions[1]) is NONE
            if commit:
                done.update(open_)
            open_.clear()
            take("after the end of a transaction")

        step(b"1")
        step(b"2", T1)
        broker.call(broker.logs.flush)
        end(commit=True)
        step(b"3")
        broker.call(broker.logs.flush)
        end(commit=False)
        step(b"4")
        step(b"5", T1)
        broker.call(broker.logs.flush)
        step(b"6")
    power.close()
    return found


@both
@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_a_producer_that_continues_commits_a_whole_transaction_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str, versions: tuple[int, int]
) -> None:
    with monkeypatch.context() as patch:
        found = cuts(tmp_path / "data", fsync, versions, patch)
    outcomes = set()
    for number, cut in enumerate(found):
        folder = tmp_path / f"{number}"
        materialize(cut.state, folder)
        restart(monkeypatch)
        with start(folder, fsync) as broker, RawClient(broker.port) as client:
            producer = cut.producer
            producer.client = client
            # It ignores all errors, as no client does.
            if versions == OLD:
                producer.add(T)
            producer.produce(T, b"rest", version=versions[0])
            code = producer.end(version=versions[1])
            outcomes.add(code)
            values = {*committed(broker), *committed(broker, 1)}
            expected = cut.open | {b"rest"} if code is NONE else set()
            assert values - cut.committed == expected, cut.where
            assert fsync != "always" or cut.committed <= values, cut.where
        shutil.rmtree(folder)
    if fsync == "always":
        assert NONE in outcomes
    else:
        assert outcomes <= {FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
