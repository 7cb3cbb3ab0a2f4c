"""The keywords of ``KafkaBroker.start`` and of the marks, checked and translated to Kafka's settings."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from krammar.auth.jaas import PLAIN_MODULE
from krammar.authorization.acls import Acl
from krammar.authorization.rules import all_acls
from krammar.broker import ConfigError
from krammar.broker.client_metrics import Subscription
from krammar.broker.config.definitions import BROKER_CONFIGS
from krammar.broker.errors import ApiError
from krammar.broker.protection import STANDARD_AUTHORIZER
from krammar.broker.topic_checks import check_new_topic, colliding
from krammar.proxy.interface import Filter
from krammar.testing.records import Seed, seeds
from krammar.util.diagnostics import did_you_mean

KEYWORDS = (
    "nodes",
    "topics",
    "records",
    "sasl",
    "users",
    "acls",
    "tls",
    "filters",
    "process",
    "kafka_like_delays",
    "kafka_version",
    "client_metrics",
)

# How late changes are with ``kafka_like_delays=True``, in milliseconds.
DELAYS_MS = 100

# The name of the subscription of ``client_metrics``, and its settings, unless the test has others.
SUBSCRIPTION = "krammar"
_SUBSCRIPTION = {"metrics": "*", "interval.ms": "100"}

_MECHANISMS = {
    "plain": "PLAIN",
    "scram": "SCRAM-SHA-512",
    "scram-sha-256": "SCRAM-SHA-256",
    "scram-sha-512": "SCRAM-SHA-512",
}
_DEFAULT_USER = "alice"
_JAAS_NAME = re.compile(r"[\w$.\-]+")


@dataclass(frozen=True, slots=True)
class Options:
    """What a test asked for.

    Attributes:
        topics: partitions by name; None for the broker's ``num.partitions``
        mechanism: of SASL, by Kafka's name; None without logins
        users: passwords by name
        settings: Kafka's settings, by name or attribute
        filters: filters of ``krammar.proxy``
        process: whether the broker runs in a process of its own
        records: what topics have at the start, by topic
        acls: who may do what; None if everybody may do everything
        client_metrics: the settings of a subscription to clients' metrics; None without
    """

    topics: dict[str, int | None]
    mechanism: str | None
    users: dict[str, str] = field(repr=False)
    tls: bool
    settings: dict[str, Any]
    filters: tuple[Filter, ...] = ()
    process: bool = False
    records: dict[str, list[Seed]] = field(default_factory=dict)
    acls: list[Acl] | None = None
    client_metrics: dict[str, str] | None = None

    @property
    def protocol(self) -> str:
        """The security protocol of the listener."""
        if self.mechanism is None:
            return "SSL" if self.tls else "PLAINTEXT"
        return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"


def read_options(
    given: Mapping[str, Any] | None = None,
    *,
    topics: Any = None,
    sasl: Any = None,
    users: Any = None,
    tls: Any = False,
    filters: Any = (),
    process: Any = False,
    records: Any = None,
    acls: Any = None,
    kafka_like_delays: Any = False,
    kafka_version: str | None = None,
    client_metrics: Any = False,
    **settings: Any,
) -> Options:
    """Check the keywords. Raises ConfigError."""
    for name in (*(given or {}), *settings):
        if name not in BROKER_CONFIGS and (near := did_you_mean(name, KEYWORDS)):
            raise ConfigError(name, None, f"unknown keyword; {near}")
    if not isinstance(tls, bool):
        raise ConfigError("tls", str(tls), "is neither True nor False")
    if not isinstance(process, bool):
        raise ConfigError("process", str(process), "is neither True nor False")
    mechanism = None if sasl is None else _mechanism(sasl)
    options = Options(
        _topics(topics),
        mechanism,
        _users(users, mechanism),
        tls,
        {**(given or {}), **settings},
        _filters(filters),
        process,
        _records(records),
        _acls(acls),
        _subscription(client_metrics),
    )
    if options.client_metrics is not None:
        options.settings["krammar.client.telemetry"] = True
    if delay_ms := _delay_ms(kafka_like_delays):
        options.settings["krammar.kafka.like.delays.ms"] = delay_ms
    if kafka_version is not None:
        options.settings["krammar.kafka.version"] = kafka_version
    if options.acls is not None:
        options.settings["authorizer.class.name"] = STANDARD_AUTHORIZER
    if process and options.filters:
        raise ConfigError("filters", None, "run in the process of the test: leave out process=True")
    if options.protocol != "PLAINTEXT":
        _refuse(options.settings, "listeners", "sasl and tls")
    if mechanism is not None:
        _refuse(options.settings, "sasl.enabled.mechanisms", "sasl")
    if tls:
        for name in options.settings:
            if name.replace("_", ".").startswith(("ssl.keystore.", "ssl.truststore.")):
                _refuse(options.settings, name, "tls=True, which makes the certificates")
    return options


def plain_logins(users: Mapping[str, str]) -> str:
    """Return the users of PLAIN as ``sasl.jaas.config``."""
    escaped = {name: re.sub(r'([\\"])', r"\\\1", password) for name, password in users.items()}
    logins = "".join(f' user_{name}="{password}"' for name, password in escaped.items())
    return f"{PLAIN_MODULE} required{logins};"


def _refuse(settings: Mapping[str, Any], name: str, other: str) -> None:
    for key in settings:
        if key.replace("_", ".") == name.replace("_", "."):
            raise ConfigError(key, None, f"cannot be combined with {other}")


def _mechanism(sasl: Any) -> str:
    found = _MECHANISMS.get(sasl.lower()) if isinstance(sasl, str) else None
    if found is None:
        known = ", ".join(map(repr, _MECHANISMS))
        near = did_you_mean(str(sasl).lower(), _MECHANISMS)
        raise ConfigError("sasl", str(sasl), f"is not one of {known}" + (near and f"; {near}"))
    return found


def _topics(topics: Any) -> dict[str, int | None]:
    if topics is None:
        return {}
    if isinstance(topics, Mapping):
        wanted = dict(topics)
    elif isinstance(topics, Iterable) and not isinstance(topics, (str, bytes)):
        wanted = dict.fromkeys(topics)
    else:
        raise ConfigError(
            "topics", str(topics), 'is not a mapping such as {"orders": 4}, nor a list of names'
        )
    for name, partitions in wanted.items():
        if not isinstance(name, str):
            raise ConfigError("topics", str(name), "is not the name of a topic")
        try:
            check_new_topic(name)
        except ApiError as error:
            raise ConfigError("topics", None, str(error.message)) from None
        if other := colliding(name, wanted):
            raise ConfigError(
                "topics", None, f"{name} and {other} collide: '.' and '_' are the same"
            )
        if partitions is not None and (type(partitions) is not int or partitions < 1):
            raise ConfigError("topics", None, f"{name} cannot have {partitions!r} partitions")
    return wanted


def _records(records: Any) -> dict[str, list[Seed]]:
    if records is None:
        return {}
    if not isinstance(records, Mapping):
        raise ConfigError("records", str(records), 'is not a mapping such as {"orders": [b"one"]}')
    _topics(dict.fromkeys(records))
    try:
        return {topic: seeds(each) for topic, each in records.items()}
    except TypeError as error:
        raise ConfigError("records", None, str(error)) from None


def _delay_ms(delays: Any) -> int:
    """Return how late changes are, in milliseconds."""
    if isinstance(delays, bool):
        return DELAYS_MS if delays else 0
    if not isinstance(delays, int) or delays < 0:
        raise ConfigError(
            "kafka_like_delays", str(delays), "is neither True nor a number of milliseconds"
        )
    return delays


def _subscription(wanted: Any) -> dict[str, str] | None:
    """Return the settings of a subscription to clients' metrics."""
    if isinstance(wanted, bool):
        return dict(_SUBSCRIPTION) if wanted else None
    if not isinstance(wanted, Mapping):
        raise ConfigError(
            "client_metrics", str(wanted), "is neither True nor the settings of a subscription"
        )
    settings = {
        **_SUBSCRIPTION,
        **{name.replace("_", "."): _listed(value) for name, value in wanted.items()},
    }
    try:
        Subscription.of(settings)
    except ApiError as error:
        raise ConfigError("client_metrics", None, str(error.message)) from None
    return settings


def _listed(value: Any) -> str:
    """Return the text of a setting, whose values a test can write as a mapping or a list."""
    if isinstance(value, Mapping):
        value = [f"{name}={each}" for name, each in value.items()]
    return str(value) if isinstance(value, (str, int)) else ",".join(map(str, value))


def _acls(acls: Any) -> list[Acl] | None:
    try:
        return None if acls is None else all_acls(acls)
    except ValueError as error:
        raise ConfigError("acls", None, str(error)) from None


def _filters(filters: Any) -> tuple[Filter, ...]:
    if not isinstance(filters, Iterable) or not all(isinstance(each, Filter) for each in filters):
        raise ConfigError("filters", None, "are not a list of filters, such as [OnlySmall()]")
    return tuple(filters)


def _users(users: Any, mechanism: str | None) -> dict[str, str]:
    if users is None:
        users = [] if mechanism is None else [_DEFAULT_USER]
    elif mechanism is None:
        raise ConfigError("users", None, f"need sasl, one of {', '.join(map(repr, _MECHANISMS))}")
    if isinstance(users, Mapping):
        passwords = dict(users)
    elif isinstance(users, Iterable) and not isinstance(users, (str, bytes)):
        passwords = {name: secrets.token_urlsafe(12) for name in users}
    else:
        raise ConfigError(
            "users", None, 'are neither a list of names nor a mapping such as {"alice": "secret"}'
        )
    if mechanism is not None and not passwords:
        raise ConfigError("users", None, "are empty, so nobody could log in")
    for name, password in passwords.items():
        if not isinstance(name, str) or not name:
            raise ConfigError("users", str(name), "is not the name of a user")
        if not isinstance(password, str) or not password:
            raise ConfigError("users", None, f"the password of {name} is empty or not text")
        if mechanism == "PLAIN" and not _JAAS_NAME.fullmatch(name):
            raise ConfigError("users", name, "has characters that PLAIN's settings do not allow")
    return passwords
