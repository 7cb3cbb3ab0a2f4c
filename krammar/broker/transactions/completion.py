"""Completes prepared transactions: writes their markers, and then their complete states."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from kafka_wire import ErrorCode

from krammar.broker.cluster import OFFSETS_TOPIC
from krammar.broker.errors import ApiError
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.manager import LogManager
from krammar.broker.timers import Timer, Timers
from krammar.broker.transactions.state import EPOCH_BUMP, TopicPartition, Transaction
from krammar.broker.transactions.store import StateStore

log = logging.getLogger("krammar.broker.transactions")


@dataclass(eq=False)
class Completion:
    """Completes prepared transactions, and retries what fails.

    Attributes:
        markers: the partitions of prepared transactions without a marker, by transactional id
        unsettled: transactional ids that were prepared at a start after a power cut: their later
            states may be lost, and some partitions may have the marker already
        ended: called with each transactional id whose complete state is in the log
        retry_seconds: until a failed write of markers is retried
        marked_at_once: partitions that get the marker of a transaction in one turn of the event
            loop (0.1 ms each)

    Args:
        marked: as for ``TransactionCoordinator``
        delay_ms: how long markers wait, in milliseconds; 0 to write them at once
    """

    retry_seconds: ClassVar[float] = 0.5
    marked_at_once: ClassVar[int] = 200

    _timers: Timers
    _logs: LogManager
    _store: StateStore
    _marked: Callable[[int, int, bool], None]
    _delay_ms: int
    markers: dict[str, set[TopicPartition]] = field(init=False, default_factory=dict)
    unsettled: set[str] = field(init=False, default_factory=set)
    ended: Callable[[str], None] = field(init=False)
    _retry: Timer | None = field(init=False, default=None)
    _failing: bool = field(init=False, default=False)  # whether the last attempt has failed

    def complete(self, transactional_id: str, prepared: Transaction) -> Transaction:
        """Write the markers of a prepared transaction, then its complete state, and return that.

        It may be written later: after a failure, with ``krammar.kafka.like.delays.ms``, or in a later turn
        of the event loop if the transaction has many partitions.
        """
        # The time of the markers, too. The next transaction starts after it.
        now = max(self._timers.now_ms(), prepared.updated_ms)
        completed = prepared.completed(now)
        if self._delay_ms and transactional_id not in self.markers:
            self.markers[transactional_id] = set(prepared.partitions)
            self._timers.call_later(self._delay_ms / 1000, self.complete_more, transactional_id)
            return completed
        left = self.markers.setdefault(transactional_id, set(prepared.partitions))
        try:
            if transactional_id in self.unsettled:
                left &= unmarked(prepared, self._logs)
            epoch = self._store.leader_epoch(transactional_id)
            for partition in sorted(left)[: self.marked_at_once]:
                self.mark(partition, prepared, epoch, now)
                left.discard(partition)
            if left:
                # Until then, requests of the producer get CONCURRENT_TRANSACTIONS, as from Kafka.
                self._timers.call_later(0, self.complete_more, transactional_id)
                return completed
            self._store.put(transactional_id, completed)
        except ApiError as error:
            if not self._failing:
                self._failing = True  # one line is enough until all are complete
                log.error("transaction of %r: %s; it will be retried", transactional_id, error)
            if self._retry is None:
                self._retry = self._timers.call_later(self.retry_seconds, self.complete_all)
        else:
            del self.markers[transactional_id]
            self._failing = bool(self.markers)
            self.ended(transactional_id)
        return completed

    def complete_more(self, transactional_id: str) -> None:
        """Continue with a transaction, if it is prepared."""
        prepared = self._store.get(transactional_id)
        if prepared is not None and transactional_id in self.markers:
            self.complete(transactional_id, prepared)

    def complete_all(self) -> None:
        """Continue with all prepared transactions.

        Fencing takes 0.1 ms per transactional id, and a power cut fences all of them.
        """
        self._retry = None
        self._timers.in_turns(self.complete_more, self.markers)

    def mark(
        self,
        where: TopicPartition,
        prepared: Transaction,
        coordinator_epoch: int,
        timestamp: int,
    ) -> None:
        """Write a marker. Raises ApiError if a retry may succeed."""
        topic, partition = where
        partition_log = self._logs.get(topic, partition)
        if partition_log is None:
            return  # the topic was deleted in the meantime
        try:
            partition_log.append_marker(
                prepared.producer_id,
                prepared.epoch,
                commit=prepared.is_commit,
                coordinator_epoch=coordinator_epoch,
                timestamp=timestamp,
            )
        except ApiError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            log.warning("%s-%d: no marker is written: %s", topic, partition, error)
            return
        if topic == OFFSETS_TOPIC:
            self._marked(partition, prepared.producer_id, prepared.is_commit)


def unmarked(prepared: Transaction, logs: LogManager) -> set[TopicPartition]:
    """Return the partitions in which a prepared transaction may need a marker.

    A partition with a later transaction of the producer already has the marker. Another one would
    end that transaction.

    Raises:
        ApiError: a log cannot be read.
    """
    left = set()
    for where in prepared.partitions:
        log = logs.get(*where)
        if log is None or log.offline or not _has_later(log, prepared):
            left.add(where)
    return left


def _has_later(log: PartitionLog, prepared: Transaction) -> bool:
    """Return whether a log contains a later transaction of the producer. Raises ApiError."""
    producer_id = prepared.producer_id
    producer = log.producers.by_id.get(producer_id)
    if producer is None:
        return False
    if producer.epoch != prepared.epoch:
        return producer.epoch > prepared.epoch
    first = log.producers.open_transactions.get(producer_id)
    if first is None:
        return False
    if prepared.client_version >= EPOCH_BUMP:
        return True  # the records of the prepared transaction have the epoch before
    # All transactions of older clients have the same epoch. Markers of the one before are older
    # than this one's start.
    return log.reader.last_marker_ms(producer_id, producer.epoch, first) >= prepared.start_ms
