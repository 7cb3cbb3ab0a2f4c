"""SASL logins: PLAIN (RFC 4616), SCRAM and OAUTHBEARER (RFC 7628), in SaslAuthenticate requests (KIP-152)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_wire import ErrorCode, SaslAuthenticateRequest, SaslHandshakeRequest

from krammar.auth.oauth import ERROR_ANSWER, FirstMessage
from krammar.auth.oauth import MECHANISM as OAUTHBEARER
from krammar.auth.scram import ScramError
from krammar.client.deadline import Deadline
from krammar.client.errors import AuthenticationError, kafka_error
from krammar.client.scram import ScramClient
from krammar.client.settings import Settings

# Sends a request and returns its response; ``low`` is the lowest version that can be used.
Call = Callable[..., Any]


def obtain_token(settings: Settings, deadline: Deadline) -> str | None:
    """Return the token for a login with OAUTHBEARER, None for other mechanisms.

    Raises:
        AuthenticationError: there is no token.
    """
    if not settings.sasl or settings.sasl_mechanism != OAUTHBEARER:
        return None
    from krammar.client.oauth import TOKENS  # few clients need an HTTP client

    return TOKENS.get(settings, deadline).value


def log_in(
    call: Call, settings: Settings, broker: str, deadline: Deadline, token: str | None = None
) -> int:
    """Log in with the mechanism, user and password of the settings, or with a token.

    Args:
        broker: the broker's name for errors.
        token: what ``obtain_token`` returned.

    Returns:
        How long the login is valid, in milliseconds; 0 means forever.

    Raises:
        AuthenticationError: the broker refuses the login, or cannot prove that it knows the password.
    """
    mechanism = settings.sasl_mechanism or ""
    user, password = settings.sasl_username or "", settings.sasl_password or ""
    # Before version 1, tokens are not sent in SaslAuthenticate requests.
    handshake = call(SaslHandshakeRequest(mechanism=mechanism), deadline, low=1)
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationError(
            broker,
            f"the broker does not support {mechanism}, but "
            f"{', '.join(handshake.mechanisms) or 'no mechanism'}; set sasl.mechanism",
        )
    if handshake.error_code:
        raise kafka_error(handshake.error_code, f"{broker}: SaslHandshake")
    if mechanism == "PLAIN":
        _, lifetime = _send(call, settings, broker, f"\0{user}\0{password}".encode(), deadline)
        return lifetime
    if token is not None:
        return _log_in_with_token(call, settings, broker, token, deadline)
    scram = ScramClient(
        mechanism, user, password, max_iterations=settings.krammar_scram_max_iterations
    )
    try:
        answer, _ = _send(call, settings, broker, scram.first(), deadline)
        final, lifetime = _send(call, settings, broker, scram.answer(answer), deadline)
        scram.verify(final)
    except ScramError as error:
        raise AuthenticationError(broker, f"{mechanism}: {error}") from None
    return lifetime


def _log_in_with_token(
    call: Call, settings: Settings, broker: str, token: str, deadline: Deadline
) -> int:
    from krammar.client.oauth import TOKENS

    message = FirstMessage(token, dict(settings.sasl_oauthbearer_extensions), "").encode()
    try:
        answer, lifetime = _send(call, settings, broker, message, deadline)
        if answer:  # an error in JSON; the broker's refusal follows
            _send(call, settings, broker, ERROR_ANSWER, deadline)
            text = answer.decode("utf-8", "replace")[:200]
            raise AuthenticationError(broker, f"the broker refuses the token: {text}")
    except AuthenticationError:
        TOKENS.forget(settings)
        raise
    return lifetime


def _send(
    call: Call, settings: Settings, broker: str, token: bytes, deadline: Deadline
) -> tuple[bytes, int]:
    response = call(SaslAuthenticateRequest(auth_bytes=token), deadline)
    if response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
        if settings.sasl_mechanism == OAUTHBEARER:
            why = response.error_message or "the broker gives no reason"
            raise AuthenticationError(broker, f"the broker refuses the token: {why}")
        user = settings.sasl_username
        why = response.error_message or "wrong user or password"
        raise AuthenticationError(broker, f"the broker refuses the login of {user!r}: {why}")
    if response.error_code:
        raise kafka_error(response.error_code, f"{broker}: SaslAuthenticate")
    return response.auth_bytes, response.session_lifetime_ms
