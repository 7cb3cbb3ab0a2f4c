"""The producer's side of transactions (KIP-98), with ``transaction.version`` 1 and 2 (KIP-890)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any

import kafka_wire as kw

from krammar.client.cluster import Cluster
from krammar.client.committed import (
    Committed,
    GroupMember,
    check_committed,
    commit_topics,
    committed_offsets,
    member_of,
)
from krammar.client.deadline import Deadline
from krammar.client.delivery import Identity
from krammar.client.errors import ClientError, KafkaError, StateError, kafka_error, raise_code
from krammar.client.metadata import TopicPartition
from krammar.client.offsets import group_topics
from krammar.client.routing import call_coordinator

# From these versions on, the broker itself adds partitions and groups to the transaction (KIP-890).
PRODUCE_ADDS = 12
_OFFSETS_ADD = 5
_END_BUMPS = 5

# After these errors, the producer cannot be used any more.
FATAL = frozenset(
    {
        kw.ErrorCode.PRODUCER_FENCED,
        kw.ErrorCode.INVALID_PRODUCER_EPOCH,
        kw.ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        kw.ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        kw.ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        kw.ErrorCode.INVALID_TXN_STATE,
        kw.ErrorCode.UNSUPPORTED_VERSION,
    }
)


class TransactionalState(Enum):
    """The state of a transactional producer; values are for messages."""

    NEW = "not initialised"
    READY = "ready"
    OPEN = "in a transaction"
    ABORTABLE = "in a transaction that can only be aborted"
    COMMITTING = "committing"
    ABORTING = "aborting"
    FATAL = "unusable after a fatal error"


class Transactions:
    """The state of a transactional producer, and its requests to the coordinators."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        self._cluster = cluster
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self.state = TransactionalState.NEW
        self.error: ClientError | None = None
        self.identity = Identity(-1, -1)
        self.version = 1
        # Whether the coordinator may know this transaction, so that it must be ended there.
        self.touched = False
        self._added: set[TopicPartition] = set()
        # Whether records that were not written had sequence numbers.
        self.gap = False

    # State.

    def require(self, *states: TransactionalState) -> None:
        """Raise the earlier error, or StateError, unless the producer is in one of the states."""
        if self.state in states:
            return
        if self.error is not None:
            raise self.error
        raise StateError(f"the producer of {self.transactional_id!r} is {self.state.value}")

    @property
    def can_abort(self) -> bool:
        """Whether a transaction is open that is not being committed."""
        return self.state in (
            TransactionalState.OPEN,
            TransactionalState.ABORTABLE,
            TransactionalState.ABORTING,
        )

    def fail(self, error: ClientError) -> None:
        """Store an error that ends the transaction, or the use of the producer."""
        code = error.code if isinstance(error, KafkaError) else None
        if code in FATAL:
            self.state, self.error = TransactionalState.FATAL, error
        elif self.state in (TransactionalState.OPEN, TransactionalState.COMMITTING):
            self.state, self.error = TransactionalState.ABORTABLE, error

    def fail_produce(self, error: ClientError) -> None:
        """Store the error of a batch. Unless it says that the producer is fenced, the transaction can be aborted."""
        if isinstance(error, KafkaError) and error.code == kw.ErrorCode.PRODUCER_FENCED:
            self.fail(error)
        elif self.state is TransactionalState.OPEN:
            self.state, self.error = TransactionalState.ABORTABLE, error

    # Requests to the coordinators.

    def _call(
        self, request: Any, deadline: Deadline, check: Any, *, low: int = 0, high: int = 32767
    ) -> Any:
        try:
            return call_coordinator(
                self._cluster,
                kw.CoordinatorType.TRANSACTION,
                self.transactional_id,
                request,
                deadline,
                check,
                low=low,
                high=high,
            )
        except KafkaError as error:
            self.fail(error)
            raise

    def _check(self, response: Any) -> None:
        raise_code(response.error_code, f"transactional id {self.transactional_id}")

    def init(self, deadline: Deadline) -> None:
        """Get id and epoch. An earlier producer is fenced, and its open transaction is aborted."""
        self.require(TransactionalState.NEW)
        self._identify(deadline)
        level = self._cluster.features(deadline).get("transaction.version", 0)
        connection = self._cluster.any(deadline)
        self.version = (
            2 if level >= 2 and connection.versions.has(kw.ProduceRequest, PRODUCE_ADDS) else 1
        )
        self.state = TransactionalState.READY

    def _identify(self, deadline: Deadline) -> None:
        mine = self.identity
        request = kw.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=mine.producer_id,
            producer_epoch=mine.epoch,
        )
        # Versions from 6 are for two-phase commit (KIP-939).
        low = 3 if mine.producer_id >= 0 else 0
        response = self._call(request, deadline, self._check, low=low, high=5)
        self.identity = Identity(response.producer_id, response.producer_epoch)

    def begin(self) -> None:
        """Begin a transaction. Nothing is sent to the coordinator yet."""
        self.require(TransactionalState.READY)
        self.state = TransactionalState.OPEN
        self.error = None
        self.touched = self.gap = False
        self._added.clear()

    def add_partitions(self, partitions: Iterable[TopicPartition], deadline: Deadline) -> None:
        """Add partitions to the transaction before records are written to them."""
        new = [at for at in partitions if at not in self._added]
        if not new:
            return
        if self.version < 2:
            topics = [
                kw.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
                    name=name, partitions=[at.partition for at in group]
                )
                for name, group in group_topics(new).items()
            ]
            request = kw.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.identity.producer_id,
                v3_and_below_producer_epoch=self.identity.epoch,
                v3_and_below_topics=topics,
            )
            self._add(request, deadline, self._check_partitions, high=3)
        self.touched = True
        self._added.update(new)

    def _add(self, request: Any, deadline: Deadline, check: Any, **versions: int) -> None:
        """Add something to the transaction, which the coordinator knows afterwards, unless it refuses."""
        before, self.touched = self.touched, True
        try:
            self._call(request, deadline, check, **versions)
        except KafkaError:
            self.touched = before
            raise

    def _check_partitions(self, response: Any) -> None:
        for topic in response.results_by_topic_v3_and_below:
            for p in topic.results_by_partition:
                # If one partition is refused, the others are not attempted. Raise the error of the refused one.
                if p.partition_error_code not in (0, kw.ErrorCode.OPERATION_NOT_ATTEMPTED):
                    raise kafka_error(
                        p.partition_error_code,
                        f"adding {topic.name}-{p.partition_index} to the transaction of"
                        f" {self.transactional_id}",
                    )

    def send_offsets(
        self,
        given: Mapping[TopicPartition, Committed | int],
        group: GroupMember | str,
        deadline: Deadline,
    ) -> None:
        """Commit offsets of a group with the transaction."""
        self.require(TransactionalState.OPEN)
        offsets, member = committed_offsets(given), member_of(group)
        if not offsets:
            return
        new = self.version >= 2
        if not new:
            request = kw.AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                group_id=member.group_id,
            )
            self._add(request, deadline, self._check)
        self.touched = True
        commit = kw.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=member.group_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            topics=commit_topics(kw.TxnOffsetCommitRequest, offsets),
        )
        named = any((member.generation >= 0, member.member_id, member.group_instance_id))
        try:
            call_coordinator(
                self._cluster,
                kw.CoordinatorType.GROUP,
                member.group_id,
                commit,
                deadline,
                partial(check_committed, member.group_id),
                # Version 3 added members. Version 6 names topics by id, which deleted topics lack.
                low=_OFFSETS_ADD if new else 3 if named else 0,
                high=_OFFSETS_ADD if new else _OFFSETS_ADD - 1,
            )
        except KafkaError as error:
            self.fail(error)
            raise

    def end(self, commit: bool, deadline: Deadline) -> None:
        """Commit or abort at the coordinator. It can be called again after DeadlineError."""
        if self.touched:
            request = kw.EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                committed=commit,
            )
            new = self.version >= 2
            response = self._call(
                request,
                deadline,
                self._check,
                low=_END_BUMPS if new else 0,
                high=_END_BUMPS if new else _END_BUMPS - 1,
            )
            if new and response.producer_id >= 0:
                self.identity = Identity(response.producer_id, response.producer_epoch)
                self.gap = False
            self.touched = False
        if self.gap:
            # The sequence numbers of unwritten records cannot be used again in this epoch (KIP-360).
            self._identify(deadline)
            self.gap = False
        self.state = TransactionalState.READY
        self.error = None
