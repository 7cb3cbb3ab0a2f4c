"""The settings of ``krammar proxy``: a TOML file, and filters by name."""

from __future__ import annotations

import tomllib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from krammar.proxy.held import close_filter
from krammar.proxy.interface import Filter
from krammar.util.diagnostics import did_you_mean
from krammar.util.extras import MissingExtra
from krammar.util.load import LoadError, load

# The keys of a file, except for ``filter`` and tables, and the types of their values.
_KEYS: dict[str, type] = {
    "upstream": str,
    "listen": str,
    "advertise": str,
    "broker_ports": str,
    "broker_port_timeout": float,
    "refuse_unknown": bool,
    "max_frame": int,
    "drain_timeout": float,
    "users": str,
    "workers": int,
    "metrics_port": str,
    "reload": bool,
}
# Tables of Kafka's settings. ``ssl.ca.location = "ca.pem"`` in TOML means tables in tables.
_TABLES = ("clients", "brokers")


class SettingsError(Exception):
    """A setting or a filter cannot be used. Several errors are one with several lines."""


@dataclass(slots=True)
class Settings:
    """What a file contains: the arguments of ``Proxy`` by name, and the filters."""

    options: dict[str, Any] = field(default_factory=dict)
    filters: list[Filter] = field(default_factory=list)

    def close(self) -> None:
        """Close the filters."""
        for each in self.filters:
            close_filter(each)


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
    return parse_settings(text_of_settings(path), path)


def text_of_settings(path: Path) -> str:
    """Return the text of a file of settings. Raises SettingsError and OSError."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: {error}") from error


def parse_settings(text: str, path: Path) -> Settings:
    """Return what the text of a file contains, and create the filters.

    Args:
        path: the file, for errors.

    Raises:
        SettingsError: the text is invalid, or a filter cannot be created. Other filters are closed then.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: {error}") from error
    found = Settings()
    problems: list[str] = []
    filters = tables.pop("filter", [])
    for name in _TABLES:
        if name in tables:
            table = tables.pop(name)
            if isinstance(table, dict):
                found.options[name] = dict(_flat(table))
            else:
                problems.append(f"write the settings for {name} below [{name}]")
    for name in ("users", "broker_ports"):
        if isinstance(tables.get(name), dict):
            found.options[name] = tables.pop(name)
    for name, value in tables.items():
        try:
            found.options[name] = _checked(name, value)
        except ValueError as error:
            problems.append(str(error))
    if not isinstance(filters, list) or not all(isinstance(each, dict) for each in filters):
        problems.append("write [[filter]] for each filter, in their order")
        filters = []
    for number, each in enumerate(filters, 1):
        name = each.pop("class", None)
        try:
            if not isinstance(name, str):
                raise SettingsError('needs class = "module:Class"')
            found.filters.append(load_filter(name, each))
        except SettingsError as error:
            problems.append(f"[[filter]] {number}: {error}")
    if problems:
        found.close()
        raise SettingsError("\n".join(f"{path}: {each}" for each in problems))
    return found


def _checked(name: str, value: Any) -> Any:
    """Return the value of a setting. Raises ValueError."""
    expected = _KEYS.get(name)
    if expected is None:
        settings = (
            f"the settings are {', '.join(_KEYS)}, [clients], [brokers], [users] and [[filter]]"
        )
        raise ValueError(f"unknown setting {name!r} ({did_you_mean(name, _KEYS) or settings})")
    if name == "metrics_port" and type(value) is int:
        value = str(value)
    if expected is float and type(value) is int:
        value = float(value)
    is_named = name == "listen" and isinstance(value, dict)
    if is_named and not (value and all(isinstance(each, str) for each in value.values())):
        raise ValueError('write listen = { name = "host:port" }')
    is_list = name == "upstream" and isinstance(value, list)
    if is_list and not (value and all(isinstance(each, str) for each in value)):
        raise ValueError('write upstream = ["host:port", "host:port"]')
    if type(value) is not expected and not is_named and not is_list:
        raise ValueError(f"{name} = {value!r} is not of type {expected.__name__}")
    if name == "workers" and value < 1:
        raise ValueError(f"workers = {value} is less than 1")
    return value


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
    except Exception as error:  # of a module of the user
        raise SettingsError(f"{name} cannot be imported: {_raised(error)}") from error
    if not isinstance(cls, type) or not issubclass(cls, Filter):
        raise SettingsError(f"{name} is not a subclass of krammar.proxy.Filter")
    try:
        return cls(**arguments)
    except (MissingExtra, OSError, TypeError, ValueError) as error:
        raise SettingsError(f"{name}: {error}") from error
    except Exception as error:  # of a class of the user
        raise SettingsError(f"{name} cannot be created: {_raised(error)}") from error


def _raised(error: Exception) -> str:
    """Describe an exception of code of the user, and where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"


def load_settings(
    path: Path | None,
    text: str | None,
    given: Mapping[str, Any],
    filters: Sequence[str],
) -> Settings:
    """Return the settings and filters of a file and of the command, whose options take precedence.

    Args:
        path: the file; None if there is none.
        text: what the file contains.
        given: arguments of ``Proxy`` by name.
        filters: classes of filters as ``module:Class``, after those of the file.

    Raises:
        SettingsError: something is invalid.
    """
    problems: list[str] = []
    found = Settings()
    if path is not None and text is not None:
        try:
            found = parse_settings(text, path)
        except SettingsError as error:
            problems.append(str(error))
    for name in filters:
        try:
            found.filters.append(load_filter(name, {}))
        except SettingsError as error:
            problems.append(str(error))
    found.options = {"listen": "127.0.0.1:9093"} | found.options | dict(given)
    if "upstream" not in found.options and not problems:
        problems.append("give --upstream HOST:PORT, or a FILE with upstream")
    if problems:
        found.close()
        raise SettingsError("\n".join(problems))
    return found
