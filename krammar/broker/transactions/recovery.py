"""Loads the states of transactional ids at a start, and ends or fences what a power cut has left.

Without ``--fsync always``, a power cut can lose the end of `__transaction_state` while other
partitions retain the records and markers of those transactions. The next marker of the same
producer would then commit records whose transaction is lost, and a new producer with the same epoch
would be refused, or its records dropped as duplicates.

A producer that survives the power cut does not know what is lost, so ``fenced`` ends it. Kafka does
not notice power cuts.

The epochs in partitions decide nothing here: any client can write a batch with another producer's
id and any epoch to a topic of its own. What a partition contains only decides about this partition:
whether an open transaction in it needs a marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from kafka_wire import TransactionState

from krammar.broker.errors import ApiError
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.manager import LogManager
from krammar.broker.timers import Timers
from krammar.broker.transactions.completion import Completion
from krammar.broker.transactions.state import (
    MAX_EPOCH,
    NO_ID,
    TopicPartition,
    Transaction,
)
from krammar.broker.transactions.store import StateStore

log = logging.getLogger("krammar.broker.transactions")


@dataclass(eq=False)
class Restart:
    """Brings the states and the logs of the last run in line with each other.

    Args:
        opened: called with each open transaction
    """

    _timers: Timers
    _logs: LogManager
    _store: StateStore
    _completion: Completion
    _opened: Callable[[str, Transaction], None]
    # Transactional ids whose producers a power cut has made unreliable, until they are fenced.
    _unfenced: set[str] = field(init=False, default_factory=set)
    _all_known: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._completion.ended = self._ended

    def load(self) -> None:
        """Load the states: complete prepared transactions, and start the timeouts of open ones.

        After a power cut, all producers are fenced instead. Only then, the logs of partitions
        matter.
        """
        is_complete = self._store.load()
        lost_power = self._logs.lost_power
        if lost_power and self._store:
            self._unfenced.update(self._store)
            log.warning(
                "a power cut can have taken acknowledged records: the producers of %d transactional ids are fenced,"
                " and their open transactions are aborted",
                len(self._store),
            )
        found = partitions_with_transactions(self._logs) if lost_power else {}
        for transactional_id, transaction in list(self._store.items()):
            if transaction.is_prepared:
                if lost_power:
                    self._completion.unsettled.add(transactional_id)
                self._completion.complete(transactional_id, transaction)
            elif lost_power:
                self._begin_fencing(transactional_id, found)
            elif transaction.is_open:
                self._opened(transactional_id, transaction)
        self._completion.complete_all()
        are_ended = not any(each.offline for each in self._logs)
        if lost_power and is_complete:
            are_ended &= self._abort_abandoned()
        # What could not be read or ended remains for a later start.
        self._all_known = are_ended and (is_complete or not self._store.exists)
        self._note_fenced()

    def _note_fenced(self) -> None:
        if self._all_known and not self._unfenced and self._logs.lost_power:
            self._logs.repaired()

    def _ended(self, transactional_id: str) -> None:
        if transactional_id in self._completion.unsettled:
            self._completion.unsettled.discard(transactional_id)
            # Later transactions of the id can be lost, or be open in partitions.
            found = partitions_with_transactions(self._logs)
            self._begin_fencing(transactional_id, found)
            self._completion.complete_more(transactional_id)
        elif transactional_id in self._unfenced:
            self._unfenced.discard(transactional_id)
            self._note_fenced()

    def _begin_fencing(
        self, transactional_id: str, found: Mapping[int, Set[TopicPartition]]
    ) -> None:
        """Let a transactional id refuse its producers from now on. The abort is written by ``Completion``.

        Args:
            found: the partitions in which transactions are open, by producer id
        """
        transaction = self._store[transactional_id]
        open_in = found.get(transaction.producer_id, frozenset())
        aborted = fenced(transaction, open_in, self._timers.now_ms())
        self._store[transactional_id] = aborted
        self._completion.markers[transactional_id] = set(aborted.partitions)

    def _abort_abandoned(self) -> bool:
        """Abort open transactions that no transactional id knows: they would hide all later records.

        Returns whether all of them are aborted.
        """
        are_ended = True
        owned = {transaction.producer_id for transaction in self._store.values()}
        for partition_log in self._logs:
            if partition_log.offline:
                continue
            where = partition_log.topic, partition_log.partition
            for aborted in abandoned(partition_log, owned, self._timers.now_ms()):
                producer = partition_log.producers.by_id[aborted.producer_id]
                log.warning(
                    "%s-%d: the transaction of producer id %d is aborted: its state is lost",
                    *where,
                    aborted.producer_id,
                )
                try:
                    self._completion.mark(
                        where, aborted, max(producer.coordinator_epoch, 0), aborted.updated_ms
                    )
                except ApiError as error:
                    are_ended = False
                    log.error("%s-%d: it is not aborted before the next start: %s", *where, error)
        return are_ended


def partitions_with_transactions(logs: Iterable[PartitionLog]) -> dict[int, set[TopicPartition]]:
    """Return the partitions in which a transaction is open, by producer id. Offline partitions are left out."""
    found: dict[int, set[TopicPartition]] = {}
    for log in logs:
        if not log.offline:
            for producer_id in log.producers.open_transactions:
                found.setdefault(producer_id, set()).add((log.topic, log.partition))
    return found


def fenced(transaction: Transaction, found: Set[TopicPartition], now_ms: int) -> Transaction:
    """Return the state of a transactional id whose producer may have lost records in a power cut.

    The producer can still run, and have an open or a new transaction that neither the states nor
    the logs show. It may not commit the rest of it, nor records that it has aborted. Its epoch is
    not known either: the last states can be lost. So the id gets an epoch that no producer has, and
    InitProducerId takes a new producer id.

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
    states = log.producers
    for producer_id in states.open_transactions.keys() - owned:
        yield Transaction(
            producer_id,
            0,
            now_ms,
            epoch=min(states.by_id[producer_id].epoch + 1, MAX_EPOCH),
            state=TransactionState.PREPARE_ABORT,
            partitions=frozenset({(log.topic, log.partition)}),
        )
