"""SASL logins: PLAIN (RFC 4616) and SCRAM, inside of SaslAuthenticate requests (KIP-152)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_wire import ErrorCode, SaslAuthenticateRequest, SaslHandshakeRequest

from krammar.auth.scram import ScramError
from krammar.client.deadline import Deadline
from krammar.client.errors import AuthenticationError, kafka_error
from krammar.client.scram import ScramClient

if TYPE_CHECKING:
    from krammar.client.connection import Connection


def log_in(connection: Connection, deadline: Deadline) -> int:
    """Log in as the settings say. Returns for how many milliseconds the login holds, 0 for ever.

    Raises AuthenticationError and whatever the connection does.
    """
    settings = connection.settings
    mechanism = settings.sasl_mechanism or ""
    user, password = settings.sasl_username or "", settings.sasl_password or ""
    # Before version 1 tokens are not in requests of their own.
    handshake = connection.call(SaslHandshakeRequest(mechanism=mechanism), deadline, low=1)
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationError(
            str(connection),
            f"the broker has no {mechanism}; it has {', '.join(handshake.mechanisms) or 'none'}",
        )
    if handshake.error_code:
        raise kafka_error(handshake.error_code, f"{connection}: SaslHandshake")
    if mechanism == "PLAIN":
        _, lifetime = _send(connection, f"\0{user}\0{password}".encode(), deadline)
        return lifetime
    scram = ScramClient(mechanism, user, password)
    try:
        answer, _ = _send(connection, scram.first(), deadline)
        final, lifetime = _send(connection, scram.answer(answer), deadline)
        scram.verify(final)
    except ScramError as error:
        raise AuthenticationError(str(connection), f"{mechanism}: {error}") from None
    return lifetime


def _send(connection: Connection, token: bytes, deadline: Deadline) -> tuple[bytes, int]:
    response = connection.call(SaslAuthenticateRequest(auth_bytes=token), deadline)
    if response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
        user = connection.settings.sasl_username
        why = response.error_message or "wrong user or password"
        raise AuthenticationError(str(connection), f"login of {user!r} refused: {why}")
    if response.error_code:
        raise kafka_error(response.error_code, f"{connection}: SaslAuthenticate")
    return response.auth_bytes, response.session_lifetime_ms
