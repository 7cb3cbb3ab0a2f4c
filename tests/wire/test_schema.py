"""Layouts as values: what they write and refuse, and their repr."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import kafka_wire
import pytest

from krammar.wire.errors import DecodeError, EncodeError
from krammar.wire.layout import (
    BOOL,
    DEFAULTS,
    FLOAT64,
    INT16,
    INT32,
    NO_DEFAULT,
    UINT32,
    UUID_,
    VARINT,
    VARLONG,
    Array,
    Field,
    Layout,
    Nested,
    Sized,
    Text,
    Versioned,
)
from tests.odd_values import FORGED, Index, Odd, Plain, forged

# -- values that only seem to fit ----------------------------------------------------------------


@pytest.mark.parametrize("number", FORGED, ids=repr)
def test_a_forged_uuid_is_refused(number: Any) -> None:
    topic = kafka_wire.MetadataRequest.Topic(name="orders", topic_id=forged(number))
    request = kafka_wire.MetadataRequest(topics=[topic])
    plain = {"topics": [{"name": "orders", "topic_id": forged(number)}]}
    layout = kafka_wire.layout(kafka_wire.MetadataRequest, 12)
    for write in (lambda: request.encode(12), lambda: layout.write(plain)):
        with pytest.raises(EncodeError, match=r"needs a uuid\.UUID") as caught:
            write()
        assert caught.value.path == "topics[0].topic_id"


def test_a_list_that_iterates_in_its_own_way_is_refused() -> None:
    topics = [kafka_wire.MetadataRequest.Topic(name=name) for name in "ab"]
    request = kafka_wire.MetadataRequest(topics=topics)
    data = request.encode(12)
    layout = kafka_wire.layout(kafka_wire.MetadataRequest, 12)
    request.topics = Plain(topics)
    assert request.encode(12) == layout.write(request) == data
    request.topics = Odd(topics)
    for write in (lambda: request.encode(12), lambda: layout.write(request)):
        with pytest.raises(EncodeError, match="Odd has an __iter__") as caught:
            write()
        assert caught.value.path == "topics"


def test_integers_may_be_objects_with_index() -> None:
    """As ``struct`` accepts them; a varint needs an int in either way of writing."""
    layout = kafka_wire.layout(kafka_wire.HeartbeatRequest, 4)
    request = kafka_wire.HeartbeatRequest(generation_id=Index(7))  # type: ignore[arg-type]
    data = kafka_wire.HeartbeatRequest(generation_id=7).encode(4)
    assert request.encode(4) == layout.write({"generation_id": Index(7)}) == data
    record = kafka_wire.Record(length=Index(7))  # type: ignore[arg-type]
    for write in (
        lambda: record.encode(0),
        lambda: kafka_wire.layout(kafka_wire.Record, 0).write(record),
    ):
        with pytest.raises(EncodeError, match="needs an int, not ") as caught:
            write()
        assert caught.value.path == "length"


# -- looking up fields -----------------------------------------------------------------------------

STRING = Text("string", "int16", False)
POINT = Layout("Point", 0, False, (Field("x", INT32, "v0+"), Field("y", INT32, "v0+", 7)))


def test_fields_by_name_and_index() -> None:
    layout = kafka_wire.layout(kafka_wire.FetchRequest, 17)
    assert layout.field("topics") is layout.field(6) is layout.fields[6]
    assert [layout.field(i).index for i in range(11)] == list(range(11))
    # Tagged fields come last.
    assert layout.field("replica_state").index == 10 and layout.field(10).tag == 1
    topic = layout.field("topics").type.element.layout
    assert topic.field("topic_id").index == 0
    with pytest.raises(
        KeyError, match=r"FetchRequest v17 has no field 'topic': it has max_wait_ms,"
    ):
        layout.field("topic")
    for index in (-1, 11):
        with pytest.raises(IndexError, match=f"FetchRequest v17 has no field {index}: it has 11 "):
            layout.field(index)


def test_fields_have_defaults() -> None:
    request = kafka_wire.layout(kafka_wire.FetchRequest, 17)
    assert request.field("max_bytes").default == 0x7FFFFFFF
    assert request.field("topics").default == ()
    assert request.field("cluster_id").default is None
    assert request.field("replica_state").default is DEFAULTS
    assert (Field("a", INT16, "v0+").default, Field("a", INT16, "v0+").index) == (NO_DEFAULT, -1)
    assert repr(NO_DEFAULT) == "NO_DEFAULT"


def test_a_field_of_two_layouts_has_an_index_in_each() -> None:
    shared = Field("a", INT16, "v0+")
    first = Layout("First", 0, False, (shared,))
    second = Layout("Second", 0, False, (Field("b", INT16, "v0+"), shared))
    assert (first.field("a").index, second.field("a").index) == (0, 1)
    assert second.at(5).field("b") == second.field("b")


def test_names_and_tags_are_unique() -> None:
    a, tagged = Field("a", INT16, "v0+"), Field("a", INT16, "v0+", 0, tag=0)
    with pytest.raises(ValueError, match="Twice v3: two fields have the name 'a'"):
        Layout("Twice", 3, False, (a, Field("b", INT16, "v0+"), Field("a", INT32, "v0+")))
    with pytest.raises(ValueError, match="Twice v3: two fields have the name 'a'"):
        Layout("Twice", 3, True, (a,), (tagged,))
    with pytest.raises(ValueError, match="another field has the tag 0 of 'b' too"):
        Layout("Twice", 3, True, (), (tagged, Field("b", INT16, "v0+", 0, tag=0)))
    with pytest.raises(ValueError, match="the tagged field 'b' needs a default"):
        Layout("Twice", 3, True, (), (Field("b", INT16, "v0+", tag=0),))


def test_a_field_without_default_needs_a_value() -> None:
    assert POINT.write({"x": 1}) == POINT.write({"x": 1, "y": 7})
    outer = Layout("Outer", 2, False, (Field("at", Nested(POINT, False), "v0+", DEFAULTS),))
    assert outer.write({"at": {"x": 1, "y": 2}}) == POINT.write({"x": 1, "y": 2})
    for layout, values, path in (
        (POINT, {"y": 1}, "x"),
        (outer, {"at": {}}, "at.x"),
        (outer, {}, "at.x"),
    ):
        with pytest.raises(
            EncodeError, match=f"{path}: needs a value, since the field has no def"
        ) as e:
            layout.write(values)
        assert e.value.path == path


def test_an_attribute_that_was_deleted_is_named() -> None:
    request = kafka_wire.HeartbeatRequest()
    del request.generation_id
    with pytest.raises(EncodeError, match="has no such field") as caught:
        request.encode(4)
    assert caught.value.path == "generation_id"


# -- validate and size_of --------------------------------------------------------------------------


@pytest.mark.parametrize("make", ["dictionary", "message"])
def test_layouts_validate_and_measure(make: str) -> None:
    layout = kafka_wire.layout(kafka_wire.MetadataRequest, 12)

    def values(**topic: Any) -> Any:
        if make == "dictionary":
            return {"topics": [{"name": "a"}, topic]}
        topics = [kafka_wire.MetadataRequest.Topic(**each) for each in ({"name": "a"}, topic)]
        return kafka_wire.MetadataRequest(topics=topics)

    good = values(name="orders")
    assert layout.validate(good) is good
    assert layout.size_of(good) == len(layout.write(good)) == 1 + 2 * (16 + 1 + 1) + 1 + 6 + 3
    for check in (layout.validate, layout.size_of):
        with pytest.raises(
            EncodeError, match=r"^MetadataRequest v12: topics\[1\]\.name: needs a str"
        ) as e:
            check(values(name=5))
        assert e.value.path == "topics[1].name"
    with pytest.raises(EncodeError, match="needs MetadataRequest, not int 5"):
        layout.validate(5)


GOOD_AND_BAD: list[tuple[Any, bool, list[tuple[Any, int]], list[Any]]] = [
    (BOOL, False, [(True, 1), (False, 1)], [None, 2, "x"]),
    (INT16, False, [(0, 2), (-32768, 2)], [None, 32768, 1.5]),
    (UINT32, False, [(0xFFFFFFFF, 4)], [-1, None]),
    (FLOAT64, False, [(1.5, 8), (2, 8)], ["x", None]),
    (UUID_, False, [(UUID(int=5), 16)], ["x", None]),
    (VARINT, False, [(0, 1), (-65, 2), (2**31 - 1, 5)], [2**31, None, 1.0]),
    (VARLONG, False, [(2**63 - 1, 10)], [2**63]),
    (STRING, False, [("é", 4)], [None, b"x", "\ud800", "x" * 32768]),
    (Text("string", "uvarint", True), True, [(None, 1), ("x" * 127, 129)], [5]),
    (Text("bytes", "int32", True, True), True, [(None, 4), (b"xy", 6)], ["x"]),
    (Array(INT32, "int32", False), False, [([], 4), ((1, 2), 12)], [None, 5, [None], "ab"]),
    (Array(STRING, "uvarint", True), True, [(None, 1), (["a"], 4)], [[None]]),
    (Nested(POINT, False), False, [({"x": 1}, 8)], [None, {}, {"x": 1, "z": 2}]),
    (Nested(POINT, True), True, [(None, 1), ({"x": 1}, 9)], [5]),
    (Sized("length", 4), False, [(b"abc", 3)], [None]),
]


@pytest.mark.parametrize(("type_", "nullable", "good", "bad"), GOOD_AND_BAD, ids=str)
def test_types_validate_and_measure(
    type_: Any, nullable: bool, good: list[tuple[Any, int]], bad: list[Any]
) -> None:
    assert type_.nullable is nullable
    for value, size in good:
        assert type_.validate(value) is value
        assert type_.size_of(value) == size
    for value in bad:
        for check in (type_.validate, type_.size_of):
            with pytest.raises(EncodeError) as caught:
                check(value)
            assert str(caught.value).startswith(f"{type_}: ")


def test_types_name_the_path_inside() -> None:
    with pytest.raises(EncodeError, match=r"^\[Point\]: \[1\]\.x: 2147483648 is outside") as caught:
        Array(Nested(POINT, False), "int32", False).validate([{"x": 1}, {"x": 2**31}])
    assert caught.value.path == "[1].x"


def test_a_versioned_struct_validates_by_its_own_version() -> None:
    type_ = Versioned("OffsetCommitValue", "kafka_wire.layouts.consumer_offsets")
    assert not type_.nullable
    value = kafka_wire.OffsetCommitValue(version=1, offset=5, metadata="m")
    assert type_.size_of(value) == len(value.encode())
    with pytest.raises(EncodeError, match="offset: needs an integer") as caught:
        type_.validate({"version": 1, "offset": "x"})
    assert caught.value.path == "offset"


# -- another message's layout ----------------------------------------------------------------------


def test_a_request_is_no_response() -> None:
    """Its bytes and the object are refused, although the layout has only fields that it has too."""
    request = kafka_wire.MetadataRequest(topics=[kafka_wire.MetadataRequest.Topic(name="orders")])
    layout = kafka_wire.layout(kafka_wire.MetadataResponse, 12)
    with pytest.raises(DecodeError, match=r"^MetadataResponse v12: "):
        layout.read(request.encode(12))
    with pytest.raises(
        EncodeError, match=r"^MetadataResponse v12: needs MetadataResponse, not Meta"
    ):
        layout.write(request)
    empty = kafka_wire.layout(kafka_wire.UnregisterControllerResponse, 0)
    commit = kafka_wire.layout(kafka_wire.HeartbeatResponse, 0)
    with pytest.raises(EncodeError, match="needs HeartbeatResponse, not LeaveGroupResponse"):
        commit.write(kafka_wire.LeaveGroupResponse())
    assert empty.write(kafka_wire.UnregisterControllerResponse())


def test_a_subclass_is_encoded_like_its_base() -> None:
    class Own(kafka_wire.HeartbeatResponse):
        __slots__ = ()

    layout = kafka_wire.layout(kafka_wire.HeartbeatResponse, 0)
    assert layout.write(Own(error_code=5)) == b"\0\5"


# -- the protocol guide's notation -----------------------------------------------------------------


def test_a_layout_prints_as_the_protocol_guide_does() -> None:
    assert str(kafka_wire.layout(kafka_wire.ProduceRequest, 8)) == """\
ProduceRequest (Version: 8) => transactional_id acks timeout_ms [topic_data]
  transactional_id => NULLABLE_STRING
  acks => INT16
  timeout_ms => INT32
  topic_data => name [partition_data]
    name => STRING
    partition_data => index records
      index => INT32
      records => RECORDS"""
    flexible = str(kafka_wire.layout(kafka_wire.FetchResponse, 17))
    assert "\n      records => COMPACT_RECORDS\n" in flexible
    assert "nullable[aborted_transactions]" in flexible
    assert "\n      <tag 0> diverging_epoch => epoch end_offset _tagged_fields\n" in flexible
    assert "\n  <tag 0> [node_endpoints] => node_id host port rack _tagged_fields\n" in flexible
    snapshot = str(kafka_wire.layout(kafka_wire.FetchSnapshotResponse, 0))
    assert "unaligned_records => COMPACT_RECORDS" in snapshot
    assert str(kafka_wire.layout(kafka_wire.SaslHandshakeRequest, 0)) == (
        "SaslHandshakeRequest (Version: 0) => mechanism\n  mechanism => STRING"
    )
    assert str(Layout("Empty", 4, False, ())) == "Empty (Version: 4) =>"
    nested = Layout(
        "Mixed",
        0,
        False,
        (
            Field("rows", Array(Array(INT16, "int32", False), "int32", True), "v0+"),
            Field("some", Array(INT16, "varint", False), "v0+"),
            Field("maybe", Nested(POINT, True), "v0+"),
        ),
    )
    assert str(nested).splitlines() == [
        "Mixed (Version: 0) => nullable[[rows]] varint[some] nullable(maybe)",
        "  rows => INT16",
        "  some => INT16",
        "  maybe => x y",
        "    x => INT32",
        "    y => INT32",
    ]


def test_bytes_after_a_value_are_an_error() -> None:
    layout = kafka_wire.layout(kafka_wire.HeartbeatRequest, 4)
    data = kafka_wire.HeartbeatRequest(group_id="g", member_id="m").encode(4)
    assert layout.read(data)["group_id"] == "g"
    with pytest.raises(DecodeError, match=f"1 bytes left over at offset {len(data)}") as caught:
        layout.read(data + b"x")
    assert caught.value.offset == len(data)
