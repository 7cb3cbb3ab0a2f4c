"""Kill the broker under load, again and again, and check its files.

``python -m tests.broker.torture --rounds 500`` runs it from the command line.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka

from tests.broker.challenge.disk import read_partition
from tests.broker.challenge.server import BrokerProcess
from tests.broker.crash_support import (
    Arena,
    ConfluentProducer,
    Damage,
    GroupMember,
    IdempotentProducer,
    Load,
    OffsetCommitter,
    TransactionalProducer,
    check_indexes,
    committed_records,
    create_topics,
)
from tests.broker.share.load import SharedRecords, ShareGroupMember
from tests.broker.share.support import begin_early
from tests.broker.support import RawClient
from tests.ports import free_port
from tests.support.waiting import PATIENCE

INDEX_INTERVAL = 2048
SETTINGS = {
    # The least that Kafka allows, so that segments roll and indexes have entries.
    "log.segment.bytes": "1048576",
    "log.index.interval.bytes": str(INDEX_INTERVAL),
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "share.coordinator.state.topic.prune.interval.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
PARTITIONS = 3
DEAD_LETTERS = "dlq.load"
# Full checks read all records, so they do not run after every round.
CHECK_EVERY = 25


class Torture:
    """Loads against a broker in ``folder`` that is killed ``rounds`` times."""

    def __init__(
        self, folder: Path, rounds: int, seed: int, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.process = BrokerProcess(folder, free_port(), overrides=SETTINGS)
        self.data = self.process.data
        self.rounds = rounds
        self.random = random.Random(seed)
        self.say = say
        self.damage = Damage(self.data, self.random)
        arena = self.arena = Arena(self.process.port)
        self.producers = [
            IdempotentProducer(arena, seed, "load", index) for index in range(PARTITIONS)
        ]
        self.transactions = [
            TransactionalProducer(arena, seed, "transactions", "load", version)
            for version in (1, 2)
        ]
        self.committer = OffsetCommitter(arena, seed, "load")
        self.member = GroupMember(arena, seed, "load")
        self.confluent = ConfluentProducer(arena, seed, "confluent")
        self.shared = {topic: SharedRecords() for topic in ("load", "transactions")}
        self.sharers = [
            ShareGroupMember(arena, seed, f"share-{topic}", topic, number, records)
            for topic, records in self.shared.items()
            for number in range(2)
        ]
        self.loads: list[Load] = [
            *self.producers,
            *self.transactions,
            self.committer,
            self.member,
            self.confluent,
            *self.sharers,
        ]

    def run(self) -> None:
        """Run, and raise AssertionError if the final state is wrong."""
        self.data.mkdir()
        try:
            self.process.start()
            with RawClient(self.process.port) as client:
                create_topics(
                    client,
                    {
                        "load": (PARTITIONS, {}),
                        "transactions": (2, {}),
                        "confluent": (1, {}),
                        DEAD_LETTERS: (1, {"errors.deadletterqueue.group.enable": "true"}),
                    },
                )
                begin_early(client, "share-load", dead_letters=DEAD_LETTERS)
                begin_early(client, "share-transactions", isolation_level="read_committed")
            self.arena.set_up(True)
            for load in self.loads:
                load.start()
            for number in range(1, self.rounds + 1):
                self.round(number)
            self.finish()
        finally:
            self.arena.stopping.set()
            self.arena.end()
            if self.process.alive:
                self.process.kill()

    def round(self, number: int) -> None:
        load = self.random.choice(self.loads)
        self.arena.wait_for_progress(load, self.random.randrange(1, load.burst + 1))
        kind = self.random.random()
        self.arena.set_up(False)
        if kind < 0.15:
            code = self.process.stop()
            assert code == 0, f"exit code {code}:\n{self.process.log()}"
        else:
            self.process.kill()
            while kind > 0.85 and self.random.random() < 0.7:
                # Killed again during recovery.
                self.process.spawn()
                self.process.wait(self.random.uniform(0, 0.6))
                self.process.kill()
            self.damage.apply()
        self.process.start()
        self.arena.set_up(True)
        if number % CHECK_EVERY == 0:
            self.say(
                f"round {number}: {self.arena.acks} steps, "
                f"{len(self.damage.done)} times damaged"
            )
            self.check_contents()

    def check_contents(self) -> None:
        """Check the files of a stopped broker that has repaired its logs: a kill during a write leaves half a batch."""
        self.arena.set_up(False)
        self.process.kill()
        self.process.start()
        code = self.process.stop()
        assert code == 0, f"exit code {code}:\n{self.process.log()}"
        for producer in self.producers:
            producer.check(self.data)
        self.confluent.check(self.data)
        self.process.start()
        self.arena.set_up(True)

    def finish(self) -> None:
        # A few rounds can be over before each load has done what is checked.
        for load in (*self.producers, self.confluent):
            self.arena.wait_until(load, lambda load=load: load.acknowledged)
        for transactions in self.transactions:
            self.arena.wait_until(transactions, lambda load=transactions: load.committed)
        for sharer in self.sharers:
            self.arena.wait_until(sharer, lambda load=sharer: load.records.finished)
        self.arena.stopping.set()
        for load in self.loads:
            load.join(PATIENCE)
            assert not load.is_alive(), f"{load.name} does not come to an end"
        assert not self.arena.failures, "\n".join(self.arena.failures)
        with contextlib.closing(Readers(self)) as readers:
            readers.check()
        for sharer in self.sharers:
            sharer.drain()
        self.process.stop()
        for producer in self.producers:
            assert not producer.pending
            producer.check(self.data)
        self.confluent.check(self.data)
        for transactions in self.transactions:
            transactions.check(self.data)
        for topic, records in self.shared.items():
            stored = committed_records(read_partition(self.data / f"{topic}-0"))
            records.check(offset for offset, _ in stored)
        self.check_dead_letters()
        for folder in self.damage.partitions():
            read_partition(folder)
            if not folder.name.startswith("__cluster_metadata"):
                check_indexes(folder, INDEX_INTERVAL)
        assert "Traceback" not in self.process.log(), self.process.log()

    def check_dead_letters(self) -> None:
        """Check that each rejected record has a dead letter, and no other record that can be left."""
        records = self.shared["load"]
        letters = {
            int(dict(record.headers)["__dlq.errors.offset"] or b"-1")
            for one in read_partition(self.data / f"{DEAD_LETTERS}-0")
            for record in one.records()
        }
        assert records.rejected <= letters, sorted(records.rejected - letters)[:20]
        assert letters <= records.finished | records.uncertain


class Readers:
    """Check what consumers see at the end."""

    def __init__(self, torture: Torture) -> None:
        self.torture = torture
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{torture.process.port}",
                "group.id": "readers",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )

    def close(self) -> None:
        self.consumer.close()

    def read(self, topic: str, partition: int) -> list[bytes]:
        """All values of a partition, through librdkafka."""
        self.consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        values: list[bytes] = []
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline, f"{topic}-{partition} has no end"
            message = self.consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return values
            values.append(message.value() or b"")

    def check(self) -> None:
        torture = self.torture
        for producer in torture.producers:
            wanted = [value for sent in producer.acknowledged for value in sent.values]
            assert self.read("load", producer.partition) == wanted
        for partition in (0, 1):
            numbers: dict[int, dict[int, None]] = {1: {}, 2: {}}
            for value in self.read("transactions", partition):
                version, number, _ = value.split(b":")
                numbers[int(version)][int(number)] = None
            for one in torture.transactions:
                assert list(numbers[one.version]) == one.committed
        for group, offset in [
            (torture.committer.group, torture.committer.acknowledged),
            (torture.member.group, torture.member.acknowledged),
            *((one.group, one.offset) for one in torture.transactions),
        ]:
            consumer = confluent_kafka.Consumer(
                {"bootstrap.servers": f"127.0.0.1:{torture.process.port}", "group.id": group}
            )
            with contextlib.closing(consumer):
                [found] = consumer.committed([confluent_kafka.TopicPartition("load", 0)], 10)
            assert found.offset == (offset if offset >= 0 else confluent_kafka.OFFSET_INVALID)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    print(f"{options.rounds} rounds, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="krammar-torture-") as folder:
        torture = Torture(
            Path(folder), options.rounds, options.seed, lambda text: print(text, flush=True)
        )
        began = time.monotonic()
        torture.run()
    print(
        f"{options.rounds} rounds in {time.monotonic() - began:.0f} s: "
        f"{torture.arena.acks} steps, {len(torture.damage.done)} times damaged, "
        "nothing lost, nothing twice"
    )


if __name__ == "__main__":
    main()
