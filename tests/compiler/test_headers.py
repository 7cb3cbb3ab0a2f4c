"""Headers of a protocol's own: key, version and correlation id are found by their fields, wherever they are."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from krammar.compiler.front.source import SHIPPED, Folder, compile_folder, compile_texts
from krammar.compiler.header_places import has_kafkas_heads, heads
from krammar.inspect.messages import inspect_bytes
from krammar.util.diagnostics import Diagnostics
from krammar.wire.connection import (
    ClientConnection,
    InvalidRequest,
    RequestReceived,
    ResponseReceived,
    ServerConnection,
)
from krammar.wire.errors import HeaderError
from krammar.wire.heads import REQUEST_HEAD, RESPONSE_HEAD
from tests.compiler.conftest import Build, Report

KAFKA = SHIPPED / "kafka_wire"
FIELDS = ("RequestApiKey: int16", "RequestApiVersion: int16", "CorrelationId: int32")
OTHERS = ("", "  Trace: uuid\n", "  Magic: uint16(17)\n  Flag: bool\n")
AFTER = ("", "  ClientId: nullable-string(null)\n", "  Token: bytes // v1+\n")
BODY = """\
PingRequest => key 7, max version 1
  Text: string

PingResponse =>
  Text: string
"""


def headers(order: tuple[str, ...], before: str, after: str) -> str:
    lines = "".join(f"  {line}\n" for line in order)
    return (
        f"RequestHeader => not top level, max version 1\n{before}{lines}{after}\n"
        f"ResponseHeader => not top level\n{before}  CorrelationId: int32\n\n{BODY}"
    )


ORDERS = [
    headers(order, OTHERS[at % 3], AFTER[at // 2 % 3])
    for at, order in enumerate(itertools.permutations(FIELDS))
]


@pytest.mark.parametrize("text", ORDERS)
def test_frames_are_read_by_the_fields_of_their_headers(build: Build, text: str) -> None:
    package = build(text)
    client, server = ClientConnection(package, client_id="me"), ServerConnection(package)
    for number, version in enumerate((1, 0)):
        frame = client.send_request(package.PingRequest(text="hi"), version)
        server.receive_data(frame)
        assert server.next_api_key == 7
        (event,) = server.events()
        assert isinstance(event, RequestReceived)
        assert (event.api_key, event.version, event.correlation_id) == (7, version, number)
        assert getattr(event.header, "client_id", "me") == "me"
        client.receive_data(server.send_response(event, package.PingResponse(text="ho")))
        (answer,) = client.events()
        assert isinstance(answer, ResponseReceived)
        assert answer.response.text == "ho"
        lines, error = inspect_bytes(package.__name__, "request", None, frame[4:])
        assert error is None
        assert any("text = 'hi'" in line for line in lines)
        # The text is one byte short, and the event still says which request it was.
        server.receive_data((len(frame) - 5).to_bytes(4, "big") + frame[4:-1])
        (wrong,) = server.events()
        assert isinstance(wrong, InvalidRequest)
        assert (wrong.api_key, wrong.version, wrong.correlation_id) == (7, version, number)
        server.skip_response(wrong)
    for end in range(3):
        with pytest.raises(HeaderError, match=r"needs [0-9]+ bytes for api key and version"):
            package.parse_request(frame[4 : 4 + end])


@pytest.mark.parametrize("missing", [*FIELDS, "all"])
def test_check_says_which_fields_a_header_needs(report: Report, missing: str) -> None:
    order = tuple(field for field in FIELDS if missing not in (field, "all")) or ("A: int8",)
    text = report(headers(order, "", ""))
    name = missing if missing != "all" else FIELDS[0]
    assert f"error E510: RequestHeader needs a field `{name}`" in text
    assert ", ".join(f"`{field}`" for field in FIELDS) in text


@pytest.mark.parametrize(
    "before", ["  A: string\n", "  A: int8 // v1+\n", "  A: varint\n", "  A: [int8]\n"]
)
def test_fields_at_several_places_are_refused(report: Report, before: str) -> None:
    text = report(headers(FIELDS, before, "").replace("// v1+\n  Corr", "\n  Corr"))
    assert text.count("is not at the same place in all versions of RequestHeader") == 3


def test_a_protocol_with_one_header_only(report: Report) -> None:
    text = report(f"ResponseHeader => not top level\n  CorrelationId: int32\n\n{BODY}")
    assert "E510: the protocol defines ResponseHeader, but no RequestHeader" in text


def test_headers_of_a_protocol_without_requests_are_free(report: Report) -> None:
    assert "E510" not in report("RequestHeader => not top level\n  Anything: int8\n")


def test_packages_with_kafkas_headers_have_the_usual_places(build: Build) -> None:
    package: Any = build(BODY)
    assert package._package.has_kafkas_heads


def test_compiler_and_runtime_know_the_same_places_of_kafkas_headers() -> None:
    known = [
        [None if place is None else (place.name, place.offset, place.code) for place in head]
        for head in (REQUEST_HEAD, RESPONSE_HEAD)
    ]
    kafka = compile_folder(Folder("kafka_wire", (KAFKA / "headers.krm",)), Diagnostics())
    own = compile_texts("p", {Path("a.krm"): BODY.encode()}, Diagnostics())

    assert {struct.name for file in kafka.files for struct in file.structs} == {
        "RequestHeader",
        "ResponseHeader",
    }
    for protocol in (kafka, own):
        assert heads(protocol) == known
        assert has_kafkas_heads(protocol)
