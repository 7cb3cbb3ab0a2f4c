"""Messages and frames are traced field by field, up to an error."""

from __future__ import annotations

import kafka_wire

from krammar.wire.connection import ClientConnection
from krammar.wire.package import package_of
from krammar.wire.tracing import Trace, trace_frame, trace_message
from tests.support.groups import in_groups

PACKAGE = package_of(kafka_wire)
REQUEST = kafka_wire.MetadataRequest(topics=[kafka_wire.MetadataRequest.Topic(name="orders")])
FRAME = ClientConnection(kafka_wire, client_id="me").send_request(REQUEST, 12)[4:]
KEY, VERSION = kafka_wire.MetadataRequest.api_key, 12


def places(trace: Trace) -> list[tuple[str, int, int]]:
    return [(n.name, n.offset, n.end) for part in trace.parts for _, n in part.node.walk()]


def test_a_frame() -> None:
    """Offsets of the body count from the begin of the frame, and every byte belongs to a part."""
    trace = trace_frame(PACKAGE, FRAME, KEY, VERSION, is_request=True)
    assert trace.error is None
    header, body = trace.parts
    assert (header.node.offset, header.node.end) == (0, body.node.offset)
    assert (header.size + body.size, trace.end) == (len(FRAME), len(FRAME))
    name = FRAME.index(b"orders")
    assert ("name", name - 1, name + 6) in places(trace)


def leaves(trace: Trace) -> list[tuple[str, int, int]]:
    return [
        (node.name, node.offset, node.end)
        for part in trace.parts
        for _, node in part.node.walk()
        if not node.children and node.offset < node.end
    ]


@in_groups("size", range(len(FRAME)), size=len(FRAME))
def test_a_truncated_frame(size: int) -> None:
    """The fields before the end of the bytes are those of the whole frame; only the last one may be shorter."""
    trace = trace_frame(PACKAGE, FRAME[:size], KEY, VERSION, is_request=True)
    assert trace.error is not None
    assert trace.end <= size
    whole = leaves(trace_frame(PACKAGE, FRAME, KEY, VERSION, is_request=True))
    found = leaves(trace)
    assert found[:-1] == whole[: len(found[:-1])]
    assert len(found) >= len([leaf for leaf in whole if leaf[2] <= size])


def test_bytes_after_a_message() -> None:
    """Bytes after the body are an error, and the fields before them are traced."""
    trace = trace_frame(PACKAGE, FRAME + b"??", KEY, VERSION, is_request=True)
    assert f"2 bytes left over at offset {len(FRAME) - trace.parts[0].size}" in str(trace.error)
    assert trace.end == len(FRAME)


def test_an_unknown_request() -> None:
    """Without layouts, nothing is traced."""
    trace = trace_frame(PACKAGE, FRAME, KEY, 99, is_request=True)
    assert (trace.parts, trace.end) == ([], 0)
    assert "MetadataRequest" in str(trace.error)


def test_a_message_inside_of_a_file() -> None:
    """Offsets begin at that of the message."""
    layout = kafka_wire.layout(kafka_wire.MetadataRequest, VERSION)
    trace = trace_message(layout, REQUEST.encode(VERSION), 1000)
    assert trace.error is None
    assert places(trace)[0] == ("MetadataRequest", 1000, trace.end)
    assert trace.end == 1000 + len(REQUEST.encode(VERSION))
