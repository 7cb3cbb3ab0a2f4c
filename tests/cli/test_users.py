"""``krammar users``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from krammar.broker import Broker
from krammar.cli.users import users
from tests.broker.security.support import PROPERTIES, can_log_in


def command(*arguments: str | Path, **options: Any) -> Result:
    return CliRunner().invoke(users, [str(argument) for argument in arguments], **options)


def test_command_takes_the_password_in_three_ways(tmp_path: Path) -> None:
    where = ("--data-dir", tmp_path)
    result = command("add", "alice", *where, "--password-stdin", input="one\nrest\n")
    assert result.output == "alice: SCRAM-SHA-512 password added\n"
    result = command("add", "bob", *where, env={"KRAMMAR_PASSWORD": "two"})
    assert result.exit_code == 0
    result = command("add", "carol", *where, "--mechanism", "SCRAM-SHA-256", input="three\nthree\n")
    assert result.exit_code == 0
    result = command("add", "bob", *where, env={"KRAMMAR_PASSWORD": "four"})
    assert result.output == "bob: SCRAM-SHA-512 password replaced\n"

    result = command("list", *where)
    assert result.output.splitlines() == [
        "alice\tSCRAM-SHA-512\t4096 iterations",
        "bob\tSCRAM-SHA-512\t4096 iterations",
        "carol\tSCRAM-SHA-256\t4096 iterations",
    ]
    result = command("remove", "carol", *where)
    assert result.output == "carol: SCRAM-SHA-256 password removed\n"
    with Broker.start(properties=PROPERTIES, data_dir=tmp_path) as broker:
        assert can_log_in(broker, "SCRAM-SHA-512", "alice", "one")
        assert can_log_in(broker, "SCRAM-SHA-512", "bob", "four")


def test_command_misused(tmp_path: Path) -> None:
    result = command("remove", "alice", "--data-dir", tmp_path / "none")
    assert result.exit_code == 2
    assert "not the folder of a broker" in result.output
    result = command("add", "alice", "--data-dir", tmp_path, "--iterations", "1")
    assert result.exit_code == 2
    result = command("add", "alice", "--data-dir", tmp_path, "--password-stdin", input="\n")
    assert result.exit_code == 2
    assert "needs a password" in result.output
    result = command("add", "alice", "--data-dir", f"{tmp_path}/a,b", env={"KRAMMAR_PASSWORD": "x"})
    assert result.exit_code == 2 and "its name has a comma" in result.output
    assert list(tmp_path.iterdir()) == []
    assert command("--help").exit_code == 0


@pytest.mark.parametrize("given", [["--password-stdin"], []], ids=["input", "environment"])
def test_a_password_that_is_not_utf_8(tmp_path: Path, given: list[str]) -> None:
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "krammar",
            "broker-user",
            "add",
            "alice",
            "--data-dir",
            tmp_path,
            *given,
        ],
        env={**os.environ, **({} if given else {"KRAMMAR_PASSWORD": "\udce9"})},
        input=b"\xe9\n",
        capture_output=True,
    )
    assert found.returncode == 2
    assert b"the password is not UTF-8" in found.stderr and b"Traceback" not in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_refuses_a_folder_that_a_broker_holds(tmp_path: Path) -> None:
    with Broker.start(properties=PROPERTIES, data_dir=tmp_path):
        result = command("list", "--data-dir", tmp_path)
    assert result.exit_code == 1
    assert "a broker has" in result.output
