"""``krammar compile`` builds extension modules for a generated package."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from krammar.cli.options import examples
from krammar.cli.output import echo, quantity


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
    help="The folder that `krammar gen` read.  [default: found by its name in the folders above PACKAGE]",
)
@click.option(
    "--all-files",
    is_flag=True,
    help="Required if the package was generated with `krammar gen --all-files`.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1),
    default=lambda: os.cpu_count() or 1,
    help="The number of compilers that run at once.  [default: the number of processors]",
)
def compile_(
    package: Path, only: str, definitions: Path | None, all_files: bool, jobs: int
) -> None:
    """Compile a generated package in place, for this Python.

    PACKAGE is a folder that `krammar gen` wrote, or the folder of an installed package such as
    kafka_wire. krammar writes extension modules to its subfolder _native, and the package uses the
    modules that are current. KRAMMAR_PURE_PYTHON=1 turns them off. Current modules are not compiled
    again.

    Compiling needs mypyc (pip install 'krammar[native]') and a C compiler. It takes about 15 seconds
    per message.
    """
    from krammar.util.extras import MissingExtra, require

    try:
        from krammar.compiler.backends.native.package import NativePackage
    except MissingExtra:
        # The extra `native` includes the modules of `compiler`.
        require("krammar compile", "native")
        raise
    from krammar.compiler.front.source import SourceError

    began = time.monotonic()
    try:
        opened = NativePackage.open(package, definitions, all_files=all_files)
        modules = opened.select(name.strip() for name in only.split(",") if name.strip())
        number = 0

        def progress(module: str) -> None:
            nonlocal number
            number += 1
            echo(f"[{number}/{len(modules) + 1}] {module}", err=True)

        outcome = opened.compile(modules, jobs=jobs, progress=progress)
    except (SourceError, OSError) as error:
        raise click.UsageError(str(error)) from error
    for module, said in outcome.failed.items():
        echo(f"{module}: not compiled\n{said}", err=True)
    for module, reason in outcome.skipped.items():
        echo(f"{module}: not compiled, pure Python is used: {reason}", err=True)
    echo(
        f"{package}: {quantity(len(outcome.built), 'module')} compiled, {len(outcome.current)} current, "
        f"{len(outcome.skipped)} pure, {len(outcome.failed)} failed, "
        f"in {time.monotonic() - began:.0f} s"
    )
    if outcome.failed:
        sys.exit(1)
