"""Logins of clients at the proxy (KIP-43, KIP-152), as the first filter of a chain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafka_wire import (
    ApiVersionsResponse,
    ErrorCode,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from krammar.auth import exchanges
from krammar.auth.guesses import Guesses
from krammar.auth.scram import ScramError
from krammar.proxy.clients import LOG
from krammar.proxy.interface import Close, Connection, Exchange, Filter, on
from krammar.proxy.users import KnownUsers

# Seconds before a refusal, as Kafka's default for connection.failed.authentication.delay.ms.
_DELAY = 0.1
# The versions of the requests of a login that the proxy answers. After SaslHandshake v0, frames have no headers.
_VERSIONS = {17: (1, 1), 36: (0, SaslAuthenticateRequest.max_version)}


class ClientLogin(Filter):
    """Answers the requests of logins.

    Args:
        accepted: called after a login.
        refused: called for a connection that has to be closed after its responses.
    """

    def __init__(
        self,
        users: KnownUsers,
        accepted: Callable[[Connection], None],
        refused: Callable[[Connection], None],
    ) -> None:
        self._users = users
        self._accepted = accepted
        self._refused = refused
        self._guesses = Guesses()

    @on(ApiVersionsResponse)
    def offer(self, response: ApiVersionsResponse, exchange: Exchange) -> None:
        """Offer the versions of logins that the proxy has, whatever the broker offers."""
        if response.error_code:
            return
        others = [each for each in response.api_keys if each.api_key not in _VERSIONS]
        entry = ApiVersionsResponse.ApiVersion
        own = [
            entry(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in _VERSIONS.items()
        ]
        response.api_keys = sorted([*others, *own], key=lambda each: each.api_key)

    @on(SaslHandshakeRequest)
    def begin(self, request: SaslHandshakeRequest, exchange: Exchange) -> SaslHandshakeResponse:
        """Select a mechanism."""
        if exchange.version == 0:
            raise Close("SaslHandshake v0 is not supported at the proxy; the client is too old")
        offered = list(self._users.mechanisms)
        if request.mechanism not in offered:
            self._fail(
                exchange.connection, f"the mechanism {request.mechanism[:64]!r} is not enabled"
            )
            return SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered
            )
        exchange.connection.state[self] = self._users.exchange(request.mechanism)
        return SaslHandshakeResponse(mechanisms=offered)

    @on(SaslAuthenticateRequest)
    async def step(
        self, request: SaslAuthenticateRequest, exchange: Exchange
    ) -> SaslAuthenticateResponse:
        """Answer a message of a login."""
        connection = exchange.connection
        login: exchanges.LoginExchange | None = connection.state.get(self)
        if login is None:
            self._fail(connection, "SaslAuthenticate before SaslHandshake")
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received before SaslHandshake",
            )
        try:
            answer = login.step(request.auth_bytes)
            if login.done:
                self._complete(connection, login)
        except (exchanges.LoginError, ScramError) as error:
            connection.state.pop(self, None)
            name = f" as {login.user[:64]!r}" if login.user else ""
            LOG.warning(
                "connection %d of %s: the login%s failed: %s",
                connection.number,
                connection.client,
                name,
                error,
            )
            host = connection.client.rpartition(":")[0]
            await asyncio.sleep(self._guesses.failed(host, _DELAY))
            self._refused(connection)
            public = error.public if isinstance(error, exchanges.LoginError) else None
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=public or "Authentication failed due to invalid credentials",
            )
        return SaslAuthenticateResponse(auth_bytes=answer)

    def _complete(self, connection: Connection, login: exchanges.LoginExchange) -> None:
        del connection.state[self]
        again = connection.state.get((self, "user"))
        if again is not None and again != login.user:
            raise exchanges.LoginError(
                "the client logs in again as another user",
                "Cannot change principals during re-authentication",
            )
        connection.state[self, "user"] = connection.principal = login.user
        self._accepted(connection)

    def _fail(self, connection: Connection, reason: str) -> None:
        LOG.warning("connection %d of %s: %s", connection.number, connection.client, reason)
        self._refused(connection)


class NoClientLogin(Filter):
    """Refuses logins of clients if the proxy logs in itself: the broker would take them for a change of the user."""

    @on(SaslHandshakeRequest)
    def refuse(self, request: SaslHandshakeRequest, exchange: Exchange) -> SaslHandshakeResponse:
        """Answer that there is no login."""
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
