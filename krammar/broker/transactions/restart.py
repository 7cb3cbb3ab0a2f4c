"""Loads the states of transactional ids at a start, and ends or fences what a power cut has left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

from krammar.broker.errors import ApiError
from krammar.broker.log.manager import LogManager
from krammar.broker.timers import Timers
from krammar.broker.transactions import recovery
from krammar.broker.transactions.completion import Completion
from krammar.broker.transactions.state import TopicPartition, Transaction
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

        After a power cut, all producers are fenced instead. Only then, the logs of partitions matter.
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
        found = recovery.partitions_with_transactions(self._logs) if lost_power else {}
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
            found = recovery.partitions_with_transactions(self._logs)
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
        fenced = recovery.fenced(transaction, open_in, self._timers.now_ms())
        self._store[transactional_id] = fenced
        self._completion.markers[transactional_id] = set(fenced.partitions)

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
            for aborted in recovery.abandoned(partition_log, owned, self._timers.now_ms()):
                producer = partition_log.producer_states.by_id[aborted.producer_id]
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
