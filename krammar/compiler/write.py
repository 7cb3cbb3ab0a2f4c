"""Formats rendered files, and writes those that differ.

Files that an earlier run wrote and that are no longer rendered are removed. Files that krammar did not write
are neither replaced nor removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from krammar.compiler import stamps
from krammar.compiler.formatting import formatted, shortened
from krammar.compiler.front.source import SourceError
from krammar.util.durable import make_folders, sync_all

CACHE_FOLDER = ".krammar_cache"


@dataclass(slots=True)
class Outcome:
    """The paths that a run has written, not changed, and removed. On a check, it only would have."""

    written: list[Path] = field(default_factory=list)
    unchanged: list[Path] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)

    @property
    def drift(self) -> bool:
        """Whether a file differs from the definitions."""
        return bool(self.written or self.removed)


def write(
    out: Path,
    owner: str,
    rendered: Mapping[Path, str],
    current: Iterable[Path] = (),
    *,
    check: bool = False,
    force: bool = False,
    format_whole: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Format and write the files that differ, then remove files of earlier runs.

    Everything is formatted before the first file is written, and everything is on the disk before the first file is replaced.

    Args:
        out: the folder of the output.
        owner: the source, as in the stamps of its files.
        rendered: texts by path below ``out``.
        current: other files of this run, which need no writing; paths include ``out``.
        check: write nothing.
        force: replace files that krammar did not write.
        format_whole: format whole Python files, not only lines that are too long.
        progress: called with the number of characters of ``rendered`` that were processed.

    Raises:
        SourceError: krammar did not write a file that would be replaced, and ``force`` is False.
    """
    current = sorted(current)
    outcome = Outcome(unchanged=list(current))
    pending: list[tuple[Path, str, str]] = []
    for path, text in sorted(rendered.items()):
        target = out / path
        digest = stamps.digest(text)
        if stamps.is_current(target, digest, text):
            outcome.unchanged.append(target)
        else:
            pending.append((path, text, digest))
    if not force:
        _check_ownership([out / path for path, _, _ in pending])
    if progress is not None:
        progress(sum(map(len, rendered.values())) - sum(len(text) for _, text, _ in pending))
    final: list[tuple[Path, str]] = []
    for path, text, digest in pending:
        target = out / path
        stamped = stamps.stamped(_format(path, text, whole=format_whole), digest)
        if progress is not None:
            progress(len(text))
        if stamps.read(target) == stamped:
            outcome.unchanged.append(target)
        else:
            final.append((target, stamped))
    expected = {out / path for path in rendered} | set(outcome.unchanged)
    outcome.written = [target for target, _ in final]
    outcome.removed = sorted(set(_once_written(out, owner)) - expected)
    if not check:
        # Empty files have no header, so krammar recognises them by their names.
        empty = {path.name for path in current if not path.stat().st_size}
        empty |= {path.name for path, text in rendered.items() if not text}
        replace_files({target: text.encode("utf-8") for target, text in final})
        for target in outcome.removed:
            target.unlink()
            _remove_empty(target.parent, out, empty)
        sync_all({target.parent for target in outcome.removed})
    return outcome


def _once_written(out: Path, owner: str) -> Iterator[Path]:
    """Find the files below ``out`` that are generated from this source, by their stamps."""
    mark = stamps.source_mark(owner)
    if not out.is_dir():
        return
    for path in out.rglob("*"):
        if path.is_file() and path.suffix != ".pyc" and path.parent.name != CACHE_FOLDER:
            lines = stamps.head(path)
            if stamps.is_generated(lines) and any(mark in line for line in lines):
                yield path


def _check_ownership(targets: Iterable[Path]) -> None:
    """Raise SourceError if krammar did not write one of ``targets``. Empty files can be replaced."""
    foreign = [
        str(target)
        for target in targets
        if target.is_file()
        and target.stat().st_size
        and not stamps.is_generated(stamps.head(target))
    ]
    if foreign:
        raise SourceError(
            f"krammar did not write {', '.join(foreign)} (its first lines contain no header of "
            "krammar), so nothing was written. Choose another folder with --out, move the file, or "
            "replace it with --force"
        )


def _format(path: Path, text: str, *, whole: bool) -> str:
    """Format a Python file. Other files are unchanged."""
    if path.suffix != ".py" or not text:
        return text
    return formatted(str(path), text) if whole else shortened(text)


def _remove_empty(folder: Path, out: Path, empty: set[str]) -> None:
    """Remove a folder, and its parents, if they contain only Python's cache and empty generated files.

    Args:
        empty: the names of these empty files, such as ``py.typed``.
    """
    while folder != out and folder.is_dir():
        caches, files = [], []
        for path in folder.iterdir():
            if path.name == "__pycache__" and path.is_dir():
                caches.append(path)
            elif path.name in empty and path.is_file() and path.stat().st_size == 0:
                files.append(path)
            else:
                return
        for cache in caches:
            files += cache.iterdir()
        for path in files:
            path.unlink()
        for cache in caches:
            cache.rmdir()
        folder.rmdir()
        folder = folder.parent


def replace_files(files: Mapping[Path, bytes], *, durable: bool = True) -> None:
    """Replace files, and create their folders. Each file has the old or the new content, also after a power cut.

    All new contents are on the disk before the first file is replaced. That is faster than one file after the other, and a
    full disk changes no file.

    Args:
        durable: whether the files survive a power cut; without it, one may have damaged content after that.

    Raises:
        OSError: a file cannot be written.
    """
    drafts: dict[Path, Path] = {}
    try:
        for target, data in files.items():
            make_folders(target.parent, durable=durable)
            draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            drafts[draft] = target
            with _naming(target):
                draft.write_bytes(data)
        if durable:
            for draft, target in drafts.items():
                with (
                    _naming(target),
                    draft.open("r+b") as file,
                ):  # Windows syncs only writable files
                    os.fsync(file.fileno())
        for draft, target in drafts.items():
            os.replace(draft, target)
    except BaseException:
        for draft in drafts:
            draft.unlink(missing_ok=True)
        raise
    if durable:
        sync_all({target.parent for target in files})


def replace_file(target: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace one file; see ``replace_files``."""
    replace_files({target: data}, durable=durable)


@contextmanager
def _naming(target: Path) -> Iterator[None]:
    """Name the file in errors of writing and forcing to the disk, which do not name it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None
