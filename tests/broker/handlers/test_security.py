"""The APIs that change and describe SCRAM users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka_wire import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ErrorCode,
)

from krammar.broker import Broker
from tests.broker.security.support import (
    PROPERTIES,
    SHA_256,
    SHA_512,
    can_log_in,
    deletion,
    upsertion,
)
from tests.broker.support import RawClient

TWICE = "A user credential cannot be altered twice in the same request"


def alter(client: RawClient, *changes: Any) -> dict[str, tuple[ErrorCode, str | None]]:
    deletions = [
        each
        for each in changes
        if isinstance(each, AlterUserScramCredentialsRequest.ScramCredentialDeletion)
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
        None
        if names is None
        else [DescribeUserScramCredentialsRequest.UserName(name=n) for n in names]
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
