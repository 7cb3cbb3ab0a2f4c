"""The sequencer, rule by rule. Clocks are small numbers; what comes out are the messages' texts."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from krammar.journal import (
    CheckpointError,
    Envelope,
    JournalProducer,
    MustStartReplayError,
    ProducerID,
    ProducerState,
    Sequencer,
    SequencerError,
    build_uuid,
)
from tests.journal.streams import ACK, CONTINUE, OUTSIDE, A, B, C, Note, Stream


def test_messages_outside_of_transactions_come_at_once_and_once() -> None:
    s = Stream()
    assert s.write(A, 1, OUTSIDE) == "1"
    assert s.write(A, 2, OUTSIDE) == "2"
    assert s.write(A, 2, OUTSIDE) == ""
    assert s.write(A, 1, OUTSIDE) == ""
    assert s.write(B, 1, OUTSIDE, "b1") == "b1"
    assert s.write(A, 3, OUTSIDE) == "3"


def test_an_acknowledgement_releases_what_is_before_it() -> None:
    s = Stream()
    assert s.write(A, 1, CONTINUE) == ""
    assert s.write(A, 2, CONTINUE) == ""
    assert s.write(A, 3, ACK) == "1 2"
    assert s.write(A, 4, ACK) == ""
    assert s.write(A, 5, CONTINUE) == ""
    assert s.write(A, 6, ACK) == "5"
    assert s.replays == []


def test_duplicates_are_dropped() -> None:
    s = Stream()
    for clock in (1, 2, 1, 2, 3, 3):
        assert s.write(A, clock, CONTINUE) == ""
    assert s.write(A, 4, ACK) == "1 2 3"
    assert s.write(A, 2, CONTINUE) == ""
    assert s.write(A, 5, CONTINUE) == ""
    assert s.write(A, 6, ACK) == "5"
    assert s.write(A, 6, ACK) == ""


def test_producers_are_apart() -> None:
    s = Stream()
    s.write(A, 1, CONTINUE, "a1")
    s.write(B, 1, CONTINUE, "b1")
    s.write(A, 2, CONTINUE, "a2")
    assert s.write(C, 9, OUTSIDE, "c9") == "c9"
    s.write(B, 2, CONTINUE, "b2")
    assert s.write(A, 3, ACK) == "a1 a2"
    s.write(A, 4, CONTINUE, "a4")
    assert s.write(B, 3, ACK) == "b1 b2"
    assert s.write(A, 5, ACK) == "a4"


def test_journals_are_apart() -> None:
    sequencer = Sequencer()

    def queue(journal: str, clock: int, flags: int) -> list[str]:
        message = Note(f"{journal}{clock}", build_uuid(A, clock, flags))
        sequencer.queue_uncommitted(Envelope(journal, clock * 10, clock * 10 + 10, message))
        came = []
        while (envelope := sequencer.deque_committed()) is not None:
            came.append(envelope.message.text)
        return came

    assert queue("x", 2, CONTINUE) == []
    assert queue("y", 1, CONTINUE) == []
    assert queue("y", 3, ACK) == ["y1"]
    assert queue("x", 4, ACK) == ["x2"]
    assert [state.journal_producer for state in sequencer.producer_states()] == [
        JournalProducer("x", A),
        JournalProducer("y", A),
    ]


def test_an_earlier_acknowledgement_rolls_back() -> None:
    s = Stream()
    s.write(A, 1, CONTINUE)
    assert s.write(A, 2, ACK) == "1"
    s.write(A, 3, CONTINUE)
    s.write(A, 4, CONTINUE)
    # The same acknowledgement again, as a producer that recovers writes it.
    assert s.write(A, 2, ACK) == ""
    s.write(A, 5, CONTINUE)
    assert s.write(A, 6, ACK) == "5"


def test_an_acknowledgement_in_the_middle_commits_the_first_part() -> None:
    s = Stream()
    for clock in (1, 3, 5, 7):
        s.write(A, clock, CONTINUE)
    assert s.write(A, 4, ACK) == "1 3"
    # What was rolled back may be published again.
    s.write(A, 5, CONTINUE, "5 again")
    assert s.write(A, 6, ACK) == "5 again"
    # Smaller, not equal.
    s.write(A, 8, CONTINUE)
    s.write(A, 9, CONTINUE)
    assert s.write(A, 9, ACK) == "8"


def test_a_rollback_before_the_first_acknowledgement() -> None:
    s = Stream()
    s.write(A, 5, CONTINUE)
    assert s.write(A, 4, ACK) == ""
    s.write(A, 6, CONTINUE)
    assert s.write(A, 7, ACK) == "6"


def test_messages_before_the_first_one_count_as_acknowledged() -> None:
    s = Stream()
    s.write(A, 6, CONTINUE)
    assert [state.last_ack for state in s.sequencer.producer_states()] == [5]
    assert s.write(A, 4, OUTSIDE) == ""
    s.restart()
    assert s.write(A, 5, OUTSIDE) == ""
    assert s.write(A, 7, ACK) == "6"
    assert [state.last_ack for state in s.sequencer.producer_states()] == [7]
    # A producer that has ended is unknown.
    assert s.write(A, 0, ACK) == ""
    s.write(A, 3, CONTINUE)
    assert s.write(A, 2, OUTSIDE) == ""
    assert s.write(A, 4, ACK) == "3"
    for flags in (OUTSIDE, CONTINUE, ACK):
        assert s.write(B, 0, flags) == ""
    assert [state.producer for state in s.sequencer.producer_states()] == [A]


def test_a_producer_that_goes_back_is_followed(caplog: pytest.LogCaptureFixture) -> None:
    s = Stream()
    s.write(A, 8, CONTINUE)
    assert s.write(A, 9, ACK) == "8"
    s.write(A, 11, CONTINUE)
    assert caplog.text == ""
    # Back to an older checkpoint: from here on, messages are delivered at least once.
    assert s.write(A, 3, ACK) == ""
    assert (
        "at offset 30, the producer 01:00:00:00:00:0a goes back from clock 0x9 to 0x3"
        in caplog.text
    )
    s.write(A, 4, CONTINUE, "8 again")
    assert s.write(A, 5, ACK) == "8 again"


def test_outside_of_the_producers_open_transaction(caplog: pytest.LogCaptureFixture) -> None:
    s = Stream()
    s.write(A, 1, CONTINUE)
    # The last acknowledgement is at 2 now: no acknowledgement will ever release 1.
    assert s.write(A, 2, OUTSIDE) == "2"
    assert "at offset 10, the producer 01:00:00:00:00:0a writes outside of its open" in caplog.text
    assert s.sequencer.producer_states() == [ProducerState(s.name, A, 2, -1)]
    assert s.write(A, 3, ACK) == ""
    # Rolled back as a whole, larger clocks too, as Gazette does.
    for clock in (4, 6, 8):
        s.write(A, clock, CONTINUE)
    assert s.write(A, 6, OUTSIDE, "six") == "six"
    assert s.sequencer.producer_states() == [ProducerState(s.name, A, 6, -1)]
    # What follows is a transaction of its own.
    s.write(A, 7, CONTINUE)
    assert s.write(A, 9, ACK) == "7"
    # A duplicate is dropped and rolls nothing back.
    s.write(A, 10, CONTINUE)
    assert s.write(A, 6, OUTSIDE) == ""
    assert s.write(A, 11, ACK) == "10"


def test_what_takes_no_part() -> None:
    s = Stream()
    unknown = build_uuid(A, 1, 3)
    foreign = UUID(int=build_uuid(A, 1, 1).int & ~(0b11 << 62))
    for uuid in (UUID(int=0), uuid4(), unknown, foreign):
        assert s.append(Note("x", uuid)) == "x"
        assert s.append(Note("x", uuid)) == "x"
    assert s.sequencer.producer_states() == []


# Replays.


def test_messages_that_left_the_buffer_are_read_again() -> None:
    s = Stream(buffer=2)
    for clock in (1, 2, 3, 4):
        s.write(A, clock, CONTINUE)
    assert s.write(A, 5, ACK) == "1 2 3 4"
    # From the first message up to the first that is still there.
    assert s.replays == [(0, 20)]
    assert s.write(A, 6, CONTINUE) == ""
    assert s.write(A, 7, ACK) == "6"
    assert s.replays == [(0, 20)]


def test_others_push_a_producer_out_of_the_buffer() -> None:
    s = Stream(buffer=2)
    s.write(A, 1, CONTINUE, "a1")
    for clock in (1, 2, 3):
        s.write(B, clock, CONTINUE, f"b{clock}")
    s.write(A, 2, ACK)
    assert s.replays == [(0, 10)]
    assert s.write(B, 4, ACK) == "b1 b2 b3"
    assert s.replays == [(0, 10), (10, 20)]


def test_a_replay_is_of_the_transactions_messages_and_no_others() -> None:
    s = Stream(buffer=1)
    for clock in range(1, 5):
        s.write(A, clock, CONTINUE, f"a{clock}")
        s.write(B, clock, CONTINUE, f"b{clock}")
        s.write(B, clock, CONTINUE, "a duplicate")
    s.write(A, 5, CONTINUE, "a5")
    s.write(A, 6, CONTINUE, "a6")
    for n in range(20):
        s.write(C, n + 1, CONTINUE, "later")
    ranges = []

    def acknowledge(producer: ProducerID) -> str:
        begin = len(s.written) * 10
        ack = Envelope(s.name, begin, begin + 10, Note("", build_uuid(producer, 9, ACK)))
        s.written.append(ack)
        s.sequencer.queue_uncommitted(ack)
        s.position += 1
        with pytest.raises(MustStartReplayError):
            s.sequencer.deque_committed()
        ranges.append(s.sequencer.replay_ranges())
        assert s.sequencer.replay_range() == (ranges[-1][0][0], ranges[-1][-1][1])
        envelopes = [e for b, e in ranges[-1] for e in s.written[b // 10 : e // 10]]
        s.sequencer.start_replay(envelopes)
        return " ".join(one.message.text for one in s.drain())

    assert acknowledge(A) == "a1 a2 a3 a4 a5 a6"
    assert acknowledge(B) == "b1 b2 b3 b4"
    assert ranges == [
        [(0, 10), (30, 40), (60, 70), (90, 100), (120, 140)],
        [(10, 20), (40, 50), (70, 80), (100, 110)],
    ]


def test_ranges_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sequencer, "_most_stored", 32)
    s = Stream(buffer=1)
    for clock in range(1, 101):
        for producer in (A, B, C):
            s.write(producer, clock, CONTINUE, f"{producer[-1]}-{clock}")
            assert s.sequencer._ranges <= 33
    for producer in (A, B, C):
        expected = [f"{producer[-1]}-{clock}" for clock in range(1, 101)]
        assert s.write(producer, 101, ACK).split() == expected
    assert s.sequencer._ranges == 0


def test_a_replay_leaves_out_what_is_not_of_the_transaction() -> None:
    s = Stream(buffer=1)
    s.write(A, 1, CONTINUE)
    s.write(A, 2, ACK)
    s.write(A, 4, CONTINUE)
    s.write(B, 5, CONTINUE, "b")
    s.write(B, 6, OUTSIDE, "b")
    s.append(Note("none"))
    s.write(A, 1, CONTINUE)
    s.write(A, 5, CONTINUE)
    s.write(A, 4, CONTINUE)
    s.write(A, 8, CONTINUE)
    assert s.write(A, 7, ACK) == "4 5"
    assert s.replays == [(20, 80)]


def test_after_a_restart_the_open_sequence_is_read_again() -> None:
    s = Stream()
    s.write(A, 1, CONTINUE)
    s.write(A, 2, ACK)
    s.write(A, 3, CONTINUE)
    s.write(A, 4, CONTINUE)
    s.restart()
    # Duplicates of what was read before and after the restart.
    s.write(A, 3, CONTINUE)
    s.write(A, 4, CONTINUE)
    s.write(A, 5, CONTINUE)
    s.write(A, 5, CONTINUE)
    s.write(A, 1, CONTINUE)
    assert s.write(A, 6, ACK) == "3 4 5"
    assert s.replays == [(20, 40)]
    s.restart()
    assert s.write(A, 4, CONTINUE) == ""
    assert s.write(A, 7, CONTINUE) == ""
    assert s.write(A, 8, ACK) == "7"


def test_after_a_restart_outside_of_the_open_transaction() -> None:
    s = Stream()
    for clock in (1, 3, 5):
        s.write(A, clock, CONTINUE)
    s.restart()
    assert s.write(A, 3, OUTSIDE, "three") == "three"
    s.write(A, 6, CONTINUE)
    assert s.write(A, 7, ACK) == "6"


def test_after_a_restart_replays_end_there() -> None:
    s = Stream()
    s.write(A, 1, CONTINUE, "a1")
    s.write(B, 1, CONTINUE, "b1")
    s.restart(buffer=2)
    for clock in range(2, 20):
        s.write(C, clock, CONTINUE)
    assert s.write(A, 2, ACK) == "a1"
    s.write(B, 2, CONTINUE, "b2")
    assert s.write(B, 3, ACK) == "b1 b2"
    assert s.replays == [(0, 20), (10, 20)]


def test_calls_that_a_replay_does_not_allow() -> None:
    s = Sequencer((), 1)

    def queue(clock: int, flags: int) -> None:
        message = Note(str(clock), build_uuid(A, clock, flags))
        s.queue_uncommitted(Envelope("notes/0", clock * 10, clock * 10 + 10, message))

    for call in (s.replay_range, lambda: s.start_replay([]), lambda: s.replay_journal):
        with pytest.raises(SequencerError, match="no replay was requested"):
            call()
    for clock in (1, 2, 3):
        queue(clock, CONTINUE)
    queue(4, ACK)
    with pytest.raises(SequencerError, match="no replay was requested"):
        s.replay_range()
    assert not s.drained
    with pytest.raises(SequencerError, match="left to be dequeued"):
        queue(5, CONTINUE)
    with pytest.raises(MustStartReplayError, match="notes/0: offsets 10 to 30 must be read again"):
        s.deque_committed()
    assert s.replay_range() == (10, 30)

    def envelope(journal: str, offset: int) -> Envelope:
        return Envelope(
            journal, offset, offset + 10, Note("r", build_uuid(A, offset // 10, CONTINUE))
        )

    for wrong in (envelope("notes/1", 10), envelope("notes/0", 0)):
        s.start_replay([wrong])
        with pytest.raises(SequencerError, match="is not in the replay of notes/0 from 10 to 30"):
            s.deque_committed()
        with pytest.raises(MustStartReplayError):
            s.deque_committed()

    def broken() -> object:
        yield envelope("notes/0", 10)
        raise OSError("gone")

    s.start_replay(broken())  # type: ignore[arg-type]
    first = s.deque_committed()
    assert first is not None
    assert first.begin == 10
    with pytest.raises(OSError, match="gone"):
        s.deque_committed()
    # What was handed out before the failure does not come again.
    with pytest.raises(MustStartReplayError):
        s.deque_committed()
    s.start_replay([envelope("notes/0", 10), envelope("notes/0", 20), envelope("notes/0", 30)])
    with pytest.raises(SequencerError, match="no replay was requested"):
        s.start_replay([])
    assert [one.begin for one in iter(s.deque_committed, None)] == [20, 30]
    assert s.drained


def test_a_replay_of_what_was_deleted_gives_what_is_left() -> None:
    s = Sequencer([ProducerState("notes/0", A, 3, 10)])
    s.queue_uncommitted(Envelope("notes/0", 90, 100, Note("9", build_uuid(A, 9, ACK))))
    with pytest.raises(MustStartReplayError):
        s.deque_committed()
    s.start_replay([])
    assert s.deque_committed() is None
    assert s.producer_states() == [ProducerState("notes/0", A, 9, -1)]


# States.


def test_states() -> None:
    s = Stream()
    assert s.sequencer.producer_states() == []
    s.write(B, 1, CONTINUE)
    s.write(A, 5, OUTSIDE)
    s.write(A, 7, CONTINUE)
    s.write(A, 8, CONTINUE)
    assert s.sequencer.producer_states() == [
        ProducerState("notes/0", A, 5, 20),
        ProducerState("notes/0", B, 0, 0),
    ]
    s.write(B, 3, ACK)
    s.write(A, 6, ACK)
    assert s.sequencer.producer_states() == [
        ProducerState("notes/0", A, 6, -1),
        ProducerState("notes/0", B, 3, -1),
    ]


def test_no_states_while_messages_are_left() -> None:
    s = Sequencer()
    s.queue_uncommitted(Envelope("notes/0", 0, 10, Note("x")))
    with pytest.raises(SequencerError, match="left to be dequeued"):
        s.producer_states()
    with pytest.raises(SequencerError, match="left to be dequeued"):
        s.queue_uncommitted(Envelope("notes/0", 10, 20, Note("x")))


SECOND = 10_000_000 << 4


def test_old_producers_are_forgotten() -> None:
    s = Stream()
    other = Stream(name="other/0")
    other.sequencer = s.sequencer
    start = 1000 * SECOND
    s.write(A, start, OUTSIDE)
    s.write(B, start + 5 * SECOND, OUTSIDE)
    other.write(A, start, OUTSIDE)
    s.write(C, start + 10 * SECOND, OUTSIDE)
    names = [(state.journal, state.producer) for state in s.sequencer.producer_states()]
    assert names == [("notes/0", A), ("notes/0", B), ("notes/0", C), ("other/0", A)]
    assert s.sequencer.producer_states(timedelta(0)) == s.sequencer.producer_states()
    # Older than the newest of their journal by more than that.
    assert len(s.sequencer.producer_states(timedelta(seconds=10))) == 4
    left = s.sequencer.producer_states(timedelta(seconds=10) - timedelta(microseconds=1))
    assert [(state.journal, state.producer) for state in left] == names[1:]
    # Forgotten here, not only left out there.
    assert s.sequencer.producer_states() == left
    # What it writes again comes again.
    assert s.write(A, start, OUTSIDE, "again") == "again"


WEEK = timedelta(days=7)


def test_an_open_transaction_is_not_forgotten_after_a_restart() -> None:
    s = Stream()
    now = 2000 * SECOND
    s.write(A, now, CONTINUE, "a")
    s.restart()
    s.write(B, now + 1, OUTSIDE)
    assert len(s.sequencer.producer_states(WEEK)) == 2
    assert s.write(A, now + 2, ACK) == "a"


def test_an_open_transaction_is_not_forgotten_whatever_others_clocks_say() -> None:
    s = Stream()
    now = 10**7 * SECOND
    s.write(A, now, CONTINUE, "a")
    s.write(C, now, OUTSIDE)
    s.write(B, now + 8 * 86400 * SECOND, OUTSIDE)  # its clock is 8 days ahead
    # This is what pruning by clocks costs: duplicates of C are no longer known.
    assert [one.producer for one in s.sequencer.producer_states(WEEK)] == [A, B]
    s.restart()
    assert [one.producer for one in s.sequencer.producer_states(WEEK)] == [A, B]
    assert s.write(A, now + 1, ACK) == "a"


def test_producers_that_have_ended_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    s = Stream()
    s.write(A, 1, CONTINUE)
    assert s.write(A, 2, ACK) == "1"
    assert s.write(A, 0, ACK) == ""
    assert s.sequencer.producer_states() == []
    # After a crash all is appended again, or only the first of them.
    for clock in (2, 0, 0, 2, 2, 0):
        assert s.write(A, clock, ACK) == ""
    assert s.sequencer.producer_states() == []
    # Open transactions are rolled back, wherever their messages are.
    for clock in range(3, 6):
        s.write(A, clock, CONTINUE)
    s.restart(buffer=2)
    for clock in range(6, 10):
        s.write(A, clock, CONTINUE)
    assert s.write(A, 0, ACK) == ""
    assert s.write(A, 10, ACK) == ""
    assert s.write(A, 0, ACK) == ""
    assert s.sequencer.producer_states() == []
    assert s.replays == []
    assert caplog.text == ""


def test_a_day_of_attempts_leaves_nothing_behind() -> None:
    """Each attempt of a task writes once as a producer of its own, acknowledges and ends. Here are 20 minutes
    of 200 tasks every 10 seconds."""
    s = Stream()
    count = 0
    for batch in range(120):
        tasks = [ProducerID((1 << 40 | batch << 16 | n).to_bytes(6, "big")) for n in range(200)]
        clock = (1000 + 10 * batch) * SECOND
        for flags, at in ((CONTINUE, clock), (ACK, clock + 1), (ACK, 0)):
            for task in tasks:
                count += bool(s.write(task, at, flags))
        s.written.clear()
        s.position = 0
        assert s.sequencer.producer_states() == []
    assert count == 120 * 200


def test_pending() -> None:
    s = Stream()
    other = Stream(name="other/0")
    other.sequencer = s.sequencer
    assert not s.sequencer.has_pending({})
    s.write(A, 1, OUTSIDE)
    assert not s.sequencer.has_pending({})
    s.write(A, 2, CONTINUE)
    assert s.sequencer.has_pending({})
    assert s.sequencer.has_pending({"other/0": 1000})
    assert s.sequencer.has_pending({"notes/0": 9})
    # The first one that is read after a checkpoint counts, as with Gazette.
    assert s.sequencer.has_pending({"notes/0": 10})
    assert not s.sequencer.has_pending({"notes/0": 11})
    other.write(B, 1, CONTINUE)
    assert s.sequencer.has_pending({"notes/0": 11})
    assert s.sequencer.has_pending({"notes/0": 11, "other/0": 0})
    assert not s.sequencer.has_pending({"notes/0": 11, "other/0": 1})
    s.write(A, 3, ACK)
    other.write(B, 2, ACK)
    assert not s.sequencer.has_pending({})


@pytest.mark.parametrize(
    ("states", "why"),
    [
        ([("j", A, 1, -1), ("j", A, 2, -1)], "j: the producer 01:00:00:00:00:0a has two states"),
        ([("j", A, -1, -1)], "has the invalid clock -1 or offset -1"),
        ([("j", A, 1 << 64, -1)], "has the invalid clock 18446744073709551616"),
        ([("j", A, 1, -2)], "has the invalid clock 1 or offset -2"),
    ],
)
def test_states_that_contradict_themselves(
    states: list[tuple[str, ProducerID, int, int]], why: str
) -> None:
    with pytest.raises(CheckpointError, match=why):
        Sequencer(ProducerState(*state) for state in states)


def test_a_buffer_has_room() -> None:
    with pytest.raises(ValueError, match="must be at least 1, not 0"):
        Sequencer((), 0)
