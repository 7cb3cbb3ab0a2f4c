"""How clients connect to the proxy: TLS and logins, by the settings of a listener of Kafka's brokers."""

from __future__ import annotations

import logging
import secrets
import ssl
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from krammar.auth import scram_server
from krammar.auth.exchanges import Exchange, PlainExchange
from krammar.auth.oauth import MECHANISM as OAUTHBEARER
from krammar.auth.scram import BY_NAME, MIN_ITERATIONS, Mechanism
from krammar.auth.server_tls import TlsSettingError, server_context

LOG = logging.getLogger("krammar.proxy")

PLAIN = "PLAIN"
_MECHANISMS = (PLAIN, *BY_NAME)
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

# Passwords by user name, or the path of a TOML file with them.
Passwords = Mapping[str, str] | str


class Clients:
    """The connections of clients.

    ``mechanisms``  of SASL, for clients that log in at the proxy
    ``context``     the TLS context for new connections; None without TLS

    Args:
        values: settings of a listener of Kafka's brokers, and ``security.protocol``.
        users: who can log in; required with SASL.
        secret: hides which users exist. All workers of a proxy need the same one. Default: a random one.

    Raises:
        TlsSettingError: a setting is unknown or invalid, or a file cannot be read.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        users: Passwords | None = None,
        secret: bytes | None = None,
    ) -> None:
        for name in values:
            if name not in _NAMES:
                raise TlsSettingError(
                    str(name), None, f"is unknown (the settings are {', '.join(sorted(_NAMES))})"
                )
        self._texts = _Texts(values)
        self._users = users
        self._secret = secrets.token_bytes(32) if secret is None else secret
        protocol = (self._texts.get("security.protocol") or "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise TlsSettingError(
                "security.protocol", protocol, f"is not one of {', '.join(_PROTOCOLS)}"
            )
        self.tls = protocol.endswith("SSL")
        self.sasl = protocol.startswith("SASL")
        self.mechanisms = self._mechanisms() if self.sasl else ()
        for name in sorted(values.keys() & _TLS):
            if not self.tls:
                raise TlsSettingError(
                    name, None, f"needs security.protocol=SSL or SASL_SSL, not {protocol}"
                )
        if self.sasl != (users is not None):
            reason = (
                "needs users"
                if self.sasl
                else "is the protocol, but users need SASL_PLAINTEXT or SASL_SSL"
            )
            raise TlsSettingError("security.protocol", protocol, reason)
        self.context: ssl.SSLContext | None = None
        self._passwords: dict[str, str] = {}
        self._credentials: dict[tuple[str, str], tuple[str, scram_server.Credential]] = {}
        self.reload()

    def _mechanisms(self) -> tuple[str, ...]:
        found = tuple(self._texts.get_list("sasl.enabled.mechanisms")) or _MECHANISMS
        for each in found:
            if each not in _MECHANISMS:
                reason = f"is not one of {', '.join(_MECHANISMS)}"
                if each == OAUTHBEARER:
                    reason += "; let such logins pass to the brokers, without SASL here"
                raise TlsSettingError("sasl.enabled.mechanisms", each, reason)
        return found

    @property
    def files(self) -> list[str]:
        """The files that ``reload`` reads."""
        names = ("ssl.keystore.location", "ssl.truststore.location")
        found = [self._texts.get(name) for name in names]
        return [each for each in (*found, self._users) if isinstance(each, str)]

    def reload(self) -> None:
        """Read keys, certificates and users again, for new connections and logins. Raises TlsSettingError."""
        if self.tls:
            wanted = self._texts.get("ssl.client.auth") or "none"
            self.context = server_context(self._texts, wanted, "for clients", LOG)
        if self._users is not None:
            self._take(_read_users(self._users))

    def _take(self, passwords: dict[str, str]) -> None:
        # Before the first login: its time must not reveal which users exist.
        credentials = {}
        for mechanism in (BY_NAME[each] for each in self.mechanisms if each != PLAIN):
            for user, password in passwords.items():
                key = mechanism.name, user
                known = self._credentials.get(key)
                if known is None or known[0] != password:
                    salt = self._decoy(mechanism, user).salt
                    salted = mechanism.salted_password(password, salt, MIN_ITERATIONS)
                    credential = scram_server.credential_of(mechanism, salted, salt, MIN_ITERATIONS)
                    known = password, credential
                credentials[key] = known
        self._passwords, self._credentials = passwords, credentials

    def _decoy(self, mechanism: Mechanism, user: str) -> scram_server.Credential:
        kinds = [(scram_server.SALT_SIZE, MIN_ITERATIONS)]
        return scram_server.decoy(mechanism, self._secret, user, kinds)

    def exchange(self, mechanism: str) -> Exchange:
        """Begin the login of a client with one of ``mechanisms``."""
        if mechanism == PLAIN:
            return PlainExchange(self._passwords)
        kind = BY_NAME[mechanism]

        def find(user: str) -> tuple[scram_server.Stored, bool]:
            fake = self._decoy(kind, user)
            known = self._credentials.get((kind.name, user))
            return (fake, False) if known is None else (known[1], True)

        return scram_server.ScramServer(kind, find)


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


def _read_users(users: Passwords) -> dict[str, str]:
    found: Mapping[str, Any]
    if isinstance(users, str):
        try:
            found = tomllib.loads(Path(users).read_text(encoding="utf-8"))
        except OSError as error:
            raise TlsSettingError("users", users, f"cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise TlsSettingError("users", users, f"is not TOML: {error}") from None
    else:
        found = users
    for name, password in found.items():
        if not name or not isinstance(password, str) or not password:
            # The value is not shown, because it is a password.
            raise TlsSettingError("users", None, f'{name!r} needs a password: name = "password"')
    if not found:
        raise TlsSettingError("users", None, 'has no user: name = "password"')
    return dict(found)
