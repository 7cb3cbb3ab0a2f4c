"""The client's settings, by Kafka's names.

```python
settings = Settings.of({"bootstrap.servers": "a:9092,b:9092", "isolation.level": "read_committed"})
settings.request_timeout_ms
```

A setting's attribute is its name with underscores. Names and defaults match Kafka's Java clients, with the exceptions
that ``Settings`` lists. librdkafka's names for the same settings are accepted too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from krammar.auth.jaas import PLAIN_MODULE, parse_login_module
from krammar.auth.oauth import MECHANISM as OAUTHBEARER
from krammar.auth.oauth import OAuthError, check_extensions
from krammar.auth.scram import BY_NAME as SCRAM
from krammar.auth.scram import MIN_ITERATIONS
from krammar.client.errors import SettingsError
from krammar.client.scram import MAX_ITERATIONS
from krammar.util.settings import (
    INT32,
    Parser,
    Setting,
    SettingTable,
    boolean,
    choice,
    integer,
    split_list,
    split_names,
    text,
    trimmed,
)
from krammar.util.sockets import parse_address
from krammar.wire.batches.compression import Compression

log = logging.getLogger("krammar.client")

# `sasl.jaas.config`: the syntax for logins of Java's clients.

_MODULES = {
    PLAIN_MODULE: "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": OAUTHBEARER,
}
_EXTENSION = "extension_"
_OAUTH = {
    "clientId": "sasl.oauthbearer.client.credentials.client.id",
    "clientSecret": "sasl.oauthbearer.client.credentials.client.secret",
    "scope": "sasl.oauthbearer.scope",
    "ssl.truststore.location": "https.ca.location",
}


class JaasLogin(NamedTuple):
    """A login; ``mechanism`` is PLAIN, SCRAM or OAUTHBEARER.

    ``settings`` are the client settings with the same meaning, by Kafka's names.
    """

    mechanism: str
    settings: dict[str, str]

    def __repr__(self) -> str:
        return f"JaasLogin({self.mechanism}, {sorted(self.settings)})"


def parse_jaas(text: str) -> JaasLogin:
    """Parse ``module required name="value" …;``.

    Raises:
        ValueError: the text is malformed or not supported. The message does not contain secrets.
    """
    module = parse_login_module(text)
    # Some hosted Spark runtimes prefix the names of Kafka's classes.
    mechanism = _MODULES.get(module.name[max(0, module.name.find("org.apache.")) :])
    if mechanism is None:
        raise ValueError(
            f"{module.name} is not supported; use PlainLoginModule, ScramLoginModule or "
            "OAuthBearerLoginModule"
        )
    if mechanism == OAUTHBEARER:
        return JaasLogin(mechanism, _oauth(module.options))
    if module.options.get("tokenauth", "false").lower() == "true":
        raise ValueError("delegation tokens are not supported")
    for name in ("username", "password"):
        if name not in module.options:
            raise ValueError(f"has no {name}")
    return JaasLogin(mechanism, {f"sasl.{n}": module.options[n] for n in ("username", "password")})


def _oauth(options: dict[str, str]) -> dict[str, str]:
    settings = {}
    extensions = []
    for name, value in options.items():
        if name.startswith("unsecured"):
            raise ValueError(
                f"{name} is not supported: krammar creates no unsecured tokens; "
                "krammar.oauthbearer.token.provider names a function that does"
            )
        if name.startswith(_EXTENSION):
            extensions.append(f"{name.removeprefix(_EXTENSION)}={value}")
        elif name in _OAUTH:
            settings[_OAUTH[name]] = value
        elif name != "ssl.truststore.type":
            raise ValueError(f"{name} is not supported")
    if extensions:
        settings["sasl.oauthbearer.extensions"] = ",".join(extensions)
    return settings


# Parsers of values that only clients have; `krammar.util.settings` has those for all programs.

_MECHANISMS = ("PLAIN", *SCRAM, OAUTHBEARER)


def parse_mechanism(value: Any) -> str:
    name = trimmed(value).upper()
    if name in _MECHANISMS:
        return name
    supported = f"use one of {', '.join(_MECHANISMS)}"
    if name == "AWS_MSK_IAM":
        supported = f"use {OAUTHBEARER} with krammar.oauthbearer.token.provider"
    raise ValueError(f"is not supported; {supported}")


def parse_function(value: Any) -> str:
    name = trimmed(value)
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        raise ValueError("needs module:function")
    return name


def parse_endpoint(value: Any) -> str:
    url = trimmed(value)
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http", "file") or not (parts.netloc or parts.path):
        raise ValueError("needs a URL that begins with https:, http: or file:")
    return url


def parse_extensions(value: Any) -> tuple[tuple[str, str], ...]:
    pairs = [part.partition("=") for part in split_names(text(value))]
    found = {key.strip(): extension.strip() for key, _, extension in pairs}
    try:
        check_extensions(found)
    except OAuthError as error:
        raise ValueError(f"{error}; needs name=value,name=value") from None
    return tuple(found.items())


def _java_class(kind: str, *names: str) -> Parser:
    """A class of Kafka's that does what krammar does without it."""

    def parse(value: Any) -> str:
        name = trimmed(value)
        if name.rpartition(".")[2] not in names:
            raise ValueError(
                f"is a Java class; krammar.oauthbearer.token.provider names a {kind} in Python"
            )
        return name

    return parse


def parse_acks(value: Any) -> int:
    word = choice("all", "-1", "0", "1")(value)
    return -1 if word == "all" else int(word)


def parse_servers(value: Any) -> tuple[tuple[str, int], ...]:
    parts = split_list(value) if isinstance(value, str) else [part.strip() for part in value]
    servers = [_server(part) for part in parts if part]
    if not servers:
        raise ValueError("names no server")
    return tuple(dict.fromkeys(servers))


def _server(address: str) -> tuple[str, int]:
    """Parse ``host:port``, ``[ipv6]:port`` or ``PROTOCOL://host:port``."""
    try:
        return parse_address(address.rpartition("://")[2], lowest=1, bare_ipv6=True)
    except ValueError:
        raise ValueError(f"{address!r} is not host:port") from None


# What they do in Java follows here from the other settings.
LOGIN_HANDLER = _java_class("function that returns tokens", "OAuthBearerLoginCallbackHandler")
RETRIEVER = _java_class(
    "function that returns tokens",
    "DefaultJwtRetriever",
    "ClientCredentialsJwtRetriever",
    "FileJwtRetriever",
)


# The settings.


def _of(parse: Parser, default: Any, *aliases: str, secret: bool = False) -> Any:
    """Declare a setting. Aliases are librdkafka's names, and Kafka's names for PEM."""
    return field(default=default, repr=not secret, metadata={"parse": parse, "aliases": aliases})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, typed; durations are in milliseconds and sizes in bytes. Settings can be pickled.

    Only ``bootstrap.servers`` is required. These settings differ from those of Java's clients:

    - The default of ``client.id`` is ``krammar``.
    - ``allow.auto.create.topics`` is false for reading; a producer lets the broker create topics.
    - ``default.api.timeout.ms`` also applies to operations of producers and administrators.

    Three settings are krammar's own:

    - ``krammar.retry.bootstrap=true`` retries, until the operation's timeout, if all of ``bootstrap.servers`` refuse
      the client's first connection; by default that is an error immediately.
    - ``krammar.scram.max.iterations`` limits the iterations that a server may request in a SCRAM login.
    - ``krammar.oauthbearer.token.provider`` names a function that returns tokens, ``module:function``.
    """

    # Connections.
    bootstrap_servers: tuple[tuple[str, int], ...] = _of(parse_servers, (), "metadata.broker.list")
    client_id: str = _of(trimmed, "krammar")
    client_rack: str = _of(trimmed, "")
    request_timeout_ms: int = _of(integer(1), 30_000, "socket.timeout.ms")
    default_api_timeout_ms: int = _of(integer(1), 60_000)
    socket_connection_setup_timeout_ms: int = _of(integer(1), 10_000)
    connections_max_idle_ms: int = _of(integer(-1), 540_000)
    retries: int = _of(integer(), INT32, "message.send.max.retries")
    retry_backoff_ms: int = _of(integer(), 100)
    retry_backoff_max_ms: int = _of(integer(), 1000)
    krammar_retry_bootstrap: bool = _of(boolean, False)
    metadata_max_age_ms: int = _of(
        integer(), 300_000, "broker.address.ttl", "topic.metadata.refresh.interval.ms"
    )
    receive_buffer_bytes: int = _of(integer(-1), -1, "socket.receive.buffer.bytes")
    send_buffer_bytes: int = _of(integer(-1), -1, "socket.send.buffer.bytes")

    # Security.
    security_protocol: str = _of(
        choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), "PLAINTEXT"
    )
    sasl_mechanism: str | None = _of(parse_mechanism, None, "sasl.mechanisms")
    sasl_username: str | None = _of(text, None)
    sasl_password: str | None = _of(text, None, secret=True)
    krammar_scram_max_iterations: int = _of(integer(MIN_ITERATIONS), MAX_ITERATIONS)
    krammar_oauthbearer_token_provider: str | None = _of(parse_function, None)
    sasl_oauthbearer_token_endpoint_url: str | None = _of(parse_endpoint, None)
    sasl_oauthbearer_client_credentials_client_id: str | None = _of(
        text, None, "sasl.oauthbearer.client.id"
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = _of(
        text, None, "sasl.oauthbearer.client.secret", secret=True
    )
    sasl_oauthbearer_scope: str | None = _of(trimmed, None)
    sasl_oauthbearer_extensions: tuple[tuple[str, str], ...] = _of(parse_extensions, ())
    sasl_oauthbearer_header_urlencode: bool = _of(boolean, False)
    sasl_oauthbearer_jwt_retriever_class: str | None = _of(RETRIEVER, None)
    sasl_login_callback_handler_class: str | None = _of(LOGIN_HANDLER, None)
    sasl_login_read_timeout_ms: int = _of(integer(1), 10_000)
    sasl_login_retry_backoff_ms: int = _of(integer(), 100)
    sasl_login_retry_backoff_max_ms: int = _of(integer(), 10_000)
    https_ca_location: str | None = _of(trimmed, None)
    ssl_ca_location: str | None = _of(trimmed, None, "ssl.truststore.location")
    ssl_ca_pem: str | None = _of(text, None, "ssl.truststore.certificates", secret=True)
    ssl_certificate_location: str | None = _of(trimmed, None, "ssl.keystore.location")
    ssl_certificate_pem: str | None = _of(text, None, "ssl.keystore.certificate.chain", secret=True)
    ssl_key_location: str | None = _of(trimmed, None)
    ssl_key_pem: str | None = _of(text, None, "ssl.keystore.key", secret=True)
    ssl_key_password: str | None = _of(text, None, secret=True)
    ssl_endpoint_identification_algorithm: str = _of(choice("https", "none", ""), "https")
    enable_ssl_certificate_verification: bool = _of(boolean, True)
    ssl_truststore_type: str = _of(trimmed, "PEM")
    ssl_keystore_type: str = _of(trimmed, "PEM")

    # Reading.
    isolation_level: str = _of(choice("read_uncommitted", "read_committed"), "read_uncommitted")
    fetch_min_bytes: int = _of(integer(), 1)
    fetch_max_bytes: int = _of(integer(), 50 * 1024 * 1024)
    fetch_max_wait_ms: int = _of(integer(), 500, "fetch.wait.max.ms")
    max_partition_fetch_bytes: int = _of(integer(), 1024 * 1024, "fetch.message.max.bytes")
    check_crcs: bool = _of(boolean, True)
    allow_auto_create_topics: bool = _of(boolean, False)

    # Writing.
    acks: int = _of(parse_acks, -1, "request.required.acks")
    enable_idempotence: bool = _of(boolean, True)
    max_in_flight_requests_per_connection: int = _of(integer(1), 5, "max.in.flight")
    compression_type: str = _of(
        choice(*(codec.name.lower() for codec in Compression)), "none", "compression.codec"
    )
    compression_level: int | None = _of(integer(-131072), None)
    compression_gzip_level: int | None = _of(integer(-1, 9), None)
    compression_lz4_level: int | None = _of(integer(1, 17), None)
    compression_zstd_level: int | None = _of(integer(-131072, 22), None)
    batch_size: int = _of(integer(), 16 * 1024)
    linger_ms: int = _of(integer(), 5, "queue.buffering.max.ms")
    max_request_size: int = _of(integer(), 1024 * 1024, "message.max.bytes")
    max_block_ms: int = _of(integer(), 60_000)
    buffer_memory: int = _of(integer(0, 2**63 - 1), 32 * 1024 * 1024)
    delivery_timeout_ms: int = _of(integer(), 120_000, "message.timeout.ms")
    transactional_id: str | None = _of(trimmed, None)
    transaction_timeout_ms: int = _of(integer(1), 60_000)

    # The names of the settings that the user gave. The others follow their defaults, or from other settings.
    given: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @classmethod
    def of(cls, values: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        """Build settings from Kafka's names, or from keywords with underscores instead of dots.

        None means the default. A setting of Kafka's clients that has no effect here is accepted, with a warning
        to the logger ``krammar.client``.

        Raises:
            SettingsError: a name is unknown, a name or value is not supported, or values contradict each
                other.
        """
        parsed = _parse(values, more)
        return cls(given=frozenset(parsed), **_consistent(parsed))

    def with_(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        """Return these settings with changes; arguments and errors are those of ``of``.

        Settings that were given keep their values: a change that contradicts one of them is an error.
        """
        parsed = {name: getattr(self, name) for name in self.given} | _parse(values, more)
        return type(self)(given=frozenset(parsed), **_consistent(parsed))

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        """Whether connections log in with SASL."""
        return self.security_protocol.startswith("SASL")

    @property
    def read_committed(self) -> bool:
        return self.isolation_level == "read_committed"


# Settings of Kafka's and librdkafka's clients that do not apply here, with the reasons.

_NO_GROUP = "the client cannot join groups; the caller manages positions"
_BYTES = "keys and values are bytes"
_LOGIN = "only PLAIN, SCRAM and OAUTHBEARER logins are supported"
_PROVIDER = "set krammar.oauthbearer.token.provider to a function that returns tokens"
_FROM_SETTINGS = "the other settings determine the source of tokens"
_REFRESH = "a token is replaced after 80 % of its lifetime"
_NO_CLAIMS = "only brokers read the claims of a token"
_PEM = "keys and certificates are PEM files"

# A program that sets these relies on a feature that is missing, so they are errors.
NOT_SUPPORTED = {
    **dict.fromkeys(
        (
            "group.id",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "enable.auto.commit",
            "auto.offset.reset",
            "partition.assignment.strategy",
            "max.poll.records",
        ),
        _NO_GROUP,
    ),
    **dict.fromkeys(
        ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer"), _BYTES
    ),
    "partitioner.class": "keys choose partitions as in Java's default (murmur2)",
    "partitioner": "keys choose partitions as in Java's default (murmur2)",
    "partitioner.ignore.keys": "keys choose partitions as in Java's default (murmur2)",
    "interceptor.classes": "the client has no interceptors",
    "ssl.truststore.password": f"{_PEM}, which have no password",
    "ssl.keystore.password": f"{_PEM}; set ssl.key.password for an encrypted key",
    "ssl.engine.factory.class": _PEM,
    "ssl.provider": _PEM,
    "ssl.providers": _PEM,
    "ssl.engine.location": _PEM,
    "ssl.engine.id": _PEM,
    "ssl.keymanager.algorithm": _PEM,
    "ssl.trustmanager.algorithm": _PEM,
    "ssl.crl.location": "revocation lists are not read",
    **dict.fromkeys(
        (
            "sasl.client.callback.handler.class",
            "sasl.login.class",
            "sasl.kerberos.service.name",
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.keytab",
            "sasl.kerberos.principal",
            "security.providers",
        ),
        _LOGIN,
    ),
    "sasl.oauthbearer.config": _PROVIDER,
    "sasl.oauthbearer.grant.type": _PROVIDER,
    "sasl.oauthbearer.assertion.file": _PROVIDER,
    "sasl.oauthbearer.assertion.private.key.file": _PROVIDER,
    "transaction.two.phase.commit.enable": "two-phase commit (KIP-939) is not released",
    "allow.consumer.downgrade": _NO_GROUP,
}

_METRICS = "the client has no metrics"
_OWN = "the client manages connections and threads differently"

# These tune features that do not exist here, or need no tuning, so they are ignored with a warning.
WITHOUT_EFFECT = {
    **dict.fromkeys(
        (
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
            "enable.metrics.push",
            "auto.include.jmx.reporter",
            "statistics.interval.ms",
        ),
        _METRICS,
    ),
    **dict.fromkeys(
        (
            "reconnect.backoff.ms",
            "reconnect.backoff.max.ms",
            "socket.connection.setup.timeout.max.ms",
            "socket.keepalive.enable",
            "socket.nagle.disable",
            "socket.max.fails",
            "broker.address.family",
            "client.dns.lookup",
            "metadata.max.idle.ms",
            "metadata.recovery.strategy",
            "metadata.recovery.rebootstrap.trigger.ms",
            "api.version.request",
            "api.version.request.timeout.ms",
            "broker.version.fallback",
            "log.connection.close",
            "log.level",
            "debug",
            "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
            "exclude.internal.topics",
            "queue.buffering.max.messages",
            "queue.buffering.max.kbytes",
            "batch.num.messages",
            "queued.min.messages",
            "queued.max.messages.kbytes",
            "fetch.error.backoff.ms",
            "fetch.queue.backoff.ms",
            "sticky.partitioning.linger.ms",
            "receive.message.max.bytes",
            "topic.metadata.refresh.fast.interval.ms",
            "enable.partition.eof",
        ),
        _OWN,
    ),
    **dict.fromkeys(
        (
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
            "auto.commit.interval.ms",
        ),
        _NO_GROUP,
    ),
    **dict.fromkeys(
        (
            "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.ticket.renew.window.factor",
        ),
        _LOGIN,
    ),
    **dict.fromkeys(
        (
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
        ),
        _REFRESH,
    ),
    **dict.fromkeys(
        (
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwt.validator.class",
            "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
        ),
        _NO_CLAIMS,
    ),
    "sasl.login.connect.timeout.ms": "sasl.login.read.timeout.ms limits connecting too",
    "sasl.oauthbearer.method": _FROM_SETTINGS,
    "enable.sasl.oauthbearer.unsecure.jwt": _FROM_SETTINGS,
    **dict.fromkeys(
        (
            "ssl.protocol",
            "ssl.enabled.protocols",
            "ssl.cipher.suites",
            "ssl.curves.list",
            "ssl.sigalgs.list",
            "ssl.secure.random.implementation",
        ),
        "Python's defaults for TLS apply: version 1.2 and newer",
    ),
}


@cache
def client_settings() -> SettingTable[Setting]:
    """Return the table of all settings by Kafka's names. Errors of the table are SettingsError."""
    # Built on first use, and not when the module is imported: a worker of Spark unpickles its settings.
    declared = [
        Setting(
            each.name.replace("_", "."),
            each.metadata["parse"],
            each.default,
            secret=not each.repr,
            aliases=each.metadata["aliases"],
        )
        for each in fields(Settings)
        if each.metadata
    ]
    return SettingTable(
        [
            *declared,
            Setting("sasl.jaas.config", parse_jaas, secret=True),
            *(Setting(name, text, refused=why) for name, why in NOT_SUPPORTED.items()),
            *(Setting(name, text, ignored=why) for name, why in WITHOUT_EFFECT.items()),
        ],
        SettingsError,
    )


def _parse(values: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Parse settings to attributes. Raises SettingsError."""
    table = client_settings()
    given: dict[str, Any] = {}
    for name, value in [*(values or {}).items(), *more.items()]:
        setting = table.find(str(name).replace("_", "."))
        if setting.ignored:
            log.warning("%s has no effect: %s", setting.name, setting.ignored)
            continue
        if value is not None and given.setdefault(setting.name, value) != value:
            reason = f"contradicts another spelling of {setting.name}; give only one"
            raise SettingsError(name, reason)
    if "sasl.jaas.config" in given:
        _take_jaas(given)
    return {name.replace(".", "_"): table.read(table[name], value) for name, value in given.items()}


def _take_jaas(given: dict[str, Any]) -> None:
    """Add the settings that ``sasl.jaas.config`` contains. Settings of their own take precedence."""
    table = client_settings()
    login = table.read(table["sasl.jaas.config"], str(given.pop("sasl.jaas.config")))
    for name, value in login.settings.items():
        given.setdefault(name, value)
    if login.mechanism != "SCRAM":
        given.setdefault("sasl.mechanism", login.mechanism)
    mechanism = str(given.get("sasl.mechanism", login.mechanism)).upper()
    if not mechanism.startswith(login.mechanism):
        raise SettingsError(
            "sasl.jaas.config", f"is for {login.mechanism}, but sasl.mechanism is {mechanism}"
        )


def _check_oauth(parsed: dict[str, Any]) -> None:
    """Raise SettingsError unless the source of tokens is complete."""
    url = parsed.get("sasl_oauthbearer_token_endpoint_url")
    if "krammar_oauthbearer_token_provider" in parsed:
        if url is not None:
            raise SettingsError(
                "krammar.oauthbearer.token.provider",
                "cannot be combined with sasl.oauthbearer.token.endpoint.url",
            )
        return
    if url is None:
        raise SettingsError(
            "sasl.oauthbearer.token.endpoint.url",
            f"is required with {OAUTHBEARER}, unless krammar.oauthbearer.token.provider is set",
        )
    if url.startswith("file:"):
        return
    for part in ("id", "secret"):
        if f"sasl_oauthbearer_client_credentials_client_{part}" not in parsed:
            raise SettingsError(
                f"sasl.oauthbearer.client.credentials.client.{part}",
                "is required with sasl.oauthbearer.token.endpoint.url",
            )


def _consistent(parsed: dict[str, Any]) -> dict[str, Any]:
    """Compute values that depend on several settings. Raises SettingsError if settings contradict."""
    if not parsed.get("bootstrap_servers"):
        raise SettingsError("bootstrap.servers", "is required")
    protocol = parsed.get("security_protocol", "PLAINTEXT")
    if protocol.startswith("SASL"):
        if "sasl_mechanism" not in parsed:
            raise SettingsError("sasl.mechanism", f"is required with {protocol}")
        if parsed["sasl_mechanism"] == OAUTHBEARER:
            _check_oauth(parsed)
        else:
            for name in ("sasl_username", "sasl_password"):
                if name not in parsed:
                    raise SettingsError(name.replace("_", "."), f"is required with {protocol}")
    for store, own in (("truststore", "ca"), ("keystore", "certificate")):
        kind = parsed.get(f"ssl_{store}_type", "PEM")
        if kind.upper() != "PEM":
            location = parsed.get(f"ssl_{own}_location")
            if location is None:
                why = "only PEM is supported; convert with keytool or openssl"
            else:
                from krammar.auth.tls import conversion  # few clients need ssl for their settings

                why = conversion(store, kind, location)
            raise SettingsError(f"ssl.{store}.type", why)
    if protocol.endswith("SSL"):
        for key in ("ssl_key_location", "ssl_key_pem"):
            if (
                key in parsed
                and not {"ssl_certificate_location", "ssl_certificate_pem"} & parsed.keys()
            ):
                raise SettingsError(
                    key.replace("_", "."),
                    "the key has no certificate: set ssl.keystore.certificate.chain, or ssl.certificate.location",
                )
    low, high = parsed.get("retry_backoff_ms"), parsed.get("retry_backoff_max_ms")
    if low is not None and high is None and low > 1000:
        parsed["retry_backoff_max_ms"] = low

    acks = parsed.get("acks", -1)
    transactional = parsed.get("transactional_id") is not None
    idempotent = parsed.get("enable_idempotence")
    in_flight = parsed.get("max_in_flight_requests_per_connection", 5)
    if transactional and idempotent is False:
        raise SettingsError("enable.idempotence", "must be true with a transactional.id")
    for name, fits in (
        ("acks", acks == -1),
        ("max.in.flight.requests.per.connection", in_flight <= 5),
        ("retries", parsed.get("retries", 1) > 0),
    ):
        if fits:
            continue
        if transactional or idempotent:
            need = {"acks": "all", "retries": "more than 0"}.get(name, "5 or less")
            raise SettingsError(name, f"must be {need} for an idempotent producer")
        parsed["enable_idempotence"] = False
    return parsed
