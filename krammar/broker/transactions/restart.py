"""Loads the states of transactional ids at a start, and ends or fences what a power cut has left."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from krammar.broker.errors import ApiError
from krammar.broker.log.manager import LogManager
from krammar.broker.timers import Timers
from krammar.broker.transactions import recovery
from krammar.broker.transactions.completion import Completion
from krammar.broker.transactions.state import Transaction
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
        """Load the states: complete prepared transactions, and start the timeouts of open ones."""
        is_complete = self._store.load()
        remains = recovery.Remains.of(self._logs)
        if self._logs.lost_power and self._store:
            self._unfenced.update(self._store)
            log.warning(
                "a power cut can have taken acknowledged records: the producers of %d transactional ids are fenced,"
                " and their open transactions are aborted",
                len(self._store),
            )
        for transactional_id, transaction in list(self._store.items()):
            if transaction.is_prepared:
                self._completion.unsettled.add(transactional_id)
                self._completion.complete(transactional_id, transaction)
            elif transactional_id in self._unfenced:
                self._begin_fencing(transactional_id, remains)
            else:
                self._settle(transactional_id, remains)
        self._completion.complete_all()
        if is_complete:
            self._abort_abandoned()
        # The states that could not be read remain to be fenced by a later start.
        self._all_known = is_complete or not self._store.exists
        self._note_fenced()

    def _note_fenced(self) -> None:
        if self._all_known and not self._unfenced and self._logs.lost_power:
            self._logs.repaired()

    def _ended(self, transactional_id: str) -> None:
        if transactional_id in self._completion.unsettled:
            self._completion.unsettled.discard(transactional_id)
            self._settle(transactional_id, recovery.Remains.of(self._logs))
        elif transactional_id in self._unfenced:
            self._unfenced.discard(transactional_id)
            self._note_fenced()

    def _begin_fencing(self, transactional_id: str, remains: recovery.Remains) -> None:
        """Let a transactional id refuse its producers from now on. The abort is written by ``Completion``."""
        transaction = self._store[transactional_id]
        fenced = recovery.fenced(transaction, remains, self._timers.now_ms())
        self._store[transactional_id] = fenced
        self._completion.markers[transactional_id] = set(fenced.partitions)

    def _settle(self, transactional_id: str, remains: recovery.Remains) -> None:
        """Repair a state after which others may be lost, and start the timeout of an open transaction."""
        if transactional_id in self._unfenced:
            self._begin_fencing(transactional_id, remains)
            self._completion.complete_more(transactional_id)
            return
        transaction = self._store[transactional_id]
        found = recovery.recovered(transaction, remains, self._timers.now_ms())
        if found is not None:
            log.warning(
                "transactional id %r: its last states are lost; %s, and the epoch is %d",
                transactional_id,
                (
                    "its open transaction is aborted"
                    if found.is_prepared
                    else "no transaction is open"
                ),
                found.epoch,
            )
            # Not written first: until the complete state is in the log, each start finds the same loss.
            self._store[transactional_id] = found
            if found.is_prepared:
                self._completion.complete(transactional_id, found)
        elif transaction.is_open:
            self._opened(transactional_id, transaction)

    def _abort_abandoned(self) -> None:
        """Abort open transactions that no transactional id knows: they would hide all later records."""
        remains = recovery.Remains.of(self._logs)
        owned = {transaction.producer_id for transaction in self._store.values()}
        for aborted in recovery.abandoned(remains, owned, self._timers.now_ms()):
            for where in sorted(aborted.partitions):
                partition_log = self._logs.get(*where)
                if partition_log is None:
                    continue
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
                    log.error("%s-%d: it is not aborted before the next start: %s", *where, error)
