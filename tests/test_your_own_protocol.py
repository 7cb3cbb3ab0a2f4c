"""docs/your-own-protocol.md, as somebody would follow it: its files written, its commands run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.ports import free_port
from tests.support.waiting import PATIENCE

_PAGE = Path(__file__).parents[1] / "docs" / "your-own-protocol.md"
_BLOCK = re.compile(r'^```(\w+)(?: title="(.*?)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@contextmanager
def _background(command: str, expected: list[str], folder: Path) -> Iterator[None]:
    """A command that continues to run, after it has printed the page's output."""
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        left = list(expected)
        seen = []
        for line in process.stdout:
            seen.append(line)
            if left and line.rstrip("\n") == left[0]:
                del left[0]
            if not left:
                break
        assert not left, "".join(seen)
        yield
    finally:
        os.killpg(process.pid, 15)
        process.communicate(timeout=PATIENCE)


def _environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path}


def test_the_page(tmp_path: Path) -> None:
    text = _PAGE.read_text()
    ports = {
        shown: str(free_port())
        for shown in ("9095", "9096", "9097", "9098", "9101", "9102", "9092")
    }
    for shown, port in ports.items():
        text = re.sub(rf"\b{shown}\b", port, text)
    commands = 0
    with ExitStack() as running:
        for kind, name, body in _BLOCK.findall(text):
            if kind == "console":
                for command, *output in _steps(body):
                    commands += 1
                    if name == "in one terminal":
                        running.enter_context(_background(command, output, tmp_path))
                    else:
                        assert _run(command, tmp_path) == output, command
            elif name:
                file = tmp_path / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(body)
    assert commands >= 8


def _steps(body: str) -> list[list[str]]:
    """Each command of a console block with the lines that it prints."""
    steps: list[list[str]] = []
    # A backslash continues a command on the next line.
    for line in re.split(r"(?<!\\)\n", body.rstrip("\n")):
        if line.startswith("$ "):
            steps.append([line[2:]])
        else:
            steps[-1].append(line)
    return steps


def _run(command: str, folder: Path) -> list[str]:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return (done.stdout + done.stderr).splitlines()
