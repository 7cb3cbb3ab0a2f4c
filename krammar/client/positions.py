"""The positions of a reader: where each partition is read next, and whether its log still has what was read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from kafka_wire import ErrorCode

from krammar.client.cluster import Cluster
from krammar.client.deadline import Backoff, Deadline
from krammar.client.errors import (
    ClientError,
    OffsetOutOfRange,
    TruncatedError,
    UnsupportedError,
    kafka_error,
)
from krammar.client.metadata import NO_ID, TopicPartition
from krammar.client.offsets import At, epoch_ends, list_offsets


@dataclass(slots=True, eq=False)
class ReadPosition:
    """The position of a partition: the next offset to read."""

    at: TopicPartition
    offset: int
    end: int | None
    # The leader epoch of the last record, and the one against which it was checked.
    epoch: int = -1
    checked: int = -1
    replica: int = -1  # preferred to the leader (KIP-392)
    topic_id: UUID = NO_ID
    failed: ClientError | None = None
    retry_at: float = 0.0
    trouble: tuple[Backoff, Deadline] | None = None

    @property
    def wanted(self) -> bool:
        """Whether the partition is still to be read."""
        return self.failed is None and (self.end is None or self.offset < self.end)

    def fail(self, cluster: Cluster, error: ClientError) -> None:
        """Retry later.

        Raises ``error``, or DeadlineError, if retrying cannot help; see ``Backoff.delay``.
        """
        cluster.metadata.outdate([self.at.topic])
        if self.trouble is None:
            self.trouble = cluster.backoff(), cluster.deadline(f"reading {self.at}")
        backoff, deadline = self.trouble
        self.retry_at = time.monotonic() + backoff.delay(deadline, error)

    def give_up(self, error: ClientError) -> None:
        """Pause the partition."""
        self.failed = error
        self.trouble = None
        self.retry_at = 0.0


def recreated(cluster: Cluster, p: ReadPosition) -> ClientError | None:
    """Return an error if the topic was deleted and created again: it has other records."""
    topic = cluster.metadata.topics.get(p.at.topic)
    if topic is None or topic.topic_id == p.topic_id:
        return None
    before, p.topic_id = p.topic_id, topic.topic_id
    if before == NO_ID:
        return None
    detail = f"{p.at} (the topic was deleted and created again)"
    return kafka_error(ErrorCode.UNKNOWN_TOPIC_ID, detail)


def unchecked_epochs(cluster: Cluster, positions: Iterable[ReadPosition]) -> list[ReadPosition]:
    """Return the positions whose partitions have new leaders, whose logs may lack what was read from the old ones."""
    wanted = []
    for p in positions:
        topic = cluster.metadata.topics.get(p.at.topic)
        known = None if topic is None else topic.partitions.get(p.at.partition)
        if not p.wanted or known is None or known.leader < 0:
            continue
        if known.leader_epoch <= p.checked:
            continue
        if p.checked < 0 and p.epoch == known.leader_epoch:
            p.checked = known.leader_epoch
        elif p.epoch < 0 or known.leader_epoch < 0:
            p.checked = max(p.checked, known.leader_epoch)
        else:
            wanted.append(p)
    return wanted


def truncated(
    cluster: Cluster, positions: list[ReadPosition], deadline: Deadline
) -> dict[TopicPartition, TruncatedError]:
    """Ask new leaders whether their logs have what was read. Return the errors of those that lack it.

    ``positions`` are those whose epochs must be checked.
    """
    wanted = {p.at: p.epoch for p in positions}
    try:
        ends = epoch_ends(cluster, wanted, deadline)
    except UnsupportedError:
        ends = {}
    errors = {}
    for p in positions:
        p.checked = cluster.partition(p.at).leader_epoch
        end = ends.get(p.at)
        # -1: the log begins in a later epoch, so there is nothing left to compare.
        if end is not None and 0 <= end.end_offset < p.offset and end.leader_epoch >= 0:
            errors[p.at] = TruncatedError(p.at.topic, p.at.partition, p.offset, end.end_offset)
    return errors


def is_local(cluster: Cluster, p: ReadPosition) -> bool:
    """Return whether the broker has the offset on its disk.

    Reads from tiered storage (KIP-405) can time out, and are answered without records then.
    """
    deadline = cluster.deadline(f"finding the local log of {p.at}")
    try:
        found = list_offsets(cluster, {p.at: At.EARLIEST_LOCAL}, deadline)
    except UnsupportedError:  # before tiered storage
        return True
    except ClientError:
        return False
    return found[p.at].offset <= p.offset


def out_of_range(cluster: Cluster, p: ReadPosition) -> ClientError:
    """Return the error for an offset that the log does not have, with the ends of the log."""
    try:
        deadline = cluster.deadline(f"finding the ends of {p.at}")
        low = list_offsets(cluster, {p.at: At.EARLIEST}, deadline)[p.at].offset
        high = list_offsets(cluster, {p.at: At.LATEST}, deadline)[p.at].offset
    except ClientError:
        low = high = -1
    return OffsetOutOfRange(
        topic=p.at.topic,
        partition=p.at.partition,
        offset=p.offset,
        log_start_offset=low,
        end_offset=high,
    )


class Positions:
    """The partitions of a reader, in the order in which they are requested: those that return records move to the end.

    ``failures`` are the errors of paused partitions that were not raised yet. The arguments are those of ``Reader``.
    """

    def __init__(
        self,
        cluster: Cluster,
        offsets: Mapping[TopicPartition, int],
        until: Mapping[TopicPartition, int] | None,
        epochs: Mapping[TopicPartition, int] | None,
        topic_ids: Mapping[str, UUID] | None,
    ) -> None:
        until, epochs, topic_ids = until or {}, epochs or {}, topic_ids or {}
        for at, offset in offsets.items():
            if offset < 0:
                raise ValueError(f"{at}: offset {offset} is negative")
        self._cluster = cluster
        self.by_partition = {
            at: ReadPosition(
                at,
                offset,
                until.get(at),
                epochs.get(at, -1),
                topic_id=topic_ids.get(at.topic, NO_ID),
            )
            for at, offset in offsets.items()
        }
        self.failures: deque[ClientError] = deque()

    def __iter__(self) -> Iterator[ReadPosition]:
        return iter(self.by_partition.values())

    def __str__(self) -> str:
        return ", ".join(map(str, self.by_partition))

    @property
    def finished(self) -> bool:
        """Whether everything was read, and all errors were raised."""
        return not self.failures and not any(p.wanted for p in self)

    def seek(self, at: TopicPartition, offset: int, until: int | None) -> None:
        """Set the next offset of a partition, or add a partition. None leaves the end unchanged."""
        position = self.by_partition.pop(at, None)
        end = position.end if position is not None and until is None else until
        # The offset is one of the topic that was read so far, not of one that is created again.
        topic_id = NO_ID if position is None else position.topic_id
        self.by_partition[at] = ReadPosition(at, offset, end, topic_id=topic_id)

    def move_to_end(self, at: TopicPartition) -> None:
        """Let a partition be the last that is requested."""
        self.by_partition[at] = self.by_partition.pop(at)

    def fail(self, p: ReadPosition, error: ClientError) -> None:
        """Retry a partition later, or pause it with the error."""
        try:
            p.fail(self._cluster, error)
        except ClientError as final:
            self.give_up(p, final)

    def give_up(self, p: ReadPosition, error: ClientError) -> None:
        """Pause a partition with an error."""
        p.give_up(error)
        self.failures.append(error)

    def by_node(
        self, busy: Collection[TopicPartition], deadline: Deadline
    ) -> dict[int, list[ReadPosition]]:
        """Return the partitions to request now, except ``busy`` ones, by the broker that has them.

        Waits for metadata, and for new leaders to report the ends of epochs.
        """
        now = time.monotonic()
        idle = [p for p in self if p.wanted and p.retry_at <= now and p.at not in busy]
        groups: dict[int, list[ReadPosition]] = {}
        if not idle:
            return groups
        try:
            self._cluster.update_topics({p.at.topic for p in idle}, deadline)
        except ClientError as error:
            for p in idle:
                self.fail(p, error)
            return groups
        for p in idle:
            other = recreated(self._cluster, p)
            if other is not None:
                self.give_up(p, other)
        self._check_epochs(idle, deadline)
        for p in idle:
            if not p.wanted or p.retry_at > now:
                continue
            try:
                leader = self._cluster.partition(p.at).leader
            except ClientError as error:
                self.fail(p, error)
                continue
            groups.setdefault(p.replica if p.replica >= 0 else leader, []).append(p)
        return groups

    def _check_epochs(self, idle: list[ReadPosition], deadline: Deadline) -> None:
        unchecked = unchecked_epochs(self._cluster, idle)
        if not unchecked:
            return
        try:
            errors = truncated(self._cluster, unchecked, deadline)
        except ClientError as error:
            for p in unchecked:
                self.fail(p, error)
            return
        for p in unchecked:
            if p.at in errors:
                self.give_up(p, errors[p.at])
