"""A login with SCRAM does not reveal which users exist."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import pytest
from kafka_wire import (
    AlterUserScramCredentialsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

from krammar.broker import Broker, BrokerError
from krammar.broker.security import users as users_module
from krammar.broker.security.users import DECOY_KEY, read_decoy_key
from tests.broker.support import RawClient

LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
PROPERTIES = {"listeners": LISTENERS, "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}


def challenge(port: int, user: str, mechanism: str = "SCRAM-SHA-512") -> tuple[str, str]:
    """The salt and the iterations that the broker names."""
    with RawClient(port) as client:
        client.call(SaslHandshakeRequest(mechanism=mechanism), 1)
        first = f"n,,n={user},r=nonce".encode()
        answer = client.call(SaslAuthenticateRequest(auth_bytes=first), 2)
        assert answer.error_code == 0
        fields = dict(part.split("=", 1) for part in answer.auth_bytes.decode().split(","))
        return fields["s"], fields["i"]


def ports(broker: Broker) -> list[int]:
    return [node.addresses["SASL_PLAINTEXT"][1] for node in broker.nodes.values()]


def add_user(broker: Broker, name: str, salt: bytes, iterations: int) -> None:
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name, mechanism=2, iterations=iterations, salt=salt, salted_password=b"x" * 64
    )
    with RawClient(broker.port) as client:
        answer = client.call(
            AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0
        )
        assert [each.error_code for each in answer.results] == [0]


def test_on_every_node_and_after_a_restart(tmp_path: Path) -> None:
    found = set()
    for _ in range(2):
        with Broker.start(properties=PROPERTIES, nodes=3, data_dir=tmp_path) as broker:
            found |= {challenge(port, "stranger") for port in ports(broker)}
    assert len(found) == 1
    assert stat.S_IMODE((tmp_path / DECOY_KEY).stat().st_mode) == 0o600


def test_salts_and_iterations_are_those_of_users() -> None:
    with Broker.start(properties=PROPERTIES) as broker:
        port = broker.addresses["SASL_PLAINTEXT"][1]
        salt, iterations = challenge(port, "stranger")
        assert (len(base64.b64decode(salt)), iterations) == (32, "4096")
        add_user(broker, "alice", b"s" * 64, 8192)
        for user in ("alice", "stranger", "other"):
            salt, iterations = challenge(port, user)
            assert (len(base64.b64decode(salt)), iterations) == (64, "8192")
        # The other mechanism has no users.
        salt, iterations = challenge(port, "alice", "SCRAM-SHA-256")
        assert (len(base64.b64decode(salt)), iterations) == (32, "4096")


def test_the_same_work_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoy is made for users too, and the users are not searched for each login."""
    made: list[str] = []
    real: Any = users_module.scram_server.decoy

    def counted(mechanism: Any, secret: bytes, user: str, kinds: Any) -> Any:
        made.append(user)
        return real(mechanism, secret, user, kinds)

    with Broker.start(properties=PROPERTIES) as broker:
        add_user(broker, "alice", b"s" * 64, 8192)
        monkeypatch.setattr(users_module.scram_server, "decoy", counted)
        port = broker.addresses["SASL_PLAINTEXT"][1]
        for user in ("alice", "stranger"):
            challenge(port, user)
        assert made == ["alice", "stranger"]


def test_the_key_of_decoys(tmp_path: Path) -> None:
    key = read_decoy_key(tmp_path)
    assert len(key) == 32 and read_decoy_key(tmp_path) == key
    (tmp_path / DECOY_KEY).write_bytes(key[:5])  # after a power cut
    assert read_decoy_key(tmp_path) != key
    with pytest.raises(BrokerError, match=r"krammar-decoys.key: No such file"):
        read_decoy_key(tmp_path / "missing")
