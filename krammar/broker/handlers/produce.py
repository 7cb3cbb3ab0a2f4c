"""Produce: each batch is checked and appended as it came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_wire import (
    ErrorCode,
    ProduceRequest,
    ProduceRequestTopicDataPartitionData,
    ProduceResponse,
    ProduceResponseResponse,
    ProduceResponseResponsePartitionResponse,
    ProduceResponseResponsePartitionResponseRecordError,
)

from krammar.broker.errors import ApiError, CloseConnection
from krammar.wire.records import BatchHeader, Compression

if TYPE_CHECKING:
    from krammar.broker.broker import Broker
    from krammar.broker.cluster import Topic
    from krammar.broker.session import Session

# Where the magic stands in a batch of any format, and the low byte of a v2 batch's attributes.
_MAGIC = 16
_ATTRIBUTES = 22
# From these versions on: the batch format v2 only (KIP-98), zstd (KIP-110), topics by id (KIP-516).
_V2_ONLY = 3
_ZSTD = 7
_TOPIC_IDS = 13
_ADMIN = "__admin_client"


def produce(
    broker: Broker, session: Session, request: ProduceRequest, version: int
) -> ProduceResponse | None:
    responses = []
    failed: ApiError | None = None
    bad_acks = request.acks not in (-1, 0, 1)
    topics = broker.cluster.topics
    for data in request.topic_data:
        if version >= _TOPIC_IDS:
            topic = broker.cluster.topics_by_id.get(data.topic_id)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = topics.get(data.name)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = []
        for partition in data.partition_data:
            try:
                if bad_acks:
                    raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
                if topic is None:
                    raise ApiError(unknown)
                if topic.internal and session.client_id != _ADMIN:
                    raise ApiError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is an internal topic"
                    )
                response = _append(broker, request, topic, partition, version)
            except ApiError as error:
                failed = error
                response = _refusal(partition.index, error)
            partitions.append(response)
        responses.append(
            ProduceResponseResponse(
                name=data.name, topic_id=data.topic_id, partition_responses=partitions
            )
        )
    if request.acks == 0:
        if failed is not None:
            raise CloseConnection(f"Produce without acknowledgement failed: {failed}")
        return None
    return ProduceResponse(responses=responses)


def _append(
    broker: Broker,
    request: ProduceRequest,
    topic: Topic,
    data: ProduceRequestTopicDataPartitionData,
    version: int,
) -> ProduceResponseResponsePartitionResponse:
    log = broker.logs.get(topic.name, data.index)
    if log is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    records = data.records
    if not records:
        raise ApiError(ErrorCode.INVALID_RECORD, "a partition of the request has no record batch")
    if len(records) > _ATTRIBUTES:
        if records[_MAGIC] < 2:
            if version < _V2_ONLY:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                    f"message format v{records[_MAGIC]} is not written any more, only v2",
                )
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"Produce v{version} takes record batches of magic 2 only, not {records[_MAGIC]}",
            )
        if version < _ZSTD and records[_ATTRIBUTES] & 7 == Compression.ZSTD:
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce v{version} has no zstd"
            )

    def check_transaction(header: BatchHeader) -> None:
        broker.transactions.check(
            request.transactional_id,
            header.producer_id,
            header.producer_epoch,
            topic.name,
            data.index,
            version,
        )

    appended = log.append(
        records,
        leader_epoch=topic.partitions[data.index].leader_epoch,
        transaction_check=check_transaction,
    )
    return ProduceResponseResponsePartitionResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time,
        log_start_offset=appended.log_start_offset,
    )


def _refusal(index: int, error: ApiError) -> ProduceResponseResponsePartitionResponse:
    return ProduceResponseResponsePartitionResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=(
            [
                ProduceResponseResponsePartitionResponseRecordError(
                    batch_index_error_message=error.message
                )
            ]
            if error.code == ErrorCode.INVALID_RECORD
            else []
        ),
        error_message=error.message,
    )
