"""A listener for Wafka: Produce at version 3, whose records are strings, into the topics that Kafka clients
read.

Each string becomes the value of a record with the time of its arrival and without a key; the strings of
a partition are one record batch. What is no Produce at version 3 is answered with an error that says so.
"""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

import kafka_wire
import wafka_wire
from wafka_wire import (
    ErrorCode,
    ProduceRequest,
    ProduceRequestTopicDataPartitionData,
    ProduceResponse,
    ProduceResponseTopic,
    ProduceResponseTopicPartition,
)

from krammar.broker.cluster import INTERNAL_TOPICS
from krammar.broker.errors import ApiError
from krammar.broker.handlers.metadata import create_on_use
from krammar.broker.server import Connection
from krammar.broker.topic_names import check_topic_name
from krammar.wire.connection import InvalidRequest, RequestReceived
from krammar.wire.framing import join_frame
from krammar.wire.records import Record, encode_batch

if TYPE_CHECKING:
    from krammar.broker.broker import Broker
    from krammar.broker.cluster import Topic

VERSION = ProduceRequest.max_version


class WafkaConnection(Connection):
    """One Wafka client's connection."""

    protocol: ClassVar[ModuleType] = wafka_wire
    allow_trailing: ClassVar[bool] = False

    def _handle(self, event: RequestReceived | InvalidRequest) -> bool:
        if isinstance(event, InvalidRequest):
            return self._answer_invalid(event)
        self.session.client_id = event.header.client_id
        try:
            response = produce(self.broker, event.request)
        except Exception as error:
            self._failed(event, error)
            return False
        if event.request.acks == 0:
            self.wire.skip_response(event)
            for topic in response.topics:
                for partition in topic.partitions:
                    if partition.error_code:
                        self._refuse(f"{topic.name}-{partition.index}: {partition.error_message}")
                        return False
            if response.error_code:
                self._refuse(str(response.error_message))
            return not response.error_code
        return self._answer(event, response)

    def _answer_invalid(self, event: InvalidRequest) -> bool:
        """Say what is wrong with a request, as far as it can be answered at all."""
        if event.correlation_id is None:
            self._refuse(str(event.error))
            return False
        self.wire.skip_response(event)
        if (event.api_key, event.version) == (ProduceRequest.api_key, VERSION):
            code, message = ErrorCode.INVALID_REQUEST, str(event.error)
        else:
            code = ErrorCode.UNSUPPORTED_VERSION
            message = (
                f"api key {event.api_key}, version {event.version}: "
                f"Wafka has Produce, key {ProduceRequest.api_key}, in version {VERSION} only"
            )
        response = ProduceResponse(error_code=code, error_message=message)
        header = wafka_wire.ResponseHeader(correlation_id=event.correlation_id)
        self.transport.write(join_frame([header.encode(0), response.encode(VERSION)]))
        return True


def produce(broker: Broker, request: ProduceRequest) -> ProduceResponse:
    """Store what a request brings; partitions that cannot take their records say why."""
    if request.transactional_id is not None:
        return ProduceResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="there are no transactions: TransactionalId has to be null",
        )
    if request.acks not in (-1, 0, 1):
        return ProduceResponse(
            error_code=ErrorCode.INVALID_REQUIRED_ACKS,
            error_message=f"Acks is {request.acks}, which is none of -1, 0 and 1",
        )
    return ProduceResponse(
        topics=[
            ProduceResponseTopic(
                name=data.name,
                partitions=[_append(broker, data.name, each) for each in data.partition_data],
            )
            for data in request.topic_data
        ]
    )


def _append(
    broker: Broker, name: str, data: ProduceRequestTopicDataPartitionData
) -> ProduceResponseTopicPartition:
    try:
        topic = _topic(broker, name)
        log = broker.logs.get(name, data.index)
        if log is None:
            raise ApiError(
                kafka_wire.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{name} has partitions 0 to {len(topic.partitions) - 1}",
            )
        if not data.records:
            return ProduceResponseTopicPartition(index=data.index)
        now = broker.now_ms()
        records = [Record(timestamp=now, value=text.encode()) for text in data.records]
        appended = log.append(
            encode_batch(records), leader_epoch=topic.partitions[data.index].leader_epoch
        )
    except ApiError as error:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        with suppress(ValueError):  # one that Wafka does not have
            code = ErrorCode(error.code)
        return ProduceResponseTopicPartition(
            index=data.index, error_code=code, error_message=error.message
        )
    return ProduceResponseTopicPartition(index=data.index, base_offset=appended.base_offset)


def _topic(broker: Broker, name: str) -> Topic:
    """The topic, made where there is none and ``auto.create.topics.enable`` says so. Raises ApiError."""
    if name in INTERNAL_TOPICS:
        raise ApiError(kafka_wire.ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is an internal topic")
    topic = broker.cluster.topics.get(name)
    if topic is None:
        check_topic_name(name)
        if broker.config.auto_create_topics_enable:
            topic = create_on_use(broker, name)
    if topic is None:
        raise ApiError(kafka_wire.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    return topic
