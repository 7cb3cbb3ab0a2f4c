"""Reading: malformed frames, jumps, transactions, replays and restarts, on journals in files."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import Any

import pytest

from krammar.journal import (
    Checkpoint,
    FileJournals,
    FixedFraming,
    Flags,
    JournalSpec,
    MessageError,
    Publisher,
    ReadCommittedIter,
    ReadUncommittedIter,
    Sequencer,
    SequencerError,
    append_intents,
    get_flags,
)
from tests.journal.conftest import generate
from tests.journal.stores import amounts, to

FIXED = FixedFraming()


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
    with pytest.raises(MessageError, match="cannot read str: it has neither decode"):
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
    """With any buffer, and after any restart, each committed message is returned once."""
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


# Transactions that are larger than the sequencer's buffer.


class Counting:
    """A reader that counts the frames that are read again."""

    def __init__(self, reader: Any, counts: list[int]) -> None:
        self.reader = reader
        self.counts = counts
        self.spec = reader.spec
        self.offset = reader.offset

    def read(self) -> Any:
        return self.reader.read()

    def ranges(self, ranges: Any) -> Any:
        again = Counting(self.reader.ranges(ranges), self.counts)
        again.read = again.count  # type: ignore[method-assign]
        return again

    def count(self) -> Any:
        frames = self.reader.read()
        self.counts.append(len(frames))
        return frames

    def close(self) -> None:
        self.reader.close()


def write_open(journals: FileJournals, shop: Any, tasks: int, rows: int, run: int) -> list[int]:
    """Publish transactions of ``tasks`` producers at once, ``run`` messages of each at a time, and acknowledge
    them one after the other; returns what comes out."""
    publishers = [Publisher(journals) for _ in range(tasks)]
    for begin in range(0, rows, run):
        for number, publisher in enumerate(publishers):
            for row in range(begin, min(begin + run, rows)):
                publisher.publish_uncommitted(to("x"), shop.Order(amount=number * rows + row))
        journals.flush()  # what is appended at once is in one fragment
    for publisher in publishers:
        append_intents(journals, publisher.build_ack_intents())
    return list(range(tasks * rows))


@pytest.mark.parametrize("run", [1, 3, 500])
@pytest.mark.parametrize("fragment_bytes", [1000, 1 << 20])
def test_replays_read_what_is_committed_and_no_more(
    tmp_path: Path, shop: Any, run: int, fragment_bytes: int
) -> None:
    with FileJournals(tmp_path, fragment_bytes=fragment_bytes) as journals:
        journals.create("x")
        expected = write_open(journals, shop, tasks=20, rows=500, run=run)
        counts: list[int] = []
        reader = Counting(journals.reader("x"), counts)
        with ReadCommittedIter(reader, shop.Order, Sequencer((), 100)) as iterator:
            assert amounts(iterator) == expected
        assert sum(counts) == len(expected) - 100
        # Frames, offsets and all are what an uncommitted reader sees.
        plain = {e.begin: e for e in ReadUncommittedIter(journals.reader("x"), shop.Order)}
        for envelope in ReadCommittedIter(journals.reader("x"), shop.Order, Sequencer((), 7)):
            assert plain[envelope.begin] == envelope
            assert type(envelope) is type(plain[envelope.begin])


def test_replays_of_what_was_deleted(
    tmp_path: Path, shop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with FileJournals(tmp_path, fragment_bytes=1000) as journals:
        journals.create("x")
        write_open(journals, shop, tasks=3, rows=200, run=1)
        iterator = ReadCommittedIter(journals.reader("x"), shop.Order, Sequencer((), 5))
        first = next(iterator)
        journals.prune("x", journals.offsets("x")[1] // 2)
        begin = journals.offsets("x")[0]
        assert first.begin < begin
        left = {
            e.begin
            for e in ReadUncommittedIter(journals.reader("x", begin), shop.Order)
            if get_flags(e.message.uuid) == Flags.CONTINUE_TXN
        }
        caplog.clear()
        assert {e.begin for e in iterator if e.begin >= begin} == left
        # One line for each replay, not for each message that is gone.
        assert caplog.text.count("do not exist any more") == 2


def test_malformed_messages_of_a_transaction_are_skipped(
    x: FileJournals, shop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = Publisher(x)
    for amount in range(40):
        order = shop.Order(amount=amount)
        publisher.publish_uncommitted(to("x"), order).result()
        # The same without its last byte: its UUID can be read.
        payload = FIXED.marshal(order)[8:-1]
        x.append("x", b"\x66\x33\x93\x36" + len(payload).to_bytes(4, "little") + payload).result()
    x.append("x", b"garbage").result()
    append_intents(x, publisher.build_ack_intents())
    for buffer in (3, 1000):
        caplog.clear()
        iterator = ReadCommittedIter(x.reader("x"), shop.Order, Sequencer((), buffer))
        assert amounts(iterator) == list(range(40))
        assert "7 bytes without a magic word" in caplog.text


def test_messages_whose_uuid_has_no_fixed_place(x: FileJournals, tmp_path: Path) -> None:
    folder = generate(
        tmp_path,
        "journal_test_places",
        """\
Named => not top level, with version field, max version 1
  Version: int16
  Name: string
  UUID: uuid

Late => not top level, with version field, max version 1
  Version: int16
  UUID: uuid // v1+
  Amount: int64
""",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        importlib.invalidate_caches()
        places = importlib.import_module("journal_test_places")
    for number, cls in enumerate((places.Named, places.Late)):
        x.create(f"j{number}")
        publisher = Publisher(x)
        for row in range(20):
            message = cls(name=f"{row}") if cls is places.Named else cls(amount=row, version=1)
            publisher.publish_uncommitted(to(f"j{number}"), message)
        append_intents(x, publisher.build_ack_intents())
        for buffer in (3, 100):
            reader = x.reader(f"j{number}")
            assert len(list(ReadCommittedIter(reader, cls, Sequencer((), buffer)))) == 20
