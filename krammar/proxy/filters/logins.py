"""The user of a client's login, as far as the proxy sees it: PLAIN, SCRAM and OAUTHBEARER that pass through.

The user counts once the broker has accepted the login. SaslHandshake v0, whose logins have no headers, is refused.
"""

from __future__ import annotations

import base64
import json
import re

from kafka_wire import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest

from krammar.proxy.interface import Close, Connection, Exchange, Filter, on

# Keys in the state of a connection.
_MECHANISM = "krammar.proxy.filters.logins mechanism"
_CLAIMED = "krammar.proxy.filters.logins claimed"
_LOGIN = "krammar.proxy.filters.logins login"

_SCRAM_NAME = re.compile(rb"[pny][^,]*,[^,]*,(?:m=[^,]*,)?n=([^,]*),")
_TOKEN = re.compile(rb"\x01auth=[Bb]earer +[^.]*\.([A-Za-z0-9_-]*)")


def login_of(connection: Connection) -> str | None:
    """Return the user of a connection; None before a login that the broker has accepted."""
    return connection.state.get(_LOGIN)


class SeesLogins(Filter):
    """A filter that needs ``login_of``."""

    @on(SaslHandshakeRequest)
    def on_handshake(self, request: SaslHandshakeRequest, exchange: Exchange) -> None:
        if not exchange.version:
            raise Close("a login by SaslHandshake v0, which hides the user")
        exchange.connection.state[_MECHANISM] = request.mechanism
        exchange.connection.state.pop(_CLAIMED, None)

    @on(SaslAuthenticateRequest)
    def on_login(self, request: SaslAuthenticateRequest, exchange: Exchange) -> None:
        state = exchange.connection.state
        if state.get(_CLAIMED) is None:
            state[_CLAIMED] = claimed(state.get(_MECHANISM, ""), request.auth_bytes)

    @on(SaslAuthenticateResponse)
    def on_accepted(self, response: SaslAuthenticateResponse, exchange: Exchange) -> None:
        state = exchange.connection.state
        # A broker's first message of SCRAM has no error either, but the login is not complete.
        is_first = response.auth_bytes.startswith(b"r=")
        if not response.error_code and not is_first:
            state[_LOGIN] = state.get(_CLAIMED)


def claimed(mechanism: str, message: bytes) -> str | None:
    """Return the user in a client's first message of a SASL mechanism; None if there is none."""
    name: bytes | str | None = None
    if mechanism == "PLAIN":
        parts = message.split(b"\0")
        name = parts[1] if len(parts) == 3 else None
    elif mechanism.startswith("SCRAM-"):
        found = _SCRAM_NAME.match(message)
        name = found and found[1].replace(b"=2C", b",").replace(b"=3D", b"=")
    elif mechanism == "OAUTHBEARER" and (found := _TOKEN.search(message)):
        try:
            claims = json.loads(base64.urlsafe_b64decode(found[1] + b"=" * (-len(found[1]) % 4)))
        except (ValueError, RecursionError):
            return None
        name = claims.get("sub") if isinstance(claims, dict) else None
    if isinstance(name, bytes):
        return name.decode("utf-8", "replace")
    return name if isinstance(name, str) else None


__all__ = ["SeesLogins", "claimed", "login_of"]
