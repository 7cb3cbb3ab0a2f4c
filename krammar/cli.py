"""The command line. Each verb imports what it needs when it runs, so that ``krammar --help`` is quick.

Exit codes: 0 fine, 1 findings (or drift), 2 misuse.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krammar.broker.security.cli import users
from krammar.cli_client import consume, produce, topics
from krammar.cli_compile import compile_, version_option
from krammar.cli_text import examples, quantity
from krammar.cli_wafka import wafka_produce

if TYPE_CHECKING:
    from krammar.compiler.findings import Findings

_SOURCE = click.Path(exists=True, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "krammar gen definitions/ -o generated/",
        "krammar check definitions/ --strict",
        "krammar fmt definitions/",
        "krammar tap --listen 127.0.0.1:9093 --upstream 127.0.0.1:9092",
        "krammar broker --data-dir data",
        "krammar consume orders -o beginning -e",
    ),
)
@version_option
def main() -> None:
    """Compile the DEFINITIONS grammar of Kafka-style wire protocols into typed Python."""


def _format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--format",
        "format_",
        type=click.Choice(["text", "json", "github"]),
        default="text",
        show_default=True,
        help="How findings are printed.",
    )(command)


@main.command(
    epilog=examples(
        "krammar gen definitions/ -o generated/",
        "krammar gen protocol/ -o src/myapp/wire       # files at its root: OUT is the package",
        "krammar gen definitions/ -o generated/ --check  # exit 1 if anything would change",
    )
)
@click.argument("source", type=_SOURCE)
@click.option("-o", "--out", type=_FOLDER, required=True, help="Where packages are written.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if anything would change.")
@click.option("--templates", type=_SOURCE, help="Templates of a backend of your own.")
@_format_option
def gen(source: Path, out: Path, check: bool, templates: Path | None, format_: str) -> None:
    """Generate Python packages from the definition files below SOURCE.

    Every folder that holds definition files becomes a package at the same place in OUT. Files that
    come out the same are not touched; files that krammar wrote and would not write any more are
    removed, and nothing else is. With findings, nothing is written at all.
    """
    from krammar.compiler import source as sources
    from krammar.compiler.emitter import Emitter
    from krammar.compiler.findings import Findings

    with _misuse():
        folders = sources.folders(source)
        emitter = Emitter(source, out, templates)
        findings = Findings()
        rendered: dict[Path, str] = {}
        rendering: list[tuple[Any, str]] = []
        kept: list[Path] = []
        protocols = [sources.compile_folder(folder, findings) for folder in folders]
        if findings.has_errors:
            _report(findings, format_)
            click.echo("nothing was written", err=True)
            sys.exit(1)
        emitter.check_places(protocols)
        for folder, protocol in zip(folders, protocols, strict=True):
            digest = emitter.inputs(folder)
            current = emitter.up_to_date(protocol, digest)
            if current is not None:
                kept += current
                continue
            rendered |= emitter.render(protocol)
            rendering.append((protocol, digest))
        with _progress("generating", len(rendered)) as advance:
            outcome = emitter.write(rendered, kept, check=check, progress=advance)
        for protocol, digest in () if check else rendering:
            emitter.remember(protocol, digest)
    if check:
        for path in outcome.written:
            click.echo(f"would change {path}")
        for path in outcome.removed:
            click.echo(f"would remove {path}")
        if outcome.drift:
            click.echo(f"run `krammar gen {source} -o {out}`", err=True)
            sys.exit(1)
        click.echo(f"{out}: {len(outcome.unchanged)} files, all as they would be generated")
        return
    click.echo(
        f"{out}: {len(outcome.written)} written, {len(outcome.unchanged)} unchanged, "
        f"{len(outcome.removed)} removed"
    )


@main.command(
    epilog=examples(
        "krammar check definitions/",
        "krammar check definitions/ --strict --format github   # in CI: style is an error too",
        "krammar check definitions/ --format json | jq .",
    )
)
@click.argument("source", type=_SOURCE, nargs=-1, required=True)
@click.option("--strict", is_flag=True, help="Style findings are errors.")
@_format_option
def check(source: tuple[Path, ...], strict: bool, format_: str) -> None:
    """Check definition files: all findings of a run, with place, caret and hint.

    Style findings (codes W9xx) are warnings, which `krammar fmt` mends.
    """
    from krammar.compiler.findings import Findings
    from krammar.compiler.source import HEADERS, compile_source

    findings = Findings()
    files = 0
    definitions = 0
    with _misuse():
        for path in source:
            for protocol in compile_source(path, findings):
                own = [file for file in protocol.files if file.path != HEADERS]
                files += len(own)
                definitions += sum(len(file.structs) + len(file.enums) for file in own)
    _report(findings, format_, strict=strict)
    if findings.has_errors or (strict and findings.has_style):
        sys.exit(1)
    if format_ == "text":
        click.echo(f"{quantity(files, 'file')}, {quantity(definitions, 'definition')}: no errors")


@main.command(
    epilog=examples(
        "krammar fmt definitions/",
        "krammar fmt definitions/kafka_wire/fetch.krm --diff",
        "krammar fmt definitions/ --check             # in CI: exit 1 if a file would change",
    )
)
@click.argument("path", type=_SOURCE, nargs=-1, required=True)
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Change nothing; show what would change.")
@_format_option
def fmt(path: tuple[Path, ...], check: bool, diff: bool, format_: str) -> None:
    """Bring definition files into their canonical layout.

    Mends style: trailing spaces, blank lines, the end of the file, the indent of comments. It never
    changes a meaning, and leaves a file with errors as it is.
    """
    import difflib

    from krammar.compiler import source as sources
    from krammar.compiler.findings import Findings
    from krammar.compiler.formatter import format_source
    from krammar.compiler.parser import parse_file

    findings = Findings()
    changed = 0
    with _misuse():
        files = [file for one in path for folder in sources.folders(one) for file in folder.files]
        for file in files:
            mine = Findings()
            parse_file(file, data := file.read_bytes(), mine)
            if mine.has_errors:
                findings.merge(mine)
                continue
            before = data.decode("utf-8")
            after = format_source(before)
            if before == after:
                continue
            changed += 1
            if diff:
                for line in difflib.unified_diff(
                    _diff_lines(before), _diff_lines(after), str(file), str(file), lineterm=""
                ):
                    click.echo(line)
            elif check:
                click.echo(f"would format {file}")
            else:
                sources.replace_file(file, after.encode("utf-8"))
                click.echo(f"formatted {file}")
    if findings.has_errors:
        findings.keep_errors()
        _report(findings, format_)
    verb = "would change" if check or diff else "changed"
    click.echo(f"{quantity(len(files), 'file')}, {changed} {verb}", err=True)
    if findings.has_errors or (check and changed):
        sys.exit(1)


@main.command(
    epilog=examples(
        "krammar diff released/definitions definitions/",
        "git worktree add /tmp/released v1.2 && krammar diff /tmp/released/definitions definitions/",
        "krammar diff old/ new/ --wire --format github   # in CI: what peers would notice",
    )
)
@click.argument("old", type=_SOURCE)
@click.argument("new", type=_SOURCE)
@click.option("--wire", is_flag=True, help="Only what peers would notice, not what code would.")
@_format_option
def diff(old: Path, new: Path, wire: bool, format_: str) -> None:
    """Compare two sets of definitions: exit 1 if NEW breaks those who use OLD.

    \b
    B1xx  on the wire: a message or a version is gone, or the bytes of a
          version that is out are not what they were
    B2xx  in Python: a name is gone, or a default is another one

    What is new and breaks nobody is listed.
    """
    from krammar.compiler.compatibility import WIRE, compare
    from krammar.compiler.findings import Findings
    from krammar.compiler.source import compile_source

    findings = Findings()
    with _misuse():
        before, after = (compile_source(source, findings) for source in (old, new))
    findings.keep_errors()
    if findings.has_errors:
        _report(findings, format_)
        sys.exit(1)
    news = compare(before, after, findings)
    if wire:
        findings.found = [each for each in findings.found if each.code.startswith(WIRE)]
    _report(findings, format_)
    if format_ == "text":
        for line in news:
            click.echo(f"new: {line}")
        if not findings.found:
            click.echo("nothing breaks")
    if findings.found:
        sys.exit(1)


@main.command(
    epilog=examples(
        "krammar docs definitions/ -o build/reference",
        "krammar docs protocol/ -o site/protocol && python -m http.server -d site",
    )
)
@click.argument("source", type=_SOURCE)
@click.option("-o", "--out", type=_FOLDER, required=True, help="Where pages are written.")
@_format_option
def docs(source: Path, out: Path, format_: str) -> None:
    """Write the HTML reference of the protocols below SOURCE.

    A page lists the messages of a protocol, and each definition file has one: fields with types,
    versions and documentation, and the bytes of each version. The pages need no server.
    """
    from krammar.compiler.findings import Findings
    from krammar.compiler.reference import write_reference
    from krammar.compiler.source import compile_source

    findings = Findings()
    with _misuse():
        protocols = compile_source(source, findings)
        findings.keep_errors()
        if findings.has_errors:
            _report(findings, format_)
            click.echo("nothing was written", err=True)
            sys.exit(1)
        for page in write_reference(protocols, source.resolve().name, out):
            click.echo(page)


@main.command(
    "import",
    epilog=examples(
        "krammar import kafka/clients/src/main/resources/common/message -o definitions/kafka_wire",
        "krammar import kafka-4.4/message kafka-3.9/message -o definitions/kafka_wire",
        "krammar import schemas/ -o out/ --docs       # carry the schemas' prose along",
    ),
)
@click.argument("source", type=_SOURCE, nargs=-1, required=True, metavar="KAFKA_JSON_DIR...")
@click.option(
    "-o", "--out", type=_FOLDER, required=True, help="Where definition files are written."
)
@click.option("--docs", is_flag=True, help="Carry the schemas' prose along, as comments.")
@click.option(
    "--enums",
    is_flag=True,
    help="Type error codes and the like by krammar's own enums.krm of Kafka.",
)
@click.option(
    "--release", multiple=True, help="The Kafka release of each folder, named in the files' heads."
)
def import_(
    source: tuple[Path, ...], out: Path, docs: bool, enums: bool, release: tuple[str, ...]
) -> None:
    """Turn Apache Kafka's JSON message schemas into definition files.

    Several folders merge: for each message the schema with the highest version counts, and where it
    has dropped old versions, the older ones supply them. Nothing is written if a schema is broken.
    """
    from krammar.compiler.importer import KAFKA_ENUMS, SchemaError, import_schemas
    from krammar.compiler.source import replace_file

    if release and len(release) != len(source):
        raise click.UsageError("give --release once for each folder, in the same order")
    with _misuse():
        try:
            result = import_schemas(
                source, docs=docs, enums=KAFKA_ENUMS if enums else None, releases=release
            )
        except SchemaError as error:
            click.echo(str(error), err=True)
            sys.exit(1)
        for warning in result.warnings:
            click.echo(f"warning: {warning}", err=True)
        for name, text in result.files.items():
            replace_file(out / name, text.encode("utf-8"))
    click.echo(f"{out}: {quantity(len(result.files), 'file')} written")


@main.command(
    epilog=examples(
        "krammar inspect kafka_wire MetadataRequest 12 request.bin",
        "krammar inspect kafka_wire OffsetCommitValue --hex 000300000000000000070000000100000000...",
        "krammar inspect kafka_wire request frame.bin      # a frame: header, then its body",
        "krammar inspect kafka_wire OffsetCommitValue value.bin  # it holds its version itself",
        "krammar inspect kafka_wire FetchRequest 16        # no data: shows the layout",
    )
)
@click.argument("package")
@click.argument("name")
@click.argument("version", required=False)
@click.argument("file", required=False)
@click.option("--hex", "hex_", help="The bytes, in hexadecimal.")
def inspect(
    package: str, name: str, version: str | None, file: str | None, hex_: str | None
) -> None:
    """Show bytes as a tree of fields with offsets and hex.

    PACKAGE is a generated package that can be imported from here, NAME one of its classes or
    `request`, FILE a file of bytes, or - for standard input. Where the bytes break off or go wrong,
    what was read until there is shown with the error.
    """
    from krammar.inspect import InspectError, inspect_bytes, show_layout

    if version is not None and file is None and not version.lstrip("-").isdecimal():
        version, file = None, version
    try:
        number = None if version is None else int(version)
    except ValueError:
        raise click.UsageError(f"VERSION is a number, not {version!r}") from None
    if file is not None and hex_ is not None:
        raise click.UsageError("give FILE or --hex, not both")
    # As `python -m` does, so that packages in this folder are found.
    sys.path.append(os.getcwd())
    data = None
    if hex_ is not None:
        try:
            data = bytes.fromhex(hex_)
        except ValueError as error:
            raise click.UsageError(f"--hex: {error}") from error
    elif file is not None:
        with _misuse(), click.open_file(file, "rb") as stream:
            data = stream.read()
    try:
        if data is None:
            lines, failure = show_layout(package, name, number), None
        else:
            lines, failure = inspect_bytes(package, name, number, data)
    except InspectError as misuse:
        raise click.UsageError(str(misuse)) from misuse
    for line in lines:
        click.echo(line)
    if failure is not None:
        click.echo(f"error: {failure}", err=True)
        sys.exit(1)


def _diff_lines(text: str) -> list[str]:
    """Lines for a diff; the end of a last line without a newline shows, as ``diff`` shows it."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], f"{lines[-1]}\n{_NO_NEWLINE}"]


_NO_NEWLINE = "\\ No newline at end of file"


def _report(findings: Findings, format_: str, *, strict: bool = False) -> None:
    from krammar.compiler.findings import FORMATS

    found = findings.sorted()
    text = FORMATS[format_](found, strict=strict)
    if text and (found or format_ == "json"):
        click.echo(text)
    if found and format_ == "text":
        style = 0 if strict else sum(finding.is_style for finding in found)
        counted = [quantity(len(found) - style, "error")] if len(found) > style else []
        counted += [quantity(style, "warning")] if style else []
        click.echo(f"\n{' and '.join(counted)}", err=True)


@contextmanager
def _misuse() -> Iterator[None]:
    """Turn what a user can mend into one line and exit code 2."""
    from krammar.compiler.source import SourceError

    try:
        yield
    except (SourceError, OSError) as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def _progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, where that is a terminal and there is something to wait for."""
    if length < 8 or not sys.stderr.isatty():
        yield lambda _: None
        return
    empty: Iterable[int] = ()
    with click.progressbar(empty, length=length, label=label, file=sys.stderr) as bar:
        yield bar.update


@main.command(
    epilog=examples(
        "krammar tap --listen 127.0.0.1:9093 --upstream 127.0.0.1:9092",
        "krammar tap --upstream broker:9092 --summary --quiet     # only what is wrong, and a table",
        "krammar tap --upstream broker:9092 --save orders.tap     # keep the frames",
        "krammar tap orders.tap --summary                         # list them again",
        "krammar tap orders.tap --json | jq 'select(.api == \"Produce\").message'",
    )
)
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option(
    "--listen",
    multiple=True,
    metavar="HOST:PORT",
    help="Where clients connect; on this machine alone unless HOST says otherwise. Port 0 is any "
    "free one.  [default: 127.0.0.1:9093]",
)
@click.option(
    "--upstream",
    multiple=True,
    metavar="HOST:PORT",
    help="The broker to pass frames on to. Give several, each with its --listen, to have several "
    "bootstrap addresses.",
)
@click.option(
    "--advertise",
    metavar="HOST",
    help="The host by which clients reach this machine, where it is not the one of --listen.",
)
@click.option("--summary", is_flag=True, help="At the end, a table by api and version.")
@click.option("--json", "json_", is_flag=True, help="One JSON object a frame, with the message.")
@click.option("-q", "--quiet", is_flag=True, help="List only frames that something is wrong with.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Keep the frames, passwords and all, in FILE; an older capture there is replaced.",
)
@click.option(
    "--max-frame",
    type=click.IntRange(1, 0x7FFFFFFF),
    default=100 * 1024 * 1024,
    show_default=True,
    metavar="BYTES",
    help="Pass larger frames on unread.",
)
@click.option("--stay", is_flag=True, help="Go on when the brokers have gone.")
def tap(
    file: Path | None,
    listen: tuple[str, ...],
    upstream: tuple[str, ...],
    advertise: str | None,
    summary: bool,
    json_: bool,
    quiet: bool,
    save: Path | None,
    max_frame: int,
    stay: bool,
) -> None:
    """Watch clients and brokers talk, or list a capture: FILE.

    A proxy that decodes every Kafka frame in both directions, encodes it again and checks that the
    bytes are the same. Clients connect to it instead of the broker; brokers that responses name get
    a port of their own here, so that clients stay on it. Frames that cannot be read are reported and
    passed on as they came. ApiVersions responses are limited to the versions that krammar knows.

    It ends with Ctrl-C, SIGTERM, or when the brokers have gone; exit code 1 says that not every frame
    could be read and encoded to the same bytes.
    """
    import kafka_wire

    from krammar.tap.capture import CaptureError
    from krammar.tap.proxy import Address, Route, TapError
    from krammar.tap.run import Output, run_live, run_replay

    output = Output(click.echo, lambda line: click.echo(line, err=True), json=json_, only_bad=quiet)
    try:
        if file is not None:
            if listen or upstream or save or advertise or stay:
                raise click.UsageError("FILE is listed as it is: it goes with no other address")
            counted = run_replay(kafka_wire, file, output)
        elif not upstream:
            raise click.UsageError("give --upstream HOST:PORT, or a capture to list")
        else:
            places = listen or (("127.0.0.1:9093",) if len(upstream) == 1 else ())
            if len(places) != len(upstream):
                raise click.UsageError("every --upstream needs its --listen")
            routes = [
                Route(Address.parse(place), Address.parse(broker))
                for place, broker in zip(places, upstream, strict=True)
            ]
            counted = run_live(
                kafka_wire,
                routes,
                output,
                save=save,
                advertise=advertise,
                max_frame=max_frame,
                stay=stay,
            )
    except (CaptureError, TapError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    except BrokenPipeError:
        raise  # click ends quietly where nobody reads on, as in a pipe to head
    except OSError as error:
        raise click.ClickException(str(error)) from error
    if summary:
        click.echo(counted.table(), err=json_)
    else:
        click.echo(counted.verdict(), err=True)
    if not counted.all_good:
        sys.exit(1)


if __name__ == "__main__":
    main()


@main.command(
    epilog=examples(
        "krammar broker --data-dir data",
        "krammar broker --data-dir data --port 9093 --override num.partitions=4",
        "krammar broker server.properties          # as Kafka's own start script takes it",
        "krammar broker --data-dir data --fsync always   # survives a power cut too",
        "krammar broker --data-dir data --protocol wafka --port 9095 --kafka-port 9092",
    )
)
@click.argument(
    "properties", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option("--data-dir", type=_FOLDER, help="Where logs and metadata are kept (log.dirs).")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Listen on this port of loopback. 0 is any free one.  [default: 9092, of wafka 9095]",
)
@click.option(
    "--protocol",
    type=click.Choice(["kafka", "wafka"]),
    default="kafka",
    show_default=True,
    help="What is spoken on --port. Wafka's records are in topics that Kafka clients read, on "
    "--kafka-port.",
)
@click.option(
    "--kafka-port",
    type=click.IntRange(0, 65535),
    help="With --protocol wafka: where Kafka clients connect.  [default: 9092]",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The same as PROPERTIES.",
)
@click.option(
    "--override",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting by Kafka's name, before those of the file. Can be repeated.",
)
@click.option(
    "--fsync",
    type=click.Choice(["always", "interval", "never"]),
    help="When data is written through to the disk: before each answer, now and then, or when the "
    "system likes to. A crash of the broker loses nothing in any case.  [default: interval]",
)
def broker(
    properties: Path | None,
    data_dir: Path | None,
    port: int | None,
    protocol: str,
    kafka_port: int | None,
    config: Path | None,
    override: tuple[str, ...],
    fsync: str | None,
) -> None:
    """Run a Kafka-compatible broker of one node.

    It takes Kafka's server.properties, keeps its data in Kafka's own files, and starts on folders
    that Kafka has written. It serves until it gets INT or TERM.
    """
    import time

    started = time.perf_counter()
    from krammar.broker.config import BrokerConfig, ConfigError
    from krammar.broker.errors import BrokerError
    from krammar.broker.run import run

    if properties is not None and config is not None:
        raise click.UsageError("give PROPERTIES or --config, not both")
    source = properties or config
    overrides = {}
    for setting in override:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"--override {setting}: needs KEY=VALUE")
        overrides[key.strip()] = value.strip()
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
        raise click.UsageError("--kafka-port goes with --protocol wafka; --port is Kafka's without")
    elif port is not None:
        overrides["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
    if fsync is not None:
        overrides["krammar.fsync"] = fsync
    try:
        settings = BrokerConfig.from_properties(source if source is not None else "", overrides)
        run(settings, click.echo, started)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    except BrokerError as error:
        raise click.ClickException(str(error)) from None


main.add_command(users, "broker-user")
for command in (topics, produce, consume, wafka_produce, compile_):
    main.add_command(command)
