"""``krammar tap``, a proxy that decodes the frames between clients and brokers."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from krammar.cli.options import (
    INPUT_FILE,
    OUTPUT_FILE,
    examples,
    find_packages_here,
    protocol_package,
)
from krammar.cli.output import echo

if TYPE_CHECKING:
    from krammar.proxy.addresses import Address
    from krammar.tap.exchanges import ExchangeSelection


@click.command(
    epilog=examples(
        "krammar tap --listen 127.0.0.1:9093 --upstream 127.0.0.1:9092",
        "krammar tap --upstream broker:9092 --summary --quiet     # print only problems and a table",
        "krammar tap --upstream broker:9092 --save orders.tap     # store the frames in a capture",
        "krammar tap --upstream broker:9092 --faults faults.toml  # let requests fail on cue",
        "krammar tap orders.tap --summary                         # print the frames of a capture",
        "krammar tap orders.tap --json | jq 'select(.api == \"Produce\").message'",
        "krammar tap orders.tap --topic orders --errors           # print the errors of a topic",
        "krammar tap --upstream broker:9092 --ui                  # show the frames in a browser",
        "krammar tap orders.tap --html orders.html                # the same page as a file",
        "krammar tap orders.tap --pcap orders.pcapng              # for Wireshark",
    )
)
@click.argument("file", type=INPUT_FILE, required=False)
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
@click.option(
    "--broker-ports",
    multiple=True,
    metavar="PORT-PORT|NODE=PORT,…",
    help="The ports of brokers by node id: a range for the node ids from 0, such as 19092-19191, or ports of "
    "node ids, such as 1=19092,2=19093. With several --listen, one for each.  [default: any free ports]",
)
@click.option("--summary", is_flag=True, help="Print a table by API and version at the end.")
@click.option(
    "--json", "json_", is_flag=True, help="Print one JSON object per frame, with the message."
)
@click.option("-q", "--quiet", is_flag=True, help="Print only frames with a problem.")
@click.option(
    "--save",
    type=OUTPUT_FILE,
    metavar="FILE",
    help="Store the frames in a capture, including passwords. An older capture in FILE is replaced.",
)
@click.option("--frames", is_flag=True, help="Print requests and responses on separate lines.")
@click.option(
    "--api",
    "apis",
    multiple=True,
    metavar="NAME",
    help="Print only requests of this API, such as Produce, and their responses. Can be repeated, like --client "
    "and --topic.",
)
@click.option("--client", "clients", multiple=True, metavar="ID", help="Print only this client id.")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Print only this topic.")
@click.option(
    "--errors",
    is_flag=True,
    help="Print only requests whose response has an error code or is missing, and frames with a "
    "problem.",
)
@click.option(
    "--ui",
    is_flag=False,
    flag_value="0",
    metavar="[[HOST:]PORT]",
    help="Serve a page with the frames, instead of printing them. The default port is any free one, and the "
    "default host is 127.0.0.1, which only this machine can reach.",
)
@click.option(
    "--html",
    type=OUTPUT_FILE,
    metavar="OUT",
    help="Write the capture FILE as the same page in one self-contained file, instead of printing it.",
)
@click.option(
    "--pcap",
    type=OUTPUT_FILE,
    metavar="OUT",
    help="Write the capture FILE as pcapng, which Wireshark reads, instead of printing it.",
)
@click.option(
    "--secrets",
    is_flag=True,
    help="Show passwords and tokens in --ui, --html and --pcap. Without it, their bytes are masked with '*'.",
)
@click.option(
    "--max-frame",
    type=click.IntRange(1, 0x7FFFFFFF),
    default=16 << 20,
    show_default=True,
    metavar="BYTES",
    help="Forward larger frames without decoding them.",
)
@click.option(
    "--faults",
    "faults_file",
    type=INPUT_FILE,
    metavar="FILE",
    help="Apply the rules of FILE: answer errors, drop connections, delay and change messages.",
)
@click.option(
    "--tls",
    "tls_file",
    type=INPUT_FILE,
    metavar="FILE",
    help="Use the settings of FILE for TLS: the tables [clients] and [brokers], as in a file of krammar proxy.",
)
@click.option(
    "--package",
    metavar="PACKAGE",
    help="The protocol: a generated package that Python can import from the current folder.  [default: "
    "kafka_wire, or the package that the capture FILE names]",
)
@click.option("--stay", is_flag=True, help="Keep running when the brokers are gone.")
@click.option(
    "--control",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Accept commands for rules of faults on this port of the loopback address, over HTTP. Clients need the "
    "token that is printed, or that KRAMMAR_CONTROL_TOKEN contains.",
)
def tap(
    file: Path | None,
    listen: tuple[str, ...],
    upstream: tuple[str, ...],
    advertise: str | None,
    broker_ports: tuple[str, ...],
    summary: bool,
    json_: bool,
    quiet: bool,
    save: Path | None,
    frames: bool,
    apis: tuple[str, ...],
    clients: tuple[str, ...],
    topics: tuple[str, ...],
    errors: bool,
    ui: str | None,
    html: Path | None,
    pcap: Path | None,
    secrets: bool,
    max_frame: int,
    faults_file: Path | None,
    tls_file: Path | None,
    package: str | None,
    stay: bool,
    control: int | None,
) -> None:
    """Show the requests and responses of clients and brokers.

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
    from krammar.tap.exchanges import ExchangeSelection
    from krammar.tap.proxy import Forward, TapArgumentError, TapError
    from krammar.tap.run import Output, Ui, run_live, run_replay

    is_live = any(
        (listen, upstream, save, advertise, broker_ports, stay, faults_file, ui is not None)
    )
    if file is not None and (is_live or control is not None):
        raise click.UsageError(
            "FILE cannot be combined with --listen, --upstream, --save, --advertise, --broker-ports, --faults, "
            "--control, --stay or --ui (use --html OUT to see a capture in a browser)"
        )
    if file is not None and pcap is not None and (apis or clients or topics or errors):
        raise click.UsageError(
            "--pcap cannot be combined with --api, --client, --topic or --errors, because Wireshark "
            "needs whole streams (use Wireshark's display filters)"
        )
    if package is not None or file is None:
        protocol = protocol_package(package or "kafka_wire")
    else:
        find_packages_here()
        protocol = _captured(file)
    faults, expected = None, []
    if faults_file is not None or control is not None:
        from krammar.faults import Faults

        faults = Faults(protocol)
        expected = [] if faults_file is None else read_faults(faults, faults_file)
    select = ExchangeSelection(_known_apis(protocol, apis), clients, topics, errors)
    if ui is not None and select and not json_:
        raise click.UsageError(
            "--ui cannot be combined with --api, --client, --topic or --errors: the page has filters of its own"
        )
    if secrets and ui is None and html is None and pcap is None:
        raise click.UsageError("--secrets needs --ui, --html or --pcap")
    output = Output(
        partial(echo, styled=True),  # listings escape their lines, and colour them
        partial(echo, err=True),
        json=json_,
        only_bad=quiet,
        frames=frames,
        select=select,
        width=shutil.get_terminal_size().columns if sys.stdout.isatty() else 0,
    )
    try:
        if file is not None:
            if html is not None or pcap is not None:
                _export(protocol, file, html, pcap, select, secrets)
                return
            counted = run_replay(protocol, file, output)
        elif html is not None or pcap is not None:
            name = "--html" if html is not None else "--pcap"
            raise click.UsageError(
                f"{name} needs the FILE of a capture (store one with --save, then run "
                f"krammar tap FILE {name} OUT)"
            )
        elif not upstream:
            raise click.UsageError("give --upstream HOST:PORT, or the FILE of a capture")
        else:
            places = listen or (("127.0.0.1:9093",) if len(upstream) == 1 else ())
            if len(places) != len(upstream):
                raise click.UsageError("give one --listen for each --upstream, in the same order")
            if broker_ports and len(broker_ports) != len(upstream):
                raise click.UsageError(
                    "give one --broker-ports for each --upstream, in the same order"
                )
            ports = broker_ports or (None,) * len(upstream)
            forwards = [
                Forward(_address("--listen", place), _address("--upstream", broker), each)
                for place, broker, each in zip(places, upstream, ports, strict=True)
            ]
            counted = run_live(
                protocol,
                forwards,
                output,
                save=save,
                advertise=advertise,
                max_frame=max_frame,
                stay=stay,
                faults=faults,
                control=control,
                ui=None if ui is None else Ui(_address("--ui", ui), secrets),
                **_tls(tls_file),
            )
    except (CaptureError, TapArgumentError) as error:
        raise click.UsageError(str(error)) from error
    except TapError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:  # a setting for TLS
        raise click.UsageError(
            str(error) if tls_file is None else f"{tls_file}: {error}"
        ) from error
    except BrokenPipeError:
        raise  # click exits without a message, for example in a pipe to head
    except OSError as error:
        raise click.ClickException(str(error)) from error
    if summary:
        echo(counted.table(), err=json_)
    else:
        echo(counted.verdict(), err=True)
    fired = faults is None or report(faults, expected)
    if not counted.all_good or not fired:
        sys.exit(1)


def _captured(file: Path) -> ModuleType:
    """Import the package that a capture names."""
    from krammar.tap.capture import Capture, CaptureError

    try:
        return Capture(file).protocol()
    except CaptureError as error:
        raise click.UsageError(f"{error} (name a package with --package)") from None
    except OSError as error:
        raise click.ClickException(str(error)) from None


def _tls(path: Path | None) -> dict[str, Any]:
    """Return how clients connect to the tap, and the tap to brokers."""
    if path is None:
        return {}
    from krammar.proxy.settings import SettingsError, read_settings

    try:
        options = read_settings(path).options
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    if others := options.keys() - {"clients", "brokers"}:
        raise click.UsageError(f"{path}: --tls does not use {', '.join(sorted(others))}")
    if any(name.startswith("sasl") for name in options.get("brokers", {})):
        raise click.UsageError(
            f"{path}: the tap does not log in; logins of clients pass through it"
        )
    return options


def _address(option: str, text: str) -> Address:
    from krammar.proxy.addresses import Address

    try:
        return Address.parse(text)
    except ValueError:
        form = "PORT or HOST:PORT" if option == "--ui" else "HOST:PORT, such as 127.0.0.1:9092"
        raise click.UsageError(f"{option}: {text!r} is not {form}") from None


def _export(
    protocol: ModuleType,
    file: Path,
    html: Path | None,
    pcap: Path | None,
    select: ExchangeSelection,
    secrets: bool,
) -> None:
    from krammar.tap.page_file import write_html
    from krammar.tap.pcap import write_pcap

    if pcap is not None:
        echo(write_pcap(protocol, file, pcap, secrets=secrets), err=True)
    if html is not None:
        echo(write_html(protocol, file, html, select, secrets=secrets), err=True)


def _known_apis(protocol: ModuleType, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of apis. Raises click.UsageError for names that the protocol does not have."""
    from krammar.util.diagnostics import meant, most_similar
    from krammar.wire.package import package_of

    known = {info.api_name.lower(): info.api_name for info in package_of(protocol).request_infos()}
    for name in names:
        if name.lower() not in known:
            near = meant(known.get(most_similar(name.lower(), known)))
            hint = near and f" ({near})"
            raise click.UsageError(f"--api: {protocol.__name__} has no api {name!r}{hint}")
    return names
