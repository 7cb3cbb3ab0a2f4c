"""Keys and signatures of SCRAM-SHA-256 and SCRAM-SHA-512, for both sides (RFC 5802, RFC 7677)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass

# The minimum of RFC 7677 and of Kafka.
MIN_ITERATIONS = 4096

NONCE = r"[\x21-\x2b\x2d-\x7e]+"


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A SCRAM mechanism: its ``name`` in SASL, its ``number`` in Kafka's ScramMechanism, its ``hash`` in hashlib."""

    name: str
    number: int
    hash: str

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Return ``SaltedPassword`` of RFC 5802.

        The password is encoded as UTF-8 without SASLprep, as Kafka's clients and tools encode it.
        """
        return hashlib.pbkdf2_hmac(self.hash, password.encode(), salt, iterations)

    def client_key(self, salted: bytes) -> bytes:
        return hmac.digest(salted, b"Client Key", self.hash)

    def server_key(self, salted: bytes) -> bytes:
        return hmac.digest(salted, b"Server Key", self.hash)

    def stored_key(self, client_key: bytes) -> bytes:
        return hashlib.new(self.hash, client_key).digest()

    def sign(self, key: bytes, auth_message: bytes) -> bytes:
        """Return the signature of ``AuthMessage``, which contains the messages of both sides."""
        return hmac.digest(key, auth_message, self.hash)


SHA_256 = Mechanism("SCRAM-SHA-256", 1, "sha256")
SHA_512 = Mechanism("SCRAM-SHA-512", 2, "sha512")
BY_NAME = {mechanism.name: mechanism for mechanism in (SHA_256, SHA_512)}


class ScramError(Exception):
    """A message violates RFC 5802, a proof is wrong, or the other side refused the login."""


def xor(one: bytes, other: bytes) -> bytes:
    """Combine two byte strings of the same length."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def to_text(message: bytes) -> str:
    """Decode a message as UTF-8. Raises ScramError."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("a message is not UTF-8") from None


def from_base64(value: str) -> bytes:
    """Decode a base64 value. Raises ScramError."""
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise ScramError("a value is not base64") from None
