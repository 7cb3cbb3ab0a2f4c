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

# The module of each verb. A colon precedes the name of the function if it differs from the verb.
_VERBS = {
    "broker": "broker",
    "broker-user": "users:users",
    "check": "definitions",
    "consume": "consume",
    "diff": "difference",
    "docs": "definitions",
    "doctor": "doctor",
    "export": "conversion",
    "fmt": "definitions",
    "gen": "definitions",
    "import": "conversion:import_",
    "inspect": "inspect",
    "lsp": "lsp",
    "produce": "produce",
    "proxy": "proxy",
    "random-uuid": "broker:random_id",
    "show": "inspect",
    "tap": "tap",
    "topics": "topics",
    "wafka-produce": "wafka:wafka_produce",
}


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
    help="With --version: also print whether the generated packages are compiled.",
)
def main() -> None:
    """Compile definitions of Kafka-style wire protocols into typed Python.

    Other commands run a Kafka-compatible broker, produce and consume records, and show the traffic
    between clients and brokers. `krammar COMMAND --help` describes each command.
    """
