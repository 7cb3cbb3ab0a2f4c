"""What a start must end or fence after a power cut, which can have taken the last states of transactional ids.

Without ``--fsync always``, a power cut can lose the end of `__transaction_state` while other partitions retain the records
and markers of those transactions. The next marker of the same producer would then commit records whose transaction is
lost, and a new producer with the same epoch would be refused, or its records dropped as duplicates.

A producer that survives the power cut does not know what is lost, so ``fenced`` ends it. Kafka does not notice power cuts.

The epochs in partitions decide nothing here: any client can write a batch with another producer's id and any epoch to a
topic of its own. What a partition contains only decides about this partition: whether an open transaction in it needs a
marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace

from kafka_wire import TransactionState

from krammar.broker.log.log import PartitionLog
from krammar.broker.log.manager import LogManager
from krammar.broker.transactions.state import (
    EPOCH_BUMP,
    MAX_EPOCH,
    NO_ID,
    TopicPartition,
    Transaction,
)


def partitions_with_transactions(logs: Iterable[PartitionLog]) -> dict[int, set[TopicPartition]]:
    """Return the partitions in which a transaction is open, by producer id. Offline partitions are left out."""
    found: dict[int, set[TopicPartition]] = {}
    for log in logs:
        if not log.offline:
            for producer_id in log.producer_states.open_transactions:
                found.setdefault(producer_id, set()).add((log.topic, log.partition))
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


def fenced(transaction: Transaction, found: Set[TopicPartition], now_ms: int) -> Transaction:
    """Return the state of a transactional id whose producer may have lost records in a power cut.

    The producer can still run, and have an open or a new transaction that neither the states nor the logs show. It may
    not commit the rest of it, nor records that it has aborted. Its epoch is not known either: the last states can be
    lost. So the id gets an epoch that no producer has, and InitProducerId takes a new producer id.

    Args:
        transaction: the last state that was found, which is not prepared
        found: the partitions in which a transaction of the producer is open
        now_ms: milliseconds since 1970

    Returns:
        A prepared abort, also if no transaction is open.
    """
    known = transaction.partitions if transaction.is_open else frozenset()
    current = replace(transaction, epoch=MAX_EPOCH, partitions=known | found)
    # Without the level EPOCH_BUMP, which could need a new producer id: InitProducerId takes one.
    return current.fenced(0, now_ms, lambda: NO_ID)


def abandoned(log: PartitionLog, owned: Set[int], now_ms: int) -> Iterable[Transaction]:
    """Yield a prepared abort for each open transaction of a partition whose producer id belongs to no transactional id.

    Args:
        owned: the producer ids of all transactional ids
        now_ms: milliseconds since 1970
    """
    states = log.producer_states
    for producer_id in states.open_transactions.keys() - owned:
        yield Transaction(
            producer_id,
            0,
            now_ms,
            epoch=min(states.by_id[producer_id].epoch + 1, MAX_EPOCH),
            state=TransactionState.PREPARE_ABORT,
            partitions=frozenset({(log.topic, log.partition)}),
        )
