"""Members of a share group as loads against a broker that is killed, and what must be true of the records they got."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import kafka_wire as k
from kafka_wire import ErrorCode

from tests.broker.crash_support import RETRIABLE, Arena, Load
from tests.broker.share.support import ACCEPT, REJECT, RELEASE
from tests.support.waiting import until

# share.delivery.count.limit: a record that is returned after so many deliveries is archived.
MOST = 5
# A partition's answers while the share coordinator loads its records.
PASSING = (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)


@dataclass
class SharedRecords:
    """The records of a partition, as the members of a group know them.

    Attributes:
        finished: the group is done with them, and the broker has confirmed that
        uncertain: a member was about to finish them when the connection broke
        delivered: all records that a member got
        rejected: a member has rejected them, and the broker has confirmed that
    """

    finished: set[int] = field(default_factory=set)
    uncertain: set[int] = field(default_factory=set)
    delivered: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def acquired(self, offsets: range, count: int) -> None:
        """Note records that a member has acquired."""
        with self.lock:
            again = self.finished.intersection(offsets)
            assert not again, f"{sorted(again)} were finished, and are delivered again"
            assert 1 <= count <= MOST, f"{offsets} are delivered for the {count}th time"
            self.delivered.update(offsets)
            # If the member ends in order, these are returned, and then archived.
            if count == MOST:
                self.uncertain.update(offsets)

    def check(self, existing: Iterable[int]) -> None:
        """Check at the end that the group has got exactly the existing records, and finished all of them."""
        known = set(existing)
        assert self.delivered <= known, f"no records: {sorted(self.delivered - known)[:20]}"
        missed = known - self.finished - self.uncertain
        assert not missed, f"the group never finished {sorted(missed)[:20]}"


class ShareGroupMember(Load):
    """Gets the records of partition 0 of a topic, and accepts, releases and rejects them in random runs."""

    burst = 30

    def __init__(
        self, arena: Arena, seed: int, group: str, topic: str, number: int, records: SharedRecords
    ) -> None:
        super().__init__(arena, f"share-{group}-{number}", seed)
        self.group, self.topic, self.records = group, topic, records
        self.member_id = f"{group}-{number}"
        self.topic_id: Any = None
        self.epoch = 0
        self.is_draining = False

    def work(self) -> None:
        if self.topic_id is None:
            metadata = self.call(
                k.MetadataRequest(topics=[k.MetadataRequest.Topic(name=self.topic)]), 12
            )
            self.topic_id = metadata.topics[0].topic_id
            self.disconnect()  # each connection begins with ``enter``
        while not self.arena.stopping.is_set():
            self.step()

    def drain(self) -> None:
        """Finish all records that are left, after the load has ended."""
        # Waits a while for records that other members return when their connections end.
        self.is_draining = True
        while self.step():
            pass
        # Dead letters are written after the acknowledgement.
        until(lambda: self.lag() == 0)
        self.disconnect()

    def lag(self) -> int:
        """The number of records with which the group is not done."""
        kind = k.DescribeShareGroupOffsetsRequest
        topic = kind.Topic(topic_name=self.topic, partitions=[0])
        request = kind(groups=[kind.Group(group_id=self.group, topics=[topic])])
        answer = self.call(request, 1)
        found: int = answer.groups[0].topics[0].partitions[0].lag
        return found

    def step(self) -> bool:
        """Acquire records and acknowledge some. Returns whether there were any."""
        try:
            if self.client is None:
                self.client = self.arena.connect()
                self.epoch = 0
                self.enter()
            runs = self.acquire()
            if runs:
                self.acknowledge(runs)
        except OSError:
            self.disconnect()
            return True
        if runs:
            self.arena.acknowledged(self)
        return bool(runs)

    def ask(self, request: Any, version: int) -> Any:
        assert self.client is not None
        return self.client.call(request, version)

    def enter(self) -> None:
        """Join the group again, until it assigns partitions: before that, their state does not exist."""
        request = k.ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, subscribed_topic_names=[self.topic]
        )
        while True:
            answer = self.ask(request, 1)
            assert answer.error_code in (0, *RETRIABLE), answer
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return
            self.pause()

    def pause(self) -> None:
        threading.Event().wait(0.005)

    def acquire(self) -> list[tuple[range, int]]:
        """Get records: their offsets, and how often each was delivered."""
        kind = k.ShareFetchRequest
        part = kind.FetchPartition(partition_index=0)
        request = kind(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=200 if self.is_draining else 20,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=self.random.choice((10, 500)),
            share_acquire_mode=self.random.choice((0, 1)),
            topics=[kind.FetchTopic(topic_id=self.topic_id, partitions=[part])],
        )
        while True:
            answer = self.ask(request, 2)
            assert answer.error_code == 0, answer
            self.epoch += 1
            request.share_session_epoch = self.epoch
            parts = [part for topic in answer.responses for part in topic.partitions]
            assert all(each.error_code in PASSING for each in parts), parts
            if all(each.error_code == 0 for each in parts):
                break
            self.pause()
        found = []
        for each in (run for part in parts for run in part.acquired_records):
            offsets = range(each.first_offset, each.last_offset + 1)
            self.records.acquired(offsets, each.delivery_count)
            found.append((offsets, each.delivery_count))
        return found

    def acknowledge(self, runs: list[tuple[range, int]]) -> None:
        """Acknowledge runs of records, each alone or with types of its own. Some stay acquired."""
        kind = k.ShareAcknowledgeRequest
        batches, done, rejected = [], [], []
        for offsets, count in runs:
            if not self.is_draining and self.random.random() < 0.02:
                continue
            types = [self.kind()]
            if self.random.random() < 0.3:
                types = [self.kind() for _ in offsets]
            batches.append(
                kind.AcknowledgementBatch(
                    first_offset=offsets[0], last_offset=offsets[-1], acknowledge_types=types
                )
            )
            each = types * len(offsets) if len(types) == 1 else types
            of = list(zip(offsets, each, strict=True))
            done += [at for at, one in of if one != RELEASE or count == MOST]
            rejected += [at for at, one in of if one == REJECT]
        if not batches:
            self.disconnect()  # which returns what is acquired
            return
        part = kind.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        request = kind(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            topics=[kind.AcknowledgeTopic(topic_id=self.topic_id, partitions=[part])],
        )
        with self.records.lock:
            self.records.uncertain.update(done)
        answer = self.ask(request, 2)
        assert answer.error_code == 0, answer
        self.epoch += 1
        code = answer.responses[0].partitions[0].error_code
        assert code in PASSING, ErrorCode(code).name
        if code == ErrorCode.NONE:
            with self.records.lock:
                self.records.finished.update(done)
                self.records.rejected.update(rejected)

    def kind(self) -> int:
        if self.is_draining:
            return ACCEPT
        return self.random.choices((ACCEPT, RELEASE, REJECT), (90, 5, 5))[0]
