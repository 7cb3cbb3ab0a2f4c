"""The login of one connection (KIP-43, KIP-152, KIP-368).

SaslHandshake selects a mechanism. Then client and broker exchange tokens, in SaslAuthenticate after
SaslHandshake v1, in bare frames after v0. In the end, the session has a principal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import kafka_wire
from kafka_wire import ErrorCode, SaslAuthenticateResponse, SaslHandshakeResponse

from krammar.auth.exchanges import LoginError, LoginExchange, OAuthExchange, PlainExchange
from krammar.auth.oauth import MECHANISM as OAUTHBEARER
from krammar.auth.oauth import OAuthError
from krammar.auth.scram import BY_NAME, ScramError
from krammar.auth.scram_server import ScramServer
from krammar.broker.errors import CloseConnection
from krammar.broker.security.settings import PLAIN
from krammar.wire.package import package_of

if TYPE_CHECKING:
    from krammar.broker.security.users import Credentials
    from krammar.broker.session import Session
    from krammar.faults.shape import Schema

log = logging.getLogger("krammar.broker")

# Kafka accepts a new login on an open connection at most once in this time (KIP-368).
MIN_REAUTH_INTERVAL_MS = 1000


class Authenticator:
    """The login of a session on a SASL listener (``session.sasl``).

    During re-authentication the session is not authenticated, so nothing is served in between.

    Attributes:
        expects_raw: whether the next frame is a bare token for ``raw``
        failed: whether the login was refused: the connection must be closed after the
            response, with a delay of ``connection.failed.authentication.delay.ms``
    """

    def __init__(
        self, credentials: Credentials, now_ms: Callable[[], int], session: Session
    ) -> None:
        self.expects_raw = False
        self.failed = False
        self._credentials = credentials
        self._now_ms = now_ms
        self._session = session
        self._settings = credentials.sasl[session.listener.name]
        self._exchange: LoginExchange | None = None
        self._mechanism = ""  # of the current exchange or the last login
        self._logged_in = False
        self._renewed_at: int | None = None
        self._other_mechanism: str | None = None

    def handshake(self, mechanism: str, version: int) -> SaslHandshakeResponse:
        """Begin a login or a re-authentication."""
        if self._exchange is not None:
            self._fail("SaslHandshake during a login")
        if self.failed or (self._logged_in and not self._may_renew()):
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        offered = list(self._settings.mechanisms)
        if mechanism not in offered:
            self._fail(f"the mechanism {mechanism[:64]!r} is not enabled")
            return SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered
            )
        if self._logged_in and mechanism != self._mechanism:
            # The handshake itself succeeds; the next message is refused.
            self._other_mechanism = mechanism
        else:
            self._mechanism = mechanism
        self._exchange = self._begin(mechanism)
        self._session.authenticated = False
        self.expects_raw = version == 0
        return SaslHandshakeResponse(mechanisms=offered)

    def _may_renew(self) -> bool:
        now = self._now_ms()
        if self._renewed_at is not None and now - self._renewed_at < MIN_REAUTH_INTERVAL_MS:
            return False
        self._renewed_at = now
        return True

    def _begin(self, mechanism: str) -> LoginExchange:
        if mechanism == PLAIN:
            return PlainExchange(self._settings.plain_users)
        if mechanism == OAUTHBEARER:
            validate = self._credentials.validators[self._session.listener.name]
            return OAuthExchange(validate, self._now_ms)
        kind = BY_NAME[mechanism]
        return ScramServer(kind, lambda user: self._credentials.credential(kind, user))

    def authenticate(self, message: bytes, version: int) -> SaslAuthenticateResponse:
        """Handle SaslAuthenticate."""
        if self._exchange is None:
            if self._logged_in and not self.failed:
                when = "after successful authentication"
            else:
                when = "before SaslHandshake"
                self._fail(f"SaslAuthenticate {when}")
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message=f"SaslAuthenticate request received {when}",
            )
        try:
            answer, lifetime_ms = self._step(self._exchange, message)
        except LoginError as error:
            text = error.public or (
                f"Authentication failed during {self._activity} due to invalid credentials "
                f"with SASL mechanism {self._mechanism}"
            )
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text
            )
        return SaslAuthenticateResponse(
            auth_bytes=answer, session_lifetime_ms=lifetime_ms if version > 0 else 0
        )

    @property
    def in_exchange(self) -> bool:
        """Whether a handshake was answered, and messages of the mechanism must follow."""
        return self._exchange is not None

    def refuse(self, request: Any, version: int) -> Any:
        """Return the error for a request in the middle of a login, which thereby fails.

        Raises CloseConnection for a request without a response.
        """
        name = type(request).__name__
        if getattr(request, "acks", None) == 0:
            raise CloseConnection(f"{name} was sent during a login")
        self._fail(f"{name} during a login")
        text = f"Unexpected Kafka request of type {name} during SASL authentication."
        return _refusal(request, version, ErrorCode.ILLEGAL_SASL_STATE, text)

    def raw(self, message: bytes) -> bytes | None:
        """Return the answer to a bare token; None if the login failed."""
        if self._exchange is None:
            self._fail("a token outside of a login")
            return None
        try:
            return self._step(self._exchange, bytes(message))[0]
        except LoginError:
            return None

    def _step(self, exchange: LoginExchange, message: bytes) -> tuple[bytes, int]:
        try:
            if self._other_mechanism is not None:
                raise LoginError(
                    "the client re-authenticates with another mechanism",
                    f"SASL mechanism '{self._other_mechanism}' requested by client is not "
                    f"supported for re-authentication of mechanism '{self._mechanism}'",
                )
            answer = exchange.step(message)
            if not exchange.done:
                return answer, 0
            return answer, self._complete(f"User:{exchange.user}", exchange.expires_at_ms)
        except (LoginError, ScramError, OAuthError) as error:
            name = f" as {exchange.user[:64]!r}" if exchange.user else ""
            self._fail(f"{self._activity} with {self._mechanism}{name} failed: {error}")
            if isinstance(error, LoginError):
                raise
            public = f"Authentication failed: {error}" if isinstance(error, OAuthError) else None
            raise LoginError(str(error), public) from None

    def _complete(self, principal: str, expires_at_ms: int | None) -> int:
        """Complete the login. Returns the milliseconds until the client must log in again, 0 for never."""
        session = self._session
        if self._logged_in and principal != session.principal:
            raise LoginError(
                "the client re-authenticates as another user",
                "Cannot change principals during re-authentication from "
                f"{session.principal}: {principal}".replace("User:", "User."),
            )
        lifetime_ms = self._settings.max_reauth_ms[self._mechanism]
        if expires_at_ms is not None:
            left_ms = max(1, expires_at_ms - self._now_ms())
            lifetime_ms = min(lifetime_ms, left_ms) if lifetime_ms else left_ms
        session.principal = principal
        session.authenticated = True
        session.expires_at = self._now_ms() + lifetime_ms if lifetime_ms else None
        self._logged_in = True
        self._exchange = None
        self.expects_raw = False
        return lifetime_ms

    @property
    def _activity(self) -> str:
        return "re-authentication" if self._logged_in else "authentication"

    def _fail(self, reason: str) -> None:
        if not self.failed:
            log.warning("%s: %s; connection closed", self._session.connection_id, reason)
        self.failed = True
        self.expects_raw = False
        self._exchange = None
        self._session.authenticated = False


@cache
def _schema() -> Schema:
    from krammar.faults.shape import Schema

    return Schema(package_of(kafka_wire))


def _refusal(request: Any, version: int, code: ErrorCode, message: str) -> Any:
    """Build the response with an error for the whole request, or for each of its parts if it has no other place."""
    from krammar.faults.answers import build, elements_at, subjects
    from krammar.faults.shape import error_places

    schema, key = _schema(), request.api_key
    cls, shape = schema.class_of("response", key), schema.response(key, version)
    places = [] if shape is None else error_places(shape)
    if not places:
        return cls()
    assert shape is not None
    about = list(subjects(request, schema.request(key, version))) if places[0].branches else []
    response = build(cls, shape, about, places[0], code)
    for struct, _ in elements_at(response, shape, places[0], lambda subject: True):
        if hasattr(struct, "error_message"):
            struct.error_message = message
    return response
