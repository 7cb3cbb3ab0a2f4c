"""The command line: ``krammar``, ``python -m krammar`` and ``python -m krammar.cli``.

Each group of verbs is a module. It is imported when one of its verbs runs or shows its help. Verbs import
everything but click inside their functions, so that ``krammar --help`` is quick.

Exit codes: 0 success, 1 errors, diagnostics or drift, 2 misuse or a missing extra, 130 ended by Ctrl-C.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib import import_module
from typing import Any

import click

from krammar import __version__
from krammar.cli.options import examples
from krammar.cli.output import echo
from krammar.cli.reporting import color_option
from krammar.util.extras import MissingExtra
from krammar.util.printable import escape

# The module of each verb, in the groups of the help. A colon precedes the name of the function if it differs from the verb.
_GROUPS = {
    "Define": {
        "gen": "definitions",
        "check": "definitions",
        "fmt": "definitions",
        "diff": "difference",
        "docs": "definitions",
        "import": "conversion:import_",
        "export": "conversion",
        "show": "inspect",
        "lsp": "lsp",
    },
    "Test and run": {
        "broker": "broker",
        "broker-user": "users:users",
        "random-uuid": "broker:random_id",
        "doctor": "doctor",
    },
    "See and change": {
        "tap": "tap",
        "proxy": "proxy",
        "inspect": "inspect",
    },
    "Data": {
        "topics": "topics",
        "groups": "groups",
        "produce": "produce",
        "consume": "consume",
        "wafka-produce": "wafka:wafka_produce",
    },
}
_VERBS = {name: place for verbs in _GROUPS.values() for name, place in verbs.items()}


# Python's error for numbers that it does not convert, because that could take long.
_TOO_MANY_DIGITS = re.compile("integer string conversion")


class _Verbs(click.Group):
    """Imports the module of a verb when the verb is used.

    The exit code is 130 after Ctrl-C, as shells expect, and 2 if an extra is missing.
    """

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _VERBS:
            return None
        module, _, attribute = _VERBS[name].partition(":")
        command: click.Command = getattr(import_module(f"krammar.cli.{module}"), attribute or name)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _VERBS and not name.startswith("-") and not context.resilient_parsing:
            from krammar.util.diagnostics import most_similar

            # As click's message for options.
            near = most_similar(name, _VERBS)
            hint = f" Did you mean {near!r}?" if near else ""
            context.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, _VERBS))
        for title, verbs in _GROUPS.items():
            with formatter.section(title):
                commands = [(name, self.get_command(context, name)) for name in verbs]
                formatter.write_dl(
                    [(name, verb.get_short_help_str(limit)) for name, verb in commands if verb],
                    col_max=max(map(len, _VERBS)) + 2,
                )

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (KeyboardInterrupt, click.Abort) as error:
            # A prompt raises Abort for Ctrl-C, and for the end of its input.
            if isinstance(error, click.Abort) and not isinstance(
                error.__context__, KeyboardInterrupt
            ):
                raise
            echo("interrupted", err=True)
            raise click.exceptions.Exit(130) from None
        except MissingExtra as error:
            raise click.UsageError(str(error)) from error
        except click.ClickException as error:
            # It quotes names of files, brokers and clients.
            vars(error)["message"] = escape(error.message, keep="\n\t")
            raise
        except ValueError as error:
            if not _TOO_MANY_DIGITS.search(str(error)):
                raise
            raise click.UsageError("a number has thousands of digits") from error
        except BrokenPipeError:
            raise  # click exits without a message, for example in a pipe to head
        except OSError as error:
            try:
                sys.stdout.flush()
            except OSError:  # Python would flush again at its end, and exit with 120
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            place = "" if error.filename is None else f"{error.filename}: "
            reason = error.strerror or str(error) or type(error).__name__
            raise click.ClickException(f"{place}{reason}") from error


def _keep_verbose(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta["krammar.verbose"] = value


def _print_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if not value or context.resilient_parsing:
        return
    echo(f"krammar, version {__version__}")
    if context.meta["krammar.verbose"]:
        from krammar.wire.engine_loading import status

        echo(f"Python {platform.python_version()}, {platform.platform()}")
        echo(status())
    context.exit()


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "krammar gen definitions/ -o generated/",
        "krammar check definitions/ --strict",
        "krammar fmt definitions/",
        "krammar tap --listen 127.0.0.1:9093 --upstream 127.0.0.1:9092",
        "krammar broker --data-dir data",
        "krammar consume orders -o beginning -e",
    ),
)
@color_option
@click.option(
    "-V",
    "--version",
    is_flag=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.option(
    "--verbose",
    is_flag=True,
    is_eager=True,  # evaluated before --version, in any order
    expose_value=False,
    callback=_keep_verbose,
    help="With --version: also print the platform, and whether the engine runs.",
)
def main() -> None:
    """Test Kafka programs, see and change Kafka traffic, and define wire protocols like Kafka's.

    `krammar COMMAND --help` describes each command.
    """
