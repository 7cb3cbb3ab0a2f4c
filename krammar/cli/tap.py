"""``krammar tap``, a proxy that decodes the frames between clients and brokers."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import click

from krammar.cli.options import examples, find_packages_here


@click.command(
    epilog=examples(
        "krammar tap --listen 127.0.0.1:9093 --upstream 127.0.0.1:9092",
        "krammar tap --upstream broker:9092 --summary --quiet     # print only problems and a table",
        "krammar tap --upstream broker:9092 --save orders.tap     # store the frames in a capture",
        "krammar tap --upstream broker:9092 --faults faults.toml  # let requests fail on cue",
        "krammar tap orders.tap --summary                         # print the frames of a capture",
        "krammar tap orders.tap --json | jq 'select(.api == \"Produce\").message'",
        "krammar tap orders.tap --pcap orders.pcapng              # for Wireshark",
    )
)
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option(
    "--listen",
    multiple=True,
    metavar="HOST:PORT",
    help="The address for clients to connect to. Port 0 selects any free port.  [default: "
    "127.0.0.1:9093, which only this machine can reach]",
)
@click.option(
    "--upstream",
    multiple=True,
    metavar="HOST:PORT",
    help="The broker to forward frames to. For several bootstrap addresses, repeat the option, each "
    "with its own --listen.",
)
@click.option(
    "--advertise",
    metavar="HOST",
    help="The name or address by which clients reach this machine.  [default: the host of --listen]",
)
@click.option("--summary", is_flag=True, help="Print a table by API and version at the end.")
@click.option(
    "--json", "json_", is_flag=True, help="Print one JSON object per frame, with the message."
)
@click.option("-q", "--quiet", is_flag=True, help="Print only frames with a problem.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Store the frames in a capture, including passwords. An older capture in FILE is replaced.",
)
@click.option(
    "--pcap",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="OUT",
    help="Write the capture FILE as pcapng, which Wireshark reads, instead of printing it.",
)
@click.option(
    "--secrets",
    is_flag=True,
    help="Show passwords and tokens in --pcap. Without it, their bytes are masked with '*'.",
)
@click.option(
    "--max-frame",
    type=click.IntRange(1, 0x7FFFFFFF),
    default=100 * 1024 * 1024,
    show_default=True,
    metavar="BYTES",
    help="Forward larger frames without reading them.",
)
@click.option(
    "--faults",
    "faults_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Apply the rules of FILE: answer errors, drop connections, delay and change messages.",
)
@click.option(
    "--package",
    default="kafka_wire",
    show_default=True,
    metavar="PACKAGE",
    help="The protocol: a generated package that Python can import from the current folder.",
)
@click.option("--stay", is_flag=True, help="Keep running when the brokers are gone.")
def tap(
    file: Path | None,
    listen: tuple[str, ...],
    upstream: tuple[str, ...],
    advertise: str | None,
    summary: bool,
    json_: bool,
    quiet: bool,
    save: Path | None,
    pcap: Path | None,
    secrets: bool,
    max_frame: int,
    faults_file: Path | None,
    package: str,
    stay: bool,
) -> None:
    """Print the frames between clients and brokers.

    The tap is a proxy. Clients connect to it instead of the broker. It decodes every Kafka frame in both
    directions, encodes it again, and checks that the bytes are the same. It opens a port for each broker
    that a response names, so that clients stay connected to the tap. Frames that cannot be decoded are
    reported and forwarded unchanged. ApiVersions responses are limited to the versions that krammar
    knows.

    The tap stops on Ctrl-C or SIGTERM, and when the brokers are gone. The exit code is 1 if a frame did
    not round-trip, or if a fault fired less often than the faults file expects.

    With FILE, the tap prints the frames of a capture that --save has stored.
    """
    from krammar.cli.faults import read_faults, report
    from krammar.tap.capture import CaptureError
    from krammar.tap.export import write_pcap
    from krammar.tap.proxy import Address, Route, TapError
    from krammar.tap.run import Output, run_live, run_replay

    protocol = _protocol(package)
    faults, expected = None, []
    if faults_file is not None:
        from krammar.faults import Faults

        faults = Faults(protocol)
        expected = read_faults(faults, faults_file)
    output = Output(click.echo, lambda line: click.echo(line, err=True), json=json_, only_bad=quiet)
    try:
        if file is not None:
            if listen or upstream or save or advertise or stay or faults is not None:
                raise click.UsageError(
                    "FILE cannot be combined with --listen, --upstream, --save, --advertise, --faults "
                    "or --stay"
                )
            if pcap is not None:
                click.echo(write_pcap(protocol, file, pcap, secrets=secrets), err=True)
                return
            counted = run_replay(protocol, file, output)
        elif pcap is not None:
            raise click.UsageError(
                "--pcap needs the FILE of a capture (store one with --save, then run krammar tap FILE --pcap OUT)"
            )
        elif not upstream:
            raise click.UsageError("give --upstream HOST:PORT, or the FILE of a capture")
        else:
            places = listen or (("127.0.0.1:9093",) if len(upstream) == 1 else ())
            if len(places) != len(upstream):
                raise click.UsageError("give one --listen for each --upstream, in the same order")
            routes = [
                Route(Address.parse(place), Address.parse(broker))
                for place, broker in zip(places, upstream, strict=True)
            ]
            counted = run_live(
                protocol,
                routes,
                output,
                save=save,
                advertise=advertise,
                max_frame=max_frame,
                stay=stay,
                faults=faults,
            )
    except (CaptureError, TapError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    except BrokenPipeError:
        raise  # click exits without a message, for example in a pipe to head
    except OSError as error:
        raise click.ClickException(str(error)) from error
    if summary:
        click.echo(counted.table(), err=json_)
    else:
        click.echo(counted.verdict(), err=True)
    fired = faults is None or report(faults, expected)
    if not counted.all_good or not fired:
        sys.exit(1)


def _protocol(name: str) -> ModuleType:
    from krammar.wire import classes
    from krammar.wire.package import package_of

    find_packages_here()
    try:
        protocol = classes.import_package(name)
        package_of(protocol)
    except (classes.NotFound, TypeError) as error:
        raise click.UsageError(f"--package: {error}") from error
    return protocol
