"""Idempotence and transactions in one partition, also across restarts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_wire import AbortedTxn, ErrorCode, ProducerSnapshot

from krammar.broker.errors import ApiError
from krammar.broker.log.log_config import LogConfig
from krammar.wire.batches import BatchHeader, Record, crc32c
from tests.broker.log.support import NOW, Setting, batch, headers_of, refused, sent, values_of


def test_a_repeated_batch_is_stored_once(setting: Setting) -> None:
    log = setting.open()
    batches = [sent(5, number * 2, b"a%d" % number, b"b") for number in range(6)]
    first = [log.append(one) for one in batches]
    for one, before in zip(batches[1:], first[1:], strict=True):
        again = log.append(one)
        assert again.duplicate
        assert (again.base_offset, again.last_offset) == (before.base_offset, before.last_offset)
    # The sixth last is forgotten.
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "sent sequence 0, but 12 is expected"):
        log.append(batches[0])
    assert log.end_offset == 12


def test_a_repeated_batch_after_a_restart(setting: Setting) -> None:
    log = setting.open()
    batches = [sent(5, number) for number in range(3)]
    for one in batches:
        log.append(one)
    log = setting.crash(log)
    assert [log.append(one).base_offset for one in batches] == [0, 1, 2]
    # A snapshot only has the last batch; the others are read from the log.
    log = setting.reopen(log)
    assert [log.append(one).base_offset for one in batches] == [0, 1, 2]
    log.retention.roll()
    log = setting.crash(log)
    assert [log.append(one).base_offset for one in batches] == [0, 1, 2]
    log.append(sent(5, 3))
    log.append(sent(5, 0, epoch=1))
    log = setting.reopen(log)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.append(sent(5, 3))
    assert log.append(sent(5, 0, epoch=1)).duplicate
    assert log.append(sent(5, 1, epoch=1)).base_offset == 5


def test_sequences_have_no_gaps_and_wrap(setting: Setting) -> None:
    log = setting.open()
    last = 2**31 - 1
    log.append(sent(1, last - 2, b"x", b"y"))  # unknown producers may begin anywhere
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"but {last} is expected"):
        log.append(sent(1, 0))
    over = sent(1, last, b"x", b"y", b"z")
    assert not log.append(over).duplicate
    assert log.append(over).duplicate
    for open_again in (setting.reopen, setting.crash):
        log = open_again(log)
        assert log.append(over).duplicate
        with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "but 2 is expected"):
            log.append(sent(1, 3))
    log.append(sent(1, 2))
    assert log.producers.entries()[0].last_sequence == 2


def test_epochs_fence(setting: Setting) -> None:
    log = setting.open()
    log.append(sent(1, 0, epoch=3))
    with refused(
        ErrorCode.INVALID_PRODUCER_EPOCH, "epoch 2 of producer 1 is older than its last epoch 3"
    ):
        log.append(sent(1, 1, epoch=2))
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "sent sequence 1, but 0 is expected"):
        log.append(sent(1, 1, epoch=4))
    log.append(sent(1, 0, epoch=4))
    for open_again in (setting.reopen, setting.crash):
        log = open_again(log)
        with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
            log.append(sent(1, 1, epoch=3))
        assert log.append(sent(1, 0, epoch=4)).duplicate


def test_quiet_producers_are_forgotten(setting: Setting) -> None:
    log = setting.open()
    log.append(sent(1, 0))
    log.append(sent(2, 0, transactional=True))
    states = log.producers
    assert states.expire(NOW + 999, 1000) == 0
    assert states.expire(NOW + 1000, 1000) == 1
    assert [entry.producer_id for entry in log.producers.entries()] == [2]  # within a transaction
    log.append(sent(1, 77))

    setting.environment.producer_expiry_ms = 1000
    setting.clock.now += 5000
    log = setting.reopen(log)
    assert [entry.producer_id for entry in log.producers.entries()] == [2]


def test_open_transactions_hold_back_the_last_stable_offset(setting: Setting) -> None:
    log = setting.open()
    log.append(batch(b"plain"))
    log.append(sent(1, 0, b"a", b"b", transactional=True))
    log.append(sent(2, 0, transactional=True))
    log.append(batch(b"plain"))
    for open_again in (setting.reopen, setting.crash):
        log = open_again(log)
        assert (log.last_stable_offset, log.end_offset) == (1, 5)
        assert {e.producer_id: e.current_txn_first_offset for e in log.producers.entries()} == {
            1: 1,
            2: 3,
        }
    heard: list[int] = []
    log.watchers.add(lambda: heard.append(log.last_stable_offset))
    assert log.append_marker(1, 0, commit=True, coordinator_epoch=0).base_offset == 5
    assert log.last_stable_offset == 3
    log.append(sent(1, 2, transactional=True))
    log.append_marker(2, 0, commit=False, coordinator_epoch=0)
    assert log.last_stable_offset == 6
    log.append_marker(1, 0, commit=False, coordinator_epoch=0)
    assert log.last_stable_offset == log.end_offset == 9
    assert heard == [3, 3, 6, 9]
    for open_again in (setting.reopen, setting.crash):
        log = open_again(log)
        assert log.last_stable_offset == 9
        assert log.reader.aborted_transactions(0, 9) == [(2, 3), (1, 6)]
        assert log.reader.aborted_transactions(0, 3) == []
        assert log.reader.aborted_transactions(0, 4) == [(2, 3)]
        assert log.reader.aborted_transactions(8, 9) == [(1, 6)]
        assert log.reader.aborted_transactions(9, 9) == []
    log.close()
    data = (setting.path / f"{0:020}.txnindex").read_bytes()
    assert len(data) == 68
    assert AbortedTxn.decode(data[:34], 0) == AbortedTxn(
        producer_id=2, first_offset=3, last_offset=7, last_stable_offset=6
    )


def test_what_is_not_allowed_in_a_transaction(setting: Setting) -> None:
    log = setting.open()
    log.append(sent(1, 0, epoch=5, transactional=True))
    with refused(ErrorCode.INVALID_TXN_STATE, "not transactional"):
        log.append(sent(1, 1, epoch=5))
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.append_marker(1, 4, commit=True, coordinator_epoch=7)
    log.append_marker(1, 5, commit=True, coordinator_epoch=7)
    for open_again in (setting.reopen, setting.crash):
        log = open_again(log)
        with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "epoch 6"):
            log.append_marker(1, 5, commit=False, coordinator_epoch=6)
    log.append_marker(1, 5, commit=False, coordinator_epoch=7)  # of no transaction: a fence only
    assert log.reader.aborted_transactions(0, 100) == []
    # Since KIP-890, a marker has the next epoch, in which sequences begin at 0 again.
    log.append(sent(1, 1, epoch=5, transactional=True))
    log.append_marker(1, 6, commit=True, coordinator_epoch=7)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.append(sent(1, 2, epoch=5, transactional=True))
    for open_again in (setting.reopen, setting.crash):
        log = open_again(log)
        with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            log.append(sent(1, 2, epoch=6, transactional=True))
    log.append(sent(1, 0, epoch=6, transactional=True))


def test_a_transaction_is_checked_when_it_begins(setting: Setting) -> None:
    log = setting.open()
    asked: list[tuple[int, int]] = []

    def allow(header: BatchHeader) -> None:
        asked.append((header.producer_id, header.producer_epoch))

    def forbid(header: BatchHeader) -> None:
        raise ApiError(ErrorCode.INVALID_TXN_STATE, "no")

    with refused(ErrorCode.INVALID_TXN_STATE, "no"):
        log.append(sent(1, 0, transactional=True), transaction_check=forbid)
    assert log.end_offset == 0
    log.append(sent(1, 0, transactional=True), transaction_check=allow)
    log.append(sent(1, 1, transactional=True), transaction_check=forbid)
    assert log.append(sent(1, 1, transactional=True), transaction_check=forbid).duplicate
    log.append_marker(1, 0, commit=True, coordinator_epoch=0)
    with refused(ErrorCode.INVALID_TXN_STATE, "no"):
        log.append(sent(1, 2, transactional=True), transaction_check=forbid)
    log.append(sent(2, 0), transaction_check=forbid)
    assert asked == [(1, 0)]


def test_offsets_of_a_transaction_from_the_group_coordinator(setting: Setting) -> None:
    log = setting.open()
    appended = log.append_encoded(
        log.encode_records(
            [Record(key=b"k", value=b"v")], producer_id=9, producer_epoch=2, is_transactional=True
        )
    )
    assert appended.base_offset == log.last_stable_offset == 0
    log.append_encoded(
        log.encode_records(
            [Record(key=b"l", value=b"v")], producer_id=9, producer_epoch=2, is_transactional=True
        )
    )
    for open_again in (setting.reopen, setting.crash):
        log = open_again(log)
        assert log.last_stable_offset == 0
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.append_encoded(
            log.encode_records(
                [Record(key=b"k")], producer_id=9, producer_epoch=1, is_transactional=True
            )
        )
    log.append_marker(9, 2, commit=True, coordinator_epoch=0)
    assert log.last_stable_offset == 3
    assert [header.base_sequence for header in headers_of(log)] == [-1, -1, -1]


def test_the_snapshot_is_kafkas(setting: Setting) -> None:
    log = setting.open()
    log.append(sent(1, 0, b"a", b"b", epoch=3))
    log.append(sent(2, 0, transactional=True))
    log.append_marker(3, 1, commit=True, coordinator_epoch=8)
    log.close()

    data = (setting.path / f"{4:020}.snapshot").read_bytes()
    snapshot = ProducerSnapshot.decode(data, 1)
    assert snapshot.crc == crc32c(data[6:])
    assert [tuple(entry.to_dict().values()) for entry in snapshot.producer_entries] == [
        (1, 3, 1, 1, 1, NOW, -1, -1),
        (2, 0, 0, 2, 0, NOW, -1, 2),
        (3, 1, -1, -1, 0, NOW, 8, -1),
    ]


def test_snapshots_come_and_go_with_segments(setting: Setting) -> None:
    log = setting.open(LogConfig(segment_bytes=250))
    for number in range(8):
        log.append(sent(1, number))
    bases = [segment.base_offset for segment in log.segments]
    names = lambda: sorted(int(path.stem) for path in setting.path.glob("*.snapshot"))  # noqa: E731
    assert names() == bases[1:]
    log = setting.reopen(log)
    assert names() == [*bases[1:], 8]
    log.append(sent(1, 8))
    log = setting.reopen(log)
    assert names()[-1] == 9
    assert 8 not in names() or 8 in [segment.base_offset for segment in log.segments]


@pytest.mark.parametrize("damage", [b"", b"rubbish", None])
def test_a_snapshot_that_is_damaged_is_passed_over(setting: Setting, damage: bytes | None) -> None:
    log = setting.open()
    log.append(sent(1, 0))
    log.append(sent(2, 0, transactional=True))
    before = log.producers.entries()
    log.close()
    path = setting.path / f"{2:020}.snapshot"
    if damage is None:
        data = path.read_bytes()
        damage = data[:-1] + bytes((data[-1] ^ 1,))
    path.write_bytes(damage)
    log = setting.open(clean=True, recovery_point=2)
    assert log.producers.entries() == before
    assert log.append(sent(1, 0)).duplicate
    assert len(setting.warnings) == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 3), st.booleans()),
        st.tuples(st.sampled_from(["commit", "abort"]), st.integers(0, 3), st.none()),
        st.tuples(st.just("plain"), st.none(), st.none()),
        st.tuples(st.sampled_from(["reopen", "crash", "roll", "flush"]), st.none(), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=80)
@given(steps=STEPS)
def test_transactions_against_a_model(steps: list[tuple[str, int, bool | None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(Path(folder))
        log = setting.open(LogConfig(segment_bytes=400, index_interval_bytes=100))
        sequences: dict[int, int] = {}
        opened: dict[int, int] = {}
        aborted: list[tuple[int, int, int]] = []
        end = 0
        for what, producer, transactional in steps:
            if what == "send":
                within = producer in opened or bool(transactional)
                sequence = sequences.get(producer, 0)
                one = sent(producer, sequence, b"v%d" % end, transactional=within)
                log.append(one)
                assert log.append(one).duplicate
                sequences[producer] = sequence + 1
                if within:
                    opened.setdefault(producer, end)
                end += 1
            elif what == "plain":
                log.append(batch(b"v%d" % end))
                end += 1
            elif what in ("commit", "abort"):
                log.append_marker(producer, 0, commit=what == "commit", coordinator_epoch=0)
                first = opened.pop(producer, None)
                if first is not None and what == "abort":
                    aborted.append((producer, first, end))
                sequences.setdefault(producer, 0)
                end += 1
            elif what == "reopen":
                log = setting.reopen(log)
            elif what == "crash":
                log = setting.crash(log)
            elif what == "roll":
                log.retention.roll()
            else:
                log.durability.flush()
            assert log.end_offset == end
            assert log.last_stable_offset == min(opened.values(), default=end)
        for begin in range(0, end, 3):
            for until in range(begin + 1, end + 1, 4):
                assert sorted(log.reader.aborted_transactions(begin, until)) == sorted(
                    (producer, first)
                    for producer, first, last in aborted
                    if first < until and last >= begin
                )
        assert len(values_of(log)) == sum(not h.is_control for h in headers_of(log))
        assert setting.warnings == []
        log.close()
