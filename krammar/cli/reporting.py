"""What the verbs of definitions share: sources, formats of diagnostics, and colours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from krammar.cli.output import echo, quantity

if TYPE_CHECKING:
    from krammar.util.diagnostics import Diagnostics


def format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --format and --color."""
    return click.option(
        "--format",
        "format_",
        type=click.Choice(["text", "json", "github", "sarif"]),
        default="text",
        show_default=True,
        help="The format of diagnostics.",
    )(color_option(command))


def color_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --color, which the group and its verbs accept."""
    return click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        expose_value=False,
        callback=_set_color,
        help="When to colour the output. auto, the default: on terminals, unless NO_COLOR is set.",
    )(command)


def _set_color(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value in ("always", "never"):
        context.color = value == "always"
    elif value == "auto" or context.parent is None:
        # None: click removes colours unless the output is a terminal. See no-color.org.
        context.color = False if os.environ.get("NO_COLOR") else None


def all_files_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--all-files",
        is_flag=True,
        help="Read every file in a folder, not only *.krm files. Hidden files and *.md files are skipped.",
    )(command)


_STYLES: dict[str, dict[str, Any]] = {
    "place": {"bold": True},
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow", "bold": True},
    "gutter": {"fg": "blue"},
    "hint": {"fg": "cyan"},
}


def report(
    diagnostics: Diagnostics, format_: str, *, strict: bool = False, err: bool = False
) -> None:
    """Print diagnostics. Formats for programs are complete documents, also without diagnostics.

    Args:
        err: print to standard error, because standard output has another content.
    """
    from krammar.compiler.front.codes import CODES
    from krammar.util.diagnostics import FORMATS, format_sarif, format_text

    found = diagnostics.sorted()
    if format_ == "text":
        text = format_text(
            found, strict=strict, style=lambda role, t: click.style(t, **_STYLES[role])
        )
    elif format_ == "sarif":
        from krammar.faults.errors import CODES as CODES_OF_FAULTS

        text = format_sarif(found, strict=strict, meanings={**CODES, **CODES_OF_FAULTS})
    else:
        text = FORMATS[format_](found, strict=strict)
    if text:
        # Diagnostics escape what they quote. JSON and GitHub's format have no control characters.
        echo(text, err=err, styled=True)
    if found and format_ == "text":
        style = 0 if strict else sum(diagnostic.is_style for diagnostic in found)
        counted = [quantity(len(found) - style, "error")] if len(found) > style else []
        counted += [quantity(style, "warning")] if style else []
        echo(f"\n{' and '.join(counted)}", err=True)


def say(text: str, format_: str, *, styled: bool = False) -> None:
    """Print a line about what was done: to standard error if a program reads the diagnostics.

    ``styled`` is as for ``echo``.
    """
    echo(text, err=format_ != "text", styled=styled)


@contextmanager
def misuse() -> Iterator[None]:
    """Print errors that a user can correct as one line, with exit code 2."""
    from krammar.compiler.front.source import SourceError

    try:
        yield
    except (SourceError, OSError) as error:
        raise click.UsageError(str(error)) from error
