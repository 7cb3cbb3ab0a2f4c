"""Reads tasks: Arrow record batches with exactly their offsets."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby

import pyarrow as pa

from krammar.client import Client, Fetched, Reader, TopicPartition
from krammar.client.errors import (
    CorruptBatchError,
    OffsetOutOfRange,
    TruncatedError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from krammar.client.metadata import NO_ID
from krammar.spark.batches import MOST_ROWS, batches_to_arrow, clip, reuse_freed_memory
from krammar.spark.brokers import ATTEMPTS
from krammar.spark.kafka.plan import Task, deleted_topic
from krammar.spark.kafka.topic_ids import current_id
from krammar.spark.loss import report_loss
from krammar.wire.batches import BatchHeader
from krammar.wire.batches.header import LOG_APPEND_TIME
from krammar.wire.errors import DecodeError

# Limits of the first response and of the Arrow batches made from it. Each later one is four times as large, up to
# max.partition.fetch.bytes and MOST_ROWS. A Python worker writes to Spark in blocks of 64 KiB, so Spark would not
# see smaller batches any sooner.
_FIRST_BYTES = 128 << 10
FIRST_ROWS = 2048
# The pause after a broker has refused an offset that its log has.
_REFUSED_SECONDS = 0.1


def read_tasks(
    client: Client, tasks: Sequence[Task], *, fail_on_data_loss: bool, with_headers: bool = True
) -> Generator[tuple[Task, int, pa.RecordBatch]]:
    """Yield the records of tasks, each of another partition.

    Each item is the task, the type of the records' timestamps, and an Arrow record batch with the columns of
    ``krammar.wire.batches.arrow.SCHEMA``. The first batches are small, so that a query that needs only a few
    rows ends early. One response of each broker is in memory and another one in flight, each with
    ``max.partition.fetch.bytes`` or one batch.

    Args:
        fail_on_data_loss: if false, missing and corrupt batches are skipped with a warning.
        with_headers: if false, the column ``headers`` is empty.

    Raises:
        DataLossError: records are missing or corrupt, and ``fail_on_data_loss`` is true.
        ClientError: the brokers cannot be read.
    """
    by_partition = {TopicPartition(task.topic, task.partition): task for task in tasks}
    reader = client.fetch(
        {at: task.begin for at, task in by_partition.items()},
        until={at: task.end for at, task in by_partition.items()},
        topic_ids={task.topic: task.topic_id for task in tasks},
        first_bytes=_FIRST_BYTES,
    )
    rows = FIRST_ROWS
    with reuse_freed_memory(), closing(reader):
        for fetched in _fetch(client, reader, by_partition, fail_on_data_loss):
            task = by_partition[fetched.at]
            for _, run in groupby(fetched.headers, _timestamp_bits):
                headers = list(run)
                timestamp_type = int(headers[0].timestamp_type)
                for batch in _decode(fetched, headers, task, fail_on_data_loss, with_headers, rows):
                    clipped = clip(batch, fetched.begin, fetched.end)
                    if clipped.num_rows:
                        yield task, timestamp_type, clipped
            rows = min(4 * rows, MOST_ROWS)


def _timestamp_bits(header: BatchHeader) -> tuple[bool, int]:
    """Return what decides the type of timestamps; an enum member for each small batch takes longer."""
    return header.magic == 0, header.attributes & LOG_APPEND_TIME


def _fetch(
    client: Client, reader: Reader, tasks: Mapping[TopicPartition, Task], fail: bool
) -> Iterator[Fetched]:
    refused: Counter[tuple[TopicPartition, int]] = Counter()
    while not reader.finished:
        try:
            yield from reader
        except OffsetOutOfRange as error:
            at = TopicPartition(error.topic, error.partition)
            task = tasks[at]
            if error.end_offset < 0:
                raise  # the ends of the log are not known, so nothing is known to be lost
            if error.log_start_offset <= error.offset < error.end_offset:
                # A new leader may refuse an offset that it has by now.
                refused[at, error.offset] += 1
                if refused[at, error.offset] == ATTEMPTS:
                    raise
                time.sleep(_REFUSED_SECONDS)
                reader.seek(at, error.offset)
                continue
            # Nothing of the task is read yet, so "earliest" is what it is now.
            begins = task.from_earliest and error.offset == task.begin < error.log_start_offset
            if not begins:
                report_loss(str(error), fail)
            # Later records exist only if the beginning of the log was deleted.
            if error.offset < error.log_start_offset < task.end:
                reader.seek(at, error.log_start_offset)
        except CorruptBatchError as error:
            report_loss(str(error), fail)
            if error.next_offset is not None:
                reader.seek(TopicPartition(error.topic, error.partition), error.next_offset)
        except TruncatedError as error:
            at = TopicPartition(error.topic, error.partition)
            report_loss(f"{at}, from offset {reader.positions()[at]}: {error}", fail)
        except (UnknownTopicId, UnknownTopicOrPartition) as error:
            at = next(at for at, reason in reader.failed().items() if reason is error)
            unread = replace(tasks[at], begin=reader.positions()[at])
            found = current_id(client, unread)
            if found is not None and found == unread.topic_id != NO_ID:
                raise  # the topic exists, although brokers refuse to read it
            report_loss(deleted_topic(unread, isinstance(error, UnknownTopicId)), fail)


def _decode(
    fetched: Fetched,
    headers: list[BatchHeader],
    task: Task,
    fail: bool,
    with_headers: bool,
    rows: int,
) -> Iterator[pa.RecordBatch]:
    def arrow(batches: list[BatchHeader]) -> Iterator[pa.RecordBatch]:
        check = fetched.check_crcs
        return batches_to_arrow(
            fetched.data, batches, rows=rows, check_crcs=check, with_headers=with_headers
        )

    if fail:
        try:
            yield from arrow(headers)
        except DecodeError as error:
            report_loss(f"{task.name}, from offset {headers[0].base_offset}: {error}", fail)
        return
    for header in headers:
        try:
            # No record of a batch is returned before the whole batch is decoded.
            decoded = list(arrow([header]))
        except DecodeError as error:
            report_loss(f"{task.name}, offset {header.base_offset}: {error}", fail)
            continue
        yield from decoded
