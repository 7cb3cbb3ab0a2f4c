"""Definitions of settings: type, default, accepted values, and the conversion from text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kafka_wire import ConfigType

from krammar.logfiles.uuids import parse_uuid

BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
SHORT = ConfigType.SHORT
LONG = ConfigType.LONG
DOUBLE = ConfigType.DOUBLE
LIST = ConfigType.LIST
CLASS = ConfigType.CLASS
PASSWORD = ConfigType.PASSWORD


class ConfigError(ValueError):
    """A setting is invalid.

    ``name``, ``value``  the key and its text; the value is None if there is none or if it is a secret
    ``reason``           the problem, as a phrase that follows key and value
    ``origin``           the position of the text ("line 12 of server.properties"), or empty
    ``api``              the message for a response, in Kafka's words
    """

    def __init__(
        self, name: str, value: str | None, reason: str, origin: str = "", *, api: str | None = None
    ) -> None:
        self.name = name
        self.value = value
        self.reason = reason
        self.origin = origin
        shown = "null" if value is None else value
        self.api = (
            f"Invalid value {shown} for configuration {name}: {reason}" if api is None else api
        )
        what = f"{name}:" if value is None else f"{name}: {value!r}"
        super().__init__(f"{what} {reason} ({origin})" if origin else f"{what} {reason}")

    def at(self, origin: str) -> ConfigError:
        """Return the same error with the position of the text."""
        return ConfigError(self.name, self.value, self.reason, origin, api=self.api)


def refused(name: str, value: object, reason: str, api: str | None = None) -> ConfigError:
    """Build an error; ``api`` ends the message of the response, by default with ``reason``."""
    text = f"[{', '.join(value)}]" if isinstance(value, list) else to_text(value)
    shown = "null" if text is None else text
    problem = f"Value {reason}" if api is None else api
    api = f"Invalid value {shown} for configuration {name}: {problem}"
    return ConfigError(name, text, reason, api=api)


class UpdateMode(Enum):
    """How a broker's setting can be changed while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


# Accepts the key and a parsed value; raises ConfigError if the value is out of range.
Validator = Callable[[str, Any], None]


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """One setting of a topic or a broker.

    ``default``   as text; None if there is none
    ``doc``       one or two sentences
    ``synonyms``  the broker's settings that supply the value, each with the factor that converts it (hours to
                  milliseconds); the first one that is set wins. A broker's setting supplies its own value.
    ``effect``    whether this broker acts on it; a setting without effect is accepted, checked and shown
    ``internal``  accepted, but never shown
    """

    name: str
    type: ConfigType
    default: str | None = None
    validator: Validator | None = None
    doc: str = ""
    synonyms: tuple[tuple[str, int], ...] = ()
    mode: UpdateMode = UpdateMode.READ_ONLY
    effect: bool = True
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        """Whether the value is a secret, which no response and no log line shows."""
        return self.type is ConfigType.PASSWORD

    @property
    def read_only(self) -> bool:
        return self.mode is UpdateMode.READ_ONLY

    @property
    def default_value(self) -> Any:
        """The parsed default; None if there is none."""
        return None if self.default is None else self.parse(self.default)

    @property
    def synonym(self) -> str | None:
        """The first broker setting that supplies the default of a topic's setting."""
        return self.synonyms[0][0] if self.synonyms else None

    def parse(self, text: str | None) -> Any:
        """Convert text and check its range.

        Returns:
            A bool, int, float, str, or list[str] without duplicates; None for None.

        Raises:
            ConfigError: the text does not match the type, or the value is out of range.
        """
        value = None if text is None else self.convert(text)
        if self.validator is not None:
            self.validator(self.name, value)
        return value

    def convert(self, text: str) -> Any:
        """Convert text without checking the range. Raises ConfigError if it does not match the type."""
        if self.type is PASSWORD:
            return text
        given, text = text, text.strip()
        if self.type is STRING or self.type is CLASS:
            return text
        if self.type is LIST:
            return list(dict.fromkeys(split_list(text)))
        if self.type is BOOLEAN:
            lowered = text.lower()
            if lowered not in ("true", "false"):
                api = "Expected value to be either true or false"
                raise refused(self.name, given, "is neither true nor false", api)
            return lowered == "true"
        number = f"Not a number of type {self.type.name}"
        if self.type is DOUBLE:
            if len(text) > _LONGEST_NUMBER or not _FLOAT.fullmatch(text):
                raise refused(self.name, given, "is not a number", number)
            return float(text)
        bits = _BITS[self.type]
        limit = 1 << bits - 1
        if not _INTEGER.fullmatch(text) or not -limit <= int(text) < limit:
            raise refused(self.name, given, f"is not an integer of {bits} bits", number)
        return int(text)


def to_text(value: Any) -> str | None:
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


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BITS = {INT: 32, SHORT: 16, LONG: 64}
# The patterns above would be slow on very long texts.
_LONGEST_NUMBER = 400


def split_list(text: str) -> list[str]:
    """Split a comma-separated text and strip white space around the values."""
    text = text.strip()
    return [item.strip() for item in text.split(",")] if text else []


def between(minimum: float, maximum: float | None) -> Validator:
    """Accept numbers from ``minimum`` to ``maximum``, both inclusive; None for no maximum."""

    def check(name: str, value: Any) -> None:
        if value is None:
            raise refused(name, None, "must be non-null")
        if value < minimum:
            raise refused(name, value, f"must be at least {minimum}")
        if maximum is not None and value > maximum:
            raise refused(name, value, f"must be no more than {maximum}")

    return check


def one_of(*names: str, ignore_case: bool = False) -> Validator:
    """Accept one of the names, which are in upper case if case is ignored."""
    how = " (case insensitive)" if ignore_case else ""

    def check(name: str, value: Any) -> None:
        if value not in names and not (ignore_case and value and value.upper() in names):
            reason = f"must be one of{how}: {', '.join(names)}"
            raise refused(name, value, reason, f"String {reason}")

    return check


def each_of(*names: str) -> Validator:
    """Check that every value of a list is one of the names. The list may be empty."""
    accept = one_of(*names)

    def check(name: str, value: Any) -> None:
        for item in value or ():
            if not item:
                any_list(name, value)
            accept(name, item)

    return check


def any_list(name: str, value: Any) -> None:
    """Check that no value of a list is empty. The list itself may be empty."""
    if value and "" in value:
        api = f"Configuration '{name}' values must not be empty."
        raise ConfigError(name, ",".join(value), "contains an empty value", api=api)


def filled_list(name: str, value: Any) -> None:
    """Check that a list has values, none of them empty."""
    if value is not None and not value:
        api = f"Configuration '{name}' must not be empty. Valid values include: any non-empty value"
        raise ConfigError(name, "", "must not be empty", api=api)
    any_list(name, value)


def assignors(name: str, value: Any) -> None:
    """Check for a list of the broker's assignors of consumer groups."""
    filled_list(name, value)
    each_of("uniform", "range")(name, value)


def filled_string(name: str, value: Any) -> None:
    if value == "":
        raise refused(name, value, "must be non-empty", "String must be non-empty")


def gzip_level(name: str, value: Any) -> None:
    """Check the level of gzip; -1 selects the codec's default."""
    if value != -1 and not (value is not None and 1 <= value <= 9):
        raise refused(name, value, "must be between 1 and 9 or equal to -1")


def cluster_id(name: str, value: Any) -> None:
    """Check for a UUID in Kafka's format (base64), or None."""
    try:
        if value is not None:
            parse_uuid(value)
    except ValueError:
        reason = "must be 22 characters of url-safe base64 (krammar random-uuid prints one)"
        raise refused(name, value, reason) from None


def address(name: str, value: Any) -> None:
    """Check for ``PORT``, ``HOST:PORT`` or ``[IPV6]:PORT``, or None."""
    if value is not None:
        split_address(name, value)


def split_address(name: str, text: str) -> tuple[str, int]:
    """Return host and port of an address; without a host, the loopback address. Raises ConfigError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise refused(name, text, "must be a port, or a host and a port, such as 127.0.0.1:9404")
    return match["host"] or match["ipv6"] or "127.0.0.1", int(match["port"])


def throttled_replicas(name: str, value: Any) -> None:
    """Check for ``*`` (all replicas) or ``partition:broker`` pairs."""
    if value != ["*"] and not all(_PAIR.fullmatch(item) for item in value):
        reason = (
            "must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )
        raise refused(name, value, reason, f"{name} {reason}")


_ADDRESS = re.compile(
    r"(?:(?:(?P<host>[^:\[\]\s]+)|\[(?P<ipv6>[0-9a-fA-F:.]+)\]):)?(?P<port>[0-9]{1,5})"
)
_PAIR = re.compile(r"[0-9]+:[0-9]+")
_NAMED = {
    check.__name__: check
    for check in (
        address,
        any_list,
        assignors,
        cluster_id,
        filled_list,
        filled_string,
        gzip_level,
        throttled_replicas,
    )
}


def parse_validator(values: str) -> Validator | None:
    """Parse the column ``values`` of the tables."""
    if not values or values in _NAMED:
        return _NAMED.get(values)
    if values.startswith(">="):
        return between(_number(values[2:]), None)
    kind, colon, names = values.partition(":")
    if not colon:
        return between(*map(_number, values.split("..")))
    if kind == "each_of":
        return each_of(*names.split())
    return one_of(*names.split(), ignore_case=kind == "any_case")


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)
