"""TLS for listeners, configured by Kafka's ``ssl.*`` settings; ``listener.name.<name>.ssl.*`` is for one listener."""

from __future__ import annotations

import asyncio
import logging

from krammar.auth import server_tls
from krammar.auth.names import CertificateError
from krammar.broker.config import BrokerConfig, ConfigError, Listener
from krammar.broker.security.settings import ListenerSettings
from krammar.broker.session import ANONYMOUS
from krammar.util.settings import SettingError

log = logging.getLogger("krammar.broker")


def listener_context(config: BrokerConfig, listener: Listener) -> server_tls.Context:
    """Build the context of a listener with protocol SSL or SASL_SSL. Raises ConfigError."""
    settings = ListenerSettings(config, listener)
    try:
        return server_tls.server_context(settings, _client_auth(settings), listener.name, log)
    except SettingError as error:
        name, reason = error.name, error.reason
        if name == server_tls.KEY and error.value is None:
            name = settings.own(name)
            reason = f"a listener with {listener.protocol} needs a key and its certificate"
        raise ConfigError(name, error.value, reason) from None


def principal_of(transport: asyncio.BaseTransport) -> str:
    """Return the principal of a TLS connection.

    It is ``User:`` with the name that the listener's rules derive from the client's certificate, or
    ``User:ANONYMOUS`` without a certificate. As in Kafka, the connection is closed if no rule
    matches.
    """
    try:
        name = server_tls.name_of_peer(transport)
    except CertificateError as error:
        log.warning("%s: %s; connection closed", transport.get_extra_info("peername"), error)
        transport.close()
        return ANONYMOUS
    return ANONYMOUS if name is None else f"User:{name}"


def _client_auth(settings: ListenerSettings) -> str:
    """Return the setting, whose value is valid.

    With SASL_SSL, whose clients authenticate by SASL, only the listener's own setting applies
    (KIP-684).
    """
    name = "ssl.client.auth"
    if settings.listener.sasl:
        return (settings.config.get(settings.own(name)) or "none").strip()
    return settings.get(name) or "none"
