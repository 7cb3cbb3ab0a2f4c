"""How the proxy connects to brokers: TLS and logins, by the settings of Kafka's clients."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from krammar.proxy.addresses import Address, describe
from krammar.proxy.errors import Refused
from krammar.util.settings import SettingError
from krammar.util.turns import in_thread
from krammar.wire.errors import WireError
from krammar.wire.negotiation import offered_versions

if TYPE_CHECKING:
    from krammar.client.settings import Settings

# krammar.client is imported only if it is needed: it is half of the time until the proxy is ready.

# What the names of the settings begin with.
_NAMES = (
    "security.protocol",
    "ssl.",
    "sasl.",
    "https.ca.",
    "enable.ssl.certificate.verification",
    "krammar.scram.",
    "krammar.oauthbearer.",
)
# Seconds for a login.
_TIMEOUT = 30.0

# Sends a request in a version, and returns the response.
Send = Callable[[Any, int | None], Awaitable[Any]]


class Brokers:
    """The connections to brokers.

    Args:
        values: settings of Kafka's clients, such as ``{"security.protocol": "SASL_SSL", …}``.

    Raises:
        SettingError: a setting is unknown or invalid, or a file cannot be read.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        for name in values:
            if not str(name).replace("_", ".").startswith(_NAMES):
                raise SettingError(
                    str(name), "is not about TLS or logins, so the proxy cannot use it"
                )
        self.settings = _settings(values) if values else None
        self.context: ssl.SSLContext | None = None
        self.reload()

    @property
    def sasl(self) -> bool:
        """Whether the proxy logs in."""
        return self.settings is not None and self.settings.sasl

    @property
    def files(self) -> list[str]:
        """The files that ``reload`` reads."""
        own = self.settings
        if own is None or not own.tls:
            return []
        found = (own.ssl_ca_location, own.ssl_certificate_location, own.ssl_key_location)
        return [each for each in found if each]

    def reload(self) -> None:
        """Read keys and certificates again, for new connections. Raises SettingError."""
        if self.settings is None or not self.settings.tls:
            return
        from krammar.client.tls import client_context

        self.context = client_context(self.settings)

    def why(self, error: OSError | UnicodeError) -> str:
        """Describe why there is no connection to a broker."""
        if isinstance(error, ssl.SSLError):
            from krammar.client.tls import handshake_failure

            return f"TLS: {handshake_failure(error)}"
        if self.context is not None and isinstance(error, ConnectionError) and not error.errno:
            return "TLS: the broker has closed the connection in the handshake"
        return describe(error)

    async def log_in(self, send: Send, broker: Address) -> tuple[float, Mapping[int, Any]]:
        """Log in on a new connection, or again.

        Returns:
            The seconds after which to log in again, 0 for never (KIP-368), and the broker's versions.

        Raises:
            Refused: the login is refused, there is no token, or no valid answer.
        """
        from krammar.client.errors import ClientError

        try:
            return await self._log_in(send, broker)
        except (ClientError, OSError, WireError) as error:
            why = str(error) if isinstance(error, ClientError) else _why(error)
            raise Refused(f"cannot log in at {broker}: {why}") from error

    async def _log_in(self, send: Send, broker: Address) -> tuple[float, Mapping[int, Any]]:
        from kafka_wire import ApiVersionsRequest

        from krammar.client.deadline import Deadline
        from krammar.client.errors import AuthenticationError
        from krammar.client.login import login_steps, obtain_token

        assert self.settings is not None
        # A slow provider of tokens must not stop the other connections.
        deadline = Deadline(_TIMEOUT * 1000, f"logging in at {broker}")
        token = await in_thread(obtain_token, self.settings, deadline)
        async with asyncio.timeout(_TIMEOUT):
            offered = offered_versions(await send(ApiVersionsRequest(), 0))
            steps = login_steps(self.settings, str(broker), token)
            request, low = next(steps)
            while True:
                cls = type(request)
                _, newest = offered.get(cls.api_key, (0, -1))
                if newest < low:
                    raise AuthenticationError(
                        str(broker), f"the broker does not have {cls.__name__} v{low}"
                    )
                response = await send(request, min(newest, cls.max_version))
                try:
                    request, low = steps.send(response)
                except StopIteration as end:
                    return end.value / 1000 * 0.85, offered


def _settings(values: Mapping[str, Any]) -> Settings:
    from krammar.client.settings import Settings

    return Settings.of({"bootstrap.servers": "localhost:9092", **values})


def _why(error: OSError | WireError) -> str:
    if isinstance(error, TimeoutError) and error.errno is None:
        return f"the login has not ended within {_TIMEOUT:.0f} s"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return str(error)
