"""SCRAM-SHA-256 and SCRAM-SHA-512, the client's side (RFC 5802, RFC 7677), without channel binding."""

from __future__ import annotations

import base64
import hmac
import re
import secrets

from krammar.auth.scram import (
    BY_NAME,
    MIN_ITERATIONS,
    NONCE,
    ScramError,
    from_base64,
    to_text,
    xor,
)

# A server could keep a client busy with a number of iterations that takes minutes.
_MOST_ITERATIONS = 10_000_000

_FIRST = re.compile(rf"r=(?P<nonce>{NONCE}),s=(?P<salt>[^,]+),i=(?P<count>\d{{1,9}})(?:,.*)?")


class ScramClient:
    """One login: ``first()`` goes out; ``answer`` makes the final message of what came back, and
    ``verify`` checks what came back on that.

    The password is used as UTF-8 without SASLprep, as Kafka's clients and brokers use it.
    """

    def __init__(
        self, mechanism: str, user: str, password: str, *, nonce: str | None = None
    ) -> None:
        self._mechanism = BY_NAME[mechanism]
        self._password = password
        self._nonce = secrets.token_urlsafe(24) if nonce is None else nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._signature: bytes | None = None

    def first(self) -> bytes:
        """The client's first message."""
        return f"n,,{self._bare}".encode()

    def answer(self, message: bytes) -> bytes:
        """The client's final message. Raises ScramError for a server's first message that is wrong."""
        text = to_text(message)
        match = _FIRST.fullmatch(text)
        if match is None:
            raise ScramError(f"the server's first message is malformed: {text[:200]!r}")
        nonce = match["nonce"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's nonce does not go on from ours")
        count = int(match["count"])
        if not MIN_ITERATIONS <= count <= _MOST_ITERATIONS:
            raise ScramError(
                f"{count} iterations: {MIN_ITERATIONS} to {_MOST_ITERATIONS} are accepted"
            )
        mechanism = self._mechanism
        salted = mechanism.salted_password(self._password, from_base64(match["salt"]), count)
        client_key = mechanism.client_key(salted)
        unproven = f"c=biws,r={nonce}"  # "n,,": no channel binding
        said = f"{self._bare},{text},{unproven}".encode()
        proof = xor(client_key, mechanism.sign(mechanism.stored_key(client_key), said))
        self._signature = mechanism.sign(mechanism.server_key(salted), said)
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, message: bytes) -> None:
        """Raises ScramError unless the server's final message proves that it knows the password."""
        text = to_text(message)
        if text.startswith("e="):
            raise ScramError(f"the server refuses the login: {text[2:200]}")
        value = text.partition(",")[0]
        if not value.startswith("v=") or self._signature is None:
            raise ScramError(f"the server's final message is malformed: {text[:200]!r}")
        if not hmac.compare_digest(from_base64(value[2:]), self._signature):
            raise ScramError("the server could not prove that it knows the password")
