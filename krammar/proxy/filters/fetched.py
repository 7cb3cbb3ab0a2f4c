"""The base class of filters that change the records in responses to Fetch."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable
from typing import Any

from kafka_wire import ErrorCode, FetchResponse, ShareFetchResponse

from krammar.proxy.filters.batches import CUT_OFF, Allowance, TooMuch
from krammar.proxy.filters.topics import INTERNAL_TOPICS, Patterns, TopicIds
from krammar.proxy.interface import Exchange, Filter, on
from krammar.util.printable import escape
from krammar.wire.batches import RecordBatch, read_batches
from krammar.wire.errors import DecodeError, EncodeError

LOG = logging.getLogger("krammar.proxy")

# The first version whose clients read batches of format v2 (KIP-98).
_BATCHES = 4
# Partitions whose last unreadable offset is remembered, so that it is logged once.
_LOGGED = 10_000


class Unreadable(Exception):
    """A batch must not reach the consumer. The text says why, for the log."""


class FetchFilter(Filter):
    """Passes each record batch in responses to Fetch and ShareFetch to ``fetched``, which returns its new bytes.

    A consumer gets the batches before one that is unreadable. If it asks for that one, it gets CORRUPT_MESSAGE, and
    the log has a line with topic, partition and offsets.

    Args:
        topics: patterns of the topics. Records of other topics, and of Kafka's internal topics, pass.
    """

    def __init__(self, topics: Iterable[str] = ("*",)) -> None:
        self.topics = Patterns("topics", topics)
        self.topic_ids = TopicIds()
        self._logged: dict[tuple[str, int], int] = {}

    async def fetched(
        self, topic: str, batch: RecordBatch, exchange: Exchange, allowance: Allowance
    ) -> bytes | None:
        """Return the bytes for the consumer, or None if the batch stays as it is.

        Control batches and batches without records are not passed to this method.

        Raises:
            Unreadable, DecodeError, EncodeError: the consumer must not get the batch.
            TooMuch: the consumer must ask for it again.
        """
        raise NotImplementedError

    @on(FetchResponse, ShareFetchResponse)
    def on_fetch(self, response: Any, exchange: Exchange) -> Awaitable[None] | None:
        if any(partition.records for topic in response.responses for partition in topic.partitions):
            return self._change(response, exchange)
        return None

    async def _change(self, response: Any, exchange: Exchange) -> None:
        errors = await self.topic_ids.ask(
            exchange,
            (
                each.topic_id
                for each in response.responses
                if not _name(each) and any(partition.records for partition in each.partitions)
            ),
        )
        allowance = Allowance()
        for topic in response.responses:
            name = _name(topic) or self.topic_ids.name(exchange.connection, topic.topic_id)
            if name is not None and (name not in self.topics or name in INTERNAL_TOPICS):
                continue
            for partition in topic.partitions:
                if not partition.records:
                    continue
                if name is None:
                    _refuse(partition, errors.get(topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
                elif isinstance(response, FetchResponse) and exchange.version < _BATCHES:
                    _refuse(partition, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
                else:
                    await self._partition(name, partition, exchange, allowance)

    async def _partition(
        self, name: str, partition: Any, exchange: Exchange, allowance: Allowance
    ) -> None:
        data: bytes = partition.records
        out: list[bytes] = []
        end = 0
        can_end_early = isinstance(partition, FetchResponse.PartitionData)
        batch: RecordBatch | None = None
        try:
            for batch in read_batches(data):
                end = batch.position + batch.size_in_bytes
                changed = None
                if not batch.is_control and batch.records_count:
                    changed = await self.fetched(name, batch, exchange, allowance)
                out.append(data[batch.position : end] if changed is None else changed)
                batch = None  # a later error is not about this batch
        except TooMuch:
            # A share consumer would take missing records for deleted ones. It gets none, and the lock on them expires.
            if not can_end_early:
                _refuse(partition, ErrorCode.KAFKA_STORAGE_ERROR)
                return
        except (Unreadable, DecodeError, EncodeError) as error:
            self._log(name, partition.partition_index, batch, error)
            if not out or not can_end_early:
                _refuse(partition, ErrorCode.CORRUPT_MESSAGE)
                return
        else:
            # The rest of a batch that was cut off is useless to the consumer, and not changed.
            out.append(data[end : end + CUT_OFF])
        partition.records = b"".join(out)

    def _log(self, name: str, index: int, batch: RecordBatch | None, error: Exception) -> None:
        first = -1 if batch is None else batch.base_offset
        if self._logged.get((name, index)) == first:
            return
        if len(self._logged) >= _LOGGED:
            self._logged.clear()
        self._logged[name, index] = first
        where = "" if batch is None else f", offsets {first} to {batch.last_offset}"
        LOG.warning(
            "%s: %s-%d%s: %s", type(self).__name__, escape(name), index, where, escape(str(error))
        )


def _name(topic: Any) -> str:
    return getattr(topic, "topic", "")


def _refuse(partition: Any, code: int) -> None:
    partition.error_code = code
    partition.records = b""  # librdkafka does not read null
    if isinstance(partition, ShareFetchResponse.PartitionData):
        partition.acquired_records = []


__all__ = ["FetchFilter", "Unreadable"]
