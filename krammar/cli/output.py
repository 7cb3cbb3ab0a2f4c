"""Helpers for the output of verbs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from krammar.util.printable import escape, printable_json


def echo(text: object = "", *, err: bool = False, styled: bool = False, nl: bool = True) -> None:
    """Print lines. Text of files, clients and brokers cannot control the terminal: its control characters are escaped.

    Each verb prints with this function; ruff refuses ``click.echo``.

    Args:
        err: print to standard error.
        styled: the text contains colours, and everything else in it is escaped.
        nl: end with a newline.
    """
    click.echo(text if styled else escape(str(text), keep="\n\t"), err=err, nl=nl)


def quantity(count: int, noun: str) -> str:
    """Format a count with its noun: ``1 file``, ``2 files``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def one_line(error: BaseException) -> str:
    """Return the message of an error on one line, with control characters escaped."""
    return escape(" ".join(str(error).split()))


def print_json(value: Any) -> None:
    echo(printable_json(value, indent=2))


def print_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print aligned columns. Columns of numbers are aligned to the right."""
    texts = [list(head), *([escape(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    right = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(head))]
    for row in texts:
        cells = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        ]
        echo("  ".join(cells).rstrip())
