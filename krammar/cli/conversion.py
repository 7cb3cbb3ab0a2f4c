"""The verbs that convert definitions from and to other descriptions: import and export."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from krammar.cli.options import DEFINITIONS, FOLDER, SOURCE, examples, key_values
from krammar.cli.output import echo, quantity
from krammar.cli.reporting import all_files_option, format_option, misuse, report, say

if TYPE_CHECKING:
    from krammar.compiler.guide import Answers
    from krammar.compiler.schemas import ImportResult


@click.command(
    "import",
    epilog=examples(
        "krammar import protocol.md --key ApiVersions=18 --key Fetch=1 -o definitions/kafka",
        "krammar import README.md -o out/ --key Produce=0 --type 'RECORDS=[string]'",
        "krammar import kafka/clients/src/main/resources/common/message -o definitions/kafka_wire",
        "krammar import kafka-4.4/message kafka-3.9/message -o definitions/kafka_wire --docs",
    ),
)
@click.argument("source", type=SOURCE, nargs=-1, required=True, metavar="TEXT|KAFKA_JSON_DIR...")
@click.option(
    "-o",
    "--out",
    type=FOLDER,
    help="Folder to write definition files to. Without it, krammar prints the definitions.",
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--key", multiple=True, metavar="API=KEY", help="Texts: the API key of a request.")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="WORD=TYPE",
    help="Texts: the type of definitions for a word such as RECORDS.",
)
@click.option(
    "--nullable",
    multiple=True,
    metavar="PATH",
    help="Texts: a field that can be null, such as FetchRequest.topics.",
)
@click.option(
    "--default",
    "defaults",
    multiple=True,
    metavar="PATH=VALUE",
    help="Texts: the default of a field, such as FetchRequest.replica_state.replica_id=-1.",
)
@click.option(
    "--array",
    "arrays",
    multiple=True,
    metavar="PATH=yes|no",
    help="Texts: whether a tagged field is an array, such as FetchResponse.node_endpoints=yes.",
)
@click.option("--docs", is_flag=True, help="JSON: include the schemas' documentation, as comments.")
@click.option(
    "--enums",
    is_flag=True,
    help="JSON: give error codes and similar fields the enum types of krammar's enums.krm.",
)
@click.option(
    "--release",
    multiple=True,
    help="JSON: the Kafka release of each folder, for the first line of each file.",
)
@format_option
def import_(
    source: tuple[Path, ...],
    out: Path | None,
    force: bool,
    key: tuple[str, ...],
    types: tuple[str, ...],
    nullable: tuple[str, ...],
    defaults: tuple[str, ...],
    arrays: tuple[str, ...],
    docs: bool,
    enums: bool,
    release: tuple[str, ...],
    format_: str,
) -> None:
    """Convert protocol guides or Kafka's schemas to definitions.

    A TEXT is a file that describes messages in the notation of Kafka's protocol guide, in prose, in code
    blocks or in HTML, or a folder of Apache Kafka's JSON message schemas. krammar merges all versions of a
    message. It asks for what the texts do not contain, such as API keys.

    Several folders of JSON schemas are merged. For each message, the schema with the highest version
    takes precedence. Versions that it no longer has are added from the older schemas.

    If the source is invalid, nothing is written. Files that exist are replaced only with --force.
    """
    from krammar.compiler.importer import import_schemas
    from krammar.compiler.kafka_facts import KAFKA_ENUMS
    from krammar.compiler.schemas import ImportSchemaError

    texts = [path for path in source if path.is_file()]
    if texts and len(texts) < len(source):
        raise click.UsageError("give files or folders, not both")
    if texts and (docs or enums or release):
        raise click.UsageError("--docs, --enums and --release need folders of JSON schemas")
    if not texts and (key or types or nullable or defaults or arrays):
        raise click.UsageError(
            "--key, --type, --nullable, --default and --array need texts, not folders"
        )
    if release and len(release) != len(source):
        raise click.UsageError("give --release once for each folder, in the same order")
    with misuse():
        try:
            if texts:
                answers = _answers(key, types, nullable, defaults, arrays)
                result = _import_texts(texts, out, answers, format_)
            else:
                result = import_schemas(
                    source, docs=docs, enums=KAFKA_ENUMS if enums else None, releases=release
                )
        except ImportSchemaError as error:
            echo(str(error), err=True)
            sys.exit(1)
        for warning in result.warnings:
            echo(f"warning: {warning}", err=True)
        if out is None:
            echo("\n".join(f"// {name}\n\n{text}" for name, text in result.files.items()), nl=False)
            return
        _write_new({out / name: text for name, text in result.files.items()}, force=force)
    say(f"{out}: {quantity(len(result.files), 'file')} written", format_)


@click.command(
    epilog=examples(
        "krammar export --kafka-json protocol/ -o schemas/",
        "krammar export --kafka-json definitions/kafka_wire -o schemas/ --skip",
    ),
)
@click.argument("source", type=DEFINITIONS)
@click.option(
    "--kafka-json",
    "kafka_json",
    is_flag=True,
    required=True,
    help="Write Apache Kafka's JSON message schemas.",
)
@click.option("-o", "--out", type=FOLDER, required=True, help="Folder to write files to.")
@click.option(
    "--skip", is_flag=True, help="Skip what the schemas cannot express, instead of failing."
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
@all_files_option
@format_option
def export(
    source: Path,
    kafka_json: bool,
    out: Path,
    skip: bool,
    force: bool,
    all_files: bool,
    format_: str,
) -> None:
    """Convert definitions to the formats of other tools.

    SOURCE is a definition file, a folder with definition files (*.krm), or a package that comes
    with krammar, such as kafka_wire. Kafka's JSON schemas have no enums, which become integers. A
    struct that they cannot express, such as one with varints, is an error; with --skip, the others are exported. `krammar import` reads the schemas again. For JSON
    Schema, see `krammar gen --backend json-schema`.

    If there are errors, nothing is written. Files that exist are replaced only with --force.
    """
    from krammar.compiler.front.source import compile_source
    from krammar.compiler.kafka_json import export as schemas
    from krammar.util.diagnostics import Diagnostics

    diagnostics = Diagnostics()
    files: dict[Path, str] = {}
    with misuse():
        protocols = compile_source(source, diagnostics, all_files=all_files)
        diagnostics.keep_errors()
        if diagnostics.has_errors:
            report(diagnostics, format_)
            echo("nothing was written", err=True)
            sys.exit(1)
        refused = 0
        for protocol in protocols:
            exported = schemas(protocol)
            files |= {out / protocol.package / name: text for name, text in exported.files.items()}
            for name, reason in exported.refused.items():
                refused += 1
                start, end = ("warning: ", "skipped, because ") if skip else ("error: ", "")
                echo(f"{start}{name}: {end}{reason}", err=True)
            for warning in exported.warnings:
                echo(f"warning: {warning}", err=True)
        if refused and not skip:
            echo(
                "Kafka's schemas cannot express this, so nothing was written (change the definitions, or export "
                "the others with --skip)",
                err=True,
            )
            sys.exit(1)
        _write_new(files, force=force)
    say(f"{out}: {quantity(len(files), 'file')} written", format_)


def _answers(
    key: tuple[str, ...],
    types: tuple[str, ...],
    nullable: tuple[str, ...],
    defaults: tuple[str, ...],
    arrays: tuple[str, ...],
) -> Answers:
    from krammar.compiler.guide import Answers

    keys = key_values("--key", key)
    for name, number in keys.items():
        if not re.fullmatch("[0-9]{1,5}", number) or int(number) > 0x7FFF:
            raise click.UsageError(f"--key {name}={number}: needs a number from 0 to 32767")
    facts = key_values("--array", arrays)
    for name, answer in facts.items():
        if answer not in ("yes", "no"):
            raise click.UsageError(f"--array {name}={answer}: needs yes or no")
    return Answers(
        {name: int(number) for name, number in keys.items()},
        key_values("--type", types),
        frozenset(nullable),
        key_values("--default", defaults),
        {name: answer == "yes" for name, answer in facts.items()},
    )


def _import_texts(
    texts: list[Path], out: Path | None, answers: Answers, format_: str
) -> ImportResult:
    """Convert texts and compile the result. Exits if there are errors."""
    from krammar.compiler.front.source import compile_texts
    from krammar.compiler.guide import import_guides
    from krammar.util.diagnostics import Diagnostics

    diagnostics = Diagnostics()
    result = import_guides(texts, answers, diagnostics)
    if result is not None:
        encoded = {
            (out or Path()) / name: text.encode("utf-8") for name, text in result.files.items()
        }
        compile_texts("", encoded, diagnostics)
    report(diagnostics, format_, err=out is None)
    if result is None or diagnostics.has_errors:
        echo("nothing was written", err=True)
        sys.exit(1)
    return result


def _write_new(files: dict[Path, str], *, force: bool) -> None:
    """Write files. Raises UsageError if other files of these names exist, unless ``force``."""
    from krammar.compiler.write import replace_file

    changed = {
        path: text.encode("utf-8")
        for path, text in files.items()
        if not (path.is_file() and path.read_bytes() == text.encode("utf-8"))
    }
    there = [str(path) for path in changed if path.exists()]
    if there and not force:
        more = f" and {len(there) - 3} more" if len(there) > 3 else ""
        raise click.UsageError(
            f"{', '.join(there[:3])}{more} would be replaced (give another folder, or --force)"
        )
    for path, data in changed.items():
        replace_file(path, data)
