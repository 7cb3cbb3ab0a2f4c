"""``krammar lsp`` runs the language server."""

from __future__ import annotations

import click

from krammar.cli.options import examples, standard_input
from krammar.cli.output import echo


@click.command(
    epilog=examples(
        "krammar lsp                          # an editor starts it and talks over the pipes",
        "krammar lsp --log-file krammar-lsp.log",
    )
)
@click.option("--stdio", is_flag=True, help="Use standard input and output. This is the default.")
@click.option(
    "--log-file", type=click.Path(dir_okay=False), help="Write a log of errors to a file."
)
def lsp(stdio: bool, log_file: str | None) -> None:
    """Run the language server for definition files.

    An editor starts it. It speaks the Language Server Protocol over standard input and
    output.
    """
    import logging

    from krammar.lsp.documents import is_defect
    from krammar.lsp.server import create_server
    from krammar.util.logs import TextFormatter

    # Editors show what a server writes to standard error, so only errors go there.
    handler = logging.FileHandler(log_file) if log_file else logging.StreamHandler()
    handler.addFilter(is_defect)
    handler.setFormatter(TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.ERROR)
    if standard_input().isatty():
        echo("waiting for an editor on standard input; Ctrl-C stops", err=True)
    create_server().start_io()
