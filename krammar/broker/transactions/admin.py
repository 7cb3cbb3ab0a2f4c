"""What tools ask about transactions and producers (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_wire import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponseTopic,
    DescribeProducersResponseTopicPartition,
    DescribeProducersResponseTopicPartitionActiveProducer,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
    DescribeTransactionsResponseTransactionStateTopic,
    ErrorCode,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransactionState,
    TransactionState,
)

from krammar.broker.errors import ApiError
from krammar.broker.transactions.pattern import whole_match
from krammar.broker.transactions.records import grouped

if TYPE_CHECKING:
    from krammar.broker.broker import Broker
    from krammar.broker.session import Session

_STATES = {state.name: state for state in TransactionState}


def describe_transactions(
    broker: Broker, session: Session, request: DescribeTransactionsRequest, version: int
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe(broker, transactional_id) for transactional_id in request.transactional_ids
        ]
    )


def _describe(
    broker: Broker, transactional_id: str
) -> DescribeTransactionsResponseTransactionState:
    try:
        transaction = broker.transactions.describe(transactional_id)
    except ApiError as error:
        return DescribeTransactionsResponseTransactionState(
            error_code=error.code, transactional_id=transactional_id
        )
    waiting = broker.transactions.waiting(transactional_id, transaction)
    return DescribeTransactionsResponseTransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[
            DescribeTransactionsResponseTransactionStateTopic(topic=topic, partitions=partitions)
            for topic, partitions in grouped(waiting).items()
        ],
    )


def list_transactions(
    broker: Broker, session: Session, request: ListTransactionsRequest, version: int
) -> ListTransactionsResponse:
    matches = None
    if request.transactional_id_pattern:
        try:
            matches = whole_match(request.transactional_id_pattern)
        except ValueError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    producer_ids = set(request.producer_id_filters)
    # One that was never begun counts as begun at -1, as in Kafka's coordinator: as open for long.
    begun_before = broker.now_ms() - request.duration_filter
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in _STATES],
        transaction_states=[
            ListTransactionsResponseTransactionState(
                transactional_id=transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.name,
            )
            for transactional_id, transaction in broker.transactions.items()
            if (not producer_ids or transaction.producer_id in producer_ids)
            and (not request.state_filters or transaction.state in states)
            and (request.duration_filter < 0 or transaction.start_ms < begun_before)
            and (matches is None or matches(transactional_id))
        ],
    )


def describe_producers(
    broker: Broker, session: Session, request: DescribeProducersRequest, version: int
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponseTopic(
                name=topic.name,
                partitions=[
                    _producers(broker, topic.name, partition)
                    for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _producers(
    broker: Broker, topic: str, partition: int
) -> DescribeProducersResponseTopicPartition:
    log = broker.logs.get(topic, partition)
    if log is None:
        return DescribeProducersResponseTopicPartition(
            partition_index=partition,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=(
                None
                if topic in broker.cluster.topics
                else "This server does not host this topic-partition."
            ),
        )
    return DescribeProducersResponseTopicPartition(
        partition_index=partition,
        active_producers=[
            DescribeProducersResponseTopicPartitionActiveProducer(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.current_txn_first_offset,
            )
            for producer in log.producers()
        ],
    )
