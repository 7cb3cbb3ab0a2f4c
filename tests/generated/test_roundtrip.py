"""Properties of every message in every version, those that no oracle knows included."""

from __future__ import annotations

import copy
import json
import math
import pickle
import struct
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

import kafka_wire
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from krammar.wire.errors import DecodeError, EncodeError, UnsupportedVersionError
from krammar.wire.layout import Array, Layout, Nested, Scalar
from tests.generated.catalogue import Message, messages
from tests.generated.parameters import every_codec, every_message
from tests.generated.strategies import plain_values, samples
from tests.generated.values import Plain, build, content, same


def check(message: Message, version: int, plain: Plain) -> None:
    """Value to bytes to value, bytes to value to bytes, and the slow reader and writer agree; the same
    with fields of bytes that are memoryviews."""
    layout = message.layout(version)
    value = build(message, layout, plain)
    data = message.encode(value, version)

    again = message.decode(data, version)
    assert again == value
    assert same(content(again, layout), plain)
    assert message.encode(again, version) == data

    assert same(layout.read(data), plain)
    assert layout.write(plain) == data
    assert layout.write(layout.read(data)) == data

    views = message.decode(data, version, copy=False)
    assert views == value
    assert repr(views) == repr(again)
    assert views.to_dict() == value.to_dict()
    assert message.encode(views, version) == data
    read = layout.read(data, copy=False)
    assert content(views, layout) == read == plain
    for found in (content(views, layout), read):
        for number, (view, copied) in enumerate(leaves(found, plain)):
            if isinstance(copied, bytes):
                assert isinstance(view, memoryview), number
                assert view.obj is data
            else:
                assert same(view, copied)


def leaves(left: Any, right: Any) -> Iterator[tuple[Any, Any]]:
    """The values of two plain forms of one shape in pairs; unknown tags, which are always bytes, apart."""
    if isinstance(left, dict):
        for name in left.keys() - {"unknown_tags"}:
            yield from leaves(left[name], right[name])
    elif isinstance(left, list):
        for one, other in zip(left, right, strict=True):
            yield from leaves(one, other)
    else:
        yield left, right


@every_codec
def test_samples_survive(message: Message) -> None:
    assert message.versions
    for version in message.versions:
        for plain in samples(message, version, seed=2):
            check(message, version, plain)


@pytest.mark.sweep
@pytest.mark.parametrize("message", messages(), ids=str)
@settings(
    max_examples=12,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_any_value_survives(message: Message, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(message.versions))
    check(message, version, data.draw(plain_values(message, version)))


@every_codec
def test_buffers_and_offsets(message: Message) -> None:
    """Any buffer is read, at any offset, and nothing before or behind the value is touched."""
    assert message.versions
    for version in message.versions:
        layout = message.layout(version)
        value = build(message, layout, samples(message, version, seed=3, extra=0)[2])
        data = message.encode(value, version)
        arguments = () if message.version_field else (version,)

        out = bytearray(b"before")
        value.encode_into(out, *arguments)
        assert bytes(out) == b"before" + data

        around = b"\xff\x00\x7f" + data + b"\x80\x01"
        end = 3 + len(data)
        for buffer in (around, bytearray(around), memoryview(around)):
            assert message.cls.decode_from(buffer, 3, *arguments) == (value, end)
            assert message.cls.decode_from(buffer, 3, *arguments, copy=False) == (value, end)
        for buffer in (bytearray(data), memoryview(data), memoryview(around)[3:end]):
            assert message.decode(buffer, version) == value
            assert message.decode(buffer, version, copy=False) == value
        with pytest.raises(DecodeError, match="2 bytes left over"):
            message.decode(data + b"\x80\x01", version)
        for offset in (-1, len(around) + 1):
            with pytest.raises(DecodeError):
                message.cls.decode_from(around, offset, *arguments)


@every_codec
def test_copies(message: Message) -> None:
    """Copies, pickles, JSON and the repr give equal values that are independent of the original."""
    assert message.versions
    names = {name: getattr(message.package, name) for name in message.package.__all__}
    for version in message.versions:
        layout = message.layout(version)
        for plain in samples(message, version, seed=4):
            value = build(message, layout, plain)
            assert pickle.loads(pickle.dumps(value)) == value
            assert copy.copy(value) == value
            deep = copy.deepcopy(value)
            assert deep == value
            dictionary = json.loads(json.dumps(value.to_dict()))
            assert same(content(message.cls.from_dict(dictionary), layout), plain)
            assert message.cls.from_dict(dictionary) == value
            assert eval(repr(value), {**names, "UUID": UUID, "inf": math.inf}) == value
            assert value.__replace__() == value

            deep.unknown_tags[9999] = b"x"
            assert deep != value
            del deep.unknown_tags[9999]
            assert deep == value
            for name in value._fields:
                changed = copy.copy(value)
                setattr(changed, name, object())
                assert changed != value
            changed = copy.copy(value)
            changed.unknown_tags[9999] = b"x"
            assert 9999 not in value.unknown_tags


@every_message
def test_fields_of_other_versions(message: Message) -> None:
    """What a version does not have is refused or, if it is ignorable, not written. It has its default when read."""
    assert message.versions
    fresh = message.cls()
    for version in message.versions:
        layout = message.layout(version)
        present = {item.name for item in (*layout.fields, *layout.tags)}
        value = build(message, layout, samples(message, version, seed=5)[-1])
        data = message.encode(value, version)
        absent = [name for name in message.cls._fields if name not in present]
        ignorable = {item.name for item in layout.absent if item.ignorable}
        for name in absent:
            default = getattr(value, name)
            setattr(value, name, "no value of any field")
            if name in ignorable:
                assert message.encode(value, version) == layout.write(value) == data
            else:
                with pytest.raises(EncodeError, match=f"version {version} has no such field"):
                    layout.write(value)
                with pytest.raises(
                    EncodeError, match=f"version {version} has no such field"
                ) as caught:
                    message.encode(value, version)
                assert caught.value.path == name
                setattr(value, name, default)
        again = message.decode(data, version)
        for name in absent:
            assert same(getattr(again, name), getattr(fresh, name))


@every_message
def test_versions_outside(message: Message) -> None:
    cls = message.cls
    if message.any_version:
        value = cls()
        for number in (-32768, -1, 0, 9, 32767):
            setattr(value, cls._version_field, number)
            assert message.decode(value.encode(), 0) == value
        return
    outside = [-1, cls.min_version - 1] if cls.min_version else [-1]
    reads_newer = message.version_field and cls._reads_newer
    if not cls._open_ended and not reads_newer:
        outside += [cls.max_version + 1, 32767]
    assert outside
    for number in outside:
        value = cls()
        out = bytearray(b"kept")
        arguments: tuple[int, ...] = (number,)
        if message.version_field:
            setattr(value, cls._version_field, number)
            arguments = ()
        data = number.to_bytes(2, "big", signed=True) + bytes(9)
        calls: list[Any] = [
            partial(value.encode, *arguments),
            partial(value.encode_into, out, *arguments),
            partial(cls.decode, data, *arguments),
            partial(cls.decode_from, data, 0, *arguments),
            partial(message.package.layout, cls, number),
        ]
        for call in calls:
            with pytest.raises(UnsupportedVersionError) as caught:
                call()
            error = caught.value
            assert (error.name, error.version) == (cls.__name__, number)
            assert (error.min_version, error.max_version) == (cls.min_version, cls.max_version)
            assert error.api_key == message.key
            assert f"versions {cls.min_version} to {cls.max_version}" in str(error)
            assert pickle.loads(pickle.dumps(error)).args == error.args
        assert out == b"kept"


def test_versions_are_whole_numbers_of_the_range() -> None:
    assert len(messages()) > 200
    for message in messages():
        cls = message.cls
        if not message.any_version:
            assert message.versions == tuple(range(cls.min_version, cls.max_version + 1))
        flexible = [version for version in message.versions if message.layout(version).flexible]
        expected = (
            [] if cls.flexible_from is None else range(cls.flexible_from, cls.max_version + 1)
        )
        assert flexible == list(expected)


def floats() -> list[tuple[Message, int]]:
    def has(layout: Layout) -> bool:
        return any(within(item.type) for item in (*layout.fields, *layout.tags))

    def within(type_: Any) -> bool:
        if isinstance(type_, Array):
            return within(type_.element)
        if isinstance(type_, Nested):
            return has(type_.layout)
        return isinstance(type_, Scalar) and type_.code == "d"

    return [(m, version) for m in messages() for version in m.versions if has(m.layout(version))]


def test_not_a_number_and_minus_zero_keep_their_bits() -> None:
    seen = 0
    marker = struct.pack(">d", 1234.5)
    for message, version in floats():

        def put(value: Any) -> Any:
            for name in value._fields:
                one = getattr(value, name)
                if isinstance(one, float):
                    setattr(value, name, 1234.5)
                for element in one if isinstance(one, list) else []:
                    if hasattr(element, "_fields"):
                        put(element)
            return value

        layout = message.layout(version)
        plain = samples(message, version, seed=6)[3]
        data = message.encode(put(build(message, layout, plain)), version)
        if marker not in data:
            continue
        for bits in (
            "7ff8000000000000",
            "fff8000000000001",
            "8000000000000000",
            "7ff0000000000000",
        ):
            changed = data.replace(marker, bytes.fromhex(bits))
            assert message.encode(message.decode(changed, version), version) == changed
            seen += 1
    assert seen >= 8


def test_replacing_and_matching() -> None:
    topic = kafka_wire.MetadataRequest.Topic(name="a").with_unknown_tags({99: b"x"})
    request = kafka_wire.MetadataRequest(topics=[topic])
    changed = request.__replace__(topics=(topic,), include_topic_authorized_operations=True)
    assert changed.topics == [topic] and changed.include_topic_authorized_operations
    assert topic.__replace__(name="b").unknown_tags == {99: b"x"}
    with pytest.raises(TypeError):
        request.__replace__(no_such_field=1)
    match request:
        case kafka_wire.MetadataRequest(topics=[kafka_wire.MetadataRequest.Topic(name=name)]):
            assert name == "a"
        case _:
            pytest.fail("the class pattern does not match")


def test_enums_keep_unknown_values() -> None:
    value = kafka_wire.HeartbeatResponse(error_code=31999)
    again = kafka_wire.HeartbeatResponse.decode(value.encode(4), 4)
    assert again.error_code == 31999
    assert "error_code=31999" in repr(again)
    known = kafka_wire.HeartbeatResponse(error_code=kafka_wire.ErrorCode.NOT_COORDINATOR)
    assert known == kafka_wire.HeartbeatResponse(error_code=16)
    assert "NOT_COORDINATOR" in repr(known)


def test_tags_at_their_defaults_are_not_written() -> None:
    response = kafka_wire.ApiVersionsResponse()
    assert response.encode(3) == bytes.fromhex("0000 01 00000000 00")
    response.finalized_features_epoch = -1
    assert response.encode(3) == bytes.fromhex("0000 01 00000000 00")
    response.finalized_features_epoch = 0
    assert response.encode(3) == bytes.fromhex("0000 01 00000000 01 01 08 0000000000000000")
    # A default that is written all the same is read, and is not written again.
    written = bytes.fromhex("0000 01 00000000 01 01 08 ffffffffffffffff")
    again = kafka_wire.ApiVersionsResponse.decode(written, 3)
    assert again == kafka_wire.ApiVersionsResponse()
