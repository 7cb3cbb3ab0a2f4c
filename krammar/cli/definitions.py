"""The verbs that read definitions: gen, check, fmt and docs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from krammar.cli.faults import check_faults
from krammar.cli.options import DEFINITIONS, FOLDER, SOURCE, examples, package_option
from krammar.cli.output import echo, quantity
from krammar.cli.reporting import all_files_option, format_option, misuse, report, say
from krammar.util.printable import escape

if TYPE_CHECKING:
    from krammar.compiler.write import Outcome


@click.command(
    epilog=examples(
        "krammar gen definitions/ -o generated/",
        "krammar gen protocol/ -o src/myapp/wire         # files directly in SOURCE: OUT is the package",
        "krammar gen definitions/ -o generated/ --check  # exit 1 if anything would change",
        "krammar gen definitions/ -o schemas/ --backend json-schema",
    )
)
@click.argument("source", type=DEFINITIONS)
@click.option("-o", "--out", type=FOLDER, required=True, help="Folder to write packages to.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if anything would change.")
@click.option(
    "--force",
    is_flag=True,
    help="Replace files that krammar did not write, or wrote from another source.",
)
@click.option(
    "--backend",
    default="python",
    show_default=True,
    metavar="NAME",
    help="What to generate: python, json-schema, docs, wireshark, or a backend of an installed "
    "package.",
)
@click.option(
    "--option",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the backend. Can be repeated.",
)
@click.option(
    "--templates", type=SOURCE, help="A folder of your own templates; --option templates=PATH."
)
@all_files_option
@format_option
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

    SOURCE is a definition file, a folder with definition files (*.krm), or a package that comes
    with krammar, such as kafka_wire. Every folder that contains definition files becomes a package
    at the same place in OUT.

    krammar writes only files that change. It removes files that an earlier run wrote from the same
    source and that are no longer needed, unless they were changed since. Files that krammar did not
    write, or wrote from another source, are never removed, and are replaced only with --force. If
    there are errors, nothing is written.
    """
    from krammar.compiler.front import source as sources
    from krammar.compiler.generate import Generator
    from krammar.util.diagnostics import Diagnostics

    with misuse():
        folders = sources.folders(source, all_files=all_files)
        generator = Generator(source, out, backend, _options(option, templates))
        diagnostics = Diagnostics()
        protocols = [sources.compile_folder(folder, diagnostics) for folder in folders]
        if diagnostics.has_errors:
            report(diagnostics, format_)
            echo("nothing was written", err=True)
            sys.exit(1)
        rendered = generator.render(folders, protocols)
        with _progress("generating", rendered.size) as advance:
            outcome = generator.write(rendered, check=check, force=force, progress=advance)
        report(diagnostics, format_)
        _report_kept(outcome)
    if check:
        for path in outcome.written:
            say(f"would change {path}", format_)
        for path in outcome.removed:
            say(f"would remove {path}", format_)
        if outcome.drift:
            echo(f"run `krammar gen {source} -o {out}`", err=True)
            sys.exit(1)
        say(f"{out}: {quantity(len(outcome.unchanged), 'file')}, all current", format_)
        return
    say(
        f"{out}: {len(outcome.written)} written, {len(outcome.unchanged)} unchanged, "
        f"{len(outcome.removed)} removed",
        format_,
    )


@click.command(
    epilog=examples(
        "krammar check definitions/",
        "krammar check definitions/ --strict --format github   # in CI: style warnings are errors too",
        "krammar check definitions/ --format json | jq .",
        "krammar check faults.toml                             # rules for --faults",
    )
)
@click.argument("source", type=DEFINITIONS, nargs=-1, required=True)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@package_option
@all_files_option
@format_option
def check(
    source: tuple[Path, ...], strict: bool, package: str, all_files: bool, format_: str
) -> None:
    """Check definition files, and files of faults (*.toml).

    krammar reports all errors and warnings, each with its position and a hint. docs/diagnostics.md lists
    the codes: Exxx are errors, Wxxx are warnings, and W9xx are style warnings, which `krammar fmt`
    corrects. docs/faults.md lists the codes of faults (Fxxx).
    """
    from krammar.compiler.front.source import compile_source
    from krammar.util.diagnostics import Diagnostics

    diagnostics = Diagnostics()
    files = definitions = rules = 0
    with misuse():
        for path in source:
            if path.suffix == ".toml" and path.is_file():
                files += 1
                rules += check_faults(path, package, diagnostics)
                continue
            for protocol in compile_source(path, diagnostics, all_files=all_files):
                own = [file for file in protocol.files if file.own]
                files += len(own)
                definitions += sum(len(file.structs) + len(file.enums) for file in own)
    report(diagnostics, format_, strict=strict)
    if diagnostics.has_errors or (strict and diagnostics.has_style):
        sys.exit(1)
    if format_ == "text":
        counted = [(definitions, "definition"), (rules, "fault")]
        things = [quantity(number, noun) for number, noun in counted if number]
        echo(f"{', '.join([quantity(files, 'file'), *things])}: no errors")


@click.command(
    epilog=examples(
        "krammar fmt definitions/",
        "krammar fmt definitions/kafka_wire/fetch.krm --diff",
        "krammar fmt definitions/ --check             # in CI: exit 1 if a file would change",
    )
)
@click.argument("path", type=SOURCE, nargs=-1, required=True)
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Change nothing; print what would change.")
@all_files_option
@format_option
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
    with misuse():
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
                    say(_coloured(line), format_, styled=True)
            elif check:
                say(f"would format {file}", format_)
            else:
                replace_file(file, after.encode("utf-8"))
                say(f"formatted {file}", format_)
    diagnostics.keep_errors()
    report(diagnostics, format_)
    verb = "would change" if check or diff else "changed"
    echo(f"{quantity(len(files), 'file')}, {changed} {verb}", err=True)
    if diagnostics.has_errors or (check and changed):
        sys.exit(1)


@click.command(
    epilog=examples(
        "krammar docs definitions/ -o build/reference",
        "krammar docs protocol/ -o site/protocol && python -m http.server -d site",
    )
)
@click.argument("source", type=DEFINITIONS)
@click.option("-o", "--out", type=FOLDER, required=True, help="Folder to write pages to.")
@click.option("--force", is_flag=True, help="Replace files that krammar did not write.")
@all_files_option
@format_option
def docs(source: Path, out: Path, force: bool, all_files: bool, format_: str) -> None:
    """Write an HTML reference of protocols.

    SOURCE is a definition file, a folder with definition files (*.krm), or a package that comes
    with krammar, such as kafka_wire. One page lists the messages of a protocol, and one lists the protocols if there are several. Each definition file has a page with
    its fields, types, versions and documentation, the bytes of each version, and what changed between
    versions. The search finds messages, fields, enums, error codes and KIPs. A browser can open the
    pages without a server.
    """
    from krammar.compiler.front import source as sources
    from krammar.compiler.generate import Generator
    from krammar.util.diagnostics import Diagnostics

    diagnostics = Diagnostics()
    with misuse():
        folders = sources.folders(source, all_files=all_files)
        protocols = [sources.compile_folder(folder, diagnostics) for folder in folders]
        diagnostics.keep_errors()
        if diagnostics.has_errors:
            report(diagnostics, format_)
            echo("nothing was written", err=True)
            sys.exit(1)
        several = any(protocol.package for protocol in protocols)
        generator = Generator(source, out, "docs", {"home": "index.html"} if several else {})
        rendered = generator.render(folders, protocols)
        if several:
            rendered.add("", generator.overview(protocols))
        _report_kept(generator.write(rendered, force=force))
        echo(out / "index.html")


def _report_kept(outcome: Outcome) -> None:
    """Report files that would have been removed if nobody had changed them."""
    for path in outcome.kept:
        echo(
            f"{path} is not removed, because it was changed after krammar generated it (delete it, or "
            "move what you need to another file)",
            err=True,
        )


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


def _coloured(line: str) -> str:
    """Colour a line of a diff."""
    return click.style(
        escape(line, keep="\n\t"), fg={"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
    )


_NO_NEWLINE = "\\ No newline at end of file"


@contextmanager
def _progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar if standard error is a terminal and there is work to do."""
    if not length or not sys.stderr.isatty():
        yield lambda _: None
        return
    empty: Iterable[int] = ()
    with click.progressbar(empty, length=length, label=label, file=sys.stderr) as bar:
        yield bar.update
