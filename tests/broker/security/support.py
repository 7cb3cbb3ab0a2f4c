"""SCRAM users for tests of logins."""

from __future__ import annotations

import base64
import hashlib
import hmac

from kafka_wire import (
    AlterUserScramCredentialsRequest,
    ErrorCode,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    ScramMechanism,
)

from krammar.auth import scram_server
from krammar.auth.scram import BY_NAME
from krammar.broker import Broker
from tests.broker.support import RawClient

PROPERTIES = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "connection.failed.authentication.delay.ms": "0",
}
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def plain(user: str, password: str, identity: str = "") -> bytes:
    """Return the bytes of a PLAIN login."""
    return f"{identity}\0{user}\0{password}".encode()


class ScramClient:
    """The client's side of SCRAM."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self.hash = BY_NAME[mechanism].hash
        self.password = password
        self.bare = f"n={user},r=clientnonce"
        self.first = b"n,," + self.bare.encode()

    def final(self, challenge: bytes) -> bytes:
        values = dict(part.split("=", 1) for part in challenge.decode().split(","))
        unproven = f"c=biws,r={values['r']}"
        said = ",".join([self.bare, challenge.decode(), unproven]).encode()
        salt = base64.b64decode(values["s"])
        salted = hashlib.pbkdf2_hmac(self.hash, self.password.encode(), salt, int(values["i"]))
        key = hmac.digest(salted, b"Client Key", self.hash)
        signature = hmac.digest(hashlib.new(self.hash, key).digest(), said, self.hash)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()


def upsertion(
    name: str, password: str, mechanism: int = SHA_256, iterations: int = 4096
) -> AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
    """Build the change that gives a user a SCRAM password."""
    kind = scram_server.BY_NUMBER.get(mechanism, BY_NAME["SCRAM-SHA-256"])
    salted = kind.salted_password(password, b"salt", max(iterations, 1))
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=salted,
    )


def deletion(
    name: str, mechanism: int = SHA_256
) -> AlterUserScramCredentialsRequest.ScramCredentialDeletion:
    """Build the change that removes a user's SCRAM password."""
    return AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)


def can_log_in(broker: Broker, mechanism: str, user: str, password: str) -> bool:
    """Return whether a user can log in through SCRAM."""
    with RawClient(broker.addresses["SASL_PLAINTEXT"][1]) as client:
        assert client.call(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
        messages = ScramClient(mechanism, user, password)
        challenge = client.call(SaslAuthenticateRequest(auth_bytes=messages.first))
        final = messages.final(challenge.auth_bytes)
        code = client.call(SaslAuthenticateRequest(auth_bytes=final)).error_code
        return ErrorCode(code) == ErrorCode.NONE
