"""Reads definitions as they were at a git revision."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click


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
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        raise RevisionError("git is not installed, so revisions cannot be compared") from None
    if done.returncode:
        message = done.stderr.decode("utf-8", errors="replace").strip() or "failed"
        raise RevisionError(f"git {arguments[0]}: {message}")
    return done.stdout
