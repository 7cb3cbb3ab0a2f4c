"""What ``fields`` says about generated classes, and walkers to the values of an entity."""

from __future__ import annotations

from typing import Any

import kafka_wire
import pytest
from kafka_wire import FetchRequest, MetadataRequest, MetadataResponse, OffsetFetchRequest

from krammar.wire.errors import UnsupportedVersionError
from krammar.wire.layout import INT8, Array, Field, Layout, Nested
from krammar.wire.message import Struct
from krammar.wire.reflection import FieldInfo, entity_paths, fields, walker
from tests.generated.catalogue import by_name


def field(cls: type[Struct], name: str) -> FieldInfo:
    return {info.name: info for info in fields(cls)}[name]


def test_fields_in_the_order_of_the_definition() -> None:
    assert tuple(info.name for info in fields(FetchRequest)) == FetchRequest._fields
    topics = field(FetchRequest, "topics")
    assert (topics.type, topics.struct) == ("[FetchRequest.FetchTopic]", FetchRequest.FetchTopic)
    assert (topics.default, topics.versions, topics.tag) == ((), range(19), None)
    assert topics.doc.startswith("A topic to read from.") and topics.owner is FetchRequest


def test_versions_nulls_tags_and_defaults() -> None:
    cluster = field(FetchRequest, "cluster_id")
    assert (cluster.versions, cluster.nullable_versions) == (range(12, 19), range(12, 19))
    assert (cluster.tag, cluster.default, cluster.ignorable) == (0, None, True)
    assert cluster.doc.endswith("Null skips the check.")  # without versions, tag and default
    topic = field(FetchRequest.FetchTopic, "topic")
    assert (topic.type, topic.versions, topic.entity) == ("string", range(13), "topicName")
    assert (len(topic.nullable_versions), topic.ignorable) == (0, True)
    nullable = field(MetadataRequest, "topics")
    assert (nullable.versions[0], nullable.nullable_versions[0]) == (0, 1)
    state = field(FetchRequest, "replica_state")
    assert (
        state.default == FetchRequest.ReplicaState() and state.struct is FetchRequest.ReplicaState
    )


def test_types_and_enums() -> None:
    isolation = field(FetchRequest, "isolation_level")
    assert (isolation.type, isolation.enum) == ("enum-IsolationLevel", kafka_wire.IsolationLevel)
    partitions = field(OffsetFetchRequest.Topic, "partition_indexes")
    assert (partitions.type, partitions.struct) == ("[int32]", None)
    key = field(kafka_wire.OffsetCommitKey, "group")
    assert key.versions == range(1 << 15)  # the definition names no last version


@pytest.mark.parametrize("cls", [int, Struct, 3], ids=repr)
def test_other_classes_have_no_fields(cls: Any) -> None:
    with pytest.raises(TypeError, match="is not a class that krammar generated"):
        fields(cls)
    with pytest.raises(TypeError, match="is not a class that krammar generated"):
        walker(cls, 0, "topicName")


def test_a_walker_collects_and_replaces() -> None:
    topics = [MetadataResponse.Topic(name=name) for name in ("a", None, "b")]
    response = MetadataResponse(topics=topics)
    walk = walker(MetadataResponse, 12, "topicName")
    seen: list[str] = []

    walk(response, seen.append)
    assert seen == ["a", "b"]
    walk(response, lambda name: f"test-{name}")
    assert [topic.name for topic in response.topics] == ["test-a", None, "test-b"]
    walker(MetadataResponse, 12, "groupId")(response, lambda name: pytest.fail(name))


def test_a_walker_replaces_elements_of_arrays() -> None:
    request = kafka_wire.DeleteGroupsRequest(groups_names=["a", "b"])
    walker(kafka_wire.DeleteGroupsRequest, 2, "groupId")(request, str.upper)
    assert request.groups_names == ["A", "B"]


def test_only_fields_of_the_version_are_visited() -> None:
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic="a")])
    for version, expected in ((12, ["a"]), (13, [])):
        seen: list[str] = []
        walker(FetchRequest, version, "topicName")(request, seen.append)
        assert seen == expected
    assert entity_paths(FetchRequest, 12, "topicName") == (
        "topics[].topic",
        "forgotten_topics_data[].topic",
    )
    assert entity_paths(FetchRequest, 17, "brokerId", "topicName") == ("replica_state.replica_id",)


def test_walkers_of_nothing() -> None:
    with pytest.raises(ValueError, match="at least one entity"):
        walker(FetchRequest, 12)
    with pytest.raises(TypeError, match="FetchTopic cannot be encoded alone: walk the message"):
        walker(FetchRequest.FetchTopic, 12, "topicName")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedVersionError):
        walker(FetchRequest, 99, "topicName")


def test_layouts_document_their_fields_as_classes_do() -> None:
    """In all messages, and in the structs that they contain or share."""
    compared = documented = 0
    for message in by_name().values():
        cls: Any = message.cls
        for version in (cls.min_version, cls.max_version):
            todo = [cls._layout(version)]
            while todo:
                layout = todo.pop()
                owner: Any = kafka_wire
                for name in layout.name.split("."):
                    owner = getattr(owner, name)
                docs = {item.name: item.doc for item in fields(owner)}
                for item in (*layout.fields, *layout.tags, *layout.absent):
                    assert item.doc == docs[item.name], (layout.title, item.name)
                    compared += 1
                    documented += bool(item.doc)
                    inner = item.type
                    while isinstance(inner, Array):
                        inner = inner.element
                    todo += [inner.layout] if isinstance(inner, Nested) else []
    assert documented > compared / 2
    assert compared > 3000


def test_a_field_of_a_layout_made_by_hand_has_no_documentation() -> None:
    assert Layout("S", 0, False, (Field("a", INT8, "v0+"),)).field("a").doc == ""
