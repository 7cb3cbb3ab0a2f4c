"""How a listener's security is set up: values by Kafka's names, with a listener's own before all
listeners'."""

from __future__ import annotations

from dataclasses import dataclass, field

from krammar.auth import jaas
from krammar.auth.scram import BY_NAME
from krammar.broker.config import BrokerConfig, ConfigError, Listener

PLAIN = "PLAIN"
SUPPORTED = (PLAIN, *BY_NAME)
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_JAAS = "sasl.jaas.config"


def own_name(listener: Listener, name: str) -> str:
    """The name of a setting for this listener alone."""
    return f"listener.name.{listener.name.lower()}.{name}"


def setting(config: BrokerConfig, listener: Listener, name: str) -> str | None:
    """A setting of a listener; None where it is not set. Space around it does not count."""
    for full in (own_name(listener, name), name):
        value = config.get(full)
        if value is not None and value.strip():
            return value.strip()
    return None


def listed(value: str | None) -> list[str]:
    """The parts of a value that is a list."""
    return [part.strip() for part in (value or "").split(",") if part.strip()]


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """``mechanisms`` in the order of the setting; ``plain_users`` maps names to passwords;
    ``max_reauth_ms`` by mechanism: milliseconds after which a login has to be renewed, 0 for never
    (KIP-368)."""

    mechanisms: tuple[str, ...]
    plain_users: dict[str, str] = field(repr=False)
    max_reauth_ms: dict[str, int]


def sasl_settings(config: BrokerConfig, listener: Listener) -> SaslSettings:
    """Read and check the settings of a SASL listener. Raises ConfigError.

    By default all mechanisms are there, but PLAIN only where its users are.
    """
    name = "sasl.enabled.mechanisms"
    own = own_name(listener, name)
    jaas_name = _plain_jaas(config, listener)
    if config.get(own) is None and config.get(name) is None:
        mechanisms = tuple(each for each in SUPPORTED if each != PLAIN or jaas_name is not None)
    else:
        mechanisms = tuple(dict.fromkeys(listed(setting(config, listener, name))))
        if not mechanisms:
            raise ConfigError(name, None, f"has to name some of {', '.join(SUPPORTED)}")
    for mechanism in mechanisms:
        if mechanism not in SUPPORTED:
            raise ConfigError(name, mechanism, f"only {', '.join(SUPPORTED)} can be used")
    return SaslSettings(
        mechanisms=mechanisms,
        plain_users=_plain_users(config, listener, jaas_name) if PLAIN in mechanisms else {},
        max_reauth_ms={each: _max_reauth_ms(config, listener, each) for each in mechanisms},
    )


def _max_reauth_ms(config: BrokerConfig, listener: Listener, mechanism: str) -> int:
    name = "connections.max.reauth.ms"
    own = own_name(listener, f"{mechanism.lower()}.{name}")
    text = config.get(own)
    if text is None:
        own, text = name, setting(config, listener, name)
    try:
        return max(0, int(text or 0))
    except ValueError:
        raise ConfigError(own, text, "is not an integer") from None


def _plain_jaas(config: BrokerConfig, listener: Listener) -> str | None:
    """The name of the setting that has PLAIN's users."""
    names = (own_name(listener, f"plain.{_JAAS}"), own_name(listener, _JAAS), _JAAS)
    return next((name for name in names if (config.get(name) or "").strip()), None)


def _plain_users(config: BrokerConfig, listener: Listener, name: str | None) -> dict[str, str]:
    if name is None:
        raise ConfigError(
            own_name(listener, f"plain.{_JAAS}"),
            None,
            f'PLAIN needs its users: {_PLAIN_MODULE} required user_NAME="PASSWORD";',
        )
    # The value holds passwords, so that no error shows it.
    try:
        module = jaas.parse(config.get(name) or "")
    except jaas.JaasError as error:
        raise ConfigError(name, None, str(error)) from None
    if module.name != _PLAIN_MODULE:
        raise ConfigError(name, None, f"PLAIN takes {_PLAIN_MODULE}, not {module.name}")
    return module.users
