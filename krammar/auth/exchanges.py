"""The exchange of a login: what mechanisms have in common, PLAIN (RFC 4616) and OAUTHBEARER (RFC 7628)."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping

from krammar.auth.oauth import ERROR_ANSWER, FirstMessage, Jwt, OAuthError

_INVALID_TOKEN = json.dumps({"status": "invalid_token"}).encode()
# Returns the user of a token, and its expiry in milliseconds since 1970, or raises OAuthError.
Validate = Callable[[str, int], tuple[str, int]]


class LoginError(Exception):
    """A login is refused.

    Args:
        reason: the text for the server's log
        public: the text for the client; None for a general one that reveals nothing
    """

    def __init__(self, reason: str, public: str | None = None) -> None:
        super().__init__(reason)
        self.public = public


class IdentityError(LoginError):
    """The client requests the identity of another user."""

    def __init__(self) -> None:
        super().__init__(
            "the client requests another identity",
            "Authentication failed: Client requested an authorization id that is different from username",
        )


class LoginExchange:
    """One login with a mechanism.

    Attributes:
        user: the name from the client; None before it is known
        done: whether the client has proved who it is
        expires_at_ms: when the credential expires, in milliseconds since 1970; None for never
    """

    user: str | None = None
    done = False
    expires_at_ms: int | None = None

    def step(self, message: bytes) -> bytes:
        """Return the answer to a message of the client.

        Raises:
            LoginError, ScramError, OAuthError: the login is refused. The messages are for the server's log.
        """
        raise NotImplementedError


class PlainExchange(LoginExchange):
    """A login with PLAIN: one message with name and password.

    Args:
        passwords: by user; None if every user exists and any password is right, for tests
    """

    def __init__(self, passwords: Mapping[str, str] | None) -> None:
        self._passwords = passwords

    def step(self, message: bytes) -> bytes:
        # Invalid UTF-8 results in a name or password that nobody has.
        parts = message.decode("utf-8", "replace").split("\0")
        if len(parts) != 3:
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise LoginError(text, text)
        identity, user, password = parts
        if not user:
            raise LoginError("no user name", "Authentication failed: username not specified")
        self.user = user
        if not password:
            raise LoginError("no password", "Authentication failed: password not specified")
        expected = password if self._passwords is None else self._passwords.get(user)
        # Unknown users are compared too, so that the time does not reveal whether a user exists.
        matches = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not matches:
            public = "Authentication failed: Invalid username or password"
            raise LoginError("unknown user or wrong password", public)
        if identity and identity != user:
            raise IdentityError
        self.done = True
        return b""


class OAuthExchange(LoginExchange):
    """A login with OAUTHBEARER: one message with a token; after a refusal the client sends one more."""

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
            return _INVALID_TOKEN
        if first.identity and first.identity != user:
            raise OAuthError("the client requests the identity of another user")
        self.user, self.expires_at_ms, self.done = user, expires_at_ms, True
        return b""


def validate_unsecured(token: str, now_ms: int) -> tuple[str, int]:
    """Read a token without a signature (KIP-255). Anyone can create one, so it proves nothing.

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
