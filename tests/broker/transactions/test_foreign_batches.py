"""Batches that a client writes into its own topics, with producer ids and epochs of others, change no other transaction."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kafka_wire import ErrorCode

from krammar.broker import Broker
from krammar.wire.batches import ControlRecord, ControlRecordType, encode_control_batch
from tests.broker.requests import batch, create_topic, produce_request
from tests.broker.support import RawClient
from tests.broker.transactions.support import (
    Clock,
    Producer,
    committed_offset,
    ends,
    find_coordinators,
    restart,
)
from tests.broker.transactions.test_lost_states import NEW, OLD, T1, T, committed

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
HIGHEST = 32767
FOREIGN = "own"  # a topic of the client that attacks
STOPS = ["clean", "kill", "power cut, always", "power cut, interval"]
VERIFICATION = "transaction.partition.verification.enable"


@dataclass
class Victim:
    """A transactional producer with at most one open transaction, and the values that it has committed."""

    producer: Producer
    versions: tuple[int, int]
    group: str
    open: list[tuple[tuple[str, int], bytes]] = field(default_factory=list)
    offset: int = -1  # committed by the last transaction
    pending: int = -1  # the offset that the open transaction commits

    def write(self, where: tuple[str, int], value: bytes) -> ErrorCode:
        if self.versions == OLD and (code := self.producer.add(where)[where]):
            return code
        code = self.producer.produce(where, value, version=self.versions[0])
        if code is NONE:
            self.open.append((where, value))
        return code

    def commit_offset(self, offset: int) -> ErrorCode:
        """Commit an offset of the group in the transaction."""
        version = 5 if self.versions == NEW else 4
        if self.versions == OLD and (code := self.producer.add_offsets(self.group)):
            return code
        code = self.producer.commit_offset(self.group, "t", offset, version=version)
        if code is NONE:
            self.pending = offset
        return code

    def end(self, commit: bool) -> ErrorCode:
        code = self.producer.end(commit, version=self.versions[1])
        if code is NONE:
            self.open.clear()
            if commit and self.pending >= 0:
                self.offset = self.pending
            self.pending = -1
        return code


class World:
    """A broker, transactional producers, and a client that writes foreign batches into its own topic."""

    def __init__(self, folder: Path, chance: random.Random, stop: str) -> None:
        self.folder = folder
        self.chance = chance
        self.stop = stop
        self.committed: dict[tuple[str, int], list[bytes]] = {T: [], T1: []}
        self.victims: list[Victim] = []
        self.red: Producer
        self.written = 0
        self.accepted = 0
        self.properties = {
            "krammar.fsync": stop.partition(", ")[2] or "interval",
            "krammar.fsync.interval.ms": "3600000",
            VERIFICATION: chance.choice(["true", "false"]),
        }

    @contextmanager
    def running(self) -> Iterator[tuple[Broker, RawClient]]:
        with (
            Broker.start(data_dir=self.folder, properties=self.properties) as broker,
            RawClient(broker.port) as client,
        ):
            for victim in self.victims:
                victim.producer.client = client
            if self.victims:
                self.red.client = client
            yield broker, client

    def begin(self, client: RawClient) -> None:
        create_topic(client, "t", 2)
        create_topic(client, FOREIGN, 2)
        find_coordinators(client)
        self.red = Producer(client, "red").begun()
        for number in range(3):
            versions = self.chance.choice([OLD, NEW])
            producer = Producer(client, f"id{number}").begun(timeout=900_000)
            self.victims.append(Victim(producer, versions, f"group{number}"))

    def act(self, victim: Victim) -> None:
        """Let a producer do something valid, which must succeed."""
        self.written += 1
        value = b"%d" % self.written
        what = self.chance.random()
        if what < 0.55:
            assert victim.write(self.chance.choice([T, T1]), value) is NONE
        elif what < 0.7:
            assert victim.commit_offset(self.written) is NONE
        elif victim.open or victim.pending >= 0:
            self.end(victim, self.chance.random() < 0.7)

    def end(self, victim: Victim, commit: bool) -> None:
        values = list(victim.open)
        assert victim.end(commit) is NONE
        if commit:
            for where, value in values:
                self.committed[where].append(value)

    def transact(self, victim: Victim) -> None:
        self.written += 1
        assert victim.write(T, b"%d" % self.written) is NONE
        self.end(victim, True)

    def attack(self) -> None:
        """Send a batch with an id and an epoch that belong to anybody, into a topic of one's own."""
        chance = self.chance
        victim = chance.choice(self.victims).producer
        producer_id = chance.choice(
            [victim.id, victim.id, victim.id + 1, 999, self.red.id, 1 << 62]
        )
        epoch = chance.choice(
            [0, victim.epoch, victim.epoch + 1, chance.randrange(HIGHEST), HIGHEST]
        )
        sequence = chance.choice([0, 0, 0, -1, 7, 2**31 - 1])
        transactional = chance.random() < 0.5
        if chance.random() < 0.3:
            kind = chance.choice([ControlRecordType.ABORT, ControlRecordType.COMMIT])
            marker = ControlRecord(kind, chance.choice([0, 5, 2**31 - 1]), 0, Clock()())
            records = encode_control_batch([marker], producer_id=producer_id, producer_epoch=epoch)
        else:
            records = batch(
                b"foreign",
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=transactional,
                timestamp=Clock()(),
            )
        request = produce_request(
            FOREIGN,
            records,
            partition=chance.randrange(2),
            transactional_id=chance.choice(["red", "red", None, "nobody"]),
        )
        response = self.red.client.call(request, chance.choice([9, 11, 12]))
        code = response.responses[0].partition_responses[0].error_code
        self.accepted += code == NONE

    def mix(self, steps: int) -> None:
        actions: list[Callable[[], None]] = [lambda: self.act(self.chance.choice(self.victims))]
        actions += [self.attack] * 2
        for _ in range(steps):
            self.chance.choice(actions)()

    def end_run(self, broker: Broker, patch: pytest.MonkeyPatch) -> None:
        """Prepare the files that the next start gets: of a broker that still runs, unless it is stopped cleanly."""
        if self.stop == "clean":
            return
        after = self.folder.with_name(f"{self.folder.name}+")
        broker.call(lambda: shutil.copytree(self.folder, after))
        self.folder = after
        if self.stop.startswith("power cut"):
            restart(patch)

    def check_that_all_continue(self, broker: Broker, client: RawClient) -> None:
        for victim in self.victims:
            # Also those without an open transaction: with the epoch of before.
            self.transact(victim)
        self.check_contents(broker, client)

    def check_that_all_are_fenced(self, broker: Broker, client: RawClient) -> None:
        for victim in self.victims:
            assert victim.end(True) is FENCED
            victim.open.clear()
            victim.pending = -1
            old = victim.producer.id
            while (code := victim.producer.init()) is ErrorCode.CONCURRENT_TRANSACTIONS:
                pass
            assert code is NONE and victim.producer.id != old
            self.transact(victim)
        self.check_contents(broker, client)

    def check_contents(self, broker: Broker, client: RawClient) -> None:
        # Transactions are visible in the order of their first records, not of their ends.
        assert sorted(committed(broker)) == sorted(self.committed[T])
        assert sorted(committed(broker, 1)) == sorted(self.committed[T1])
        for victim in self.victims:
            assert committed_offset(client, victim.group, "t") == victim.offset
        high, stable, _ = ends(client, "t")
        assert high == stable


def search(folder: Path, patch: pytest.MonkeyPatch, seed: int, stop: str) -> int:
    """Run and restart a broker, and return the number of foreign batches that it has accepted."""
    world = World(folder / "data", random.Random(seed), stop)
    for number in range(2):
        with world.running() as (broker, client):
            if not number:
                world.begin(client)
            elif stop == "power cut, interval":
                world.check_that_all_are_fenced(broker, client)
            else:
                world.check_that_all_continue(broker, client)
            world.mix(25)
            world.end_run(broker, patch)
    with world.running() as (broker, client):
        if stop == "power cut, interval":
            world.check_that_all_are_fenced(broker, client)
        else:
            world.check_that_all_continue(broker, client)
    return world.accepted


@pytest.mark.parametrize("stop", STOPS)
def test_a_few_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str) -> None:
    accepted = sum(search(tmp_path / f"{seed}", monkeypatch, seed, stop) for seed in range(4))
    assert accepted > 10


@pytest.mark.search
@pytest.mark.parametrize("stop", STOPS)
def test_many_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str) -> None:
    for seed in range(4, 150):
        search(tmp_path / f"{seed}", monkeypatch, seed, stop)
        shutil.rmtree(tmp_path / f"{seed}")


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "idle"])
@pytest.mark.parametrize("stop", STOPS[:3])
def test_the_highest_epoch_in_a_foreign_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str, is_open: bool
) -> None:
    world = World(tmp_path / "data", random.Random(0), stop)
    with world.running() as (broker, client):
        world.begin(client)
        for victim in world.victims:
            if is_open:
                assert victim.write(T1, b"1") is NONE
            blue = victim.producer
            records = batch(b"red", producer_id=blue.id, producer_epoch=HIGHEST, base_sequence=0)
            response = client.call(produce_request(FOREIGN, records), 12)
            assert response.responses[0].partition_responses[0].error_code == NONE
        world.end_run(broker, monkeypatch)
    with world.running() as (broker, client):
        world.check_that_all_continue(broker, client)
