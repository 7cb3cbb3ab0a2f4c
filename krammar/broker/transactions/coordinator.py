"""The transaction coordinator: identities of producers, their transactions, and how these end.

A transaction's end is decided when its prepared state is in the log. Then each of its partitions gets
a marker, and last the complete state is written. All partitions are in this broker, so that this is
done before EndTxn is answered; what the disk refused is tried again by a timer, and the producer is
told CONCURRENT_TRANSACTIONS as long.
"""

from __future__ import annotations

import logging
from asyncio import TimerHandle
from collections.abc import Collection, ItemsView
from typing import TYPE_CHECKING

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError
from krammar.broker.transactions.ids import ProducerIds
from krammar.broker.transactions.state import EPOCH_BUMP, TopicPartition, Transaction
from krammar.broker.transactions.store import StateStore

if TYPE_CHECKING:
    from krammar.broker.broker import Broker

log = logging.getLogger("krammar.broker.transactions")

OFFSETS_TOPIC = "__consumer_offsets"
# Seconds until markers are written again that could not be written.
RETRY = 0.5

# Versions of requests from which the broker adds the partition that is written to (KIP-890), and
# from which a client understands TRANSACTION_ABORTABLE.
PRODUCE_ADDS, PRODUCE_ABORTABLE = 12, 11
OFFSETS_ADD, OFFSETS_ABORTABLE = 5, 4
# What a producer that does not know CONCURRENT_TRANSACTIONS in answers to Produce tries again for.
_RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionCoordinator:
    """One for each broker; ``start`` is called when the broker serves."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.store = StateStore(broker)
        self._ids = ProducerIds(broker.cluster.allocate_producer_ids)
        self._loaded = False
        # Transactional ids with an open transaction.
        self._open: set[str] = set()
        # For prepared transactions the partitions that have no marker yet.
        self._markers: dict[str, set[TopicPartition]] = {}
        self._alarm: TimerHandle | None = None
        self._alarm_ms = 0
        self._retry: TimerHandle | None = None
        self._expiry: TimerHandle | None = None

    # Life.

    def start(self) -> None:
        """Take up what the last run left: prepared transactions are completed, open ones time out."""
        self._broker.call_later(0, self._load)
        self._expire_later()

    def close(self) -> None:
        for timer in (self._alarm, self._retry, self._expiry):
            if timer is not None:
                timer.cancel()

    def ensure_topic(self) -> None:
        """Create `__transaction_state` unless it is there. Raises ApiError."""
        self.store.ensure_topic()

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that has the state of an id."""
        return self.store.partition_for(transactional_id)

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        self.store.load()
        for transactional_id, transaction in list(self.store.items()):
            if transaction.is_open:
                self._open.add(transactional_id)
                self._alarm_at(transaction.deadline_ms)
            elif transaction.is_prepared:
                self._complete(transactional_id, transaction)

    def _get(self, transactional_id: str) -> Transaction | None:
        if not self._loaded:
            self._load()
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        transaction = self.store.get(transactional_id)
        if transaction is None and not self.store.exists:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return transaction

    def _known(self, transactional_id: str) -> Transaction:
        transaction = self._get(transactional_id)
        if transaction is None:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    @property
    def _level(self) -> int:
        return self._broker.cluster.features.get("transaction.version", 0)

    # What producers ask.

    def next_producer_id(self) -> int:
        """An id that no other producer has. Raises ApiError if none can be allotted."""
        return self._ids.take()

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None
    ) -> tuple[int, int]:
        """The producer id and epoch to use; who used the transactional id before is fenced.

        ``expected`` is the id and epoch that the producer had, if it goes on after an error
        (KIP-360). An open transaction is aborted, and CONCURRENT_TRANSACTIONS makes the producer ask
        again. Raises ApiError.
        """
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= self._broker.config.transaction_max_timeout_ms:
            raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = self._get(transactional_id)
        now = self._broker.now_ms()
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
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> None:
        """Make partitions part of the transaction, which begins if none is open. Raises ApiError."""
        transaction = self._known(transactional_id)
        changed = transaction.with_partitions(
            producer_id, epoch, partitions, client_version, self._broker.now_ms()
        )
        if changed is transaction:
            return
        self.store.put(transactional_id, changed)
        if not transaction.is_open:
            self._open.add(transactional_id)
            self._alarm_at(changed.deadline_ms)

    def missing(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
    ) -> set[TopicPartition]:
        """Those of ``partitions`` that are not part of the transaction. Raises ApiError."""
        return self._known(transactional_id).missing(producer_id, epoch, partitions)

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        commit: bool,
        client_version: int,
    ) -> tuple[int, int]:
        """Commit or abort. Returns the producer id and epoch to go on with. Raises ApiError."""
        transaction = self._known(transactional_id)
        changed = transaction.ended(
            producer_id,
            epoch,
            commit,
            client_version,
            self._broker.now_ms(),
            self._ids.take,
        )
        if changed is not transaction:
            changed = self._prepare(transactional_id, changed)
        return changed.producer_id, changed.epoch

    # What is written in transactions.

    def check(
        self,
        transactional_id: str | None,
        producer_id: int,
        epoch: int,
        topic: str,
        partition: int,
        version: int,
    ) -> None:
        """Whether a batch of Produce ``version`` may be appended: its partition has to be in the open
        transaction, or is added to it. Raises ApiError."""
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
                "a batch is of a transaction, and the request has no transactional id",
            )
        adds = version >= PRODUCE_ADDS
        if not adds and not self._broker.config.transaction_partition_verification_enable:
            return
        try:
            self._admit(
                transactional_id,
                producer_id,
                epoch,
                (topic, partition),
                adds,
                version >= PRODUCE_ABORTABLE,
            )
        except ApiError as error:
            if error.code in _RETRIABLE or (
                error.code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds
            ):
                raise ApiError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    "it could not be verified that the partition is part of the transaction: "
                    f"{error}",
                ) from error
            raise

    def check_offsets(
        self, transactional_id: str, producer_id: int, epoch: int, group_id: str, version: int
    ) -> None:
        """The same for the offsets of a group, by TxnOffsetCommit ``version``. Raises ApiError."""
        partition = self._broker.groups.partition_for(group_id)
        offsets = self._broker.logs.get(OFFSETS_TOPIC, partition)
        if offsets is not None and offsets.producer_states.in_transaction(producer_id, epoch):
            return
        self._admit(
            transactional_id,
            producer_id,
            epoch,
            (OFFSETS_TOPIC, partition),
            version >= OFFSETS_ADD,
            version >= OFFSETS_ABORTABLE,
        )

    def _admit(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partition: TopicPartition,
        add: bool,
        abortable: bool,
    ) -> None:
        try:
            if add:
                self.add_partitions(transactional_id, producer_id, epoch, [partition], EPOCH_BUMP)
                return
            missing = self.missing(transactional_id, producer_id, epoch, [partition])
        except ApiError as error:
            if error.code is ErrorCode.PRODUCER_FENCED:
                # Answers to Produce do not have that code.
                raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH) from error
            raise
        if missing:
            raise ApiError(
                ErrorCode.TRANSACTION_ABORTABLE if abortable else ErrorCode.INVALID_TXN_STATE,
                "the partition was not added to the transaction",
            )

    # What tools ask.

    def describe(self, transactional_id: str) -> Transaction:
        """Raises ApiError(TRANSACTIONAL_ID_NOT_FOUND)."""
        transaction = self._get(transactional_id)
        if transaction is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return transaction

    def waiting(self, transactional_id: str, transaction: Transaction) -> frozenset[TopicPartition]:
        """The partitions of a transaction; of a prepared one, those that have no marker yet."""
        left = self._markers.get(transactional_id)
        return transaction.partitions if left is None else frozenset(left)

    def items(self) -> ItemsView[str, Transaction]:
        """All transactional ids with their states."""
        if not self._loaded:
            self._load()
        return self.store.items()

    # How transactions end.

    def _fence(self, transactional_id: str, transaction: Transaction) -> None:
        fenced = transaction.fenced(self._level, self._broker.now_ms(), self._ids.take)
        self._prepare(transactional_id, fenced)

    def _prepare(self, transactional_id: str, prepared: Transaction) -> Transaction:
        """Write down how a transaction ends, and do it. Returns what the state is, or will be, when
        all is done. Raises ApiError if the transaction remains open."""
        self.store.put(transactional_id, prepared)
        self._open.discard(transactional_id)
        return self._complete(transactional_id, prepared)

    def _complete(self, transactional_id: str, prepared: Transaction) -> Transaction:
        completed = prepared.completed(self._broker.now_ms())
        left = self._markers.setdefault(transactional_id, set(prepared.partitions))
        try:
            epoch = self.store.leader_epoch(transactional_id)
            for partition in sorted(left):
                self._mark(partition, prepared, epoch)
                left.discard(partition)
            self.store.put(transactional_id, completed)
        except ApiError as error:
            if self._retry is None:
                log.error("transaction of %r: %s; it is tried again", transactional_id, error)
                self._retry = self._broker.call_later(RETRY, self._complete_all)
        else:
            del self._markers[transactional_id]
        return completed

    def _complete_all(self) -> None:
        self._retry = None
        for transactional_id in list(self._markers):
            prepared = self.store.get(transactional_id)
            if prepared is not None:
                self._complete(transactional_id, prepared)

    def _mark(self, where: TopicPartition, prepared: Transaction, coordinator_epoch: int) -> None:
        """Write a marker. Raises ApiError if that may succeed later."""
        topic, partition = where
        partition_log = self._broker.logs.get(topic, partition)
        if partition_log is None:
            return  # the topic was deleted meanwhile
        try:
            partition_log.append_marker(
                prepared.producer_id,
                prepared.epoch,
                commit=prepared.is_commit,
                coordinator_epoch=coordinator_epoch,
            )
        except ApiError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            log.warning("%s-%d takes no marker: %s", topic, partition, error)
            return
        if topic == OFFSETS_TOPIC:
            self._broker.groups.transaction_ended(
                partition, prepared.producer_id, prepared.is_commit
            )

    # Time.

    def _alarm_at(self, deadline_ms: int) -> None:
        """Look for transactions that have timed out at that time, or before."""
        if self._alarm is not None:
            if self._alarm_ms <= deadline_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = deadline_ms
        seconds = max(0, deadline_ms - self._broker.now_ms()) / 1000
        self._alarm = self._broker.call_later(seconds, self.abort_timed_out)

    def abort_timed_out(self) -> None:
        self._alarm = None
        now = self._broker.now_ms()
        following: int | None = None
        for transactional_id in list(self._open):
            transaction = self._known(transactional_id)
            deadline = transaction.deadline_ms
            if deadline <= now:
                try:
                    self._fence(transactional_id, transaction)
                    continue
                except ApiError as error:
                    log.error("abort of %r, timed out: %s", transactional_id, error)
                    deadline = now + int(RETRY * 1000)
            following = deadline if following is None else min(following, deadline)
        if following is not None:
            self._alarm_at(following)

    def _expire_later(self) -> None:
        config = self._broker.config
        seconds = config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
        self._expiry = self._broker.call_later(seconds, self._expire)

    def _expire(self) -> None:
        self.expire()
        self._expire_later()

    def expire(self) -> None:
        """Forget transactional ids that were not used for long."""
        before = self._broker.now_ms() - self._broker.config.transactional_id_expiration_ms
        try:
            self.store.forget(
                [
                    transactional_id
                    for transactional_id, transaction in self.items()
                    if transaction.updated_ms <= before
                    and not transaction.is_open
                    and not transaction.is_prepared
                ]
            )
        except ApiError as error:
            log.error("transactional ids that are out of use could not be removed: %s", error)
