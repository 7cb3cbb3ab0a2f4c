"""The wheel, installed alone into an empty environment, works away from its sources."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str | Path, cwd: Path) -> str:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--quiet", "-w", folder, cwd=folder
    )
    return next(folder.glob("krammar-*.whl"))


def test_the_wheel_holds_what_runs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "krammar/py.typed",
        "krammar/compiler/grammar.lark",
        "krammar/compiler/kafka_headers.krm",
        "krammar/templates/python/__init__.py.j2",
        "krammar/templates/python/{module}.py.j2",
        "krammar/templates/docs/index.html.j2",
        "krammar/templates/python/macros/decode.j2",
        "kafka_wire/__init__.py",
        "kafka_wire/py.typed",
        "kafka_wire/layouts/fetch.py",
        "journal_wire/__init__.py",
        "wafka_wire/produce.py",
    } <= names
    assert not [name for name in names if name.startswith(("tests/", "generated/", "definitions/"))]


def test_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    (tmp_path / "protocol").mkdir()
    (tmp_path / "protocol" / "ping.krm").write_text(
        "PingRequest => key 0, max version 1\n  Text: string\n\nPingResponse =>\n  Text: string\n"
    )

    made = run(tmp_path / "venv/bin/krammar", "gen", "protocol", "-o", "ping_wire", cwd=tmp_path)

    assert "written" in made
    code = (
        "import kafka_wire, ping_wire, krammar\n"
        "from kafka_wire import MetadataRequest\n"
        "assert MetadataRequest.decode(MetadataRequest().encode(12), 12) == MetadataRequest()\n"
        "assert ping_wire.PingRequest(text='a').encode(1) == b'\\x00\\x01a'\n"
        "from krammar.wire.records import Record, encode_batch, read_batches\n"
        "batch = next(iter(read_batches(encode_batch([Record(value=b'v')]))))\n"
        "assert [record.value for record in batch.records()] == [b'v']\n"
        "print(krammar.__file__)\n"
    )
    where = run(python, "-c", code, cwd=tmp_path)
    assert where.startswith(str(tmp_path))
