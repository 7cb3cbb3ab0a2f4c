"""Values that a version cannot carry: EncodeError names the field, and nothing is written."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import kafka_wire
import pytest

from krammar.wire.errors import EncodeError, UnsupportedVersionError
from krammar.wire.layout import Array, Layout, Nested, Scalar, Sized, Text, Type, VarInteger
from tests.generated.catalogue import Message, messages
from tests.generated.parameters import every_codec, every_flexible_codec
from tests.generated.strategies import int_range
from tests.generated.values import Plain, build


def full(layout: Layout) -> Plain:
    """Return a value with one element per array and no nulls, so that every field exists."""

    def one(type_: Type) -> Any:
        if isinstance(type_, Array):
            return [one(type_.element)]
        if isinstance(type_, Nested):
            return full(type_.layout)
        if isinstance(type_, Text):
            return "s" if type_.kind == "string" else b"b"
        if isinstance(type_, Sized):
            return b"b"
        if isinstance(type_, Scalar) and type_.code in "?d" + "16s":
            return {"?": True, "d": 2.5, "16s": UUID(int=1)}[type_.code]
        return 1

    return {item.name: one(item.type) for item in (*layout.fields, *layout.tags)}


def places(
    value: Any, layout: Layout, path: str = ""
) -> Iterator[tuple[str, Type, Callable[[], Any], Callable[[Any], None]]]:
    """Path, type, getter and setter of every field and first element below ``value``."""

    def below(
        path: str, type_: Type, get: Callable[[], Any], put: Callable[[Any], None]
    ) -> Iterator[Any]:
        yield path, type_, get, put
        inner = get()
        if isinstance(type_, Array):
            yield from below(
                f"{path}[0]",
                type_.element,
                lambda: inner[0],
                lambda new: inner.__setitem__(0, new),
            )
        elif isinstance(type_, Nested):
            yield from places(inner, type_.layout, f"{path}.")

    for item in (*layout.fields, *layout.tags):
        if not item.length_of:
            yield from below(
                path + item.name,
                item.type,
                lambda name=item.name: getattr(value, name),  # type: ignore[misc]
                lambda new, name=item.name: setattr(value, name, new),  # type: ignore[misc]
            )


class Strange:
    """An object with no attribute that any field has."""


def wrong(type_: Type) -> list[Any]:
    """Values that a field of the type must not take."""
    if isinstance(type_, VarInteger) or (isinstance(type_, Scalar) and type_.code in "bhiqHI"):
        low, high = int_range(type_)
        return [low - 1, high + 1, 1 << 70, None, "1", b"1", 1.0, [1], UUID(int=1)]
    if isinstance(type_, Scalar):
        others: dict[str, list[Any]] = {
            "?": [2, -1, None, "True", b"\x01", 0.5, [True]],
            "d": [None, "2.5", b"2.5", [2.5], 10**400],
            "16s": [None, str(UUID(int=1)), UUID(int=1).bytes, 1],
        }
        return others[type_.code]
    if isinstance(type_, Text):
        values: list[Any] = [] if type_.nullable else [None]
        if type_.kind == "string":
            values += [b"s", 1, ["s"], True, "\ud800", "ab\udfffcd"]
            return values + (["s" * 32768, "é" * 16384] if type_.prefix == "int16" else [])
        return [*values, "b", 1, [98], True, UUID(int=1)]
    if isinstance(type_, Sized):
        return [None, "b", 1, [98]]
    if isinstance(type_, Array):
        some = "s" if isinstance(type_.element, Text) and type_.element.kind == "string" else {1}
        values = [] if type_.nullable else [None]
        return [*values, some, {0: 1}, 1, iter([]), True]
    assert isinstance(type_, Nested)
    values = [] if type_.nullable else [None]
    # An array of the struct instead of one, a dictionary, and a struct of another kind. A struct that
    # has no fields in a version has nothing to miss.
    if type_.layout.fields or type_.layout.tags:
        values += [[], {}, Strange(), 1, "s"]
    return values


def refused(message: Message, version: int, value: Any, path: str) -> None:
    """Assert that encoding ``value`` fails because of the field at ``path``."""
    arguments = () if message.version_field else (version,)
    out = bytearray(b"kept")
    with pytest.raises(EncodeError) as caught:
        value.encode_into(out, *arguments)
    assert out == b"kept"
    with pytest.raises(EncodeError) as again:
        value.encode(*arguments)
    error = caught.value
    assert str(again.value) == str(error)
    assert error.path == path, str(error)
    assert f": {path}: " in str(error)
    assert str(error).startswith(message.name)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.path) == (str(error), path)


@every_codec
def test_every_field_refuses_what_it_cannot_hold(message: Message) -> None:
    assert message.versions
    for version in message.versions:
        layout = message.layout(version)
        plain = full(layout)
        if message.version_field and not message.any_version:
            plain[message.version_field] = version
        value = build(message, layout, plain)
        data = message.encode(value, version)
        for path, type_, get, put in places(value, layout):
            if path == message.version_field:
                continue
            good = get()
            for bad in wrong(type_):
                put(bad)
                refused(message, version, value, path)
            put(good)
        assert message.encode(value, version) == data


@pytest.mark.parametrize(
    "message", [message for message in messages() if message.version_field], ids=str
)
@pytest.mark.parametrize("bad", [None, "0", 0.0, 1 << 15, -(1 << 15) - 1])
def test_a_broken_version_field(message: Message, bad: Any) -> None:
    name = str(message.version_field)
    refused(message, 0, message.cls(**{name: bad}), name)


def structs(value: Any, layout: Layout, path: str = "") -> Iterator[tuple[str, Any, Layout]]:
    """Every struct in ``value``, with its path and layout."""
    yield path, value, layout
    for place, type_, get, _ in places(value, layout):
        if isinstance(type_, Nested):
            yield place + ".", get(), type_.layout


@every_flexible_codec
def test_unknown_tags_that_cannot_be(message: Message) -> None:
    """An unknown tag must be a number that no field has, and its data bytes."""
    assert message.versions
    for version in message.versions:
        layout = message.layout(version)
        plain = full(layout)
        if message.version_field and not message.any_version:
            plain[message.version_field] = version
        value = build(message, layout, plain)
        for path, owner, inside in structs(value, layout):
            here = f"{path}unknown_tags"
            free = 500
            cases: list[tuple[Any, str]] = [
                ({free: "s"}, f"{here}[{free}]"),
                ({free: None}, f"{here}[{free}]"),
                ({free: 3}, f"{here}[{free}]"),
                ({-1: b""}, here),
                ({1 << 32: b""}, here),
                ({"a": b""}, here),
                ({None: b""}, here),
                ([1], here),
            ]
            cases += [({item.tag: b""}, f"{here}[{item.tag}]") for item in inside.tags]
            for tags, place in cases:
                owner.unknown_tags = tags
                refused(message, version, value, place)
            owner.unknown_tags = {}
        message.encode(value, version)


# ---- complete error messages ---------------------------------------------------------------------

TOPIC = kafka_wire.MetadataRequest.Topic
REQUEST = kafka_wire.MetadataRequest
PARTITION = kafka_wire.MetadataResponse.Partition


def response(**fields: Any) -> Any:
    topic = kafka_wire.MetadataResponse.Topic(
        name="t", partitions=[PARTITION(), PARTITION(), PARTITION(**fields)]
    )
    return kafka_wire.MetadataResponse(topics=[kafka_wire.MetadataResponse.Topic(), topic])


@pytest.mark.parametrize(
    ("value", "version", "said"),
    [
        (
            response(leader_id=1 << 31),
            12,
            "MetadataResponse v12: topics[1].partitions[2].leader_id: 2147483648 is outside of "
            "-2147483648 to 2147483647",
        ),
        (
            response(isr_nodes=[1, 2, "three"]),
            9,
            "MetadataResponse v9: topics[1].partitions[2].isr_nodes[2]: needs an integer, not "
            "str 'three'",
        ),
        (
            response(error_code=0.0),
            0,
            "MetadataResponse v0: topics[1].partitions[2].error_code: needs an integer, not float 0.0",
        ),
        (
            REQUEST(topics=None),
            0,
            "MetadataRequest v0: topics: must not be null in this version",
        ),
        (
            REQUEST(topics=[TOPIC(name=None)]),
            9,
            "MetadataRequest v9: topics[0].name: must not be null in this version",
        ),
        (
            REQUEST(topics=[TOPIC(name="x" * 32768)]),
            8,
            "MetadataRequest v8: topics[0].name: a string of 32768 bytes is too long: 32767 at most",
        ),
        (
            REQUEST(topics=["orders"]),  # type: ignore[list-item]
            12,
            "MetadataRequest v12: topics[0]: needs MetadataRequest.Topic, not str 'orders'",
        ),
        (
            kafka_wire.ConsumerProtocolSubscription(topics=[b"orders"]),  # type: ignore[list-item]
            None,
            "ConsumerProtocolSubscription v0: topics[0]: needs a str, not bytes b'orders'",
        ),
        (
            kafka_wire.SaslAuthenticateRequest(auth_bytes="secret"),  # type: ignore[arg-type]
            2,
            "SaslAuthenticateRequest v2: auth_bytes: needs bytes, not str 'secret'",
        ),
        (
            kafka_wire.RequestHeader(client_id="\ud800"),
            2,
            "RequestHeader v2: client_id: character 0 is a lone surrogate, which UTF-8 cannot carry",
        ),
    ],
)
def test_what_is_said(value: Any, version: int | None, said: str) -> None:
    with pytest.raises(EncodeError) as caught:
        value.encode(version)
    assert str(caught.value) == said


def test_what_is_said_of_tags_and_versions() -> None:
    value = kafka_wire.ApiVersionsResponse()
    value.unknown_tags = {1: b""}
    with pytest.raises(EncodeError) as caught:
        value.encode(3)
    assert str(caught.value) == (
        "ApiVersionsResponse v3: unknown_tags[1]: tag 1 is the field finalized_features_epoch"
    )
    with pytest.raises(UnsupportedVersionError) as unsupported:
        value.encode(99)
    assert str(unsupported.value) == (
        "ApiVersionsResponse (api key 18) has no version 99: versions 0 to 5 are known"
    )


# ---- odd values that are accepted -----------------------------------------------------------------


def test_what_is_taken() -> None:
    """Subclasses of int are ints; any buffer is bytes; a tuple is an array; an int is a float."""
    error = kafka_wire.ErrorCode.NOT_COORDINATOR
    assert kafka_wire.HeartbeatResponse(error_code=error).encode(0) == b"\x00\x10"
    assert kafka_wire.HeartbeatResponse(error_code=True).encode(0) == b"\x00\x01"
    assert REQUEST(allow_auto_topic_creation=1).encode(4) == REQUEST().encode(4)  # type: ignore[arg-type]
    sasl = kafka_wire.SaslAuthenticateRequest()
    buffers: list[Any] = [b"ab", bytearray(b"ab"), memoryview(b"ab"), memoryview(b"a-b-")[::2]]
    for sasl.auth_bytes in buffers:
        assert sasl.encode(2) == b"\x03ab\x00"
    request = REQUEST()
    request.topics = ()  # type: ignore[assignment]
    assert request.encode(1) == bytes(4)
    quota = kafka_wire.AlterClientQuotasRequest.OpData(key="k", value=3)
    entry = kafka_wire.AlterClientQuotasRequest.EntryData(ops=[quota])
    whole = kafka_wire.AlterClientQuotasRequest(entries=[entry]).encode(1)
    assert bytes.fromhex("4008000000000000") in whole


def test_strings_as_long_as_they_may_be() -> None:
    topic = TOPIC(name="x" * 32767)
    assert REQUEST.decode(REQUEST(topics=[topic]).encode(8), 8).topics == [topic]
    topic = TOPIC(name="x" * 40000)  # a compact string may be longer
    assert REQUEST.decode(REQUEST(topics=[topic]).encode(9), 9).topics == [topic]


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"topics": [{"nonsense": 1}]}, "topics[0].nonsense"),
        ({"topics": [{"topic_id": "no uuid"}]}, "topics[0].topic_id"),
        ({"topics": ["orders"]}, "topics[0]"),
    ],
)
def test_dictionaries_of_another_shape(values: dict[str, Any], path: str) -> None:
    with pytest.raises(EncodeError) as caught:
        REQUEST.from_dict(values)
    assert caught.value.path == path
    with pytest.raises(EncodeError):
        REQUEST.from_dict([values])  # type: ignore[arg-type]


def test_bytes_in_dictionaries_are_base64() -> None:
    cls = kafka_wire.SaslAuthenticateRequest
    assert cls.from_dict({"auth_bytes": "YWI="}) == cls(auth_bytes=b"ab")
    for bad in ("a", "**", 5):
        with pytest.raises(EncodeError) as caught:
            cls.from_dict({"auth_bytes": bad})
        assert caught.value.path == "auth_bytes"
