"""The states of all transactional ids, in memory and in `__transaction_state`."""

from __future__ import annotations

import logging
from collections.abc import ItemsView, Iterable

from kafka_wire import ErrorCode

from krammar.broker.cluster import TRANSACTIONS_TOPIC, ClusterMetadata
from krammar.broker.errors import ApiError
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.manager import LogManager
from krammar.broker.topics import Topics
from krammar.broker.transactions.records import read_record, state_record, tombstone
from krammar.broker.transactions.state import Transaction
from krammar.wire.errors import DecodeError, WireError

log = logging.getLogger("krammar.broker.transactions")

# After other errors of a write, clients find the coordinator again and retry. Retrying a state that is too
# large would not help.
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class StateStore:
    """The states by transactional id. A state takes effect when it is in the log."""

    def __init__(self, cluster: ClusterMetadata, logs: LogManager, topics: Topics) -> None:
        self._cluster = cluster
        self._logs = logs
        self._topics = topics
        self._states: dict[str, Transaction] = {}

    @property
    def exists(self) -> bool:
        """Whether `__transaction_state` exists."""
        return TRANSACTIONS_TOPIC in self._cluster.topics

    def _partition_for(self, transactional_id: str) -> int:
        return self._topics.coordinating_partition(TRANSACTIONS_TOPIC, transactional_id)

    def leader_epoch(self, transactional_id: str) -> int:
        """Return the leader epoch for the markers of a transactional id."""
        topic = self._cluster.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return 0
        return topic.partitions[self._partition_for(transactional_id)].leader_epoch

    def get(self, transactional_id: str) -> Transaction | None:
        return self._states.get(transactional_id)

    def items(self) -> ItemsView[str, Transaction]:
        return self._states.items()

    def put(self, transactional_id: str, transaction: Transaction) -> None:
        """Write a state to the log, then apply it.

        Raises:
            ApiError: NOT_COORDINATOR or UNKNOWN_SERVER_ERROR; the state is unchanged.
        """
        level = self._cluster.features.get("transaction.version", 0)
        record = state_record(transactional_id, transaction, 1 if level else 0)
        try:
            self._log(transactional_id).append_records([record])
        except ApiError as error:
            if error.code in _TOO_LARGE:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message) from error
            raise ApiError(ErrorCode.NOT_COORDINATOR, error.message) from error
        self._states[transactional_id] = transaction

    def forget(self, transactional_ids: Iterable[str]) -> None:
        """Delete states, with one batch of tombstones per partition. Raises ApiError."""
        logs: dict[int, list[str]] = {}
        for transactional_id in transactional_ids:
            logs.setdefault(self._partition_for(transactional_id), []).append(transactional_id)
        for ids in logs.values():
            self._log(ids[0]).append_records([tombstone(name) for name in ids])
            for name in ids:
                del self._states[name]

    def _log(self, transactional_id: str) -> PartitionLog:
        partition = self._logs.get(TRANSACTIONS_TOPIC, self._partition_for(transactional_id))
        if partition is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"topic {TRANSACTIONS_TOPIC} does not exist")
        return partition

    def load(self) -> None:
        """Read all states.

        Corrupt records are skipped with a warning. As in Kafka, a corrupt batch ends the reading of its partition.
        """
        topic = self._cluster.topics.get(TRANSACTIONS_TOPIC)
        for index in topic.partitions if topic is not None else ():
            partition = self._logs.get(TRANSACTIONS_TOPIC, index)
            if partition is None or partition.end_offset == partition.log_start_offset:
                continue
            try:
                self._load(partition)
            except (ApiError, DecodeError) as error:
                log.error(
                    "%s-%d: the states after this error are lost: %s",
                    TRANSACTIONS_TOPIC,
                    index,
                    error,
                )

    def _load(self, partition: PartitionLog) -> None:
        states = self._states
        for batch in partition.batches():
            if batch.is_control:
                continue
            for record in batch:
                try:
                    known = read_record(record)
                except (WireError, ValueError) as error:
                    where = f"{partition.topic}-{partition.partition}, offset {record.offset}"
                    log.warning("%s: the record is skipped: %s", where, error)
                    continue
                if known is None:
                    continue
                transactional_id, transaction = known
                if transaction is None:
                    states.pop(transactional_id, None)
                else:
                    states[transactional_id] = transaction
