"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn, with the error codes of each version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import kafka_wire as kw

from krammar.broker.cluster import OFFSETS_TOPIC, ClusterMetadata
from krammar.broker.errors import ApiError, errors_in
from krammar.broker.nodes import Logs
from krammar.broker.session import Session
from krammar.broker.slices import Steps
from krammar.broker.topics import Topics
from krammar.broker.transactions.coordinator import TransactionCoordinator
from krammar.broker.transactions.state import EPOCH_BUMP, NO_EPOCH, NO_ID


def _code(code: int, fenced: bool) -> int:
    """Return an error code; ``fenced`` is whether the request's version knows PRODUCER_FENCED."""
    if code == kw.ErrorCode.PRODUCER_FENCED and not fenced:
        return kw.ErrorCode.INVALID_PRODUCER_EPOCH
    return code


@contextmanager
def _errors_in(response: Any, fenced: bool) -> Iterator[None]:
    with errors_in(response):
        yield
    response.error_code = _code(response.error_code, fenced)


@dataclass(eq=False)
class TransactionHandlers:
    cluster: ClusterMetadata
    coordinated: Logs
    topics: Topics
    transactions: TransactionCoordinator

    def init_producer_id(
        self, session: Session, request: kw.InitProducerIdRequest, version: int
    ) -> kw.InitProducerIdResponse:
        response = kw.InitProducerIdResponse(producer_id=NO_ID, producer_epoch=NO_EPOCH)
        with _errors_in(response, version >= 4):
            if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
                raise ApiError(kw.ErrorCode.INVALID_REQUEST)
            if request.transactional_id is None:
                producer_id, epoch = self.transactions.ids.take(), 0
            else:
                self.topics.check_coordinator(self.coordinated, request.transactional_id)
                known = (request.producer_id, request.producer_epoch)
                producer_id, epoch = self.transactions.init_producer_id(
                    request.transactional_id,
                    request.transaction_timeout_ms,
                    None if request.producer_id == NO_ID else known,
                )
            response.producer_id, response.producer_epoch = producer_id, epoch
        return response

    def add_partitions_to_txn(
        self, session: Session, request: kw.AddPartitionsToTxnRequest, version: int
    ) -> Steps[kw.AddPartitionsToTxnResponse]:
        if version >= 4:
            response = kw.AddPartitionsToTxnResponse()
            for transaction in request.transactions:
                results = yield from self._add_partitions(transaction, version)
                response.results_by_transaction.append(
                    kw.AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                        transactional_id=transaction.transactional_id, topic_results=results
                    )
                )
                yield None
            return response
        only = kw.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        results = yield from self._add_partitions(only, version)
        return kw.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def _add_partitions(
        self, transaction: kw.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction, version: int
    ) -> Steps[list[kw.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]]:
        codes: dict[tuple[str, int], int] = {}
        for topic in transaction.topics:
            known = self.cluster.topics.get(topic.name)
            for index in topic.partitions:
                exists = known is not None and index in known.partitions
                code = kw.ErrorCode.NONE if exists else kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                codes[topic.name, index] = code
                yield None
            yield None
        if any(codes.values()):
            codes = {at: code or kw.ErrorCode.OPERATION_NOT_ATTEMPTED for at, code in codes.items()}
        else:
            txn_id, producer_id = transaction.transactional_id, transaction.producer_id
            identity = (txn_id, producer_id, transaction.producer_epoch)
            try:
                self.topics.check_coordinator(self.coordinated, txn_id)
                if transaction.verify_only:
                    missing = self.transactions.missing(identity, list(codes))
                    codes.update(dict.fromkeys(missing, kw.ErrorCode.TRANSACTION_ABORTABLE))
                else:
                    # From v4 on, brokers send this request for producers that no longer send it.
                    client_version = EPOCH_BUMP if version >= 4 else 0
                    self.transactions.add_partitions(identity, list(codes), client_version)
            except ApiError as error:
                codes = dict.fromkeys(codes, _code(error.code, version >= 2))
        kind = kw.AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
        answers = []
        for topic in transaction.topics:
            answer = kw.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(name=topic.name)
            for index in topic.partitions:
                found = codes[topic.name, index]
                answer.results_by_partition.append(
                    kind(partition_index=index, partition_error_code=found)
                )
                yield None
            answers.append(answer)
            yield None
        return answers

    def add_offsets_to_txn(
        self, session: Session, request: kw.AddOffsetsToTxnRequest, version: int
    ) -> kw.AddOffsetsToTxnResponse:
        index = self.topics.coordinating_partition(OFFSETS_TOPIC, request.group_id)
        response = kw.AddOffsetsToTxnResponse()
        with _errors_in(response, version >= 2):
            self.topics.check_coordinator(self.coordinated, request.transactional_id)
            self.transactions.add_partitions(
                (request.transactional_id, request.producer_id, request.producer_epoch),
                [(OFFSETS_TOPIC, index)],
                0,
            )
        return response

    def end_txn(
        self, session: Session, request: kw.EndTxnRequest, version: int
    ) -> kw.EndTxnResponse:
        response = kw.EndTxnResponse()
        with _errors_in(response, version >= 2):
            self.topics.check_coordinator(self.coordinated, request.transactional_id)
            response.producer_id, response.producer_epoch = self.transactions.end(
                (request.transactional_id, request.producer_id, request.producer_epoch),
                request.committed,
                EPOCH_BUMP if version >= 5 else 0,
            )
        return response
