"""``krammar compile``: extension modules for a generated package."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from krammar import __version__
from krammar.cli_text import examples, quantity


@click.command(
    "compile",
    epilog=examples(
        "krammar compile generated/kafka_wire",
        "krammar compile generated/kafka_wire --only Metadata,Fetch,Produce",
        "krammar compile src/myapp/wire --definitions protocol/",
    ),
)
@click.argument("package", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--only",
    metavar="NAMES",
    default="",
    help="Compile only these messages, structs or definition files, separated by commas.",
)
@click.option(
    "--definitions",
    type=click.Path(exists=True, path_type=Path),
    help="The folder that `krammar gen` read, where it is not found by its name above PACKAGE.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1),
    default=lambda: os.cpu_count() or 1,
    help="How many compilers run at once.  [default: as many as there are processors]",
)
def compile_(package: Path, only: str, definitions: Path | None, jobs: int) -> None:
    """Compile a generated package in place, for this Python.

    PACKAGE is a folder that `krammar gen` wrote, or an installed one such as kafka_wire's. The
    extension modules go to its folder _native; the package then uses those that are current, and
    KRAMMAR_PURE_PYTHON=1 turns them off. What is current already is not compiled again. It takes
    mypyc (pip install 'krammar[native]'), a C compiler, and about 15 seconds a message.
    """
    from krammar.compiler.native_package import Package
    from krammar.compiler.source import SourceError

    began = time.monotonic()
    try:
        opened = Package.open(package, definitions)
        modules = opened.select(name.strip() for name in only.split(",") if name.strip())
        number = 0

        def progress(module: str) -> None:
            nonlocal number
            number += 1
            click.echo(f"[{number}/{len(modules) + 1}] {module}", err=True)

        outcome = opened.compile(modules, jobs=jobs, progress=progress)
    except (SourceError, OSError) as error:
        raise click.UsageError(str(error)) from error
    for module, said in outcome.failed.items():
        click.echo(f"{module}: not compiled\n{said}", err=True)
    for module, reason in outcome.skipped.items():
        click.echo(f"{module} stays pure: {reason}", err=True)
    click.echo(
        f"{package}: {quantity(len(outcome.built), 'module')} compiled, {len(outcome.current)} current, "
        f"{len(outcome.skipped)} pure, {len(outcome.failed)} failed, "
        f"in {time.monotonic() - began:.0f} s"
    )
    if outcome.failed:
        sys.exit(1)


def _keep_verbose(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta["krammar.verbose"] = value


def _print_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if not value or context.resilient_parsing:
        return
    click.echo(f"krammar, version {__version__}")
    if context.meta["krammar.verbose"]:
        from krammar.wire.native import status

        click.echo(f"Python {platform.python_version()}, {platform.platform()}")
        for package in ("kafka_wire", "wafka_wire"):
            click.echo(status(package))
    context.exit()


def version_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--version``, and with ``--verbose`` which build of the generated packages runs."""
    verbose = click.option(
        "--verbose",
        is_flag=True,
        is_eager=True,  # known before --version is, whatever the order
        expose_value=False,
        callback=_keep_verbose,
        help="With --version: also say which builds of the generated packages run.",
    )
    version = click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        callback=_print_version,
        help="Show the version and exit.",
    )
    return version(verbose(command))
