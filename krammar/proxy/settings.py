"""The settings of ``krammar proxy``: a TOML file, and filters by name."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from krammar.proxy.interface import Filter
from krammar.util.extras import MissingExtra
from krammar.util.load import LoadError, load

# The keys of a file, except for ``filter``, and the types of their values.
_KEYS: dict[str, type] = {
    "upstream": str,
    "listen": str,
    "advertise": str,
    "refuse_unknown": bool,
    "max_frame": int,
    "drain_timeout": float,
    "users": str,
    "workers": int,
    "metrics_port": str,
}
# Tables of Kafka's settings. ``ssl.ca.location = "ca.pem"`` in TOML means tables in tables.
_TABLES = ("clients", "brokers")


class SettingsError(Exception):
    """A setting or a filter cannot be used."""


@dataclass(slots=True)
class Settings:
    """What a file contains: the arguments of ``Proxy`` by name, and the filters."""

    options: dict[str, Any] = field(default_factory=dict)
    filters: list[Filter] = field(default_factory=list)


def read_settings(path: Path) -> Settings:
    """Read a file such as::

        upstream = "localhost:9092"     # or several, of which one is enough: ["a:9092", "b:9092"]
        listen = "127.0.0.1:9093"       # or names of listeners: { blue = "127.0.0.1:9093", … }

        [brokers]
        security.protocol = "SSL"

        [[filter]]
        class = "my_filters:OnlySmall"
        limit = 1_000       # a keyword argument of the class

    Raises:
        SettingsError: the file is invalid, or a filter cannot be created.
        OSError: the file cannot be read.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error
    found = Settings()
    filters = tables.pop("filter", [])
    for name in _TABLES:
        if name in tables:
            table = tables.pop(name)
            if not isinstance(table, dict):
                raise SettingsError(f"{path}: write the settings for {name} below [{name}]")
            found.options[name] = dict(_flat(table))
    if isinstance(tables.get("users"), dict):
        found.options["users"] = tables.pop("users")
    for name, value in tables.items():
        expected = _KEYS.get(name)
        if expected is None:
            raise SettingsError(
                f"{path}: unknown setting {name!r} (the settings are {', '.join(_KEYS)}, "
                f"[clients], [brokers], [users] and [[filter]])"
            )
        if name == "metrics_port" and type(value) is int:
            value = str(value)
        if expected is float and type(value) is int:
            value = float(value)
        is_named = name == "listen" and isinstance(value, dict)
        if is_named and not (value and all(isinstance(each, str) for each in value.values())):
            raise SettingsError(f'{path}: write listen = {{ name = "host:port" }}')
        is_list = name == "upstream" and isinstance(value, list)
        if is_list and not (value and all(isinstance(each, str) for each in value)):
            raise SettingsError(f'{path}: write upstream = ["host:port", "host:port"]')
        if type(value) is not expected and not is_named and not is_list:
            raise SettingsError(f"{path}: {name} = {value!r} is not of type {expected.__name__}")
        found.options[name] = value
    if not isinstance(filters, list) or not all(isinstance(each, dict) for each in filters):
        raise SettingsError(f"{path}: write [[filter]] for each filter, in their order")
    for number, each in enumerate(filters, 1):
        where = f"{path}: [[filter]] {number}"
        name = each.pop("class", None)
        if not isinstance(name, str):
            raise SettingsError(f'{where}: needs class = "module:Class"')
        try:
            found.filters.append(load_filter(name, each))
        except SettingsError as error:
            raise SettingsError(f"{where}: {error}") from error
    return found


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, str(value).lower() if isinstance(value, bool) else value


def load_filter(name: str, arguments: dict[str, Any]) -> Filter:
    """Create a filter.

    Args:
        name: ``module:Class``; Python must be able to import the module.
        arguments: keyword arguments of the class.

    Raises:
        SettingsError: there is no such class, it is not a filter, or it does not accept the arguments.
    """
    try:
        cls = load(name)
    except LoadError as error:
        raise SettingsError(str(error)) from error
    except MissingExtra as error:
        raise SettingsError(f"{name}: {error}") from error
    if not isinstance(cls, type) or not issubclass(cls, Filter):
        raise SettingsError(f"{name} is not a subclass of krammar.proxy.Filter")
    try:
        return cls(**arguments)
    except (MissingExtra, OSError, TypeError, ValueError) as error:
        raise SettingsError(f"{name}: {error}") from error
