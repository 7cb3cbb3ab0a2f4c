"""The client's settings, by Kafka's names.

```python
settings = Settings.of({"bootstrap.servers": "a:9092,b:9092", "isolation.level": "read_committed"})
settings.request_timeout_ms
```

A setting's attribute is its name with underscores. Names and defaults are the Java clients' but for
those that ``Settings`` says otherwise of; librdkafka's names for the same things are understood too.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Self

from krammar.client.errors import SettingsError
from krammar.client.jaas import parse_jaas
from krammar.client.other_settings import ALIASES, NOT_SUPPORTED, WITHOUT_EFFECT
from krammar.wire.compression import Compression

log = logging.getLogger("krammar.client")

_INT32 = 2**31 - 1

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
    if text in ("GSSAPI", "OAUTHBEARER"):
        raise _Invalid(f"{text} is not supported; PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 are")
    if text not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        raise _Invalid(f"{value!r} is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512")
    return text


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
    """``host:port``, ``[ipv6]:port`` or ``PROTOCOL://host:port`` as a pair."""
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise _Invalid(f"{text!r} is not host:port")
    return host, int(port)


def _of(parse: Parser, default: Any, *, secret: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"parse": parse})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, typed; durations are in milliseconds and sizes in bytes. They can be pickled.

    What differs from Java's clients: ``client.id`` is ``krammar``; ``allow.auto.create.topics``
    is false for reading (a producer lets the broker create topics); ``default.api.timeout.ms`` holds
    for a producer's and an administrator's operations too. ``bootstrap.servers`` is required.
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
        """Settings by Kafka's names; keywords have underscores for dots. None stands for the default.

        Raises SettingsError for an unknown name, with the nearest that there is, for a name or value
        that is not supported, and for values that contradict each other. A setting that Kafka's
        clients have and that is of no effect here is accepted, with a warning to ``krammar.client``.
        """
        return cls(**_consistent(_parse(values, more)))

    def with_(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        """These settings with some changed, as ``of`` takes them. Raises SettingsError."""
        parsed = {f.name: getattr(self, f.name) for f in fields(self)}
        parsed = {n: v for n, v in parsed.items() if v != self.__dataclass_fields__[n].default}
        changed = _parse(values, more)
        if changed.keys() & {"acks", "max_in_flight_requests_per_connection", "retries"}:
            parsed.pop("enable_idempotence", None)  # it follows them unless it is set
        return type(self)(**_consistent({**parsed, **changed}))

    @property
    def tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")

    @property
    def read_committed(self) -> bool:
        return self.isolation_level == "read_committed"


@cache
def _parsers() -> dict[str, Parser]:
    """How each setting's value is read, by Kafka's name."""
    return {f.name.replace("_", "."): f.metadata["parse"] for f in fields(Settings)}


def setting_names() -> list[str]:
    """The names of the settings that have an effect, sorted."""
    return sorted({*_parsers(), "sasl.jaas.config"})


def _canonical(name: str) -> str | None:
    """The name that a setting goes by here; None for one without effect."""
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
    raise SettingsError(
        name, "there is no such setting" + (f"; did you mean {near[0]}?" if near else "")
    )


def _parse(values: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """What is given, by attribute. Raises SettingsError."""
    given: dict[str, Any] = {}
    for name, value in [*(values or {}).items(), *more.items()]:
        canonical = _canonical(str(name))
        if value is None or canonical is None:
            continue
        if canonical in given and given[canonical] != value:
            raise SettingsError(name, f"says something else than {canonical} or its like")
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
    """Put user and password of ``sasl.jaas.config`` in their own settings' place."""
    try:
        login = parse_jaas(str(given.pop("sasl.jaas.config")))
    except ValueError as error:
        raise SettingsError("sasl.jaas.config", str(error)) from None
    given.setdefault("sasl.username", login.username)
    given.setdefault("sasl.password", login.password)
    if login.mechanism == "PLAIN":
        given.setdefault("sasl.mechanism", "PLAIN")
    mechanism = str(given.get("sasl.mechanism", login.mechanism)).upper()
    if not mechanism.startswith(login.mechanism):
        raise SettingsError(
            "sasl.jaas.config", f"is for {login.mechanism}, but sasl.mechanism is {mechanism}"
        )


def _consistent(parsed: dict[str, Any]) -> dict[str, Any]:
    """Settle what depends on several settings. Raises SettingsError where they contradict."""
    if not parsed.get("bootstrap_servers"):
        raise SettingsError("bootstrap.servers", "is required")
    protocol = parsed.get("security_protocol", "PLAINTEXT")
    if protocol.startswith("SASL"):
        if "sasl_mechanism" not in parsed:
            raise SettingsError("sasl.mechanism", f"is required with {protocol}")
        for name in ("sasl_username", "sasl_password"):
            if name not in parsed:
                raise SettingsError(name.replace("_", "."), f"is required with {protocol}")
    for kind in ("truststore", "keystore"):
        if parsed.get(f"ssl_{kind}_type", "PEM").upper() != "PEM":
            raise SettingsError(
                f"ssl.{kind}.type", "only PEM is supported; keytool and openssl convert"
            )
    low, high = parsed.get("retry_backoff_ms"), parsed.get("retry_backoff_max_ms")
    if low is not None and high is None and low > 1000:
        parsed["retry_backoff_max_ms"] = low

    acks = parsed.get("acks", -1)
    transactional = parsed.get("transactional_id") is not None
    idempotent = parsed.get("enable_idempotence")
    in_flight = parsed.get("max_in_flight_requests_per_connection", 5)
    if transactional and idempotent is False:
        raise SettingsError("enable.idempotence", "has to be true with a transactional.id")
    for name, fits in (
        ("acks", acks == -1),
        ("max.in.flight.requests.per.connection", in_flight <= 5),
        ("retries", parsed.get("retries", 1) > 0),
    ):
        if fits:
            continue
        if transactional or idempotent:
            need = {"acks": "all", "retries": "more than 0"}.get(name, "5 or less")
            raise SettingsError(name, f"has to be {need} for an idempotent producer")
        parsed["enable_idempotence"] = False
    return parsed
