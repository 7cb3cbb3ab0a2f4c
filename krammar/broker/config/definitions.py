"""Definitions of settings: type, default, accepted values, and the conversion from text.

``BROKER_CONFIGS``, ``TOPIC_CONFIGS``, ``GROUP_CONFIGS`` and ``CLIENT_METRICS_CONFIGS`` come from the
tables of ``krammar.util.configs``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any

from kafka_wire import ConfigType, ErrorCode

from krammar.logfiles.uuids import parse_uuid
from krammar.util.configs import config_rows
from krammar.util.settings import (
    Parser,
    Setting,
    SettingError,
    SettingTable,
    boolean,
    integer,
    number,
    split_list,
    split_names,
    trimmed,
)
from krammar.util.sockets import parse_address

# Constants of this module are faster to read than the members of the enumeration.
BOOLEAN = ConfigType.BOOLEAN
DOUBLE = ConfigType.DOUBLE
LIST = ConfigType.LIST
PASSWORD = ConfigType.PASSWORD
STRING = ConfigType.STRING
CLASS = ConfigType.CLASS


class ConfigError(SettingError):
    """A setting is invalid.

    Attributes:
        name, value: the key and its text; the value is None if there is none or if it is a
            secret
        reason: the problem, as a phrase that follows key and value
        origin: the position of the text ("line 12 of server.properties"), or empty
        api: the message for a response, in Kafka's words
    """

    def __init__(
        self, name: str, value: str | None, reason: str, origin: str = "", *, api: str | None = None
    ) -> None:
        super().__init__(name, reason, value, origin)
        shown = "null" if value is None else value
        self.api = api or f"Invalid value {shown} for configuration {name}: {reason}"


def refused(name: str, value: object, reason: str, api: str) -> ConfigError:
    """Build an error whose message for a response ends with ``api``."""
    text = f"[{', '.join(value)}]" if isinstance(value, list) else setting_text(value)
    api = f"Invalid value {text} for configuration {name}: {api}"
    return ConfigError(name, text, reason, api=api)


class UpdateMode(Enum):
    """How a broker's setting can be changed while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


# Accepts the key and a parsed value; raises ConfigError if the value is out of range.
Validator = Callable[[str, Any], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDef(Setting):
    """One setting of a topic, a group or a broker: what Kafka's protocol reports of it, beside the value.

    It differs from settings of other programs because values and errors are parts of responses: values are text in
    Java's form, and an error also has Kafka's words, which depend on the type and on the check that fails.

    ``parse`` converts text, and returns a bool, int, float, str, or list[str] without duplicates. It raises
    ConfigError if the text does not match the type, or if the value is out of range.

    Attributes:
        default_text: the default as text; None if there is none
        doc: one or two sentences
        synonyms: the broker's settings that supply the value, each with the factor that converts it
            (hours to milliseconds); the first one that is set wins. A broker's setting
            supplies its own value.
        effect: whether this broker acts on it; a setting without effect is accepted, checked and
            shown
        internal: accepted, but never shown
        absent: the release that the broker serves as does not know it, so it is refused for topics and groups
    """

    type: ConfigType
    default_text: str | None
    doc: str
    synonyms: tuple[tuple[str, int], ...]
    mode: UpdateMode
    effect: bool
    internal: bool
    absent: bool

    @property
    def read_only(self) -> bool:
        return self.mode is UpdateMode.READ_ONLY

    @property
    def synonym(self) -> str | None:
        """The first broker setting that supplies the default of a topic's setting."""
        return self.synonyms[0][0] if self.synonyms else None


def setting_text(value: Any) -> str | None:
    """Format a value for a response, as Kafka (that is, Java) formats it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return _java_double(value) if isinstance(value, float) else str(value)


def _java_double(value: float) -> str:
    """Format a float as Java does: with an exponent from ten million upwards and below a thousandth."""
    if value == 0 or 1e-3 <= abs(value) < 1e7 or not math.isfinite(value):
        return repr(value)
    from decimal import Decimal

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, rest = digits[0], "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{int(exponent) + len(digits) - 1}"


def _distinct(text: str) -> list[str]:
    return list(dict.fromkeys(split_list(text)))


def _integer(bits: int) -> Parser:
    limit = 1 << bits - 1
    return integer(-limit, limit - 1)


# The parser of each type, and Kafka's words for a text that does not match.
_PARSERS: dict[ConfigType, tuple[Parser, str]] = {
    PASSWORD: (str, ""),
    STRING: (trimmed, ""),
    CLASS: (trimmed, ""),
    LIST: (_distinct, ""),
    BOOLEAN: (boolean, "Expected value to be either true or false"),
    DOUBLE: (number, "Not a number of type DOUBLE"),
    ConfigType.SHORT: (_integer(16), "Not a number of type SHORT"),
    ConfigType.INT: (_integer(32), "Not a number of type INT"),
    ConfigType.LONG: (_integer(64), "Not a number of type LONG"),
}


def accept(fits: Callable[[Any], bool], reason: str, subject: str = "Value") -> Validator:
    """Accept the values that fit. ``subject`` and ``reason`` are the message of the response."""

    def check(name: str, value: Any) -> None:
        if not fits(value):
            raise refused(name, value, reason, f"{subject or name} {reason}")

    return check


def at_least(minimum: float) -> Validator:
    return accept(lambda value: value >= minimum, f"must be at least {minimum}")


def at_most(maximum: float) -> Validator:
    return accept(lambda value: value <= maximum, f"must be no more than {maximum}")


def one_of(*names: str) -> Validator:
    return accept(lambda value: value in names, f"must be one of: {', '.join(names)}", "String")


def any_case(*names: str) -> Validator:
    """Accept one of the names, which are in upper case, in any case."""
    reason = f"must be one of (case insensitive): {', '.join(names)}"
    return accept(lambda value: value.upper() in names, reason, "String")


def each_of(*names: str) -> Validator:
    """Check that every value of a list is one of the names. The list may be empty."""
    accept_one = one_of(*names)

    def check(name: str, value: Any) -> None:
        for item in value:
            if not item:
                any_list(name, value)
            accept_one(name, item)

    return check


def all_of(*validators: Validator) -> Validator:
    def check(name: str, value: Any) -> None:
        for validator in validators:
            validator(name, value)

    return check


def any_list(name: str, value: Any) -> None:
    """Check that no value of a list is empty. The list itself may be empty."""
    if "" in value:
        api = f"Configuration '{name}' values must not be empty."
        raise ConfigError(name, ",".join(value), "contains an empty value", api=api)


def filled_list(name: str, value: Any) -> None:
    """Check that a list has values, none of them empty."""
    if not value:
        api = f"Configuration '{name}' must not be empty. Valid values include: any non-empty value"
        raise ConfigError(name, "", "must not be empty", api=api)
    any_list(name, value)


def retention(name: str, value: Any) -> None:
    if value == 0:
        api = "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
        raise ConfigError(name, "0", "must be 1 or more, or -1 for no limit", api=api)


def segment_age(name: str, value: Any) -> None:
    if value < 1:
        api = "log.roll.ms must be greater than or equal to 1"
        raise ConfigError(name, str(value), "must be 1 or more", api=api)


def connections_by_ip(text: str) -> dict[str, int]:
    """Parse max.connections.per.ip.overrides, such as ``127.0.0.1:200,::1:100``. Raises ValueError."""
    found = {}
    for each in split_names(text):
        host, _, count = each.rpartition(":")
        if not host or not (count.isascii() and count.isdigit()):
            raise ValueError(f"{each!r} is not an address and a number, such as 127.0.0.1:200")
        found[host] = int(count)
    return found


def _check_connections_by_ip(name: str, value: str) -> None:
    try:
        connections_by_ip(value)
    except ValueError as error:
        raise refused(name, value, str(error), f"{error}") from None


def _is_uuid(value: str) -> bool:
    try:
        return bool(parse_uuid(value))
    except ValueError:
        return False


def split_address(name: str, text: str) -> tuple[str, int]:
    """Return host and port of ``PORT``, ``HOST:PORT`` or ``[IPV6]:PORT``; the default host is loopback."""
    try:
        host, port = parse_address(text, "127.0.0.1")
    except ValueError:
        reason = "must be a port, or a host and a port, such as 127.0.0.1:9404"
        raise refused(name, text, reason, f"Value {reason}") from None
    return host, port


BY_DURATION = "by_duration:"
# Days, hours, minutes and seconds (ISO 8601), as Java's Duration reads them.
_DURATION = re.compile(
    r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.I | re.A
)
_SECONDS = (86_400, 3600, 60, 1)


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration such as ``PT1H30M`` (ISO 8601). Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration, such as PT1H30M")
    parts = zip(found.groups(default="0"), _SECONDS, strict=True)
    return sum(int(float(number) * seconds * 1000) for number, seconds in parts)


def _check_share_offset_reset(name: str, value: str) -> None:
    try:
        if value not in ("earliest", "latest"):
            kind, _, duration = value.partition(":")
            if f"{kind}:" != BY_DURATION:
                raise ValueError(f"{value!r} is unknown")
            duration_ms(duration)
    except ValueError:
        reason = "must be earliest, latest, or by_duration and a duration, such as by_duration:PT1H"
        api = (
            f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or of "
            "the format 'by_duration:<PnDTnHnMn.nS>'."
        )
        raise refused(name, value, reason, api) from None


_PAIR = re.compile(r"[0-9]+:[0-9]+")
_VALIDATORS: dict[str, Validator | None] = {
    "": None,
    "address": split_address,
    "any_list": any_list,
    "assignors": all_of(filled_list, each_of("uniform", "range")),
    "cluster_id": accept(
        _is_uuid, "must be 22 characters of url-safe base64 (krammar random-uuid prints one)"
    ),
    "connections_by_ip": _check_connections_by_ip,
    "filled_list": filled_list,
    "filled_string": accept(bool, "must be non-empty", "String"),
    "gzip_level": accept(
        lambda value: value == -1 or 1 <= value <= 9, "must be between 1 and 9 or equal to -1"
    ),
    "retention": retention,
    "segment_age": segment_age,
    "share_offset_reset": _check_share_offset_reset,
    "throttled_replicas": accept(
        lambda value: value == ["*"] or all(map(_PAIR.fullmatch, value)),
        "must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        "",
    ),
}
_KINDS = {"one_of": one_of, "any_case": any_case, "each_of": each_of}


def parse_validator(values: str) -> Validator | None:
    """Parse the column ``values`` of the tables."""
    if values in _VALIDATORS:
        return _VALIDATORS[values]
    if values.startswith(">="):
        return at_least(_number(values[2:]))
    kind, colon, names = values.partition(":")
    if colon:
        return _KINDS[kind](*names.split())
    low, high = map(_number, values.split(".."))
    return all_of(at_least(low), at_most(high))


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


_NO_DOC = "Known for compatibility; this broker does not act on it."


def _table(name: str) -> SettingTable[ConfigDef]:
    return SettingTable(map(_definition, config_rows(name)), ConfigError)


def _definition(row: dict[str, str]) -> ConfigDef:
    name = row["name"]
    kind = ConfigType[row["type"].upper()]
    convert, api = _PARSERS[kind]
    validate = parse_validator(row["values"])

    def parse(text: str) -> Any:
        try:
            value = convert(text)
        except ValueError as error:
            raise refused(name, text, str(error), api) from None
        if validate is not None:
            validate(name, value)
        return value

    default = None if row["default"] == "-" else row["default"]
    flags = row["flags"].split()
    synonyms = row.get("synonyms")
    return ConfigDef(
        name=name,
        parse=parse,
        default=None if default is None else parse(default),
        secret=kind is PASSWORD,
        type=kind,
        default_text=default,
        doc=row["doc"] or _NO_DOC,
        synonyms=((name, 1),) if synonyms is None else tuple(map(_synonym, synonyms.split())),
        mode=UpdateMode(row.get("update", "read-only")),
        effect="no-effect" not in flags,
        internal="internal" in flags or "absent" in flags,
        absent="absent" in flags,
    )


def _synonym(text: str) -> tuple[str, int]:
    name, _, factor = text.partition("*")
    return name, int(factor or 1)


BROKER_CONFIGS = _table("broker")
TOPIC_CONFIGS = _table("topics")
GROUP_CONFIGS = _table("groups")
CLIENT_METRICS_CONFIGS = _table("client_metrics")


# The releases without KRaft.
WITH_ZOOKEEPER = frozenset({"2.8"})
# How ``releases.csv`` writes these defaults, because an empty column means no change.
_OLDER_DEFAULTS: dict[str, str | None] = {"-": None, "(empty)": ""}


@dataclass(frozen=True, slots=True)
class ConfigTables:
    """The definitions of a release of Kafka.

    Attributes:
        invalid_value: the error code of an invalid value of a topic's setting
    """

    broker: SettingTable[ConfigDef]
    topics: SettingTable[ConfigDef]
    groups: SettingTable[ConfigDef]
    invalid_value: ErrorCode = ErrorCode.INVALID_CONFIG


@cache
def tables_of(release: str | None) -> ConfigTables:
    """Return the definitions of a release, such as ``3.9``; None for the newest one."""
    if release is None:
        return ConfigTables(BROKER_CONFIGS, TOPIC_CONFIGS, GROUP_CONFIGS)
    rows = [row for row in config_rows("releases") if row["release"] == release]
    invalid = ErrorCode.INVALID_REQUEST if release in WITH_ZOOKEEPER else ErrorCode.INVALID_CONFIG
    return ConfigTables(
        _changed(BROKER_CONFIGS, "broker", rows),
        _changed(TOPIC_CONFIGS, "topics", rows),
        _changed(GROUP_CONFIGS, "groups", rows),
        invalid,
    )


def _changed(
    table: SettingTable[ConfigDef], name: str, changes: list[dict[str, str]]
) -> SettingTable[ConfigDef]:
    """Return a table with the definitions of an older release."""
    rows = {row["name"]: row for row in config_rows(name)}
    older = {}
    for change in (row for row in changes if row["table"] == name):
        setting = change["name"]
        newest = table.get(setting)
        if newest is None:
            given = {column: text for column, text in change.items() if text}
            older[setting] = _definition({"default": "", "values": "", "doc": "", **given})
            continue
        flags = change["flags"].split()
        definition = replace(
            newest,
            absent="absent" in flags,
            internal=newest.internal or "absent" in flags,
            type=ConfigType[change["type"].upper()] if change["type"] else newest.type,
            mode=UpdateMode(change["update"]) if change["update"] else newest.mode,
        )
        if change["values"]:
            row = {**rows[setting], "values": change["values"]}
            definition = replace(definition, parse=_definition(row).parse)
        if change["default"]:
            text = _OLDER_DEFAULTS.get(change["default"], change["default"])
            default = None if text is None else definition.parse(text)
            definition = replace(definition, default_text=text, default=default)
        older[setting] = definition
    return SettingTable({**table, **older}.values(), ConfigError)
