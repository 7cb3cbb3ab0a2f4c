"""The client side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), without channel binding."""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from functools import lru_cache

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

# Without a limit, a server could request iterations that take minutes. Kafka's brokers use at most 16384; this many
# take a quarter of a second.
MAX_ITERATIONS = 100_000

_FIRST = re.compile(rf"r=(?P<nonce>{NONCE}),s=(?P<salt>[^,]+),i=(?P<count>\d{{1,9}})(?:,.*)?")

# Salted passwords that are remembered. All brokers of a cluster have the same salt for a user, so a program needs one.
_SALTED = 64


class ScramClient:
    """One login: send ``first()``, then ``answer()`` to the server's first message, then ``verify`` its final one.

    As in Kafka's clients and brokers, the password is encoded as UTF-8 without SASLprep. ``max_iterations`` limits
    the work that a server can request.
    """

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        *,
        max_iterations: int = MAX_ITERATIONS,
        nonce: str | None = None,
    ) -> None:
        self._mechanism = BY_NAME[mechanism]
        self._password = password
        self._max_iterations = max_iterations
        self._nonce = secrets.token_urlsafe(24) if nonce is None else nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._signature: bytes | None = None

    def first(self) -> bytes:
        """Return the client's first message."""
        return f"n,,{self._bare}".encode()

    def answer(self, message: bytes) -> bytes:
        """Return the client's final message, the answer to the server's first message.

        Raises:
            ScramError: the message is malformed, or its number of iterations is not allowed.
        """
        text = to_text(message)
        match = _FIRST.fullmatch(text)
        if match is None:
            raise ScramError(f"the server's first message is malformed: {text[:200]!r}")
        nonce = match["nonce"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's nonce does not begin with the client's")
        count = int(match["count"])
        if count < MIN_ITERATIONS:
            raise ScramError(
                f"the server requests {count} iterations, but fewer than {MIN_ITERATIONS} are not safe"
            )
        if count > self._max_iterations:
            raise ScramError(
                f"the server requests {count} iterations, more than the client's limit of "
                f"{self._max_iterations} (set krammar.scram.max.iterations to allow them)"
            )
        mechanism = self._mechanism
        salted = _salted_password(mechanism, self._password, from_base64(match["salt"]), count)
        client_key = mechanism.client_key(salted)
        unproven = f"c=biws,r={nonce}"  # "n,,": no channel binding
        said = f"{self._bare},{text},{unproven}".encode()
        proof = xor(client_key, mechanism.sign(mechanism.stored_key(client_key), said))
        self._signature = mechanism.sign(mechanism.server_key(salted), said)
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, message: bytes) -> None:
        """Raise ScramError unless the server's final message proves that it knows the password."""
        text = to_text(message)
        if text.startswith("e="):
            raise ScramError(f"the server refuses the login: {text[2:200]}")
        value = text.partition(",")[0]
        if not value.startswith("v=") or self._signature is None:
            raise ScramError(f"the server's final message is malformed: {text[:200]!r}")
        if not hmac.compare_digest(from_base64(value[2:]), self._signature):
            raise ScramError("the server cannot prove that it knows the password")


@lru_cache(_SALTED)
def _salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return ``SaltedPassword``, which RFC 5802 lets clients remember, because it takes thousands of hashes."""
    return mechanism.salted_password(password, salt, iterations)
