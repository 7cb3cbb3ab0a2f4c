"""The states of all transactional ids, in memory and as records of `__transaction_state`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kafka_wire import ErrorCode, TransactionLogKey, TransactionLogValue, TransactionState

from krammar.broker.cluster import TRANSACTIONS_TOPIC, ClusterMetadata
from krammar.broker.errors import ApiError
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.manager import LogManager
from krammar.broker.metadata_records import SUPPORTED_FEATURES, TRANSACTION_VERSION, feature_problem
from krammar.broker.topics import Topics
from krammar.broker.transactions.state import (
    NO_EPOCH,
    NO_ID,
    STATES,
    TopicPartition,
    Transaction,
)
from krammar.logfiles.internal_topics import decode_record
from krammar.logfiles.names import MAX_OFFSET, partition_problem, topic_problem
from krammar.util.logs import FewWarnings
from krammar.wire.batches import Record
from krammar.wire.errors import DecodeError, WireError

log = logging.getLogger("krammar.broker.transactions")

# The fields of a state by their names in a record. The partitions have another form there.
_FIELDS = {
    "producer_id": "producer_id",
    "producer_epoch": "epoch",
    "transaction_timeout_ms": "timeout_ms",
    "transaction_status": "state",
    "transaction_last_update_timestamp_ms": "updated_ms",
    "transaction_start_timestamp_ms": "start_ms",
}
# The same from version 1 on.
_MORE_FIELDS = {
    **_FIELDS,
    "previous_producer_id": "previous_id",
    "next_producer_id": "next_id",
    "client_transaction_version": "client_version",
}

# The lowest values of numbers in a record; -1 for none.
_LEAST = {
    "producer_id": 0,
    "previous_producer_id": NO_ID,
    "next_producer_id": NO_ID,
    "producer_epoch": NO_EPOCH,
    "transaction_timeout_ms": 0,
    "transaction_last_update_timestamp_ms": -1,
    "transaction_start_timestamp_ms": -1,
}


def grouped(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic, both sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def state_record(transactional_id: str, transaction: Transaction, version: int) -> Record:
    """Build the record of a state, in version 1 from `transaction.version` 1 on, else in version 0."""
    topics = None
    if transaction.state is not TransactionState.EMPTY:
        topics = [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=partitions)
            for topic, partitions in grouped(transaction.partitions).items()
        ]
    fields = _MORE_FIELDS if version else _FIELDS
    value = TransactionLogValue(
        version=version,
        transaction_partitions=topics,
        **{field: getattr(transaction, own) for field, own in fields.items()},
    )
    return Record(key=_key(transactional_id), value=value.encode())


def tombstone(transactional_id: str) -> Record:
    return Record(key=_key(transactional_id), value=None)


def _key(transactional_id: str) -> bytes:
    return TransactionLogKey(transactional_id=transactional_id).encode()


def read_record(record: Record) -> tuple[str, Transaction | None] | None:
    """Convert a record.

    Returns:
        The transactional id and its state, or None for a tombstone. None for records of unknown
        kinds.

    Raises:
        DecodeError, ValueError: the record is corrupt or invalid.
    """
    decoded = decode_record(TRANSACTIONS_TOPIC, record.key, record.value)
    if decoded is None:
        return None
    key: Any = decoded.key
    value: Any = decoded.value
    if value is None:
        return key.transactional_id, None
    check_state(key.transactional_id, value)
    value.transaction_status = TransactionState(value.transaction_status)
    fields = {own: getattr(value, field) for field, own in _MORE_FIELDS.items()}
    partitions = frozenset(
        (topic.topic, partition)
        for topic in value.transaction_partitions or ()
        for partition in topic.partition_ids
    )
    return key.transactional_id, Transaction(partitions=partitions, **fields)


def check_state(transactional_id: str, value: TransactionLogValue) -> None:
    """Check a record before it takes effect: no request could have led to other values. Raises ValueError."""
    if not transactional_id:
        raise ValueError("transactional_id: it is empty")
    if value.transaction_status not in STATES:
        raise ValueError(f"transaction_status: {int(value.transaction_status)} is unknown")
    level = value.client_transaction_version
    features = SUPPORTED_FEATURES
    if problem := feature_problem(TRANSACTION_VERSION, level, features, "this broker"):
        raise ValueError(f"client_transaction_version: {level}: {problem}")
    for name, least in _LEAST.items():
        number = getattr(value, name)
        if not least <= number <= MAX_OFFSET:
            raise ValueError(f"{name}: {number} is not a number from {least} to {MAX_OFFSET}")
    for topic in value.transaction_partitions or ():
        if problem := topic_problem(topic.topic):
            raise ValueError(f"transaction_partitions: topic: {problem}")
        for problem in filter(None, map(partition_problem, topic.partition_ids)):
            raise ValueError(f"transaction_partitions: partition_ids: {problem}")


class StateStore(dict[str, Transaction]):
    """The states by transactional id. A state takes effect when it is in the log."""

    def __init__(self, cluster: ClusterMetadata, logs: LogManager, topics: Topics) -> None:
        self._cluster = cluster
        self._logs = logs
        self._topics = topics

    @property
    def exists(self) -> bool:
        """Whether `__transaction_state` exists."""
        return TRANSACTIONS_TOPIC in self._cluster.topics

    @property
    def level(self) -> int:
        """The cluster's `transaction.version`."""
        return self._cluster.features.get(TRANSACTION_VERSION, 0)

    def _partition_for(self, transactional_id: str) -> int:
        return self._topics.coordinating_partition(TRANSACTIONS_TOPIC, transactional_id)

    def leader_epoch(self, transactional_id: str) -> int:
        """Return the leader epoch for the markers of a transactional id."""
        topic = self._cluster.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return 0
        return topic.partitions[self._partition_for(transactional_id)].leader_epoch

    def put(self, transactional_id: str, transaction: Transaction) -> None:
        """Write a state to the log, then apply it.

        Raises:
            ApiError: NOT_COORDINATOR or UNKNOWN_SERVER_ERROR; the state is unchanged.
        """
        record = state_record(transactional_id, transaction, 1 if self.level else 0)
        try:
            self._log(transactional_id).append_records([record])
        except ApiError as error:
            # Clients find the coordinator again and retry, which would not help if the state is too
            # large.
            too_large = error.code is ErrorCode.MESSAGE_TOO_LARGE
            code = ErrorCode.UNKNOWN_SERVER_ERROR if too_large else ErrorCode.NOT_COORDINATOR
            raise ApiError(code, error.message) from error
        self[transactional_id] = transaction

    def expire(self, before: int) -> None:
        """Delete states without a transaction that were last changed at ``before`` or earlier.

        With batches of up to 30 tombstones, which always fit. Raises ApiError.
        """
        expired = [
            transactional_id
            for transactional_id, transaction in self.items()
            if transaction.updated_ms <= before
            and not (transaction.is_open or transaction.is_prepared)
        ]
        logs: dict[tuple[int, int], list[str]] = {}
        for number, name in enumerate(expired):
            logs.setdefault((self._partition_for(name), number // 30), []).append(name)
        for ids in logs.values():
            self._log(ids[0]).append_records([tombstone(name) for name in ids])
            for name in ids:
                del self[name]

    def is_online(self, transactional_id: str) -> bool:
        """Return whether the state of a transactional id can be known and changed."""
        partition = self._logs.get(TRANSACTIONS_TOPIC, self._partition_for(transactional_id))
        return partition is not None and not partition.offline

    def _log(self, transactional_id: str) -> PartitionLog:
        partition = self._logs.get(TRANSACTIONS_TOPIC, self._partition_for(transactional_id))
        if partition is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"topic {TRANSACTIONS_TOPIC} does not exist")
        return partition

    def load(self) -> bool:
        """Read all states. Returns whether all partitions of the topic could be read.

        Corrupt records are skipped with a warning. As in Kafka, a corrupt batch ends the reading of
        its partition.
        """
        topic = self._cluster.topics.get(TRANSACTIONS_TOPIC)
        unread = 0 if topic is None else len(topic.partitions)
        for partition in self._logs:
            if partition.topic != TRANSACTIONS_TOPIC:
                continue
            unread -= 1
            if not partition.offline and partition.end_offset == partition.log_start_offset:
                continue
            where = f"{partition.topic}-{partition.partition}"
            warn = FewWarnings(log.warning)
            try:
                for batch in partition.reader.batches():
                    for record in () if batch.is_control else batch:
                        self._load(record, partition, warn)
            except (ApiError, DecodeError) as error:
                unread += 1
                log.error("%s: the states after this error are lost: %s", where, error)
            warn.end(partition.path)
        return topic is not None and not unread

    def _load(self, record: Record, partition: PartitionLog, warn: Callable[[str], None]) -> None:
        try:
            known = read_record(record)
        except (WireError, ValueError) as error:
            path = partition.file_of(record.offset)
            warn(f"{path}: the record at offset {record.offset} is skipped: {error}")
            return
        if known is None:
            return
        transactional_id, transaction = known
        if transaction is None:
            self.pop(transactional_id, None)
        else:
            self[transactional_id] = transaction
