"""SCRAM users: the APIs that change them, and the command that does while no broker runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kafka_wire import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequestUser,
    ErrorCode,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    ScramMechanism,
)

from krammar.auth.scram import BY_NAME
from krammar.broker import Broker, BrokerError
from krammar.broker.security import scram
from krammar.broker.security.cli import users
from krammar.broker.security.users import User, UserError, add_user, list_users, remove_user
from tests.broker.support import RawClient
from tests.broker.test_security_logins import ScramClient

PROPERTIES = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "connection.failed.authentication.delay.ms": "0",
}
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
TWICE = "A user credential cannot be altered twice in the same request"


def upsertion(
    name: str, password: str, mechanism: int = SHA_256, iterations: int = 4096
) -> AlterUserScramCredentialsRequestUpsertion:
    kind = scram.BY_NUMBER.get(mechanism, BY_NAME["SCRAM-SHA-256"])
    salted = kind.salted_password(password, b"salt", max(iterations, 1))
    return AlterUserScramCredentialsRequestUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=salted,
    )


def deletion(name: str, mechanism: int = SHA_256) -> AlterUserScramCredentialsRequestDeletion:
    return AlterUserScramCredentialsRequestDeletion(name=name, mechanism=mechanism)


def alter(client: RawClient, *changes: Any) -> dict[str, tuple[ErrorCode, str | None]]:
    deletions = [
        each for each in changes if isinstance(each, AlterUserScramCredentialsRequestDeletion)
    ]
    upsertions = [each for each in changes if each not in deletions]
    response = client.call(
        AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    )
    names = [result.user for result in response.results]
    assert len(set(names)) == len(names)
    return {
        result.user: (ErrorCode(result.error_code), result.error_message)
        for result in response.results
    }


def describe(
    client: RawClient, names: Sequence[str] | None
) -> dict[str, tuple[ErrorCode, list[tuple[int, int]]]]:
    asked = (
        None if names is None else [DescribeUserScramCredentialsRequestUser(name=n) for n in names]
    )
    response = client.call(DescribeUserScramCredentialsRequest(users=asked))
    assert response.error_code == 0
    return {
        result.user: (
            ErrorCode(result.error_code),
            [(info.mechanism, info.iterations) for info in result.credential_infos],
        )
        for result in response.results
    }


def can_log_in(broker: Broker, mechanism: str, user: str, password: str) -> bool:
    with RawClient(broker.addresses["SASL_PLAINTEXT"][1]) as client:
        assert client.call(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
        messages = ScramClient(mechanism, user, password)
        challenge = client.call(SaslAuthenticateRequest(auth_bytes=messages.first))
        final = messages.final(challenge.auth_bytes)
        code = client.call(SaslAuthenticateRequest(auth_bytes=final)).error_code
        return ErrorCode(code) == ErrorCode.NONE


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Broker]:
    with Broker.start(properties=PROPERTIES, data_dir=tmp_path) as broker:
        yield broker


@pytest.fixture
def admin(secured: Broker) -> Iterator[RawClient]:
    with RawClient(secured.port) as client:
        yield client


def test_adds_changes_and_deletes(secured: Broker, admin: RawClient) -> None:
    ok = (ErrorCode.NONE, None)
    assert alter(admin, upsertion("alice", "one"), upsertion("bob", "two", SHA_512, 16384)) == {
        "alice": ok,
        "bob": ok,
    }
    assert alter(admin, upsertion("alice", "three", SHA_512)) == {"alice": ok}
    assert describe(admin, None) == {
        "alice": (ErrorCode.NONE, [(SHA_256, 4096), (SHA_512, 4096)]),
        "bob": (ErrorCode.NONE, [(SHA_512, 16384)]),
    }
    assert describe(admin, []) == describe(admin, None)
    assert can_log_in(secured, "SCRAM-SHA-256", "alice", "one")
    assert can_log_in(secured, "SCRAM-SHA-512", "alice", "three")
    assert not can_log_in(secured, "SCRAM-SHA-512", "alice", "one")
    assert not can_log_in(secured, "SCRAM-SHA-256", "bob", "two")

    assert alter(admin, upsertion("alice", "four"), deletion("bob", SHA_512)) == {
        "alice": ok,
        "bob": ok,
    }
    assert can_log_in(secured, "SCRAM-SHA-256", "alice", "four")
    assert not can_log_in(secured, "SCRAM-SHA-256", "alice", "one")
    assert not can_log_in(secured, "SCRAM-SHA-512", "bob", "two")


def test_users_are_there_after_a_restart(tmp_path: Path) -> None:
    with (
        Broker.start(properties=PROPERTIES, data_dir=tmp_path) as broker,
        RawClient(broker.port) as client,
    ):
        alter(client, upsertion("alice", "one"), upsertion("bob", "two"))
        alter(client, deletion("bob"))
    with Broker.start(properties=PROPERTIES, data_dir=tmp_path) as broker:
        assert can_log_in(broker, "SCRAM-SHA-256", "alice", "one")
        assert not can_log_in(broker, "SCRAM-SHA-256", "bob", "two")


def test_what_cannot_be_changed(admin: RawClient) -> None:
    alter(admin, upsertion("alice", "one"))
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    unsupported = (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    assert alter(
        admin,
        upsertion("", "x"),
        upsertion("few", "x", iterations=4095),
        upsertion("many", "x", iterations=16385),
        upsertion("negative", "x", iterations=-1),
        upsertion("unknown", "x", 0),
        upsertion("unknown too", "x", 3),
        deletion("no one", 9),
        deletion("nobody"),
        deletion("alice", SHA_512),
        upsertion("fine", "x"),
    ) == {
        "": (unacceptable, "Username must not be empty"),
        "few": (unacceptable, "Too few iterations"),
        "many": (unacceptable, "Too many iterations"),
        "negative": (unacceptable, "Too few iterations"),
        "unknown": unsupported,
        "unknown too": unsupported,
        "no one": unsupported,
        "nobody": (
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
        "alice": (
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
        "fine": (ErrorCode.NONE, None),
    }
    assert sorted(describe(admin, None)) == ["alice", "fine"]


def test_a_user_stands_in_a_request_once(admin: RawClient) -> None:
    alter(admin, upsertion("alice", "one"), upsertion("bob", "one"), upsertion("carol", "one"))
    twice = (ErrorCode.DUPLICATE_RESOURCE, TWICE)
    assert alter(
        admin,
        deletion("alice"),
        deletion("alice"),
        deletion("bob"),
        deletion("nobody"),
        upsertion("bob", "two", SHA_512),
        upsertion("carol", "two"),
        upsertion("carol", "three"),
        upsertion("carol", "four"),
        upsertion("dave", "five", SHA_512),
        upsertion("nobody", "six"),
    ) == {
        "alice": twice,
        "bob": twice,
        "carol": twice,
        "dave": (ErrorCode.NONE, None),
        "nobody": (
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
    }
    assert describe(admin, None) == {
        "alice": (ErrorCode.NONE, [(SHA_256, 4096)]),
        "bob": (ErrorCode.NONE, [(SHA_256, 4096)]),
        "carol": (ErrorCode.NONE, [(SHA_256, 4096)]),
        "dave": (ErrorCode.NONE, [(SHA_512, 4096)]),
    }


def test_describes_those_who_are_asked_for(admin: RawClient) -> None:
    alter(admin, upsertion("alice", "one"), upsertion("bob", "one"))
    assert describe(admin, ["bob", "nobody", "alice", "alice"]) == {
        "bob": (ErrorCode.NONE, [(SHA_256, 4096)]),
        "nobody": (ErrorCode.RESOURCE_NOT_FOUND, []),
        "alice": (ErrorCode.DUPLICATE_RESOURCE, []),
    }


# The command.


def command(*arguments: str | Path, **options: Any) -> Result:
    return CliRunner().invoke(users, [str(argument) for argument in arguments], **options)


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
        broker.call(broker.create_topic, "letters", 3)
    before = (tmp_path / "meta.properties").read_bytes()
    add_user(tmp_path, "alice", "secret")
    assert (tmp_path / "meta.properties").read_bytes() == before
    with Broker.start(properties=PROPERTIES, data_dir=tmp_path) as broker:
        assert broker.call(lambda: len(broker.cluster.topics["letters"].partitions)) == 3
        assert can_log_in(broker, "SCRAM-SHA-512", "alice", "secret")


def test_refuses_a_folder_that_a_broker_holds(secured: Broker, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from krammar.broker.security.users import add_user\n"
        "add_user(Path(sys.argv[1]), 'alice', 'secret')"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False
    )
    assert "BrokerError: a broker has" in run.stderr
    with pytest.raises(BrokerError, match=r"a broker has .* open"):
        list_users(tmp_path)
    result = command("list", "--data-dir", tmp_path)
    assert result.exit_code == 1
    assert "a broker has" in result.output


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
    assert command("--help").exit_code == 0
