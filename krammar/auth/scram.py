"""What both sides of SCRAM-SHA-256 and SCRAM-SHA-512 share (RFC 5802, RFC 7677): keys, proofs, texts."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass

# RFC 7677 asks for no fewer, and so does Kafka.
MIN_ITERATIONS = 4096

NONCE = r"[\x21-\x2b\x2d-\x7e]+"


@dataclass(frozen=True, slots=True)
class Mechanism:
    """``name`` as SASL knows it, ``number`` as ``ScramMechanism`` does, ``hash`` as hashlib does."""

    name: str
    number: int
    hash: str

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """``Hi(password, salt, iterations)``. The password goes in as UTF-8 without SASLprep, as
        Kafka's clients and tools do it."""
        return hashlib.pbkdf2_hmac(self.hash, password.encode(), salt, iterations)

    def client_key(self, salted: bytes) -> bytes:
        return hmac.digest(salted, b"Client Key", self.hash)

    def server_key(self, salted: bytes) -> bytes:
        return hmac.digest(salted, b"Server Key", self.hash)

    def stored_key(self, client_key: bytes) -> bytes:
        return hashlib.new(self.hash, client_key).digest()

    def sign(self, key: bytes, said: bytes) -> bytes:
        """The signature of what both sides have said."""
        return hmac.digest(key, said, self.hash)


SHA_256 = Mechanism("SCRAM-SHA-256", 1, "sha256")
SHA_512 = Mechanism("SCRAM-SHA-512", 2, "sha512")
BY_NAME = {mechanism.name: mechanism for mechanism in (SHA_256, SHA_512)}


class ScramError(Exception):
    """A message that does not follow RFC 5802, a proof that is not right, or a refusal."""


def xor(one: bytes, other: bytes) -> bytes:
    """Of two of the same length."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def to_text(message: bytes) -> str:
    """Raises ScramError."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("a message is not UTF-8") from None


def from_base64(value: str) -> bytes:
    """Raises ScramError."""
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise ScramError("a value is not base64") from None
