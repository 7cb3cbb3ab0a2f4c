"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn, with the error codes of each version."""

from __future__ import annotations

from dataclasses import dataclass
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
)

from krammar.broker.cluster import OFFSETS_TOPIC
from krammar.broker.errors import ApiError
from krammar.broker.transactions.state import EPOCH_BUMP, NO_EPOCH, NO_ID, TopicPartition

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.nodes import Logs
    from krammar.broker.session import Session
    from krammar.broker.topics import Topics
    from krammar.broker.transactions.coordinator import TransactionCoordinator


def _code(error: ApiError, fenced: bool) -> ErrorCode:
    """Return the error code; ``fenced`` is whether the request's version knows PRODUCER_FENCED."""
    if error.code is ErrorCode.PRODUCER_FENCED and not fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code


@dataclass(eq=False)
class TransactionHandlers:
    """Handles InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn."""

    cluster: ClusterMetadata
    coordinated: Logs
    topics: Topics
    transactions: TransactionCoordinator

    def init_producer_id(
        self, session: Session, request: InitProducerIdRequest, version: int
    ) -> InitProducerIdResponse:
        try:
            if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
                raise ApiError(ErrorCode.INVALID_REQUEST)
            if request.transactional_id is None:
                producer_id, epoch = self.transactions.next_producer_id(), 0
            else:
                self.topics.check_coordinator(self.coordinated, request.transactional_id)
                known = (request.producer_id, request.producer_epoch)
                producer_id, epoch = self.transactions.init_producer_id(
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
        self, session: Session, request: AddPartitionsToTxnRequest, version: int
    ) -> AddPartitionsToTxnResponse:
        if version >= 4:
            return AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResponseResultsByTransaction(
                        transactional_id=transaction.transactional_id,
                        topic_results=self._add_partitions(transaction, version),
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
            results_by_topic_v3_and_below=self._add_partitions(only, version)
        )

    def _add_partitions(
        self, transaction: AddPartitionsToTxnRequestTransaction, version: int
    ) -> list[AddPartitionsToTxnResponseTopicResult]:
        partitions = [
            (topic.name, partition)
            for topic in transaction.topics
            for partition in topic.partitions
        ]
        unknown = {where for where in partitions if not self._exists(where)}
        if unknown:
            codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
            codes.update(dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return _results(transaction.topics, codes)
        identity = (
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
        )
        codes = dict.fromkeys(partitions, ErrorCode.NONE)
        try:
            self.topics.check_coordinator(self.coordinated, transaction.transactional_id)
            if transaction.verify_only:
                missing = self.transactions.missing(*identity, partitions)
                codes.update(dict.fromkeys(missing, ErrorCode.TRANSACTION_ABORTABLE))
            else:
                # From v4 on, brokers send this request for producers that no longer send it.
                client_version = EPOCH_BUMP if version >= 4 else 0
                self.transactions.add_partitions(*identity, partitions, client_version)
        except ApiError as error:
            codes = dict.fromkeys(partitions, _code(error, version >= 2))
        return _results(transaction.topics, codes)

    def _exists(self, where: TopicPartition) -> bool:
        topic = self.cluster.topics.get(where[0])
        return topic is not None and where[1] in topic.partitions

    def add_offsets_to_txn(
        self, session: Session, request: AddOffsetsToTxnRequest, version: int
    ) -> AddOffsetsToTxnResponse:
        partition = (
            OFFSETS_TOPIC,
            self.topics.coordinating_partition(OFFSETS_TOPIC, request.group_id),
        )
        try:
            self.topics.check_coordinator(self.coordinated, request.transactional_id)
            self.transactions.add_partitions(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                [partition],
                0,
            )
        except ApiError as error:
            return AddOffsetsToTxnResponse(error_code=_code(error, version >= 2))
        return AddOffsetsToTxnResponse()

    def end_txn(self, session: Session, request: EndTxnRequest, version: int) -> EndTxnResponse:
        try:
            self.topics.check_coordinator(self.coordinated, request.transactional_id)
            producer_id, epoch = self.transactions.end(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                request.committed,
                EPOCH_BUMP if version >= 5 else 0,
            )
        except ApiError as error:
            return EndTxnResponse(error_code=_code(error, version >= 2))
        return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)


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
