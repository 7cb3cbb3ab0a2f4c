"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and the administration of transactions.

InitProducerId, v0 to v5 (KIP-98): v3 sends the producer id to continue with (KIP-360). v4 knows
PRODUCER_FENCED; before, the code is INVALID_PRODUCER_EPOCH.

AddPartitionsToTxn, v0 to v5 (KIP-98): v2 knows PRODUCER_FENCED. From v4 on, the request has several
transactions, and brokers send it for producers that no longer do (KIP-890).

AddOffsetsToTxn, v0 to v4 (KIP-98): v2 knows PRODUCER_FENCED.

EndTxn, v0 to v5 (KIP-98): v2 knows PRODUCER_FENCED; from v5 on, each transaction raises the epoch
(KIP-890).

DescribeTransactions, v0, and DescribeProducers, v0 (KIP-664).

WriteTxnMarkers, v1 to v2 (KIP-98): administrators abort hanging transactions with it (KIP-664). v2 has the
transaction version (KIP-1228).

ListTransactions, v0 to v2 (KIP-664): v1 filters by duration (KIP-994), and v2 by a pattern
(KIP-1152).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import kafka_wire as kw

from krammar.broker.cluster import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, ClusterMetadata
from krammar.broker.errors import ApiError, errors_in
from krammar.broker.nodes import Logs
from krammar.broker.patterns import whole_match
from krammar.broker.session import Session
from krammar.broker.timers import Timers
from krammar.broker.topics import Topics
from krammar.broker.transactions.coordinator import TransactionCoordinator
from krammar.broker.transactions.state import EPOCH_BUMP, NO_EPOCH, NO_ID
from krammar.broker.transactions.store import grouped
from krammar.util.extras import MissingExtra
from krammar.util.turns import Steps, in_thread, one_by_one


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
                self.topics.check_coordinator(
                    self.coordinated, TRANSACTIONS_TOPIC, request.transactional_id
                )
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
                self.topics.check_coordinator(self.coordinated, TRANSACTIONS_TOPIC, txn_id)
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
            self.topics.check_coordinator(
                self.coordinated, TRANSACTIONS_TOPIC, request.transactional_id
            )
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
            self.topics.check_coordinator(
                self.coordinated, TRANSACTIONS_TOPIC, request.transactional_id
            )
            response.producer_id, response.producer_epoch = self.transactions.end(
                (request.transactional_id, request.producer_id, request.producer_epoch),
                request.committed,
                EPOCH_BUMP if version >= 5 else 0,
            )
        return response


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
            self.topics.check_coordinator(self.coordinated, TRANSACTIONS_TOPIC, transactional_id)
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
                    self.topics.check_coordinator(
                        self.coordinated, TRANSACTIONS_TOPIC, transactional_id
                    )
                    response.transaction_states.append(state)
            yield None
        if not request.transactional_id_pattern:
            return response
        return _matching(response, request.transactional_id_pattern)

    def write_txn_markers(
        self, session: Session, request: kw.WriteTxnMarkersRequest, version: int
    ) -> Steps[kw.WriteTxnMarkersResponse]:
        """Write markers into partitions, whatever their coordinators know about the transactions."""
        # By producer id, because a response has each one once; then by topic and partition.
        codes: dict[int, dict[str, dict[int, int]]] = {}
        for marker in request.markers:
            for topic in marker.topics:
                for index in dict.fromkeys(topic.partition_indexes):
                    topics = codes.setdefault(marker.producer_id, {})
                    code = self._write_marker(marker, topic.name, index)
                    topics.setdefault(topic.name, {})[index] = code
                    yield None
                yield None
            yield None
        kind = kw.WriteTxnMarkersResponse
        response = kind()
        for producer_id, topics in codes.items():
            result = kind.WritableTxnMarkerResult(producer_id=producer_id)
            for name, partitions in topics.items():
                answer = kind.WritableTxnMarkerTopicResult(name=name)
                for index, code in partitions.items():
                    answer.partitions.append(
                        kind.WritableTxnMarkerPartitionResult(
                            partition_index=index, error_code=code
                        )
                    )
                    yield None
                result.topics.append(answer)
            response.markers.append(result)
        return response

    def _write_marker(
        self, marker: kw.WriteTxnMarkersRequest.WritableTxnMarker, topic: str, partition: int
    ) -> int:
        """Write a marker into a partition, and return the error code."""
        if min(marker.producer_id, marker.producer_epoch, marker.transaction_version) < 0:
            return kw.ErrorCode.UNKNOWN_SERVER_ERROR  # as in Kafka
        try:
            log = self.logs.get(topic, partition)
            if log is None:
                return kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            log.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                commit=marker.transaction_result,
                coordinator_epoch=marker.coordinator_epoch,
                ends_epoch=marker.transaction_version >= EPOCH_BUMP,
            )
        except ApiError as error:
            return error.code
        if topic == OFFSETS_TOPIC:
            self.transactions.marked(partition, marker.producer_id, marker.transaction_result)
        return kw.ErrorCode.NONE

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
        response.transaction_states = await in_thread(match)
    except ValueError:
        return kw.ListTransactionsResponse(error_code=kw.ErrorCode.INVALID_REGULAR_EXPRESSION)
    except MissingExtra as error:
        # The response has no field for a message; Kafka's text for the code refers to the broker's
        # log.
        log.warning("ListTransactions is refused: %s", error)
        return kw.ListTransactionsResponse(error_code=kw.ErrorCode.INVALID_REQUEST)
    return response
