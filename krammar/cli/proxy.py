"""``krammar proxy``, a proxy with filters written in Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krammar.cli.options import examples, find_packages_here

if TYPE_CHECKING:
    from krammar.proxy import Proxy


@click.command(
    epilog=examples(
        "krammar proxy --upstream broker:9092 --filter my_filters:OnlySmall",
        "krammar proxy proxy.toml",
        "krammar proxy --upstream broker:9092 --listen 0.0.0.0:9093 --refuse-unknown",
    )
)
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option("--upstream", metavar="HOST:PORT", help="A broker of the cluster.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="The address for clients to connect to. Port 0 selects any free port.  [default: "
    "127.0.0.1:9093, which only this machine can reach]",
)
@click.option(
    "--advertise",
    metavar="HOST",
    help="The name or address by which clients reach this machine.  [default: the host of --listen]",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="MODULE:CLASS",
    help="A filter that Python can import from the current folder. Can be repeated; the first one is next to the "
    "client. Filters of FILE precede them.",
)
@click.option(
    "--refuse-unknown",
    is_flag=True,
    help="Close connections that send an API or a version that krammar does not know.",
)
def proxy(
    file: Path | None,
    upstream: str | None,
    listen: str | None,
    advertise: str | None,
    filters: tuple[str, ...],
    refuse_unknown: bool,
) -> None:
    """Pass requests and responses between clients and brokers, through filters.

    Filters are Python classes. Only the messages that a filter names are decoded; all other frames pass as they
    arrive. The proxy opens a port for each broker that a response names, so that clients stay connected to it.

    FILE is a TOML file with the settings and the filters. Options take precedence over it. The proxy stops on
    Ctrl-C or SIGTERM, after the responses to requests in flight. It reads keys, certificates and users again on
    SIGHUP, and when their files change.
    """
    from krammar.proxy import Proxy
    from krammar.proxy.settings import Settings, SettingsError, load_filter, read_settings

    find_packages_here()
    try:
        settings = Settings() if file is None else read_settings(file)
        chain = [*settings.filters, *(load_filter(name, {}) for name in filters)]
        given: dict[str, Any] = {"upstream": upstream, "listen": listen, "advertise": advertise}
        options = {"listen": "127.0.0.1:9093"} | settings.options
        options |= {name: value for name, value in given.items() if value is not None}
        if refuse_unknown:
            options["refuse_unknown"] = True
        if "upstream" not in options:
            raise click.UsageError("give --upstream HOST:PORT, or a FILE with upstream")
        server = Proxy(options.pop("upstream"), chain, **options)
    except (SettingsError, TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    _run(server)


def _run(server: Proxy) -> None:
    """Serve until SIGINT or SIGTERM. The names of listeners and lost connections go to standard error."""
    import asyncio
    import logging
    import signal
    import sys

    from krammar.proxy import ProxyError
    from krammar.util.garbage import exempt_all
    from krammar.util.logs import TextFormatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.INFO)

    async def serve() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await server.serve()
        exempt_all()
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, server.reload)
        for name, address in server.addresses.items():
            click.echo(f"listening on {address}" + (f" ({name})" if name else ""), err=True)
        await stop.wait()
        click.echo("stopping", err=True)
        await server.drain()

    try:
        asyncio.run(serve())
    except ProxyError as error:
        raise click.UsageError(str(error)) from error
