"""The wheel, installed alone into an empty environment, works away from its sources."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# The tests share a wheel.
pytestmark = pytest.mark.xdist_group("wheel")


def run(*command: str | Path, cwd: Path, **settings: str) -> str:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
        and not name.startswith("KRAMMAR_")
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**environment, **settings},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed(folder: Path, package: str | Path) -> Path:
    """The Python of an empty environment with a package and what it requires."""
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    # This Python's pip: to install another one takes seconds.
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--quiet", "--no-compile", package, cwd=folder)
    return python


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel, and no extras."""
    return installed(tmp_path_factory.mktemp("alone"), wheel)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--quiet", "-w", folder, cwd=folder
    )
    return next(folder.glob("krammar-*.whl"))


def test_the_wheel_holds_what_runs(wheel: Path) -> None:
    files = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "krammar/py.typed",
        "krammar/compiler/front/grammar.lark",
        "krammar/compiler/front/kafka_headers.krm",
        "krammar/templates/python/__init__.py.j2",
        "krammar/templates/python/{module}.py.j2",
        "krammar/templates/docs/index.html.j2",
        "krammar/templates/python/macros/decode.j2",
        "kafka_wire/__init__.py",
        "kafka_wire/py.typed",
        "kafka_wire/layouts/fetch.py",
        "journal_wire/__init__.py",
        "wafka_wire/produce.py",
    } <= files
    assert not [name for name in files if name.startswith(("tests/", "generated/", "definitions/"))]


def test_the_wheel_alone(alone: Path, tmp_path: Path) -> None:
    listing = run(
        sys.executable, "-m", "pip", "--python", alone, "list", "--format", "json", cwd=tmp_path
    )
    packages = {each["name"].lower() for each in json.loads(listing)} - {"colorama"}
    assert packages == {"click", "cramjam", "google-crc32c", "krammar"}
    code = (
        "import kafka_wire, krammar\n"
        "from kafka_wire import MetadataRequest\n"
        "assert MetadataRequest.decode(MetadataRequest().encode(12), 12) == MetadataRequest()\n"
        "from krammar.wire.batches import Record, encode_batch, read_batches\n"
        "batch = next(iter(read_batches(encode_batch([Record(value=b'v')]))))\n"
        "assert [record.value for record in batch.records()] == [b'v']\n"
        "from krammar.broker import Broker\n"
        "from krammar.client import Client\n"
        "with Broker.start() as broker, Client(bootstrap_servers=broker.bootstrap_servers) as client:\n"
        "    assert client.topics() == {}\n"
        "print(krammar.__file__)\n"
    )
    where = run(alone, "-c", code, cwd=tmp_path)
    assert where.startswith(str(alone.parents[2]))


def test_the_wheel_with_the_compiler(wheel: Path, tmp_path: Path) -> None:
    python = installed(tmp_path, f"{wheel}[compiler]")
    (tmp_path / "protocol").mkdir()
    (tmp_path / "protocol" / "ping.krm").write_text(
        "PingRequest => key 0, max version 1\n  Text: string\n\nPingResponse =>\n  Text: string\n"
    )

    made = run(tmp_path / "venv/bin/krammar", "gen", "protocol", "-o", "ping_wire", cwd=tmp_path)

    assert "written" in made
    code = (
        "import ping_wire\n" "assert ping_wire.PingRequest(text='a').encode(1) == b'\\x00\\x01a'\n"
    )
    run(python, "-c", code, cwd=tmp_path)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_wheel_has_the_engine(wheel: Path, alone: Path, tmp_path: Path) -> None:
    """The wheel is for this Python and platform, and has neither the sources of the engine nor other requirements."""
    python_tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.split("-")[2:4] == [python_tag, python_tag] and "-any" not in wheel.name
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    files = zipfile.ZipFile(wheel).namelist()
    assert [name for name in files if "_engine." in name] == [
        "krammar/wire/_engine.pyi",
        f"krammar/wire/_engine{suffix}",
    ]
    assert not [name for name in files if name.endswith((".c", ".h"))]
    assert wheel.stat().st_size < 4_000_000

    assert run(alone, "-W", "error", "-m", "krammar.wire", cwd=tmp_path) == "engine: native\n"
    pure = run(alone, "-m", "krammar.wire", cwd=tmp_path, KRAMMAR_PURE_PYTHON="1")
    assert pure == "engine: pure Python (KRAMMAR_PURE_PYTHON is set)\n"


def build_pure(compiler: str, folder: Path) -> Path:
    """Let pip build a wheel from the source with a compiler that does not work."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    log = folder / "log"
    options = ("--no-deps", "--log", log, "-w", folder)
    run(*pip, "wheel", ROOT, *options, cwd=folder, CC=compiler)
    notices = [line for line in log.read_text().splitlines() if "krammar runs in" in line]
    assert len(notices) == 1 and "its engine could not be compiled: " in notices[0]
    return next(folder.glob("krammar-*.whl"))


def test_without_a_compiler_the_wheel_is_pure(tmp_path: Path) -> None:
    """pip installs krammar from its source all the same, and its build says why it will be slower."""
    assert build_pure("no-such-compiler", tmp_path).name.endswith("-py3-none-any.whl")


def test_the_pure_wheel_runs(tmp_path: Path) -> None:
    wheel = build_pure("false", tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    python = installed(tmp_path, wheel)
    status = run(python, "-W", "error", "-m", "krammar.wire", cwd=tmp_path)
    assert status == "engine: pure Python (No module named 'krammar.wire._engine')\n"
    code = "from kafka_wire import FetchRequest as R; print(R.decode(R().encode(12), 12) == R())"
    assert run(python, "-c", code, cwd=tmp_path) == "True\n"
