"""Transactions after a power cut that lost the end of `__transaction_state`, but not of other logs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka_wire import ErrorCode

from krammar.broker import Broker
from krammar.client import At, Client, TopicPartition
from krammar.wire.batches import read_batches
from tests.broker.requests import create_topic
from tests.broker.support import RawClient
from tests.broker.transactions.support import (
    Producer,
    committed_offset,
    ends,
    find_coordinators,
    restart,
)

NONE = ErrorCode.NONE
T, T1 = ("t", 0), ("t", 1)
# Versions of Produce and EndTxn: of clients with one epoch per producer, and with one epoch per transaction.
OLD, NEW = (11, 4), (12, 5)
both = pytest.mark.parametrize("versions", [OLD, NEW], ids=["old", "new"])


def produce(producer: Producer, versions: tuple[int, int], *values: bytes) -> None:
    """Send records in an open transaction, with the requests of a client's version."""
    if versions == OLD:
        assert producer.add(T) == {T: NONE}
    assert producer.produce(T, *values, version=versions[0]) is NONE


def transact(
    producer: Producer, versions: tuple[int, int], *values: bytes, commit: bool = True
) -> None:
    """Send records in a transaction, and commit or abort it."""
    produce(producer, versions, *values)
    assert producer.end(commit, version=versions[1]) is NONE


@contextmanager
def power_cut(
    folder: Path, left: int | None, run: Callable[[RawClient], object]
) -> Iterator[tuple[Broker, RawClient]]:
    """A broker after a power cut that came after ``run`` and left the first states of transactional ids."""
    with Broker.start(data_dir=folder / "before") as broker, RawClient(broker.port) as client:
        find_coordinators(client)
        create_topic(client, "t", 2)
        run(client)
        broker.call(lambda: shutil.copytree(folder / "before", folder / "after"))
    if left is not None:
        log = folder / "after" / "__transaction_state-0" / f"{0:020}.log"
        data = log.read_bytes()
        log.write_bytes(data[: sum(one.size_in_bytes for one in list(read_batches(data))[:left])])
    with pytest.MonkeyPatch.context() as patch:
        restart(patch)
        with Broker.start(data_dir=folder / "after") as broker, RawClient(broker.port) as client:
            yield broker, client


def committed(broker: Broker, partition: int = 0) -> list[bytes]:
    """The values that consumers of committed transactions read."""
    where = TopicPartition("t", partition)
    level = "read_committed"
    with Client(broker.bootstrap_servers, isolation_level=level) as client:
        end = client.list_offsets({where: At.LATEST}, isolation_level=level)[where].offset
        found = client.fetch({where: 0}, until={where: end})
        return [record.value or b"" for _, record in found.records()]


@both
def test_the_next_transaction_commits_nothing_of_a_lost_one(
    tmp_path: Path, versions: tuple[int, int]
) -> None:
    def run(client: RawClient) -> None:
        produce(Producer(client).begun(), versions, b"lost")

    with power_cut(tmp_path, 1, run) as (broker, client):
        transact(Producer(client).begun(), versions, b"new")
        assert committed(broker) == [b"new"]


@both
def test_a_new_producer_is_not_taken_for_a_lost_one(
    tmp_path: Path, versions: tuple[int, int]
) -> None:
    """With a used epoch, its records would be dropped as duplicates, or refused."""

    def run(client: RawClient) -> None:
        for value in (b"1", b"2", b"3"):
            transact(Producer(client).begun(), versions, value)

    with power_cut(tmp_path, 1, run) as (broker, client):
        transact(Producer(client).begun(), versions, b"new")
        assert committed(broker) == [b"1", b"2", b"3", b"new"]


@both
def test_a_prepared_commit_is_not_repeated_in_a_later_transaction(
    tmp_path: Path, versions: tuple[int, int]
) -> None:
    def run(client: RawClient) -> None:
        producer = Producer(client).begun()
        transact(producer, versions, b"1")
        produce(producer, versions, b"lost")

    # Empty, ongoing, prepared.
    with power_cut(tmp_path, 3, run) as (broker, client):
        transact(Producer(client).begun(), versions, b"new")
        assert committed(broker) == [b"1", b"new"]


def test_a_transaction_that_has_lost_a_partition_is_aborted(tmp_path: Path) -> None:
    producers = []

    def run(client: RawClient) -> None:
        producers.append(Producer(client).begun())
        assert producers[0].produce(T, b"lost") is NONE
        assert producers[0].produce(T1, b"lost") is NONE

    with power_cut(tmp_path, 2, run) as (broker, client):
        producers[0].client = client
        assert producers[0].end() is not NONE
        new = Producer(client).begun()
        assert new.produce(T1, b"new") is NONE
        assert new.end() is NONE
        assert (committed(broker), committed(broker, 1)) == ([], [b"new"])


def test_transactions_of_lost_ids_do_not_hide_later_records(tmp_path: Path) -> None:
    ids = []

    def run(client: RawClient) -> None:
        producer = Producer(client).begun()
        assert producer.produce(T, b"lost") is NONE
        assert producer.commit_offset("group", "t", 5) is NONE
        ids.append(producer.id)

    with power_cut(tmp_path, 0, run) as (_, client):
        Producer(client).begun()
        assert ends(client, "t") == (2, 2, [(ids[0], 0)])
        assert committed_offset(client, "group", "t") == -1


@both
@pytest.mark.parametrize("left", [*range(12), None])
def test_every_part_of_the_states(
    tmp_path: Path, versions: tuple[int, int], left: int | None
) -> None:
    def run(client: RawClient) -> None:
        first = Producer(client).begun()
        transact(first, versions, b"1")
        transact(first, versions, b"aborted", commit=False)
        transact(first, versions, b"2")
        second = Producer(client).begun()
        transact(second, versions, b"3", b"4")
        produce(second, versions, b"lost")

    with power_cut(tmp_path, left, run) as (broker, client):
        new = Producer(client)
        while new.init() is ErrorCode.CONCURRENT_TRANSACTIONS:
            pass
        transact(new, versions, b"new")
        assert committed(broker) == [b"1", b"2", b"3", b"4", b"new"]
        high, stable, _ = ends(client, "t")
        assert stable == high
