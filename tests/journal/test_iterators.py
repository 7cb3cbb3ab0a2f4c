"""Reading: malformed frames, jumps, transactions, replays and restarts, on journals in files."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from krammar.journal import (
    Checkpoint,
    FileJournals,
    FixedFraming,
    JournalSpec,
    MessageError,
    Publisher,
    ReadCommittedIter,
    ReadUncommittedIter,
    Sequencer,
    SequencerError,
    append_intents,
)

FIXED = FixedFraming()


def to(journal: str) -> Any:
    return lambda message: (journal, FIXED)


def amounts(envelopes: Any) -> list[int]:
    return [envelope.message.amount for envelope in envelopes]


@pytest.fixture
def x(journals: FileJournals) -> FileJournals:
    journals.create("x")
    return journals


def test_uncommitted_sees_all(x: FileJournals, shop: Any) -> None:
    publisher = Publisher(x)
    publisher.publish_uncommitted(to("x"), shop.Order(amount=1))
    publisher.publish_committed(to("x"), shop.Order(amount=2))
    append_intents(x, publisher.build_ack_intents())
    iterator = ReadUncommittedIter(x.reader("x"), shop.Order)
    assert iter(iterator) is iterator
    envelopes = list(iterator)
    assert amounts(envelopes) == [1, 2, 0]
    size = len(FIXED.marshal(shop.Order()))
    assert [(e.journal, e.begin, e.end) for e in envelopes] == [
        ("x", 0, size),
        ("x", size, 2 * size),
        ("x", 2 * size, 3 * size),
    ]
    assert iterator.offset == 3 * size
    assert next(iterator, None) is None


def test_malformed_frames_are_skipped(
    x: FileJournals, shop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    good = [FIXED.marshal(shop.Order(amount=n)) for n in range(3)]
    size = len(good[0])
    for data in (good[0], b"garbage", good[1], b"\x66\x33\x93\x36\x01\0\0\0!", good[2]):
        x.append("x", data)
    x.flush()
    with ReadUncommittedIter(x.reader("x"), shop.Order) as iterator:
        envelopes = list(iterator)
    assert amounts(envelopes) == [0, 1, 2]
    assert envelopes[1].begin == size + 7
    assert envelopes[2].begin == 2 * size + 16
    assert [record.message for record in caplog.records] == [
        f"x: skipping offsets {size} to {size + 7}: 7 bytes without a magic word",
        f"x: skipping offsets {2 * size + 7} to {2 * size + 16}: Order: Order: version: needs 2 bytes at "
        "offset 8, 1 left",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_the_class_may_depend_on_the_journal(x: FileJournals, shop: Any) -> None:
    x.create(JournalSpec("p", labels={"message": "Payment"}))
    Publisher(x).publish_committed(to("p"), shop.Payment(amount=4)).result()
    reader = x.reader("p")
    iterator = ReadUncommittedIter(reader, lambda spec: getattr(shop, spec.labels["message"]))
    assert [type(envelope.message) for envelope in iterator] == [shop.Payment]


def test_a_class_that_cannot_be_read_is_an_error(x: FileJournals, shop: Any) -> None:
    x.append("x", FIXED.marshal(shop.Order()))
    x.flush()
    with pytest.raises(MessageError, match="str has no decode"):
        next(ReadUncommittedIter(x.reader("x"), str))


def test_committed_sees_transactions_when_they_are_acknowledged(x: FileJournals, shop: Any) -> None:
    one, two = Publisher(x), Publisher(x)
    iterator = ReadCommittedIter(x.reader("x", follow=True), shop.Order)
    one.publish_uncommitted(to("x"), shop.Order(amount=1))
    two.publish_uncommitted(to("x"), shop.Order(amount=10))
    one.publish_uncommitted(to("x"), shop.Order(amount=2))
    one.publish_committed(to("x"), shop.Order(amount=100))
    append_intents(x, two.build_ack_intents())
    append_intents(x, one.build_ack_intents())
    two.publish_uncommitted(to("x"), shop.Order(amount=11)).result()
    came = []
    for envelope in iterator:
        came.append((envelope.message.amount, iterator.drained))
        if envelope.message.amount == 2:
            break
    assert came == [(100, True), (10, True), (1, False), (2, True)]
    iterator.close()
    assert list(iterator) == []


def test_checkpoints_and_replays(x: FileJournals, shop: Any) -> None:
    """Whatever the buffer, and whenever it starts anew: each committed message once."""
    publishers = [Publisher(x) for _ in range(3)]
    expected = []
    for turn in range(60):
        publisher = publishers[turn % 3]
        for number in range(turn % 5):
            publisher.publish_uncommitted(to("x"), shop.Order(amount=100 * turn + number))
        if turn % 7 == 3:
            append_intents(x, publisher.build_rollback_intents())
        elif turn % 2:
            append_intents(x, publisher.build_ack_intents())
    x.flush()
    expected = amounts(ReadCommittedIter(x.reader("x"), shop.Order, Sequencer((), 1000)))
    assert len(expected) == len(set(expected)) > 30
    for buffer in (1, 2, 7):
        for every in (1, 4):
            seen: list[int] = []
            stored = Checkpoint({"x": 0}).encode()
            while True:
                found = Checkpoint.decode(stored)
                sequencer = Sequencer(found.states, buffer)
                reader = x.reader("x", found.read_through["x"])
                with ReadCommittedIter(reader, shop.Order, sequencer) as iterator:
                    before = len(seen)
                    for envelope in iterator:
                        seen.append(envelope.message.amount)
                        if iterator.drained and len(seen) - before >= every:
                            stored = iterator.checkpoint().encode()
                            break
                    else:
                        break
            assert seen == expected


def test_no_checkpoint_in_the_middle_of_a_transaction(x: FileJournals, shop: Any) -> None:
    publisher = Publisher(x)
    for number in range(2):
        publisher.publish_uncommitted(to("x"), shop.Order(amount=number))
    append_intents(x, publisher.build_ack_intents())
    iterator = ReadCommittedIter(x.reader("x"), shop.Order)
    next(iterator)
    with pytest.raises(SequencerError, match="left to be dequeued"):
        iterator.checkpoint()
    next(iterator)
    checkpoint = iterator.checkpoint()
    assert checkpoint.read_through == {"x": iterator.read_through} == {"x": x.offsets("x")[1]}
    assert [state.producer for state in checkpoint.states] == [publisher.producer]


def test_json_journals(x: FileJournals, shop: Any, tmp_path: Path) -> None:
    spec = x.create(JournalSpec("j", "application/x-ndjson"))
    publisher = Publisher(x)
    for number in range(3):
        publisher.publish_committed(lambda m: ("j", spec.framing), shop.Payment(amount=number))
    x.flush()
    x.append("j", b"no json\n").result()
    assert amounts(ReadCommittedIter(x.reader("j"), shop.Payment)) == [0, 1, 2]
    (fragment,) = (tmp_path / "journals" / "j").glob("*.fragment")
    assert fragment.read_text().count("\n") == 4
