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
from krammar.cli.output import echo

if TYPE_CHECKING:
    from krammar.proxy import Proxy
    from krammar.proxy.metrics import Total
    from krammar.proxy.takeover import Load, Takeover
    from krammar.proxy.workers import Supervisor, Worker
    from krammar.util.prometheus import Registry


@click.command(
    epilog=examples(
        "krammar proxy --upstream broker:9092 --filter my_filters:OnlySmall",
        "krammar proxy proxy.toml",
        "krammar proxy --check proxy.toml",
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
    "--broker-ports",
    metavar="PORT-PORT|NODE=PORT,…",
    help="The ports of brokers by node id: a range for the node ids from 0, such as 19092-19191, or ports of "
    "node ids, such as 1=19092,1000-1099=19100-19199.  [default: any free ports]",
)
@click.option(
    "--metrics-port",
    metavar="[HOST:]PORT",
    help="Serve metrics for Prometheus on this port, of loopback unless a host is given. The path is /metrics.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Do not start. Check the settings, the filters, and the files that they name. The exit code is 1 if "
    "anything is invalid.",
)
def proxy(
    file: Path | None,
    upstream: str | None,
    listen: str | None,
    advertise: str | None,
    filters: tuple[str, ...],
    refuse_unknown: bool,
    workers: int | None,
    broker_ports: str | None,
    metrics_port: str | None,
    check: bool,
) -> None:
    """Pass requests and responses through filters in Python.

    Filters are Python classes. Only the messages that a filter names are decoded; all other frames pass as they
    arrive. The proxy opens a port for each broker that a response names, so that clients stay connected to it.

    FILE is a TOML file with the settings and the filters. Options take precedence over it. The proxy stops on
    Ctrl-C or SIGTERM, after the responses to requests in flight.

    On SIGHUP, the proxy reads FILE, keys, certificates and users again: new connections use them, and open ones keep
    what they have. With "reload = true" in FILE, it does so when FILE changes. Keys, certificates and users are also
    read when their files change.

    With several workers, each has its own instances of the filters. A worker that dies is started again.
    """
    from krammar.proxy import Proxy
    from krammar.proxy.settings import Settings, SettingsError, load_settings, text_of_settings
    from krammar.proxy.workers import VARIABLE, Worker

    find_packages_here()
    number = os.environ.pop(VARIABLE, None)
    worker = None if number is None else Worker(socket.socket(fileno=int(number)))
    given: dict[str, Any] = {
        "upstream": upstream,
        "listen": listen,
        "advertise": advertise,
        "workers": workers,
        "broker_ports": broker_ports,
        "metrics_port": metrics_port,
        "refuse_unknown": refuse_unknown or None,
    }
    given = {name: value for name, value in given.items() if value is not None}

    def load(text: str | None) -> Settings:
        return load_settings(file, text, given, filters)

    text: str | None = None
    try:
        if worker is not None:
            text = worker.settings
        elif file is not None:
            text = text_of_settings(file)
        settings = load(text)
        options = {**settings.options}
        count = options.pop("workers", 1)
        options.pop("reload", None)
        if worker is not None:
            options["counts"] = options.pop("metrics_port", None) is not None
            options |= {"listen": worker.listen, "secret": worker.secret, "shared": worker}
        try:
            server = Proxy(options.pop("upstream"), settings.filters, **options)
        except (TypeError, ValueError):
            settings.close()
            raise
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from error
    except (SettingsError, TypeError, ValueError) as error:
        if not check:
            raise click.UsageError(str(error)) from error
        echo(error, err=True)
        raise SystemExit(1) from error
    if check:
        server.close_filters()
        echo(f"{file or 'the settings'}: valid, with {_number(len(settings.filters), 'filter')}")
        return
    _log_to_standard_error()
    if worker is not None:
        _run(lambda stop: _work(server, worker, load, stop))
    elif count > 1:
        server.close_filters()  # workers have filters of their own
        _run(lambda stop: _supervise(server, count, settings.options, (file, text), load, stop))
    else:
        _run(lambda stop: _serve(server, settings.options, file, load, stop))


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


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
        raise click.ClickException(str(error)) from error


def _on_hangup(takeover: Takeover | None, reload: Callable[[], object]) -> None:
    """Read the file of settings again on SIGHUP; if there is none, or it is invalid, keys, certificates and users."""
    if not hasattr(signal, "SIGHUP"):
        return
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def read(takeover: Takeover) -> None:
        if not await takeover.reload():
            reload()

    def begin() -> None:
        if takeover is None:
            reload()
        else:
            task = loop.create_task(read(takeover))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGHUP, begin)


async def _serve(
    server: Proxy, options: Mapping[str, Any], file: Path | None, load: Load, stop: asyncio.Event
) -> None:
    """Serve in this process."""
    from krammar.proxy.takeover import Takeover, prepare
    from krammar.util.server_memory import prepare_memory

    async def apply(text: str) -> Mapping[str, Any]:
        prepared = await prepare(server, load, text)
        server.adopt(prepared.replacement)
        return prepared.options

    takeover = None if file is None else Takeover(file, options, apply)
    await server.serve()
    prepare_memory()
    _on_hangup(takeover, server.reload)
    if takeover is not None:
        takeover.start()
    _announce(server.addresses, server.metrics_address)
    await stop.wait()
    echo("stopping", err=True)
    if takeover is not None:
        takeover.stop()
    await server.drain()


def _announce(
    addresses: Mapping[str, str], metrics: tuple[str, int] | None, workers: str = ""
) -> None:
    from krammar.proxy.addresses import Address

    if metrics is not None:
        echo(f"metrics on http://{Address(*metrics)}/metrics", err=True)
    for name, address in addresses.items():
        echo(f"listening on {address}" + (f" ({name})" if name else "") + workers, err=True)


async def _work(server: Proxy, worker: Worker, load: Load, stop: asyncio.Event) -> None:
    """Serve as one of several workers."""
    from krammar.proxy import ProxyError
    from krammar.proxy.listeners import ListenError
    from krammar.util.server_memory import prepare_memory

    _on_hangup(None, server.reload)
    await server.serve()
    prepare_memory()
    try:
        await worker.start(server, load, stop.set)
    except ListenError as error:
        raise ProxyError(str(error)) from error
    await stop.wait()
    await server.drain()


async def _supervise(
    server: Proxy,
    count: int,
    options: Mapping[str, Any],
    settings: tuple[Path | None, str | None],
    load: Load,
    stop: asyncio.Event,
) -> None:
    """Run the workers. ``server`` has the settings, and does not serve."""
    from krammar.proxy.metrics import Total, page
    from krammar.proxy.takeover import Takeover, discard, prepare
    from krammar.proxy.workers import Supervisor, WorkerError, command
    from krammar.util.sockets import why

    file, text = settings
    total = Total()
    supervisor = Supervisor(
        command(),
        count,
        server.listen,
        server.fixed_ports,
        server.broker_port_timeout,
        server.drain_timeout,
        text,
        total.lost,
    )

    async def apply(text: str) -> Mapping[str, Any]:
        prepared = await prepare(server, load, text)
        discard(prepared.replacement)
        await supervisor.replace(text)
        return prepared.options

    await supervisor.start()
    takeover = None if file is None else Takeover(file, options, apply)
    _on_hangup(takeover, lambda: supervisor.signal(signal.SIGHUP))
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
        if takeover is not None:
            takeover.start()
        stopped = asyncio.ensure_future(stop.wait())
        assert supervisor.failed is not None
        await asyncio.wait((stopped, supervisor.failed), return_when=asyncio.FIRST_COMPLETED)
        echo("stopping", err=True)
        stopped.cancel()
        if supervisor.failed.done():
            supervisor.failed.result()
    finally:
        if takeover is not None:
            takeover.stop()
        await supervisor.stop()
        await served.close()


async def _sum(supervisor: Supervisor, total: Total) -> Registry:
    return total.of(await supervisor.numbers())
