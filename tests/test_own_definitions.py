"""What the README tells a user with definitions of their own to do, done as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")


def block(after: str, language: str = "") -> str:
    """The README's first code block of a language behind a phrase."""
    rest = README[README.index(after) :]
    match = re.search(rf"^```{language}\n(.*?)^```$", rest, re.DOTALL | re.MULTILINE)
    assert match is not None
    return match[1]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "protocol").mkdir()
    (tmp_path / "protocol" / "sensors.krm").write_text(block("Write `protocol/sensors.krm`"))
    (tmp_path / "src" / "myapp").mkdir(parents=True)
    (tmp_path / "src" / "myapp" / "__init__.py").touch()
    return tmp_path


def krammar(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "krammar", *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def python(project: Path, code: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project / "src",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_readme_s_steps(project: Path) -> None:
    command = block("Compile it into a package of yours").split()
    assert command[0] == "krammar"

    made = krammar(project, *command[1:])

    assert made.returncode == 0, made.stderr
    python(project, block("Compile it into a package of yours", "python"))
    again = krammar(project, *command[1:], "--check")
    assert again.returncode == 0, again.stdout


def test_the_package_reads_whole_frames(project: Path) -> None:
    krammar(project, "gen", "protocol/", "-o", "src/myapp/wire")
    out = python(
        project,
        """
from myapp import wire
from myapp.wire import ReportRequest, RequestHeader

header = RequestHeader(request_api_key=0, request_api_version=2, correlation_id=7, client_id="me")
frame = header.encode(2) + ReportRequest(serial="A-7", note="attic").encode(2)
parsed = wire.parse_request(frame)
assert parsed.header == header
assert parsed.request.note == "attic"
assert wire.header_versions(0, 1) == (1, 0)
assert wire.response_class(0) is wire.ReportResponse
print(wire.layout(ReportRequest, 1))
""",
    )
    assert out == (
        "ReportRequest (Version: 1) => serial: STRING, readings: [ReportRequestReading]\n"
    )


def test_mistakes_are_reported_as_the_readme_shows(project: Path) -> None:
    path = project / "protocol" / "sensors.krm"
    text = path.read_text()
    path.write_text(text.replace("nullable-string", "nullable-sting").replace("v1+", "v9+"))

    checked = krammar(project, "check", "protocol")

    assert checked.returncode == 1
    assert block("`krammar check` finds mistakes").strip() == checked.stdout.strip()
    made = krammar(project, "gen", "protocol/", "-o", "src/myapp/wire")
    assert made.returncode == 1
    assert not (project / "src" / "myapp" / "wire").exists()


def test_bytes_are_shown_as_the_readme_shows(project: Path) -> None:
    krammar(project, "gen", "protocol/", "-o", "sensors")
    shown = block("`krammar inspect` shows bytes")
    command, _, expected = shown.removeprefix("$ krammar ").partition("\n")

    inspected = krammar(project, *command.split())

    assert inspected.stdout == expected
