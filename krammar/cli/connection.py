"""Options, settings and error messages of the verbs that connect to a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krammar.cli.options import INPUT_FILE, key_values
from krammar.cli.output import one_line

if TYPE_CHECKING:
    from krammar.client import Client, Settings
    from krammar.util.properties import Property

_DEFAULT_SERVER = "localhost:9092"
_SERVERS = ("bootstrap.servers", "metadata.broker.list")
INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C


@contextmanager
def errors() -> Iterator[None]:
    """Print errors as one line each, and exit with 130 after Ctrl-C, without a traceback."""
    try:
        from krammar.client.errors import ClientError, SettingsError
        from krammar.wire.errors import WireError

        try:
            yield
        except SettingsError as error:
            raise click.UsageError(one_line(error)) from error
        except (ClientError, WireError) as error:
            raise click.ClickException(one_line(error)) from error
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The options of a verb that connects to a cluster: ``-b``, ``-X`` and the properties file."""

    servers: str | None
    given: tuple[str, ...]
    file: Path | None

    def after(self, group: ConnectionOptions | None) -> ConnectionOptions:
        """Merge with options before the verb, as in ``krammar topics -b a:9092 describe``.

        The verb's own options take precedence.
        """
        if group is None:
            return self
        return ConnectionOptions(
            self.servers or group.servers, group.given + self.given, self.file or group.file
        )

    def settings(self, more: Mapping[str, Any] | None = None) -> Settings:
        """Return the client's settings: the file, overridden by -X, overridden by options.

        Args:
            more: further settings; None values are ignored.

        Raises:
            SettingsError: a setting is unknown or invalid.
            UsageError: the same for a setting of the file, with the line.
        """
        from krammar.client.errors import SettingsError
        from krammar.client.settings import Settings

        entries = {} if self.file is None else _read_properties(self.file)
        values: dict[str, Any] = {name: entry.value for name, entry in entries.items()}
        given = key_values("-X", self.given)
        values |= {name.replace("_", "."): value for name, value in given.items()}
        if self.servers is not None:
            for name in _SERVERS:
                values.pop(name, None)
            values["bootstrap.servers"] = self.servers
        elif not any(name in values for name in _SERVERS):
            values["bootstrap.servers"] = _DEFAULT_SERVER
        values |= {name: value for name, value in (more or {}).items() if value is not None}
        try:
            return Settings.of(values)
        except SettingsError as error:
            entry = entries.get(error.name)
            if entry is None or values.get(error.name) is not entry.value:
                raise
            raise click.UsageError(f"{self.file}:{entry.line}: {one_line(error)}") from error

    def client(self, more: Mapping[str, Any] | None = None) -> Client:
        """Return a client with the settings. Arguments and errors as for ``settings``."""
        from krammar.client import Client

        return Client(self.settings(more))


def _read_properties(path: Path) -> dict[str, Property]:
    from krammar.util.properties import decode, parse_properties
    from krammar.util.settings import SettingError

    try:
        return {entry.name: entry for entry in parse_properties(decode(path.read_bytes()))}
    except (SettingError, OSError) as error:
        raise click.UsageError(f"{path}: {one_line(error)}") from error


def connects(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options -b, -X and ``names`` (a properties file). The function gets ``connection``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(
            *arguments: Any,
            servers: str | None,
            given: tuple[str, ...],
            file: Path | None,
            **more: Any,
        ) -> Any:
            group = click.get_current_context().find_object(ConnectionOptions)
            connection = ConnectionOptions(servers, given, file).after(group)
            return function(*arguments, connection=connection, **more)

        for option in (
            click.option(
                *names,
                "file",
                type=INPUT_FILE,
                help="A properties file of client settings.",
            ),
            click.option(
                "-X",
                "--set",
                "given",
                multiple=True,
                metavar="KEY=VALUE",
                help="A client setting with its name in Kafka. Takes precedence over the file. Can be repeated.",
            ),
            click.option(
                "-b",
                "--bootstrap-server",
                "servers",
                metavar="HOST:PORT",
                help=f"Address of a broker; separate several with commas.  [default: {_DEFAULT_SERVER}]",
            ),
        ):
            option(command)
        return command

    return decorate


connected = connects("-F", "--config")


def prints_json(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option --json, which is also accepted before the verb: ``krammar topics --json describe``."""

    @wraps(function)
    def command(*arguments: Any, json_: bool, **more: Any) -> Any:
        group = click.get_current_context().parent
        if group is not None:
            json_ = json_ or bool(group.params.get("json_"))
        return function(*arguments, json_=json_, **more)

    return click.option("--json", "json_", is_flag=True, help="Print JSON.")(command)
