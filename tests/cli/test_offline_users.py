"""SCRAM users that are changed while no broker runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from krammar.broker import Broker, BrokerError
from krammar.cli.users import User, UserError, add_user, list_users, remove_user
from tests.broker.security.support import PROPERTIES, can_log_in


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Broker]:
    with Broker.start(properties=PROPERTIES, data_dir=tmp_path) as broker:
        yield broker


def test_users_before_the_first_start(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert not add_user(folder, "alice", "secret", "SCRAM-SHA-512")
    assert not add_user(folder, "alice", "secret", "SCRAM-SHA-256", 8192)
    assert not add_user(folder, "bob", "secret", "SCRAM-SHA-256")
    assert add_user(folder, "alice", "new-secret", "SCRAM-SHA-512")
    assert list_users(folder) == [
        User("alice", "SCRAM-SHA-256", 8192),
        User("alice", "SCRAM-SHA-512", 4096),
        User("bob", "SCRAM-SHA-256", 4096),
    ]
    assert remove_user(folder, "bob") == ["SCRAM-SHA-256"]
    with Broker.start(properties=PROPERTIES, data_dir=folder) as broker:
        assert can_log_in(broker, "SCRAM-SHA-512", "alice", "new-secret")
        assert can_log_in(broker, "SCRAM-SHA-256", "alice", "secret")
        assert not can_log_in(broker, "SCRAM-SHA-256", "bob", "secret")


def test_keeps_what_the_folder_has(tmp_path: Path) -> None:
    with Broker.start(properties=PROPERTIES, data_dir=tmp_path) as broker:
        broker.call(broker.topics.create, "letters", 3)
    before = (tmp_path / "meta.properties").read_bytes()
    add_user(tmp_path, "alice", "secret")
    assert (tmp_path / "meta.properties").read_bytes() == before
    with Broker.start(properties=PROPERTIES, data_dir=tmp_path) as broker:
        assert broker.call(lambda: len(broker.cluster.topics["letters"].partitions)) == 3
        assert can_log_in(broker, "SCRAM-SHA-512", "alice", "secret")


def test_refuses_a_folder_that_a_broker_holds(secured: Broker, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from krammar.cli.users import add_user\n"
        "add_user(Path(sys.argv[1]), 'alice', 'secret')"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False
    )
    assert "BrokerError: a broker has" in run.stderr
    with pytest.raises(BrokerError, match=r"a broker has .* open"):
        list_users(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", "secret"), "needs a name"),
        (("alice", ""), "needs a password"),
        (("alice", "secret", "PLAIN"), "'PLAIN' is not a SCRAM mechanism"),
        (("alice", "secret", "SCRAM-SHA-256", 4095), "4095 iterations"),
        (("alice", "secret", "SCRAM-SHA-256", 16385), "16385 iterations"),
    ],
)
def test_refuses_users(tmp_path: Path, arguments: tuple[Any, ...], message: str) -> None:
    folder = tmp_path / "data"
    with pytest.raises(UserError, match=message):
        add_user(folder, *arguments)
    assert not folder.exists()


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.write_text("no folder")
    with pytest.raises(BrokerError, match=f"{folder}: File exists"):
        add_user(folder, "alice", "secret")
    assert folder.read_text() == "no folder"


def test_refuses_what_is_not_there(tmp_path: Path) -> None:
    for call in (list_users, lambda folder: remove_user(folder, "alice")):
        with pytest.raises(UserError, match="not the folder of a broker"):
            call(tmp_path)
    assert list(tmp_path.iterdir()) == []
    add_user(tmp_path, "alice", "secret", "SCRAM-SHA-256")
    with pytest.raises(UserError, match="no user 'bob'"):
        remove_user(tmp_path, "bob")
    with pytest.raises(UserError, match="no user 'alice' with SCRAM-SHA-512"):
        remove_user(tmp_path, "alice", "SCRAM-SHA-512")
