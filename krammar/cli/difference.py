"""``krammar diff`` compares definitions with older ones: other files, or a git revision."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from krammar.cli.options import DEFINITIONS, INPUT_FILE, examples
from krammar.cli.output import echo
from krammar.cli.reporting import all_files_option, format_option, misuse, report

if TYPE_CHECKING:
    from krammar.compiler import ir
    from krammar.util.diagnostics import Diagnostic, Diagnostics


@click.command(
    epilog=examples(
        "krammar diff released/definitions definitions/",
        "krammar diff --against origin/main definitions/   # what this branch would break",
        "krammar diff --against v1.2 definitions/ --accepted accepted-changes.txt",
        "krammar diff old/ new/ --wire --format github     # in CI: only changes on the wire",
    )
)
@click.argument("source", type=DEFINITIONS, nargs=-1, required=True, metavar="[OLD] NEW")
@click.option(
    "--against",
    metavar="REF",
    help="Compare NEW with the git revision where this branch left REF, such as origin/main.",
)
@click.option(
    "--accepted",
    type=INPUT_FILE,
    metavar="FILE",
    help="A file of accepted changes. Each line is `rule: message`, with `*` for any text.",
)
@click.option(
    "--wire",
    is_flag=True,
    help="Report only changes on the wire (B1xx), not changes of the Python API (B2xx).",
)
@all_files_option
@format_option
def diff(
    source: tuple[Path, ...],
    against: str | None,
    accepted: Path | None,
    wire: bool,
    all_files: bool,
    format_: str,
) -> None:
    """Report changes between two sets of definitions.

    The exit code is 1 if a change from OLD to NEW breaks programs that use OLD:

    \b
    B1xx  on the wire: a message or a version is missing, the bytes of a
          version differ, or a tag is free for another field
    B2xx  in the Python API: a name is missing, a default differs, or
          encoding refuses more values

    Compatible additions are listed too. Each diagnostic names its rule, for the file of accepted changes.
    """
    from krammar.compiler.compatibility import WIRE, compare
    from krammar.compiler.front.source import compile_source
    from krammar.util.diagnostics import Diagnostics

    if against == "":
        raise click.UsageError("--against is empty (give a git revision, such as origin/main)")
    if len(source) != (1 if against else 2):
        raise click.UsageError(
            "give OLD and NEW" if against is None else "give NEW only; --against supplies OLD"
        )
    new = source[-1]
    diagnostics = Diagnostics()
    with misuse():
        entries = [] if accepted is None else _read_accepted(accepted)
        if against is None:
            before = compile_source(source[0], diagnostics, all_files=all_files)
        else:
            before = _compile_revision(
                new, against, diagnostics, all_files=all_files, plain=format_ != "text"
            )
        after = compile_source(new, diagnostics, all_files=all_files)
    diagnostics.keep_errors()
    if diagnostics.has_errors:
        report(diagnostics, format_)
        sys.exit(1)
    news = compare(before, after, diagnostics)
    if wire:
        diagnostics.found = [each for each in diagnostics.found if each.code.startswith(WIRE)]
    left = [each for each in diagnostics.found if not any(e.matches(each) for e in entries)]
    count = len(diagnostics.found) - len(left)
    diagnostics.found = left
    report(diagnostics, format_)
    if format_ == "text":
        for line in news:
            echo(f"new: {line}")
        if not left:
            echo("no breaking changes" + (f", except {count} accepted" if count else ""))
    for entry in entries:
        if not entry.used:
            echo(f"{accepted}:{entry.line}: no change matches this line any more", err=True)
    if left:
        sys.exit(1)


@dataclass(slots=True)
class _Accepted:
    """A line of a file of accepted changes."""

    line: int
    rule: str
    pattern: re.Pattern[str]
    used: bool = False

    def matches(self, diagnostic: Diagnostic) -> bool:
        found = self.rule in ("*", diagnostic.rule) and self.pattern.fullmatch(diagnostic.message)
        self.used = self.used or bool(found)
        return bool(found)


def _read_accepted(path: Path) -> list[_Accepted]:
    """Read a file of accepted changes. Raises SourceError if a line is invalid."""
    from krammar.compiler.front.codes import RULES
    from krammar.compiler.front.source import SourceError
    from krammar.util.diagnostics import did_you_mean

    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is not UTF-8: {error}") from None
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        rule, colon, message = (part.strip() for part in line.partition(":"))
        if not colon or not message:
            raise SourceError(
                f"{path}:{number}: needs `rule: message`, such as " "`bytes-changed: PingRequest.*`"
            )
        if rule != "*" and rule not in RULES.values():
            hint = did_you_mean(rule, RULES.values()) or f"rules: {', '.join(RULES.values())}"
            raise SourceError(f"{path}:{number}: unknown rule {rule!r} ({hint})")
        pattern = ".*".join(map(re.escape, message.split("*")))
        entries.append(_Accepted(number, rule, re.compile(pattern)))
    return entries


def _compile_revision(
    source: Path, ref: str, diagnostics: Diagnostics, *, all_files: bool, plain: bool
) -> Sequence[ir.Protocol]:
    """Compile definitions as they were at a git revision. Without any, there are no protocols.

    Args:
        plain: use the paths of today in positions, for programs. Otherwise the revision precedes them.
    """
    from krammar.compiler.front.source import SourceError, compile_texts, folders

    with tempfile.TemporaryDirectory() as folder:
        old = extract(source, ref, Path(folder))
        try:
            found = [] if old is None else folders(old, all_files=all_files)
        except SourceError:
            found = []
        if old is None or not found:
            echo(f"{source} has no definitions at {ref}: everything is new", err=True)
            return []

        def place(path: Path) -> Path:
            inside = source / path.relative_to(old)
            return inside if plain else Path(f"{ref}:{inside}")

        return [
            compile_texts(
                each.package,
                {place(path): path.read_bytes() for path in each.files},
                diagnostics,
                each.files[0].parent,
            )
            for each in found
        ]


# Definitions as they were at a git revision.


class RevisionError(click.UsageError):
    """Git cannot give a revision."""


def extract(source: Path, ref: str, target: Path) -> Path | None:
    """Write ``source`` as it was where the current branch left ``ref``, below ``target``.

    If the two have no common commit, for example in a shallow clone, it is the state at ``ref`` itself.

    Returns:
        The extracted file or folder, or None if ``source`` did not exist.

    Raises:
        RevisionError: git is missing, ``source`` is not in a git repository, or ``ref`` does not exist.
    """
    import io
    import tarfile

    folder = source if source.is_dir() else source.parent
    root = Path(_git(folder, "rev-parse", "--show-toplevel").strip())
    inside = source.resolve().relative_to(root.resolve()).as_posix()
    try:
        if ref.startswith("-"):  # git would read an option
            raise RevisionError(ref)
        commit = _git(root, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    except RevisionError:
        raise RevisionError(
            f"git knows no revision {ref!r} in {root} (fetch it, such as with `git fetch origin main`)"
        ) from None
    with suppress(RevisionError):
        commit = _git(root, "merge-base", commit.strip(), "HEAD")
    commit = commit.strip()
    if inside != "." and not _git(root, "ls-tree", "--name-only", commit, "--", inside).strip():
        return None
    archive = _run(root, ["archive", "--format=tar", commit, "--", inside])
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            try:
                content = tar.extractfile(member)
            except KeyError:  # a link whose target is not in the archive
                raise RevisionError(
                    f"{member.name} is a link to {member.linkname} at {ref}, which does not exist there below"
                    f" {inside} (compare a folder that contains both)"
                ) from None
            if content is not None:  # None for a folder
                path = target / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
    return target / inside


def _git(folder: Path, *arguments: str) -> str:
    return _run(folder, arguments).decode("utf-8", errors="replace")


def _run(folder: Path, arguments: Sequence[str]) -> bytes:
    import subprocess

    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        raise RevisionError("git is not installed, so revisions cannot be compared") from None
    if done.returncode:
        message = done.stderr.decode("utf-8", errors="replace").strip() or "failed"
        raise RevisionError(f"git {arguments[0]}: {message}")
    return done.stdout
