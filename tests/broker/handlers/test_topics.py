"""Creating, listing, describing, growing, emptying and deleting topics over a socket, in every version."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
)
from kafka_wire import (
    ConfigSource,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    ErrorCode,
    MetadataRequest,
    ProduceRequest,
)

from krammar.broker import Broker
from krammar.broker.apis import RANGES
from krammar.wire.batches import Record, encode_batch
from krammar.wire.primitives import NULL_UUID
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE

NOT_ASKED = -(1 << 31)
# READ to ALTER_CONFIGS without cluster operations, and the reverse (KIP-430).
TOPIC_OPERATIONS = 0b1101_1111_1000
CLUSTER_OPERATIONS = 0b1_1111_1010_0000
UNKNOWN_ID = UUID("00000000-0000-4000-8000-00000000aaaa")


def versions(request: type[Any], low: int = 0) -> range:
    first, last = RANGES[request.api_key]
    return range(max(first, low), last + 1)


def new(
    name: str, partitions: int = 1, factor: int = 1, **fields: Any
) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=factor, **fields
    )


def create(
    client: RawClient, *topics: CreateTopicsRequest.CreatableTopic, **fields: Any
) -> list[Any]:
    version = fields.pop("version", None)
    request = CreateTopicsRequest(topics=topics, timeout_ms=1000, **fields)
    return list(client.call(request, version).topics)


def listed(client: RawClient) -> dict[str, int]:
    """Return the number of partitions of each topic."""
    topics = client.call(MetadataRequest(topics=None)).topics
    return {topic.name: len(topic.partitions) for topic in topics}


def append(client: RawClient, topic: str, count: int) -> None:
    records = encode_batch([Record(key=b"k", value=b"x") for _ in range(count)])
    data = [ProduceRequest.PartitionProduceData(index=0, records=records)]
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
    response = client.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@pytest.fixture
def three(client: RawClient) -> dict[str, UUID]:
    """The ids of three topics, created out of order."""
    made = create(client, new("two", 3), new("three.x", 2), new("one"))
    return {topic.name: topic.topic_id for topic in made}


# Metadata.


@pytest.mark.parametrize("version", versions(MetadataRequest))
def test_metadata_of_all_topics(
    broker: Broker, client: RawClient, three: dict[str, UUID], version: int
) -> None:
    everything = MetadataRequest(topics=[] if version == 0 else None)
    response = client.call(everything, version)
    [node] = response.brokers
    assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", broker.port)
    if version >= 1:
        assert response.controller_id == 1
        assert node.rack is None
    if version >= 2:
        assert response.cluster_id == broker.cluster.cluster_id
    assert {topic.name: len(topic.partitions) for topic in response.topics} == {
        "one": 1,
        "two": 3,
        "three.x": 2,
    }
    for topic in response.topics:
        assert topic.error_code == ErrorCode.NONE
        assert topic.topic_id == (three[topic.name] if version >= 10 else NULL_UUID)
        assert topic.topic_authorized_operations == NOT_ASKED
        for partition in topic.partitions:
            assert (partition.leader_id, partition.replica_nodes) == (1, [1])
            assert (partition.isr_nodes, partition.offline_replicas) == ([1], [])
            assert partition.leader_epoch == (0 if version >= 7 else -1)
    if version >= 1:
        assert client.call(MetadataRequest(topics=[]), version).topics == []


@pytest.mark.parametrize("version", versions(MetadataRequest, 4))
def test_metadata_of_some_topics(client: RawClient, three: dict[str, UUID], version: int) -> None:
    names = ["nope", "one", "bad name", "__consumer_offsets", "one", ""]
    response = client.call(
        MetadataRequest(
            topics=[MetadataRequest.Topic(name=name) for name in names],
            allow_auto_topic_creation=False,
        ),
        version,
    )
    assert [(topic.name, topic.error_code, topic.is_internal) for topic in response.topics] == [
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        ("one", ErrorCode.NONE, False),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
        ("__consumer_offsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
    ]
    assert response.error_code == ErrorCode.NONE
    assert sorted(listed(client)) == sorted(three)


@pytest.mark.parametrize("version", versions(MetadataRequest, 10))
def test_metadata_by_topic_id(client: RawClient, three: dict[str, UUID], version: int) -> None:
    def ask(*topics: MetadataRequest.Topic) -> Any:
        return client.call(MetadataRequest(topics=topics, allow_auto_topic_creation=False), version)

    def refused(topics: Any) -> bool:
        return all(topic.error_code == ErrorCode.INVALID_REQUEST for topic in topics)

    by_id = ask(
        MetadataRequest.Topic(name=None, topic_id=three["one"]),
        MetadataRequest.Topic(name=None, topic_id=UNKNOWN_ID),
    )
    neither = ask(MetadataRequest.Topic(name=None), MetadataRequest.Topic(name="one"))
    assert refused(neither.topics)
    assert len(neither.topics) == 2
    assert neither.brokers == []
    if version < 12:
        assert refused(by_id.topics)
        return
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in by_id.topics] == [
        ("one", three["one"], ErrorCode.NONE),
        (None, UNKNOWN_ID, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    # One id, and names no longer count.
    mixed = ask(
        MetadataRequest.Topic(name="two"), MetadataRequest.Topic(name="one", topic_id=three["two"])
    )
    assert [topic.topic_id for topic in mixed.topics] == [three["two"]]
    if version >= 13:
        assert neither.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", versions(MetadataRequest, 8))
def test_metadata_tells_what_is_allowed_when_asked(
    client: RawClient, three: dict[str, UUID], version: int
) -> None:
    response = client.call(
        MetadataRequest(
            topics=[MetadataRequest.Topic(name="one"), MetadataRequest.Topic(name="nope")],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=version <= 10,
        ),
        version,
    )
    assert {topic.topic_authorized_operations for topic in response.topics} == {TOPIC_OPERATIONS}
    expected = CLUSTER_OPERATIONS if version <= 10 else NOT_ASKED
    assert response.cluster_authorized_operations == expected


@pytest.mark.parametrize("version", versions(MetadataRequest))
def test_metadata_creates_topics(broker: Broker, client: RawClient, version: int) -> None:
    topics = [MetadataRequest.Topic(name="fresh"), MetadataRequest.Topic(name="bad name")]
    response = client.call(MetadataRequest(topics=topics), version)
    assert [(topic.error_code, len(topic.partitions)) for topic in response.topics] == [
        (ErrorCode.NONE, 1),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, 0),
    ]
    assert listed(client) == {"fresh": 1}
    append(client, "fresh", 1)


def test_clients_create_the_same_topic_at_once(broker: Broker, client: RawClient) -> None:
    """Their steps take turns, as those of large topics do."""

    def create() -> set[UUID]:
        waiting = [broker.topics.creating_on_use("fresh") for _ in range(3)]
        found = set()
        while waiting:
            steps = waiting.pop(0)
            try:
                next(steps)
                waiting.append(steps)
            except StopIteration as end:
                found.add(end.value.topic_id)
        return found

    assert len(broker.call(create)) == 1
    assert listed(client) == {"fresh": 1}


def test_automatic_creation_makes_internal_topics_as_their_coordinators_do(
    broker: Broker, client: RawClient
) -> None:
    names = ["__consumer_offsets", "__transaction_state", "a.b", "a_b"]
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=name) for name in names])
    topics = client.call(request).topics
    assert [topic.is_internal for topic in topics] == [True, True, False, False]
    # The last collides with the third.
    assert [topic.error_code for topic in topics] == [0, 0, 0, 3]
    for name in names[:2]:
        assert broker.cluster.configs[2, name]["cleanup.policy"] == "compact"


def test_automatic_creation_can_be_off_and_partitions_many() -> None:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name="fresh")])
    with (
        Broker.start(properties={"auto.create.topics.enable": "false"}) as broker,
        RawClient(broker.port) as client,
    ):
        [topic] = client.call(request).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert listed(client) == {}
    with (
        Broker.start(properties={"num.partitions": "5", "broker.rack": "r1"}) as broker,
        RawClient(broker.port) as client,
    ):
        response = client.call(request)
        assert len(response.topics[0].partitions) == 5
        assert response.brokers[0].rack == "r1"


# DescribeTopicPartitions.


def describe(
    client: RawClient, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    """(name, error, partitions) of each topic, and where the next page begins."""
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
    )
    if cursor is not None:
        request.cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=cursor[0], partition_index=cursor[1]
        )
    response = client.call(request)
    topics = [
        (topic.name, topic.error_code, [each.partition_index for each in topic.partitions])
        for topic in response.topics
    ]
    following = response.next_cursor
    return topics, following and (following.topic_name, following.partition_index)


def test_describe_topic_partitions_in_full(client: RawClient, three: dict[str, UUID]) -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[
            DescribeTopicPartitionsRequest.TopicRequest(name=name)
            for name in ("two", "nope", "one", "one", "__consumer_offsets")
        ]
    )
    response = client.call(request)
    assert response.next_cursor is None
    assert [(topic.name, topic.topic_id) for topic in response.topics] == [
        ("__consumer_offsets", NULL_UUID),
        ("nope", NULL_UUID),
        ("one", three["one"]),
        ("two", three["two"]),
    ]
    internal, unknown, one, two = response.topics
    assert internal.is_internal
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.partitions == []
    assert [len(topic.partitions) for topic in (one, two)] == [1, 3]
    assert one.partitions[0].to_dict() == {
        "error_code": 0,
        "partition_index": 0,
        "leader_id": 1,
        "leader_epoch": 0,
        "replica_nodes": [1],
        "isr_nodes": [1],
        "eligible_leader_replicas": [],
        "last_known_elr": [],
        "offline_replicas": [],
    }
    assert one.topic_authorized_operations == TOPIC_OPERATIONS


def test_describe_topic_partitions_page_by_page(client: RawClient, three: dict[str, UUID]) -> None:
    whole = [("one", 0, [0]), ("three.x", 0, [0, 1]), ("two", 0, [0, 1, 2])]
    assert describe(client) == (whole, None)
    for limit in range(1, 8):
        seen: list[tuple[str, int]] = []
        cursor = None
        while True:
            page, cursor = describe(client, limit=limit, cursor=cursor)
            found = [(name, index) for name, _, indexes in page for index in indexes]
            assert 1 <= len(found) <= limit
            seen += found
            if cursor is None:
                break
        assert seen == [(name, index) for name, _, indexes in whole for index in indexes]
    # An invalid limit means one partition.
    for limit in (0, -1):
        assert describe(client, limit=limit) == ([("one", 0, [0])], ("three.x", 0))


@pytest.mark.parametrize(
    ("names", "cursor", "expected"),
    [
        ((), ("two", 2), ([("two", 0, [2])], None)),
        ((), ("two", 9), ([("two", 0, [])], None)),
        ((), ("p", 7), ([("three.x", 0, [0, 1])], ("two", 0))),
        ((), ("zzz", 0), ([], None)),
        ((), ("two", -1), ([], None)),
        (("two", "one"), ("one", 0), ([("one", 0, [0]), ("two", 0, [0])], ("two", 1))),
        (("two", "gone"), ("gone", 1), ([("gone", 3, []), ("two", 0, [0, 1])], ("two", 2))),
        (("two", "one"), ("p", 0), ([("two", 42, []), ("one", 42, [])], None)),
        (("one",), ("one", -1), ([("one", 42, [])], None)),
        (("bad name",), None, ([("bad name", 17, [])], None)),
    ],
)
def test_describe_topic_partitions_from_a_cursor(
    client: RawClient,
    three: dict[str, UUID],
    names: tuple[str, ...],
    cursor: tuple[str, int] | None,
    expected: Any,
) -> None:
    assert describe(client, *names, limit=2, cursor=cursor) == expected


# CreateTopics.


@pytest.mark.parametrize("version", versions(CreateTopicsRequest))
def test_create_topics(broker: Broker, client: RawClient, version: int) -> None:
    config = CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="5")
    made, empty, again, dashed = create(
        client,
        new("made", 3, configs=[config]),
        new("empty", 0),
        new("made2", -1 if version >= 4 else 1, -1 if version >= 4 else 1),
        new("bad name"),
        version=version,
    )
    assert listed(client) == {"made": 3, "made2": 1}
    assert (made.error_code, made.error_message) == (ErrorCode.NONE, None)
    assert empty.error_code == ErrorCode.INVALID_PARTITIONS
    assert empty.error_message
    assert again.error_code == ErrorCode.NONE
    assert dashed.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert broker.cluster.configs[2, "made"] == {"retention.ms": "5"}
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        assert (empty.num_partitions, empty.replication_factor) == (-1, -1)
        settings = {entry.name: entry for entry in made.configs}
        assert settings["retention.ms"].value == "5"
        assert settings["retention.ms"].config_source == ConfigSource.TOPIC_CONFIG
        assert settings["cleanup.policy"].value == "delete"
        assert settings["cleanup.policy"].config_source == ConfigSource.DEFAULT_CONFIG
        assert empty.configs == []
    if version >= 7:
        assert made.topic_id == broker.cluster.topics["made"].topic_id
        assert empty.topic_id == NULL_UUID
    append(client, "made", 1)


def assigned(
    *partitions: tuple[int, list[int]]
) -> list[CreateTopicsRequest.CreatableReplicaAssignment]:
    return [
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in partitions
    ]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (new(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("..."), ErrorCode.NONE),
        (new("a" * 249), ErrorCode.NONE),
        (new("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("three_x"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("one"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (new("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (new("n", 0), ErrorCode.INVALID_PARTITIONS),
        (new("n", -2), ErrorCode.INVALID_PARTITIONS),
        (new("n", 10001), ErrorCode.POLICY_VIOLATION),
        (new("n", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new("n", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new("n", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new("n", -1, -1, assignments=assigned((1, [1]), (0, [1]))), ErrorCode.NONE),
        (new("n", -1, 1, assignments=assigned((0, [1]))), ErrorCode.INVALID_REQUEST),
        (new("n", 1, -1, assignments=assigned((0, [1]))), ErrorCode.INVALID_REQUEST),
        (new("n", -1, -1, assignments=assigned((0, [2]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("n", -1, -1, assignments=assigned((0, [1, 2]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("n", -1, -1, assignments=assigned((0, [1, 1]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("n", -1, -1, assignments=assigned((0, []))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("n", -1, -1, assignments=assigned((1, [1]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            new("n", -1, -1, assignments=assigned((0, [1]), (0, [1]))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (new("n", configs=[CreateTopicsRequest.CreatableTopicConfig(name="x", value="1")]), 40),
        (
            new(
                "n",
                configs=[CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="x")],
            ),
            40,
        ),
        (
            new(
                "n",
                configs=[CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value=None)],
            ),
            40,
        ),
    ],
)
def test_create_topics_is_checked(
    client: RawClient, three: dict[str, UUID], topic: CreateTopicsRequest.CreatableTopic, error: int
) -> None:
    for validate_only in (True, False):
        before = listed(client)
        [result] = create(client, topic, validate_only=validate_only)
        assert (result.name, result.error_code) == (topic.name, error)
        assert (result.error_message is None) == (error == ErrorCode.NONE)
        added = listed(client).keys() - before.keys()
        assert added == ({topic.name} if error == ErrorCode.NONE and not validate_only else set())


def test_create_topics_refuses_a_name_that_stands_twice(client: RawClient) -> None:
    results = create(client, new("twice"), new("once"), new("twice"))
    assert [(result.name, result.error_code) for result in results] == [
        ("twice", ErrorCode.INVALID_REQUEST),
        ("once", ErrorCode.NONE),
    ]
    assert list(listed(client)) == ["once"]


# CreatePartitions.


def grow(
    client: RawClient,
    *topics: tuple[str, int, list[list[int]] | None],
    version: int | None = None,
    validate_only: bool = False,
) -> list[tuple[str, int]]:
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsRequest.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=(
                    None
                    if assignments is None
                    else [
                        CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=ids)
                        for ids in assignments
                    ]
                ),
            )
            for name, count, assignments in topics
        ],
        timeout_ms=1000,
        validate_only=validate_only,
    )
    results = client.call(request, version).results
    for result in results:
        assert (result.error_message is None) == (result.error_code == ErrorCode.NONE)
    return [(result.name, result.error_code) for result in results]


@pytest.mark.parametrize("version", versions(CreatePartitionsRequest))
def test_create_partitions(client: RawClient, three: dict[str, UUID], version: int) -> None:
    tried = grow(client, ("one", 2, None), version=version, validate_only=True)
    assert tried == [("one", ErrorCode.NONE)]
    assert listed(client)["one"] == 1
    assert grow(
        client, ("one", 2, None), ("two", 5, [[1], [1]]), ("nope", 2, None), version=version
    ) == [
        ("one", ErrorCode.NONE),
        ("two", ErrorCode.NONE),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert listed(client) == {"one": 2, "two": 5, "three.x": 2}


@pytest.mark.parametrize(
    ("count", "assignments", "error"),
    [
        (3, None, ErrorCode.INVALID_PARTITIONS),
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (0, None, ErrorCode.INVALID_PARTITIONS),
        (-1, None, ErrorCode.INVALID_PARTITIONS),
        (20000, None, ErrorCode.POLICY_VIOLATION),
        (4, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (5, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (4, [[2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (4, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (4, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_create_partitions_is_checked(
    client: RawClient,
    three: dict[str, UUID],
    count: int,
    assignments: list[list[int]] | None,
    error: int,
) -> None:
    assert grow(client, ("two", count, assignments)) == [("two", error)]
    assert grow(client, ("two", 9, None), ("two", 8, None)) == [("two", ErrorCode.INVALID_REQUEST)]
    assert listed(client)["two"] == 3


# DeleteTopics.


@pytest.mark.parametrize("version", versions(DeleteTopicsRequest))
def test_delete_topics(
    broker: Broker, client: RawClient, three: dict[str, UUID], version: int
) -> None:
    append(client, "two", 1)
    names = ["two", "nope", "one"]
    request = DeleteTopicsRequest(timeout_ms=1000)
    if version >= 6:
        request.topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    else:
        request.topic_names = names
    results = client.call(request, version).responses
    assert [(result.name, result.error_code) for result in results] == [
        ("two", ErrorCode.NONE),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("one", ErrorCode.NONE),
    ]
    if version >= 5:
        assert results[0].error_message is None
        assert results[1].error_message
    if version >= 6:
        assert [result.topic_id for result in results] == [three["two"], NULL_UUID, three["one"]]
    assert listed(client) == {"three.x": 2}
    assert broker.call(broker.logs.get, "two", 0) is None
    # The name is free again, and a new topic has no records of the old one.
    [again] = create(client, new("two", 3))
    assert again.topic_id != three["two"]
    log = broker.call(broker.logs.get, "two", 0)
    assert log is not None and log.end_offset == 0


def test_delete_topics_by_id(client: RawClient, three: dict[str, UUID]) -> None:
    def delete(*topics: tuple[str | None, UUID]) -> list[tuple[str | None, UUID, int]]:
        wanted = [
            DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=id_) for name, id_ in topics
        ]
        results = client.call(DeleteTopicsRequest(topics=wanted, timeout_ms=1000)).responses
        return [(result.name, result.topic_id, result.error_code) for result in results]

    one, two = three["one"], three["two"]
    invalid = ErrorCode.INVALID_REQUEST
    assert delete((None, NULL_UUID)) == [(None, NULL_UUID, invalid)]
    assert delete(("one", one)) == [("one", one, invalid)]
    assert delete(("one", NULL_UUID), ("one", NULL_UUID)) == [("one", NULL_UUID, invalid)]
    assert delete((None, one), (None, one)) == [(None, one, invalid)]
    assert delete((None, one), ("one", NULL_UUID)) == [("one", one, invalid)]
    assert sorted(listed(client)) == sorted(three)
    assert delete((None, one), (None, UNKNOWN_ID), ("two", NULL_UUID)) == [
        ("two", two, ErrorCode.NONE),
        ("one", one, ErrorCode.NONE),
        (None, UNKNOWN_ID, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert listed(client) == {"three.x": 2}


@pytest.mark.parametrize("version", versions(DeleteTopicsRequest))
def test_deletion_can_be_off(version: int) -> None:
    with (
        Broker.start(properties={"delete.topic.enable": "false"}) as broker,
        RawClient(broker.port) as client,
    ):
        create(client, new("kept"))
        request = DeleteTopicsRequest(timeout_ms=1000)
        if version >= 6:
            request.topics = [DeleteTopicsRequest.DeleteTopicState(name="kept")]
        else:
            request.topic_names = ["kept"]
        [result] = client.call(request, version).responses
        assert result.error_code == (
            ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        )
        assert list(listed(client)) == ["kept"]


# DeleteRecords.


@pytest.mark.parametrize("version", versions(DeleteRecordsRequest))
def test_delete_records(broker: Broker, client: RawClient, version: int) -> None:
    compact = CreateTopicsRequest.CreatableTopicConfig(name="cleanup.policy", value="compact")
    both = CreateTopicsRequest.CreatableTopicConfig(name="cleanup.policy", value="compact,delete")
    create(client, new("t"), new("c", configs=[compact]), new("b", configs=[both]))
    client.call(MetadataRequest(topics=[MetadataRequest.Topic(name="__consumer_offsets")]))
    for topic in ("t", "c", "b"):
        append(client, topic, 5)

    def delete(topic: str, offset: int, partition: int = 0) -> tuple[int, int]:
        where = DeleteRecordsRequest.DeleteRecordsPartition(
            partition_index=partition, offset=offset
        )
        topics = [DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[where])]
        response = client.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000), version)
        [result] = response.topics[0].partitions
        assert (response.topics[0].name, result.partition_index) == (topic, partition)
        return result.low_watermark, result.error_code

    assert delete("t", 2) == (2, ErrorCode.NONE)
    assert delete("t", 1) == (2, ErrorCode.NONE)
    assert delete("t", 6) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert delete("t", -2) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert delete("t", -1) == (5, ErrorCode.NONE)
    assert delete("b", 5) == (5, ErrorCode.NONE)
    assert delete("c", 1) == (-1, ErrorCode.POLICY_VIOLATION)
    assert delete("t", 0, partition=1) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete("nope", 0) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete("__consumer_offsets", 0) == (-1, ErrorCode.INVALID_TOPIC_EXCEPTION)
    log = broker.call(broker.logs.get, "t", 0)
    assert log is not None and (log.log_start_offset, log.end_offset) == (5, 5)


# DescribeCluster and DescribeLogDirs.


@pytest.mark.parametrize("version", versions(DescribeClusterRequest))
def test_describe_cluster(broker: Broker, client: RawClient, version: int) -> None:
    for asked in (False, True):
        request = DescribeClusterRequest(include_cluster_authorized_operations=asked)
        response = client.call(request, version)
        assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
        assert response.cluster_id == broker.cluster.cluster_id
        assert response.controller_id == 1
        [node] = response.brokers
        assert (node.broker_id, node.host, node.port) == (1, "127.0.0.1", broker.port)
        assert not node.is_fenced
        assert response.cluster_authorized_operations == (
            CLUSTER_OPERATIONS if asked else NOT_ASKED
        )
    if version >= 1:
        for kind, error in (
            (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        ):
            response = client.call(DescribeClusterRequest(endpoint_type=kind), version)
            assert response.error_code == error
            assert response.error_message
            assert response.brokers == []


@pytest.mark.parametrize("version", versions(DescribeLogDirsRequest))
def test_describe_log_dirs(
    broker: Broker, client: RawClient, three: dict[str, UUID], version: int
) -> None:
    append(client, "one", 3)
    [everything] = client.call(DescribeLogDirsRequest(topics=None), version).results
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in everything.topics
        for partition in topic.partitions
    }
    assert sizes.keys() == {
        ("one", 0),
        *(("two", index) for index in range(3)),
        *(("three.x", index) for index in range(2)),
    }
    folder = Path(everything.log_dir)
    assert folder == broker.config.log_dirs[0]
    assert sizes["one", 0] == (folder / "one-0" / f"{0:020}.log").stat().st_size > 0
    assert sizes["two", 0] == 0
    if version >= 4:
        assert 0 < everything.usable_bytes <= everything.total_bytes
    some = DescribeLogDirsRequest(
        topics=[
            DescribeLogDirsRequest.DescribableLogDirTopic(topic="two", partitions=[1, 7]),
            DescribeLogDirsRequest.DescribableLogDirTopic(topic="nope", partitions=[0]),
        ]
    )
    [result] = client.call(some, version).results
    assert [
        (topic.name, [each.partition_index for each in topic.partitions]) for topic in result.topics
    ] == [("two", [1])]
    [result] = client.call(DescribeLogDirsRequest(topics=[]), version).results
    assert result.topics == []


def test_describe_log_dirs_of_several_folders(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    with (
        Broker.start(properties={"log.dirs": ",".join(map(str, folders))}) as broker,
        RawClient(broker.port) as client,
    ):
        create(client, new("t", 4))
        results = client.call(DescribeLogDirsRequest(topics=None)).results
        assert [Path(result.log_dir) for result in results] == folders
        held = [
            each.partition_index
            for result in results
            for topic in result.topics
            for each in topic.partitions
        ]
        assert sorted(held) == [0, 1, 2, 3]


# Topics that were created remain.


def test_topics_are_there_after_a_restart(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        made = create(client, new("kept", 2), new("gone"))
        client.call(
            DeleteTopicsRequest(
                topics=[DeleteTopicsRequest.DeleteTopicState(name="gone")], timeout_ms=1000
            )
        )
        grow(client, ("kept", 3, None))
        append(client, "kept", 2)
        cluster_id = broker.cluster.cluster_id
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        response = client.call(MetadataRequest(topics=None))
        assert response.cluster_id == cluster_id
        [topic] = response.topics
        assert (topic.name, topic.topic_id, len(topic.partitions)) == ("kept", made[0].topic_id, 3)
        log = broker.call(broker.logs.get, "kept", 0)
        assert log is not None and log.end_offset == 2


def test_folders_of_a_topic_whose_deletion_a_crash_has_cut_short_are_not_taken_over(
    tmp_path: Path,
) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        create(client, new("t"))
        append(client, "t", 3)
        # The first step of DeleteTopics; the crash happens before the logs are deleted.
        broker.call(broker.cluster.delete_topic, broker.cluster.topics["t"])
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert listed(client) == {}
        create(client, new("t"))
        log = broker.call(broker.logs.get, "t", 0)
        assert log is not None and log.end_offset == 0


# With librdkafka's admin client.


def test_admin_client(client: RawClient, admin: AdminClient) -> None:
    made = admin.create_topics(
        [NewTopic("one", 1, 1, config={"retention.ms": "1000"}), NewTopic("two", num_partitions=2)]
    )
    for future in made.values():
        future.result(PATIENCE)
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic("one", 1, 1)])["one"].result(PATIENCE)
    assert caught.value.args[0].code() == ErrorCode.TOPIC_ALREADY_EXISTS
    metadata = admin.list_topics(timeout=PATIENCE)
    assert {name: len(topic.partitions) for name, topic in metadata.topics.items()} == {
        "one": 1,
        "two": 2,
    }
    assert metadata.controller_id == 1
    admin.create_partitions([NewPartitions("one", 3)])["one"].result(PATIENCE)
    with pytest.raises(KafkaException) as caught:
        admin.create_partitions([NewPartitions("one", 2)])["one"].result(PATIENCE)
    assert caught.value.args[0].code() == ErrorCode.INVALID_PARTITIONS
    assert listed(client) == {"one": 3, "two": 2}
    append(client, "one", 4)
    [deleted] = admin.delete_records([TopicPartition("one", 0, 3)]).values()
    assert deleted.result(PATIENCE).low_watermark == 3
    for future in admin.delete_topics(["one"]).values():
        future.result(PATIENCE)
    with pytest.raises(KafkaException) as caught:
        admin.delete_topics(["one"])["one"].result(PATIENCE)
    assert caught.value.args[0].code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert listed(client) == {"two": 2}


def test_admin_client_describes(broker: Broker, client: RawClient, admin: AdminClient) -> None:
    from confluent_kafka import TopicCollection

    create(client, new("one", 2))
    cluster = admin.describe_cluster(include_authorized_operations=True).result(PATIENCE)
    assert cluster.cluster_id == broker.cluster.cluster_id
    assert [(node.id, node.port) for node in cluster.nodes] == [(1, broker.port)]
    assert len(cluster.authorized_operations) == 7
    futures = admin.describe_topics(TopicCollection(["one"]), include_authorized_operations=True)
    topic = futures["one"].result(PATIENCE)
    assert [partition.leader.id for partition in topic.partitions] == [1, 1]
    assert len(topic.authorized_operations) == 8
