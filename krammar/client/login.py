"""SASL logins: PLAIN (RFC 4616), SCRAM and OAUTHBEARER (RFC 7628), in SaslAuthenticate requests (KIP-152)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from kafka_wire import ErrorCode, SaslAuthenticateRequest, SaslHandshakeRequest

from krammar.auth.oauth import ERROR_ANSWER, FirstMessage
from krammar.auth.oauth import MECHANISM as OAUTHBEARER
from krammar.auth.scram import ScramError
from krammar.client.deadline import Deadline
from krammar.client.errors import AuthenticationError, raise_code
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

    Arguments, result and errors are those of ``login_steps``.
    """
    steps = login_steps(settings, broker, token)
    request, low = next(steps)
    while True:
        try:
            request, low = steps.send(call(request, deadline, low=low))
        except StopIteration as end:
            return int(end.value)


# Yields requests with the lowest version that can be used, and gets their responses.
Steps = Generator[tuple[Any, int], Any, int]


def login_steps(settings: Settings, broker: str, token: str | None = None) -> Steps:
    """Log in, without I/O: each request that is yielded has to be sent, and its response to be sent back in.

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
    handshake = yield SaslHandshakeRequest(mechanism=mechanism), 1
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationError(
            broker,
            f"the broker does not support {mechanism}, but "
            f"{', '.join(handshake.mechanisms) or 'no mechanism'}; set sasl.mechanism",
        )
    if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        plain = settings.security_protocol.removeprefix("SASL_")
        raise AuthenticationError(
            broker, f"the listener accepts no logins: set security.protocol to {plain}"
        )
    raise_code(handshake.error_code, f"{broker}: SaslHandshake")
    if mechanism == "PLAIN":
        _, lifetime = yield from _exchange(settings, broker, f"\0{user}\0{password}".encode())
        return lifetime
    if token is not None:
        return (yield from _log_in_with_token(settings, broker, token))
    scram = ScramClient(
        mechanism, user, password, max_iterations=settings.krammar_scram_max_iterations
    )
    try:
        answer, _ = yield from _exchange(settings, broker, scram.first())
        final, lifetime = yield from _exchange(settings, broker, scram.answer(answer))
        scram.verify(final)
    except ScramError as error:
        raise AuthenticationError(broker, f"{mechanism}: {error}") from None
    return lifetime


def _log_in_with_token(settings: Settings, broker: str, token: str) -> Steps:
    from krammar.client.oauth import TOKENS

    message = FirstMessage(token, dict(settings.sasl_oauthbearer_extensions), "").encode()
    try:
        answer, lifetime = yield from _exchange(settings, broker, message)
        if answer:  # an error in JSON; the broker's refusal follows
            yield from _exchange(settings, broker, ERROR_ANSWER)
            text = answer.decode("utf-8", "replace")[:200]
            raise AuthenticationError(broker, f"the broker refuses the token: {text}")
    except AuthenticationError:
        TOKENS.forget(settings)
        raise
    return lifetime


def _exchange(
    settings: Settings, broker: str, token: bytes
) -> Generator[tuple[Any, int], Any, tuple[bytes, int]]:
    response = yield SaslAuthenticateRequest(auth_bytes=token), 0
    if response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
        if settings.sasl_mechanism == OAUTHBEARER:
            why = response.error_message or "the broker gives no reason"
            raise AuthenticationError(broker, f"the broker refuses the token: {why}")
        user = settings.sasl_username
        why = response.error_message or "wrong user or password"
        raise AuthenticationError(broker, f"the broker refuses the login of {user!r}: {why}")
    raise_code(response.error_code, f"{broker}: SaslAuthenticate")
    return response.auth_bytes, response.session_lifetime_ms
