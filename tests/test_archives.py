"""krammar in one file: as a zipapp, and as a program of PyInstaller."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipapp
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from krammar.__pyinstaller import hook_dirs
from krammar.client import Client
from tests.ports import free_port

_ROOT = Path(__file__).parents[1]
_MAIN = "from krammar.cli import main\nmain(prog_name='krammar')\n"


@contextmanager
def _broker(folder: Path, *command: str) -> Iterator[str]:
    """A broker by a command, away from the sources. Yields its address when it is ready."""
    port = free_port()
    arguments = ["broker", "--data-dir", str(folder / "data"), "--port", str(port)]
    with subprocess.Popen(
        [*command, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout
        printed = []
        for line in process.stdout:
            printed.append(line)
            if line.startswith("ready after"):
                break
        else:
            raise AssertionError("".join(printed))
        try:
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.stdout.read()


def _exchange(servers: str) -> list[bytes | None]:
    """Write a record with compression, and read the topic."""
    with Client(servers) as client:
        with client.producer(compression_type="zstd") as producer:
            producer.send("orders", b"one")
        return [record.value for _, record in client.records("orders")]


def test_a_broker_in_a_zipapp(tmp_path: Path) -> None:
    """Archives have no extension modules: krammar runs in pure Python, with cramjam and google-crc32c from outside."""
    content = tmp_path / "content"
    ignored = shutil.ignore_patterns("__pycache__", "_engine*")
    for package in ("krammar", "generated/kafka_wire", "generated/wafka_wire"):
        shutil.copytree(_ROOT / package, content / Path(package).name, ignore=ignored)
    (content / "__main__.py").write_text(_MAIN, "utf-8")
    archive = tmp_path / "krammar.pyz"
    zipapp.create_archive(content, archive)
    shutil.rmtree(content)
    with _broker(tmp_path, sys.executable, str(archive)) as servers:
        assert _exchange(servers) == [b"one"]


@pytest.mark.sweep
@pytest.mark.skipif(importlib.util.find_spec("PyInstaller") is None, reason="needs PyInstaller")
def test_a_broker_by_pyinstaller(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_MAIN, "utf-8")
    # The entry point in pyproject.toml has the same effect where krammar is installed.
    (hooks,) = hook_dirs()
    paths = [f"--paths={_ROOT}", f"--paths={_ROOT / 'generated'}"]
    build = ["PyInstaller", "--onedir", "--noconfirm", f"--additional-hooks-dir={hooks}", *paths]
    done = subprocess.run(
        [sys.executable, "-m", *build, "program.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with _broker(tmp_path, str(tmp_path / "dist" / "program" / "program")) as servers:
        assert _exchange(servers) == [b"one"]
