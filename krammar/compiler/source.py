"""Definition folders: which files belong to a protocol, and compiling them to checked IR."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from krammar.compiler import ir
from krammar.compiler.checks import check
from krammar.compiler.findings import Findings
from krammar.compiler.parser import StructNode, SyntaxFile, parse_file
from krammar.compiler.resolver import resolve


class SourceError(Exception):
    """The source folder cannot be used at all: a misuse, not a finding."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The definition files of one folder; ``package`` is its place below the source, "" for itself."""

    package: str
    files: tuple[Path, ...]


# Kafka's standard headers, which a protocol with requests gets where it defines none of its own.
HEADERS = Path(__file__).with_name("kafka_headers.krm")


def _wants_headers(files: Sequence[SyntaxFile]) -> bool:
    """Whether there are requests and neither of the headers' names is taken."""
    definitions = [definition for file in files for definition in file.definitions]
    taken = {definition.name.text for definition in definitions}
    taken.update(*(file.unread for file in files))
    requests = any(
        kind == "key"
        for definition in definitions
        if isinstance(definition, StructNode)
        for kind, _ in definition.modifiers
    )
    return requests and not taken & {"RequestHeader", "ResponseHeader"}


def folders(source: Path) -> list[Folder]:
    """Every folder of ``source`` that holds definition files, in a fixed order.

    Every regular file is a definition file, except hidden ones and ``*.md``. A single file stands for
    a folder with just that file. Raises SourceError where there is none.
    """
    if source.is_file():
        return [Folder("", (source,))]
    if not source.is_dir():
        raise SourceError(f"{source}: no such folder")
    found = []
    for folder in sorted([source, *(p for p in source.rglob("*") if p.is_dir())]):
        inside = folder.relative_to(source)
        if any(part.startswith(".") for part in inside.parts):
            continue
        files = tuple(sorted(path for path in folder.iterdir() if _is_definition(path)))
        if files:
            found.append(Folder("" if inside == Path() else inside.as_posix(), files))
    if not found:
        raise SourceError(f"{source}: no definition files in it")
    return found


def _is_definition(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and path.suffix.lower() != ".md"


def compile_folder(folder: Folder, findings: Findings) -> ir.Protocol:
    """Parse, resolve and check one folder. The IR is whole only if no error was found."""
    before = len(findings.found)
    files = [parse_file(path, path.read_bytes(), findings) for path in folder.files]
    if _wants_headers(files):
        files.append(parse_file(HEADERS, HEADERS.read_bytes(), findings))
    protocol = resolve(folder.package, files, findings)
    if all(finding.is_style for finding in findings.found[before:]):
        check(protocol, findings)
    return protocol


def compile_source(
    source: Path, findings: Findings, progress: Callable[[Folder], None] | None = None
) -> Sequence[ir.Protocol]:
    """All protocols below ``source``; what is wrong with them goes to ``findings``."""
    protocols = []
    for folder in folders(source):
        if progress is not None:
            progress(folder)
        protocols.append(compile_folder(folder, findings))
    return protocols


def replace_file(target: Path, data: bytes) -> None:
    """Write a file whole or not at all; folders on the way are made."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
