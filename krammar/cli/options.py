"""Helpers for the options and arguments of verbs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import click

# The types of arguments and options that are paths.
INPUT_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)
SOURCE = click.Path(exists=True, path_type=Path)


class _Definitions(click.Path):
    """A path of definitions, or else the name of a package whose definitions come with krammar, such as ``kafka_wire``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and value.isidentifier() and not os.path.exists(value):
            from krammar.compiler.front.source import SHIPPED

            if (SHIPPED / value).is_dir():
                return SHIPPED / value
        return super().convert(value, param, ctx)


DEFINITIONS = _Definitions(exists=True, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


def examples(*lines: str) -> str:
    """Format example commands for the end of a verb's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def find_packages_here() -> None:
    """Let packages in the current folder be imported, as ``python -m`` does."""
    sys.path.append(os.getcwd())


def package_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --package, whose value ``protocol_package`` imports."""
    return click.option(
        "--package",
        default="kafka_wire",
        show_default=True,
        metavar="PACKAGE",
        help="The protocol: a generated package that Python can import from the current folder.",
    )(command)


def protocol_package(name: str) -> ModuleType:
    """Import the package that --package names. Raises UsageError if it is no generated package."""
    from krammar.wire import classes
    from krammar.wire.package import package_of

    find_packages_here()
    try:
        protocol = classes.import_package(name)
        package_of(protocol)
    except (classes.NotFound, TypeError) as error:
        raise click.UsageError(f"--package: {error}") from error
    return protocol


def standard_input() -> BinaryIO:
    """Return standard input as bytes. Raises UsageError if it is closed."""
    if sys.stdin is None:
        raise click.UsageError("standard input is closed")
    return sys.stdin.buffer


def key_values(option: str, given: Iterable[str]) -> dict[str, str]:
    """Parse ``KEY=VALUE`` pairs. Spaces around keys are removed, and the last duplicate wins.

    Args:
        option: the option's name, for errors.

    Raises:
        UsageError: a pair has no ``=`` or no key.
    """
    pairs = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} {pair}: needs KEY=VALUE")
        pairs[name.strip()] = value
    return pairs


_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def unescape(option: str, text: str) -> bytes:
    r"""Convert a text with the escapes \n, \t, \r, \0, \\ and \xNN to bytes.

    Args:
        option: the option's name, for errors.

    Raises:
        UsageError: the text contains another escape.
    """
    out = bytearray()
    position = 0
    while position < len(text):
        letter = text[position]
        position += 1
        if letter != "\\":
            out += os.fsencode(letter)
            continue
        escape = text[position : position + 1]
        position += 1
        if escape == "x":
            digits = text[position : position + 2]
            position += 2
            try:
                out += bytes.fromhex(digits if len(digits) == 2 else "?")
            except ValueError:
                raise click.UsageError(
                    f"{option}: \\x needs two hexadecimal digits, not {digits!r}"
                ) from None
        elif escape in _ESCAPES:
            out += _ESCAPES[escape]
        else:
            raise click.UsageError(
                f"{option}: unknown escape \\{escape} (known: \\n, \\t, \\r, \\0, \\\\, \\xNN)"
            )
    return bytes(out)


def parse_delimiter(option: str, text: str) -> bytes:
    """Convert a delimiter with escapes to bytes. Raises UsageError if it is empty or invalid."""
    delimiter = unescape(option, text)
    if not delimiter:
        raise click.UsageError(f"{option}: the delimiter must not be empty")
    return delimiter
