"""The ids and epochs with which a producer writes (KIP-98)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_wire import InitProducerIdRequest

from krammar.client.cluster import Cluster
from krammar.client.deadline import Deadline
from krammar.client.delivery import NO_IDENTITY, Identity, Queue
from krammar.client.errors import raise_code
from krammar.client.metadata import TopicPartition
from krammar.client.transactions import TransactionalState, Transactions

_MOST_EPOCH = 32767


class Identities:
    """The current identity of a producer; with a transactional id, the one of its transactions."""

    def __init__(self, cluster: Cluster, transactions: Transactions | None) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self.current = NO_IDENTITY

    def identify(self, ready: Mapping[TopicPartition, Queue], deadline: Deadline) -> bool:
        """Give each queue the identity with which it writes; return False if that must wait."""
        if self._transactions is not None:
            if self._transactions.state is not TransactionalState.OPEN:
                return False
            self.current = self._transactions.identity
        elif self.current is NO_IDENTITY:
            self.current = self._new(deadline)
        for queue in ready.values():
            if queue.in_flight:
                continue
            if self._transactions is not None:
                if queue.identity is not self.current:
                    queue.start_over(self.current)
            elif queue.identity is NO_IDENTITY:
                queue.start_over(self.current)
            elif queue.bump and not any(batch.uncertain for batch in queue.waiting):
                if queue.identity is self.current:
                    self.current = self._next_epoch(deadline)
                queue.start_over(self.current)
        return True

    def _next_epoch(self, deadline: Deadline) -> Identity:
        """Raise the epoch; without a transactional id, the producer does so by itself (KIP-360)."""
        mine = self.current
        if mine.epoch >= _MOST_EPOCH:
            return self._new(deadline)
        return Identity(mine.producer_id, mine.epoch + 1)

    def _new(self, deadline: Deadline) -> Identity:
        def check(response: Any) -> None:
            raise_code(response.error_code, "InitProducerId")

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        response = self._cluster.call(request, deadline, high=5, check=check)
        return Identity(response.producer_id, response.producer_epoch)
