"""Logs in real files, for tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import pytest
from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError
from krammar.broker.log.compaction import due_round
from krammar.broker.log.environment import Environment
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.log_config import LogConfig
from krammar.wire.batches import BatchHeader, Record, encode_batch, read_batches, read_headers

TOPIC_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
NOW = 1_700_000_000_000


class Clock:
    """Milliseconds since 1970 that only change when the test changes them."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Setting:
    """A folder, a clock and the warnings of a log that is opened again and again."""

    def __init__(self, folder: Path, **environment: Any) -> None:
        self.path = folder / "t-0"
        self.clock = Clock()
        self.warnings: list[str] = []
        self._opened: list[PartitionLog] = []
        self.environment = Environment(now_ms=self.clock, warn=self.warnings.append, **environment)

    def open(self, config: LogConfig | None = None, **state: Any) -> PartitionLog:
        """Open the log. Keywords are the values that the log manager stores: clean, recovery_point, ..."""
        self.path.mkdir(exist_ok=True)
        log = PartitionLog(
            self.path, "t", 0, TOPIC_ID, config or LogConfig(), self.environment, **state
        )
        self._opened.append(log)
        return log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for log in self._opened:
            log.mark_deleted()

    def reopen(self, log: PartitionLog) -> PartitionLog:
        """Close and open in order."""
        log.close()
        return self.open(
            log.config,
            clean=True,
            recovery_point=log.durability.recovery_point,
            log_start_offset=log.log_start_offset,
            cleaned_to=log.retention.cleaned_to,
        )

    def crash(self, log: PartitionLog) -> PartitionLog:
        """Open the files as they are, as after SIGKILL."""
        state = {
            "recovery_point": log.durability.recovery_point,
            "log_start_offset": log.log_start_offset,
            "cleaned_to": log.retention.cleaned_to,
        }
        copy = self.path.with_name("copy")
        shutil.copytree(self.path, copy)
        log.mark_deleted()
        shutil.rmtree(self.path)
        copy.rename(self.path)
        return self.open(log.config, **state)


def batch(*values: bytes | None, key: bytes | None = None, **header: Any) -> bytes:
    """A batch as a producer sends it; all records have the same key."""
    timestamp = header.pop("timestamp", NOW)
    return encode_batch(
        [Record(timestamp=timestamp, key=key, value=value) for value in values],
        base_offset=0,
        **header,
    )


def sent(
    producer_id: int,
    sequence: int,
    *values: bytes,
    epoch: int = 0,
    transactional: bool = False,
    **header: Any,
) -> bytes:
    """A batch of an idempotent producer."""
    return batch(
        *(values or (b"v",)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
        **header,
    )


def records_of(log: PartitionLog, offset: int | None = None, step: int = 1 << 20) -> list[Record]:
    """All data records, read as a consumer reads them."""
    offset = log.log_start_offset if offset is None else offset
    records: list[Record] = []
    while offset < log.end_offset:
        data = log.reader.read(offset, step, log.end_offset)
        batches = list(read_batches(data))
        if not batches:
            break
        for one in batches:
            if not one.is_control:
                records += [record for record in one if record.offset >= offset]
            offset = max(offset, one.next_offset)
    return records


def values_of(log: PartitionLog) -> list[bytes | None]:
    """Return the values of all records of a log."""
    return [record.value for record in records_of(log)]


def headers_of(log: PartitionLog) -> list[BatchHeader]:
    """Return the headers of all batches of a log."""
    return [
        header
        for segment in log.segments
        for header in read_headers(segment.read(0, segment.size), allow_partial=False)
    ]


@contextmanager
def refused(code: ErrorCode, text: str | None = None) -> Iterator[None]:
    """Assert that a block raises an ApiError with a code."""
    with pytest.raises(ApiError, match=text) as caught:
        yield
    assert caught.value.code == code


def check_indexes(log: PartitionLog) -> None:
    """Files and memory agree with the batches: entries name batches and the latest timestamps."""
    for segment in log.segments:
        index, times = segment.indexes
        positions = {}
        latest: dict[int, int] = {}
        highest = -1
        for header in segment.scan():
            positions[header.position] = header.last_offset - segment.base_offset
            if header.max_timestamp > highest:
                highest = header.max_timestamp
                latest[header.last_offset - segment.base_offset] = highest
        assert [positions[position] for position in index.values] == list(index.keys)
        assert [latest[offset] for offset in times.values] == list(times.keys)
        assert segment.latest[0] == highest


def compact(log: PartitionLog, now_ms: int) -> bool:
    """Compact a log completely if it is due. Returns whether it was."""
    due = due_round(log, now_ms)
    if due is None:
        return False
    for _ in due.run():
        pass
    return True
