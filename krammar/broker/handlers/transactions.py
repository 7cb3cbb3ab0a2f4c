"""Producer identities and transactions: what their requests say, and the codes of each version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_wire import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartitionResult,
    AddPartitionsToTxnResponseResultsByTransaction,
    AddPartitionsToTxnResponseTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    ErrorCode,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
    TxnOffsetCommitResponseTopicPartition,
)

from krammar.broker.errors import ApiError
from krammar.broker.transactions.admin import (
    describe_producers,
    describe_transactions,
    list_transactions,
)
from krammar.broker.transactions.coordinator import OFFSETS_TOPIC
from krammar.broker.transactions.state import EPOCH_BUMP, NO_EPOCH, NO_ID, TopicPartition

if TYPE_CHECKING:
    from krammar.broker.broker import Broker
    from krammar.broker.session import Session

__all__ = [
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "describe_producers",
    "describe_transactions",
    "end_txn",
    "init_producer_id",
    "list_transactions",
    "txn_offset_commit",
]


def _code(error: ApiError, fenced: bool) -> ErrorCode:
    """``fenced`` is whether the version of the request knows PRODUCER_FENCED."""
    if error.code is ErrorCode.PRODUCER_FENCED and not fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code


def init_producer_id(
    broker: Broker, session: Session, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse:
    try:
        if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is None:
            producer_id, epoch = broker.transactions.next_producer_id(), 0
        else:
            known = (request.producer_id, request.producer_epoch)
            producer_id, epoch = broker.transactions.init_producer_id(
                request.transactional_id,
                request.transaction_timeout_ms,
                None if request.producer_id == NO_ID else known,
            )
    except ApiError as error:
        return InitProducerIdResponse(
            error_code=_code(error, version >= 4), producer_id=NO_ID, producer_epoch=NO_EPOCH
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def add_partitions_to_txn(
    broker: Broker, session: Session, request: AddPartitionsToTxnRequest, version: int
) -> AddPartitionsToTxnResponse:
    if version >= 4:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResponseResultsByTransaction(
                    transactional_id=transaction.transactional_id,
                    topic_results=_add_partitions(broker, transaction, version),
                )
                for transaction in request.transactions
            ]
        )
    only = AddPartitionsToTxnRequestTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_add_partitions(broker, only, version)
    )


def _add_partitions(
    broker: Broker, transaction: AddPartitionsToTxnRequestTransaction, version: int
) -> list[AddPartitionsToTxnResponseTopicResult]:
    partitions = [
        (topic.name, partition) for topic in transaction.topics for partition in topic.partitions
    ]
    unknown = {where for where in partitions if not _exists(broker, where)}
    if unknown:
        codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        codes.update(dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return _results(transaction.topics, codes)
    identity = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    codes = dict.fromkeys(partitions, ErrorCode.NONE)
    try:
        if transaction.verify_only:
            missing = broker.transactions.missing(*identity, partitions)
            codes.update(dict.fromkeys(missing, ErrorCode.TRANSACTION_ABORTABLE))
        else:
            # From v4 on the request is of a broker, whose producer leaves the adding to it.
            client_version = EPOCH_BUMP if version >= 4 else 0
            broker.transactions.add_partitions(*identity, partitions, client_version)
    except ApiError as error:
        codes = dict.fromkeys(partitions, _code(error, version >= 2))
    return _results(transaction.topics, codes)


def _exists(broker: Broker, where: TopicPartition) -> bool:
    topic = broker.cluster.topics.get(where[0])
    return topic is not None and where[1] in topic.partitions


def _results(
    topics: list[AddPartitionsToTxnRequestTopic], codes: dict[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnResponseTopicResult]:
    return [
        AddPartitionsToTxnResponseTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnResponsePartitionResult(
                    partition_index=partition, partition_error_code=codes[topic.name, partition]
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


def add_offsets_to_txn(
    broker: Broker, session: Session, request: AddOffsetsToTxnRequest, version: int
) -> AddOffsetsToTxnResponse:
    partition = (OFFSETS_TOPIC, broker.groups.partition_for(request.group_id))
    try:
        broker.transactions.add_partitions(
            request.transactional_id, request.producer_id, request.producer_epoch, [partition], 0
        )
    except ApiError as error:
        return AddOffsetsToTxnResponse(error_code=_code(error, version >= 2))
    return AddOffsetsToTxnResponse()


def txn_offset_commit(
    broker: Broker, session: Session, request: TxnOffsetCommitRequest, version: int
) -> TxnOffsetCommitResponse:
    if not request.group_id:
        return broker.groups.txn_offset_commit(request, version)  # which refuses it
    try:
        broker.transactions.check_offsets(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.group_id,
            version,
        )
    except ApiError as error:
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        TxnOffsetCommitResponseTopicPartition(
                            partition_index=partition.partition_index, error_code=error.code
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    return broker.groups.txn_offset_commit(request, version)


def end_txn(
    broker: Broker, session: Session, request: EndTxnRequest, version: int
) -> EndTxnResponse:
    try:
        producer_id, epoch = broker.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            EPOCH_BUMP if version >= 5 else 0,
        )
    except ApiError as error:
        return EndTxnResponse(error_code=_code(error, version >= 2))
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
