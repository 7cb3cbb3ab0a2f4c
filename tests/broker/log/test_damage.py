"""Folders with random damage open or are refused, with no other than the documented errors."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from krammar.broker.errors import ApiError
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.log_config import LogConfig
from krammar.wire.batches import Record, read_headers
from krammar.wire.errors import WireError
from tests.broker.log.support import NOW, Setting, batch, check_indexes, compact, sent

CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact", "delete"}),
    min_cleanable_dirty_ratio=0.0,
    segment_bytes=700,
    index_interval_bytes=100,
    retention_ms=-1,
)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with files of every kind."""
    with Setting(tmp_path_factory.mktemp("origin")) as setting:
        log = setting.open(CONFIG)
        for number in range(24):
            log.append(sent(1, number, b"v" * number, key=b"%d" % (number % 5), transactional=True))
            if number % 6 == 0:
                log.append_marker(1, 0, commit=number == 12, coordinator_epoch=0)
            if number == 10:
                log.retention.roll()
                compact(log, NOW)
            log.append(
                batch(b"plain", None, key=b"k", compression=number % 5), leader_epoch=number // 9
            )
        log.close()
        yield setting.path


def tried(action: Callable[..., object], *arguments: object, **options: object) -> None:
    with suppress(ApiError):
        action(*arguments, **options)


def use(log: PartitionLog) -> None:
    start, end = log.log_start_offset, log.end_offset
    for offset in range(max(start, end - 30), min(end, start + 90)):
        tried(log.reader.read, offset, 300, log.last_stable_offset)
        tried(log.reader.bytes_from, offset, end, 1000)
        tried(log.reader.aborted_transactions, offset, end)
    for timestamp in (0, NOW, NOW + 1):
        tried(log.reader.offset_for_timestamp, timestamp)
    tried(log.reader.offset_of_max_timestamp)
    log.epoch_end_offset(1)
    tried(log.append, sent(1, 24, key=b"k", transactional=True))
    tried(log.append_records, [Record(key=b"k", value=b"v")])
    tried(log.append_marker, 1, 0, commit=False, coordinator_epoch=0)
    tried(log.retention.roll)
    # The manager reports this as a failed compaction.
    with suppress(OSError, WireError):
        compact(log, NOW)
    tried(log.retention.delete_records, min(30, log.end_offset))
    tried(log.retention.apply, NOW)
    tried(lambda: list(log.reader.batches()))


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 1000),  # file
        st.sampled_from(["byte", "byte", "cut", "zeros", "gone", "longer", "rubbish", "twice"]),
        st.integers(0, 1 << 20),  # place
        st.integers(1, 255),
    ),
    min_size=1,
    max_size=4,
)


def damage(path: Path, how: str, place: int, bits: int) -> None:
    data = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
        return
    if how == "byte" and data:
        data[place % len(data)] ^= bits
    elif how == "cut" and data:
        del data[place % len(data) :]
    elif how == "zeros":
        data += bytes(place % 5000)
    elif how == "longer":
        data += bytes([bits]) * (place % 100)
    elif how == "rubbish":
        data = bytearray([bits]) * (place % 300)
    elif how == "twice":
        data += bytes(data)
    path.write_bytes(data)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES, clean=st.booleans(), recovery_point=st.integers(0, 90))
def test_any_damage(
    origin: Path,
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[int, str, int, int]],
    clean: bool,
    recovery_point: int,
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    with Setting(folder) as setting:
        shutil.copytree(origin, setting.path)
        files = sorted(setting.path.iterdir())
        for number, how, place, bits in changes:
            path = files[number % len(files)]
            if path.exists():
                damage(path, how, place, bits)
        log = setting.open(CONFIG, clean=clean, recovery_point=recovery_point)
        use(log)
        log.close()
        # A log that was verified completely is valid.
        log = setting.open(CONFIG)
        assert log.segments
        check_indexes(log)
        for segment in log.segments:
            for header in read_headers(segment.read(0, segment.size), allow_partial=False):
                assert segment.base_offset <= header.last_offset < log.end_offset
        use(log)
    shutil.rmtree(folder)
