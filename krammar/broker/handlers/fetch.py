"""Fetch: slices of the logs as they are on disk, at once or as soon as there is enough (long polling)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from itertools import groupby
from typing import TYPE_CHECKING, cast
from uuid import UUID

from kafka_wire import (
    ErrorCode,
    FetchRequest,
    FetchRequestTopicPartition,
    FetchResponse,
    FetchResponseResponse,
    FetchResponseResponsePartition,
    FetchResponseResponsePartitionAbortedTransaction,
    FetchResponseResponsePartitionDivergingEpoch,
    IsolationLevel,
)

from krammar.broker.errors import ApiError
from krammar.broker.fetch_sessions import FetchContext, Key
from krammar.broker.handlers.offsets import partition_of
from krammar.wire.records import read_headers

if TYPE_CHECKING:
    from krammar.broker.broker import Broker
    from krammar.broker.session import Session
    from krammar.broker.storage.log import PartitionLog

_TOPIC_IDS = 13
Answers = list[tuple[Key, FetchResponseResponsePartition]]


def fetch(
    broker: Broker, session: Session, request: FetchRequest, version: int
) -> FetchResponse | Awaitable[FetchResponse]:
    by_id = version >= _TOPIC_IDS
    try:
        context = broker.fetch_sessions.begin(request, by_id)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    answers, size, waiting = _read(broker, request, context)
    if waiting is None or size >= request.min_bytes or request.max_wait_ms <= 0:
        return _response(context, answers, by_id)
    return _wait(broker, session, request, context, waiting, by_id)


async def _wait(
    broker: Broker,
    session: Session,
    request: FetchRequest,
    context: FetchContext,
    waiting: list[tuple[PartitionLog, int]],
    by_id: bool,
) -> FetchResponse:
    """Answer when ``min_bytes`` are there, when something else has happened to one of the logs, or when
    the time is over."""
    committed = request.isolation_level == IsolationLevel.READ_COMMITTED
    done: asyncio.Future[None] = broker.loop.create_future()

    def changed() -> None:
        if done.done():
            return
        size = 0
        for log, offset in waiting:
            if log.deleted or offset < log.log_start_offset:
                break
            end = log.last_stable_offset if committed else log.end_offset
            if offset < end:
                size += log.bytes_from(offset, end, request.min_bytes)
                if size >= request.min_bytes:
                    break
        else:
            return
        done.set_result(None)

    def time_is_over() -> None:
        if not done.done():
            done.set_result(None)

    for log, _ in waiting:
        log.watchers.add(changed)
    changed()  # this runs a turn of the loop after the logs were read
    session.hurry = time_is_over
    timer = broker.call_later(request.max_wait_ms / 1000, time_is_over)
    try:
        await done
    finally:
        timer.cancel()
        session.hurry = None
        for log, _ in waiting:
            log.watchers.discard(changed)
    answers, _, _ = _read(broker, request, context)
    return _response(context, answers, by_id)


def _read(
    broker: Broker, request: FetchRequest, context: FetchContext
) -> tuple[Answers, int, list[tuple[PartitionLog, int]] | None]:
    """Read once: an answer for each partition, how many bytes of records there are in them, and what to
    wait for if these are too few; None where waiting is no use, as there is an error."""
    answers: Answers = []
    waiting: list[tuple[PartitionLog, int]] | None = []
    size = 0
    committed = request.isolation_level == IsolationLevel.READ_COMMITTED
    left = min(request.max_bytes, broker.config.fetch_max_bytes)
    by_id = broker.cluster.topics_by_id
    for key, partition in context.partitions.items():
        wanted = cast(FetchRequestTopicPartition, partition.wanted)
        answer = FetchResponseResponsePartition(
            partition_index=wanted.partition,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )
        answers.append((key, answer))
        try:
            name = key[0]
            if isinstance(name, UUID):
                topic = by_id.get(name)
                if topic is None:
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
                name = topic.name
            log = partition_of(broker, name, wanted.partition, wanted.current_leader_epoch)
            answer.high_watermark = log.end_offset
            answer.last_stable_offset = log.last_stable_offset
            answer.log_start_offset = log.log_start_offset
            if wanted.last_fetched_epoch >= 0 and _diverges(log, wanted, answer):
                waiting = None
                continue
            end = log.last_stable_offset if committed else log.end_offset
            offset = wanted.fetch_offset
            if offset < end or offset > log.end_offset or offset < log.log_start_offset:
                # One batch at least in all, however large, so that a client always gets on (KIP-74).
                records = log.read(
                    offset, min(wanted.partition_max_bytes, left), end, at_least_one=size == 0
                )
                if records:
                    answer.records = records
                    size += len(records)
                    left = max(0, left - len(records))
        except ApiError as error:
            answer.error_code = error.code
            waiting = None
            continue
        if committed:
            answer.aborted_transactions = _aborted(log, offset, end, answer.records or b"")
        if waiting is not None:
            waiting.append((log, offset))
    return answers, size, waiting or None


def _aborted(
    log: PartitionLog, begin: int, end: int, records: bytes
) -> list[FetchResponseResponsePartitionAbortedTransaction]:
    """The aborted transactions that some of the records belong to."""
    if not records:
        return []
    aborted = log.aborted_transactions(begin, end)
    if not aborted:
        return []
    last = begin
    for header in read_headers(records):
        last = header.last_offset
    return [
        FetchResponseResponsePartitionAbortedTransaction(producer_id=producer, first_offset=first)
        for producer, first in aborted
        if first <= last
    ]


def _diverges(
    log: PartitionLog, wanted: FetchRequestTopicPartition, answer: FetchResponseResponsePartition
) -> bool:
    """Whether the client's log has records that ours has not (KIP-595)."""
    epoch, end = log.epoch_end_offset(wanted.last_fetched_epoch)
    if epoch < 0 or end < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch == wanted.last_fetched_epoch and end >= wanted.fetch_offset:
        return False
    answer.diverging_epoch = FetchResponseResponsePartitionDivergingEpoch(
        epoch=epoch, end_offset=end
    )
    return True


def _response(context: FetchContext, answers: Answers, by_id: bool) -> FetchResponse:
    session = context.session
    if session is not None:
        told = []
        for key, answer in answers:
            partition = context.partitions.get(key)
            if partition is None:
                continue
            news = (
                context.full
                or bool(answer.records)
                or answer.error_code != 0
                or answer.high_watermark != partition.high_watermark
                or answer.log_start_offset != partition.log_start_offset
                or answer.diverging_epoch.epoch >= 0
            )
            if not news:
                continue
            told.append((key, answer))
            # An error is told again each time, as long as it lasts.
            partition.high_watermark = None if answer.error_code else answer.high_watermark
            partition.log_start_offset = answer.log_start_offset
            if answer.records:
                context.partitions.move_to_end(key)
        answers = told
    responses = []
    for name, group in groupby(answers, key=lambda pair: pair[0][0]):
        partitions = [answer for _, answer in group]
        if by_id:
            assert isinstance(name, UUID)
            responses.append(FetchResponseResponse(topic_id=name, partitions=partitions))
        else:
            assert isinstance(name, str)
            responses.append(FetchResponseResponse(topic=name, partitions=partitions))
    return FetchResponse(session_id=context.session_id, responses=responses)
