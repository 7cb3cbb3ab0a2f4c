"""``krammar broker`` and ``krammar random-uuid``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from krammar.cli.options import FOLDER, INPUT_FILE, examples, key_values
from krammar.cli.output import echo

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
    import time

    started = time.perf_counter()
    from krammar.broker.broker import Broker
    from krammar.broker.config import BrokerConfig, ConfigError
    from krammar.broker.errors import BrokerError
    from krammar.broker.open_files import raise_open_files
    from krammar.broker.several_nodes import Cluster
    from krammar.cli.faults import read_faults, report
    from krammar.cli.serving import run

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
            run(
                broker,
                lambda line: echo(form.line("krammar.broker", line)),
                started,
                form,
                control,
            )
        else:
            run(broker, echo, started, control=control)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    except BrokerError as error:
        raise click.ClickException(str(error)) from None
    reports = [report(faults, expected) for faults, expected in rules]
    if not all(reports):
        sys.exit(1)


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
