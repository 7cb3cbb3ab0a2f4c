"""What the fuzzer runs on one input, and the inputs that it starts from.

The first byte of an input chooses a reader, which says how it takes the rest. A reader may raise
DecodeError and UnsupportedVersionError and nothing else; what it reads, it must write again the same
way each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import kafka_wire

from krammar.wire.batches import Compression, Record, encode_batch, read_batches, read_headers
from krammar.wire.connection import ServerConnection
from krammar.wire.errors import DecodeError, UnsupportedVersionError
from tests.generated.catalogue import Message, by_name, messages
from tests.generated.strategies import samples
from tests.generated.values import build

# Decompressed records take no more than this.
MAX_UNCOMPRESSED = 1 << 20


@cache
def versions() -> tuple[tuple[Message, int], ...]:
    """Every message with every version, as the fuzzer numbers them."""
    return tuple((m, version) for m in messages() for version in m.versions)


@cache
def responses() -> tuple[tuple[int, int], ...]:
    """Every api key with every version."""
    return tuple(
        (m.key, v) for m, v in versions() if m.key is not None and m.name[-8:] == "Response"
    )


def read_message(data: bytes) -> None:
    """Two bytes number a message and version, the rest is one."""
    message, version = versions()[int.from_bytes(data[:2], "big") % len(versions())]
    data = data[2:]
    value = message.decode(data, version)
    written = message.encode(value, version)
    assert message.encode(message.decode(written, version), version) == written
    if message.version_field:
        version = getattr(value, message.version_field)
    layout = message.layout(version)
    assert layout.write(layout.read(data)) == written


def read_request(data: bytes) -> None:
    """All is a request frame."""
    header, request = kafka_wire.parse_request(data)
    request.encode(header.request_api_version)


def read_response(data: bytes) -> None:
    """Two bytes number an api key and version, the rest is a response frame."""
    key, version = responses()[int.from_bytes(data[:2], "big") % len(responses())]
    _, response = kafka_wire.parse_response(data[2:], key, version)
    response.encode(version)


def read_records(data: bytes) -> None:
    """Read bytes as record batches or a message set, without checking checksums, which no mutation would hit."""
    for header in read_headers(data):
        assert header.size_in_bytes > 0
    for batch in read_batches(data, validate_crc=False, max_uncompressed=MAX_UNCOMPRESSED):
        records = batch.records()
        assert list(batch) == records
        if batch.is_control:
            batch.control_records()


def read_stream(data: bytes) -> None:
    """One byte says where the bytes from a client break in two; then the connection closes."""
    server = ServerConnection(kafka_wire, max_frame=1 << 16)
    middle = data[0] if data else 0
    # No bytes at all say that the connection is closed.
    for part in (*filter(None, (data[1:middle], data[max(1, middle) :])), b""):
        server.receive_data(part)
        for event in server.events():
            assert event is not None


READERS: tuple[Callable[[bytes], None], ...] = (
    read_message,
    read_request,
    read_response,
    read_records,
    read_stream,
)


def check(data: bytes) -> None:
    """Run one input. Raises any error that readers must not raise."""
    said = "read"
    try:
        READERS[data[0] % len(READERS) if data else 0](data[1:])
    except (DecodeError, UnsupportedVersionError) as error:
        said = str(error)
    assert said
    # The words of an error whose cause the slow reader did not find.
    assert "do not match the layout" not in said, said


def seeds() -> Iterator[bytes]:
    """Valid inputs: a small and a fuller value of every message and version, frames, and batches."""
    request_header: Any = kafka_wire.RequestHeader(client_id="client")
    frames = []
    for number, (message, version) in enumerate(versions()):
        layout = message.layout(version)
        for plain in samples(message, version, seed=13, extra=0)[2:4]:
            data = message.encode(build(message, layout, plain), version)
            yield bytes([0]) + number.to_bytes(2, "big") + data
        if message.package is kafka_wire and message.key is not None:
            headers = kafka_wire.header_versions(message.key, version)
            if message.name.endswith("Request"):
                request_header.request_api_key = message.key
                request_header.request_api_version = version
                frame = request_header.encode(headers.request) + data
                frames.append(frame)
                yield bytes([1]) + frame
    for number, (key, version) in enumerate(responses()):
        name = kafka_wire.request_class(key).__name__.replace("Request", "Response")
        plain = samples(by_name()[name], version, seed=13, extra=0)[2]
        body = build(by_name()[name], by_name()[name].layout(version), plain).encode(version)
        header = kafka_wire.ResponseHeader().encode(
            kafka_wire.header_versions(key, version).response
        )
        yield bytes([2]) + number.to_bytes(2, "big") + header + body
    records = [Record(key=b"k", value=b"v" * 50), Record(value=None, headers=[("h", b"x")])]
    for compression in Compression:
        yield bytes([3]) + encode_batch(records, compression=compression)
    for cls in (kafka_wire.MessageV0, kafka_wire.MessageV1):
        old: Any = cls(key=b"k", value=b"v")
        old.message_size = len(old.encode(0)) - 12
        yield bytes([3]) + old.encode(0)
    for one, two in zip(frames[::7], frames[3::7], strict=False):
        stream = len(one).to_bytes(4, "big") + one + len(two).to_bytes(4, "big") + two
        yield bytes([4, min(len(one), 255)]) + stream
