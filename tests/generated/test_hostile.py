"""Invalid bytes: each input gives a value or a precise error, in little memory."""

from __future__ import annotations

import re
import tracemalloc
from random import Random
from typing import Any

import kafka_wire
import pytest
import wafka_wire

from krammar.wire.errors import DecodeError, UnsupportedVersionError, WireError
from krammar.wire.layout import Array, Layout, Nested, Node, default_of
from krammar.wire.message import Request
from tests.generated.catalogue import Message, messages
from tests.generated.mutations import mutations
from tests.generated.parameters import every_codec
from tests.generated.strategies import samples
from tests.generated.values import build
from tests.support.groups import in_groups

# Mutations of each message and version; the sweep has as many as the project promises.
FEW, MANY = 200, 1000
# Longer seeds than this make slow mutations that find no more.
SEED_LIMIT = 300


def seeds(message: Message, version: int) -> list[bytes]:
    layout = message.layout(version)
    found = [
        message.encode(build(message, layout, plain), version)
        for plain in samples(message, version, seed=7, extra=4)
    ]
    return sorted({data for data in found if len(data) <= SEED_LIMIT})


def check_error(message: Message, version: int, data: bytes, error: DecodeError) -> None:
    """The error names message, version and position; it is never a general one."""
    text = str(error)
    if message.version_field and error.path == message.version_field:
        assert text.startswith(f"{message.name}")
    elif message.version_field:
        assert re.match(rf"{message.name} v-?\d+: ", text), text
    else:
        assert text.startswith(f"{message.name} v{version}: "), text
    assert 0 <= error.offset <= len(data), text
    assert "do not match the layout" not in text, text
    if error.path:
        assert f": {error.path}: " in text, text
    else:
        assert re.search(r"\d+ bytes left over at offset \d+$", text), text


def check_value(message: Message, version: int, layout: Layout, data: bytes, value: Any) -> None:
    """A value that hostile bytes happen to hold is as good as any: the slow reader has the same,
    it is written again, and what is written then is read to itself."""
    if message.version_field:
        layout = message.layout(getattr(value, message.version_field))
    written = message.encode(value, version)
    assert layout.write(layout.read(data)) == written
    assert message.encode(message.decode(written, version), version) == written


@pytest.mark.parametrize("most", [FEW, pytest.param(MANY, marks=pytest.mark.sweep)])
@every_codec
def test_mutations(message: Message, most: int) -> None:
    assert message.versions
    for version in message.versions:
        layout = message.layout(version)
        rng = Random(f"mutations of {message} v{version}")
        values = 0
        for number, data in enumerate(mutations(seeds(message, version), rng, most)):
            try:
                value = message.decode(data, version, copy=number % 2 == 0)
            except DecodeError as error:
                check_error(message, version, data, error)
            except UnsupportedVersionError:
                assert message.version_field
            else:
                values += 1
                if message.reads_as_newest(data):
                    assert value.version == message.cls.max_version
                    continue
                check_value(message, version, layout, data, value)
        # Some mutations fail and some do not: they are neither too wild nor too tame.
        assert 0 < values < most, (message, version, values)


@every_codec
def test_every_truncation_fails(message: Message) -> None:
    assert message.versions
    for version in message.versions:
        for data in seeds(message, version):
            for end in range(len(data)):
                with pytest.raises(DecodeError) as caught:
                    message.decode(data[:end], version, copy=end % 2 == 0)
                check_error(message, version, data[:end], caught.value)
                assert caught.value.path


# ---- lengths and counts that lie ------------------------------------------------------------------

# Two billion, and the greatest number, of the four ways to write a count or length.
CLAIMS = {
    "int16": (bytes.fromhex("7fff"), bytes.fromhex("7ffe")),
    "int32": (bytes.fromhex("77359400"), bytes.fromhex("7fffffff")),
    "uvarint": (bytes.fromhex("81a8d6b907"), bytes.fromhex("ffffffff0f")),
    "varint": (bytes.fromhex("80d0acf30e"), bytes.fromhex("feffffff0f")),
}
# Bytes of memory that reading a frame of some hundred bytes may take at most.
PEAK = 100_000


def prefixed(node: Node, layout: Layout) -> list[tuple[int, str]]:
    """Offset and kind of every length and count that a traced value begins with."""
    found = []

    def walk(node: Node, layout: Layout | None, type_: Any = None) -> None:
        prefix = getattr(type_, "prefix", None)
        if prefix:
            found.append((node.offset, prefix))
        element = getattr(type_, "element", None)
        inside = getattr(type_, "layout", layout)
        types = {} if inside is None else {f.name: f.type for f in (*inside.fields, *inside.tags)}
        tags = [child for child in node.children if child.name == "unknown_tags"]
        found.extend((child.offset, "uvarint") for child in tags[:1])  # the others are tags
        for child in node.children:
            if element is not None:
                walk(child, getattr(element, "layout", None), element)
            elif child.name in types:
                walk(child, None, types[child.name])

    walk(node, layout)
    return found


@every_codec
def test_lying_lengths_take_no_memory(message: Message) -> None:
    assert message.versions
    for version in message.versions:
        layout = message.layout(version)
        value = build(message, layout, samples(message, version, seed=8, extra=0)[2])
        data = message.encode(value, version)
        hostile = [
            data[:offset] + claim + rest
            for offset, prefix in prefixed(layout.trace(data), layout)
            for claim in CLAIMS[prefix]
            for rest in (b"", bytes(8), bytes(16), data[offset + 1 :])
        ]
        prefixes = [item for item in layout.fields if getattr(item.type, "prefix", None)]
        assert len(hostile) >= 8 * len(prefixes)
        errors: list[WireError] = []
        tracemalloc.start()
        try:
            for frame in hostile:
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                try:
                    message.decode(frame, version)
                except WireError as error:
                    errors.append(error)
                peak = tracemalloc.get_traced_memory()[1] - before
                assert peak < PEAK, f"{message} v{version}: {peak} bytes for {frame.hex()}"
        finally:
            tracemalloc.stop()
        assert len(errors) == len(hostile)


# Bytes of memory for each byte of input, at most: an array of the smallest structs, each with an unknown
# tagged field of no bytes, takes some 80, and most of that is Python's dictionaries.
MULTIPLE = 100


def arrays_of_structs(message: Message) -> dict[str, Layout]:
    """The fields of a message's newest version that are arrays of structs, with the layouts of their elements."""
    return {
        item.name: item.type.element.layout
        for item in message.layout(message.versions[-1]).fields
        if isinstance(item.type, Array) and isinstance(item.type.element, Nested)
    }


@in_groups("message", [each for each in messages() if arrays_of_structs(each)])
def test_memory_is_a_multiple_of_the_input(message: Message) -> None:
    version = message.versions[-1]
    layout = message.layout(version)
    arrays = arrays_of_structs(message)
    assert arrays
    for name, inner in arrays.items():
        plain = {
            field.name: None if getattr(field.type, "nullable", False) else default_of(field)
            for field in (*inner.fields, *inner.tags)
        }
        if inner.flexible:
            plain["unknown_tags"] = {99: b""}
        value = build(message, layout, samples(message, version, seed=8)[0])
        setattr(value, name, [build(message, inner, plain)] * 1000)
        data = message.encode(value, version)
        tracemalloc.start()
        try:
            again = message.decode(data, version)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert again == value
        assert peak < MULTIPLE * len(data), f"{name}: {peak / len(data):.1f} bytes a byte"


def test_two_billion_elements_in_twenty_bytes() -> None:
    """What the errors say; the first is a compact array, the second a classic one."""
    with pytest.raises(DecodeError) as caught:
        kafka_wire.MetadataRequest.decode(bytes.fromhex("81a8d6b907") + bytes(15), 12)
    assert str(caught.value) == (
        "MetadataRequest v12: topics: 2000000000 elements need at least 36000000000 bytes at offset 5, "
        "15 left"
    )
    assert (caught.value.path, caught.value.offset) == ("topics", 0)
    with pytest.raises(DecodeError) as caught:
        kafka_wire.MetadataRequest.decode(bytes.fromhex("77359400") + bytes(16), 1)
    assert str(caught.value) == (
        "MetadataRequest v1: topics: 2000000000 elements need at least 4000000000 bytes at offset 4, "
        "16 left"
    )


# ---- whole frames ----------------------------------------------------------------------------------


@in_groups("message", [each for each in messages() if issubclass(each.cls, Request)])
def test_frames(message: Message) -> None:
    """``parse_request`` too gives a request or a WireError, whatever the frame."""
    package: Any = message.package
    found = []
    for version in message.versions:
        header = package.RequestHeader(
            request_api_key=message.key,
            request_api_version=version,
            correlation_id=7,
            client_id="client",
        ).encode(package.header_versions(message.key, version).request)
        found += [header + data for data in seeds(message, version)[:3]]
    rng = Random(f"frames of {message}")
    assert found
    for frame in mutations(found, rng, 500):
        try:
            parsed = package.parse_request(frame)
        except (DecodeError, UnsupportedVersionError):
            continue
        else:
            # Mutations reach the header, so it may be another message's by now.
            key, version = parsed.header.request_api_key, parsed.header.request_api_version
            assert type(parsed.request) is package.request_class(key)
            parsed.request.encode(version)


def test_every_short_frame() -> None:
    """All frames of up to two bytes, and every key with every small version and nothing behind."""
    frames = [b"", *(bytes([a]) for a in range(256))]
    frames += [bytes([a, b]) for a in (0, 1, 127, 128, 255) for b in range(256)]
    frames += [
        key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
        for key in range(-2, 100)
        for version in range(-2, 20)
    ]
    for package in (kafka_wire, wafka_wire):
        for frame in frames:
            with pytest.raises((DecodeError, UnsupportedVersionError)):
                package.parse_request(frame)
