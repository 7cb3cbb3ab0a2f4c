"""Reading a task: Arrow record batches of exactly its offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
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
from krammar.spark.batches import clip, to_arrow
from krammar.spark.kafka.plan import Task
from krammar.spark.loss import lost
from krammar.spark.memory import kept_memory
from krammar.wire.errors import DecodeError
from krammar.wire.records import BatchHeader


def read_task(
    client: Client, task: Task, *, fail_on_data_loss: bool, with_headers: bool = True
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The records of a task, as ``krammar.wire.arrow`` has them, with the type of their timestamps.

    There is one answer of the broker in memory and one under way, each of
    ``max.partition.fetch.bytes`` or one batch. Raises DataLossError for what is gone or broken, with
    ``fail_on_data_loss``; without, it is left out and a warning says so. Without ``with_headers`` that
    column is empty. Raises ClientError.
    """
    at = TopicPartition(task.topic, task.partition)
    with kept_memory(), closing(client.fetch({at: task.begin}, until={at: task.end})) as reader:
        for fetched in _fetch(reader, task, fail_on_data_loss):
            for kind, headers in groupby(fetched.headers, lambda b: int(b.timestamp_type)):
                group = list(headers)
                for batch in _decode(fetched, group, task, fail_on_data_loss, with_headers):
                    kept = clip(batch, fetched.begin, fetched.end)
                    if kept.num_rows:
                        yield kind, kept


def _fetch(reader: Reader, task: Task, fail: bool) -> Iterator[Fetched]:
    at = TopicPartition(task.topic, task.partition)
    while not reader.finished:
        try:
            yield from reader
        except OffsetOutOfRange as error:
            lost(str(error), fail)
            # Only what was deleted has something behind it that is still there.
            if error.offset < error.log_start_offset < task.end:
                reader.seek(at, error.log_start_offset)
        except CorruptBatchError as error:
            lost(str(error), fail)
            if error.next_offset is not None:
                reader.seek(at, error.next_offset)
        except (TruncatedError, UnknownTopicId, UnknownTopicOrPartition) as error:
            lost(f"{task.name}, from offset {reader.positions()[at]}: {error}", fail)


def _decode(
    fetched: Fetched, headers: list[BatchHeader], task: Task, fail: bool, with_headers: bool
) -> Iterator[pa.RecordBatch]:
    def arrow(batches: list[BatchHeader]) -> Iterator[pa.RecordBatch]:
        check = fetched.check_crcs
        return to_arrow(fetched.data, batches, check_crcs=check, with_headers=with_headers)

    if fail:
        try:
            yield from arrow(headers)
        except DecodeError as error:
            lost(f"{task.name}, from offset {headers[0].base_offset}: {error}", fail)
        return
    for header in headers:
        try:
            # Nothing is given on before all of it is known to be right.
            decoded = list(arrow([header]))
        except DecodeError as error:
            lost(f"{task.name}, offset {header.base_offset}: {error}", fail)
            continue
        yield from decoded
