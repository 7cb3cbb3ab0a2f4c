"""DescribeTopicPartitions v0 for topics in the folder that the broker starts with."""

from __future__ import annotations

import pytest

from tests.broker.challenge.conftest import EMPTY, MANY, ONE, PARTITIONED, TOPICS, TWO
from tests.broker.challenge.disk import TopicFolder
from tests.broker.challenge.wire import (
    ALL_TOPIC_OPERATIONS,
    DESCRIBE_TOPIC_PARTITIONS,
    INVALID_REQUEST,
    NIL,
    NULL_CURSOR,
    UNKNOWN_TOPIC_OR_PARTITION,
    Connection,
    Described,
    DescribedPartition,
    DescribedTopic,
    describe_body,
)


def described(topic: TopicFolder, begin: int = 0, end: int | None = None) -> DescribedTopic:
    """The expected description of a topic, with the partitions from ``begin`` to ``end``."""
    indexes = range(len(topic.logs))[begin:end]
    return DescribedTopic(
        0,
        topic.name,
        topic.topic_id,
        False,
        [
            DescribedPartition(0, index, 1, topic.leader_epoch, [1], [1], [], [], [])
            for index in indexes
        ],
        ALL_TOPIC_OPERATIONS,
    )


def unknown(name: str) -> DescribedTopic:
    return DescribedTopic(UNKNOWN_TOPIC_OR_PARTITION, name, NIL, False, [], ALL_TOPIC_OPERATIONS)


def complete(answer: Described) -> list[DescribedTopic]:
    assert answer.throttle_ms == 0
    assert answer.cursor is None
    assert answer.cursor_byte == NULL_CURSOR
    return answer.topics


def test_unknown_topic(connection: Connection) -> None:
    assert complete(connection.describe("nobody-made-this")) == [unknown("nobody-made-this")]


def test_one_topic_with_one_partition(connection: Connection) -> None:
    assert complete(connection.describe(ONE.name)) == [described(ONE)]


def test_one_topic_with_several_partitions(connection: Connection) -> None:
    assert complete(connection.describe(PARTITIONED.name)) == [described(PARTITIONED)]


def test_several_topics_come_by_name(connection: Connection) -> None:
    answer = connection.describe(TWO.name, PARTITIONED.name, EMPTY.name, MANY.name)
    assert complete(answer) == [
        described(EMPTY),
        described(MANY),
        described(PARTITIONED),
        described(TWO),
    ]


def test_known_and_unknown_topics_together(connection: Connection) -> None:
    answer = connection.describe("zzz", PARTITIONED.name, "aaa")
    assert complete(answer) == [unknown("aaa"), described(PARTITIONED), unknown("zzz")]


def test_a_topic_named_twice_comes_once(connection: Connection) -> None:
    assert complete(connection.describe(ONE.name, ONE.name)) == [described(ONE)]


def test_no_topic_means_all(connection: Connection) -> None:
    ordered = sorted(TOPICS, key=lambda topic: topic.name)
    assert complete(connection.describe()) == [described(topic) for topic in ordered]


def test_unknown_topic_byte_for_byte(connection: Connection) -> None:
    frame = connection.call(DESCRIBE_TOPIC_PARTITIONS, 0, describe_body(["abc"]))
    assert frame[4:] == bytes.fromhex(
        "00"  # tags of the header
        "00000000"  # throttle time
        "02"  # one topic
        "0003 04616263 00000000000000000000000000000000 00 01 00000df8 00"
        "ff 00"
    )


# --- paging


def test_a_page_ends_within_a_topic(connection: Connection) -> None:
    answer = connection.describe(PARTITIONED.name, limit=2)
    assert answer.topics == [described(PARTITIONED, 0, 2)]
    assert answer.cursor == (PARTITIONED.name, 2)
    answer = connection.describe(PARTITIONED.name, limit=2, cursor=answer.cursor)
    assert complete(answer) == [described(PARTITIONED, 2)]


def test_a_page_ends_between_topics(connection: Connection) -> None:
    names = [EMPTY.name, ONE.name, PARTITIONED.name]
    answer = connection.describe(*names, limit=2)
    assert answer.topics == [described(EMPTY), described(ONE)]
    assert answer.cursor == (PARTITIONED.name, 0)
    answer = connection.describe(*names, limit=2, cursor=answer.cursor)
    assert answer.topics == [described(PARTITIONED, 0, 2)]
    assert answer.cursor == (PARTITIONED.name, 2)
    assert complete(connection.describe(*names, limit=2, cursor=answer.cursor)) == [
        described(PARTITIONED, 2)
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_pages_make_up_the_whole(connection: Connection, limit: int) -> None:
    found: dict[str | None, list[int]] = {}
    cursor = None
    while True:
        answer = connection.describe(limit=limit, cursor=cursor)
        page = [(topic.name, part.index) for topic in answer.topics for part in topic.partitions]
        assert 0 < len(page) <= limit
        names = [topic.name for topic in answer.topics]
        assert names == sorted(set(names), key=str)
        for name, index in page:
            found.setdefault(name, []).append(index)
        if answer.cursor is None:
            break
        assert cursor is None or answer.cursor > cursor
        cursor = answer.cursor
    assert found == {topic.name: list(range(len(topic.logs))) for topic in TOPICS}


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_counts_as_one(connection: Connection, limit: int) -> None:
    answer = connection.describe(PARTITIONED.name, limit=limit)
    assert answer.topics == [described(PARTITIONED, 0, 1)]
    assert answer.cursor == (PARTITIONED.name, 1)


def test_a_cursor_has_to_be_within_what_is_asked_for(connection: Connection) -> None:
    answer = connection.describe(ONE.name, cursor=("other", 0))
    assert [(topic.error, topic.name) for topic in answer.topics] == [(INVALID_REQUEST, ONE.name)]
    answer = connection.describe(ONE.name, cursor=(ONE.name, -1))
    assert [(topic.error, topic.name) for topic in answer.topics] == [(INVALID_REQUEST, ONE.name)]


def test_a_cursor_behind_the_last_partition(connection: Connection) -> None:
    answer = connection.describe(ONE.name, TWO.name, cursor=(ONE.name, 1))
    assert complete(answer) == [described(ONE, 1), described(TWO)]
