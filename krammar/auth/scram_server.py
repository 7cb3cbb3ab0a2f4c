"""The server side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677).

The broker does not store passwords, only two keys that are derived from each. As in Kafka, channel binding is not
supported: clients that request or offer it are refused.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from krammar.auth.exchanges import IdentityError, LoginExchange
from krammar.auth.scram import (
    BY_NAME,
    MIN_ITERATIONS,
    NONCE,
    Mechanism,
    ScramError,
    from_base64,
    to_text,
    xor,
)

MAX_ITERATIONS = 16384
SALT_SIZE = 32

BY_NUMBER = {mechanism.number: mechanism for mechanism in BY_NAME.values()}


@dataclass(frozen=True, slots=True)
class Credential:
    """The stored credential of a user. RFC 5802, section 3, defines the keys."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


class Stored(Protocol):
    """A credential, or a record of the metadata log with the same fields."""

    @property
    def salt(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...


# Returns a user's credential and True, or a decoy and False for an unknown user.
Find = Callable[[str], tuple[Stored, bool]]


def credential_of(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Derive the credential from a salted password."""
    return Credential(
        salt=salt,
        iterations=iterations,
        stored_key=mechanism.stored_key(mechanism.client_key(salted)),
        server_key=mechanism.server_key(salted),
    )


def new_credential(
    mechanism: Mechanism, password: str, iterations: int = MIN_ITERATIONS
) -> Credential:
    """Derive the credential from a password, with a new salt."""
    salt = secrets.token_bytes(SALT_SIZE)
    salted = mechanism.salted_password(password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def decoy(
    mechanism: Mechanism, secret: bytes, user: str, kinds: Collection[tuple[int, int]]
) -> Credential:
    """Return a credential for a user that does not exist.

    It is the same in each attempt, and has the form of a real one, so clients cannot find out which users exist. No
    password has its keys.

    Args:
        secret: a key that no client knows; the same on all nodes and after a restart
        kinds: the size of the salt and the number of iterations of real credentials, at least one
    """
    name = user.encode("utf-8", "surrogatepass")

    def fill(label: bytes) -> bytes:
        return mechanism.sign(secret, label + name)

    # If one kind is added, the other users keep theirs.
    size, iterations = max(kinds, key=lambda kind: (fill(b"%d %d " % kind), kind))
    pieces = -(-size // 32)
    salt = b"".join(fill(b"salt %d " % index)[:32] for index in range(pieces))
    return Credential(
        salt=salt[:size],
        iterations=iterations,
        stored_key=fill(b"stored"),
        server_key=fill(b"server"),
    )


_NAME = r"(?:[^\0=,]|=2C|=3D)+"
_EXTENSIONS = r"(?:,[A-Za-z]=[^\0,]+)*"
# Kafka's token attribute has a name of more than one letter.
_KAFKA_EXTENSIONS = r"(?:,[A-Za-z]+=[^\0,]+)*"
_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>{NONCE})(?P<extensions>{_KAFKA_EXTENSIONS}))"
)
_FINAL = re.compile(
    rf"(?P<unproven>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>{NONCE}){_EXTENSIONS})"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


class ScramServer(LoginExchange):
    """A login with SCRAM. ``nonce`` is the server's part of the nonce, random by default."""

    _credential: Stored | None = None

    def __init__(self, mechanism: Mechanism, find: Find, *, nonce: str | None = None) -> None:
        self._mechanism = mechanism
        self._find = find
        self._own_nonce = secrets.token_urlsafe(24) if nonce is None else nonce

    def step(self, message: bytes) -> bytes:
        if self.done:
            raise ScramError("the client sent a message after the end of the login")
        if self._credential is None:
            return self._first(to_text(message))
        return self._final(to_text(message), self._credential)

    def _first(self, message: str) -> bytes:
        match = _FIRST.fullmatch(message)
        if match is None:
            if message.startswith(("y,", "p=")):
                raise ScramError("the client requests channel binding")
            raise ScramError("the client's first message is malformed")
        # Clients with a delegation token (KIP-48) send this attribute; this broker has no tokens.
        if any(part.lower() == "tokenauth=true" for part in match["extensions"].split(",")):
            raise ScramError("the client logs in with a delegation token")
        user = _unescape(match["user"])
        if match["authzid"] is not None and _unescape(match["authzid"]) != user:
            raise IdentityError
        self.user = user
        self._credential, self._known = self._find(user)
        self._gs2 = match["gs2"]
        self._nonce = match["nonce"] + self._own_nonce
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._so_far = f"{match['bare']},{answer}"
        return answer.encode()

    def _final(self, message: str, credential: Stored) -> bytes:
        match = _FINAL.fullmatch(message)
        if match is None:
            raise ScramError("the client's final message is malformed")
        if not hmac.compare_digest(match["nonce"], self._nonce):
            raise ScramError("the client's final message has another nonce")
        if from_base64(match["binding"]) != self._gs2.encode():
            raise ScramError("the client's final message has another channel binding")
        said = f"{self._so_far},{match['unproven']}".encode()
        if not self._proves(from_base64(match["proof"]), said, credential):
            raise ScramError("unknown user or wrong password")
        self.done = True
        signature = self._mechanism.sign(credential.server_key, said)
        return b"v=" + base64.b64encode(signature)

    def _proves(self, proof: bytes, said: bytes, credential: Stored) -> bool:
        signature = self._mechanism.sign(credential.stored_key, said)
        if len(proof) != len(signature):
            return False
        client_key = xor(proof, signature)
        stored_key = self._mechanism.stored_key(client_key)
        # Both conditions are always evaluated, so the time reveals nothing.
        return hmac.compare_digest(stored_key, credential.stored_key) & self._known
