"""UUIDs bit for bit, compared with Python's uuid module and with manual values."""

from __future__ import annotations

import threading
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krammar.journal import (
    Clock,
    ClockError,
    Flags,
    ProducerID,
    build_uuid,
    clock_at,
    get_clock,
    get_flags,
    get_producer_id,
    time_of,
)

CLOCKS = st.integers(0, 2**64 - 1)
FLAGS = st.integers(0, 1023)
NODES = st.binary(min_size=6, max_size=6)
# The timestamp of a UUID counts from the day on which the Gregorian calendar began.
GREGORIAN = datetime(1582, 10, 15, tzinfo=UTC)


def test_every_bit_where_it_belongs() -> None:
    # Timestamp 123 4567 89abcdef, counter a = 1010, flags 00 0000 0010: after the variant 10 that is
    # 10 1010 00 = a8, 0000 0010 = 02.
    built = build_uuid(ProducerID(b"\x01\x02\x03\x04\x05\x06"), 0x123456789ABCDEFA, 2)
    assert str(built) == "89abcdef-4567-1123-a802-010203040506"
    # All flags, no counter: 10 0000 11 = 83, 1111 1111 = ff.
    built = build_uuid(bytes(6), 0, 0x3FF)
    assert str(built) == "00000000-0000-1000-83ff-000000000000"
    # All of the clock: 10 1111 00 = bc.
    built = build_uuid(b"\xff" * 6, 2**64 - 1, 0)
    assert str(built) == "ffffffff-ffff-1fff-bc00-ffffffffffff"


@given(NODES, CLOCKS, FLAGS)
def test_python_reads_time_and_node(node: bytes, clock: int, flags: int) -> None:
    built = build_uuid(ProducerID(node), clock, flags)
    plain = uuid.UUID(str(built))
    assert plain == built
    assert plain.version == 1
    assert plain.variant == uuid.RFC_4122
    assert plain.time == clock >> 4
    assert plain.clock_seq == (clock & 0xF) << 10 | flags
    assert plain.node == int.from_bytes(node, "big") == ProducerID(node).node
    assert plain.is_safe is built.is_safe
    assert get_clock(plain) == clock
    assert get_flags(plain) == flags
    assert get_producer_id(plain) == node


@given(NODES, st.integers(0, 2**60 - 1), st.integers(0, 2**14 - 1))
def test_what_python_builds_is_read(node: bytes, time: int, sequence: int) -> None:
    fields = time & 0xFFFFFFFF, time >> 32 & 0xFFFF, time >> 48, sequence >> 8, sequence & 0xFF
    built = uuid.UUID(fields=(*fields, int.from_bytes(node, "big")), version=1)
    assert get_clock(built) == time << 4 | sequence >> 10
    assert get_flags(built) == sequence & 0x3FF
    assert get_producer_id(built) == node


def test_the_uuid_that_python_makes_now_has_the_time_of_now() -> None:
    made = uuid.uuid1()
    delta = timedelta(microseconds=(get_clock(made) >> 4) // 10)
    seconds = (GREGORIAN + delta).timestamp()
    assert abs(time_of(get_clock(made)) / 1e9 - seconds) < 1e-3


@pytest.mark.parametrize(
    "moment",
    [GREGORIAN, datetime(1970, 1, 1, tzinfo=UTC), datetime(2019, 10, 4, 12, 30, 1, 5, tzinfo=UTC)],
)
def test_times_become_clocks(moment: datetime) -> None:
    intervals = (moment - GREGORIAN) // timedelta(microseconds=1) * 10
    nanoseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    assert clock_at(nanoseconds) == intervals << 4
    assert time_of(intervals << 4) == nanoseconds
    assert Clock(nanoseconds).value == intervals << 4


def test_a_clock_ticks_and_never_goes_back() -> None:
    clock = Clock(1_000)
    begin = clock.value
    assert [clock.tick() for _ in range(20)] == list(range(begin + 1, begin + 21))
    assert clock.value == begin + 20
    # 20 ticks are one interval of 100 ns and 4 of its 16 steps.
    clock.update(1_100)
    assert clock.value == begin + 20
    clock.update(900)
    assert clock.value == begin + 20
    clock.update(1_200)
    assert clock.value == begin + 32
    assert clock.tick() == begin + 33
    assert repr(clock) == f"<Clock {begin + 33:#018x}>"


def test_a_clock_begins_and_goes_on_now() -> None:
    clock = Clock()
    before = clock.value
    clock.update()
    assert clock.value >= before
    assert abs(time_of(clock.value) / 1e9 - datetime.now(UTC).timestamp()) < 600


def test_threads_get_ticks_of_their_own() -> None:
    clock = Clock(0)
    taken: list[list[int]] = [[] for _ in range(4)]

    def work(mine: list[int]) -> None:
        for turn in range(2_000):
            mine.append(clock.tick())
            if turn % 100 == 0:
                clock.update(turn * 10)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in taken)
    assert len({tick for mine in taken for tick in mine}) == 8_000


@pytest.mark.parametrize("time_ns", [-12219292800 * 10**9 - 100, 2**59 * 200])
def test_times_outside_of_all_uuids(time_ns: int) -> None:
    with pytest.raises(ClockError, match="a UUID cannot contain the time"):
        clock_at(time_ns)


def test_the_last_tick() -> None:
    clock = Clock(time_of(2**64 - 16))
    for _ in range(15):
        clock.tick()
    with pytest.raises(ClockError, match="last value"):
        clock.tick()
    assert clock.value == 2**64 - 1


def test_producer_ids() -> None:
    made = {ProducerID.random() for _ in range(100)}
    assert len(made) == 100
    # The lowest bit of the first octet says that it is no network address.
    assert all(len(one) == 6 and one[0] & 1 for one in made)
    assert len({one[0] for one in made}) > 1
    assert str(ProducerID(b"\x01\x02\x03\x04\x05\xff")) == "01:02:03:04:05:ff"
    assert eval(repr(ProducerID(b"abcdef"))) == ProducerID(b"abcdef")
    with pytest.raises(ValueError, match="6 bytes, not 5"):
        ProducerID(b"abcde")


def test_flags() -> None:
    assert (Flags.OUTSIDE_TXN, Flags.CONTINUE_TXN, Flags.ACK_TXN) == (0, 1, 2)
    assert get_flags(build_uuid(b"abcdef", 5, Flags.ACK_TXN)) is Flags.ACK_TXN


@pytest.mark.parametrize(
    ("producer", "clock", "flags", "why"),
    [
        (b"abcde", 0, 0, "6 bytes, not 5"),
        (b"abcdef", -1, 0, "64 bits"),
        (b"abcdef", 2**64, 0, "64 bits"),
        (b"abcdef", 0, 1024, "10 bits"),
        (b"abcdef", 0, -1, "10 bits"),
    ],
)
def test_what_does_not_fit(producer: bytes, clock: int, flags: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        build_uuid(producer, clock, flags)
