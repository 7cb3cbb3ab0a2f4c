"""How clients connect to the proxy: TLS and logins, by the settings of a listener of Kafka's brokers."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from krammar.proxy.users import KnownUsers, Passwords

# TLS and users are imported only if they are needed: they are a tenth of the time until the proxy is ready.

LOG = logging.getLogger("krammar.proxy")

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_TLS = frozenset(
    {
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.principal.mapping.rules",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)
_NAMES = frozenset({"security.protocol", "sasl.enabled.mechanisms"}) | _TLS


class Clients:
    """The connections of clients.

    Attributes:
        users: who can log in at the proxy; None without SASL
        context: the TLS context for new connections; None without TLS

    Args:
        values: settings of a listener of Kafka's brokers, and ``security.protocol``.
        users: who can log in; required with SASL.
        secret: hides which users exist. All workers of a proxy need the same one. Default: a random one.

    Raises:
        ValueError: a setting is unknown or invalid, or a file cannot be read (TlsSettingError).
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        users: Passwords | None = None,
        secret: bytes | None = None,
    ) -> None:
        for name in values:
            if name not in _NAMES:
                raise _invalid(
                    str(name), None, f"is unknown (the settings are {', '.join(sorted(_NAMES))})"
                )
        self._texts = _Texts(values)
        protocol = (self._texts.get("security.protocol") or "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise _invalid("security.protocol", protocol, f"is not one of {', '.join(_PROTOCOLS)}")
        self.tls = protocol.endswith("SSL")
        for name in sorted(values.keys() & _TLS):
            if not self.tls:
                raise _invalid(
                    name, None, f"needs security.protocol=SSL or SASL_SSL, not {protocol}"
                )
        self.users: KnownUsers | None = None
        self._file = users if isinstance(users, str) else None
        sasl = protocol.startswith("SASL")
        if sasl and users is not None:
            from krammar.proxy.users import KnownUsers

            mechanisms = self._texts.get_list("sasl.enabled.mechanisms")
            secret = os.urandom(32) if secret is None else secret
            self.users = KnownUsers(mechanisms, users, secret)
        elif sasl:
            raise _invalid("security.protocol", protocol, "needs users")
        elif users is not None:
            reason = "is the protocol, but users need SASL_PLAINTEXT or SASL_SSL"
            raise _invalid("security.protocol", protocol, reason)
        self.context: ssl.SSLContext | None = None
        self._read_keys()

    @property
    def sasl(self) -> bool:
        """Whether clients log in at the proxy."""
        return self.users is not None

    @property
    def files(self) -> list[str]:
        """The files that ``reload`` reads."""
        names = ("ssl.keystore.location", "ssl.truststore.location")
        found = [self._texts.get(name) for name in names]
        return [each for each in (*found, self._file) if each]

    def reload(self) -> None:
        """Read keys, certificates and users again, for new connections and logins. Raises TlsSettingError."""
        self._read_keys()
        if self.users is not None:
            self.users.reload()

    def _read_keys(self) -> None:
        if self.tls:
            from krammar.auth.server_tls import server_context

            wanted = self._texts.get("ssl.client.auth") or "none"
            self.context = server_context(self._texts, wanted, "for clients", LOG)


def _invalid(name: str, value: str | None, reason: str) -> ValueError:
    from krammar.auth.server_tls import TlsSettingError

    return TlsSettingError(name, value, reason)


class _Texts:
    """Settings as text; stores are PEM by default."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name: _text(value) for name, value in values.items()}

    def get(self, name: str) -> str | None:
        found = self._values.get(name, "").strip()
        if not found and name in ("ssl.keystore.type", "ssl.truststore.type"):
            return "PEM"
        return found or None

    def get_list(self, name: str) -> list[str]:
        return [each.strip() for each in (self.get(name) or "").split(",") if each.strip()]


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
