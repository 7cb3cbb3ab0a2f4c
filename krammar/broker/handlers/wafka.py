"""Wafka's Produce: appends strings as records to topics that Kafka clients read."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_wire import ErrorCode as KafkaCode
from wafka_wire import ErrorCode, ProduceRequest, ProduceResponse

from krammar.broker.cluster import INTERNAL_TOPICS, ClusterMetadata, Topic
from krammar.broker.config import BrokerConfig
from krammar.broker.errors import ApiError
from krammar.broker.nodes import Logs
from krammar.broker.slices import Steps
from krammar.broker.timers import Timers
from krammar.broker.topic_checks import check_topic_name
from krammar.broker.topics import Topics
from krammar.wire.batches import Record, encode_batch


@dataclass(eq=False)
class WafkaHandlers:
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
