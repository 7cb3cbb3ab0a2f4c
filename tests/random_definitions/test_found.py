"""Faults that random definitions have found, with the smallest definition of each."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from krammar.cli import main
from krammar.wire.connection import ClientConnection, RequestReceived, ServerConnection
from krammar.wire.errors import EncodeError
from krammar.wire.reflection import walker
from tests.compiler.conftest import write_files
from tests.random_definitions.model import Package
from tests.random_definitions.packages import Refused, check, generated, render


def request(fields: str, header: str = "key 0, max version 1") -> dict[str, str]:
    return {"p/a.krm": f"PingRequest => {header}\n{fields}\nPingResponse =>\n  Ok: bool\n"}


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_the_repr_of_infinities_can_be_pasted(value: str, tmp_path: Path) -> None:
    source = write_files(tmp_path / "d", request("  A: float64\n  B: [float64]\n"))
    with generated(source, tmp_path / "out") as built:
        cls = built.modules["p"].PingRequest
        again = eval(repr(cls(a=float(value), b=[1.0, float(value)])), {"PingRequest": cls})

    assert [str(again.a), *map(str, again.b)] == [value, "1.0", value]
    assert not math.isfinite(again.a)


def test_the_default_of_a_struct_with_its_own_version(tmp_path: Path) -> None:
    files = request("  Home: => // tag 0\n    Own: Own\n", "key 0, max version 0, flexible v0+")
    files["p/own.krm"] = (
        "Own => not top level, with version field, max version 3, min version 1\n"
        "  Version: int16{}\n  Text: string\n"
    )
    for default, expected in (("", {"version": 0}), ("(2)", {"version": 2, "text": ""})):
        place = tmp_path / f"default{default}"
        filled = {name: text.replace("{}", default) for name, text in files.items()}
        with generated(write_files(place / "d", filled), place / "out") as built:
            package = built.modules["p"]
            layout = package.layout(package.PingRequest, 0)
            read = layout.read(b"\0")

            assert read == {"home": {"own": expected}}
            assert layout.write(read) == b"\0"


def test_a_struct_with_tags_that_another_package_uses_where_nothing_is_flexible(
    tmp_path: Path,
) -> None:
    files = {
        "one/a.krm": "Part => not top level, no encoding\n  A: int8 // tag 0\n\n"
        "AskRequest => key 0, max version 0, flexible v0+\n  Part: Part\n\nAskResponse =>\n  Ok: bool\n",
        "two/a.krm": "use one: Part\n\nPutRequest => key 1, max version 0\n  Part: Part\n\nPutResponse =>\n  Ok: bool\n",
    }
    folders, protocols = check(write_files(tmp_path, files))

    assert len(folders) == len(protocols) == 2


def test_the_sign_of_a_tagged_zero_is_a_default_that_peers_read(tmp_path: Path) -> None:
    header = "key 0, max version 0, flexible v0+"
    old = write_files(tmp_path / "old", request("  A: float64(-0.0) // tag 0\n", header))
    new = write_files(tmp_path / "new", request("  A: float64 // tag 0\n", header))
    output = CliRunner().invoke(main, ["diff", str(old), str(new)]).output

    assert "B105" in output


def test_the_last_version_of_a_header_without_one(tmp_path: Path) -> None:
    headers = "RequestHeader => not top level\n{0}  Extra: int8 // v1+\n\nResponseHeader => not top level\n{0}".format(
        "  Key: int16\n  Version: int16\n  CorrelationId: int32\n"
    )
    files = request("  A: int8\n") | {"p/headers.krm": headers}
    with generated(write_files(tmp_path / "d", files), tmp_path / "out") as built:
        package = built.modules["p"]

        assert package.header_versions(0, 1).request == 1
        assert len(ClientConnection(package).send_request(package.PingRequest(), 1)) == 4 + 9 + 1


def test_the_first_header_of_a_message_whose_versions_are_all_flexible(tmp_path: Path) -> None:
    role = "  Key: int16\n  Version: int16\n  CorrelationId: int32\n"
    files = request("  A: int8\n", "key 0, max version 0, flexible v0+")
    files["p/headers.krm"] = (
        f"RequestHeader => not top level, max version 2, min version 2\n{role}\n"
        f"ResponseHeader => not top level, max version 1\n{role}"
    )

    assert check(write_files(tmp_path, files))


STREAM = """\
RequestHeader => not top level, max version 1
  Key: uint16
  Version: uint16
  CorrelationId: int8 // v1+
  ClientId: {client}

ResponseHeader => not top level, max version 1
  Key: {key}
  Version: uint16
  CorrelationId: uint8 // v1+

AskRequest => key 1, max version 0, header 1, response header 1
  A: int8

AskResponse =>
  A: int8

Deliver => key 2, max version 0, push, header 0
  A: int8
"""


@pytest.mark.parametrize("client", ["string // v1+", "bytes", "int32"])
def test_headers_get_the_client_id_where_they_have_one(client: str, tmp_path: Path) -> None:
    text = STREAM.format(client=client, key="uint64") + (
        "\nTellRequest => key 3, max version 0, one way, header 0\n  A: int8\n"
    )
    with generated(write_files(tmp_path / "d", {"p/a.krm": text}), tmp_path / "out") as built:
        package = built.modules["p"]
        sent = ClientConnection(package, client_id="me").send_request(package.TellRequest(), 0)
        later = ClientConnection(package, client_id="me").send_request(package.AskRequest(), 0)
        render(built.ir(Package("p", ())), "wireshark")

    assert b"me" not in sent
    assert (b"me" in later) is client.startswith("string")


def test_correlation_ids_fit_narrow_headers(tmp_path: Path) -> None:
    text = STREAM.format(client="string", key="uint16")
    with generated(write_files(tmp_path / "d", {"p/a.krm": text}), tmp_path / "out") as built:
        package = built.modules["p"]
        client, server = ClientConnection(package), ServerConnection(package)
        for number in range(300):
            server.receive_data(client.send_request(package.AskRequest(), 0))
            (event,) = server.events()
            assert isinstance(event, RequestReceived)
            assert event.correlation_id == number % 128
            client.receive_data(server.send_response(event, package.AskResponse()))
            assert len([*client.events()]) == 1


def test_a_package_of_pushes_alone(tmp_path: Path) -> None:
    header = "not top level\n  Key: int16\n  Version: int16\n  CorrelationId: int32\n\n"
    text = f"RequestHeader => {header}ResponseHeader => {header}Deliver => key 2, max version 0, push\n  A: int8\n"
    with generated(write_files(tmp_path / "d", {"p/a.krm": text}), tmp_path / "out") as built:
        package = built.modules["p"]
        frame = ServerConnection(package).send_push(package.Deliver(a=5), 0)

        assert package.parse_push(frame[4:]).push.a == 5
        assert [each.name for each in package.pushes()] == ["Deliver"]
        assert '[2] = { "Deliver"' in str(render(built.ir(Package("p", ())), "wireshark"))


def test_an_unknown_tag_with_the_number_of_a_removed_field(tmp_path: Path) -> None:
    files = request("  A: int8 // v0-v0, tag 0\n", "key 0, max version 1, flexible v0+")
    with generated(write_files(tmp_path / "d", files), tmp_path / "out") as built:
        package = built.modules["p"]
        value = package.PingRequest().with_unknown_tags({0: b"\x05"})

        assert value.encode(1) == b"\x01\x00\x01\x05"
        with pytest.raises(EncodeError, match="0"):
            value.encode(0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Key: uint8", "Key: uint8 // v1+", '"Key" is not in all versions of ResponseHeader'),
        ("Version: int64", "Version: int64 // v1+", '"Version" is not in all versions of'),
        ("max version 0, header 1, resp", "max version 0, response key 300, header 1, resp", "the key 300 does not fit the field key of Resp"),
        ("AskRequest => key 1, max version 0", "AskRequest => key 1, max version 300", "the version 300 does not fit"),
    ],
)  # fmt: skip
def test_what_headers_cannot_express_is_refused(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    text = STREAM.format(client="string", key="uint8").replace(
        "Version: uint16", "Version: int8", 1
    )
    text = text.replace("Version: uint16", "Version: int64")
    assert check(write_files(tmp_path / "good", {"p/a.krm": text}))

    with pytest.raises(Refused, match=message):
        check(write_files(tmp_path / "bad", {"p/a.krm": text.replace(old, new)}))


def test_entities_of_a_default_whose_version_does_not_exist(tmp_path: Path) -> None:
    files = request("  Own: Own // tag 0\n", "key 0, max version 0, flexible v0+")
    files["p/own.krm"] = (
        "Own => not top level, with version field, max version 1\n"
        "  Version: int16(6)\n  Text: string // entity topicName\n"
    )
    with generated(write_files(tmp_path / "d", files), tmp_path / "out") as built:
        cls = built.modules["p"].PingRequest
        found: list[str] = []
        walker(cls, 0, "topicName")(cls(), found.append)

    assert found == []


def test_imports_are_in_the_order_of_isort(tmp_path: Path) -> None:
    files = request("  A: [Empty]\n  B: Own\n")
    files["p/own.krm"] = (
        "Empty => not top level, no encoding\n  A: int8 // v1+\n\n"
        "Own => not top level, with version field, max version 1\n  Version: int16\n"
        "  Old: nullable[Empty]\n  Id: uuid\n  Long: varlong\n"
    )
    (protocol,) = check(write_files(tmp_path, files))[1]
    found = [
        [line.split()[1] for line in re.findall("^from krammar.wire.*", text, re.MULTILINE)]
        for text in render(protocol).values()
    ]
    assert found == [sorted(modules) for modules in found]


def test_one_way_requests_need_no_header_of_responses(tmp_path: Path) -> None:
    headers = (
        "RequestHeader => not top level\n  ApiKey: int16\n  ApiVersion: int16\n  CorrelationId: int32\n\n"
        "ResponseHeader => not top level, min version 1, max version 1\n  CorrelationId: int32\n\n"
    )
    files = {"p/a.krm": f"{headers}PingRequest => key 1, max version 0, one way, header 0\n"}
    (protocol,) = check(write_files(tmp_path, files))[1]
    assert protocol.requests[0].response is None


def test_a_file_named_annotations(tmp_path: Path) -> None:
    files = request("  A: Part\n")
    files["p/annotations.krm"] = "Part => not top level, no encoding\n  B: int8(3)\n"
    with generated(write_files(tmp_path / "d", files), tmp_path / "out") as built:
        assert built.modules["p"].PingRequest().a.b == 3


def test_kafkas_header_without_a_correlation_id_in_some_versions(tmp_path: Path) -> None:
    text = """\
RequestHeader => not top level, max version 1
  RequestApiKey: int16
  RequestApiVersion: int16
  CorrelationId: int32 // v1+

ResponseHeader => not top level
  CorrelationId: int32

TellRequest => key 7, max version 0, one way, header 0
  A: int8
"""
    with generated(write_files(tmp_path / "d", {"p/a.krm": text}), tmp_path / "out") as built:
        package = built.modules["p"]
        client = ClientConnection(package)
        frames = [client.send_request(package.TellRequest(a=5), 0) for _ in range(2)]

        assert frames == [b"\0\0\0\5" + b"\0\7\0\0" + b"\5"] * 2
        assert package.parse_request(frames[1][4:]).request.a == 5


def test_a_controlled_shutdown_that_is_flexible_from_the_beginning(tmp_path: Path) -> None:
    """Header 0, which the request has otherwise, needs no correlation id then."""
    text = """\
RequestHeader => not top level, max version 2
  Key: int16
  Version: int16
  CorrelationId: int32 // v1+

ResponseHeader => not top level, max version 1
  CorrelationId: int32

ControlledShutdownRequest => key 7, max version 1, flexible v0+
  A: int8

ControlledShutdownResponse =>
  A: int8
"""
    with generated(write_files(tmp_path / "d", {"p/a.krm": text}), tmp_path / "out") as built:
        package = built.modules["p"]

        assert [tuple(package.header_versions(7, version)) for version in (0, 1)] == [(2, 1)] * 2
