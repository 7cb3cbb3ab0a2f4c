"""Converts states of transactional ids to and from records of `__transaction_state`."""

from __future__ import annotations

from typing import Any

from kafka_wire import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionLogValueTransactionPartition,
    TransactionState,
)

from krammar.broker.cluster import TRANSACTIONS_TOPIC
from krammar.broker.transactions.state import TopicPartition, Transaction
from krammar.logfiles.internal_topics import decode_record
from krammar.wire.batches import Record


def grouped(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic, both sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def state_record(transactional_id: str, transaction: Transaction, version: int) -> Record:
    """Build the record of a state.

    Args:
        transactional_id: the key
        transaction: the state
        version: 1 from `transaction.version` 1 on, else 0, which lacks some fields
    """
    topics = None
    if transaction.state is not TransactionState.EMPTY:
        topics = [
            TransactionLogValueTransactionPartition(topic=topic, partition_ids=partitions)
            for topic, partitions in grouped(transaction.partitions).items()
        ]
    value = TransactionLogValue(
        version=version,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=topics,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if version:
        value.previous_producer_id = transaction.previous_id
        value.next_producer_id = transaction.next_id
        value.client_transaction_version = transaction.client_version
    return Record(key=_key(transactional_id), value=value.encode())


def tombstone(transactional_id: str) -> Record:
    return Record(key=_key(transactional_id), value=None)


def _key(transactional_id: str) -> bytes:
    return TransactionLogKey(transactional_id=transactional_id).encode()


def read_record(record: Record) -> tuple[str, Transaction | None] | None:
    """Convert a record.

    Returns:
        The transactional id and its state, or None for a tombstone. None for records of unknown kinds.

    Raises:
        DecodeError, ValueError: the record is corrupt.
    """
    decoded = decode_record(TRANSACTIONS_TOPIC, record.key, record.value)
    if decoded is None:
        return None
    key: Any = decoded.key
    transactional_id: str = key.transactional_id
    value: Any = decoded.value
    if value is None:
        return transactional_id, None
    partitions = {
        (topic.topic, partition)
        for topic in value.transaction_partitions or ()
        for partition in topic.partition_ids
    }
    return transactional_id, Transaction(
        producer_id=value.producer_id,
        timeout_ms=value.transaction_timeout_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        epoch=value.producer_epoch,
        previous_id=value.previous_producer_id,
        next_id=value.next_producer_id,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(partitions),
        start_ms=value.transaction_start_timestamp_ms,
        client_version=value.client_transaction_version,
    )
