"""What both sides of OAUTHBEARER share: messages (RFC 7628, KIP-342) and the claims in tokens (RFC 7519)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

MECHANISM = "OAUTHBEARER"
# A client's only answer to an error from the server (RFC 7628, section 3.2.3).
ERROR_ANSWER = b"\x01"

# The latest expiry of a token, in milliseconds since 1970: the year 9999. Responses use 64 bits for it.
LATEST_MS = 253_402_300_799_999

_TOKEN = re.compile(r"[\x21-\x7e]+")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_SCHEME = "bearer "


class OAuthError(ValueError):
    """A token or a message that does not follow its specification. The text never shows the token."""


class FirstMessage(NamedTuple):
    """A client's first message; ``identity`` is the requested authorization id, empty for none."""

    token: str
    extensions: dict[str, str]
    identity: str

    def encode(self) -> bytes:
        """Encode the message.

        Raises:
            OAuthError: The token or an extension contains characters that the message cannot hold.
        """
        check_token(self.token)
        check_extensions(self.extensions)
        pairs = {"auth": f"Bearer {self.token}", **self.extensions}
        body = "".join(f"{key}={value}\x01" for key, value in pairs.items())
        return f"n,{self.identity and f'a={self.identity}'},\x01{body}\x01".encode()

    @classmethod
    def decode(cls, message: bytes) -> FirstMessage:
        """Decode a message.

        Raises:
            OAuthError: The message is malformed.
        """
        try:
            header, *pairs, end, last = message.decode().split("\x01")
        except ValueError:
            raise OAuthError("the client's first message is malformed") from None
        identity = re.fullmatch(r"n,(?:a=([^,]*))?,", header)
        if identity is None or end or last:
            raise OAuthError("the client's first message is malformed")
        extensions = dict(pair.partition("=")[::2] for pair in pairs)
        scheme = extensions.pop("auth", "")
        if scheme[: len(_SCHEME)].lower() != _SCHEME:
            raise OAuthError("the client's first message has no bearer token")
        token = scheme[len(_SCHEME) :].strip()
        check_token(token)
        check_extensions(extensions)
        return cls(token, extensions, identity[1] or "")


def check_token(token: str) -> None:
    """Raise OAuthError unless a token consists of visible ASCII characters (RFC 6750)."""
    if not _TOKEN.fullmatch(token):
        raise OAuthError("the token is empty, or has characters other than visible ASCII")


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raise OAuthError for a SASL extension with an invalid name or value (RFC 7628, KIP-342)."""
    for key, value in extensions.items():
        if key == "auth" or not _KEY.fullmatch(key):
            raise OAuthError(f"the extension {key!r} needs a name of letters other than 'auth'")
        if not _VALUE.fullmatch(value):
            raise OAuthError(f"the extension {key!r} has an empty value, or one that is not ASCII")


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """How signed tokens are checked (Kafka's settings ``sasl.oauthbearer.*``). ``clock_skew_s`` is in seconds."""

    url: str
    audience: list[str]
    issuer: str | None
    required_scope: list[str]
    scope_claim: str
    sub_claim: str
    clock_skew_s: int
    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int


class Jwt(NamedTuple):
    """The parts of a JSON web token in compact form. Nothing in it is verified."""

    header: dict[str, Any]
    claims: dict[str, Any]
    signature: str

    @classmethod
    def decode(cls, token: str) -> Jwt:
        """Decode a token.

        Raises:
            OAuthError: The token is not a JSON web token.
        """
        parts = token.split(".")
        if len(parts) != 3:
            raise OAuthError("the token is not a JSON web token: it does not have three parts")
        return cls(_json(parts[0], "header"), _json(parts[1], "claims"), parts[2])

    @property
    def expires_at(self) -> float | None:
        """The claim ``exp``, in seconds since 1970, at the latest the end of the year 9999; None without one.

        Raises:
            OAuthError: The claim is not a number.
        """
        found = self.claims.get("exp")
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise OAuthError("the token's claim 'exp' is not a number")
        if found != found:  # NaN, which Python's JSON accepts
            raise OAuthError("the token's claim 'exp' is not a number")
        return float(max(0, min(found, LATEST_MS // 1000)))


def _json(part: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), b"-_", validate=True))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise OAuthError(f"the token is not a JSON web token: its {what} cannot be read")
    return found
