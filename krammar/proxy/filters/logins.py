"""Who a client is, from the login that passes through the proxy to the broker.

The proxy verifies nothing. It reads the user's name in messages of PLAIN (RFC 4616), SCRAM (RFC 5802) and OAUTHBEARER
(RFC 7628), and the name counts only after the broker has accepted the login.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kafka_wire import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from krammar.auth.oauth import FirstMessage, Jwt, OAuthError
from krammar.proxy.interface import Close, Connection, Exchange, Filter, on

_PLAIN, _OAUTHBEARER = "PLAIN", "OAUTHBEARER"
# client-first-message of RFC 5802 without channel binding: user and extensions.
_FIRST = re.compile(r"n,(?:a=[^,]*)?,(?:m=[^,]*,)?n=([^,]+),r=[^,]+(.*)", re.DOTALL)
# Kafka's extension for delegation tokens: the name belongs to a token, not to a user (KIP-48).
_TOKEN = "tokenauth=true"
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# The first version of SaslHandshake after which SaslAuthenticate follows, instead of frames without headers.
_FRAMED = 1


@dataclass(slots=True)
class _Login:
    """A login in progress.

    Attributes:
        steps: the messages of the client
        unanswered: its requests that the broker has not answered
        user: the name in the first message
    """

    mechanism: str
    accepted: bool = False
    steps: int = 0
    unanswered: int = 1  # the handshake
    user: str | None = None


class SeesLogins(Filter):
    """Sets ``connection.principal`` to the user's name when the broker has accepted a login.

    Connections that log in again as another user, or whose login the proxy cannot read (SaslHandshake v0), are closed.
    Logins with other mechanisms than PLAIN, SCRAM and OAUTHBEARER, or with delegation tokens, set no principal.
    """

    @on(SaslHandshakeRequest)
    def _read_handshake(self, request: SaslHandshakeRequest, exchange: Exchange) -> None:
        if exchange.version < _FRAMED:
            # Any bytes could follow, and the broker could read a request where the proxy expects a token.
            raise Close("SaslHandshake v0 is refused: the proxy cannot read its login (use v1)")
        login = _Login(request.mechanism)
        # A chain can have several such filters.
        exchange.connection.state[self, SeesLogins] = login
        exchange.state[self, SeesLogins] = login

    @on(SaslHandshakeResponse)
    def _read_mechanism(self, response: SaslHandshakeResponse, exchange: Exchange) -> None:
        login: _Login = exchange.state[self, SeesLogins]
        login.accepted = response.error_code == 0
        login.unanswered -= 1

    @on(SaslAuthenticateRequest)
    def _read_login(self, request: SaslAuthenticateRequest, exchange: Exchange) -> None:
        login: _Login | None = exchange.connection.state.get((self, SeesLogins))
        if login is None:
            raise Close("SaslAuthenticate without SaslHandshake")
        login.steps += 1
        login.unanswered += 1
        if login.steps == 1:
            login.user = claimed(login.mechanism, request.auth_bytes)
        exchange.state[self, SeesLogins] = (login, login.steps)

    @on(SaslAuthenticateResponse)
    def _read_decision(self, response: SaslAuthenticateResponse, exchange: Exchange) -> None:
        login, step = exchange.state[self, SeesLogins]
        login.unanswered -= 1
        if response.error_code or not login.accepted or login.user is None:
            return
        if login.mechanism in _SCRAM:  # it ends with the signature of the server
            done = step == 2 and response.auth_bytes.startswith(b"v=")
        else:  # an answer to OAUTHBEARER that is not empty is an error
            done = step == 1 and not response.auth_bytes
        if done:
            _set(exchange.connection, login.user)

    def check_login_decided(self, connection: Connection) -> None:
        """Check that a filter knows who sends a request. Raises Close while the first login is not decided.

        A broker serves requests that arrive together with a login. The proxy would not know their user.
        """
        login: _Login | None = connection.state.get((self, SeesLogins))
        if login is not None and login.unanswered and (SeesLogins, "user") not in connection.state:
            raise Close("the client has sent a request before the broker has answered its login")


def _set(connection: Connection, user: str) -> None:
    before = connection.state.setdefault((SeesLogins, "user"), user)
    if before != user:
        raise Close(f"the client is logged in as {before!r}, and now logs in as {user!r}")
    connection.principal = user


def claimed(mechanism: str, message: bytes) -> str | None:
    """Return the user in a client's first message of a SASL mechanism; None if there is none.

    Args:
        mechanism: its name, such as ``PLAIN`` or ``SCRAM-SHA-256``.
    """
    try:
        text = message.decode()
    except UnicodeDecodeError:
        return None
    if mechanism == _PLAIN:
        parts = text.split("\0")
        return parts[1] or None if len(parts) == 3 else None
    if mechanism == _OAUTHBEARER:
        return _subject(message)
    found = _FIRST.fullmatch(text) if mechanism in _SCRAM else None
    if found is None or _TOKEN in found[2].lower():
        return None
    return found[1].replace("=2C", ",").replace("=3D", "=")


def _subject(message: bytes) -> str | None:
    # Brokers could take another one of several tokens.
    if message.count(b"\x01auth=") != 1:
        return None
    try:
        found = Jwt.decode(FirstMessage.decode(message).token).claims.get("sub")
    except OAuthError:
        return None
    return found if isinstance(found, str) and found else None
