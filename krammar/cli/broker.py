"""``krammar broker`` and ``krammar random-uuid``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from krammar import __version__
from krammar.cli.options import FOLDER, INPUT_FILE, examples, key_values
from krammar.cli.output import echo, quantity

if TYPE_CHECKING:
    import logging

    from krammar.broker.broker import Broker
    from krammar.util.http_server import HttpControl

MOST_NODES = 100


@click.command(
    epilog=examples(
        "krammar broker --data-dir data",
        "krammar broker --data-dir data --port 9093 --override num.partitions=4",
        "krammar broker server.properties                # the configuration file of a Kafka broker",
        "krammar broker --data-dir data --fsync always   # records survive a power cut too",
        "krammar broker --data-dir data --cluster-id $(krammar random-uuid)",
        "krammar broker --data-dir data --metrics 9404  # numbers for Prometheus",
        "krammar broker --data-dir data --nodes 3         # for tests of clients: nothing is replicated",
        "krammar broker --data-dir data --faults faults.toml   # fail on cue",
        "krammar broker --data-dir data --control 8090    # rules, nodes and clock over HTTP",
        "krammar broker --data-dir data --protocol wafka --port 9095 --kafka-port 9092",
    )
)
@click.argument("properties", type=INPUT_FILE, required=False)
@click.option(
    "--data-dir",
    type=FOLDER,
    help="Folder for logs and metadata (log.dirs). A new folder is created.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Listen on this port of the loopback address. 0 selects any free port.  [default: 9092, or 9095 "
    "with --protocol wafka]",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, MOST_NODES),
    default=1,
    show_default=True,
    help="Serve as this number of nodes, on consecutive ports. They share the data and replicate nothing; "
    "clients see the leaders and replicas of a cluster.",
)
@click.option(
    "--protocol",
    type=click.Choice(["kafka", "wafka"]),
    default="kafka",
    show_default=True,
    help="Protocol of --port. With wafka, Kafka clients read the same topics on --kafka-port.",
)
@click.option(
    "--kafka-port",
    type=click.IntRange(0, 65535),
    help="With --protocol wafka: port for Kafka clients.  [default: 9092]",
)
@click.option(
    "--config",
    type=INPUT_FILE,
    help="Another way to give PROPERTIES.",
)
@click.option(
    "--override",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting with its name in Kafka. Takes precedence over the file. Can be repeated.",
)
@click.option(
    "--cluster-id",
    metavar="ID",
    help="The id of the cluster. A new folder gets this id; a folder of another cluster is an error.  "
    "[default: a random id for a new folder]",
)
@click.option(
    "--fsync",
    type=click.Choice(["always", "interval", "never", "off"]),
    help="When to flush data to the disk: before each acknowledgement, at intervals, as Kafka does by "
    "default, or not at all (for tests). A crash of the broker loses no acknowledged data in any case.  "
    "[default: interval]",
)
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Serve metrics for Prometheus on http://HOST:PORT/metrics. The default host is 127.0.0.1.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of all lines. With json, each line is an object with time, level, logger and message.",
)
@click.option(
    "--faults",
    "faults_file",
    type=INPUT_FILE,
    metavar="FILE",
    help="Apply the rules of FILE: answer errors, drop connections, delay and change messages. The exit "
    "code is 1 if a fault fires less often than FILE expects.",
)
@click.option(
    "--wafka-faults",
    "wafka_faults_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The same for clients of Wafka's listeners.",
)
@click.option(
    "--control",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Accept commands for rules of faults, records, groups, nodes and the clock on this port of the loopback address, "
    "over HTTP, for tests in any language. 0 selects a free port. Clients need the token that is printed, or that "
    "KRAMMAR_CONTROL_TOKEN contains.",
)
def broker(
    properties: Path | None,
    data_dir: Path | None,
    port: int | None,
    nodes: int,
    protocol: str,
    kafka_port: int | None,
    config: Path | None,
    override: tuple[str, ...],
    cluster_id: str | None,
    fsync: str | None,
    metrics: str | None,
    log_format: str,
    faults_file: Path | None,
    wafka_faults_file: Path | None,
    control: int | None,
) -> None:
    """Run a Kafka-compatible broker, with one node or several.

    PROPERTIES is Kafka's server.properties. The broker stores its data in Kafka's file formats, and
    starts on folders that Kafka has written. It runs until it receives SIGINT or SIGTERM.
    """
    started = time.perf_counter()
    from krammar.broker.broker import Broker
    from krammar.broker.config import BrokerConfig, ConfigError
    from krammar.broker.errors import BrokerError
    from krammar.broker.open_files import raise_open_files
    from krammar.broker.several_nodes import Cluster
    from krammar.cli.faults import read_faults, report

    if properties is not None and config is not None:
        raise click.UsageError("give PROPERTIES or --config, not both")
    source = properties or config
    overrides = {key: value.strip() for key, value in key_values("--override", override).items()}
    if data_dir is not None:
        overrides["log.dirs"] = str(data_dir)
    elif source is None:
        raise click.UsageError("give --data-dir, or a server.properties with log.dirs")
    if protocol == "wafka":
        overrides["listeners"] = (
            f"WAFKA://127.0.0.1:{9095 if port is None else port},"
            f"PLAINTEXT://127.0.0.1:{9092 if kafka_port is None else kafka_port}"
        )
    elif kafka_port is not None:
        raise click.UsageError(
            "--kafka-port needs --protocol wafka (without it, Kafka clients connect to --port)"
        )
    elif port is not None:
        overrides["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
    if cluster_id is not None:
        overrides["krammar.cluster.id"] = cluster_id
    if fsync is not None:
        overrides["krammar.fsync"] = fsync
    if metrics is not None:
        overrides["krammar.metrics"] = metrics
    try:
        settings = BrokerConfig.from_properties(source if source is not None else "", overrides)
        raise_open_files()
        broker = (Broker if nodes == 1 else Cluster)(settings, nodes=nodes)
        rules = []
        if faults_file is not None:
            rules.append((broker.faults, read_faults(broker.faults, faults_file)))
        if wafka_faults_file is not None:
            faults = broker.wafka_faults
            rules.append((faults, read_faults(faults, wafka_faults_file, "--wafka-faults")))
        if log_format == "json":
            from krammar.util.logs import JsonFormatter

            form = JsonFormatter()
            _serve(
                broker,
                lambda line: echo(form.line("krammar.broker", line)),
                started,
                form,
                control,
            )
        else:
            _serve(broker, echo, started, control=control)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    except BrokerError as error:
        raise click.ClickException(str(error)) from None
    reports = [report(faults, expected) for faults, expected in rules]
    if not all(reports):
        sys.exit(1)


def _serve(
    broker: Broker,
    write: Callable[[str], None],
    started: float,
    formatter: logging.Formatter | None = None,
    control: int | None = None,
) -> None:
    """Start a broker, print its addresses, serve until SIGINT or SIGTERM, shut down.

    Args:
        broker: the broker, not started
        write: prints a line
        started: the ``time.perf_counter()`` of the process's start, for the "ready after" line
        formatter: the form of log lines; None for plain text
        control: the port for commands over HTTP; None for no commands

    Raises:
        BrokerError, ConfigError: the broker cannot start.
    """
    import asyncio
    import logging
    import signal

    from krammar.util.event_loop import new_event_loop
    from krammar.util.logs import TextFormatter
    from krammar.util.server_memory import RetainedMemory, prepare_memory

    config = broker.config
    RetainedMemory().trim()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter or TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    for warning in config.warnings:
        write(f"warning: {warning}")

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(broker)
            topics = broker.cluster.topics.values()
            partitions = sum(len(topic.partitions) for topic in topics)
            ids = ", ".join(map(str, broker.nodes))
            write(
                f"krammar broker {__version__}: {'node' if len(broker.nodes) == 1 else 'nodes'} {ids} of "
                f"cluster {broker.cluster.cluster_id}"
            )
            write(
                f"{quantity(len(topics), 'topic')} with {quantity(partitions, 'partition')} in "
                + ", ".join(map(str, config.log_dirs))
            )
            for node in broker.nodes.values():
                for listener in node.config.listeners:
                    host, port = node.addresses[listener.name]
                    name = f"node {node.config.node_id}: " if len(broker.nodes) > 1 else ""
                    write(f"{name}{listener.protocol} listening on {host}:{port}")
            if config.metrics is not None:
                host, port = broker.metrics_address
                write(f"metrics on http://{f'[{host}]' if ':' in host else host}:{port}/metrics")
            if control is not None:
                write((await _control(broker, control, stack)).line)
            write(f"ready after {(time.perf_counter() - started) * 1000:.0f} ms")
            prepare_memory()
            await stop.wait()
            write("stopping")
        write("stopped: logs are closed")

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve())


async def _control(broker: Broker, port: int, stack: AsyncExitStack) -> HttpControl:
    """Accept commands until the end of the stack. Raises BrokerError."""
    from krammar.broker.control import BrokerControl
    from krammar.broker.errors import BrokerError
    from krammar.faults.control import FaultsControl
    from krammar.testing.control import ProbeControl
    from krammar.testing.probe import BrokerProbe
    from krammar.util.http_server import HttpControl
    from krammar.util.sockets import why

    tests = ProbeControl(BrokerProbe(broker, notes_batches=False))
    http = HttpControl(FaultsControl(broker.faults), BrokerControl(broker), tests)
    try:
        await http.listen(port)
    except OSError as error:
        raise BrokerError(f"cannot listen on 127.0.0.1:{port} for commands: {why(error)}") from None
    stack.push_async_callback(http.close)
    return http


@click.command(
    "random-uuid",
    epilog=examples(
        "krammar random-uuid",
        "krammar broker --data-dir data --cluster-id $(krammar random-uuid)",
    ),
)
def random_id() -> None:
    """Print a new cluster id, in Kafka's format."""
    from krammar.broker.meta_properties import random_uuid
    from krammar.logfiles.uuids import format_uuid

    echo(format_uuid(random_uuid()))
