"""The exchange of one login, which each mechanism implements, and that of PLAIN."""

from __future__ import annotations

import hmac
from collections.abc import Mapping


class LoginError(Exception):
    """A login is refused.

    Args:
        reason: the text for the broker's log
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


class Exchange:
    """One login with a mechanism.

    ``user``           the name from the client; None before it is known
    ``done``           whether the client has proved who it is
    ``expires_at_ms``  when the credential expires, in milliseconds since 1970; None for never
    """

    user: str | None = None
    done = False
    expires_at_ms: int | None = None

    def step(self, message: bytes) -> bytes:
        """Return the answer to a message of the client.

        Raises:
            LoginError, ScramError, OAuthError: the login is refused. The messages are for the broker's log.
        """
        raise NotImplementedError


class PlainExchange(Exchange):
    """A login with PLAIN (RFC 4616): one message with name and password."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
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
        expected = self._passwords.get(user)
        # Unknown users are compared too, so that the time does not reveal whether a user exists.
        matches = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not matches:
            public = "Authentication failed: Invalid username or password"
            raise LoginError("unknown user or wrong password", public)
        if identity and identity != user:
            raise IdentityError
        self.done = True
        return b""
