"""Listeners for Wafka: Produce v3 with strings as records, written to topics that Kafka clients read.

Each string becomes the value of a record with the arrival time and no key. The strings of a
partition form one record batch. The response to any other request is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import wafka_wire
from kafka_wire import ErrorCode as KafkaCode
from wafka_wire import ErrorCode, ProduceRequest, ProduceResponse

from krammar.broker.cluster import INTERNAL_TOPICS, ClusterMetadata, Topic
from krammar.broker.config import BrokerConfig
from krammar.broker.connection import Connection
from krammar.broker.errors import ApiError, CloseConnection
from krammar.broker.nodes import Logs
from krammar.broker.timers import Timers
from krammar.broker.topic_checks import check_topic_name
from krammar.broker.topics import Topics
from krammar.util.turns import Steps
from krammar.wire.batches import Record, encode_batch
from krammar.wire.connection import InvalidRequest, RequestReceived
from krammar.wire.framing import join_frame


@dataclass(eq=False)
class WafkaHandlers:
    """Handles Produce: appends strings as records."""

    config: BrokerConfig
    timers: Timers
    cluster: ClusterMetadata
    logs: Logs
    topics: Topics

    def produce(self, request: ProduceRequest) -> Steps[ProduceResponse]:
        """Store the records of a request. The response has an error for each failed partition."""
        if request.transactional_id is not None:
            return ProduceResponse(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="transactions are not supported: TransactionalId must be null",
            )
        if request.acks not in (-1, 0, 1):
            return ProduceResponse(
                error_code=ErrorCode.INVALID_REQUIRED_ACKS,
                error_message=f"Acks is {request.acks}, but must be -1, 0 or 1",
            )
        response = ProduceResponse()
        for data in request.topic_data:
            answers = []
            for each in data.partition_data:
                answers.append((yield from self._append(data.name, each)))
                yield None
            result = ProduceResponse.Topic(name=data.name, partition_count=-1, partitions=answers)
            topic = self.cluster.topics.get(data.name)  # appending may have created it
            if topic is not None:
                result.partition_count = len(topic.partitions)
            response.topics.append(result)
        return response

    def _append(
        self, name: str, data: ProduceRequest.PartitionData
    ) -> Steps[ProduceResponse.Partition]:
        answer = ProduceResponse.Partition(index=data.index)
        try:
            topic = yield from self._topic(name)
            log = self.logs.get(name, data.index)
            if log is None:
                raise ApiError(
                    KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"{name} has partitions 0 to {len(topic.partitions) - 1}",
                )
            if data.records:
                now = self.timers.now_ms()
                batch = encode_batch(
                    [Record(timestamp=now, value=text.encode()) for text in data.records]
                )
                epoch = topic.partitions[data.index].leader_epoch
                answer.base_offset = log.append(batch, leader_epoch=epoch).base_offset
        except ApiError as error:
            error.put_into(answer)
            if int(error.code) not in set(ErrorCode):  # Wafka has only some of Kafka's codes
                answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        return answer

    def _topic(self, name: str) -> Steps[Topic]:
        """Return a topic; create it if ``auto.create.topics.enable`` allows it. Raises ApiError."""
        if name in INTERNAL_TOPICS:
            raise ApiError(KafkaCode.INVALID_TOPIC_EXCEPTION, f"{name} is an internal topic")
        topic = self.cluster.topics.get(name)
        if topic is None:
            check_topic_name(name)
            if self.config.auto_create_topics_enable:
                topic = yield from self.topics.creating_on_use(name)
        if topic is None:
            raise ApiError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return topic


VERSION = ProduceRequest.max_version


class WafkaConnection(Connection):
    """One Wafka client's connection."""

    protocol: ClassVar[ModuleType] = wafka_wire
    allow_trailing: ClassVar[bool] = False

    def _handle(self, event: RequestReceived | InvalidRequest) -> None:
        if isinstance(event, InvalidRequest):
            self._answer_invalid(event)
            return
        self.session.client_id = event.header.client_id
        self._serve(event)

    def _call_handler(self, event: RequestReceived, request: ProduceRequest) -> Any:
        return self._produce(request)

    def _produce(self, request: ProduceRequest) -> Steps[ProduceResponse | None]:
        response = yield from self.handlers.of(WafkaHandlers).produce(request)
        if request.acks:
            return response
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    raise CloseConnection(
                        f"{topic.name}-{partition.index}: {partition.error_message}"
                    )
        if response.error_code:
            raise CloseConnection(str(response.error_message))
        return None

    def _answer_invalid(self, event: InvalidRequest) -> None:
        """Answer an invalid request with an error. Raises CloseConnection if no response is possible."""
        if event.correlation_id is None:
            raise CloseConnection(str(event.error))
        self.wire.skip_response(event)
        if (event.api_key, event.version) == (ProduceRequest.api_key, VERSION):
            code, message = ErrorCode.INVALID_REQUEST, str(event.error)
        else:
            code = ErrorCode.UNSUPPORTED_VERSION
            message = (
                f"api key {event.api_key}, version {event.version} is not served: "
                f"Wafka only has Produce (key {ProduceRequest.api_key}), version {VERSION}"
            )
        response = ProduceResponse(error_code=code, error_message=message)
        header = wafka_wire.ResponseHeader(correlation_id=event.correlation_id)
        self.transport.write(join_frame([header.encode(0), response.encode(VERSION)]))
