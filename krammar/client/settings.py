"""The client's settings, by Kafka's names.

```python
settings = Settings.of({"bootstrap.servers": "a:9092,b:9092", "isolation.level": "read_committed"})
settings.request_timeout_ms
```

A setting's attribute is its name with underscores. Names and defaults match Kafka's Java clients, with the exceptions
that ``Settings`` lists. librdkafka's names for the same settings are accepted too.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Self
from urllib.parse import urlsplit

from krammar.auth.oauth import MECHANISM as OAUTHBEARER
from krammar.auth.oauth import OAuthError, check_extensions
from krammar.auth.scram import BY_NAME as SCRAM
from krammar.auth.scram import MIN_ITERATIONS
from krammar.client.errors import SettingsError
from krammar.client.jaas import parse_jaas
from krammar.client.other_settings import ALIASES, NOT_SUPPORTED, WITHOUT_EFFECT
from krammar.client.scram import MAX_ITERATIONS
from krammar.wire.batches.compression import Compression

log = logging.getLogger("krammar.client")

_INT32 = 2**31 - 1
_MECHANISMS = ("PLAIN", *SCRAM, OAUTHBEARER)

Parser = Callable[[Any], Any]


class _Invalid(Exception):
    pass


def _integer(low: int = 0, high: int = _INT32) -> Parser:
    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _Invalid("needs a whole number")
        try:
            number = int(value)
        except ValueError:
            raise _Invalid(f"{value!r} is not a whole number") from None
        if not low <= number <= high:
            raise _Invalid(f"{number} is not within {low} to {high}")
        return number

    return parse


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise _Invalid(f"{value!r} is neither true nor false")
    return text == "true"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Invalid(f"needs text, not {type(value).__name__}")
    return value.strip()


def _secret(value: Any) -> str:
    if not isinstance(value, str):
        raise _Invalid("needs text")
    return value


def _choice(*choices: str, upper: bool = False) -> Parser:
    def parse(value: Any) -> str:
        text = _text(value)
        text = text.upper() if upper else text.lower()
        if text not in choices:
            raise _Invalid(f"{value!r} is none of {', '.join(filter(None, choices))}")
        return text

    return parse


def _mechanism(value: Any) -> str:
    text = _text(value).upper()
    if text in _MECHANISMS:
        return text
    supported = f"use one of {', '.join(_MECHANISMS)}"
    if text == "AWS_MSK_IAM":
        supported = f"use {OAUTHBEARER} with krammar.oauthbearer.token.provider"
    raise _Invalid(f"{value!r} is not supported; {supported}")


def _function(value: Any) -> str:
    text = _text(value)
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise _Invalid(f"{value!r} is not module:function")
    return text


def _endpoint(value: Any) -> str:
    text = _text(value)
    parts = urlsplit(text)
    if parts.scheme not in ("https", "http", "file") or not (parts.netloc or parts.path):
        raise _Invalid(f"{value!r} is not a URL that begins with https:, http: or file:")
    return text


def _extensions(value: Any) -> tuple[tuple[str, str], ...]:
    pairs = [part.strip().partition("=") for part in _text(value).split(",") if part.strip()]
    found = {key.strip(): text.strip() for key, _, text in pairs}
    try:
        check_extensions(found)
    except OAuthError as error:
        raise _Invalid(f"{error}; needed is name=value,name=value") from None
    return tuple(found.items())


def _java_class(kind: str, *names: str) -> Parser:
    """A class of Kafka's that does what krammar does without it."""

    def parse(value: Any) -> str:
        text = _text(value)
        if text.rpartition(".")[2] not in names:
            raise _Invalid(
                f"{value!r} is a Java class; krammar.oauthbearer.token.provider names a {kind} in Python"
            )
        return text

    return parse


def _acks(value: Any) -> int:
    text = str(value).strip().lower()
    if text not in ("all", "-1", "0", "1"):
        raise _Invalid(f"{value!r} is none of all, -1, 0, 1")
    return -1 if text == "all" else int(text)


def _servers(value: Any) -> tuple[tuple[str, int], ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    servers = [parse_address(part.strip()) for part in parts if part.strip()]
    if not servers:
        raise _Invalid("names no server")
    return tuple(dict.fromkeys(servers))


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``host:port``, ``[ipv6]:port`` or ``PROTOCOL://host:port`` to a pair."""
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise _Invalid(f"{text!r} is not host:port")
    return host, int(port)


# What they do in Java follows here from the other settings.
_LOGIN_HANDLER = _java_class("function that returns tokens", "OAuthBearerLoginCallbackHandler")
_RETRIEVER = _java_class(
    "function that returns tokens",
    "DefaultJwtRetriever",
    "ClientCredentialsJwtRetriever",
    "FileJwtRetriever",
)


def _of(parse: Parser, default: Any, *, secret: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"parse": parse})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, typed; durations are in milliseconds and sizes in bytes. Settings can be pickled.

    ``bootstrap.servers`` is required. Differences from Java's clients: ``client.id`` is ``krammar``,
    ``allow.auto.create.topics`` is false for reading (a producer lets the broker create topics), and
    ``default.api.timeout.ms`` also applies to operations of producers and administrators.

    Three settings are krammar's own. ``krammar.retry.bootstrap=true`` retries, until the operation's timeout, if all
    of ``bootstrap.servers`` refuse the client's first connection; by default that is an error immediately.
    ``krammar.scram.max.iterations`` limits the iterations that a server may request in a SCRAM login.
    ``krammar.oauthbearer.token.provider`` names a function that returns tokens, ``module:function``.
    """

    # Connections.
    bootstrap_servers: tuple[tuple[str, int], ...] = _of(_servers, ())
    client_id: str = _of(_text, "krammar")
    client_rack: str = _of(_text, "")
    request_timeout_ms: int = _of(_integer(1), 30_000)
    default_api_timeout_ms: int = _of(_integer(1), 60_000)
    socket_connection_setup_timeout_ms: int = _of(_integer(1), 10_000)
    connections_max_idle_ms: int = _of(_integer(-1), 540_000)
    retries: int = _of(_integer(), _INT32)
    retry_backoff_ms: int = _of(_integer(), 100)
    retry_backoff_max_ms: int = _of(_integer(), 1000)
    krammar_retry_bootstrap: bool = _of(_boolean, False)
    metadata_max_age_ms: int = _of(_integer(), 300_000)
    receive_buffer_bytes: int = _of(_integer(-1), -1)
    send_buffer_bytes: int = _of(_integer(-1), -1)

    # Security.
    security_protocol: str = _of(
        _choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", upper=True), "PLAINTEXT"
    )
    sasl_mechanism: str | None = _of(_mechanism, None)
    sasl_username: str | None = _of(_secret, None)
    sasl_password: str | None = _of(_secret, None, secret=True)
    krammar_scram_max_iterations: int = _of(_integer(MIN_ITERATIONS), MAX_ITERATIONS)
    krammar_oauthbearer_token_provider: str | None = _of(_function, None)
    sasl_oauthbearer_token_endpoint_url: str | None = _of(_endpoint, None)
    sasl_oauthbearer_client_credentials_client_id: str | None = _of(_secret, None)
    sasl_oauthbearer_client_credentials_client_secret: str | None = _of(_secret, None, secret=True)
    sasl_oauthbearer_scope: str | None = _of(_text, None)
    sasl_oauthbearer_extensions: tuple[tuple[str, str], ...] = _of(_extensions, ())
    sasl_oauthbearer_header_urlencode: bool = _of(_boolean, False)
    sasl_oauthbearer_jwt_retriever_class: str | None = _of(_RETRIEVER, None)
    sasl_login_callback_handler_class: str | None = _of(_LOGIN_HANDLER, None)
    sasl_login_read_timeout_ms: int = _of(_integer(1), 10_000)
    sasl_login_retry_backoff_ms: int = _of(_integer(), 100)
    sasl_login_retry_backoff_max_ms: int = _of(_integer(), 10_000)
    https_ca_location: str | None = _of(_text, None)
    ssl_ca_location: str | None = _of(_text, None)
    ssl_ca_pem: str | None = _of(_secret, None, secret=True)
    ssl_certificate_location: str | None = _of(_text, None)
    ssl_certificate_pem: str | None = _of(_secret, None, secret=True)
    ssl_key_location: str | None = _of(_text, None)
    ssl_key_pem: str | None = _of(_secret, None, secret=True)
    ssl_key_password: str | None = _of(_secret, None, secret=True)
    ssl_endpoint_identification_algorithm: str = _of(_choice("https", "none", ""), "https")
    enable_ssl_certificate_verification: bool = _of(_boolean, True)
    ssl_truststore_type: str = _of(_text, "PEM")
    ssl_keystore_type: str = _of(_text, "PEM")

    # Reading.
    isolation_level: str = _of(_choice("read_uncommitted", "read_committed"), "read_uncommitted")
    fetch_min_bytes: int = _of(_integer(), 1)
    fetch_max_bytes: int = _of(_integer(), 50 * 1024 * 1024)
    fetch_max_wait_ms: int = _of(_integer(), 500)
    max_partition_fetch_bytes: int = _of(_integer(), 1024 * 1024)
    check_crcs: bool = _of(_boolean, True)
    allow_auto_create_topics: bool = _of(_boolean, False)

    # Writing.
    acks: int = _of(_acks, -1)
    enable_idempotence: bool = _of(_boolean, True)
    max_in_flight_requests_per_connection: int = _of(_integer(1), 5)
    compression_type: str = _of(_choice(*(codec.name.lower() for codec in Compression)), "none")
    compression_level: int | None = _of(_integer(-131072), None)
    compression_gzip_level: int | None = _of(_integer(-1, 9), None)
    compression_lz4_level: int | None = _of(_integer(1, 17), None)
    compression_zstd_level: int | None = _of(_integer(-131072, 22), None)
    batch_size: int = _of(_integer(), 16 * 1024)
    linger_ms: int = _of(_integer(), 5)
    max_request_size: int = _of(_integer(), 1024 * 1024)
    max_block_ms: int = _of(_integer(), 60_000)
    buffer_memory: int = _of(_integer(0, 2**63 - 1), 32 * 1024 * 1024)
    delivery_timeout_ms: int = _of(_integer(), 120_000)
    transactional_id: str | None = _of(_text, None)
    transaction_timeout_ms: int = _of(_integer(1), 60_000)

    @classmethod
    def of(cls, values: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        """Build settings from Kafka's names, or from keywords with underscores instead of dots.

        None means the default. A setting of Kafka's clients that has no effect here is accepted, with a warning
        to the logger ``krammar.client``.

        Raises:
            SettingsError: a name is unknown, a name or value is not supported, or values contradict each
                other.
        """
        return cls(**_consistent(_parse(values, more)))

    def with_(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        """Return these settings with changes; arguments and errors are those of ``of``."""
        parsed = {f.name: getattr(self, f.name) for f in fields(self)}
        parsed = {n: v for n, v in parsed.items() if v != self.__dataclass_fields__[n].default}
        changed = _parse(values, more)
        if changed.keys() & {"acks", "max_in_flight_requests_per_connection", "retries"}:
            parsed.pop("enable_idempotence", None)  # it follows them unless it is set
        return type(self)(**_consistent({**parsed, **changed}))

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


@cache
def _parsers() -> dict[str, Parser]:
    """Return the parser of each setting, by Kafka's name."""
    return {f.name.replace("_", "."): f.metadata["parse"] for f in fields(Settings)}


def setting_names() -> list[str]:
    """Return the names of the settings that have an effect, sorted."""
    return sorted({*_parsers(), "sasl.jaas.config"})


def _canonical(name: str) -> str | None:
    """Return the setting's name in this client, or None if it has no effect."""
    name = name.replace("_", ".")
    name = ALIASES.get(name, name)
    if name in _parsers() or name == "sasl.jaas.config":
        return name
    if name in NOT_SUPPORTED:
        raise SettingsError(name, f"is not supported: {NOT_SUPPORTED[name]}")
    if name in WITHOUT_EFFECT:
        log.warning("%s has no effect: %s", name, WITHOUT_EFFECT[name])
        return None
    known = [*setting_names(), *ALIASES, *NOT_SUPPORTED, *WITHOUT_EFFECT]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    raise SettingsError(name, "unknown setting" + (f"; did you mean {near[0]}?" if near else ""))


def _parse(values: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Parse settings to attributes. Raises SettingsError."""
    given: dict[str, Any] = {}
    for name, value in [*(values or {}).items(), *more.items()]:
        canonical = _canonical(str(name))
        if value is None or canonical is None:
            continue
        if canonical in given and given[canonical] != value:
            raise SettingsError(name, f"contradicts another spelling of {canonical}; give only one")
        given[canonical] = value
    if "sasl.jaas.config" in given:
        _take_jaas(given)
    parsed: dict[str, Any] = {}
    for name, value in given.items():
        try:
            parsed[name.replace(".", "_")] = _parsers()[name](value)
        except _Invalid as error:
            raise SettingsError(name, str(error)) from None
    return parsed


def _take_jaas(given: dict[str, Any]) -> None:
    """Add the settings that ``sasl.jaas.config`` contains. Settings of their own take precedence."""
    try:
        login = parse_jaas(str(given.pop("sasl.jaas.config")))
    except ValueError as error:
        raise SettingsError("sasl.jaas.config", str(error)) from None
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
