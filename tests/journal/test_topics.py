"""Journals in topics, on a broker in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from krammar.broker import Broker
from krammar.client import Client, ClientError
from krammar.journal import (
    AppendError,
    Checkpoint,
    FixedFraming,
    JournalSpec,
    Publisher,
    ReadCommittedIter,
    ReadUncommittedIter,
    Sequencer,
    TopicJournals,
    UnknownJournalError,
    append_intents,
    modulo_mapping,
)
from krammar.journal.topics import _TopicRangesReader
from tests.journal.stores import amounts, to
from tests.support.waiting import PATIENCE

FIXED = FixedFraming()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start(properties={"auto.create.topics.enable": "false"}) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    name = request.node.name
    client.admin.create_topic(name, partitions=2)
    return name


@pytest.fixture
def journals(broker: Broker) -> Iterator[TopicJournals]:
    # Answers about topics that do not exist are asked for again.
    with TopicJournals(broker.bootstrap_servers, retry_backoff_ms=1) as journals:
        yield journals


def test_replays_of_interleaved_transactions(
    journals: TopicJournals, topic: str, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = f"{topic}/0"
    publishers = [Publisher(journals) for _ in range(5)]
    for run in range(4):
        for number, publisher in enumerate(publishers):
            for row in range(30):
                amount = number * 1000 + run * 100 + row
                publisher.publish_uncommitted(to(journal), shop.Order(amount=amount))
    intents = [intent for publisher in publishers for intent in publisher.build_ack_intents()]
    append_intents(journals, intents)
    expected = [
        n * 1000 + run * 100 + row for n in range(5) for run in range(4) for row in range(30)
    ]
    for far in (1, 1000):
        monkeypatch.setattr(_TopicRangesReader, "far", far)
        reader = journals.reader(journal)
        with ReadCommittedIter(reader, shop.Order, Sequencer((), 10)) as iterator:
            assert amounts(iterator) == expected


def test_a_record_is_a_frame(
    journals: TopicJournals, client: Client, topic: str, shop: Any
) -> None:
    journal = f"{topic}/1"
    publisher = Publisher(journals)
    order = shop.Order(customer="a", amount=5)
    append = publisher.publish_committed(to(journal), order)
    assert append.result().done
    assert (append.journal, append.begin, append.end, append.error) == (journal, 0, 1, None)
    publisher.publish_uncommitted(to(journal), shop.Order(amount=6))
    append_intents(journals, publisher.build_ack_intents())
    records = [record for at, record in client.records(topic) if at.partition == 1]
    assert records[0].value == FIXED.marshal(order)
    assert records[0].key is None
    assert [record.offset for record in records] == [0, 1, 2]
    envelopes = list(ReadUncommittedIter(journals.reader(journal), shop.Order))
    assert [(e.journal, e.begin, e.end) for e in envelopes] == [
        (journal, n, n + 1) for n in range(3)
    ]
    assert amounts(envelopes) == [5, 6, 0]
    assert amounts(ReadCommittedIter(journals.reader(journal), shop.Order)) == [5, 6]
    assert journals.offsets(journal) == (0, 3)
    assert journals.offsets(f"{topic}/0") == (0, 0)
    assert list(ReadUncommittedIter(journals.reader(f"{topic}/0"), shop.Order)) == []


def test_partitions(journals: TopicJournals, topic: str) -> None:
    partitions = journals.partitions(topic)
    assert [spec.name for spec in partitions()] == [f"{topic}/0", f"{topic}/1"]
    assert partitions() is partitions()
    mapping = modulo_mapping(lambda text: text, partitions)
    # FNV-1a of "a" is even, of "b" odd.
    assert [mapping(text)[0] for text in (b"a", b"b")] == [f"{topic}/0", f"{topic}/1"]


def test_exactly_once_through_replays_and_restarts(
    journals: TopicJournals, topic: str, shop: Any
) -> None:
    journal = f"{topic}/0"
    publishers = [Publisher(journals) for _ in range(3)]
    for turn in range(30):
        publisher = publishers[turn % 3]
        for number in range(turn % 4):
            publisher.publish_uncommitted(to(journal), shop.Order(amount=100 * turn + number))
        if turn % 7 == 3:
            append_intents(journals, publisher.build_rollback_intents())
        elif turn % 2:
            intents = publisher.build_ack_intents()
            append_intents(journals, intents)
            append_intents(journals, intents)
    journals.flush()
    expected = amounts(ReadCommittedIter(journals.reader(journal), shop.Order))
    assert len(expected) == len(set(expected)) > 10
    seen: list[int] = []
    stored = Checkpoint({journal: 0}).encode()
    while True:
        found = Checkpoint.decode(stored)
        reader = journals.reader(journal, found.read_through[journal])
        before = len(seen)
        with ReadCommittedIter(reader, shop.Order, Sequencer(found.states, 1)) as iterator:
            for envelope in iterator:
                seen.append(envelope.message.amount)
                if iterator.drained and len(seen) - before >= 4:
                    stored = iterator.checkpoint().encode()
                    break
            else:
                break
    assert seen == expected


def test_json_lines(broker: Broker, client: Client, topic: str, shop: Any) -> None:
    with TopicJournals(broker.bootstrap_servers, content_type="application/x-ndjson") as journals:
        spec = journals.spec(f"{topic}/0")
        assert spec == JournalSpec(f"{topic}/0", "application/x-ndjson")
        payment = shop.Payment(amount=1)
        Publisher(journals).publish_committed(lambda m: (spec.name, spec.framing), payment).result()
        with client.producer() as producer:
            # Of tools that do not end a record with a newline.
            producer.send(topic, b'{"amount":2}', partition=0)
        assert amounts(ReadCommittedIter(journals.reader(spec.name), shop.Payment)) == [1, 2]


def test_records_that_are_no_messages(
    journals: TopicJournals, client: Client, topic: str, shop: Any, caplog: Any
) -> None:
    frame = FIXED.marshal(shop.Order(amount=1))
    with client.producer() as producer:
        for value in (frame, None, b"x", frame + frame, frame):
            producer.send(topic, value, partition=0)
    envelopes = list(ReadUncommittedIter(journals.reader(f"{topic}/0"), shop.Order))
    assert [envelope.begin for envelope in envelopes] == [0, 4]
    assert [record.message.split(":")[1] for record in caplog.records] == [
        " skipping offsets 1 to 2",
        " skipping offsets 2 to 3",
        " skipping offsets 3 to 4",
    ]


def test_deleted_records_are_jumped_over(
    journals: TopicJournals, client: Client, topic: str, shop: Any, caplog: Any
) -> None:
    publisher = Publisher(journals)
    for number in range(6):
        publisher.publish_committed(to(f"{topic}/0"), shop.Order(amount=number))
    journals.flush()
    client.admin.delete_records({(topic, 0): 4})
    assert amounts(ReadUncommittedIter(journals.reader(f"{topic}/0"), shop.Order)) == [4, 5]
    assert f"{topic}/0: offsets 0 to 4 do not exist any more" in caplog.text
    assert journals.reader(f"{topic}/0", 0, 3).read() == []
    with pytest.raises(ClientError, match="7"):
        journals.reader(f"{topic}/0", 7, 9).read()
    assert journals.offsets(f"{topic}/0") == (4, 6)


def test_a_reader_that_follows(journals: TopicJournals, topic: str, shop: Any) -> None:
    reader = journals.reader(f"{topic}/0", follow=True)
    iterator = ReadCommittedIter(reader, shop.Order)
    came: list[int] = []
    first = threading.Event()

    def follow() -> None:
        for envelope in iterator:
            came.append(envelope.message.amount)
            first.set()
            if envelope.message.amount == 2:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    publisher = Publisher(journals)
    # Nobody waits for this one.
    publisher.publish_committed(to(f"{topic}/0"), shop.Order(amount=1))
    assert first.wait(PATIENCE)
    publisher.publish_committed(to(f"{topic}/0"), shop.Order(amount=2)).result()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert came == [1, 2]
    iterator.close()
    assert list(iterator) == []


def test_journals_that_are_not_there(
    journals: TopicJournals, topic: str, broker: Broker, shop: Any
) -> None:
    for wrong in ("", "orders", "orders/x", "/0", "a/b/0"):
        with pytest.raises(UnknownJournalError, match="is not a journal in a topic"):
            journals.spec(wrong)
    with pytest.raises(UnknownJournalError, match="topic 'absent' does not exist"):
        journals.list("absent")
    with pytest.raises(UnknownJournalError, match="journal 'absent/0' does not exist"):
        journals.offsets("absent/0")
    with pytest.raises(UnknownJournalError, match="journal 'absent/0' does not exist"):
        journals.reader("absent/0")
    with TopicJournals(broker.bootstrap_servers, max_block_ms=200) as others:
        with pytest.raises(UnknownJournalError, match="journal 'absent/0' does not exist"):
            others.append("absent/0", b"")
        with pytest.raises((UnknownJournalError, AppendError), match=f"{topic}/7"):
            others.append(f"{topic}/7", b"")
    with pytest.raises(ValueError, match="offset -1 is negative"):
        journals.reader(f"{topic}/0", -1)


def test_appends_that_fail(broker: Broker, topic: str, shop: Any) -> None:
    journals = TopicJournals(broker.bootstrap_servers, max_request_size=100)
    with pytest.raises(AppendError, match=rf"{topic}/0: .*max.request.size"):
        journals.append(f"{topic}/0", bytes(200))
    journals.close()
    with pytest.raises(AppendError, match="the journals are closed"):
        journals.append(f"{topic}/0", b"")
    journals.close()


def test_a_broker_that_goes_away(shop: Any) -> None:
    with Broker.start() as broker:
        settings = {"delivery.timeout.ms": 1_500, "request.timeout.ms": 1_000, "linger.ms": 0}
        journals = TopicJournals(broker.bootstrap_servers, settings)
        Client(broker.bootstrap_servers).admin.create_topic("gone", partitions=1)
        publisher = Publisher(journals)
        publisher.publish_uncommitted(to("gone/0"), shop.Order()).result()
    append = publisher.publish_uncommitted(to("gone/0"), shop.Order())
    with pytest.raises(AppendError, match="can only be rolled back: gone/0"):
        publisher.build_ack_intents()
    assert append.done
    assert isinstance(append.error, AppendError)
    with pytest.raises(AppendError, match="gone/0"):
        append.result()
    journals.close()
