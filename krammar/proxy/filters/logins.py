"""Who a client is, from the login that passes through the proxy to the broker.

The proxy verifies nothing. It reads the user's name of PLAIN (RFC 4616) and SCRAM (RFC 5802) messages, and it counts
only after the broker has accepted the login.
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

from krammar.proxy.interface import Close, Connection, Exchange, Filter, on

_PLAIN = "PLAIN"
# client-first-message of RFC 5802 without channel binding: user and extensions.
_FIRST = re.compile(r"n,(?:a=[^,]*)?,(?:m=[^,]*,)?n=([^,]+),r=[^,]+(.*)", re.DOTALL)
# Kafka's extension for delegation tokens: the name is that of a token, and not of a user (KIP-48).
_TOKEN = "tokenauth=true"
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# The first version of SaslHandshake after which SaslAuthenticate follows, instead of frames without headers.
_FRAMED = 1


@dataclass(slots=True)
class _Login:
    """A login in progress. ``user`` is what the first message of the client says."""

    mechanism: str
    accepted: bool = False
    steps: int = 0
    user: str | None = None


class ReadsLogins(Filter):
    """Sets ``connection.principal`` to the user's name when the broker has accepted a login with PLAIN or SCRAM.

    Connections that log in again as another user, or whose login the proxy cannot read (SaslHandshake v0), are closed.
    Logins with other mechanisms pass, and set no principal.
    """

    @on(SaslHandshakeRequest)
    def _handshake(self, request: SaslHandshakeRequest, exchange: Exchange) -> None:
        if exchange.version < _FRAMED:
            # Any bytes could follow, and the broker could read a request where the proxy expects a token.
            raise Close("SaslHandshake v0 is refused: the proxy cannot read its login (use v1)")
        login = _Login(request.mechanism)
        exchange.connection.state[ReadsLogins] = login
        exchange.state[ReadsLogins] = login

    @on(SaslHandshakeResponse)
    def _mechanism(self, response: SaslHandshakeResponse, exchange: Exchange) -> None:
        login: _Login = exchange.state[ReadsLogins]
        login.accepted = response.error_code == 0

    @on(SaslAuthenticateRequest)
    def _message(self, request: SaslAuthenticateRequest, exchange: Exchange) -> None:
        login: _Login | None = exchange.connection.state.get(ReadsLogins)
        if login is None:
            raise Close("SaslAuthenticate without SaslHandshake")
        login.steps += 1
        if login.steps == 1:
            login.user = user_of(login.mechanism, request.auth_bytes)
        exchange.state[ReadsLogins] = (login, login.steps)

    @on(SaslAuthenticateResponse)
    def _decision(self, response: SaslAuthenticateResponse, exchange: Exchange) -> None:
        login, step = exchange.state[ReadsLogins]
        if response.error_code or not login.accepted or login.user is None:
            return
        if login.mechanism == _PLAIN:
            done = step == 1
        else:  # the server's signature ends a login with SCRAM
            done = step == 2 and response.auth_bytes.startswith(b"v=")
        if done:
            _set(exchange.connection, login.user)


def _set(connection: Connection, user: str) -> None:
    before = connection.state.setdefault((ReadsLogins, "user"), user)
    if before != user:
        raise Close(f"the client is logged in as {before!r}, and now logs in as {user!r}")
    connection.principal = user


def user_of(mechanism: str, message: bytes) -> str | None:
    """Return the user in the first message of a login; None if the message or the mechanism has none.

    Args:
        mechanism: the name in SASL, such as ``PLAIN`` or ``SCRAM-SHA-256``.
    """
    try:
        text = message.decode()
    except UnicodeDecodeError:
        return None
    if mechanism == _PLAIN:
        parts = text.split("\0")
        return parts[1] or None if len(parts) == 3 else None
    found = _FIRST.fullmatch(text) if mechanism in _SCRAM else None
    if found is None or _TOKEN in found[2].lower():
        return None
    return found[1].replace("=2C", ",").replace("=3D", "=")
