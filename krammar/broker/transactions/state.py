"""The state of a transactional id, and how each request changes it.

The code does no I/O: every method returns the next state, which takes effect when it is in the log.
The states are those of Kafka's coordinator, except two that never occur: `PrepareEpochFence`
(between the decision to fence a producer and its write) and `Dead` (between expiry and tombstone).
Here both happen in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from kafka_wire import ErrorCode, TransactionState

from krammar.broker.errors import ApiError

TopicPartition: TypeAlias = tuple[str, int]

NO_ID = -1
NO_EPOCH = -1
MAX_EPOCH = 32767
# The last epoch that a producer gets: one more is needed to fence it.
LAST_EPOCH = MAX_EPOCH - 1
# The level of the feature `transaction.version` from which each transaction has its own epoch.
EPOCH_BUMP = 2

_EMPTY, _ONGOING = {TransactionState.EMPTY}, {TransactionState.ONGOING}
_PREPARED = {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}
_COMPLETE = {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
# The states from which each state can be reached.
_BEFORE = {
    TransactionState.EMPTY: _EMPTY | _COMPLETE,
    TransactionState.ONGOING: _EMPTY | _COMPLETE | _ONGOING,
    TransactionState.PREPARE_COMMIT: _ONGOING,
    TransactionState.PREPARE_ABORT: _EMPTY | _COMPLETE | _ONGOING,
    TransactionState.COMPLETE_COMMIT: {TransactionState.PREPARE_COMMIT},
    TransactionState.COMPLETE_ABORT: {TransactionState.PREPARE_ABORT},
}
# The states that a log can contain.
STATES = frozenset(_BEFORE)


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of one transactional id.

    Attributes:
        producer_id: of the producer that may write
        epoch: of that producer; -1 before the first InitProducerId
        previous_id: the producer id of the previous state, or -1
        next_id: the producer id after this transaction, or -1
        last_epoch: the previous epoch if its holder may repeat a request, else -1
        timeout_ms: an open transaction is aborted this long after ``start_ms``
        partitions: the partitions that need a marker
        start_ms: milliseconds since 1970; -1 if no transaction has begun
        updated_ms: milliseconds since 1970
        client_version: the `transaction.version` of the last request: 0 or 2
    """

    producer_id: int
    timeout_ms: int
    updated_ms: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    previous_id: int = NO_ID
    next_id: int = NO_ID
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    client_version: int = 0

    @property
    def is_open(self) -> bool:
        return self.state is TransactionState.ONGOING

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and markers are missing."""
        return self.state in _PREPARED

    @property
    def is_commit(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left for producers."""
        return self.epoch >= LAST_EPOCH

    @property
    def deadline_ms(self) -> int:
        """When an open transaction is aborted, in milliseconds since 1970."""
        return self.start_ms + self.timeout_ms

    def initialized(
        self,
        expected: tuple[int, int] | None,
        timeout_ms: int,
        now_ms: int,
        new_id: Callable[[], int],
    ) -> Transaction:
        """Return the state after InitProducerId. An open transaction must be fenced instead.

        Args:
            expected: the producer id and epoch of a producer that continues after an error
            (KIP-360)
            new_id: returns a new producer id, in case no epoch is left

        Raises:
            ApiError: CONCURRENT_TRANSACTIONS if markers are missing, PRODUCER_FENCED if a newer
            producer exists.
        """
        if self.is_prepared:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        self.check_holder(expected)
        producer_id, epoch, last_epoch = self.producer_id, self.epoch, self.last_epoch
        if expected is None or self.epoch in (NO_EPOCH, expected[1]):
            last_epoch = NO_EPOCH if expected is None else self.epoch
            producer_id, epoch = (new_id(), 0) if self.is_exhausted else (producer_id, epoch + 1)
        elif expected[1] != self.last_epoch:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        # Otherwise the producer repeats the request: it did not get the response.
        return self._to(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer_id,
            epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=-1,
        )

    def check_holder(self, expected: tuple[int, int] | None) -> None:
        """Raise ApiError(PRODUCER_FENCED) if ``expected`` has another producer's id."""
        if expected is None or self.epoch == NO_EPOCH or expected[0] == self.producer_id:
            return
        if expected[0] != self.previous_id or expected[1] < LAST_EPOCH:
            raise ApiError(ErrorCode.PRODUCER_FENCED)

    def fenced(self, level: int, now_ms: int, new_id: Callable[[], int]) -> Transaction:
        """Return the state of an open transaction that the coordinator aborts.

        ``level`` is the broker's `transaction.version`.
        """
        if level >= EPOCH_BUMP:
            return self._prepared(False, level, now_ms, new_id)
        fenced = replace(self, epoch=min(self.epoch + 1, MAX_EPOCH), last_epoch=NO_EPOCH)
        return fenced._prepared(False, 0, now_ms, new_id)

    def missing(
        self, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
    ) -> set[TopicPartition]:
        """Return the partitions that are not part of the transaction.

        Raises:
            ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, or CONCURRENT_TRANSACTIONS if
            markers are missing.
        """
        self._check_producer(producer_id, epoch)
        if self.is_prepared:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return set(partitions) - self.partitions

    def _check_producer(self, producer_id: int, epoch: int) -> None:
        if producer_id != self.producer_id:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if epoch != self.epoch:
            raise ApiError(ErrorCode.PRODUCER_FENCED)

    def with_partitions(
        self,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> Transaction:
        """Return the state with more partitions; a transaction begins if none is open.

        Returns ``self`` if nothing changes. Raises ApiError like ``missing``.
        """
        # The producer may already have the id of the complete state.
        if self.is_prepared:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        self._check_producer(producer_id, epoch)
        if self.is_open and self.partitions.issuperset(partitions):
            return self
        if self.state in _COMPLETE:
            # After the markers of the transaction before, also if the clock was set back: see
            # recovery.
            now_ms = max(now_ms, self.updated_ms + 1)
        return self._to(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions),
            start_ms=self.start_ms if self.is_open else now_ms,
            client_version=client_version,
        )

    def ended(
        self,
        producer_id: int,
        epoch: int,
        commit: bool,
        client_version: int,
        now_ms: int,
        new_id: Callable[[], int],
    ) -> Transaction:
        """Return the state after EndTxn: prepared, or ``self`` for a repeated request.

        Raises:
            ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, or
            CONCURRENT_TRANSACTIONS if
                markers are missing.
        """
        bumps = client_version >= EPOCH_BUMP
        after_new_id = (
            bumps and producer_id == self.previous_id and epoch == LAST_EPOCH and self.epoch == 0
        )
        if producer_id != self.producer_id and not after_new_id:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        complete = self.state in _COMPLETE
        # If each transaction has its own epoch, a repeated request has the previous one.
        current = epoch == self.epoch
        previous = epoch == self.epoch - 1
        repeated = after_new_id or previous if bumps else current and complete
        if self.is_prepared and bumps:
            valid = previous
        else:
            valid = current or (repeated and complete)
        if not valid:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        if self.is_prepared:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if self.is_open:
            return self._prepared(commit, client_version, now_ms, new_id)
        if repeated and commit == self.is_commit:
            return self
        if repeated or commit or not bumps:
            verb = "commit" if commit else "abort"
            raise ApiError(ErrorCode.INVALID_TXN_STATE, f"cannot {verb} in state {self.state.name}")
        # The producer cannot know whether the broker added a partition before its write failed.
        return self._prepared(False, client_version, now_ms, new_id)

    def _prepared(
        self, commit: bool, client_version: int, now_ms: int, new_id: Callable[[], int]
    ) -> Transaction:
        epoch, last_epoch, next_id = self.epoch, self.last_epoch, NO_ID
        now_ms = max(now_ms, self.start_ms)
        if client_version >= EPOCH_BUMP:
            epoch, last_epoch = min(self.epoch + 1, MAX_EPOCH), self.epoch
            if self.is_exhausted:
                next_id = new_id()
        return self._to(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            now_ms,
            epoch=epoch,
            last_epoch=last_epoch,
            next_id=next_id,
            start_ms=self.start_ms if self.is_open else now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Return the state after all markers, with the producer id and epoch for the next transaction."""
        producer_id, epoch = self.producer_id, self.epoch
        if self.client_version >= EPOCH_BUMP and self.next_id != NO_ID:
            producer_id, epoch = self.next_id, 0
        return self._to(
            TransactionState.COMPLETE_COMMIT if self.is_commit else TransactionState.COMPLETE_ABORT,
            now_ms,
            producer_id=producer_id,
            epoch=epoch,
            next_id=NO_ID,
            partitions=frozenset(),
        )

    def _to(self, state: TransactionState, now_ms: int, **changes: Any) -> Transaction:
        if self.state not in _BEFORE[state]:
            raise RuntimeError(f"a transaction cannot go from {self.state.name} to {state.name}")
        return replace(
            self, state=state, previous_id=self.producer_id, updated_ms=now_ms, **changes
        )
