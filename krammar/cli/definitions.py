"""The verbs that read definitions: gen, check, fmt, diff and docs; and import, which writes them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krammar.cli.options import examples
from krammar.cli.output import quantity

if TYPE_CHECKING:
    from krammar.util.diagnostics import Diagnostics

_SOURCE = click.Path(exists=True, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


def _format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--format",
        "format_",
        type=click.Choice(["text", "json", "github"]),
        default="text",
        show_default=True,
        help="The format of diagnostics.",
    )(command)


def _all_files_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--all-files",
        is_flag=True,
        help="Read every file in a folder, not only *.krm files. Hidden files and *.md files are skipped.",
    )(command)


@click.command(
    epilog=examples(
        "krammar gen definitions/ -o generated/",
        "krammar gen protocol/ -o src/myapp/wire         # files directly in SOURCE: OUT is the package",
        "krammar gen definitions/ -o generated/ --check  # exit 1 if anything would change",
        "krammar gen definitions/ -o schemas/ --backend json-schema",
    )
)
@click.argument("source", type=_SOURCE)
@click.option("-o", "--out", type=_FOLDER, required=True, help="Folder to write packages to.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if anything would change.")
@click.option("--force", is_flag=True, help="Replace files that krammar did not write.")
@click.option(
    "--backend",
    default="python",
    show_default=True,
    metavar="NAME",
    help="What to generate: python, json-schema, docs, native, wireshark, or a backend of an installed "
    "package.",
)
@click.option(
    "--option",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the backend. Can be repeated.",
)
@click.option(
    "--templates", type=_SOURCE, help="A folder of your own templates; --option templates=PATH."
)
@_all_files_option
@_format_option
def gen(
    source: Path,
    out: Path,
    check: bool,
    force: bool,
    backend: str,
    option: tuple[str, ...],
    templates: Path | None,
    all_files: bool,
    format_: str,
) -> None:
    """Generate Python packages, or other files, from definitions.

    SOURCE is a definition file, or a folder with definition files (*.krm). Every folder that contains
    definition files becomes a package at the same place in OUT.

    krammar writes only files that change. It removes files that an earlier run wrote and that are no
    longer needed. Files that krammar did not write are never removed, and are replaced only with
    --force. If there are errors, nothing is written.
    """
    from krammar.compiler.front import source as sources
    from krammar.compiler.generate import Generator
    from krammar.util.diagnostics import STYLE, Diagnostics

    with _misuse():
        folders = sources.folders(source, all_files=all_files)
        generator = Generator(source, out, backend, _options(option, templates))
        diagnostics = Diagnostics()
        protocols = [sources.compile_folder(folder, diagnostics) for folder in folders]
        if diagnostics.has_errors:
            _report(diagnostics, format_)
            click.echo("nothing was written", err=True)
            sys.exit(1)
        rendered = generator.render(folders, protocols)
        with _progress("generating", rendered.size) as advance:
            outcome = generator.write(rendered, check=check, force=force, progress=advance)
        diagnostics.found = [each for each in diagnostics.found if not each.code.startswith(STYLE)]
        if diagnostics.found:
            _report(diagnostics, format_)
    if check:
        for path in outcome.written:
            click.echo(f"would change {path}")
        for path in outcome.removed:
            click.echo(f"would remove {path}")
        if outcome.drift:
            click.echo(f"run `krammar gen {source} -o {out}`", err=True)
            sys.exit(1)
        click.echo(f"{out}: {quantity(len(outcome.unchanged), 'file')}, all current")
        return
    click.echo(
        f"{out}: {len(outcome.written)} written, {len(outcome.unchanged)} unchanged, "
        f"{len(outcome.removed)} removed"
    )


@click.command(
    epilog=examples(
        "krammar check definitions/",
        "krammar check definitions/ --strict --format github   # in CI: style warnings are errors too",
        "krammar check definitions/ --format json | jq .",
    )
)
@click.argument("source", type=_SOURCE, nargs=-1, required=True)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@_all_files_option
@_format_option
def check(source: tuple[Path, ...], strict: bool, all_files: bool, format_: str) -> None:
    """Check definition files.

    krammar reports all errors and warnings, each with its position and a hint. docs/diagnostics.md lists
    the codes: Exxx are errors, Wxxx are warnings, and W9xx are style warnings, which `krammar fmt`
    corrects.
    """
    from krammar.compiler.front.source import compile_source
    from krammar.util.diagnostics import Diagnostics

    diagnostics = Diagnostics()
    files = 0
    definitions = 0
    with _misuse():
        for path in source:
            for protocol in compile_source(path, diagnostics, all_files=all_files):
                own = [file for file in protocol.files if file.own]
                files += len(own)
                definitions += sum(len(file.structs) + len(file.enums) for file in own)
    _report(diagnostics, format_, strict=strict)
    if diagnostics.has_errors or (strict and diagnostics.has_style):
        sys.exit(1)
    if format_ == "text":
        click.echo(f"{quantity(files, 'file')}, {quantity(definitions, 'definition')}: no errors")


@click.command(
    epilog=examples(
        "krammar fmt definitions/",
        "krammar fmt definitions/kafka_wire/fetch.krm --diff",
        "krammar fmt definitions/ --check             # in CI: exit 1 if a file would change",
    )
)
@click.argument("path", type=_SOURCE, nargs=-1, required=True)
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Change nothing; print what would change.")
@_all_files_option
@_format_option
def fmt(path: tuple[Path, ...], check: bool, diff: bool, all_files: bool, format_: str) -> None:
    """Format definition files.

    krammar corrects trailing spaces, blank lines, the end of the file and the indent of comments. The
    meaning of a file never changes. Files with errors are not changed.
    """
    import difflib

    from krammar.compiler.formatter import format_source
    from krammar.compiler.front import source as sources
    from krammar.compiler.front.parser import parse_file
    from krammar.compiler.write import replace_file
    from krammar.util.diagnostics import Diagnostics

    diagnostics = Diagnostics()
    changed = 0
    with _misuse():
        folders = [folder for one in path for folder in sources.folders(one, all_files=all_files)]
        files = [file for folder in folders for file in folder.files]
        for file in files:
            mine = Diagnostics()
            parse_file(file, data := file.read_bytes(), mine)
            if mine.has_errors:
                diagnostics.merge(mine)
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
                replace_file(file, after.encode("utf-8"))
                click.echo(f"formatted {file}")
    if diagnostics.has_errors:
        diagnostics.keep_errors()
        _report(diagnostics, format_)
    verb = "would change" if check or diff else "changed"
    click.echo(f"{quantity(len(files), 'file')}, {changed} {verb}", err=True)
    if diagnostics.has_errors or (check and changed):
        sys.exit(1)


@click.command(
    epilog=examples(
        "krammar diff released/definitions definitions/",
        "git worktree add /tmp/released v1.2 && krammar diff /tmp/released/definitions definitions/",
        "krammar diff old/ new/ --wire --format github   # in CI: only changes on the wire",
    )
)
@click.argument("old", type=_SOURCE)
@click.argument("new", type=_SOURCE)
@click.option(
    "--wire",
    is_flag=True,
    help="Report only changes on the wire (B1xx), not changes of the Python API (B2xx).",
)
@_all_files_option
@_format_option
def diff(old: Path, new: Path, wire: bool, all_files: bool, format_: str) -> None:
    """Report changes between two sets of definitions.

    The exit code is 1 if a change from OLD to NEW breaks programs that use OLD:

    \b
    B1xx  on the wire: a message or a version is missing, or the bytes of a
          version differ
    B2xx  in the Python API: a name is missing, or a default differs

    Compatible additions are listed too.
    """
    from krammar.compiler.compatibility import WIRE, compare
    from krammar.compiler.front.source import compile_source
    from krammar.util.diagnostics import Diagnostics

    diagnostics = Diagnostics()
    with _misuse():
        before, after = (
            compile_source(source, diagnostics, all_files=all_files) for source in (old, new)
        )
    diagnostics.keep_errors()
    if diagnostics.has_errors:
        _report(diagnostics, format_)
        sys.exit(1)
    news = compare(before, after, diagnostics)
    if wire:
        diagnostics.found = [each for each in diagnostics.found if each.code.startswith(WIRE)]
    _report(diagnostics, format_)
    if format_ == "text":
        for line in news:
            click.echo(f"new: {line}")
        if not diagnostics.found:
            click.echo("no breaking changes")
    if diagnostics.found:
        sys.exit(1)


@click.command(
    epilog=examples(
        "krammar docs definitions/ -o build/reference",
        "krammar docs protocol/ -o site/protocol && python -m http.server -d site",
    )
)
@click.argument("source", type=_SOURCE)
@click.option("-o", "--out", type=_FOLDER, required=True, help="Folder to write pages to.")
@_all_files_option
@_format_option
def docs(source: Path, out: Path, all_files: bool, format_: str) -> None:
    """Write an HTML reference of protocols.

    SOURCE is a definition file, or a folder with definition files (*.krm). One page lists the messages
    of a protocol, and one lists the protocols if there are several. Each definition file has a page with
    its fields, types, versions and documentation, the bytes of each version, and what changed between
    versions. The search finds messages, fields, enums, error codes and KIPs. A browser can open the
    pages without a server.
    """
    from krammar.compiler.front.source import compile_source
    from krammar.compiler.generate import Generator
    from krammar.compiler.write import write
    from krammar.util.diagnostics import Diagnostics

    diagnostics = Diagnostics()
    with _misuse():
        protocols = compile_source(source, diagnostics, all_files=all_files)
        diagnostics.keep_errors()
        if diagnostics.has_errors:
            _report(diagnostics, format_)
            click.echo("nothing was written", err=True)
            sys.exit(1)
        several = any(protocol.package for protocol in protocols)
        generator = Generator(source, out, "docs", {"home": "index.html"} if several else {})
        rendered = {
            path: text
            for protocol in protocols
            for path, text in generator.package(protocol).items()
        }
        if several:
            rendered |= generator.overview(protocols)
        write(out, generator.owner, rendered, force=True)
        click.echo(out / "index.html")


@click.command(
    "import",
    epilog=examples(
        "krammar import kafka/clients/src/main/resources/common/message -o definitions/kafka_wire",
        "krammar import kafka-4.4/message kafka-3.9/message -o definitions/kafka_wire",
        "krammar import schemas/ -o out/ --docs       # include the schemas' documentation",
    ),
)
@click.argument("source", type=_SOURCE, nargs=-1, required=True, metavar="KAFKA_JSON_DIR...")
@click.option(
    "-o", "--out", type=_FOLDER, required=True, help="Folder to write definition files to."
)
@click.option("--docs", is_flag=True, help="Include the schemas' documentation, as comments.")
@click.option(
    "--enums",
    is_flag=True,
    help="Give error codes and similar fields the enum types of krammar's enums.krm.",
)
@click.option(
    "--release",
    multiple=True,
    help="The Kafka release of each folder, for the first line of each file.",
)
def import_(
    source: tuple[Path, ...], out: Path, docs: bool, enums: bool, release: tuple[str, ...]
) -> None:
    """Convert Apache Kafka's JSON schemas to definition files.

    Several folders are merged. For each message, the schema with the highest version takes precedence.
    Versions that it no longer has are added from the older schemas. If a schema is invalid, nothing is
    written.
    """
    from krammar.compiler.importer import KAFKA_ENUMS, SchemaError, import_schemas
    from krammar.compiler.write import replace_file

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


def _options(given: Iterable[str], templates: Path | None) -> dict[str, str]:
    """Parse --option and --templates."""
    options = {} if templates is None else {"templates": str(templates)}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--option {text}: needs NAME=VALUE")
        options[name] = value
    return options


def _diff_lines(text: str) -> list[str]:
    """Split a text for a diff. A missing newline at the end is marked, as ``diff`` marks it."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], f"{lines[-1]}\n{_NO_NEWLINE}"]


_NO_NEWLINE = "\\ No newline at end of file"


def _report(diagnostics: Diagnostics, format_: str, *, strict: bool = False) -> None:
    from krammar.util.diagnostics import FORMATS

    found = diagnostics.sorted()
    text = FORMATS[format_](found, strict=strict)
    if text and (found or format_ == "json"):
        click.echo(text)
    if found and format_ == "text":
        style = 0 if strict else sum(diagnostic.is_style for diagnostic in found)
        counted = [quantity(len(found) - style, "error")] if len(found) > style else []
        counted += [quantity(style, "warning")] if style else []
        click.echo(f"\n{' and '.join(counted)}", err=True)


@contextmanager
def _misuse() -> Iterator[None]:
    """Print errors that a user can correct as one line, with exit code 2."""
    from krammar.compiler.front.source import SourceError

    try:
        yield
    except (SourceError, OSError) as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def _progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar if standard error is a terminal and there is work to do."""
    if not length or not sys.stderr.isatty():
        yield lambda _: None
        return
    empty: Iterable[int] = ()
    with click.progressbar(empty, length=length, label=label, file=sys.stderr) as bar:
        yield bar.update
