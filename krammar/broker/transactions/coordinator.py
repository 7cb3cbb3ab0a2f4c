"""The transaction coordinator: producer ids, transactions, and markers.

The outcome of a transaction is decided when its prepared state is in the log. Then each of its partitions gets a
marker, and finally the complete state is written. All partitions are on this broker, so this happens before EndTxn is
answered. A failed write is retried by a timer; until then, the producer gets CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, ItemsView, Iterator
from dataclasses import replace
from typing import TypeAlias

from kafka_wire import ErrorCode

from krammar.broker.cluster import OFFSETS_TOPIC, ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.errors import ApiError
from krammar.broker.log.manager import LogManager
from krammar.broker.timers import TURN_SECONDS, Timer, Timers
from krammar.broker.topics import Topics
from krammar.broker.transactions import recovery
from krammar.broker.transactions.producer_ids import ProducerIds
from krammar.broker.transactions.state import EPOCH_BUMP, TopicPartition, Transaction
from krammar.broker.transactions.store import StateStore

# A transactional id, and the producer id and epoch of the producer that uses it.
Producer: TypeAlias = tuple[str, int, int]

log = logging.getLogger("krammar.broker.transactions")

# Seconds until a failed write of markers is retried.
RETRY = 0.5
# The number of partitions that get the marker of a transaction in one turn of the event loop (0.1 ms each).
MARKED_AT_ONCE = 200

# The versions of requests from which the broker adds partitions to the transaction (KIP-890), and from which
# clients know TRANSACTION_ABORTABLE.
PRODUCE_ADDS, PRODUCE_ABORTABLE = 12, 11
OFFSETS_ADD, OFFSETS_ABORTABLE = 5, 4
# Reported as NOT_ENOUGH_REPLICAS, which producers of all versions retry.
_RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionCoordinator:
    """The transactions of a broker. Call ``start`` when the broker is ready.

    ``marked`` is called after a marker in a partition of `__consumer_offsets`, with the partition, the producer id and
    whether the transaction was committed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        timers: Timers,
        cluster: ClusterMetadata,
        logs: LogManager,
        topics: Topics,
        marked: Callable[[int, int, bool], None],
    ) -> None:
        self._config = config
        self._timers = timers
        self._logs = logs
        self._topics = topics
        self._marked = marked
        self.store = StateStore(cluster, logs, topics)
        self._ids = ProducerIds(cluster.allocate_producer_ids)
        self._loaded = False
        # Transactional ids with an open transaction.
        self._open: set[str] = set()
        # The partitions of prepared transactions without a marker.
        self._markers: dict[str, set[TopicPartition]] = {}
        # Transactional ids that were prepared at the start, and whose later states may be lost.
        self._unsettled: set[str] = set()
        # Transactional ids whose producers a power cut has made unreliable, until they are fenced.
        self._unfenced: set[str] = set()
        self._all_known = False
        # The next check for transactions that have timed out.
        self._alarm: Timer | None = None
        self._alarm_ms = 0
        self._retry: Timer | None = None
        self._failing = False  # whether the last attempt to complete a transaction has failed

    # Start.

    def start(self) -> None:
        """Load the states: complete prepared transactions, and start the timeouts of open ones."""
        self._timers.call_later(0, self._load)
        self._expire_later()

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        is_complete = self.store.load()
        remains = recovery.Remains.of(self._logs)
        if self._logs.lost_power and self.store:
            self._unfenced.update(self.store)
            log.warning(
                "a power cut can have taken acknowledged records: the producers of %d transactional ids are fenced,"
                " and their open transactions are aborted",
                len(self.store),
            )
        for transactional_id, transaction in list(self.store.items()):
            if transaction.is_prepared:
                self._unsettled.add(transactional_id)
                self._complete(transactional_id, transaction)
            elif transactional_id in self._unfenced:
                self._begin_fencing(transactional_id, remains)
            else:
                self._settle(transactional_id, remains)
        self._complete_all()
        if is_complete:
            self._abort_abandoned()
        # The states that could not be read remain to be fenced by a later start.
        self._all_known = is_complete or not self.store.exists
        self._note_fenced()

    def _note_fenced(self) -> None:
        if self._all_known and not self._unfenced and self._logs.lost_power:
            self._logs.repaired()

    def _begin_fencing(self, transactional_id: str, remains: recovery.Remains) -> None:
        """Let a transactional id refuse its producers from now on. The abort is written by ``_complete``."""
        transaction = self.store[transactional_id]
        fenced = recovery.fenced(transaction, remains, self._timers.now_ms())
        self.store[transactional_id] = fenced
        self._markers[transactional_id] = set(fenced.partitions)

    def _settle(self, transactional_id: str, remains: recovery.Remains) -> None:
        """Repair a state after which others may be lost, and start the timeout of an open transaction."""
        if transactional_id in self._unfenced:
            self._begin_fencing(transactional_id, remains)
            self._complete_more(transactional_id)
            return
        transaction = self.store[transactional_id]
        found = recovery.recovered(transaction, remains, self._timers.now_ms())
        if found is not None:
            log.warning(
                "transactional id %r: its last states are lost; %s, and the epoch is %d",
                transactional_id,
                (
                    "its open transaction is aborted"
                    if found.is_prepared
                    else "no transaction is open"
                ),
                found.epoch,
            )
            # Not written first: until the complete state is in the log, each start finds the same loss.
            self.store[transactional_id] = found
            if found.is_prepared:
                self._complete(transactional_id, found)
        elif transaction.is_open:
            self._open.add(transactional_id)
            self._alarm_at(transaction.deadline_ms)

    def _abort_abandoned(self) -> None:
        """Abort open transactions that no transactional id knows: they would hide all later records."""
        remains = recovery.Remains.of(self._logs)
        owned = {transaction.producer_id for transaction in self.store.values()}
        for aborted in recovery.abandoned(remains, owned, self._timers.now_ms()):
            for where in sorted(aborted.partitions):
                partition_log = self._logs.get(*where)
                if partition_log is None:
                    continue
                producer = partition_log.producer_states.by_id[aborted.producer_id]
                log.warning(
                    "%s-%d: the transaction of producer id %d is aborted: its state is lost",
                    *where,
                    aborted.producer_id,
                )
                try:
                    self._mark(
                        where, aborted, max(producer.coordinator_epoch, 0), aborted.updated_ms
                    )
                except ApiError as error:
                    log.error("%s-%d: it is not aborted before the next start: %s", *where, error)

    def _get(self, transactional_id: str) -> Transaction | None:
        self._load()
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        transaction = self.store.get(transactional_id)
        if transaction is None and not self.store.is_online(transactional_id):
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return transaction

    def _known(
        self, transactional_id: str, unknown: ErrorCode = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    ) -> Transaction:
        transaction = self._get(transactional_id)
        if transaction is None:
            raise ApiError(unknown)
        return transaction

    # Requests of producers.

    def next_producer_id(self) -> int:
        """Return a new producer id. Raises ApiError if none can be reserved."""
        return self._ids.take()

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None
    ) -> tuple[int, int]:
        """Return the producer id and epoch for a transactional id, and fence its previous producer.

        ``expected`` is the producer id and epoch of a producer that continues after an error (KIP-360).

        Raises:
            ApiError: CONCURRENT_TRANSACTIONS after an open transaction was aborted, so that the producer retries;
                other codes for invalid requests.
        """
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = self._get(transactional_id)
        now = self._timers.now_ms()
        if transaction is None:
            transaction = Transaction(self._ids.take(), timeout_ms, now)
        elif transaction.is_open:
            transaction.check_holder(expected)
            self._fence(transactional_id, transaction)
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        changed = transaction.initialized(expected, timeout_ms, now, self._ids.take)
        self.store.put(transactional_id, changed)
        return changed.producer_id, changed.epoch

    def add_partitions(
        self, producer: Producer, partitions: Collection[TopicPartition], client_version: int
    ) -> None:
        """Add partitions to the transaction; begin one if none is open. Raises ApiError."""
        transactional_id, producer_id, epoch = producer
        transaction = self._known(transactional_id)
        changed = transaction.with_partitions(
            producer_id, epoch, partitions, client_version, self._timers.now_ms()
        )
        if changed is transaction:
            return
        self.store.put(transactional_id, changed)
        if not transaction.is_open:
            self._open.add(transactional_id)
            self._alarm_at(changed.deadline_ms)

    def missing(
        self, producer: Producer, partitions: Collection[TopicPartition]
    ) -> set[TopicPartition]:
        """Return the partitions that are not part of the transaction. Raises ApiError."""
        transactional_id, producer_id, epoch = producer
        return self._known(transactional_id).missing(producer_id, epoch, partitions)

    def end(self, producer: Producer, commit: bool, client_version: int) -> tuple[int, int]:
        """Commit or abort. Returns the producer id and epoch for the next transaction. Raises ApiError."""
        transactional_id, producer_id, epoch = producer
        transaction = self._known(transactional_id)
        changed = transaction.ended(
            producer_id, epoch, commit, client_version, self._timers.now_ms(), self._ids.take
        )
        if changed is not transaction:
            changed = self._prepare(transactional_id, changed)
        return changed.producer_id, changed.epoch

    # Checks of transactional writes.

    def check(
        self,
        transactional_id: str | None,
        producer_id: int,
        epoch: int,
        topic: str,
        partition: int,
        version: int,
    ) -> None:
        """Raise ApiError if a batch must not be appended.

        Its partition must be part of the open transaction. From ``version`` 12 of Produce on, it is added.
        """
        transaction = self.store.get(transactional_id) if transactional_id else None
        if (
            transaction is not None
            and transaction.epoch == epoch
            and transaction.producer_id == producer_id
            and (topic, partition) in transaction.partitions
            and transaction.is_open
        ):
            return
        if transactional_id is None:
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "the batch is transactional, but the request has no transactional id",
            )
        adds = version >= PRODUCE_ADDS
        if not adds and not self._config.transaction_partition_verification_enable:
            return
        try:
            producer = transactional_id, producer_id, epoch
            self._admit(producer, (topic, partition), adds, version >= PRODUCE_ABORTABLE)
        except ApiError as error:
            if error.code in _RETRIABLE or (
                error.code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds
            ):
                raise ApiError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"cannot verify that the partition is part of the transaction: {error}",
                ) from error
            raise

    def check_offsets(
        self, transactional_id: str, producer_id: int, epoch: int, group_id: str, version: int
    ) -> None:
        """Raise ApiError if a transaction must not commit offsets of a group.

        From ``version`` 5 of TxnOffsetCommit on, the group's partition is added to the transaction.
        """
        partition = self._topics.coordinating_partition(OFFSETS_TOPIC, group_id)
        offsets = self._logs.get(OFFSETS_TOPIC, partition)
        if offsets is not None and offsets.producer_states.in_transaction(producer_id, epoch):
            return
        self._admit(
            (transactional_id, producer_id, epoch),
            (OFFSETS_TOPIC, partition),
            version >= OFFSETS_ADD,
            version >= OFFSETS_ABORTABLE,
        )

    def _admit(
        self, producer: Producer, partition: TopicPartition, add: bool, abortable: bool
    ) -> None:
        try:
            if add:
                self.add_partitions(producer, [partition], EPOCH_BUMP)
                return
            missing = self.missing(producer, [partition])
        except ApiError as error:
            if error.code is ErrorCode.PRODUCER_FENCED:
                # Responses to Produce do not use that code.
                raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH) from error
            raise
        if missing:
            raise ApiError(
                ErrorCode.TRANSACTION_ABORTABLE if abortable else ErrorCode.INVALID_TXN_STATE,
                "the partition was not added to the transaction",
            )

    # Administration.

    def describe(self, transactional_id: str) -> Transaction:
        """Return the state of a transactional id; if it is prepared, only with the partitions without a marker.

        Raises ApiError(TRANSACTIONAL_ID_NOT_FOUND).
        """
        transaction = self._known(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        left = self._markers.get(transactional_id)
        return transaction if left is None else replace(transaction, partitions=frozenset(left))

    def items(self) -> ItemsView[str, Transaction]:
        """Return all transactional ids with their states."""
        self._load()
        return self.store.items()

    # The end of transactions.

    def _fence(self, transactional_id: str, transaction: Transaction) -> None:
        fenced = transaction.fenced(self.store.level, self._timers.now_ms(), self._ids.take)
        self._prepare(transactional_id, fenced)

    def _prepare(self, transactional_id: str, prepared: Transaction) -> Transaction:
        """Write the outcome of a transaction, then complete it.

        Returns:
            The complete state, even if it is only written later: after a failure, or in a later turn of the event
            loop because the transaction has many partitions.

        Raises:
            ApiError: the outcome cannot be written; the transaction remains open.
        """
        self.store.put(transactional_id, prepared)
        self._open.discard(transactional_id)
        return self._complete(transactional_id, prepared)

    def _complete(self, transactional_id: str, prepared: Transaction) -> Transaction:
        # The time of the markers, too. The next transaction starts after it.
        now = max(self._timers.now_ms(), prepared.updated_ms)
        completed = prepared.completed(now)
        left = self._markers.setdefault(transactional_id, set(prepared.partitions))
        is_unsettled = transactional_id in self._unsettled
        try:
            if is_unsettled:
                left &= recovery.unmarked(prepared, self._logs)
            epoch = self.store.leader_epoch(transactional_id)
            for partition in sorted(left)[:MARKED_AT_ONCE]:
                self._mark(partition, prepared, epoch, now)
                left.discard(partition)
            if left:
                # Until then, requests of the producer get CONCURRENT_TRANSACTIONS, as from Kafka.
                self._timers.call_later(0, self._complete_more, transactional_id)
                return completed
            self.store.put(transactional_id, completed)
        except ApiError as error:
            if not self._failing:
                self._failing = True  # one line is enough until all are complete
                log.error("transaction of %r: %s; it will be retried", transactional_id, error)
            if self._retry is None:
                self._retry = self._timers.call_later(RETRY, self._complete_all)
        else:
            del self._markers[transactional_id]
            self._failing = bool(self._markers)
            if is_unsettled:
                self._unsettled.discard(transactional_id)
                self._settle(transactional_id, recovery.Remains.of(self._logs))
            elif transactional_id in self._unfenced:
                self._unfenced.discard(transactional_id)
                self._note_fenced()
        return completed

    def _complete_more(self, transactional_id: str) -> None:
        prepared = self.store.get(transactional_id)
        if prepared is not None and transactional_id in self._markers:
            self._complete(transactional_id, prepared)

    def _complete_all(self) -> None:
        self._retry = None
        self._complete_some(iter(list(self._markers)))

    def _complete_some(self, transactional_ids: Iterator[str]) -> None:
        """Complete transactions for a turn of the event loop, and the rest in the next turns.

        Fencing takes 0.1 ms per transactional id, and a power cut fences all of them.
        """
        until = time.monotonic() + TURN_SECONDS
        for transactional_id in transactional_ids:
            self._complete_more(transactional_id)
            if time.monotonic() >= until:
                self._timers.call_later(0, self._complete_some, transactional_ids)
                return

    def _mark(
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

    # Timeouts and expiry.

    def _alarm_at(self, deadline_ms: int) -> None:
        """Schedule the next check for transactions that have timed out, at that time or earlier."""
        if self._alarm is not None:
            if self._alarm_ms <= deadline_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = deadline_ms
        seconds = max(0, deadline_ms - self._timers.now_ms()) / 1000
        self._alarm = self._timers.call_later(seconds, self.abort_timed_out)

    def abort_timed_out(self) -> None:
        """Abort transactions that have timed out, and schedule the next check."""
        self._alarm = None
        self._check(iter(list(self._open)))

    def _check(self, transactional_ids: Iterator[str]) -> None:
        """Abort those that have timed out; the next turns of the event loop continue after a while."""
        until = time.monotonic() + TURN_SECONDS
        for transactional_id in transactional_ids:
            if transactional_id in self._open:
                self._abort_if_late(transactional_id)
            if time.monotonic() >= until:
                self._timers.call_later(0, self._check, transactional_ids)
                return

    def _abort_if_late(self, transactional_id: str) -> None:
        transaction = self._known(transactional_id)
        deadline, now = transaction.deadline_ms, self._timers.now_ms()
        if deadline <= now:
            try:
                self._fence(transactional_id, transaction)
                return
            except ApiError as error:
                where = f"the timed-out transaction of {transactional_id!r}"
                log.error("%s is not aborted: %s", where, error)
                deadline = now + int(RETRY * 1000)
        self._alarm_at(deadline)

    def _expire_later(self) -> None:
        config = self._config
        seconds = config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
        self._timers.call_later(seconds, self._expire)

    def _expire(self) -> None:
        self.expire()
        self._expire_later()

    def expire(self) -> None:
        """Delete expired transactional ids."""
        before = self._timers.now_ms() - self._config.transactional_id_expiration_ms
        try:
            self.store.forget(
                [
                    transactional_id
                    for transactional_id, transaction in self.items()
                    if transaction.updated_ms <= before
                    and not (transaction.is_open or transaction.is_prepared)
                ]
            )
        except ApiError as error:
            log.error("expired transactional ids could not be deleted: %s", error)
