"""Transitions of a transactional id, without a log. The expected results were observed with Kafka 4.4.0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from kafka_wire import ErrorCode, TransactionState

from krammar.broker.errors import ApiError
from krammar.broker.transactions.coordinator import BLOCK, ProducerIds
from krammar.broker.transactions.state import LAST_EPOCH, MAX_EPOCH, Transaction
from krammar.broker.transactions.store import read_record, state_record, tombstone
from krammar.wire.batches import Record
from krammar.wire.errors import DecodeError

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT

A, B = ("a", 0), ("b", 3)


def no_new_id() -> int:
    raise AssertionError("no producer id is needed")


def state(
    state: TransactionState = EMPTY, epoch: int = 4, client_version: int = 2, **more: Any
) -> Transaction:
    """A transactional id of producer 7; an open transaction began at 1000."""
    if state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT):
        more.setdefault("partitions", frozenset({A}))
    if state is not EMPTY:
        more.setdefault("start_ms", 1000)
    return Transaction(
        producer_id=7,
        previous_id=7,
        timeout_ms=60000,
        updated_ms=1000,
        epoch=epoch,
        state=state,
        client_version=client_version,
        **more,
    )


def refused(function: Callable[..., object], *args: object) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        function(*args)
    return caught.value.code


def end(
    transaction: Transaction,
    commit: bool,
    *,
    epoch: int = 4,
    producer_id: int = 7,
    version: int = 2,
    ids: Callable[[], int] = no_new_id,
) -> Transaction | ErrorCode:
    try:
        return transaction.ended(producer_id, epoch, commit, version, 2000, ids)
    except ApiError as error:
        return error.code


# InitProducerId.


def test_a_new_id_begins_with_epoch_0() -> None:
    new = Transaction(7, 60000, 1000).initialized(None, 30000, 2000, no_new_id)
    assert (new.producer_id, new.epoch, new.last_epoch) == (7, 0, -1)
    assert (new.state, new.timeout_ms, new.updated_ms, new.start_ms) == (EMPTY, 30000, 2000, -1)


def test_a_producer_that_goes_on_with_an_id_that_expired_gets_a_new_one() -> None:
    new = Transaction(7, 60000, 1000).initialized((3, 12), 30000, 2000, no_new_id)
    assert (new.producer_id, new.epoch) == (7, 0)


@pytest.mark.parametrize("before", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_a_second_producer_fences_the_first(before: TransactionState) -> None:
    new = state(before).initialized(None, 30000, 2000, no_new_id)
    assert (new.epoch, new.last_epoch, new.state, new.start_ms) == (5, -1, EMPTY, -1)
    assert refused(new.initialized, (7, 4), 30000, 2000, no_new_id) is ErrorCode.PRODUCER_FENCED


def test_a_producer_goes_on_after_an_error() -> None:
    on = state().initialized((7, 4), 30000, 2000, no_new_id)
    assert (on.epoch, on.last_epoch) == (5, 4)


def test_the_request_to_go_on_can_be_repeated() -> None:
    on = state().initialized((7, 4), 30000, 2000, no_new_id)
    again = on.initialized((7, 4), 30000, 3000, no_new_id)
    assert (again.producer_id, again.epoch, again.last_epoch) == (7, 5, 4)


@pytest.mark.parametrize("expected", [(7, 3), (7, 9), (8, 4), (6, LAST_EPOCH)])
def test_who_is_not_the_last_producer_cannot_go_on(expected: tuple[int, int]) -> None:
    assert refused(state().initialized, expected, 1, 1, no_new_id) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("prepared", [PREPARE_COMMIT, PREPARE_ABORT])
@pytest.mark.parametrize("expected", [None, (7, 4), (99, 0)])
def test_a_prepared_transaction_is_waited_for(
    prepared: TransactionState, expected: tuple[int, int] | None
) -> None:
    code = refused(state(prepared).initialized, expected, 1, 1, no_new_id)
    assert code is ErrorCode.CONCURRENT_TRANSACTIONS


def test_an_open_transaction_cannot_be_initialized() -> None:
    with pytest.raises(RuntimeError, match="from Ongoing to Empty"):
        state(ONGOING).initialized(None, 1, 1, no_new_id)


def test_when_epochs_are_used_up_a_new_producer_id_is_taken() -> None:
    new = state(epoch=LAST_EPOCH).initialized(None, 30000, 2000, lambda: 50)
    assert (new.producer_id, new.epoch, new.last_epoch, new.previous_id) == (50, 0, -1, 7)


def test_a_producer_that_goes_on_with_a_new_id_can_repeat_it_once() -> None:
    new = state(epoch=LAST_EPOCH).initialized((7, LAST_EPOCH), 30000, 2000, lambda: 50)
    assert (new.producer_id, new.epoch, new.last_epoch) == (50, 0, LAST_EPOCH)
    again = new.initialized((7, LAST_EPOCH), 30000, 2000, no_new_id)
    assert (again.producer_id, again.epoch) == (50, 0)
    # As in Kafka: by then the id before is forgotten.
    code = refused(again.initialized, (7, LAST_EPOCH), 30000, 2000, no_new_id)
    assert code is ErrorCode.PRODUCER_FENCED


# Fencing.


def test_fencing_takes_one_epoch() -> None:
    fenced = state(ONGOING).fenced(2, 2000, no_new_id)
    assert (fenced.state, fenced.epoch, fenced.last_epoch) == (PREPARE_ABORT, 5, 4)
    assert fenced.partitions == {A}
    assert fenced.start_ms == 1000


def test_fencing_without_the_feature_leaves_no_way_to_go_on() -> None:
    fenced = state(ONGOING).fenced(0, 2000, no_new_id)
    assert (fenced.state, fenced.epoch, fenced.last_epoch) == (PREPARE_ABORT, 5, -1)
    assert fenced.client_version == 0
    complete = fenced.completed(3000)
    assert refused(complete.initialized, (7, 4), 1, 1, no_new_id) is ErrorCode.PRODUCER_FENCED


def test_fencing_with_the_last_epoch_goes_over_to_a_new_id() -> None:
    fenced = state(ONGOING, epoch=LAST_EPOCH).fenced(2, 2000, lambda: 50)
    assert (fenced.producer_id, fenced.epoch, fenced.next_id) == (7, MAX_EPOCH, 50)
    complete = fenced.completed(3000)
    assert (complete.producer_id, complete.epoch, complete.next_id) == (50, 0, -1)
    assert (complete.previous_id, complete.last_epoch) == (7, LAST_EPOCH)


@pytest.mark.parametrize("level", [0, 2])
def test_no_epoch_is_above_the_highest(level: int) -> None:
    fenced = state(ONGOING, epoch=MAX_EPOCH).fenced(level, 2000, lambda: 50)
    assert fenced.epoch == MAX_EPOCH


# Partitions.


@pytest.mark.parametrize("before", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_the_first_partition_begins_a_transaction(before: TransactionState) -> None:
    begun = state(before).with_partitions(7, 4, [A, B], 2, 2000)
    assert (begun.state, begun.partitions, begun.start_ms) == (ONGOING, {A, B}, 2000)


def test_further_partitions_do_not_move_its_beginning() -> None:
    grown = state(ONGOING).with_partitions(7, 4, [B], 0, 2000)
    assert (grown.partitions, grown.start_ms, grown.updated_ms) == ({A, B}, 1000, 2000)
    assert grown.client_version == 0


def test_known_partitions_change_nothing() -> None:
    ongoing = state(ONGOING)
    assert ongoing.with_partitions(7, 4, [A], 2, 2000) is ongoing


def test_missing_partitions() -> None:
    assert state(ONGOING).missing(7, 4, [A, B]) == {B}
    assert state().missing(7, 4, [A]) == {A}


@pytest.mark.parametrize(
    ("producer_id", "epoch", "code"),
    [
        (8, 4, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (7, 3, ErrorCode.PRODUCER_FENCED),
        (7, 5, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_only_its_producer_adds_partitions(producer_id: int, epoch: int, code: ErrorCode) -> None:
    assert refused(state().with_partitions, producer_id, epoch, [A], 2, 2000) is code
    assert refused(state(ONGOING).missing, producer_id, epoch, [A]) is code


@pytest.mark.parametrize("prepared", [PREPARE_COMMIT, PREPARE_ABORT])
def test_nothing_is_added_to_a_prepared_transaction(prepared: TransactionState) -> None:
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    # Also with the next id of its producer.
    assert refused(state(prepared).with_partitions, 50, 0, [A], 2, 2000) is concurrent
    assert refused(state(prepared).missing, 7, 4, [A]) is concurrent


# EndTxn.


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(
    ("commit", "prepared", "complete"),
    [(True, PREPARE_COMMIT, COMPLETE_COMMIT), (False, PREPARE_ABORT, COMPLETE_ABORT)],
)
def test_an_open_transaction_ends(
    commit: bool, prepared: TransactionState, complete: TransactionState, version: int
) -> None:
    ended = end(state(ONGOING, last_epoch=1), commit, version=version)
    assert isinstance(ended, Transaction)
    assert (ended.state, ended.partitions, ended.updated_ms) == (prepared, {A}, 2000)
    assert ended.is_prepared
    assert ended.is_commit == commit
    done = ended.completed(3000)
    assert (done.state, done.partitions, done.start_ms) == (complete, frozenset(), 1000)
    # From transaction.version 2 on, each transaction has its own epoch.
    assert (done.epoch, done.last_epoch) == ((5, 4) if version == 2 else (4, 1))


SAME = "nothing to do"
NEXT = "an empty transaction is aborted"
BAD = ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.PRODUCER_FENCED
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("before", "commit", "repeated", "current"),
    [
        (EMPTY, False, FENCED, NEXT),
        (EMPTY, True, FENCED, BAD),
        (COMPLETE_ABORT, False, SAME, NEXT),
        (COMPLETE_ABORT, True, BAD, BAD),
        (COMPLETE_COMMIT, False, BAD, NEXT),
        (COMPLETE_COMMIT, True, SAME, BAD),
        (PREPARE_ABORT, False, BUSY, FENCED),
        (PREPARE_ABORT, True, BUSY, FENCED),
        (PREPARE_COMMIT, False, BUSY, FENCED),
        (PREPARE_COMMIT, True, BUSY, FENCED),
    ],
)
def test_end_with_an_epoch_for_each_transaction(
    before: TransactionState, commit: bool, repeated: object, current: object
) -> None:
    for epoch, expected in ((3, repeated), (4, current)):
        transaction = state(before)
        ended = end(transaction, commit, epoch=epoch)
        if expected is SAME:
            assert ended is transaction
        elif expected is NEXT:
            assert isinstance(ended, Transaction)
            assert (ended.state, ended.epoch, ended.start_ms) == (PREPARE_ABORT, 5, 2000)
        else:
            assert ended is expected
    for epoch in (2, 5):
        assert end(state(before), commit, epoch=epoch) is FENCED
    assert end(state(before), commit, producer_id=8) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("before", "commit", "expected"),
    [
        (EMPTY, False, BAD),
        (EMPTY, True, BAD),
        (COMPLETE_ABORT, False, SAME),
        (COMPLETE_ABORT, True, BAD),
        (COMPLETE_COMMIT, False, BAD),
        (COMPLETE_COMMIT, True, SAME),
        (PREPARE_ABORT, False, BUSY),
        (PREPARE_ABORT, True, BUSY),
        (PREPARE_COMMIT, False, BUSY),
        (PREPARE_COMMIT, True, BUSY),
    ],
)
def test_end_with_one_epoch_for_all_transactions(
    before: TransactionState, commit: bool, expected: object
) -> None:
    transaction = state(before, client_version=0)
    ended = end(transaction, commit, version=0)
    assert ended is (transaction if expected is SAME else expected)
    for epoch in (3, 5):
        assert end(transaction, commit, epoch=epoch, version=0) is FENCED
    mapping = end(transaction, commit, producer_id=8, version=0)
    assert mapping is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_last_epoch_ends_with_a_new_id_and_the_request_can_be_repeated() -> None:
    ended = end(state(ONGOING, epoch=LAST_EPOCH), True, epoch=LAST_EPOCH, ids=lambda: 50)
    assert isinstance(ended, Transaction)
    assert (ended.producer_id, ended.epoch, ended.next_id) == (7, MAX_EPOCH, 50)
    assert end(ended, True, epoch=LAST_EPOCH) is BUSY
    done = ended.completed(3000)
    assert (done.producer_id, done.epoch, done.previous_id) == (50, 0, 7)
    assert end(done, True, epoch=LAST_EPOCH) is done
    assert end(done, False, epoch=LAST_EPOCH) is BAD
    assert end(done, True, producer_id=50, epoch=0) is BAD


def test_a_client_without_the_feature_keeps_the_last_epoch() -> None:
    ended = end(state(ONGOING, epoch=LAST_EPOCH), True, epoch=LAST_EPOCH, version=0)
    assert isinstance(ended, Transaction)
    assert (ended.epoch, ended.next_id) == (LAST_EPOCH, -1)


# Records.


@pytest.fixture
def every_state() -> list[Transaction]:
    return [
        state(),
        state(ONGOING, partitions=frozenset({A, B, ("a", 1)})),
        state(PREPARE_COMMIT, next_id=50, epoch=MAX_EPOCH),
        state(PREPARE_ABORT),
        state(COMPLETE_COMMIT, client_version=0),
        state(COMPLETE_ABORT),
    ]


def test_states_come_back_from_their_records(every_state: list[Transaction]) -> None:
    assert every_state
    for transaction in every_state:
        assert read_record(state_record("my id", transaction, 1)) == ("my id", transaction)


def test_states_come_back_from_records_of_the_old_version(every_state: list[Transaction]) -> None:
    assert every_state
    for transaction in every_state:
        plain = replace(transaction, previous_id=-1, next_id=-1, client_version=0)
        record = state_record("my id", transaction, 0)
        assert read_record(record) == ("my id", plain)


def test_a_record_byte_for_byte() -> None:
    record = state_record("ab", state(ONGOING), 1)
    assert record.key == bytes.fromhex("0000 0002 6162")
    assert record.value == bytes.fromhex(
        "0001 0000000000000007 0004 0000ea60 01"
        "02 02 61 02 00000000 00"  # topic a, partition 0
        "00000000000003e8 00000000000003e8"
        "02 00 08 0000000000000007 02 02 0002"  # the id before, transaction.version
    )


def test_tombstones_and_records_of_other_kinds() -> None:
    assert read_record(tombstone("my id")) == ("my id", None)
    assert read_record(Record(key=b"\x00\x09abc", value=b"x")) is None
    with pytest.raises(DecodeError, match="too short"):
        read_record(Record(key=None, value=b"x"))


# Producer ids.


def test_producer_ids_come_from_blocks() -> None:
    first = count(step=BLOCK)
    asked: list[int] = []

    def allocate(ids: int) -> int:
        asked.append(ids)
        return next(first)

    ids = ProducerIds(allocate)
    assert [ids.take() for _ in range(BLOCK + 2)] == list(range(BLOCK + 2))
    assert asked == [BLOCK, BLOCK]


def test_without_a_block_clients_try_again() -> None:
    def allocate(ids: int) -> int:
        if not blocks:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
        return blocks.pop()

    blocks: list[int] = []
    ids = ProducerIds(allocate)
    for _ in range(2):
        assert refused(ids.take) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    blocks.append(5000)
    assert [ids.take(), ids.take()] == [5000, 5001]
