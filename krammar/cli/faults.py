"""``--faults`` of ``krammar tap`` and ``krammar broker``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from krammar.faults import Faults
    from krammar.faults.file import Expected


def read_faults(faults: Faults, path: Path) -> list[Expected]:
    """Add the rules of a file; return what it expects of them. Ends the program after diagnostics."""
    from krammar.faults.file import FaultsFileError, read_rules

    try:
        return read_rules(faults, path)
    except FaultsFileError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    except OSError as error:
        raise click.UsageError(f"--faults: {error}") from error


def report(faults: Faults, expected: list[Expected]) -> bool:
    """Print what the rules did. Returns whether each fired as often as expected."""
    good = True
    for rule in faults.rules:
        click.echo(f'fault "{rule.name}": matched {rule.matched}, fired {rule.fired}', err=True)
    for each in expected:
        if each.rule.fired < each.times:
            good = False
            click.echo(
                f'error: fault "{each.rule.name}" fired {each.rule.fired} of the {each.times} times that the '
                "file expects",
                err=True,
            )
    return good
