"""Walks over bytes: the engine, pure Python and decoding find the same places and numbers of elements."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import kafka_wire
import pytest

from krammar.wire import skip
from krammar.wire.errors import UnsupportedVersionError
from krammar.wire.reflection import walker
from krammar.wire.skip import TAGGED, walk_of
from tests.generated.catalogue import Message
from tests.generated.mutations import mutations
from tests.generated.parameters import every_codec
from tests.wire import every_form
from tests.wire.both import needs_engine
from tests.wire.test_engine import FEW, MANY, SEED_LIMIT, encoded, of_every_form

pytestmark = needs_engine

NAMES = ("topicName", "groupId", "transactionalId")
MARKS = (*NAMES, "brokerId", "producerId", TAGGED)
LIMITS = (0, 1, 5, 40, 1 << 40)
some = pytest.mark.parametrize("number", [FEW, pytest.param(MANY, marks=pytest.mark.sweep)])


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return every_form.load(tmp_path_factory.mktemp("every_form"))


def names(message: Message, version: int, data: bytes) -> list[str]:
    """The strings at the places of names."""
    found = walk_of(message.cls, version, NAMES)(data, 0, len(data))
    assert found is not None
    return [data[content:end].decode() for _, _, content, end in found[1] if content >= 0]


def check(message: Message, number: int) -> None:
    assert message.versions
    for version in message.versions:
        program = message.cls._load_program(version)
        assert program is not None
        step = skip._struct_of(message.cls, version, MARKS)
        valid = encoded(message, version)
        seeds = [data for data in valid if len(data) < SEED_LIMIT]
        damaged = mutations(seeds, Random(f"skip {message} {version}"), number)
        for data in [*valid, *damaged]:
            ours = program.places(data, 0, len(data), MARKS)
            theirs = skip._places_in(step, data, 0, len(data))
            assert ours == theirs or (ours is None and "Open" in message.cls.__name__), data
            counted = [program.exceeds(data, 0, limit) for limit in LIMITS]
            expected = [skip._exceeds(message.cls, version, data, 0, limit) for limit in LIMITS]
            pairs = list(zip(counted, expected, strict=True))
            assert all(a is None or a == b for a, b in pairs), data
            value = message.cls._decode_quietly(data, 0, version)
            if data in valid:
                assert None not in counted and ours is not None
            if value is not None:  # whatever can be decoded has been counted to its end
                assert pairs[-1] == (False, False), data
                assert theirs is None or theirs[0] == value[1]
        for data in valid:
            around = bytearray(b"xy" + data + b"z" * 40)
            moved = program.places(around, 2, 2 + len(data), MARKS)
            end, places = program.places(data, 0, len(data), MARKS)
            assert end == len(data)
            assert moved == (
                end + 2,
                [(m, b + 2, c + 2 if c >= 0 else c, e + 2) for m, b, c, e in places],
            )


@some
@every_codec
def test_places_and_counts(message: Message, number: int) -> None:
    check(message, number)


@pytest.mark.parametrize("number", [200, pytest.param(2000, marks=pytest.mark.sweep)])
@of_every_form
def test_places_and_counts_of_every_form(package: Any, name: str, number: int) -> None:
    message = every_form.message(package, name)
    if name == "Open":  # the engine has no programs of versions above the last one
        message = Message(package, package.Open, (0,))
    check(message, number)


@every_codec
def test_places_have_the_values_that_walkers_visit(message: Message) -> None:
    assert message.versions
    for version in message.versions:
        visit = walker(message.cls, version, *NAMES)
        for data in encoded(message, version):
            visited: list[str] = []
            visit(message.decode(data, version), visited.append)
            assert names(message, version, data) == visited, (message, version)


def test_null_and_tagged_fields_have_places() -> None:
    request = kafka_wire.MetadataRequest(topics=[kafka_wire.MetadataRequest.Topic(name=None)])
    request.unknown_tags[300] = b"abc"
    data = request.encode(12)
    found = walk_of(kafka_wire.MetadataRequest, 12, ("topicName", TAGGED))(data, 0, len(data))
    # A count of 1 topic, the id, null, no tags; two booleans, a tag of two bytes.
    assert found == (len(data), [("topicName", 17, -1, 18), (TAGGED, 22, 25, 28)])
    assert data[25:28] == b"abc"


def test_null_that_is_not_written_as_usual_has_no_place() -> None:
    cls = kafka_wire.JoinGroupRequest
    usual = cls(group_id="g", rebalance_timeout_ms=5, group_instance_id=None).encode(5)
    at = usual.index(b"\xff\xff")
    odd = usual[:at] + b"\xff\xfe" + usual[at + 2 :]
    assert cls.decode(odd, 5) == cls.decode(usual, 5)
    assert walk_of(cls, 5, ())(usual, 0, len(usual)) is not None
    assert walk_of(cls, 5, ())(odd, 0, len(odd)) is None


def test_unknown_versions_are_refused() -> None:
    for call in (
        partial(walk_of, kafka_wire.FetchRequest, 99, ()),
        partial(skip.check_elements, kafka_wire.FetchRequest, 99, b"", 0, 1),
    ):
        with pytest.raises(UnsupportedVersionError):
            call()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (b"", 0, 1, ()),
        (b"", 1, 0, ()),
        (b"ab", 2, 1, ()),
        (b"", -1, 0, ()),
        (b"", 0, 0, []),
        (b"", 0, 0, (3,)),
        (b"", "0", 0, ()),
        ("", 0, 0, ()),
        (b"", 0, 1 << 70, ()),
    ],
)
def test_wrong_calls_of_places(arguments: tuple[Any, ...]) -> None:
    program = kafka_wire.FetchRequest._load_program(4)
    assert program is not None
    with pytest.raises(TypeError):
        program.places(*arguments)


@pytest.mark.parametrize(
    "arguments", [(), (b"", 1, 5), (b"", 0, -1), (bytearray(), 0, 1), (b"", 0, None)]
)
def test_wrong_calls_of_exceeds(arguments: tuple[Any, ...]) -> None:
    program = kafka_wire.FetchRequest._load_program(4)
    assert program is not None
    with pytest.raises(TypeError):
        program.exceeds(*arguments)
