"""SCRAM-SHA-256 and SCRAM-SHA-512, the client's side (RFC 5802, RFC 7677), without channel binding."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

# RFC 7677 asks for 4096 at least, and so does Kafka.
_FEWEST_ITERATIONS = 4096
# A server could keep a client busy with a number of iterations that takes minutes.
_MOST_ITERATIONS = 10_000_000

_FIRST = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[^,]+),i=(?P<count>\d{1,9})(?:,.*)?"
)


class ScramError(Exception):
    """The server refuses the login, breaks the rules, or does not know the password itself."""


class ScramClient:
    """One login: ``first()`` goes out; ``answer`` makes the final message of what came back, and
    ``verify`` checks what came back on that.

    The password is used as UTF-8 without SASLprep, as Kafka's clients and brokers use it.
    """

    def __init__(
        self, mechanism: str, user: str, password: str, *, nonce: str | None = None
    ) -> None:
        self._hash = HASHES[mechanism]
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
        text = _text(message)
        match = _FIRST.fullmatch(text)
        if match is None:
            raise ScramError(f"the server's first message is malformed: {text[:200]!r}")
        nonce = match["nonce"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's nonce does not go on from ours")
        count = int(match["count"])
        if not _FEWEST_ITERATIONS <= count <= _MOST_ITERATIONS:
            raise ScramError(
                f"{count} iterations: {_FEWEST_ITERATIONS} to {_MOST_ITERATIONS} are accepted"
            )
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._password.encode(), _base64(match["salt"]), count
        )
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        unproven = f"c=biws,r={nonce}"  # "n,,": no channel binding
        said = f"{self._bare},{text},{unproven}".encode()
        proof = bytes(
            a ^ b
            for a, b in zip(client_key, hmac.digest(stored_key, said, self._hash), strict=True)
        )
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._signature = hmac.digest(server_key, said, self._hash)
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, message: bytes) -> None:
        """Raises ScramError unless the server's final message proves that it knows the password."""
        text = _text(message)
        if text.startswith("e="):
            raise ScramError(f"the server refuses the login: {text[2:200]}")
        value = text.partition(",")[0]
        if not value.startswith("v=") or self._signature is None:
            raise ScramError(f"the server's final message is malformed: {text[:200]!r}")
        if not hmac.compare_digest(_base64(value[2:]), self._signature):
            raise ScramError("the server could not prove that it knows the password")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("a message of the server is not UTF-8") from None


def _base64(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("a value of the server is not base64") from None
