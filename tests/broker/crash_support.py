"""Clients that continue after crashes and remember acknowledged records, and checks of the files on the disk.

Each ``Load`` is a thread that sends its own batches in generated requests. If its connection breaks, it
waits until the broker runs again, and resends everything that was not acknowledged, with the same
producer ids, epochs and sequence numbers. Kafka's clients do the same; a ``Load`` also records what was
acknowledged.
"""

from __future__ import annotations

import random
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka_wire as k
from kafka_wire import ErrorCode

from tests.broker.challenge.disk import (
    NOW,
    DiskBatch,
    batch,
    read_batches,
    read_partition,
    segments,
)
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE

# Errors that a client retries.
RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
# How many batches a producer may have on their way, as with Kafka's clients.
IN_FLIGHT = 5


class Stopped(Exception):
    """The broker is not restarted, because the test has ended."""


class Arena:
    """Shared by loads and by the thread that kills the broker."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.failures: list[str] = []
        self.stopping = threading.Event()
        self._changed = threading.Condition()
        self._up = False
        self._over = False
        self._acks = 0

    @property
    def acks(self) -> int:
        return self._acks

    def set_up(self, up: bool) -> None:
        """Return whether the broker can be reached."""
        with self._changed:
            self._up = up
            self._changed.notify_all()

    def end(self) -> None:
        """The connection is closed."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def acknowledged(self, load: Load) -> None:
        """A load has got on by one step."""
        with self._changed:
            self._acks += 1
            load.progress += 1
            self._changed.notify_all()

    def failed(self, what: str) -> None:
        with self._changed:
            self.failures.append(what)
            self._changed.notify_all()

    def wait_for_progress(self, load: Load, steps: int) -> None:
        """Until a load has got on by ``steps``. Any load that failed ends the wait with its error."""
        aim = load.progress + steps
        self.wait_until(load, lambda: load.progress >= aim)

    def wait_until(self, load: Load, reached: Callable[[], object]) -> None:
        """Until steps of a load have led to what ``reached`` asks for, or any load failed."""
        with self._changed:
            done = self._changed.wait_for(lambda: reached() or self.failures, PATIENCE)
        assert not self.failures, "\n".join(self.failures)
        assert done, f"{load.name} is still at step {load.progress} after {PATIENCE} s"

    def connect(self) -> RawClient:
        """A connection, as soon as the broker is up. Raises Stopped."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._up or self._over)
                if self._over:
                    raise Stopped
            try:
                return RawClient(self.port)
            except OSError:
                # It was killed between the two calls. The next attempt waits until it is reported as down.
                with self._changed:
                    self._changed.wait(0.01)


class Load(threading.Thread):
    """A client; ``work`` does one step after the other until the arena is stopping.

    ``burst`` is how many steps it takes in a fraction of a second.
    """

    burst = 1

    def __init__(self, arena: Arena, name: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.arena = arena
        self.random = random.Random(f"{seed}-{name}")
        self.client: RawClient | None = None
        self.progress = 0

    def run(self) -> None:
        try:
            self.work()
        except Stopped:
            self.arena.failed(f"{self.name}: could not finish")
        except BaseException as error:
            import traceback

            trace = "".join(traceback.format_exception(error))
            self.arena.failed(f"{self.name}: {trace}")
        finally:
            self.disconnect()

    def work(self) -> None:
        raise NotImplementedError

    def disconnect(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None

    def call(self, request: Any, version: int) -> Any:
        """The response, from whichever broker gives one."""
        while True:
            if self.client is None:
                self.client = self.arena.connect()
            try:
                return self.client.call(request, version)
            except OSError:
                self.disconnect()

    def insist(self, request: Any, version: int, error_of: Callable[[Any], int]) -> Any:
        """The response that is not an error that passes. Raises AssertionError for others."""
        pause = threading.Event()
        while True:
            response = self.call(request, version)
            error = error_of(response)
            if error not in RETRIABLE:
                assert error == 0, f"{type(request).__name__}: {ErrorCode(error).name}"
                return response
            pause.wait(0.005)


def produce_request(
    topic: str, partition: int, records: bytes, *, transactional_id: str | None = None
) -> Any:
    """Build a Produce request with acks=all for one partition."""
    return k.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            k.ProduceRequest.TopicProduceData(
                name=topic,
                partition_data=[
                    k.ProduceRequest.PartitionProduceData(index=partition, records=records)
                ],
            )
        ],
    )


@dataclass
class Sent:
    """A batch that was sent, and its first record's offset when it is acknowledged."""

    sequence: int
    values: list[bytes]
    records: bytes
    offset: int = -1


class IdempotentProducer(Load):
    """Keeps five batches on their way to one partition."""

    burst = 60

    def __init__(self, arena: Arena, seed: int, topic: str, partition: int) -> None:
        super().__init__(arena, f"producer-{topic}-{partition}", seed)
        self.topic, self.partition = topic, partition
        self.producer_id = self.producer_epoch = -1
        self.acknowledged: list[Sent] = []
        self.pending: deque[Sent] = deque()
        self.written = 0

    def work(self) -> None:
        answer = self.insist(
            k.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
            4,
            lambda response: response.error_code,
        )
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        while True:
            try:
                self.exchange()
                return
            except OSError:
                self.disconnect()

    def exchange(self) -> None:
        """The work on one connection, beginning with unanswered requests of the last one."""
        if self.client is None:
            self.client = self.arena.connect()
        for sent in self.pending:
            self.send(sent)
        while True:
            while len(self.pending) < IN_FLIGHT and not self.arena.stopping.is_set():
                sent = self.next_batch()
                self.pending.append(sent)
                self.send(sent)
            if not self.pending:
                return
            response = self.client.receive()
            [topic] = response.responses
            [partition] = topic.partition_responses
            sent = self.pending[0]
            assert partition.error_code == 0, (
                f"sequence {sent.sequence}: {ErrorCode(partition.error_code).name} "
                f"{partition.error_message}; waiting: {[one.sequence for one in self.pending]}"
            )
            sent.offset = partition.base_offset
            self.pending.popleft()
            self.acknowledged.append(sent)
            self.arena.acknowledged(self)

    def send(self, sent: Sent) -> None:
        assert self.client is not None
        self.client.send(produce_request(self.topic, self.partition, sent.records), 11)

    def next_batch(self) -> Sent:
        count = self.random.randrange(1, 8)
        values: list[bytes] = []
        for _ in range(count):
            padding = b"." * self.random.choice((0, 10, 100, 3000))
            values.append(b"%s:%d:%s" % (self.name.encode(), self.written + len(values), padding))
        sequence = self.written
        self.written += count
        records = batch(
            values,
            timestamp=NOW + sequence,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
        )
        return Sent(sequence, values, records)

    def check(self, data: Path) -> None:
        """Each acknowledged record is in the log, once, at the offset that was acknowledged, in order.

        Records that were not acknowledged may be there, once.
        """
        batches = read_partition(data / f"{self.topic}-{self.partition}")
        found = [record for one in batches for record in one.records()]
        assert [record.offset for record in found] == list(range(len(found))), "gaps in offsets"
        acknowledged = list(self.acknowledged)
        wanted = [value for sent in acknowledged for value in sent.values]
        values = [record.value for record in found]
        assert values[: len(wanted)] == wanted, self.first_difference(wanted, values)
        for sent in acknowledged:
            offset = sent.offset
            assert values[offset : offset + len(sent.values)] == sent.values
        rest = values[len(wanted) :]
        assert len(set(rest)) == len(rest) and not set(rest) & set(wanted), "a record twice"

    def first_difference(self, wanted: Sequence[bytes], values: Sequence[bytes | None]) -> str:
        for at, value in enumerate(wanted):
            there = values[at] if at < len(values) else None
            if there != value:
                return (
                    f"{self.name}: at offset {at} of {len(values)} there is {(there or b'-')[:40]!r}, "
                    f"not {value[:40]!r}, one of {len(wanted)} that were acknowledged"
                )
        return ""


class OffsetCommitter(Load):
    """Commits ever higher offsets for a group without members."""

    burst = 40
    group = "offsets-group"
    member_id = ""
    epoch = -1
    version = 8

    def __init__(self, arena: Arena, seed: int, topic: str) -> None:
        super().__init__(arena, "committer", seed)
        self.topic = topic
        self.acknowledged = self.sent = -1

    def work(self) -> None:
        find_coordinator(self, self.group, 0)
        while not self.arena.stopping.is_set():
            if self.client is None:
                self.check()
            self.sent = self.acknowledged + 1
            response = self.insist(
                k.OffsetCommitRequest(
                    group_id=self.group,
                    generation_id_or_member_epoch=self.epoch,
                    member_id=self.member_id,
                    topics=[
                        k.OffsetCommitRequest.Topic(
                            name=self.topic,
                            partitions=[
                                k.OffsetCommitRequest.Partition(
                                    partition_index=0,
                                    committed_offset=self.sent,
                                    committed_metadata=f"at {self.sent}",
                                )
                            ],
                        )
                    ],
                ),
                self.version,
                lambda answer: answer.topics[0].partitions[0].error_code,
            )
            assert len(response.topics) == 1
            self.acknowledged = self.sent
            self.arena.acknowledged(self)

    def check(self) -> None:
        """Check for the last acknowledged offset, or one that was sent later."""
        offset, metadata = fetch_offset(self, self.group, self.topic, 0)
        assert offset in (self.acknowledged, self.sent), (
            f"offset {offset} is committed, {self.acknowledged} was acknowledged and "
            f"{self.sent} sent"
        )
        assert metadata == ("" if offset < 0 else f"at {offset}")
        self.acknowledged = offset


def find_coordinator(load: Load, key: str, key_type: int) -> None:
    load.insist(
        k.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]),
        4,
        lambda response: response.coordinators[0].error_code,
    )


def fetch_offset(load: Load, group: str, topic: str, partition: int) -> tuple[int, str]:
    """The committed offsets, without pending ones."""
    response = load.insist(
        k.OffsetFetchRequest(
            groups=[
                k.OffsetFetchRequest.Group(
                    group_id=group,
                    topics=[k.OffsetFetchRequest.Topics(name=topic, partition_indexes=[partition])],
                )
            ],
        ),
        8,
        lambda answer: answer.groups[0].error_code
        or answer.groups[0].topics[0].partitions[0].error_code,
    )
    found = response.groups[0].topics[0].partitions[0]
    return found.committed_offset, found.metadata or ""


FENCED = ErrorCode.FENCED_MEMBER_EPOCH
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


class GroupMember(OffsetCommitter):
    """A member of a consumer group. The responses to its heartbeats remain true after a crash.

    Now and then another member joins and leaves, so that partitions go back and forth.
    """

    group = "consumer-group"
    member_id = "00000000-0000-0000-0000-000000000001"
    version = 9

    def __init__(self, arena: Arena, seed: int, topic: str) -> None:
        super().__init__(arena, seed, topic)
        self.name = "member"
        self.joined = 0

    def check(self) -> None:
        find_coordinator(self, self.group, 0)
        if self.epoch < 0:
            self.epoch = 0
        self.beat()
        super().check()
        self.join_another()

    def beat(self) -> None:
        """Heartbeat as after a lost response: with all fields, and nothing given up."""
        rejoins = self.epoch == 0
        response = self.insist(
            k.ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=self.epoch,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[self.topic],
                topic_partitions=[] if rejoins else self.owned,
            ),
            1,
            lambda answer: 0 if answer.error_code == FENCED else answer.error_code,
        )
        if response.error_code == FENCED:  # several responses were lost
            self.epoch = 0
            self.beat()
            return
        # Another member takes the last of three partitions.
        self.epoch = response.member_epoch
        self.owned = [
            k.ConsumerGroupHeartbeatRequest.TopicPartitions(
                topic_id=topic.topic_id, partitions=topic.partitions
            )
            for topic in response.assignment.topic_partitions
        ]
        assert any(0 in topic.partitions for topic in self.owned)

    def join_another(self) -> None:
        self.joined += 1
        other = k.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=f"00000000-0000-0000-0000-{self.joined + 1:012}",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[self.topic],
            topic_partitions=[],
        )
        self.insist(other, 1, lambda answer: answer.error_code)
        self.beat()
        self.beat()
        leaving = k.ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=other.member_id, member_epoch=-1
        )
        # If the response was lost, the member is gone already.
        self.insist(
            leaving, 1, lambda answer: 0 if answer.error_code == UNKNOWN else answer.error_code
        )
        self.beat()


class TransactionalProducer(Load):
    """Transactions over two partitions and a group's offset, committed or aborted in turn.

    ``version`` 1 names the partitions itself; 2 leaves that to the broker and gets a new epoch with
    every transaction (KIP-890).
    """

    burst = 5

    def __init__(
        self, arena: Arena, seed: int, topic: str, offsets_topic: str, version: int
    ) -> None:
        super().__init__(arena, f"transactions-{version}", seed)
        self.topic, self.offsets_topic, self.version = topic, offsets_topic, version
        self.transactional_id = f"transactional-{version}"
        self.group = f"group-{version}"
        self.producer_id = self.producer_epoch = -1
        self.sequences = [0, 0]
        self.number = 0
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.offset = -1
        self._first = True

    def work(self) -> None:
        find_coordinator(self, self.transactional_id, 1)
        find_coordinator(self, self.group, 0)
        self.begin_epoch()
        while not self.arena.stopping.is_set():
            self.number += 1
            self.transaction(self.number)
            self.arena.acknowledged(self)

    def begin_epoch(self) -> None:
        answer = self.insist(
            k.InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=600_000
            ),
            4,
            lambda response: response.error_code,
        )
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        self.sequences = [0, 0]
        offset, _ = fetch_offset(self, self.group, self.offsets_topic, 0)
        assert offset == self.offset, f"offset {offset} is committed, {self.offset} should be"

    def transaction(self, number: int) -> None:
        commit = self.random.random() < 0.7
        steps: list[Callable[[], None]] = []
        if self.version == 1:
            steps.append(self.add_partitions)
        for partition in (0, 1):
            for part in range(self.random.randrange(1, 3)):
                steps.append(self.produce_step(number, partition, part))
        if self.version == 1:
            steps.append(self.add_offsets)
        steps.append(lambda: self.commit_offset(number))
        for step in steps:
            before = self.client
            step()
            if self.client is not before and before is not None and self.random.random() < 0.3:
                # As after a crash of the application: its successor aborts the open transaction.
                self.aborted.append(number)
                self.begin_epoch()
                return
        self.end(commit)
        if commit:
            self.committed.append(number)
            self.offset = number
        else:
            self.aborted.append(number)

    def add_partitions(self) -> None:
        self.insist(
            k.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.producer_epoch,
                v3_and_below_topics=[
                    k.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
                        name=self.topic, partitions=[0, 1]
                    )
                ],
            ),
            3,
            lambda response: next(
                (
                    partition.partition_error_code
                    for topic in response.results_by_topic_v3_and_below
                    for partition in topic.results_by_partition
                    if partition.partition_error_code
                ),
                0,
            ),
        )

    def add_offsets(self) -> None:
        self.insist(
            k.AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                group_id=self.group,
            ),
            3,
            lambda response: response.error_code,
        )

    def produce_step(self, number: int, partition: int, part: int) -> Callable[[], None]:
        def step() -> None:
            values: list[bytes | None] = [
                b"%d:%d:%d.%d" % (self.version, number, part, at)
                for at in range(self.random.randrange(1, 4))
            ]
            records = batch(
                values,
                attributes=0x10,
                timestamp=NOW + number,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.sequences[partition],
            )
            request = produce_request(
                self.topic, partition, records, transactional_id=self.transactional_id
            )
            self.insist(
                request,
                11 if self.version == 1 else 12,
                lambda response: response.responses[0].partition_responses[0].error_code,
            )
            self.sequences[partition] += len(values)

        return step

    def commit_offset(self, number: int) -> None:
        self.insist(
            k.TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=self.group,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[
                    k.TxnOffsetCommitRequest.Topic(
                        name=self.offsets_topic,
                        partitions=[
                            k.TxnOffsetCommitRequest.Partition(
                                partition_index=0, committed_offset=number, committed_metadata=""
                            )
                        ],
                    )
                ],
            ),
            3 if self.version == 1 else 5,
            lambda response: response.topics[0].partitions[0].error_code,
        )

    def end(self, commit: bool) -> None:
        answer = self.insist(
            k.EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                committed=commit,
            ),
            3 if self.version == 1 else 5,
            lambda response: response.error_code,
        )
        if self.version == 2:
            identity = (answer.producer_id, answer.producer_epoch)
            assert identity != (self.producer_id, self.producer_epoch), "the epoch stays the same"
            self.producer_id, self.producer_epoch = identity
            self.sequences = [0, 0]

    def check(self, data: Path) -> None:
        """All committed transactions can be read once and in order, and no other records."""
        for partition in (0, 1):
            visible = committed_records(read_partition(data / f"{self.topic}-{partition}"))
            mine = [value for _, value in visible if value.startswith(b"%d:" % self.version)]
            assert len(set(mine)) == len(mine), "a record twice"
            numbers = list(dict.fromkeys(int(value.split(b":")[1]) for value in mine))
            assert numbers == self.committed, (
                f"{self.name}, partition {partition}: missing "
                f"{sorted(set(self.committed) - set(numbers))}, unasked for "
                f"{sorted(set(numbers) - set(self.committed))}"
            )


def committed_records(batches: Iterable[DiskBatch]) -> list[tuple[int, bytes]]:
    """Return offset and value of what a consumer with read_committed sees. No transaction may be open."""
    waiting: dict[int, list[tuple[int, bytes]]] = {}
    visible: list[tuple[int, bytes]] = []
    for one in batches:
        if one.is_control:
            [marker] = one.records()
            assert marker.key is not None
            version, kind = struct.unpack_from(">hh", marker.key)
            assert version == 0 and kind in (0, 1)
            ended = waiting.pop(one.producer_id, [])
            if kind == 1:
                visible += ended
            continue
        found = [(record.offset, record.value or b"") for record in one.records()]
        if one.is_transactional:
            waiting.setdefault(one.producer_id, []).extend(found)
        else:
            visible += found
    assert not waiting, f"open transactions of producers {sorted(waiting)}"
    return sorted(visible)


class ConfluentProducer(Load):
    """librdkafka's idempotent producer, which reconnects by itself."""

    burst = 100

    def __init__(self, arena: Arena, seed: int, topic: str) -> None:
        super().__init__(arena, "confluent", seed)
        self.topic = topic
        self.sent = 0
        self.acknowledged: dict[bytes, int] = {}
        self.errors: list[str] = []

    def delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        self.acknowledged[message.value()] = message.offset()
        self.arena.acknowledged(self)

    def work(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{self.arena.port}",
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "message.timeout.ms": 600_000,
                "log_level": 0,
            }
        )
        while not self.arena.stopping.is_set():
            while self.sent - len(self.acknowledged) - len(self.errors) < 50:
                value = b"confluent:%d" % self.sent
                producer.produce(self.topic, value, on_delivery=self.delivered)
                self.sent += 1
            producer.poll(0.05)
            assert not self.errors, self.errors
        left = producer.flush(PATIENCE)
        assert not self.errors, self.errors
        assert left == 0, f"{left} messages were never acknowledged"

    def check(self, data: Path) -> None:
        found = [
            record for one in read_partition(data / f"{self.topic}-0") for record in one.records()
        ]
        values = [record.value for record in found]
        assert len(set(values)) == len(values), "a record twice"
        acknowledged = dict(self.acknowledged)
        for value, offset in acknowledged.items():
            assert values[offset] == value, f"{value!r} is not at offset {offset}"
        assert values == [b"confluent:%d" % at for at in range(len(values))], "out of order"


# --- indexes

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


def contents(index: Path) -> bytes:
    """One that would be empty may be missing."""
    return index.read_bytes() if index.exists() else b""


def check_indexes(folder: Path, interval: int) -> int:
    """Check that the offset and time indexes of a partition match its log, segment by segment.

    ``interval`` is its index.interval.bytes. Call this after a clean shutdown of the broker. Returns the
    number of entries in offset indexes.
    """
    entries = 0
    for segment in segments(folder):
        base = int(segment.stem)
        batches = list(read_batches(segment.read_bytes()))
        by_position = {one.position: one for one in batches}
        largest = max((one.size for one in batches), default=0)
        size = segment.stat().st_size
        where = f"{folder.name}/{segment.stem}"

        data = contents(segment.with_suffix(".index"))
        assert len(data) % _OFFSET_ENTRY.size == 0, where
        offsets = list(_OFFSET_ENTRY.iter_unpack(data))
        entries += len(offsets)
        for relative, position in offsets:
            assert position in by_position, f"{where}.index: no batch begins at {position}"
            one = by_position[position]
            assert one.base_offset <= base + relative <= one.last_offset, (
                f"{where}.index: offset {base + relative} at position {position}, where "
                f"{one.base_offset} to {one.last_offset} are"
            )
        for (before, _), (after, _) in pairwise(offsets):
            assert before < after, f"{where}.index does not ascend"
        # No stretch of the log is without an entry for much longer than the interval.
        positions = [0, *(position for _, position in offsets), size]
        for start, end in pairwise(positions):
            assert (
                end - start <= interval + 2 * largest
            ), f"{where}.index: nothing between {start} and {end}, batches of up to {largest}"

        data = contents(segment.with_suffix(".timeindex"))
        assert len(data) % _TIME_ENTRY.size == 0, where
        times = list(_TIME_ENTRY.iter_unpack(data))
        for timestamp, relative in times:
            offset = base + relative
            until = [one.max_timestamp for one in batches if one.base_offset <= offset]
            assert until and timestamp == max(until), (
                f"{where}.timeindex: {timestamp} at offset {offset}, where the latest until then is "
                f"{max(until, default=-1)}"
            )
            holder = next(one for one in batches if one.last_offset >= offset)
            assert holder.base_offset <= offset and holder.max_timestamp == timestamp, where
        for (early, before), (late, after) in pairwise(times):
            assert early < late and before < after, f"{where}.timeindex does not ascend"
    return entries


# --- damage that a crash of the machine could do


def whole_batches(data: bytes) -> tuple[list[DiskBatch], bool]:
    """Return the batches of a log before the first torn or damaged one, and whether there is such a batch."""
    found = []
    try:
        for one in read_batches(data):
            found.append(one)
    except AssertionError:
        return found, True
    return found, False


@dataclass
class Damage:
    """Damage the files of a killed broker, in ways that a broker must repair."""

    data: Path
    random: random.Random
    done: list[str] = field(default_factory=list)

    def partitions(self) -> list[Path]:
        return sorted(one for one in self.data.iterdir() if one.is_dir() and segments(one))

    def torn_batch(self) -> None:
        """The last write stopped at some byte of its batch."""
        folder = self.random.choice(self.partitions())
        if folder.name.startswith("__cluster_metadata"):
            return
        last = segments(folder)[-1]
        found, is_torn = whole_batches(last.read_bytes())
        if is_torn:
            return  # the kill came during a write
        offset = found[-1].last_offset + 1 if found else int(last.stem)
        whole = batch([b"torn"] * 3, base_offset=offset)
        part = whole[: self.random.randrange(1, len(whole))]
        if self.random.random() < 0.3:
            part = bytes(len(part))
        with last.open("ab") as log:
            log.write(part)
        self.done.append(f"{len(part)} bytes after {folder.name}/{last.name}")

    def lost_index(self) -> None:
        folder = self.random.choice(self.partitions())
        segment = self.random.choice(segments(folder))
        suffix = self.random.choice([".index", ".timeindex"])
        segment.with_suffix(suffix).unlink(missing_ok=True)
        self.done.append(f"{folder.name}/{segment.stem}{suffix} lost")

    def wrong_index(self) -> None:
        """The index of the segment that was written to when the broker was killed."""
        folder = self.random.choice(self.partitions())
        segment = segments(folder)[-1]
        suffix = self.random.choice([".index", ".timeindex"])
        noise = self.random.randbytes(self.random.randrange(1, 200))
        segment.with_suffix(suffix).write_bytes(noise)
        self.done.append(f"{folder.name}/{segment.stem}{suffix} is noise")

    def lost_snapshots(self) -> None:
        folder = self.random.choice(self.partitions())
        for snapshot in folder.glob("*.snapshot"):
            snapshot.unlink()
        self.done.append(f"{folder.name}: producer snapshots lost")

    def apply(self) -> None:
        if (self.data / ".kafka_cleanshutdown").exists():
            return  # nothing was written since it was left in order
        for what in (self.torn_batch, self.lost_index, self.wrong_index, self.lost_snapshots):
            if self.random.random() < 0.3:
                what()


def create_topics(client: RawClient, topics: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
    """Topics by name, with their number of partitions and their settings."""
    response = client.call(
        k.CreateTopicsRequest(
            timeout_ms=10_000,
            topics=[
                k.CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=[],
                    configs=[
                        k.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                        for key, value in settings.items()
                    ],
                )
                for name, (partitions, settings) in topics.items()
            ],
        ),
        7,
    )
    errors = [(one.name, one.error_code, one.error_message) for one in response.topics]
    assert all(code == 0 for _, code, _ in errors), errors
