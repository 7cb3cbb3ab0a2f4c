"""``krammar inspect`` prints the bytes of messages, and the files of log folders."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from krammar.cli.options import examples, find_packages_here, standard_input
from krammar.cli.output import echo


@click.command(
    epilog=examples(
        "krammar inspect kafka_wire MetadataRequest 12 request.bin",
        "krammar inspect kafka_wire OffsetCommitValue --hex 000300000000000000070000000100000000...",
        "krammar inspect kafka_wire request frame.bin      # a frame: header and body",
        "krammar inspect kafka_wire OffsetCommitValue value.bin  # the bytes contain the version",
        "krammar inspect kafka_wire FetchRequest 16        # without data, print the layout",
        "krammar inspect data/orders-0 --records           # Kafka's files, like kafka-dump-log",
    )
)
@click.argument("package", metavar="PACKAGE|PATH")
@click.argument("name", required=False)
@click.argument("version", required=False)
@click.argument("file", required=False)
@click.option(
    "--hex", "hex_", metavar="DIGITS", help="The bytes as hexadecimal digits, instead of FILE."
)
@click.option("--records", is_flag=True, help="With a path: print the records of batches too.")
@click.option("--json", "json_", is_flag=True, help="With a path: print one JSON object per line.")
def inspect(
    package: str,
    name: str | None,
    version: str | None,
    file: str | None,
    hex_: str | None,
    records: bool,
    json_: bool,
) -> None:
    """Print the bytes of a message, or Kafka's log files.

    \b
    krammar inspect [OPTIONS] PACKAGE NAME [VERSION] [FILE]
    krammar inspect [OPTIONS] PATH

    The first form prints the bytes of a message as a tree of fields, with offsets and hex. PACKAGE is a
    generated package that Python can import from the current folder. NAME is one of its classes, or
    `request` for a whole request. FILE contains the bytes; - is standard input. If the bytes are
    truncated or invalid, krammar prints the fields up to that point and the error. Without bytes, it
    prints the layout of the class.

    The second form prints Kafka's files like kafka-dump-log. PATH is a log folder, the folder of a
    partition, or a file in it (.log, .index, .timeindex, .txnindex, .snapshot, .checkpoint). If files
    are damaged, krammar prints each damage at its place, and the exit code is 1.
    """
    from krammar.inspect.messages import inspect_bytes, show_layout
    from krammar.wire.classes import NotFound
    from krammar.wire.errors import UnsupportedVersionError

    if name is None:
        if hex_ is not None:
            raise click.UsageError(
                "--hex needs PACKAGE and NAME: krammar inspect PACKAGE NAME --hex …"
            )
        _inspect_files(package, records=records, json_=json_)
        return
    if records or json_:
        raise click.UsageError("--records and --json need a single PATH, without NAME")
    if version is not None and file is None and not version.lstrip("-").isdecimal():
        version, file = None, version
    try:
        number = None if version is None else int(version)
    except ValueError:
        raise click.UsageError(f"VERSION must be a number, not {version!r}") from None
    if file is not None and hex_ is not None:
        raise click.UsageError("give FILE or --hex, not both")
    find_packages_here()
    data = None
    if hex_ is not None:
        try:
            data = bytes.fromhex(hex_)
        except ValueError as error:
            raise click.UsageError(
                f"--hex: {hex_!r} is not a sequence of bytes in hexadecimal ({error})"
            ) from error
    elif file is not None:
        try:
            data = standard_input().read() if file == "-" else Path(file).read_bytes()
        except OSError as error:
            raise click.UsageError(f"{file}: {error.strerror}") from error
    try:
        if data is None:
            lines, failure = show_layout(package, name, number), None
        else:
            lines, failure = inspect_bytes(package, name, number, data)
    except (NotFound, UnsupportedVersionError) as misuse:
        raise click.UsageError(str(misuse)) from misuse
    for line in lines:
        echo(line)
    if failure is not None:
        echo(f"error: {failure}", err=True)
        sys.exit(1)


@click.command(
    epilog=examples(
        "krammar show kafka_wire FetchResponse 16",
        "krammar show kafka_wire FetchRequest      # all versions",
        "krammar show kafka_wire > kafka.txt       # all messages, for `krammar import`",
    )
)
@click.argument("package")
@click.argument("name", required=False)
@click.argument("version", required=False, type=int)
def show(package: str, name: str | None, version: int | None) -> None:
    """Print messages in the notation of Kafka's protocol guide.

    PACKAGE is a generated package that Python can import from the current folder. NAME is one of its
    classes (default: all). VERSION is a version of the class (default: all). `krammar import` converts
    the output to definitions again.

    These marks are not in Kafka's guide: `nullable[x]` and `nullable(x)` are arrays and structs that can
    be null, `[nullable(x)]` is an array of structs that can be null, `classic[x]` and `classic(x)` are not
    flexible in flexible versions, and a tagged field has a line of its own that begins with `<tag N>`.
    `plain(version)` does not select the version of its struct, `{}` is a struct without fields, and
    `(Version: 3+)` means version 3 and all above. Modifiers such as `one way` follow the key of an API.
    """
    from krammar.inspect.notation import show as texts
    from krammar.wire.classes import NotFound
    from krammar.wire.errors import UnsupportedVersionError

    find_packages_here()
    try:
        shown = list(texts(package, name, version))
    except (NotFound, UnsupportedVersionError) as misuse:
        raise click.UsageError(str(misuse)) from misuse
    echo("\n\n".join(shown))


def _inspect_files(path: str, *, records: bool, json_: bool) -> None:
    from krammar.inspect.files import FilesError, inspect_path

    if not os.path.exists(path):
        raise click.UsageError(
            f"there is no file or folder {path!r} (to inspect a message, give PACKAGE and NAME)"
        )
    damaged = False
    try:
        for item in inspect_path(path, records=records):
            echo(item.as_json() if json_ else item.as_text())
            damaged = damaged or item.is_damage
    except FilesError as error:
        raise click.UsageError(str(error)) from error
    if damaged:
        sys.exit(1)
