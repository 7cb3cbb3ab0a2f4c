"""DescribeTransactions, ListTransactions and DescribeProducers (KIP-664)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import kafka_wire as kw

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.errors import ApiError, errors_in
from krammar.broker.nodes import Logs
from krammar.broker.patterns import whole_match
from krammar.broker.session import Session
from krammar.broker.slices import Steps, one_by_one
from krammar.broker.timers import Timers
from krammar.broker.topics import Topics
from krammar.broker.transactions.coordinator import TransactionCoordinator
from krammar.broker.transactions.store import grouped
from krammar.util.extras import MissingExtra

log = logging.getLogger("krammar.broker")

_STATES = {state.name: state for state in kw.TransactionState}


@dataclass(eq=False)
class TransactionAdminHandlers:
    timers: Timers
    cluster: ClusterMetadata
    logs: Logs
    coordinated: Logs
    topics: Topics
    transactions: TransactionCoordinator

    def describe_transactions(
        self, session: Session, request: kw.DescribeTransactionsRequest, version: int
    ) -> Steps[kw.DescribeTransactionsResponse]:
        # Duplicate ids are described once.
        ids = dict.fromkeys(request.transactional_ids)
        states = yield from one_by_one(self._describe, ids)
        return kw.DescribeTransactionsResponse(transaction_states=states)

    def _describe(self, transactional_id: str) -> kw.DescribeTransactionsResponse.TransactionState:
        state = kw.DescribeTransactionsResponse.TransactionState(transactional_id=transactional_id)
        with errors_in(state):
            self.topics.check_coordinator(self.coordinated, transactional_id)
            transaction = self.transactions.describe(transactional_id)
            state.transaction_state = transaction.state.name
            state.transaction_timeout_ms = transaction.timeout_ms
            state.transaction_start_time_ms = transaction.start_ms
            state.producer_id = transaction.producer_id
            state.producer_epoch = transaction.epoch
            for topic, partitions in grouped(transaction.partitions).items():
                state.topics.append(
                    kw.DescribeTransactionsResponse.TopicData(topic=topic, partitions=partitions)
                )
        return state

    def list_transactions(
        self, session: Session, request: kw.ListTransactionsRequest, version: int
    ) -> Steps[kw.ListTransactionsResponse | Awaitable[kw.ListTransactionsResponse]]:
        states = {_STATES[name] for name in request.state_filters if name in _STATES}
        producer_ids = set(request.producer_id_filters)
        # As in Kafka's coordinator, a transaction that never began has the start time -1, long ago.
        begun_before = self.timers.now_ms() - request.duration_filter
        response = kw.ListTransactionsResponse(
            unknown_state_filters=[name for name in request.state_filters if name not in _STATES]
        )
        for transactional_id, transaction in list(self.transactions.items()):
            if (
                (not producer_ids or transaction.producer_id in producer_ids)
                and (not request.state_filters or transaction.state in states)
                and (request.duration_filter < 0 or transaction.start_ms < begun_before)
            ):
                state = kw.ListTransactionsResponse.TransactionState(
                    transactional_id=transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.name,
                )
                with suppress(ApiError):  # another node coordinates it
                    self.topics.check_coordinator(self.coordinated, transactional_id)
                    response.transaction_states.append(state)
            yield None
        if not request.transactional_id_pattern:
            return response
        return _matching(response, request.transactional_id_pattern)

    def describe_producers(
        self, session: Session, request: kw.DescribeProducersRequest, version: int
    ) -> Steps[kw.DescribeProducersResponse]:
        # Duplicate partitions are described once.
        wanted: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        topics = []
        for name, indexes in wanted.items():
            partitions = yield from one_by_one(partial(self._producers, name), indexes)
            topics.append(
                kw.DescribeProducersResponse.TopicResponse(name=name, partitions=partitions)
            )
        return kw.DescribeProducersResponse(topics=topics)

    def _producers(
        self, topic: str, partition: int
    ) -> kw.DescribeProducersResponse.PartitionResponse:
        result = kw.DescribeProducersResponse.PartitionResponse(partition_index=partition)
        with errors_in(result):
            log = self.logs.get(topic, partition)
            if log is None:
                unknown = topic not in self.cluster.topics
                raise ApiError(
                    kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    "This server does not host this topic-partition." if unknown else None,
                )
            result.active_producers = [
                kw.DescribeProducersResponse.ProducerState(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.current_txn_first_offset,
                )
                for producer in log.producers.entries()
            ]
        return result


async def _matching(
    response: kw.ListTransactionsResponse, pattern: str
) -> kw.ListTransactionsResponse:
    """Filter transactions by a pattern, in a thread.

    The work grows with the length of the pattern and of the ids, both chosen by clients.
    """

    def match() -> list[kw.ListTransactionsResponse.TransactionState]:
        matches = whole_match(pattern)
        return [each for each in response.transaction_states if matches(each.transactional_id)]

    try:
        response.transaction_states = await asyncio.to_thread(match)
    except ValueError:
        return kw.ListTransactionsResponse(error_code=kw.ErrorCode.INVALID_REGULAR_EXPRESSION)
    except MissingExtra as error:
        # The response has no field for a message; Kafka's text for the code refers to the broker's log.
        log.warning("ListTransactions is refused: %s", error)
        return kw.ListTransactionsResponse(error_code=kw.ErrorCode.INVALID_REQUEST)
    return response
