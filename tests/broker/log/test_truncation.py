"""Logs that lose their end, compared with logs that never had it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_wire import ErrorCode

from krammar.broker.log.log import PartitionLog
from krammar.broker.log.log_config import LogConfig
from tests.broker.log.support import (
    Setting,
    batch,
    check_indexes,
    records_of,
    refused,
    sent,
    values_of,
)

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def fill(log: PartitionLog, kinds: list[str], marks: list[int]) -> list[int]:
    """Append batches of three producers; return the end offset after each."""
    sequences = {1: 0, 2: 0}
    ends = []
    for number, kind in enumerate(kinds):
        epoch = sum(mark <= number for mark in marks)
        if kind == "plain":
            log.append(batch(b"%d" % number, b"more"), leader_epoch=epoch)
        elif kind in ("commit", "abort"):
            log.append_marker(1, 0, commit=kind == "commit", coordinator_epoch=0)
        else:
            producer = 1 if kind == "transactional" else 2
            log.append(
                sent(
                    producer,
                    sequences[producer],
                    b"%d" % number,
                    transactional=producer == 1,
                ),
                leader_epoch=epoch,
            )
            sequences[producer] += 1
        ends.append(log.end_offset)
    return ends


def state(log: PartitionLog) -> object:
    return (
        log.end_offset,
        log.last_stable_offset,
        [(r.offset, r.value) for r in records_of(log)],
        sorted((e.producer_id, e.last_sequence, e.last_offset) for e in log.producers.entries()),
        log.reader.aborted_transactions(0, log.end_offset),
        [log.epoch_end_offset(epoch) for epoch in range(4)],
    )


KINDS = st.sampled_from(["plain", "transactional", "idempotent", "commit", "abort"])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(KINDS, min_size=1, max_size=30), st.lists(st.integers(0, 30), max_size=3), st.data()
)
def test_a_truncated_log_is_as_if_the_rest_was_never_written(
    kinds: list[str], marks: list[int], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / name for name in "ab"]
        for each in folders:
            each.mkdir()
        with Setting(folders[0]) as one, Setting(folders[1]) as two:
            log, short = one.open(SMALL), two.open(SMALL)
            ends = [0, *fill(log, kinds, marks)]
            to = data.draw(st.integers(0, ends[-1]))
            whole = max(number for number, end in enumerate(ends) if end <= to)
            fill(short, kinds[:whole], marks)
            if data.draw(st.booleans()):
                log.durability.flush()
            if data.draw(st.booleans()):
                log = one.reopen(log)
            assert log.retention.truncate_to(to) == ends[whole]
            assert state(log) == state(short)
            check_indexes(log)
            for other in (log, short):
                other.append(batch(b"next"), leader_epoch=5)
            assert state(log) == state(short)
            again = data.draw(st.sampled_from([one.reopen, one.crash]))
            log = again(log)
            assert state(log) == state(short)
            check_indexes(log)


def test_offsets_that_cannot_be_the_end(setting: Setting) -> None:
    log = setting.open()
    log.append(batch(b"one", b"two"))
    log.append(batch(b"three"))
    log.retention.delete_records(2)
    for offset in (1, 4, -1):
        with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
            log.retention.truncate_to(offset)
    assert log.retention.truncate_to(3) == 3
    assert values_of(log) == [b"three"]
    assert log.retention.truncate_to(2) == 2
    assert values_of(log) == []


def test_watchers_hear_of_it(setting: Setting) -> None:
    log = setting.open()
    log.append(batch(b"one"))
    heard: list[int] = []
    log.watchers.add(lambda: heard.append(log.end_offset))
    log.retention.truncate_to(0)
    assert heard == [0]
