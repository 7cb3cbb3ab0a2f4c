"""How clients connect to the proxy: TLS and logins, by the settings of a listener of Kafka's brokers."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from krammar.util.settings import Setting, SettingError, SettingTable, choice, split_names, text

if TYPE_CHECKING:
    from krammar.proxy.users import KnownUsers, Passwords

# TLS and users are imported only if they are needed: they are a tenth of the time until the proxy is ready.

LOG = logging.getLogger("krammar.proxy")

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_TLS = frozenset({"SSL", "SASL_SSL"})
# A setting applies to security protocols.
_TABLE = SettingTable(
    (
        Setting("security.protocol", choice(*_PROTOCOLS), "PLAINTEXT"),
        Setting("sasl.enabled.mechanisms", text),
        *(
            Setting(f"ssl.{name}", text, applies_to=_TLS)
            for name in (
                "cipher.suites",
                "client.auth",
                "enabled.protocols",
                "key.password",
                "keystore.certificate.chain",
                "keystore.key",
                "keystore.location",
                "keystore.type",
                "principal.mapping.rules",
                "truststore.certificates",
                "truststore.location",
                "truststore.type",
            )
        ),
    )
)


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
        ValueError: a setting is unknown or invalid, or a file cannot be read (SettingError).
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        users: Passwords | None = None,
        secret: bytes | None = None,
    ) -> None:
        self._texts = _Texts(values)
        setting = _TABLE["security.protocol"]
        protocol = _TABLE.read(setting, self._texts.get(setting.name) or setting.default)
        self.tls = protocol in _TLS
        for name in values:
            applies_to = _TABLE.find(str(name)).applies_to
            if applies_to and protocol not in applies_to:
                raise SettingError(name, f"needs security.protocol=SSL or SASL_SSL, not {protocol}")
        self.users: KnownUsers | None = None
        self._file = users if isinstance(users, str) else None
        sasl = protocol.startswith("SASL")
        if sasl and users is not None:
            from krammar.proxy.users import KnownUsers

            mechanisms = split_names(self._texts.get("sasl.enabled.mechanisms"))
            secret = os.urandom(32) if secret is None else secret
            self.users = KnownUsers(mechanisms, users, secret)
        elif sasl:
            raise SettingError(setting.name, "needs users", protocol)
        elif users is not None:
            reason = "is the protocol, but users need SASL_PLAINTEXT or SASL_SSL"
            raise SettingError(setting.name, reason, protocol)
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
        """Read keys, certificates and users again, for new connections and logins. Raises SettingError."""
        self._read_keys()
        if self.users is not None:
            self.users.reload()

    def _read_keys(self) -> None:
        if self.tls:
            from krammar.auth.server_tls import server_context

            wanted = self._texts.get("ssl.client.auth") or "none"
            self.context = server_context(self._texts, wanted, "for clients", LOG)


class _Texts:
    """Settings as text; stores are PEM by default."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name: _text(value) for name, value in values.items()}

    def get(self, name: str) -> str | None:
        found = self._values.get(name, "").strip()
        if not found and name in ("ssl.keystore.type", "ssl.truststore.type"):
            return "PEM"
        return found or None


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
