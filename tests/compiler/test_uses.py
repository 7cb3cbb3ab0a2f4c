"""``use``: definitions of another package become part of the package that uses them."""

from __future__ import annotations

from pathlib import Path

import kafka_wire
import pytest
from click.testing import CliRunner

from krammar.cli import main
from krammar.compiler.front.parser import parse_file
from krammar.compiler.front.source import compile_source
from krammar.compiler.front.syntax import SyntaxFile
from krammar.util.diagnostics import Diagnostics, format_text
from tests.compiler.conftest import Build, write_files

PING = """\
use kafka_wire: ErrorCode, RequestHeader, ResponseHeader

PingRequest => key 0, max version 0
  Size: int8

PingResponse =>
  ErrorCode: enum-ErrorCode(16)
"""


def said(folder: Path) -> str:
    diagnostics = Diagnostics()
    compile_source(folder, diagnostics)
    return format_text(diagnostics.sorted())


def test_an_enum_and_headers_of_kafka(build: Build) -> None:
    package = build({"ping.krm": PING})

    response = package.PingResponse()
    assert package.PingResponse.decode(response.encode(0), 0) == response
    assert repr(response) == "PingResponse(error_code=ErrorCode.NOT_COORDINATOR)"
    assert list(package.ErrorCode) == list(kafka_wire.ErrorCode)
    header = kafka_wire.RequestHeader(request_api_key=0, correlation_id=5, client_id="c")
    frame = header.encode(1) + package.PingRequest(size=7).encode(0)
    parsed = package.parse_request(frame)
    assert (parsed.header.correlation_id, parsed.request.size) == (5, 7)
    # Only what is used becomes part of the package.
    assert not hasattr(package, "FetchRequest")


def test_a_definition_brings_what_it_needs(build: Build) -> None:
    package = build({"proxy.krm": "use kafka_wire: HeartbeatRequest, ConsumerProtocolAssignment\n"})

    assert package.HeartbeatRequest.response_class is package.HeartbeatResponse
    for version in range(
        kafka_wire.HeartbeatRequest.min_version, package.HeartbeatRequest.max_version + 1
    ):
        assert package.HeartbeatRequest().encode(version) == kafka_wire.HeartbeatRequest().encode(
            version
        )
        assert package.HeartbeatResponse().encode(version) == kafka_wire.HeartbeatResponse().encode(
            version
        )
    assert package.ErrorCode.NONE == kafka_wire.ErrorCode.NONE
    assert package.ConsumerProtocolAssignment().encode(0)
    assert not hasattr(package, "ProduceRequest")


CHAIN = {
    "common/base.krm": "Health int8 (\n  0: OK\n)\n\nPlace => not top level\n  X: int8\n  How: enum-Health\n",
    "middle/spot.krm": "use common: Place\n\nSpot => not top level\n  At: [Place]\n",
    "top/one.krm": "use middle: Spot\n\nOne => not top level\n  A: Spot\n",
    "top/two.krm": "use middle: Spot\n\nuse common: Health\n\nTwo => not top level\n  A: enum-Health\n  B: Spot\n",
}


def test_packages_of_the_same_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_files(tmp_path / "definitions", CHAIN)
    for backend in ("python", "docs", "json-schema", "wireshark"):
        run = ["gen", str(source), "-o", str(tmp_path / backend), "--backend", backend]
        result = CliRunner().invoke(main, run)
        assert result.exit_code == 0, result.output
    monkeypatch.syspath_prepend(tmp_path / "python")
    import top  # type: ignore[import-not-found]

    one = top.One(a=top.Spot(at=[top.Place(x=1, how=top.Health.OK)]))
    assert one.encode(0) == b"\0\0\0\1\1\0"
    assert top.Two(b=one.a).encode(0) == b"\0" + one.encode(0)


def test_a_change_of_a_used_file_is_noticed(tmp_path: Path) -> None:
    source = write_files(tmp_path / "definitions", CHAIN)
    run = ["gen", str(source), "-o", str(tmp_path / "out")]
    assert CliRunner().invoke(main, run).exit_code == 0
    assert "0 written" in CliRunner().invoke(main, run).output

    (source / "common/base.krm").write_text(CHAIN["common/base.krm"].replace("0: OK", "0: FINE"))

    assert CliRunner().invoke(main, [*run, "--check"]).exit_code == 1
    assert CliRunner().invoke(main, run).exit_code == 0
    assert "FINE" in (tmp_path / "out/top/common.py").read_text()


def test_one_folder_of_a_source_sees_the_folders_next_to_it(tmp_path: Path) -> None:
    source = write_files(tmp_path / "definitions", CHAIN)
    result = CliRunner().invoke(main, ["check", str(source / "top"), "--strict"])

    assert result.exit_code == 0, result.output
    assert result.output == "2 files, 2 definitions: no errors\n"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"top/one.krm": "use common: Healt\n", "common/base.krm": CHAIN["common/base.krm"]},
            'E210: the package common has no definition "Healt"',
        ),
        ({"top/one.krm": "use comon: X\n", "common/a.krm": "X => not top level\n"}, '"common"?'),
        (
            {"top/one.krm": "use kafka_wire: ErrorCode\n\nErrorCode int8 (\n  0: A\n)\n"},
            'E201: "ErrorCode" is already defined at one.krm:3',
        ),
        (
            {"top/one.krm": "use kafka_wire: FetchResponse\n\nErrorCode int8 (\n  0: A\n)\n"},
            'E201: "FetchResponse" of kafka_wire needs "ErrorCode", but "ErrorCode" is already '
            "defined at one.krm:3",
        ),
        (
            {
                "top/one.krm": "use kafka_wire: ErrorCode\n",
                "top/kafka_wire.krm": "A => not top level\n",
            },
            "E207: this file and kafka_wire.krm would both become the module kafka_wire.py",
        ),
        (
            {
                "top/one.krm": "use kafka_wire:ErrorCode\n\nA => not top level\n  B: enum-ErrorCode\n"
            },
            'E106: unexpected ":ErrorCode": expected `: ` and names',
        ),
        (
            {"top/one.krm": "use top: A\n\nA => not top level\n"},
            "E211: packages use each other: top → top",
        ),
    ],
)
def test_errors(tmp_path: Path, files: dict[str, str], message: str) -> None:
    text = said(write_files(tmp_path / "definitions", files) / "top")

    assert message in text
    # Uses of the names add no further errors.
    assert text.count(" error ") == 1, text


def test_the_formatter_keeps_uses(tmp_path: Path) -> None:
    file = tmp_path / "a.krm"
    file.write_text("use kafka_wire: ErrorCode  \n" + PING.partition("\n")[2].lstrip("\n"))
    assert CliRunner().invoke(main, ["fmt", str(file)]).exit_code == 0

    assert file.read_text() == PING.replace(", RequestHeader, ResponseHeader", "")


def test_a_definition_can_still_begin_with_use(build: Build) -> None:
    assert build("Use => not top level\n  A: int8\n").Use(a=3).encode(0) == b"\3"


def test_a_file_of_another_package_is_parsed_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared" / "shared.krm"
    write_files(tmp_path, {"shared/shared.krm": "Point => not top level\n  X: int8\n"})
    write_files(
        tmp_path, {"own/own.krm": "use shared: Point\n\nLine => not top level\n  A: Point\n"}
    )
    parsed = []

    def parse(path: Path, data: bytes, diagnostics: Diagnostics) -> SyntaxFile:
        parsed.append(path)
        return parse_file(path, data, diagnostics)

    monkeypatch.setattr("krammar.compiler.front.source.parse_file", parse)
    for _ in range(2):
        assert said(tmp_path / "own") == ""
    assert parsed.count(shared) == 1
    shared.write_text("Point => not top level\n  Y: intt8\n")
    assert 'unknown type "intt8"' in said(tmp_path / "own")
    assert parsed.count(shared) == 2
