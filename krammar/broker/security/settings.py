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
from krammar.broker.config.definitions import split_list

PLAIN = "PLAIN"
SUPPORTED = (PLAIN, *BY_NAME, OAUTHBEARER)
log = logging.getLogger("krammar.broker")
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_JAAS = "sasl.jaas.config"


def own_name(listener: Listener, name: str) -> str:
    """Return the name of a setting that applies to one listener."""
    return f"listener.name.{listener.name.lower()}.{name}"


def setting(config: BrokerConfig, listener: Listener, name: str) -> str | None:
    """Return a setting of a listener without surrounding white space; None if it is not set."""
    for full in (own_name(listener, name), name):
        value = config.get(full)
        if value is not None and value.strip():
            return value.strip()
    return None


def listed(value: str | None) -> list[str]:
    """Split a list and drop empty parts."""
    return [part for part in split_list(value or "") if part]


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The settings of a SASL listener.

    ``mechanisms``     in the order of the setting
    ``plain_users``    passwords by user name
    ``jwt``            how signed tokens are checked; None if unsecured ones are accepted
    ``max_reauth_ms``  by mechanism, the milliseconds after which clients must log in again; 0 for never (KIP-368)
    """

    mechanisms: tuple[str, ...]
    plain_users: dict[str, str] = field(repr=False)
    max_reauth_ms: dict[str, int]
    jwt: JwtSettings | None = None


def sasl_settings(config: BrokerConfig, listener: Listener) -> SaslSettings:
    """Read and check the settings of a SASL listener.

    By default PLAIN is enabled if it has users, SCRAM always, and OAUTHBEARER never. Raises ConfigError.
    """
    name = "sasl.enabled.mechanisms"
    own = own_name(listener, name)
    jaas_name = _plain_jaas(config, listener)
    if config.get(own) is None and config.get(name) is None:
        mechanisms = (*((PLAIN,) if jaas_name is not None else ()), *BY_NAME)
    else:
        mechanisms = tuple(dict.fromkeys(listed(setting(config, listener, name))))
        if not mechanisms:
            raise ConfigError(name, None, f"needs at least one of {', '.join(SUPPORTED)}")
    for mechanism in mechanisms:
        if mechanism not in SUPPORTED:
            raise ConfigError(name, mechanism, f"is not one of {', '.join(SUPPORTED)}")
    jwt = _jwt_settings(config, listener) if OAUTHBEARER in mechanisms else None
    if OAUTHBEARER in mechanisms and jwt is None:
        log.warning(
            "listener %s accepts unsecured tokens, which anyone can create: use it for tests only",
            listener.name,
        )
    return SaslSettings(
        mechanisms=mechanisms,
        plain_users=_plain_users(config, listener, jaas_name) if PLAIN in mechanisms else {},
        max_reauth_ms={
            each: max(0, _of_mechanism(config, listener, each, "connections.max.reauth.ms"))
            for each in mechanisms
        },
        jwt=jwt,
    )


def _of_mechanism(config: BrokerConfig, listener: Listener, mechanism: str, name: str) -> Any:
    """Return the value of a setting that can be set for one mechanism. Raises ConfigError."""
    own = own_name(listener, f"{mechanism.lower()}.{name}")
    text = config.get(own)
    if text is None:
        own, text = name, setting(config, listener, name)
    definition = BROKER_CONFIGS[name]
    try:
        return definition.parse(definition.default if text is None else text)
    except ConfigError as error:
        raise ConfigError(own, error.value, error.reason) from None


def _jwt_settings(config: BrokerConfig, listener: Listener) -> JwtSettings | None:
    def value(name: str) -> Any:
        return _of_mechanism(config, listener, OAUTHBEARER, f"sasl.oauthbearer.{name}")

    if not value("jwks.endpoint.url"):
        return None
    return JwtSettings(
        url=value("jwks.endpoint.url"),
        audience=value("expected.audience"),
        issuer=value("expected.issuer") or None,
        required_scope=config.oauthbearer_required_scope,
        scope_claim=value("scope.claim.name"),
        sub_claim=value("sub.claim.name"),
        clock_skew_s=value("clock.skew.seconds"),
        refresh_ms=value("jwks.endpoint.refresh.ms"),
        backoff_ms=value("jwks.endpoint.retry.backoff.ms"),
        backoff_max_ms=value("jwks.endpoint.retry.backoff.max.ms"),
    )


def _plain_jaas(config: BrokerConfig, listener: Listener) -> str | None:
    """Return the name of the setting with the users of PLAIN."""
    names = (own_name(listener, f"plain.{_JAAS}"), own_name(listener, _JAAS), _JAAS)
    return next((name for name in names if (config.get(name) or "").strip()), None)


def _plain_users(config: BrokerConfig, listener: Listener, name: str | None) -> dict[str, str]:
    if name is None:
        raise ConfigError(
            own_name(listener, f"plain.{_JAAS}"),
            None,
            f'PLAIN needs users: {_PLAIN_MODULE} required user_NAME="PASSWORD";',
        )
    # Errors do not show the value, because it contains passwords.
    try:
        module = jaas.parse(config.get(name) or "")
    except jaas.JaasError as error:
        raise ConfigError(name, None, str(error)) from None
    if module.name != _PLAIN_MODULE:
        raise ConfigError(name, None, f"PLAIN needs {_PLAIN_MODULE}, not {module.name}")
    return module.users
