"""Compaction that is interrupted, by deletions and by crashes at each of its steps, loses no record."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from krammar.broker.log.compaction import due_round
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.log_config import LogConfig
from tests.broker.log.support import (
    NOW,
    Setting,
    batch,
    check_indexes,
    compact,
    records_of,
    sent,
)

CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact", "delete"}),
    segment_bytes=600,
    min_cleanable_dirty_ratio=0.0,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    retention_ms=-1,
)


def newest(log: PartitionLog) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {record.key: (record.offset, record.value) for record in records_of(log)}


def filled(setting: Setting) -> PartitionLog:
    log = setting.open(CONFIG)
    for number in range(40):
        log.append(batch(b"%050d" % number, key=b"%d" % (number % 7 if number % 3 else number)))
    log.append(sent(1, 0, transactional=True, key=b"aborted"))
    log.append_marker(1, 0, commit=False, coordinator_epoch=0)
    log.retention.roll()
    log.durability.flush()
    return log


def compact_beside_deletion(log: PartitionLog) -> None:
    """Compact, and delete the first segment as soon as its group has been half rewritten."""
    found = due_round(log, NOW)
    assert found is not None
    for step, _ in enumerate(found.run()):
        if step == log.end_offset:
            log.retention.delete_records(log.segments[1].base_offset)
            log.retention.apply(NOW)


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch, setting: Setting, tmp_path: Path) -> list[Path]:
    """Copies of the folder as a crash before each call that changes or forces names would leave it."""
    found: list[Path] = []
    numbers = count()

    def record(name: str) -> None:
        real: Callable[..., Any] = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            copy = tmp_path / f"state-{next(numbers)}"
            if setting.path.exists() and not isinstance(arguments[0], int):
                found.append(copy)
                shutil.copytree(setting.path, copy)
            return real(*arguments, **named)

        monkeypatch.setattr(os, name, call)

    for name in ("rename", "replace", "unlink"):
        record(name)
    return found


def test_a_group_whose_segments_are_deleted_leaves_no_files(setting: Setting) -> None:
    log = filled(setting)
    compact_beside_deletion(log)
    assert not [*log.path.glob("*.cleaned"), *log.path.glob("*.swap")]
    check_indexes(log)


@pytest.mark.sweep
@pytest.mark.parametrize("beside_deletion", [False, True])
def test_a_crash_at_each_step_of_compaction(
    beside_deletion: bool, setting: Setting, states: list[Path], tmp_path: Path
) -> None:
    log = filled(setting)
    before = newest(log)
    states.clear()
    if beside_deletion:
        compact_beside_deletion(log)
    else:
        assert compact(log, NOW)
    start = log.log_start_offset
    # Records before the new start may be there or not; what compaction removes, too. The newest of each key stays.
    expected = {
        key: found for key, found in before.items() if found[0] >= start and key != b"aborted"
    }
    assert newest(log) == expected
    taken = list(states)
    assert len(taken) > 20
    for number, state in enumerate(taken):
        (tmp_path / f"start-{number}").mkdir()
        again = Setting(tmp_path / f"start-{number}")
        shutil.move(state, again.path)
        with again:
            opened = again.open(CONFIG, recovery_point=log.end_offset)
            found = newest(opened)
            assert {key: found.get(key) for key in expected} == expected, state
            check_indexes(opened)
            assert not [*opened.path.glob("*.cleaned"), *opened.path.glob("*.swap")]


def test_a_replacement_is_on_the_disk_before_files_are_deleted(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `never` too, as in Kafka: otherwise, a power cut would lose old records."""
    calls: list[tuple[str, str]] = []

    def record(name: str) -> None:
        real: Callable[..., Any] = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            first = arguments[0]
            path = os.readlink(f"/dev/fd/{first}") if isinstance(first, int) else arguments[-1]
            calls.append((name, os.path.basename(os.fspath(path))))
            return real(*arguments, **named)

        monkeypatch.setattr(os, name, call)

    setting.environment.fsync = "never"
    log = filled(setting)
    for name in ("rename", "fsync"):
        record(name)
    assert compact(log, NOW)
    first = f"{0:020}.log"
    swapped, replaced = calls.index(("rename", f"{first}.swap")), calls.index(("rename", first))
    deleted = calls.index(("rename", f"{first}.deleted"))
    folder = [at for at, call in enumerate(calls) if call == ("fsync", "t-0")]
    assert calls.index(("fsync", f"{first}.cleaned")) < folder[0] < swapped
    assert swapped < folder[1] < deleted < replaced < folder[2]
