"""The wheel, installed alone into an empty environment, works away from its sources."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import kafka_wire
import pytest
from krammar.util.native_files import SUFFIX

from krammar.wire.message import Struct
from tests.installed_wheel import names

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


def test_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    python = installed(tmp_path, wheel)
    listing = run(
        sys.executable, "-m", "pip", "--python", python, "list", "--format", "json", cwd=tmp_path
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
    where = run(python, "-c", code, cwd=tmp_path)
    assert where.startswith(str(tmp_path))


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


@pytest.mark.sweep
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_wheel_with_a_compiled_message(tmp_path: Path) -> None:
    """Builds the wheel of a release with one message instead of all, and installs it alone."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    options = ("--no-deps", "--quiet", "-w", tmp_path)
    run(*pip, "wheel", ROOT, *options, cwd=tmp_path, KRAMMAR_NATIVE="SaslHandshake")
    wheel = next(tmp_path.glob("krammar-*.whl"))
    python_tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.split("-")[2:4] == [python_tag, python_tag] and "-any" not in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
        (metadata,) = (name for name in files if name.endswith("/METADATA"))
        # Without a condition: not only with an extra.
        assert re.search(rb"(?m)^Requires-Dist: librt>=[\d.]+\s*$", archive.read(metadata))
    built = sorted(name for name in files if name.endswith(SUFFIX))
    assert [name.rpartition("/")[2].partition("-")[0] for name in built] == [
        "@records",
        "sasl_handshake",
    ]

    python = installed(tmp_path, wheel)
    assert run(python, "-W", "error", "-c", _STATUS, cwd=tmp_path) == (
        "kafka_wire: 1 module compiled type True\n"
    )
    assert run(python, "-c", _STATUS, cwd=tmp_path, KRAMMAR_PURE_PYTHON="1").endswith(" False\n")

    packages = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    edited = packages / "kafka_wire" / "sasl_handshake.py"
    edited.write_text(edited.read_text("utf-8") + "\n# An edit.\n", "utf-8")
    assert run(python, "-W", "ignore", "-c", _STATUS, cwd=tmp_path) == (
        "kafka_wire: pure Python _Kind True\n"
    )


_STATUS = """
from kafka_wire import SaslHandshakeRequest as request
from krammar.wire import native
assert request.decode(request(mechanism="PLAIN").encode(1), 1).mechanism == "PLAIN"
print(native.status("kafka_wire"), type(request).__name__, native.records() is not None)
"""


def test_releases_compile_messages_that_exist() -> None:
    compiled = list(names())
    assert compiled
    for name in compiled:
        class_name = "RequestHeader" if name == "Headers" else f"{name}Request"
        assert issubclass(getattr(kafka_wire, class_name), Struct)
