"""``krammar proxy``, a proxy with filters written in Python."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krammar.cli.options import INPUT_FILE, examples, find_packages_here

if TYPE_CHECKING:
    from krammar.proxy import Proxy
    from krammar.proxy.metrics import Total
    from krammar.proxy.supervisor import Supervisor
    from krammar.proxy.worker import Worker
    from krammar.util.prometheus import Registry


@click.command(
    epilog=examples(
        "krammar proxy --upstream broker:9092 --filter my_filters:OnlySmall",
        "krammar proxy proxy.toml",
        "krammar proxy --upstream broker:9092 --listen 0.0.0.0:9093 --refuse-unknown",
    )
)
@click.argument("file", type=INPUT_FILE, required=False)
@click.option(
    "--upstream",
    metavar="HOST:PORT[,…]",
    help="Brokers of the cluster. If one cannot be reached, the proxy tries the next one.",
)
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
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    metavar="N",
    help="How many processes share the ports and the connections.  [default: 1]",
)
@click.option(
    "--metrics-port",
    metavar="[HOST:]PORT",
    help="Serve metrics for Prometheus on this port, of loopback unless a host is given. The path is /metrics.",
)
def proxy(
    file: Path | None,
    upstream: str | None,
    listen: str | None,
    advertise: str | None,
    filters: tuple[str, ...],
    refuse_unknown: bool,
    workers: int | None,
    metrics_port: str | None,
) -> None:
    """Pass requests and responses between clients and brokers, through filters.

    Filters are Python classes. Only the messages that a filter names are decoded; all other frames pass as they
    arrive. The proxy opens a port for each broker that a response names, so that clients stay connected to it.

    FILE is a TOML file with the settings and the filters. Options take precedence over it. The proxy stops on
    Ctrl-C or SIGTERM, after the responses to requests in flight. It reads keys, certificates and users again on
    SIGHUP, and when their files change.

    With several workers, each has its own instances of the filters. A worker that dies is started again.
    """
    from krammar.proxy import Proxy
    from krammar.proxy.settings import Settings, SettingsError, load_filter, read_settings
    from krammar.proxy.worker import VARIABLE, Worker

    find_packages_here()
    number = os.environ.pop(VARIABLE, None)
    worker = None if number is None else Worker(socket.socket(fileno=int(number)))
    try:
        settings = Settings() if file is None else read_settings(file)
        chain = [*settings.filters, *(load_filter(name, {}) for name in filters)]
        given: dict[str, Any] = {
            "upstream": upstream,
            "listen": listen,
            "advertise": advertise,
            "workers": workers,
            "metrics_port": metrics_port,
        }
        options = {"listen": "127.0.0.1:9093"} | settings.options
        options |= {name: value for name, value in given.items() if value is not None}
        if refuse_unknown:
            options["refuse_unknown"] = True
        if "upstream" not in options:
            raise click.UsageError("give --upstream HOST:PORT, or a FILE with upstream")
        count = options.pop("workers", 1)
        if count < 1:
            raise click.UsageError(f"{file}: workers = {count} is less than 1")
        if worker is not None:
            options["counts"] = options.pop("metrics_port", None) is not None
            options |= {"listen": worker.listen, "secret": worker.secret, "allot": worker.allot}
        server = Proxy(options.pop("upstream"), chain, **options)
    except (SettingsError, TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    _log_to_standard_error()
    if worker is not None:
        _run(lambda stop: _work(server, worker, stop))
    elif count > 1:
        _run(lambda stop: _supervise(server, count, stop))
    else:
        _run(lambda stop: _serve(server, stop))


def _log_to_standard_error() -> None:
    """Write the names of listeners and lost connections to standard error."""
    from krammar.util.logs import TextFormatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.INFO)


def _run(serve: Callable[[asyncio.Event], Any]) -> None:
    """Serve until SIGINT or SIGTERM."""
    from krammar.proxy import ProxyError
    from krammar.util.event_loop import new_event_loop

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve(stop)

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(run())
    except ProxyError as error:  # WorkerError is one
        raise click.UsageError(str(error)) from error


def _on_hangup(reload: Callable[[], object]) -> None:
    if hasattr(signal, "SIGHUP"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)


async def _serve(server: Proxy, stop: asyncio.Event) -> None:
    """Serve in this process."""
    from krammar.util.server_memory import prepare_memory

    await server.serve()
    prepare_memory()
    _on_hangup(server.reload)
    _announce(server.addresses, server.metrics_address)
    await stop.wait()
    click.echo("stopping", err=True)
    await server.drain()


def _announce(
    addresses: Mapping[str, str], metrics: tuple[str, int] | None, workers: str = ""
) -> None:
    from krammar.proxy.addresses import Address

    if metrics is not None:
        click.echo(f"metrics on http://{Address(*metrics)}/metrics", err=True)
    for name, address in addresses.items():
        click.echo(f"listening on {address}" + (f" ({name})" if name else "") + workers, err=True)


async def _work(server: Proxy, worker: Worker, stop: asyncio.Event) -> None:
    """Serve as one of several workers."""
    from krammar.proxy import ProxyError
    from krammar.proxy.addresses import ListenError
    from krammar.util.server_memory import prepare_memory

    _on_hangup(server.reload)
    await server.serve()
    prepare_memory()
    metrics = server.metrics
    try:
        await worker.start(
            server.listeners, lambda: metrics and metrics.registry.numbers(), stop.set
        )
    except ListenError as error:
        raise ProxyError(str(error)) from error
    await stop.wait()
    await server.drain()


async def _supervise(server: Proxy, count: int, stop: asyncio.Event) -> None:
    """Run the workers. ``server`` has the settings, and does not serve."""
    from krammar.proxy.metrics import Total, page
    from krammar.proxy.supervisor import Supervisor, WorkerError, command
    from krammar.util.sockets import why

    total = Total()
    supervisor = Supervisor(command(), count, server.listen, server.drain_timeout, total.lost)
    await supervisor.start()
    _on_hangup(lambda: supervisor.signal(signal.SIGHUP))
    served, metrics = page(lambda: _sum(supervisor, total)), None
    try:
        if server.metrics_port is not None:
            try:
                metrics = await served.listen(*server.metrics_port)
            except (OSError, UnicodeError) as error:
                text = f"cannot listen on {server.metrics_port} for metrics: {why(error)}"
                raise WorkerError(text) from None
        places = {name: server.at(each) for name, each in supervisor.addresses.items()}
        _announce(places, metrics, f" with {count} workers")
        stopped = asyncio.ensure_future(stop.wait())
        assert supervisor.failed is not None
        await asyncio.wait((stopped, supervisor.failed), return_when=asyncio.FIRST_COMPLETED)
        click.echo("stopping", err=True)
        stopped.cancel()
        if supervisor.failed.done():
            supervisor.failed.result()
    finally:
        await supervisor.stop()
        await served.close()


async def _sum(supervisor: Supervisor, total: Total) -> Registry:
    return total.of(await supervisor.numbers())
