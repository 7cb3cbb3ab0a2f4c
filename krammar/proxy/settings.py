"""The settings of ``krammar proxy``: a TOML file, and filters by name."""

from __future__ import annotations

import tomllib
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from krammar.proxy.held import close_filter
from krammar.proxy.interface import Filter
from krammar.util.extras import MissingExtra
from krammar.util.load import LoadError, load
from krammar.util.settings import Parser, Setting, SettingError, SettingTable


def _fits(needs: str, fits: Callable[[Any], bool]) -> Parser:
    """Return a parser that accepts values as they are: TOML has types, so text is not converted."""

    def parse(value: Any) -> Any:
        if not fits(value):
            raise ValueError(f"needs {needs}")
        return value

    return parse


def _are_texts(values: Collection[Any]) -> bool:
    return bool(values) and all(isinstance(each, str) for each in values)


def _is_upstream(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and _are_texts(value))


def _is_listen(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and _are_texts(value.values()))


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


_text = _fits("text", lambda value: isinstance(value, str))
_boolean = _fits("true or false", lambda value: isinstance(value, bool))
_text_or_table = _fits("text or a table", lambda value: isinstance(value, str | dict))


def _seconds(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError("needs a number of seconds")
    return float(value)


def _kafka_settings(value: Any) -> dict[str, Any]:
    """Return a table of Kafka's settings. In TOML, ``ssl.ca.location = "ca.pem"`` means tables in tables."""
    if not isinstance(value, dict):
        raise ValueError("needs a table of Kafka's settings")
    return dict(_flat(value))


# The settings of a file: the arguments of ``Proxy``, what starts it, and the filters.
_TABLE = SettingTable(
    (
        Setting("upstream", _fits('"host:port" or ["host:port", "host:port"]', _is_upstream)),
        Setting("listen", _fits('"host:port" or { name = "host:port" }', _is_listen)),
        Setting("advertise", _text),
        Setting("broker_ports", _text_or_table),
        Setting("broker_port_timeout", _seconds),
        Setting("refuse_unknown", _boolean),
        Setting("max_frame", _fits("a whole number", lambda value: type(value) is int)),
        Setting("drain_timeout", _seconds),
        Setting("clients", _kafka_settings, secret=True),
        Setting("brokers", _kafka_settings, secret=True),
        Setting("users", _text_or_table, secret=True),
        Setting(
            "workers",
            _fits("a whole number from 1 on", lambda value: type(value) is int and value >= 1),
        ),
        Setting("metrics_port", lambda value: _text(str(value) if type(value) is int else value)),
        Setting("reload", _boolean),
        Setting("filter", _fits("[[filter]] for each filter, in their order", _are_tables)),
    )
)


class SettingsError(Exception):
    """The settings or the filters of a file cannot be used: one line for each error in it.

    It is no SettingError, which is about one setting.
    """


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
    for name, value in tables.items():
        try:
            found.options[name] = _TABLE.read(_TABLE.find(name), value)
        except SettingError as error:
            problems.append(str(error))
    for number, each in enumerate(found.options.pop("filter", ()), 1):
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
