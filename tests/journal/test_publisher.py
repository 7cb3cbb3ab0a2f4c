"""Publishing into journals that store everything and fail on request."""

from __future__ import annotations

import os
import threading
from itertools import pairwise
from typing import Any

import pytest

from krammar.journal import (
    AckIntent,
    AppendError,
    Clock,
    Envelope,
    FixedFraming,
    Flags,
    MessageError,
    ProducerID,
    Publisher,
    Sequencer,
    append_intents,
    build_uuid,
    clock_at,
    get_clock,
    get_flags,
    get_producer_id,
    modulo_mapping,
)
from krammar.journal.specs import JournalSpec
from tests.journal.stores import to
from tests.journal.streams import A, B

FIXED = FixedFraming()


class Append:
    def __init__(self, journal: str, begin: int, error: Exception | None) -> None:
        self.journal = journal
        self.begin = begin
        self.end = begin + 1
        self.done = False
        self.error: Exception | None = None
        self.outcome = error

    def result(self, timeout_ms: float | None = None) -> Append:
        self.done = True
        self.error = self.outcome
        if self.error is not None:
            raise self.error
        return self


class Memory:
    """Journals in memory. Appends fail that are made while ``broken``."""

    def __init__(self) -> None:
        self.journals: dict[str, list[bytes]] = {}
        self.appends: list[Append] = []
        self.broken = False

    def append(self, journal: str, data: bytes) -> Append:
        frames = self.journals.setdefault(journal, [])
        error = AppendError(f"{journal}: broken") if self.broken else None
        self.appends.append(Append(journal, len(frames), error))
        if error is None:
            frames.append(data)
        return self.appends[-1]

    def read(self, cls: type[Any]) -> dict[str, list[Any]]:
        return {
            journal: [FIXED.unmarshal(frame, cls) for frame in frames]
            for journal, frames in self.journals.items()
        }


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def publisher(memory: Memory) -> Publisher:
    return Publisher(memory, Clock(0), producer=A, committed_producer=B)  # type: ignore[arg-type]


START = clock_at(0)


def test_committed(memory: Memory, publisher: Publisher, shop: Any) -> None:
    order = shop.Order(customer="a")
    append = publisher.publish_committed(to("x"), order)
    assert order.uuid == build_uuid(B, START + 1, Flags.OUTSIDE_TXN)
    assert append.result().begin == 0
    assert memory.read(shop.Order) == {"x": [order]}
    publisher.publish_committed(to("y"), order)
    assert get_clock(order.uuid) == START + 2
    assert publisher.build_ack_intents() == []


def test_a_transaction(memory: Memory, publisher: Publisher, shop: Any) -> None:
    orders = [shop.Order(version=1, customer=name) for name in "abcd"]
    for order, journal in zip(orders, "yxyy", strict=True):
        append = publisher.publish_uncommitted(to(journal), order)
    assert not append.done
    assert [order.uuid for order in orders] == [
        build_uuid(A, START + n, Flags.CONTINUE_TXN) for n in (1, 2, 3, 4)
    ]
    intents = publisher.build_ack_intents()
    # Built when all of it was written, and not written themselves.
    assert all(append.done for append in memory.appends)
    assert len(memory.appends) == 4
    acknowledgement = shop.Order(version=1, uuid=build_uuid(A, START + 5, Flags.ACK_TXN))
    frame = FIXED.marshal(acknowledgement)
    assert intents == [AckIntent("x", frame), AckIntent("y", frame)]
    assert publisher.build_ack_intents() == []
    append_intents(memory, intents)  # type: ignore[arg-type]
    assert memory.read(shop.Order) == {
        "x": [orders[1], acknowledgement],
        "y": [orders[0], orders[2], orders[3], acknowledgement],
    }


def test_both_at_once(memory: Memory, publisher: Publisher, shop: Any) -> None:
    """What is published committed in the middle of a transaction does not end it."""
    for number in range(3):
        publisher.publish_uncommitted(to("x"), shop.Order(amount=number))
        publisher.publish_committed(to("x"), shop.Order(amount=10 + number))
    append_intents(memory, publisher.build_ack_intents())  # type: ignore[arg-type]
    sequencer = Sequencer()
    came = []
    for offset, message in enumerate(memory.read(shop.Order)["x"]):
        sequencer.queue_uncommitted(Envelope("x", offset, offset + 1, message))
        while (envelope := sequencer.deque_committed()) is not None:
            came.append(envelope.message.amount)
    assert came == [10, 11, 12, 0, 1, 2]


def test_the_clock_of_its_own_looks_at_the_time(memory: Memory, shop: Any) -> None:
    publisher = Publisher(memory)  # type: ignore[arg-type]
    before = Clock().value
    order = shop.Order()
    publisher.publish_committed(to("x"), order)
    assert before <= get_clock(order.uuid) <= Clock().value + 16
    assert get_producer_id(order.uuid) == publisher.committed_producer
    assert get_flags(order.uuid) == Flags.OUTSIDE_TXN
    assert Publisher(memory).producer != publisher.producer  # type: ignore[arg-type]


def test_a_message_that_is_not_valid_is_not_published(
    memory: Memory, publisher: Publisher, shop: Any
) -> None:
    class Strict(shop.Order):  # type: ignore[misc]
        __slots__ = ()

        def validate(self) -> None:
            if self.amount < 0:
                raise ValueError("the amount is negative")

    for publish in (publisher.publish_committed, publisher.publish_uncommitted):
        with pytest.raises(MessageError, match="Strict is not valid: the amount is negative"):
            publish(to("x"), Strict(amount=-1))
        with pytest.raises(MessageError, match="cannot be encoded"):
            publish(to("x"), shop.Order(amount=2**70))
    assert memory.journals == {}
    assert publisher.build_ack_intents() == []
    publisher.publish_committed(to("x"), Strict(amount=1))
    assert len(memory.journals["x"]) == 1


def test_a_transaction_of_which_an_append_failed_is_not_acknowledged(
    memory: Memory, publisher: Publisher, shop: Any
) -> None:
    publisher.publish_uncommitted(to("x"), shop.Order(amount=1))
    memory.broken = True
    publisher.publish_uncommitted(to("y"), shop.Order(amount=2))
    memory.broken = False
    for _ in range(2):
        with pytest.raises(AppendError, match="can only be rolled back: y: broken"):
            publisher.build_ack_intents()
    with pytest.raises(AppendError, match="can only be rolled back: y: broken"):
        publisher.publish_uncommitted(to("x"), shop.Order())
    intents = publisher.build_rollback_intents()
    frame = FIXED.marshal(shop.Order(uuid=build_uuid(A, START, Flags.ACK_TXN)))
    assert intents == [AckIntent("x", frame), AckIntent("y", frame)]
    # What failed may arrive yet: the next transaction is another producer's.
    assert publisher.producer != A
    publisher.publish_uncommitted(to("x"), shop.Order(amount=3))
    assert len(publisher.build_ack_intents()) == 1


def test_a_rollback(memory: Memory, publisher: Publisher, shop: Any) -> None:
    assert publisher.build_rollback_intents() == []
    publisher.publish_uncommitted(to("x"), shop.Order(amount=1))
    append_intents(memory, publisher.build_ack_intents())  # type: ignore[arg-type]
    publisher.publish_uncommitted(to("x"), shop.Order(amount=2))
    publisher.publish_uncommitted(to("x"), shop.Order(amount=3))
    append_intents(memory, publisher.build_rollback_intents())  # type: ignore[arg-type]
    assert publisher.producer == A
    publisher.publish_uncommitted(to("x"), shop.Order(amount=4))
    append_intents(memory, publisher.build_ack_intents())  # type: ignore[arg-type]
    sequencer = Sequencer()
    came = []
    for offset, message in enumerate(memory.read(shop.Order)["x"]):
        sequencer.queue_uncommitted(Envelope("x", offset, offset + 1, message))
        while (envelope := sequencer.deque_committed()) is not None:
            came.append(envelope.message.amount)
    assert came == [1, 4]


def test_a_producer_that_ends_is_forgotten(memory: Memory, publisher: Publisher, shop: Any) -> None:
    assert publisher.build_end_intents() == []
    producers = set()
    stored = []
    for journals in ("x", "yx", "y"):
        for journal in journals:
            publisher.publish_uncommitted(to(journal), shop.Order(amount=1))
        producers.add(publisher.producer)
        stored = publisher.build_ack_intents()
        append_intents(memory, stored)  # type: ignore[arg-type]
        if journals == "yx":
            publisher.publish_uncommitted(to("z"), shop.Order(amount=9))
            ends = publisher.build_end_intents()
            assert [intent.journal for intent in ends] == ["x", "y", "z"]
            append_intents(memory, ends)  # type: ignore[arg-type]
            producers.add(publisher.producer)
    assert len(producers) == 2
    append_intents(memory, publisher.build_end_intents())  # type: ignore[arg-type]
    assert publisher.build_end_intents() == []
    # Appended again after a crash.
    append_intents(memory, stored)  # type: ignore[arg-type]
    sequencer = Sequencer()
    came = []
    for journal, messages in memory.read(shop.Order).items():
        for offset, message in enumerate(messages):
            sequencer.queue_uncommitted(Envelope(journal, offset, offset + 1, message))
            while (envelope := sequencer.deque_committed()) is not None:
                came.append((journal, envelope.message.amount))
    assert sorted(came) == [("x", 1), ("x", 1), ("y", 1), ("y", 1)]
    assert [(state.journal, state.begin) for state in sequencer.producer_states()] == [("y", -1)]


def test_long_transactions_do_not_remember_all_that_is_done(
    memory: Memory, publisher: Publisher, shop: Any
) -> None:
    order = shop.Order()
    for number in range(10_000):
        publisher.publish_uncommitted(to("x"), order)
        if number != 5_000:
            memory.appends[-1].result()
    assert len(publisher._appends) < 5_000
    publisher.build_ack_intents()
    assert memory.appends[5_000].done


def test_all_intents_are_appended_though_one_fails(memory: Memory) -> None:
    class HalfBroken(Memory):
        def append(self, journal: str, data: bytes) -> Append:
            self.broken = journal == "y"
            return super().append(journal, data)

    journals = HalfBroken()
    with pytest.raises(AppendError, match="y: broken"):
        append_intents(journals, [AckIntent(name, b"ack") for name in "xyz"])  # type: ignore[arg-type]
    assert journals.journals == {"x": [b"ack"], "y": [], "z": [b"ack"]}


def test_threads_publish_committed_in_the_order_of_their_clocks(memory: Memory, shop: Any) -> None:
    publisher = Publisher(memory)  # type: ignore[arg-type]

    def work() -> None:
        for _ in range(300):
            publisher.publish_committed(to("x"), shop.Order())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clocks = [get_clock(order.uuid) for order in memory.read(shop.Order)["x"]]
    assert len(clocks) == 1_200
    assert all(a < b for a, b in pairwise(clocks))


def test_a_forked_process_publishes_as_another(publisher: Publisher, shop: Any) -> None:
    publisher.publish_uncommitted(to("x"), shop.Order())
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        pending = len(publisher._pending)
        os.write(writer, publisher.producer + publisher.committed_producer + bytes([pending]))
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    told = os.read(reader, 100)
    os.close(reader)
    assert len(told) == 13
    assert ProducerID(told[:6]) not in (A, B)
    assert ProducerID(told[6:12]) not in (A, B)
    assert told[12] == 0
    assert (publisher.producer, publisher.committed_producer) == (A, B)
    assert len(publisher.build_ack_intents()) == 1


def test_one_id_for_both_is_refused(memory: Memory) -> None:
    with pytest.raises(ValueError, match="are the same"):
        Publisher(memory, producer=A, committed_producer=A)  # type: ignore[arg-type]


def test_errors_of_a_mapping_pass(publisher: Publisher, shop: Any) -> None:
    listed: list[JournalSpec] = []
    mapping = modulo_mapping(lambda order: order.customer.encode(), lambda: listed)
    with pytest.raises(LookupError, match="list of journals is empty"):
        publisher.publish_uncommitted(mapping, shop.Order())
    assert publisher.build_ack_intents() == []
