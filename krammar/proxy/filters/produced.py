"""The base class of filters that check or change the records of Produce, and can refuse some of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kafka_wire import ErrorCode, ProduceRequest, ProduceResponse

from krammar.proxy.filters.batches import Allowance, TooMuch
from krammar.proxy.filters.topics import INTERNAL_TOPICS, Patterns, TopicIds
from krammar.proxy.interface import Exchange, Filter, on
from krammar.util.printable import escape
from krammar.wire.errors import BatchLimitError, CorruptRecordError, DecodeError, EncodeError

LOG = logging.getLogger("krammar.proxy")


class PartitionRefused(Exception):
    """The records of a partition are refused.

    Args:
        code: an ErrorCode.
        text: why, for the producer.
        records: the indexes of the invalid records in their batch, and why (KIP-467).
    """

    def __init__(self, code: int, text: str, records: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.records = records


class _Place(NamedTuple):
    topic: Any
    partition: int
    refused: PartitionRefused


class ProduceFilter(Filter):
    """Passes the records of each partition of Produce to ``produced``, which returns what to write.

    Refused partitions are left out of the request, and their errors are added to the broker's response. The others are
    written. In a transaction, the producer gets the error as if the broker had refused the records, and aborts.

    Args:
        topics: patterns of the topics. Records of other topics, and of Kafka's internal topics, pass.
    """

    def __init__(self, topics: Iterable[str] = ("*",)) -> None:
        self.topics = Patterns("topics", topics)
        self.topic_ids = TopicIds()

    async def produced(
        self, topic: str, records: bytes, exchange: Exchange, allowance: Allowance
    ) -> bytes:
        """Return the records to write. Raises PartitionRefused, DecodeError, EncodeError or TooMuch to refuse them."""
        raise NotImplementedError

    @on(ProduceRequest)
    async def on_produce(
        self, request: ProduceRequest, exchange: Exchange
    ) -> ProduceResponse | None:
        errors = await self.topic_ids.ask(
            exchange, (each.topic_id for each in request.topic_data if not each.name)
        )
        allowance = Allowance()
        places: list[_Place] = []
        for topic in request.topic_data:
            name = topic.name or self.topic_ids.name(exchange.connection, topic.topic_id)
            # Of a topic without a name, for example because a filter after this one denies it.
            code = errors.get(topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
            if name is not None and (name not in self.topics or name in INTERNAL_TOPICS):
                continue
            kept = []
            for partition in topic.partition_data:
                try:
                    if name is None:
                        raise PartitionRefused(code, "the broker does not name this topic id")
                    partition.records = await self._checked(
                        name, partition.records, exchange, allowance
                    )
                except PartitionRefused as refused:
                    places.append(_Place(topic, partition.index, refused))
                else:
                    kept.append(partition)
            topic.partition_data = kept
        if not places:
            return None
        if request.acks == 0:  # the producer gets no response
            for place in places:
                LOG.warning(
                    "connection %d of %s: records for %s-%d are refused: error %d",
                    exchange.connection.number,
                    exchange.connection.client,
                    escape(place.topic.name or str(place.topic.topic_id)),
                    place.partition,
                    place.refused.code,  # the text can contain values of records
                )
        request.topic_data = [each for each in request.topic_data if each.partition_data]
        if not request.topic_data:
            answer = ProduceResponse()
            _add(answer, places)
            return answer
        exchange.state[self] = places
        return None

    @on(ProduceResponse)
    def on_produced(self, response: ProduceResponse, exchange: Exchange) -> None:
        _add(response, exchange.state.get(self, ()))

    async def _checked(
        self, name: str, records: bytes | None, exchange: Exchange, allowance: Allowance
    ) -> bytes | None:
        if not records:
            return records
        try:
            return await self.produced(name, records, exchange, allowance)
        except TooMuch:
            text = "the records of the request are more than the proxy decodes for one"
            raise PartitionRefused(ErrorCode.MESSAGE_TOO_LARGE, text) from None
        except CorruptRecordError as error:
            raise PartitionRefused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        except (BatchLimitError, DecodeError) as error:
            raise PartitionRefused(ErrorCode.INVALID_RECORD, str(error)) from None
        except EncodeError as error:
            raise PartitionRefused(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None


def _add(response: ProduceResponse, places: Iterable[_Place]) -> None:
    for asked, partition, refused in places:
        for topic in response.responses:
            if (topic.name, topic.topic_id) == (asked.name, asked.topic_id):
                break
        else:
            topic = ProduceResponse.TopicProduceResponse(name=asked.name, topic_id=asked.topic_id)
            response.responses.append(topic)
        topic.partition_responses.append(
            ProduceResponse.PartitionProduceResponse(
                index=partition,
                error_code=refused.code,
                base_offset=-1,
                error_message=refused.text,
                record_errors=[
                    ProduceResponse.BatchIndexAndErrorMessage(
                        batch_index=index, batch_index_error_message=text
                    )
                    for index, text in refused.records
                ],
            )
        )


__all__ = ["ProduceFilter", "PartitionRefused"]
