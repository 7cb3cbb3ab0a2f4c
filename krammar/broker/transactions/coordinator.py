"""The transaction coordinator: producer ids, transactions, and markers.

The outcome of a transaction is decided when its prepared state is in the log. Then each of its
partitions gets a marker, and finally the complete state is written. All partitions are on this
broker, so this happens before EndTxn is answered. A failed write is retried by a timer; until then,
the producer gets CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, ItemsView
from dataclasses import replace
from typing import TypeAlias

from kafka_wire import ErrorCode

from krammar.broker.cluster import OFFSETS_TOPIC, ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.errors import ApiError
from krammar.broker.log.manager import LogManager
from krammar.broker.timers import Timer, Timers
from krammar.broker.topics import Topics
from krammar.broker.transactions.completion import Completion
from krammar.broker.transactions.recovery import Restart
from krammar.broker.transactions.state import EPOCH_BUMP, TopicPartition, Transaction
from krammar.broker.transactions.store import StateStore

# A transactional id, and the producer id and epoch of the producer that uses it.
Identity: TypeAlias = tuple[str, int, int]

log = logging.getLogger("krammar.broker.transactions")

# The number of producer ids that are reserved at a time.
BLOCK = 1000
# The versions of requests from which the broker adds partitions to the transaction (KIP-890), and
# from which clients know TRANSACTION_ABORTABLE.
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

    Attributes:
        store: the states by transactional id
        completion: completes transactions
        ids: new producer ids
        marked: the argument

    ``marked`` is called after a marker in a partition of `__consumer_offsets`, with the partition,
    the producer id and whether the transaction was committed.
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
        self.store = StateStore(cluster, logs, topics)
        self.ids = ProducerIds(cluster.allocate_producer_ids)
        self.completion = Completion(timers, logs, self.store, marked, config.kafka_like_delays_ms)
        self.marked = marked
        self._restart = Restart(timers, logs, self.store, self.completion, self._begin)
        self._loaded = False
        # Transactional ids with an open transaction.
        self._open: set[str] = set()
        # The next check for transactions that have timed out.
        self._alarm: Timer | None = None
        self._alarm_ms = 0

    # Start.

    def start(self) -> None:
        """Load the states: complete prepared transactions, and start the timeouts of open ones."""
        self._timers.call_later(0, self._load)
        self._expire_later()

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            self._restart.load()

    def _begin(self, transactional_id: str, transaction: Transaction) -> None:
        """Start the timeout of an open transaction."""
        self._open.add(transactional_id)
        self._alarm_at(transaction.deadline_ms)

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

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None
    ) -> tuple[int, int]:
        """Return the producer id and epoch for a transactional id, and fence its previous producer.

        ``expected`` is the producer id and epoch of a producer that continues after an error
        (KIP-360).

        Raises:
            ApiError: CONCURRENT_TRANSACTIONS after an open transaction was aborted, so that the
            producer retries;
                other codes for invalid requests.
        """
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = self._get(transactional_id)
        now = self._timers.now_ms()
        if transaction is None:
            transaction = Transaction(self.ids.take(), timeout_ms, now)
        elif transaction.is_open:
            transaction.check_holder(expected)
            self._fence(transactional_id, transaction)
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        changed = transaction.initialized(expected, timeout_ms, now, self.ids.take)
        self.store.put(transactional_id, changed)
        return changed.producer_id, changed.epoch

    def add_partitions(
        self, producer: Identity, partitions: Collection[TopicPartition], client_version: int
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
            self._begin(transactional_id, changed)

    def missing(
        self, producer: Identity, partitions: Collection[TopicPartition]
    ) -> set[TopicPartition]:
        """Return the partitions that are not part of the transaction. Raises ApiError."""
        transactional_id, producer_id, epoch = producer
        return self._known(transactional_id).missing(producer_id, epoch, partitions)

    def end(self, producer: Identity, commit: bool, client_version: int) -> tuple[int, int]:
        """Commit or abort. Returns the producer id and epoch for the next transaction. Raises ApiError."""
        transactional_id, producer_id, epoch = producer
        transaction = self._known(transactional_id)
        changed = transaction.ended(
            producer_id, epoch, commit, client_version, self._timers.now_ms(), self.ids.take
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

        Its partition must be part of the open transaction. From ``version`` 12 of Produce on, it is
        added.
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
        if offsets is not None and offsets.producers.in_transaction(producer_id, epoch):
            return
        self._admit(
            (transactional_id, producer_id, epoch),
            (OFFSETS_TOPIC, partition),
            version >= OFFSETS_ADD,
            version >= OFFSETS_ABORTABLE,
        )

    def _admit(
        self, producer: Identity, partition: TopicPartition, add: bool, abortable: bool
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
        left = self.completion.markers.get(transactional_id)
        return transaction if left is None else replace(transaction, partitions=frozenset(left))

    def items(self) -> ItemsView[str, Transaction]:
        """Return all transactional ids with their states."""
        self._load()
        return self.store.items()

    # The end of transactions.

    def _fence(self, transactional_id: str, transaction: Transaction) -> None:
        fenced = transaction.fenced(self.store.level, self._timers.now_ms(), self.ids.take)
        self._prepare(transactional_id, fenced)

    def _prepare(self, transactional_id: str, prepared: Transaction) -> Transaction:
        """Write the outcome of a transaction, then complete it, as ``Completion.complete`` does.

        Raises:
            ApiError: the outcome cannot be written; the transaction remains open.
        """
        self.store.put(transactional_id, prepared)
        self._open.discard(transactional_id)
        return self.completion.complete(transactional_id, prepared)

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
        self._timers.in_turns(self._abort_if_late, self._open)

    def _abort_if_late(self, transactional_id: str) -> None:
        if transactional_id not in self._open:
            return
        transaction = self._known(transactional_id)
        deadline, now = transaction.deadline_ms, self._timers.now_ms()
        if deadline <= now:
            try:
                self._fence(transactional_id, transaction)
                return
            except ApiError as error:
                where = f"the timed-out transaction of {transactional_id!r}"
                log.error("%s is not aborted: %s", where, error)
                deadline = now + int(Completion.retry_seconds * 1000)
        self._alarm_at(deadline)

    def _expire_later(self) -> None:
        seconds = self._config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
        self._timers.call_later(seconds, self._expire)

    def _expire(self) -> None:
        self.expire()
        self._expire_later()

    def expire(self) -> None:
        """Delete expired transactional ids."""
        self._load()
        before = self._timers.now_ms() - self._config.transactional_id_expiration_ms
        try:
            self.store.expire(before)
        except ApiError as error:
            log.error("expired transactional ids could not be deleted: %s", error)


class ProducerIds:
    """Producer ids, unique in a cluster, from blocks that the metadata log has reserved for this broker.

    The rest of a block is lost when the broker stops.
    """

    def __init__(self, allocate: Callable[[int], int]) -> None:
        """Start without a block. ``allocate`` reserves that many ids permanently and returns the first one."""
        self._allocate = allocate
        self._block = iter(range(0))

    def take(self) -> int:
        """Return a new id.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS, which clients retry, if no block can be
            reserved.
        """
        taken = next(self._block, None)
        if taken is None:
            try:
                taken = self._allocate(BLOCK)
            except ApiError as error:
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
            self._block = iter(range(taken + 1, taken + BLOCK))
        return taken
