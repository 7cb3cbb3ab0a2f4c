"""``--faults`` of ``krammar tap`` and ``krammar broker``, and ``krammar check`` of such a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from krammar.cli.output import echo

if TYPE_CHECKING:
    from krammar.faults import Faults
    from krammar.faults.file import Expected
    from krammar.util.diagnostics import Diagnostics


def read_faults(faults: Faults, path: Path, option: str = "--faults") -> list[Expected]:
    """Add the rules of a file; return what it expects of them. Ends the program after diagnostics."""
    from krammar.faults.file import FaultsFileError, read_rules

    try:
        return read_rules(faults, path)
    except FaultsFileError as error:
        echo(str(error), err=True)
        sys.exit(1)
    except OSError as error:
        raise click.UsageError(f"{option}: {error}") from error


def check_faults(path: Path, package: str, diagnostics: Diagnostics) -> int:
    """Add the mistakes of a file to ``diagnostics``, as krammar's broker finds them; return the number of its rules.

    Raises:
        OSError: the file cannot be read.
    """
    from krammar.cli.options import protocol_package
    from krammar.faults import Faults
    from krammar.faults.engine import OF_THE_BROKER
    from krammar.faults.file import FaultsFileError, read_rules

    faults = Faults(protocol_package(package), sees=OF_THE_BROKER)
    try:
        read_rules(faults, path)
    except FaultsFileError as error:
        diagnostics.merge(error.diagnostics)
    return len(faults.rules)


def report(faults: Faults, expected: list[Expected]) -> bool:
    """Print what the rules did. Returns whether each fired as often as expected."""
    good = True
    for rule in faults.rules:
        echo(f'fault "{rule.name}": matched {rule.matched}, fired {rule.fired}', err=True)
    for each in expected:
        if each.rule.fired < each.times:
            good = False
            echo(
                f'error: fault "{each.rule.name}" fired {each.rule.fired} of the {each.times} times that the '
                "file expects",
                err=True,
            )
    return good
