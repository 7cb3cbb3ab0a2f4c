"""A broker's configuration: Kafka's server.properties, or the defaults, and what is changed at run time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from krammar.broker.config.broker_configs import BROKER_CONFIGS
from krammar.broker.config.definitions import ConfigError, UpdateMode, to_text
from krammar.broker.config.listeners import Listener, read_listeners
from krammar.broker.config.settings import Settings
from krammar.broker.config.topics import TopicSettings, check_times
from krammar.broker.storage.log_config import LogConfig
from krammar.properties import PropertiesError, decode, parse_properties

LISTENER_KEY = re.compile(r"listener\.name\.[^.]+\.(.+)")
# Of these the attribute is not just the key's value.
_MADE = frozenset({"listeners", "log_dirs", "metadata_log_dir", "node_id"})


def attribute(name: str) -> str:
    """The attribute of a key."""
    return name.removeprefix("krammar.").replace(".", "_")


_BY_ATTRIBUTE = {attribute(name): name for name in BROKER_CONFIGS}
_ATTRIBUTES = {_BY_ATTRIBUTE[own]: own for own in Settings.__annotations__ if own not in _MADE}


class BrokerConfig(Settings):
    """The settings of one broker.

    ``static``           the texts that were given, by Kafka's names
    ``dynamic_default``  those set for all brokers while they ran, ``dynamic`` those for this one
    ``warnings``         what is odd about them: unknown keys, keys that stand twice
    """

    def __init__(self, static: Mapping[str, str], origins: Mapping[str, str] | None = None) -> None:
        """``origins`` says where each text stands. Raises ConfigError."""
        self.static = dict(static)
        self.dynamic: dict[str, str] = {}
        self.dynamic_default: dict[str, str] = {}
        self.warnings: list[str] = []
        self._origins = dict(origins or {})
        self._warn_of_unknown()
        self._topics = TopicSettings(self.static)
        try:
            self._read()
            self._topics.check({})
        except ConfigError as error:
            if error.origin or error.name not in self._origins:
                raise
            raise error.at(self._origins[error.name]) from None

    @classmethod
    def from_properties(
        cls, source: str | PathLike[str], overrides: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """The configuration of a server.properties: a str is its text, a Path its file.

        ``overrides`` go before the file's entries. Raises ConfigError, also for a file that cannot be
        read.
        """
        if isinstance(source, str):
            text, file = source, "the properties"
        else:
            text, file = _read_file(Path(source)), Path(source).name
        static: dict[str, str] = {}
        origins: dict[str, str] = {}
        repeated: list[str] = []
        try:
            entries = parse_properties(text)
        except PropertiesError as error:
            origin = f"line {error.line} of {file}"
            raise ConfigError(error.name, None, error.reason, origin) from None
        for name, value, line in entries:
            if name in static:
                repeated.append(f"{name} is set twice: line {line} of {file} counts")
            static[name] = value
            origins[name] = f"line {line} of {file}"
        for name, value in (overrides or {}).items():
            static[name] = value
            origins.pop(name, None)
        config = cls(static, origins)
        config.warnings[:0] = repeated
        return config

    @classmethod
    def defaults(cls, **overrides: Any) -> BrokerConfig:
        """Kafka's defaults, but for some settings, named with underscores or as Kafka does.

        A value may be text, or what its attribute holds: ``defaults(log_dirs=[path], num_partitions=3)``.
        Raises ConfigError, also for a name that no setting has.
        """
        static: dict[str, str] = {}
        for key, value in overrides.items():
            if value is None:
                continue
            name = key if _known(key) else _BY_ATTRIBUTE.get(key, "")
            if not name:
                near = _nearest(key, _BY_ATTRIBUTE)
                raise ConfigError(key, None, f"there is no such setting{near}")
            static[name] = to_text(value) or ""
        return cls(static)

    # Reading.

    def get(self, name: str) -> str | None:
        """The text that a key was given, ``listener.name.*`` too; None where it was not."""
        return self.static.get(name)

    def topic_config(self, overrides: Mapping[str, str], *, check: bool = True) -> LogConfig:
        """What a topic's own settings and the broker's mean for its logs.

        Raises ConfigError. Without ``check`` it never does: of a folder that another version has written,
        unknown keys are skipped, values out of their range are taken, and misspelt ones are not.
        """
        if check:
            self._topics.check(overrides)
        return self._topics.log_config(overrides)

    def check_topic_config(self, overrides: Mapping[str, str]) -> None:
        """Raises ConfigError where a topic cannot have such settings; ``api`` is Kafka's text for it."""
        self._topics.check(overrides)

    def topic_value(self, name: str, overrides: Mapping[str, str]) -> Any:
        """The value of one of a topic's keys that is in force. Never raises for overrides that are wrong."""
        return self._topics.value(name, overrides)

    def effective(self, name: str) -> str | None:
        """The text that is in force for a broker's key: dynamic, static or default."""
        for texts in (self.dynamic, self.dynamic_default, self.static):
            if name in texts:
                return texts[name]
        definition = BROKER_CONFIGS.get(name)
        return None if definition is None else definition.default

    # Changes at run time.

    def check_dynamic(self, changes: Mapping[str, str], own: bool) -> None:
        """Raises ConfigError where some of the broker's settings cannot be made so while it runs; ``own``
        for this broker alone, else for all. ``api`` is Kafka's text for it."""
        fixed = sorted(name for name in changes if _is_fixed(name))
        if fixed:
            api = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
            raise ConfigError(fixed[0], None, "cannot be changed while the broker runs", api=api)
        for name, text in changes.items():
            if name in BROKER_CONFIGS:
                BROKER_CONFIGS[name].parse(text)
        if not own:
            narrow = sorted(name for name in changes if _mode(name) is UpdateMode.PER_BROKER)
            if narrow:
                api = (
                    "Cannot update these configs at default cluster level, broker id must be "
                    f"specified: [{', '.join(narrow)}]"
                )
                raise ConfigError(narrow[0], None, "can only be set for one broker", api=api)
        check_times(changes)
        default = self.dynamic_default if own else self.dynamic_default | dict(changes)
        mine = self.dynamic | dict(changes) if own else self.dynamic
        TopicSettings(self.static, default, mine).check({})

    def set_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Take the settings that were made while brokers ran: for all of them, and for this one.

        They are those of the cluster's metadata. What cannot be read, or cannot be changed at run time,
        does not count.
        """
        self.dynamic_default = dict(default)
        self.dynamic = dict(own)
        self._topics = TopicSettings(self.static, self.dynamic_default, self.dynamic)
        for name, attribute_name in _ATTRIBUTES.items():
            if not BROKER_CONFIGS[name].read_only:
                setattr(self, attribute_name, self._in_force(name))

    def _in_force(self, name: str) -> Any:
        definition = BROKER_CONFIGS[name]
        for texts in (self.dynamic, self.dynamic_default):
            if name in texts:
                try:
                    return definition.parse(texts[name])
                except ConfigError:
                    continue
        text = self.static.get(name, definition.default)
        return None if text is None else definition.parse(text)

    # Reading what was given.

    def _warn_of_unknown(self) -> None:
        for name in self.static:
            if not _known(name):
                where = f" ({self._origins[name]})" if name in self._origins else ""
                near = _nearest(name, BROKER_CONFIGS)
                self.warnings.append(f"{name}: there is no such setting{near}{where}")

    def _read(self) -> None:
        values: dict[str, Any] = {}
        for name, definition in BROKER_CONFIGS.items():
            text = self.static.get(name, definition.default)
            values[name] = None if text is None else definition.parse(text)
        for name, own in _ATTRIBUTES.items():
            setattr(self, own, values[name])
        for name, text in self.static.items():
            match = LISTENER_KEY.fullmatch(name)
            if match and (found := BROKER_CONFIGS.get(match[1])) is not None:
                try:
                    found.parse(text)
                except ConfigError as error:
                    raise ConfigError(name, error.value, error.reason) from None
        check_times(self.static)
        self._read_node(values)
        folders = values["log.dirs"] or values["log.dir"]
        self.log_dirs = [Path(folder) for folder in folders]
        self.metadata_log_dir = Path(values["metadata.log.dir"] or folders[0])
        self.listeners: list[Listener] = read_listeners(values, self.static, self.warnings)

    def _read_node(self, values: Mapping[str, Any]) -> None:
        older = values["broker.id"] if "broker.id" in self.static else None
        if "node.id" in self.static:
            self.node_id = values["node.id"]
        elif older is not None:
            self.node_id = BROKER_CONFIGS["node.id"].parse(str(older))
        else:
            self.node_id = 1
        if older is not None and older != self.node_id:
            raise ConfigError("broker.id", str(older), f"is not node.id, {self.node_id}")
        roles = values["process.roles"]
        if roles is not None and "broker" not in roles:
            raise ConfigError("process.roles", ",".join(roles), "has to name broker")


def _read_file(path: Path) -> str:
    try:
        return decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(str(path), None, f"cannot be read: {error.strerror}") from None


def _mode(name: str) -> UpdateMode | None:
    """None for a key that nobody knows, which Kafka takes too."""
    definition = BROKER_CONFIGS.get(name)
    return None if definition is None else definition.mode


def _is_fixed(name: str) -> bool:
    return _mode(name) is UpdateMode.READ_ONLY or LISTENER_KEY.fullmatch(name) is not None


def _known(name: str) -> bool:
    return name in BROKER_CONFIGS or LISTENER_KEY.fullmatch(name) is not None


def _nearest(name: str, names: Iterable[str]) -> str:
    # Only a misspelt key needs it; a broker starts sooner without.
    import difflib

    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]}?" if close else ""
