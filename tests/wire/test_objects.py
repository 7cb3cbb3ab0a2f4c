"""Objects of generated classes: dictionaries with wrong values, classes of users, and pickles of older definitions."""

from __future__ import annotations

import copy
import pickle
from typing import Any
from uuid import UUID

import kafka_wire
import pytest
from kafka_wire import CreateTopicsRequest, FetchRequest, MetadataRequest, RecordBatch

from krammar.wire.errors import EncodeError
from krammar.wire.message import Codec, Struct

# A value of each type in JSON, by what the type accepts.
VALUES: dict[str, Any] = {
    "int": 5,
    "float": 0.5,
    "bool": True,
    "text": "a",
    "list": [],
    "list of int": [1],
    "list of text": ["a"],
    "object": {},
    "unknown field": {"no_such_field": 1},
}


def fitting(default: Any) -> set[str]:
    """Which of the values could have the type of a field with this default."""
    if isinstance(default, bool):
        return {"bool"}
    if isinstance(default, int):
        return {"int", "bool"}
    if isinstance(default, float):
        return {"int", "float", "bool"}
    if isinstance(default, list):
        return {"list", "list of int", "list of text"}
    return {"object"} if isinstance(default, Struct) else {"text"}


def classes() -> list[type[Codec]]:
    found = (getattr(kafka_wire, name) for name in kafka_wire.__all__)
    return [cls for cls in found if isinstance(cls, type) and issubclass(cls, Codec)]


def test_from_dict_refuses_values_of_another_type() -> None:
    refused = 0
    for cls in classes():
        value = cls()
        for name in cls._fields:
            default = getattr(value, name)
            if default is None or isinstance(default, (bytes, UUID)):
                continue
            for kind in VALUES.keys() - fitting(default):
                with pytest.raises(EncodeError, match=name):
                    cls.from_dict({name: VALUES[kind]})
                refused += 1
    assert refused > 3000


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"topics": [1]}, "topics[0]: Topic.from_dict needs a dictionary, not int"),
        ({"topics": [{"name": 5}]}, "topics[0].name"),
        ({"topics": [{"topic_id": "x"}]}, "topics[0].topic_id"),
        ({"unknown_tags": 3}, "unknown_tags: 3 is not"),
        ({"unknown_tags": {"x": "AA=="}}, "unknown_tags"),
        ({"unknown_tags": {"1": "!!"}}, "unknown_tags"),
        ({"unknown_tags": {"1": 5}}, "unknown_tags"),
        ({"unknown_tags": {"-1": "AA=="}}, "unknown_tags"),
    ],
)
def test_errors_name_the_place(values: dict[str, Any], message: str) -> None:
    with pytest.raises(EncodeError) as caught:
        MetadataRequest.from_dict(values)
    assert message in str(caught.value)


class Mine(MetadataRequest):
    """A class of a user, with an attribute of its own."""

    note = ""

    def names(self) -> list[str | None]:
        return [topic.name for topic in self.topics or ()]


class Deeper(Mine):
    pass


def test_a_class_of_the_user_decodes_to_itself() -> None:
    plain = MetadataRequest(topics=[MetadataRequest.Topic(name="a")])
    plain.unknown_tags[9] = b"x"
    for cls in (Mine, Deeper):
        for version in (9, 12):
            data = plain.encode(version)
            value = cls.decode(data, version)
            assert type(value) is cls
            assert value.names() == ["a"]
            assert value.unknown_tags == {9: b"x"}
            assert value.encode(version) == data
            assert value.to_dict() == plain.to_dict()
            assert cls.decode_from(b"." + data, 1, version) == (value, 1 + len(data))
            assert type(MetadataRequest.decode(data, version)) is MetadataRequest
        value.note = "kept"
        assert pickle.loads(pickle.dumps(value)).note == "kept"
        assert type(cls.from_dict(plain.to_dict())) is cls


def test_a_field_that_a_pickle_does_not_have_gets_its_default() -> None:
    for cls in (MetadataRequest, CreateTopicsRequest, FetchRequest):
        value = cls()
        for missing in (*cls._fields, "_unknown_tags"):
            build, arguments, state = value.__reduce_ex__(2)[:3]
            assert isinstance(state, tuple)
            found = build(*arguments)
            found.__setstate__((state[0], {k: v for k, v in state[1].items() if k != missing}))
            assert found == value == copy.deepcopy(found)
            assert found.encode(cls.max_version) == value.encode(cls.max_version)


def test_length_fields_are_ignored_where_they_do_not_exist() -> None:
    assert RecordBatch().with_lengths() == RecordBatch()
