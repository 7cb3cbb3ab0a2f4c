"""Colours and shell completion."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from krammar.cli import main
from tests.support.waiting import PATIENCE

BAD = "PingRequest => key 0, max version 0\n  A: int9\n"
RED = "\x1b[31m\x1b[1merror E204:\x1b[0m"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "a.krm").write_text(BAD)
    return tmp_path


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """The output of krammar where standard output is a terminal."""
    ours, theirs = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "krammar", *arguments],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=kept | environment,
    )
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 4096):
            output += chunk
    except OSError:
        pass  # the end of a terminal on Linux
    finally:
        process.wait(timeout=PATIENCE)
        os.close(ours)
    return output.decode()


def test_terminals_have_colours(source: Path) -> None:
    text = on_a_terminal("check", str(source))
    assert RED in text
    assert "\x1b[34m  |\x1b[0m" in text
    assert f"\x1b[1m{source}/a.krm:2:6:\x1b[0m" in text


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["check"], {"NO_COLOR": "1"}),
        (["--color", "never", "check"], {}),
        (["check", "--format", "json"], {}),
    ],
)
def test_terminals_without_colours(
    source: Path, arguments: list[str], environment: dict[str, str]
) -> None:
    text = on_a_terminal(*arguments, str(source), **environment)
    assert "E204" in text and "\x1b" not in text


@pytest.mark.parametrize(
    ("arguments", "coloured"),
    [
        (["check"], False),
        (["check", "--color", "auto"], False),
        (["check", "--color", "always"], True),
        (["--color", "always", "check"], True),
        (["--color", "always", "check", "--color", "never"], False),
        (["--color", "always", "check", "--color", "auto"], False),
    ],
)
def test_pipes_have_colours_only_on_request(
    source: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], coloured: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")  # --color takes precedence
    output = CliRunner().invoke(main, [*arguments, str(source)]).output
    assert ("\x1b" in output, RED in output) == (coloured, coloured)


def test_the_colours_of_a_diff(source: Path) -> None:
    (source / "a.krm").write_text(BAD + "\n")
    output = CliRunner().invoke(main, ["fmt", "--diff", "--color", "always", str(source)]).output
    assert "\x1b[31m-\x1b[0m\n" in output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    result = CliRunner().invoke(
        main, [], prog_name="krammar", env={"_KRAMMAR_COMPLETE": f"{shell}_source"}
    )
    assert "_KRAMMAR_COMPLETE" in result.output


def test_completion_of_verbs_and_options() -> None:
    def completed(words: str, number: int) -> list[str]:
        words_of_bash = {"COMP_WORDS": words, "COMP_CWORD": str(number)}
        result = CliRunner().invoke(
            main,
            [],
            prog_name="krammar",
            env={"_KRAMMAR_COMPLETE": "bash_complete", **words_of_bash},
        )
        return [line.removeprefix("plain,") for line in result.output.split()]

    assert completed("krammar d", 1) == ["diff", "docs", "doctor"]
    assert completed("krammar diff --ac", 2) == ["--accepted"]
    assert completed("krammar check --format s", 3) == ["sarif"]
