"""The states of all transactional ids: in memory, and in `__transaction_state`."""

from __future__ import annotations

import logging
from collections.abc import ItemsView, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError
from krammar.broker.placement import partition_of
from krammar.broker.transactions.records import read_record, state_record, tombstone
from krammar.broker.transactions.state import Transaction
from krammar.wire.errors import DecodeError, WireError

if TYPE_CHECKING:
    from krammar.broker.broker import Broker
    from krammar.broker.storage.log import PartitionLog

log = logging.getLogger("krammar.broker.transactions")

TOPIC = "__transaction_state"
# A state that cannot be written is tried again by the client, after it has looked for the
# coordinator anew; what it could not send in smaller pieces, it gets to know.
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


@lru_cache(maxsize=4096)
class StateStore:
    """A state counts once it is in the log."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._states: dict[str, Transaction] = {}

    @property
    def exists(self) -> bool:
        return TOPIC in self._broker.cluster.topics

    def ensure_topic(self) -> None:
        """Create `__transaction_state` unless it is there. Raises ApiError."""
        if self.exists:
            return
        config = self._broker.config
        self._broker.create_topic(
            TOPIC,
            config.transaction_state_log_num_partitions,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )

    def partition_for(self, transactional_id: str) -> int:
        topic = self._broker.cluster.topics.get(TOPIC)
        if topic is None:
            count = self._broker.config.transaction_state_log_num_partitions
        else:
            count = len(topic.partitions)
        return partition_of(transactional_id, count)

    def leader_epoch(self, transactional_id: str) -> int:
        """The epoch that the markers of the id's transactions carry."""
        topic = self._broker.cluster.topics.get(TOPIC)
        if topic is None:
            return 0
        return topic.partitions[self.partition_for(transactional_id)].leader_epoch

    def get(self, transactional_id: str) -> Transaction | None:
        return self._states.get(transactional_id)

    def items(self) -> ItemsView[str, Transaction]:
        return self._states.items()

    def put(self, transactional_id: str, transaction: Transaction) -> None:
        """Write a state down. Raises ApiError: NOT_COORDINATOR or UNKNOWN_SERVER_ERROR if it cannot be
        written; then the state before holds."""
        level = self._broker.cluster.features.get("transaction.version", 0)
        record = state_record(transactional_id, transaction, 1 if level else 0)
        try:
            self._log(transactional_id).append_records([record])
        except ApiError as error:
            if error.code in _TOO_LARGE:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message) from error
            raise ApiError(ErrorCode.NOT_COORDINATOR, error.message) from error
        self._states[transactional_id] = transaction

    def forget(self, transactional_ids: Iterable[str]) -> None:
        """Write tombstones, a batch for each partition. Raises ApiError."""
        logs: dict[int, list[str]] = {}
        for transactional_id in transactional_ids:
            logs.setdefault(self.partition_for(transactional_id), []).append(transactional_id)
        for ids in logs.values():
            self._log(ids[0]).append_records([tombstone(name) for name in ids])
            for name in ids:
                del self._states[name]

    def _log(self, transactional_id: str) -> PartitionLog:
        partition = self._broker.logs.get(TOPIC, self.partition_for(transactional_id))
        if partition is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"there is no topic {TOPIC}")
        return partition

    def load(self) -> None:
        """Read all states. What cannot be understood is left out, with a warning; a partition's log is
        read as far as it can be, as Kafka does."""
        topic = self._broker.cluster.topics.get(TOPIC)
        for index in topic.partitions if topic is not None else ():
            partition = self._broker.logs.get(TOPIC, index)
            if partition is None or partition.end_offset == partition.log_start_offset:
                continue
            try:
                self._load(partition)
            except (ApiError, DecodeError) as error:
                log.error("%s-%d: the states behind this are lost: %s", TOPIC, index, error)

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
                    log.warning("%s: not a transaction's state: %s", where, error)
                    continue
                if known is None:
                    continue
                transactional_id, transaction = known
                if transaction is None:
                    states.pop(transactional_id, None)
                else:
                    states[transactional_id] = transaction
