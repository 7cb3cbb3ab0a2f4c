"""Compaction against a simple model, and its rules for tombstones, transactions and producers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krammar.broker.log import compaction
from krammar.broker.log.compaction import due_round, find_dirt
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.log_config import LogConfig
from krammar.wire.batches import Compression, Record, encode_batch
from tests.broker.log.support import (
    NOW,
    Setting,
    check_indexes,
    compact,
    headers_of,
    records_of,
    sent,
)

COMPACT = frozenset({"compact"})
CONFIG = LogConfig(
    cleanup_policy=COMPACT,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
)


def put(log: PartitionLog, *pairs: tuple[bytes, bytes | None], codec: int = 0) -> None:
    records = [Record(timestamp=NOW, key=key, value=value) for key, value in pairs]
    log.append(encode_batch(records, base_offset=0, compression=codec))


def roll_and_compact(setting: Setting, log: PartitionLog) -> bool:
    """Roll, so that all can be compacted, and compact."""
    log.retention.roll()
    return compact(log, setting.clock.now)


def contents(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records_of(log)]


def test_the_newest_of_each_key_stays(setting: Setting) -> None:
    log = setting.open(CONFIG)
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"c", b"1"))
    put(log, (b"a", b"2"), (b"c", b"2"), codec=Compression.LZ4)
    log.retention.roll()
    put(log, (b"b", b"active"))
    untouched = log.reader.read(5, 1000, 6)

    assert compact(log, NOW)
    assert contents(log) == [
        (1, b"b", b"1"),
        (3, b"a", b"2"),
        (4, b"c", b"2"),
        (5, b"b", b"active"),
    ]
    assert log.reader.read(5, 1000, 6) == untouched
    assert (log.end_offset, log.log_start_offset, log.retention.cleaned_to) == (6, 0, 5)
    # The header has the position of the batch.
    first = headers_of(log)[0]
    assert (first.base_offset, first.last_offset, first.records_count) == (0, 1, 1)
    check_indexes(log)
    assert not compact(log, NOW)
    assert log.size == sum(path.stat().st_size for path in log.path.glob("*.log"))
    for open_again in (setting.reopen, setting.crash):
        log = open_again(log)
        assert len(contents(log)) == 4
        assert log.end_offset == 6
        assert log.reader.read(2, 1000, 6)[:8] == (3).to_bytes(8, "big")
    assert setting.warnings == []


def test_small_segments_become_one(setting: Setting) -> None:
    log = setting.open(CONFIG)
    for number in range(10):
        put(log, (b"%d" % (number % 3), b"x" * 50))
        log.retention.roll()
    assert len(log.segments) == 11
    assert compact(log, NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    assert [offset for offset, _, _ in contents(log)] == [7, 8, 9]
    setting.clock.now += 1
    assert not list(log.path.glob("*.snapshot")) or [
        int(path.stem) for path in log.path.glob("*.snapshot")
    ] == [10]


def test_what_is_compacted_and_when(setting: Setting) -> None:
    log = setting.open(LogConfig(cleanup_policy=COMPACT, min_cleanable_dirty_ratio=0.5))
    for _ in range(4):
        put(log, (b"a", b"x" * 50))
    assert not compact(log, NOW)  # never the active segment
    assert roll_and_compact(setting, log)
    assert len(contents(log)) == 1
    size = log.size
    put(log, (b"b", b"y" * 10))
    assert find_dirt(log, NOW).begin == 4
    log.retention.roll()
    assert find_dirt(log, NOW).ratio == pytest.approx((log.size - size) / log.size)
    assert not compact(log, NOW)  # not dirty enough
    log.update_config(
        LogConfig(cleanup_policy=COMPACT, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=1000)
    )
    assert not compact(log, NOW + 1000)
    assert compact(log, NOW + 1001)
    log.update_config(
        LogConfig(cleanup_policy=COMPACT, min_cleanable_dirty_ratio=0.0, min_compaction_lag_ms=1000)
    )
    put(log, (b"a", b"z"))
    log.retention.roll()
    assert not compact(log, NOW + 999)
    assert compact(log, NOW + 1000)
    log.update_config(LogConfig(min_cleanable_dirty_ratio=0.0))
    assert not roll_and_compact(setting, log)


def test_tombstones_stay_for_a_while(setting: Setting) -> None:
    log = setting.open(CONFIG)
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None), (b"c", b"1"))
    assert roll_and_compact(setting, log)
    assert contents(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    horizons = [h.base_timestamp for h in headers_of(log) if h.has_delete_horizon]
    assert horizons == [NOW + 1000]
    assert {record.timestamp for record in records_of(log)} == {NOW}

    setting.clock.now += 999
    put(log, (b"d", b"1"))
    assert roll_and_compact(setting, log)
    assert (2, b"a", None) in contents(log)
    setting.clock.now += 1
    put(log, (b"e", b"1"))
    assert roll_and_compact(setting, log)
    assert contents(log) == [
        (1, b"b", b"1"),
        (3, b"c", b"1"),
        (4, b"d", b"1"),
        (5, b"e", b"1"),
    ]
    assert {record.timestamp for record in records_of(log)} == {NOW}
    check_indexes(log)


def test_aborted_data_goes_and_then_its_marker(setting: Setting) -> None:
    log = setting.open(CONFIG)
    keyed = {"key": b"k"}
    log.append(sent(1, 0, b"lost", transactional=True, **keyed))
    log.append(sent(2, 0, b"kept", transactional=True, **keyed))
    log.append_marker(1, 0, commit=False, coordinator_epoch=0)
    log.append_marker(2, 0, commit=True, coordinator_epoch=0)
    put(log, (b"other", b"x"))
    assert roll_and_compact(setting, log)
    # The last batch of each producer stays without its records; markers stay.
    assert [(o, v) for o, _, v in contents(log)] == [(1, b"kept"), (4, b"x")]
    assert [(h.base_offset, h.records_count) for h in headers_of(log)] == [
        (0, 0),
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 1),
    ]
    assert log.reader.aborted_transactions(0, 10) == [(1, 0)]
    log = setting.crash(log)
    assert log.reader.aborted_transactions(0, 10) == [(1, 0)]
    assert log.append(sent(1, 0, b"lost", transactional=True, **keyed)).duplicate

    # When the producer expires, its batch is removed, and the marker with it.
    log.producers.expire(NOW, 0)
    put(log, (b"another", b"x"))
    assert roll_and_compact(setting, log)
    assert 0 not in [h.base_offset for h in headers_of(log)]
    marker = next(h for h in headers_of(log) if h.base_offset == 2)
    assert marker.has_delete_horizon or log.reader.aborted_transactions(0, 10)
    for number in range(3):
        setting.clock.now += 1000
        put(log, (b"more", b"%d" % number))
        assert roll_and_compact(setting, log)
    assert [h.base_offset for h in headers_of(log) if h.is_control] == [3]
    assert log.reader.aborted_transactions(0, 10) == []


def test_open_transactions_bound_it(setting: Setting) -> None:
    log = setting.open(CONFIG)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.append(sent(1, 0, b"open", key=b"a", transactional=True))
    put(log, (b"a", b"3"))
    log.retention.roll()
    assert compact(log, NOW)
    assert [value for _, _, value in contents(log)] == [b"2", b"open", b"3"]
    assert log.retention.cleaned_to == log.last_stable_offset == 2
    assert not compact(log, NOW)
    log.append_marker(1, 0, commit=True, coordinator_epoch=0)
    assert roll_and_compact(setting, log)
    assert [value for _, _, value in contents(log)] == [b"3"]
    check_indexes(log)


def test_an_aborted_transaction_that_ends_behind_the_round(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction.Compaction, "max_keys", 3)
    log = setting.open(CONFIG)
    for number in range(4):
        put(log, (b"%d" % number, b"x"))
    log.append(sent(1, 0, b"lost", key=b"0", transactional=True))
    log.append_marker(1, 0, commit=False, coordinator_epoch=0)
    log.retention.roll()
    rounds = 0
    while compact(log, NOW):
        rounds += 1
        assert log.reader.aborted_transactions(0, 10) == [(1, 4)]
    assert rounds > 1
    assert [value for _, _, value in contents(log)] == [b"x"] * 4
    assert log.retention.cleaned_to == 6


@pytest.mark.parametrize("codec", [0, 1])
def test_old_message_sets_are_compacted(setting: Setting, codec: int) -> None:
    from krammar.wire.batches.compression import compress
    from tests.broker.log.test_recovery import message_v1

    setting.path.mkdir()
    log_file = setting.path / f"{0:020}.log"
    # Without keys, which a compacted topic has no use for: they go.
    inner = message_v1(0, b"in 0") + message_v1(1, b"in 1")
    log_file.write_bytes(inner if not codec else message_v1(1, compress(inner, 1), attributes=1))
    log = setting.open(CONFIG)
    put(log, (b"a", b"1"))
    assert roll_and_compact(setting, log)
    assert contents(log) == [(2, b"a", b"1")]


def test_a_round_gives_way_to_deletion(setting: Setting) -> None:
    log = setting.open(CONFIG)
    for _ in range(5):
        put(log, (b"a", b"1"))
        log.retention.roll()
    found = due_round(log, NOW)
    assert found is not None
    steps = found.run()
    for _ in range(7):
        next(steps)
    log.mark_deleted()
    for _ in steps:
        pass
    assert not list(log.path.glob("*.cleaned"))
    assert len(list(log.path.glob("*.log"))) == 6


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.lists(
                st.tuples(
                    st.sampled_from([b"a", b"b", b"c", b"d"]),
                    st.sampled_from([b"1", b"22", b"333", None]),
                ),
                min_size=1,
                max_size=5,
            ),
        ),
        st.tuples(st.just("transaction"), st.booleans()),
        st.tuples(st.just("wait"), st.integers(1, 2000)),
        st.tuples(st.sampled_from(["roll", "compact", "reopen", "crash", "expire"]), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=120)
@given(steps=STEPS)
def test_compaction_keeps_what_a_reader_of_the_whole_would_end_with(
    steps: list[tuple[str, object]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(Path(folder))
        log = setting.open(
            LogConfig(
                cleanup_policy=COMPACT,
                min_cleanable_dirty_ratio=0.0,
                delete_retention_ms=1000,
                segment_bytes=600,
                index_interval_bytes=100,
            )
        )
        table: dict[bytes, bytes | None] = {}
        written: dict[int, tuple[bytes, bytes | None]] = {}
        sequence = epoch = 0
        for number, (what, detail) in enumerate(steps):
            if what == "put":
                assert isinstance(detail, list)
                for at, pair in enumerate(detail):
                    written[log.end_offset + at] = pair
                put(log, *detail, codec=number % 5)
                table.update(detail)
            elif what == "transaction":
                one = sent(1, sequence, b"in", epoch=epoch, key=b"a", transactional=True)
                log.append(one)
                sequence += 1
                if detail:
                    table[b"a"] = b"in"
                    written[log.end_offset - 1] = (b"a", b"in")
                log.append_marker(1, epoch, commit=bool(detail), coordinator_epoch=0)
            elif what == "wait":
                assert isinstance(detail, int)
                setting.clock.now += detail
            elif what == "compact":
                log.retention.roll()
                while compact(log, setting.clock.now):
                    pass
            elif what == "roll":
                log.retention.roll()
            elif what == "expire":
                log.producers.expire(setting.clock.now, 0)
                sequence = 0
                epoch += 1
            else:
                end = log.end_offset
                log = setting.reopen(log) if what == "reopen" else setting.crash(log)
                assert log.end_offset == end
                known = {p.epoch: p.last_sequence for p in log.producers.entries()}
                sequence = known.get(epoch, -1) + 1
        aborted = log.reader.aborted_transactions(0, log.end_offset)
        seen: dict[bytes, bytes | None] = {}
        for one in log.reader.batches():
            if one.is_control:
                continue
            for record in one:
                assert record.key is not None
                assert record.timestamp == NOW
                if one.is_transactional and (1, one.base_offset) in aborted:
                    continue
                assert written[record.offset] == (record.key, record.value)
                seen[record.key] = record.value
        keep = {key: value for key, value in table.items() if value is not None}
        assert {key: value for key, value in seen.items() if value is not None} == keep
        check_indexes(log)
        assert log.last_stable_offset == log.end_offset
        assert setting.warnings == []
        log.close()
