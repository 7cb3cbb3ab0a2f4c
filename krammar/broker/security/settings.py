"""The security settings of a listener. Settings for one listener take precedence over general ones."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from krammar.auth import jaas
from krammar.auth.oauth import MECHANISM as OAUTHBEARER
from krammar.auth.oauth import JwtSettings
from krammar.auth.scram import BY_NAME
from krammar.broker.config import BROKER_CONFIGS, BrokerConfig, ConfigError, Listener
from krammar.util.settings import split_names
from krammar.util.sockets import is_loopback

PLAIN = "PLAIN"
_SUPPORTED = (PLAIN, *BY_NAME, OAUTHBEARER)
_JAAS = "sasl.jaas.config"
_ANY_PASSWORD = "krammar.plain.any.password"
log = logging.getLogger("krammar.broker")


class ListenerSettings:
    """The texts of a listener's settings."""

    def __init__(self, config: BrokerConfig, listener: Listener) -> None:
        self.config = config
        self.listener = listener

    def own(self, name: str) -> str:
        """Return the name of a setting that applies to this listener alone."""
        return f"listener.name.{self.listener.name.lower()}.{name}"

    def first(self, *names: str) -> tuple[str, str] | None:
        """Return the name and the text of the first setting that is not blank."""
        found = ((name, self.config.get(name) or "") for name in names)
        return next(((name, text) for name, text in found if text.strip()), None)

    def get(self, name: str) -> str | None:
        """Return a setting without surrounding white space; None if it is not set."""
        found = self.first(self.own(name), name)
        return None if found is None else found[1].strip()

    def of_mechanism(self, mechanism: str, name: str) -> Any:
        """Return the value of a setting that can be set for one mechanism. Raises ConfigError."""
        own = self.own(f"{mechanism.lower()}.{name}")
        text = self.config.get(own)
        if text is None:
            own, text = name, self.get(name)
        definition = BROKER_CONFIGS[name]
        try:
            return definition.default if text is None else definition.parse(text)
        except ConfigError as error:
            raise ConfigError(own, error.value, error.reason) from None


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The settings of a SASL listener.

    Attributes:
        mechanisms: in the order of the setting
        plain_users: passwords by user name; None if any name and password is accepted
        jwt: how signed tokens are checked; None if unsecured ones are accepted
        max_reauth_ms: by mechanism, the milliseconds after which clients must log in again; 0 for
            never (KIP-368)
    """

    mechanisms: tuple[str, ...]
    plain_users: dict[str, str] | None = field(repr=False)
    max_reauth_ms: dict[str, int]
    jwt: JwtSettings | None = None


def sasl_settings(config: BrokerConfig, listener: Listener) -> SaslSettings:
    """Read and check the settings of a SASL listener.

    By default PLAIN is enabled if it has users, SCRAM always, and OAUTHBEARER never. Raises
    ConfigError.
    """
    settings = ListenerSettings(config, listener)
    name = "sasl.enabled.mechanisms"
    plain_jaas = settings.first(settings.own(f"plain.{_JAAS}"), settings.own(_JAAS), _JAAS)
    any_password = config.plain_any_password
    if config.get(settings.own(name)) is None and config.get(name) is None:
        with_plain = plain_jaas is not None or any_password
        mechanisms = (*((PLAIN,) if with_plain else ()), *BY_NAME)
    else:
        mechanisms = tuple(dict.fromkeys(split_names(settings.get(name))))
        if not mechanisms:
            raise ConfigError(name, None, f"needs at least one of {', '.join(_SUPPORTED)}")
    for mechanism in mechanisms:
        if mechanism not in _SUPPORTED:
            raise ConfigError(name, mechanism, f"is not one of {', '.join(_SUPPORTED)}")
    jwt = _jwt_settings(settings) if OAUTHBEARER in mechanisms else None
    if OAUTHBEARER in mechanisms and jwt is None:
        log.warning(
            "listener %s accepts unsecured tokens, which anyone can create: use it for tests only",
            listener.name,
        )
    plain_users: dict[str, str] | None = {}
    if PLAIN in mechanisms:
        plain_users = None if any_password else _plain_users(settings, plain_jaas)
    if plain_users is None:
        _check_any_password(listener)
    return SaslSettings(
        mechanisms=mechanisms,
        plain_users=plain_users,
        max_reauth_ms={
            each: max(0, settings.of_mechanism(each, "connections.max.reauth.ms"))
            for each in mechanisms
        },
        jwt=jwt,
    )


def _check_any_password(listener: Listener) -> None:
    """Raise ConfigError unless only programs of this machine can log in with any password."""
    if not is_loopback(listener.host):
        where = f"{listener.name} listens on {listener.host or 'all interfaces'}"
        raise ConfigError(_ANY_PASSWORD, "true", f"is for tests, on loopback addresses; {where}")
    log.warning(
        "listener %s accepts any user with any password: use it for tests only", listener.name
    )


def _jwt_settings(settings: ListenerSettings) -> JwtSettings | None:
    def value(name: str) -> Any:
        return settings.of_mechanism(OAUTHBEARER, f"sasl.oauthbearer.{name}")

    if not value("jwks.endpoint.url"):
        return None
    return JwtSettings(
        url=value("jwks.endpoint.url"),
        audience=value("expected.audience"),
        issuer=value("expected.issuer") or None,
        required_scope=settings.config.oauthbearer_required_scope,
        scope_claim=value("scope.claim.name"),
        sub_claim=value("sub.claim.name"),
        clock_skew_s=value("clock.skew.seconds"),
        refresh_ms=value("jwks.endpoint.refresh.ms"),
        backoff_ms=value("jwks.endpoint.retry.backoff.ms"),
        backoff_max_ms=value("jwks.endpoint.retry.backoff.max.ms"),
    )


def _plain_users(settings: ListenerSettings, given: tuple[str, str] | None) -> dict[str, str]:
    if given is None:
        reason = f'PLAIN needs users: {jaas.PLAIN_MODULE} required user_NAME="PASSWORD";'
        raise ConfigError(settings.own(f"plain.{_JAAS}"), None, reason)
    name, text = given
    # Errors do not show the value, because it contains passwords.
    try:
        module = jaas.parse_login_module(text)
    except jaas.JaasError as error:
        raise ConfigError(name, None, str(error)) from None
    if module.name != jaas.PLAIN_MODULE:
        raise ConfigError(name, None, f"PLAIN needs {jaas.PLAIN_MODULE}, not {module.name}")
    return module.users
