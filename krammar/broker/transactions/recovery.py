"""What a start must end or fence because a power cut has lost the last states of transactional ids.

Without ``--fsync always``, a power cut can lose the end of `__transaction_state` while other partitions retain the records
and markers of those transactions. The next marker of the same producer would then commit records whose transaction is
lost, and a new producer with the same epoch would be refused, or its records dropped as duplicates.

A producer that survives the power cut does not know what is lost, so ``fenced`` ends it. Kafka does not notice power cuts.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace

from kafka_wire import TransactionState

from krammar.broker.log.log import PartitionLog
from krammar.broker.log.manager import LogManager
from krammar.broker.transactions.state import (
    EPOCH_BUMP,
    MAX_EPOCH,
    NO_EPOCH,
    NO_ID,
    TopicPartition,
    Transaction,
)


@dataclass(frozen=True, slots=True)
class Remains:
    """What the logs of the partitions contain, by producer id.

    ``epochs``  the latest epoch
    ``open``    the partitions in which a transaction is open
    """

    epochs: dict[int, int]
    open: dict[int, set[TopicPartition]]

    @classmethod
    def of(cls, logs: Iterable[PartitionLog]) -> Remains:
        """Collect the producers of all logs that are online."""
        found = cls({}, {})
        for log in logs:
            if log.offline:
                continue
            states = log.producer_states
            for producer_id, producer in states.by_id.items():
                if producer.epoch > found.epochs.get(producer_id, NO_EPOCH):
                    found.epochs[producer_id] = producer.epoch
            for producer_id in states.open_transactions:
                found.open.setdefault(producer_id, set()).add((log.topic, log.partition))
        return found


def unmarked(prepared: Transaction, logs: LogManager) -> set[TopicPartition]:
    """Return the partitions in which a prepared transaction may need a marker.

    A partition with a later transaction of the producer already has the marker. Another one would end that transaction.

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
    producer = log.producer_states.by_id.get(producer_id)
    if producer is None:
        return False
    if producer.epoch != prepared.epoch:
        return producer.epoch > prepared.epoch
    first = log.producer_states.open_transactions.get(producer_id)
    if first is None:
        return False
    if prepared.client_version >= EPOCH_BUMP:
        return True  # the records of the prepared transaction have the epoch before
    # All transactions of older clients have the same epoch. Markers of the one before are older than this one's start.
    return log.last_marker_ms(producer_id, producer.epoch, first) >= prepared.start_ms


def recovered(transaction: Transaction, remains: Remains, now_ms: int) -> Transaction | None:
    """Return the state of a transactional id whose last states are lost.

    Args:
        transaction: the last state that was found, which is not prepared
        now_ms: milliseconds since 1970

    Returns:
        A prepared abort if a transaction is lost that is open in a partition. An empty state with the latest epoch of the
        logs if only states of ended transactions are lost. None if no loss is visible.
    """
    latest = remains.epochs.get(transaction.producer_id, NO_EPOCH)
    known, strays = _partitions(transaction, remains)
    is_older = latest > transaction.epoch
    if strays or (is_older and transaction.is_open):
        return _aborted(transaction, max(latest, transaction.epoch), known | strays, now_ms)
    if is_older:
        # No longer a complete state: it would answer a repeated EndTxn with the outcome of an older transaction.
        return replace(
            transaction,
            state=TransactionState.EMPTY,
            epoch=latest,
            last_epoch=NO_EPOCH,
            partitions=frozenset(),
            start_ms=-1,
            updated_ms=now_ms,
        )
    return None


def fenced(transaction: Transaction, remains: Remains, now_ms: int) -> Transaction:
    """Return the state of a transactional id whose producer may have lost records in a power cut.

    The producer can still run, and have an open or a new transaction that neither the states nor the logs show. It may
    not commit the rest of it, nor records that it has aborted. Its epoch is not known either: the last states can be
    lost. So the id gets an epoch that no producer has, and InitProducerId takes a new producer id.

    Args:
        transaction: the last state that was found, which is not prepared
        now_ms: milliseconds since 1970

    Returns:
        A prepared abort, also if no transaction is open.
    """
    known, strays = _partitions(transaction, remains)
    return _aborted(transaction, MAX_EPOCH, known | strays, now_ms)


def _partitions(
    transaction: Transaction, remains: Remains
) -> tuple[frozenset[TopicPartition], set[TopicPartition]]:
    """Return the partitions of an open transaction, and others in which one of the producer is open."""
    known = transaction.partitions if transaction.is_open else frozenset()
    return known, remains.open.get(transaction.producer_id, set()) - known


def _aborted(
    transaction: Transaction, epoch: int, partitions: frozenset[TopicPartition], now_ms: int
) -> Transaction:
    current = replace(transaction, epoch=epoch, partitions=partitions)
    # Without the level EPOCH_BUMP, which could need a new producer id: InitProducerId takes one if necessary.
    return current.fenced(0, now_ms, lambda: NO_ID)


def abandoned(remains: Remains, owned: Set[int], now_ms: int) -> Iterable[Transaction]:
    """Yield a prepared abort for each open transaction of a producer id that belongs to no transactional id.

    Args:
        owned: the producer ids of all transactional ids
        now_ms: milliseconds since 1970
    """
    for producer_id, partitions in remains.open.items():
        if producer_id not in owned:
            yield Transaction(
                producer_id,
                0,
                now_ms,
                epoch=min(remains.epochs[producer_id] + 1, MAX_EPOCH),
                state=TransactionState.PREPARE_ABORT,
                partitions=frozenset(partitions),
            )
