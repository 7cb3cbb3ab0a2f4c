"""A protocol of your own, by the steps of docs/definitions.md.

The first tests run the page's own blocks, word for word, in an empty folder. The others continue with
the package that results from them.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from krammar.wire.errors import (
    DecodeError,
    EncodeError,
    UnknownApiKeyError,
    UnsupportedVersionError,
)
from krammar.wire.reflection import fields
from tests.support.waiting import PATIENCE

PAGE = Path(__file__).parents[1] / "docs" / "definitions.md"


class Blocks(NamedTuple):
    """The fenced blocks of the sections about code and about checks, in order."""

    definitions: str
    generate: str
    use: str
    diagnostics: str
    inspect: str


@pytest.fixture(scope="module")
def blocks() -> Blocks:
    page = PAGE.read_text("utf-8")
    first = page.partition("\n## The grammar\n")[0]
    check = page.partition("\n## Check, compare and document\n")[2]
    section = first + check.partition("\n## Import, export and show\n")[0]
    return Blocks(*re.findall(r"^```\w*\n(.*?)^```$", section, re.DOTALL | re.MULTILINE))


def run(command: str, folder: Path, code: int = 0) -> str:
    """Run a shell's command line in ``folder``, with the programs of this environment and ``src`` to
    import from; its output."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": programs, "PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, blocks: Blocks) -> Path:
    """A project with an own protocol, generated into its package."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "protocol").mkdir()
    (folder / "protocol" / "sensors.krm").write_text(blocks.definitions)
    (folder / "src" / "myapp").mkdir(parents=True)
    (folder / "src" / "myapp" / "__init__.py").write_text('"""The user\'s own package."""\n')
    run(blocks.generate, folder)
    return folder


@pytest.fixture(scope="module")
def wire(project: Path) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(project / "src")
        importlib.invalidate_caches()
        yield importlib.import_module("myapp.wire")
        for name in [name for name in sys.modules if name.partition(".")[0] == "myapp"]:
            del sys.modules[name]


# -- what the page shows -------------------------------------------------------------------------


def test_the_code_runs(project: Path, blocks: Blocks) -> None:
    (project / "use.py").write_text(blocks.use)

    run("python use.py", project)


def test_the_definitions_are_clean(project: Path, blocks: Blocks) -> None:
    assert run("krammar check protocol/ --strict", project) == (
        "1 file, 3 definitions: no errors\n"
    )
    run("krammar fmt protocol/ --check", project)
    run(f"{blocks.generate.strip()} --check", project)


def test_the_diagnostics_are_what_is_shown(tmp_path: Path, blocks: Blocks) -> None:
    """Its lines, broken as the diagnostics quote them, give these diagnostics."""
    lines = blocks.definitions.split("\n")
    for number, line in re.findall(r"^(\d+) \| (.*)$", blocks.diagnostics, re.MULTILINE):
        assert lines[int(number) - 1].split(":")[0] == line.split(":")[0]
        lines[int(number) - 1] = line
    (tmp_path / "protocol").mkdir()
    (tmp_path / "protocol" / "sensors.krm").write_text("\n".join(lines))

    assert run("krammar check protocol/", tmp_path, code=1) == blocks.diagnostics


def test_the_inspection_is_what_is_shown(project: Path, blocks: Blocks) -> None:
    command, shown = re.split(r"(?<!\\)\n", blocks.inspect, maxsplit=1)

    assert run(command.removeprefix("$ "), project) == shown


# -- the package ---------------------------------------------------------------------------------


def test_only_the_protocols_own_files_are_written(project: Path) -> None:
    written = {p.name for p in (project / "src" / "myapp" / "wire").iterdir()} - {
        "__pycache__",
        ".krammar_cache",
    }

    assert written == {
        "__init__.py",
        "_api_keys.py",
        "_codecs",
        "kafka_headers.py",
        "layouts",
        "py.typed",
        "sensors.py",
    }
    assert (project / "src" / "myapp" / "__init__.py").read_text().startswith('"""The user')


def report(wire: Any, version: int = 2) -> Any:
    """A report with a value in every field that the version has."""
    value = wire.ReportRequest(
        serial="A-7",
        readings=[
            wire.ReportRequest.Reading(timestamp=1, celsius=21.5, health=int(version > 0)),
            wire.ReportRequest.Reading(timestamp=2, celsius=-0.5),
        ],
    )
    if version > 1:
        value.note = "cellar"
    return value


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (
            0,
            "0003 41 2d 37  00000002"
            "0000000000000001 4035800000000000"
            "0000000000000002 bfe0000000000000",
        ),
        (
            1,
            "0003 41 2d 37  00000002"
            "0000000000000001 4035800000000000 01"
            "0000000000000002 bfe0000000000000 00",
        ),
        (
            2,
            "04 41 2d 37  03"
            "0000000000000001 4035800000000000 01 00"
            "0000000000000002 bfe0000000000000 00 00"
            "01 00 07 07 63656c6c6172",
        ),
    ],
)
def test_round_trip(wire: Any, version: int, data: str) -> None:
    value = report(wire, version)

    assert value.encode(version).hex(" ") == bytes.fromhex(data).hex(" ")
    back = wire.ReportRequest.decode(bytes.fromhex(data), version)
    assert back == value
    if version < 2:
        value.note = "cellar"
        with pytest.raises(EncodeError, match=rf"note: version {version} has no such field"):
            value.encode(version)


def test_registries(wire: Any) -> None:
    assert wire.ApiKey.REPORT == 0
    assert wire.request_class(0) is wire.ReportRequest
    assert wire.response_class(0) is wire.ReportResponse
    assert wire.ReportRequest.response_class is wire.ReportResponse
    assert wire.ReportResponse.request_class is wire.ReportRequest
    assert [wire.header_versions(0, version) for version in range(3)] == [(1, 0), (1, 0), (2, 1)]
    assert {"ReportRequest", "Health", "parse_request"} <= set(wire.__all__) <= set(dir(wire))
    with pytest.raises(UnknownApiKeyError):
        wire.request_class(1)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_frames_have_kafkas_headers(wire: Any, version: int) -> None:
    header = "0000 {:04x} 0000002a 0002 6761 {}".format(version, "00" if version == 2 else "")
    frame = bytes.fromhex(header) + report(wire, version).encode(version)

    head, request = wire.parse_request(frame)

    assert head == wire.RequestHeader(
        request_api_key=0, request_api_version=version, correlation_id=42, client_id="ga"
    )
    assert head.encode(2 if version == 2 else 1) == bytes.fromhex(header)
    assert request == wire.ReportRequest.decode(report(wire, version).encode(version), version)

    answer = "0000002a 00 00000002 00" if version == 2 else "0000002a 00000002"
    back, response = wire.parse_response(bytes.fromhex(answer), 0, version)
    assert back == wire.ResponseHeader(correlation_id=42)
    assert response == wire.ReportResponse(accepted=2)


def test_errors_say_where(wire: Any) -> None:
    data = report(wire).encode(2)
    with pytest.raises(
        DecodeError, match=r"ReportRequest v2: readings\[0\]\.celsius: needs 8"
    ) as e:
        wire.ReportRequest.decode(data[:17], 2)
    assert e.value.path == "readings[0].celsius"
    with pytest.raises(UnsupportedVersionError, match="versions 0 to 2 are known"):
        wire.ReportRequest.decode(data, 3)
    value = report(wire)
    value.readings[1].timestamp = 2**63
    with pytest.raises(EncodeError, match=r"readings\[1\]\.timestamp"):
        value.encode(2)


def test_documentation_and_json(wire: Any) -> None:
    assert "Sends a batch of readings to the gateway." in wire.ReportRequest.__doc__
    assert "A comment of the installer." in {info.doc for info in fields(wire.ReportRequest)}
    assert wire.Health.__doc__ == "How a sensor is doing."
    value = report(wire)
    assert wire.ReportRequest.from_dict(value.to_dict()) == value
    assert ".DEGRADED" in repr(value)


def test_more_files_and_folders(project: Path, wire: Any) -> None:
    """A project grows: another file in the package, and a package of its own below it."""
    protocol = project / "protocol"
    (protocol / "admin").mkdir()
    (protocol / "calibrate.krm").write_text(
        "CalibrateRequest => key 1, max version 0, flexible v0+\n"
        "  Point: Point\n"
        "  Health: enum-Health\n"
        "\n"
        "CalibrateResponse =>\n"
        "\n"
        "Point => not top level\n"
        "  X: float64\n"
    )
    (protocol / "admin" / "user.krm").write_text("User => not top level\n  Name: string\n")

    run("krammar gen protocol/ -o src/grown", project)

    code = (
        "from grown import CalibrateRequest, Point, Health, parse_request, ReportRequest\n"
        "from grown.admin import User\n"
        "value = CalibrateRequest(point=Point(x=1.5), health=Health.OK)\n"
        "assert CalibrateRequest.decode(value.encode(0), 0) == value\n"
        "assert User.decode(User(name='x').encode(0), 0).name == 'x'\n"
    )
    (project / "use_grown.py").write_text(code)
    run("python use_grown.py", project)
