"""OAUTHBEARER, the broker's side (RFC 7628), with unsecured tokens for tests (KIP-255)."""

from __future__ import annotations

import json
from collections.abc import Callable

from krammar.auth.oauth import ERROR_ANSWER, FirstMessage, Jwt, OAuthError
from krammar.broker.security.exchange import Exchange

_INVALID = json.dumps({"status": "invalid_token"}).encode()


# Returns the user of a token, and its expiry in milliseconds since 1970, or raises OAuthError.
Validate = Callable[[str, int], tuple[str, int]]


def validate_unsecured(token: str, now_ms: int) -> tuple[str, int]:
    """Read a token without a signature. Anyone can create one, so it proves nothing.

    Raises:
        OAuthError: The token is malformed, is signed, has no ``sub``, or has expired.
    """
    jwt = Jwt.decode(token)
    if jwt.header.get("alg") != "none" or jwt.signature:
        raise OAuthError("only unsecured tokens (alg none) are accepted")
    user, expires_at = jwt.claims.get("sub"), jwt.expires_at
    if not isinstance(user, str) or not user:
        raise OAuthError("the token has no claim 'sub'")
    if expires_at is None:
        raise OAuthError("the token has no claim 'exp'")
    if expires_at * 1000 <= now_ms:
        raise OAuthError("the token has expired")
    return user, int(expires_at * 1000)


class OAuthExchange(Exchange):
    """OAUTHBEARER: one message with a token; after a refusal the client sends one more."""

    _refusal: OAuthError | None = None

    def __init__(self, validate: Validate, now_ms: Callable[[], int]) -> None:
        self._validate = validate
        self._now_ms = now_ms

    def step(self, message: bytes) -> bytes:
        if self._refusal is not None:
            if message != ERROR_ANSWER:
                raise OAuthError("the client's answer to an error is malformed")
            raise self._refusal
        first = FirstMessage.decode(message)
        try:
            user, expires_at_ms = self._validate(first.token, self._now_ms())
        except OAuthError as error:
            self._refusal = error
            return _INVALID
        if first.identity and first.identity != user:
            raise OAuthError("the client requests the identity of another user")
        self.user, self.expires_at_ms, self.done = user, expires_at_ms, True
        return b""
