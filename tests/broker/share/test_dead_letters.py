"""Dead letters of share groups: which records get one, what it says, where it goes, and what happens if it cannot."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from kafka_wire import (
    ConfigResourceType,
    ShareGroupHeartbeatRequest,
    ShareRecordState,
    UpdateFeaturesRequest,
)

from krammar.broker import Broker
from krammar.broker.share.dead_letters import DeadLetters
from krammar.broker.share.records import ShareStateUpdate, StateBatch
from krammar.wire.batches import Compression, Record, encode_batch, read_batches
from tests.broker.requests import batch, create_topic, fetch, produce
from tests.broker.share.support import (
    ACCEPT,
    GROUP,
    OK,
    REJECT,
    RELEASE,
    Member,
    configure,
)
from tests.broker.support import RawClient
from tests.support.waiting import until

DLQ = "dlq.t"
ARCHIVING = ShareRecordState.ARCHIVING
REJECTED = b"Offset rejected by client."
TOO_OFTEN = b"Offset delivery count exceeded the threshold."


def set_dead_letters(broker: Broker, **settings: str) -> None:
    """Set the topic of the group, and other settings of dead letters; names have underscores."""
    names = {"topic_name": DLQ, **settings}
    changes = {
        f"errors.deadletterqueue.{name.replace('_', '.')}": value for name, value in names.items()
    }
    broker.call(broker.cluster.set_configs, ConfigResourceType.GROUP, GROUP, changes)


def set_level(broker: Broker, level: int) -> None:
    with RawClient(broker.port) as client:
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="share.version", max_version_level=level, upgrade_type=3 - level
        )
        assert client.call(UpdateFeaturesRequest(feature_updates=[update]), 1).error_code == OK


@pytest.fixture(autouse=True)
def _from_the_beginning(broker: Broker) -> None:
    configure(broker, auto_offset_reset="earliest")
    set_level(broker, 2)


@pytest.fixture
def topic(client: RawClient) -> UUID:
    return create_topic(client, "t")


@pytest.fixture
def member(broker: Broker, topic: UUID) -> Iterator[Member]:
    member = Member(broker.port, topic)
    yield member
    member.close()


def create_dlq(client: RawClient, partitions: int = 1, **configs: str) -> None:
    create_topic(client, DLQ, partitions, errors_deadletterqueue_group_enable="true", **configs)


def letters(client: RawClient, count: int, partition: int = 0) -> list[Record]:
    """The records of the dead-letter topic, as soon as there are so many."""
    found: list[Record] = []

    def read() -> bool:
        answer = fetch(client, DLQ, 0, partition=partition)
        found[:] = [each for one in read_batches(answer.records) for each in one]
        return len(found) >= count

    until(read)
    assert len(found) == count
    return found


def headers(record: Record) -> dict[str, bytes | None]:
    return {name.removeprefix("__dlq.errors."): value for name, value in record.headers}


def expected(offset: int, deliveries: int, message: bytes) -> dict[str, bytes]:
    return {
        "topic": b"t",
        "partition": b"0",
        "offset": b"%d" % offset,
        "group": GROUP.encode(),
        "delivery.count": b"%d" % deliveries,
        "message": message,
    }


def start_offset(broker: Broker, topic: UUID) -> int:
    stored = broker.call(broker.share_states.read_summary, GROUP, topic, 0)
    return -1 if stored is None else stored.state.start_offset


def test_rejected_records(broker: Broker, client: RawClient, topic: UUID, member: Member) -> None:
    create_dlq(client)
    set_dead_letters(broker)
    produce(client, "t", batch(b"0", b"1", b"2", b"3"))
    assert member.acquire() == [(0, 3, 1)]
    assert member.acknowledge((0, 3, ACCEPT, REJECT, REJECT, ACCEPT)) == OK
    found = letters(client, 2)
    assert [headers(each) for each in found] == [expected(at, 1, REJECTED) for at in (1, 2)]
    assert [(each.key, each.value) for each in found] == [(None, None)] * 2
    assert [name for name, _ in found[0].headers] == [
        f"__dlq.errors.{name}"
        for name in ("topic", "partition", "offset", "group", "delivery.count", "message")
    ]
    until(lambda: start_offset(broker, topic) == 4)
    assert member.acquire() == []
    metrics = broker.metrics
    counted = "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total"
    assert metrics.value(counted, group=GROUP) == 2


def test_records_that_are_returned_too_often(
    broker: Broker, client: RawClient, topic: UUID, member: Member
) -> None:
    create_dlq(client)
    set_dead_letters(broker)
    configure(broker, delivery_count_limit="2")
    produce(client, "t", batch(b"0"))
    for deliveries in (1, 2):
        assert member.acquire() == [(0, 0, deliveries)]
        assert member.acknowledge((0, 0, RELEASE)) == OK
    (found,) = letters(client, 1)
    assert headers(found) == expected(0, 2, TOO_OFTEN)
    assert member.acquire() == []


@pytest.mark.parametrize("how", ["time", "close"])
def test_records_of_members_that_are_gone(
    broker: Broker, client: RawClient, topic: UUID, member: Member, how: str
) -> None:
    create_dlq(client)
    set_dead_letters(broker)
    configure(broker, delivery_count_limit="2")
    produce(client, "t", batch(b"0"))
    assert member.acquire() == [(0, 0, 1)]
    assert member.acknowledge((0, 0, RELEASE)) == OK
    assert member.acquire() == [(0, 0, 2)]
    if how == "time":
        broker.advance_clock(30_000)
    else:
        member.close()
    (found,) = letters(client, 1)
    assert headers(found) == expected(0, 2, TOO_OFTEN)
    until(lambda: start_offset(broker, topic) == 1)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_copies(
    broker: Broker,
    client: RawClient,
    topic: UUID,
    member: Member,
    codec: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Key and value are copied, over several reads and batches, and headers are not."""
    monkeypatch.setattr(DeadLetters, "most_read", 2000)
    monkeypatch.setattr(DeadLetters, "most_written", 1500)
    create_dlq(client)
    set_dead_letters(broker, copy_record_enable="true")
    sent = [
        [
            Record(key=b"k%d" % at, value=b"%d" % at * 300, headers=[("own", b"x")])
            for at in range(first, first + 3)
        ]
        for first in range(0, 12, 3)
    ]
    for records in sent:
        assert produce(client, "t", encode_batch(records, compression=codec)).error_code == OK
    assert sum(last - first + 1 for first, last, _ in member.acquire()) == 12
    assert member.acknowledge((0, 11, REJECT)) == OK
    found = letters(client, 12)
    assert [(each.key, each.value) for each in found] == [
        (each.key, each.value) for records in sent for each in records
    ]
    assert [headers(each) for each in found] == [expected(at, 1, REJECTED) for at in range(12)]


def test_a_batch_that_is_too_large_to_copy(
    broker: Broker, client: RawClient, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeadLetters, "most_read", 2000)
    create_dlq(client)
    set_dead_letters(broker, copy_record_enable="true")
    produce(client, "t", encode_batch([Record(value=bytes(50_000))], compression=Compression.ZSTD))
    produce(client, "t", batch(b"small"))
    member.acquire()
    member.acquire()
    assert member.acknowledge((0, 1, REJECT)) == OK
    assert [each.value for each in letters(client, 2)] == [None, b"small"]


def test_the_partition(broker: Broker, client: RawClient) -> None:
    """The partition is that of the record, or a lower one if the topic has fewer."""
    create_dlq(client, 2)
    set_dead_letters(broker)
    topic = create_topic(client, "t3", 4)
    for number in range(4):
        produce(client, "t3", batch(b"x"), partition=number)
    member = Member(broker.port, topic)
    for number in range(4):
        acquired = member.acquire(partitions=[number])
        assert acquired == [(0, 0, 1)]
        assert member.acknowledge((0, 0, REJECT), partition=number) == OK
    for partition in (0, 1):
        found = letters(client, 2, partition)
        assert {headers(each)["partition"] for each in found} == {
            b"%d" % number for number in (partition, partition + 2)
        }
    member.close()


def test_a_topic_is_created(broker: Broker, client: RawClient, topic: UUID, member: Member) -> None:
    set_dead_letters(broker)
    broker.call(
        broker.topics.set_configs,
        ConfigResourceType.BROKER,
        "",
        {"errors.deadletterqueue.auto.create.topics.enable": "true", "num.partitions": "1"},
    )
    produce(client, "t", batch(b"0"))
    member.acquire()
    assert member.acknowledge((0, 0, REJECT)) == OK
    until(lambda: DLQ in broker.cluster.topics)
    assert headers(letters(client, 1)[0]) == expected(0, 1, REJECTED)
    configs = broker.cluster.configs[ConfigResourceType.TOPIC, DLQ]
    assert configs["errors.deadletterqueue.group.enable"] == "true"
    assert configs["message.timestamp.type"] == "CreateTime"


@pytest.mark.parametrize(
    ("name", "properties", "why"),
    [
        (
            DLQ,
            {},
            "it does not exist (create it, or set errors.deadletterqueue.auto.create.topics.",
        ),
        ("__dlq", {}, "names of dead-letter topics cannot begin with __"),
        ("t", {}, "it is not enabled for dead letters (set errors.deadletterqueue.group.enable=tr"),
        (
            "letters",
            {"errors.deadletterqueue.auto.create.topics.enable": "true"},
            "its name does not begin with 'dlq.' (errors.deadletterqueue.topic.name.prefix)",
        ),
        (
            "dlq.a b",
            {"errors.deadletterqueue.auto.create.topics.enable": "true"},
            "'dlq.a b' has characters other than",
        ),
        (
            "dlq_other",
            {
                "errors.deadletterqueue.auto.create.topics.enable": "true",
                "errors.deadletterqueue.topic.name.prefix": "",
            },
            "its name collides with dlq.other",
        ),
    ],
)
def test_why_there_is_no_dead_letter(
    broker: Broker,
    client: RawClient,
    topic: UUID,
    member: Member,
    caplog: pytest.LogCaptureFixture,
    name: str,
    properties: dict[str, str],
    why: str,
) -> None:
    """The records are archived nevertheless."""
    create_topic(client, "dlq.other")
    set_dead_letters(broker, topic_name=name)
    broker.call(broker.topics.set_configs, ConfigResourceType.BROKER, "", properties)
    produce(client, "t", batch(b"0", b"1"))
    member.acquire()
    with caplog.at_level(logging.WARNING):
        assert member.acknowledge((0, 1, REJECT)) == OK
        until(lambda: start_offset(broker, topic) == 2)
    (said,) = [each.message for each in caplog.records if "dead" in each.message]
    assert said.startswith(
        f"share group {GROUP}: the records 0 to 1 are archived without dead letters in topic"
        f" {name}: {why}"
    )
    failed = "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total"
    assert broker.metrics.value(failed, group=GROUP) == 1


def test_a_record_that_is_too_large(
    broker: Broker,
    client: RawClient,
    topic: UUID,
    member: Member,
    caplog: pytest.LogCaptureFixture,
) -> None:
    create_dlq(client, max_message_bytes="500")
    set_dead_letters(broker, copy_record_enable="true")
    produce(client, "t", batch(b"x" * 1000))
    member.acquire()
    assert member.acknowledge((0, 0, REJECT)) == OK
    until(lambda: start_offset(broker, topic) == 1)
    assert "are archived without dead letters in topic dlq.t: " in caplog.text
    assert fetch(client, DLQ, 0).records == b""


def test_below_level_2_there_are_none(
    broker: Broker, client: RawClient, topic: UUID, member: Member
) -> None:
    create_dlq(client)
    set_dead_letters(broker)
    set_level(broker, 1)
    produce(client, "t", batch(b"0"))
    member.acquire()
    assert member.acknowledge((0, 0, REJECT)) == OK
    assert start_offset(broker, topic) == 1
    assert fetch(client, DLQ, 0).records == b""


def test_a_heartbeat_raises_the_level(broker: Broker, client: RawClient, topic: UUID) -> None:
    set_level(broker, 1)
    heartbeat = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id="m", subscribed_topic_names=["t"]
    )
    assert client.call(heartbeat).error_code == OK
    assert broker.cluster.features["share.version"] == 1
    set_dead_letters(broker)
    assert client.call(heartbeat).error_code == OK
    assert broker.cluster.features["share.version"] == 2


def test_letters_that_a_crash_has_prevented(tmp_path: Path) -> None:
    """Records that are archiving at the start get their dead letters when a member reads the partition."""
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        configure(broker, auto_offset_reset="earliest", delivery_count_limit="3")
        set_level(broker, 2)
        topic = create_topic(client, "t")
        create_dlq(client)
        set_dead_letters(broker)
        produce(client, "t", batch(b"0", b"1", b"2"))
        batches = [StateBatch(0, 0, ARCHIVING, 1), StateBatch(1, 1, ARCHIVING, 3)]
        update = ShareStateUpdate(0, 0, 0, 0, batches)
        broker.call(broker.share_states.store, GROUP, topic, 0, update)
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        member = Member(broker.port, topic)
        assert member.acquire() == [(2, 2, 1)]
        found = letters(client, 2)
        assert [headers(each) for each in found] == [
            expected(0, 1, REJECTED),
            expected(1, 3, TOO_OFTEN),
        ]
        assert member.acknowledge((2, 2, ACCEPT)) == OK
        until(lambda: start_offset(broker, topic) == 3)
        member.close()
