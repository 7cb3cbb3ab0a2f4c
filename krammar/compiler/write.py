"""Formats rendered files, and writes those that differ.

Files that an earlier run wrote from the same source and that are no longer rendered are removed, unless they were
changed since. Files that krammar did not write are neither replaced nor removed, nor are those of other sources.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from krammar.compiler import stamps
from krammar.compiler.front.source import SourceError
from krammar.util.durable import make_folders, sync_all

# Formatting of generated Python with black.
#
# krammar's own templates emit black's style, but do not know the length of a line. So black formats only the
# statements that are too long, which takes a twentieth of the time for whole files. The output of other
# templates is formatted as a whole.

WIDTH = 88
_OPEN = ("(", "[", "{")
_PARAMETER = re.compile(r"\w+: ")
_ENTRY = re.compile(r'["\d][^"]*"?: ')


def formatted(path: str, text: str) -> str:
    """Format a whole Python file.

    Raises:
        SourceError: the text is not valid Python. It names ``path``.
    """
    try:
        return _black(text, WIDTH)
    except ValueError as error:
        raise SourceError(f"the template of {path} rendered invalid Python: {error}") from None


def shortened(text: str) -> str:
    """Format the lines of a Python file that are longer than ``WIDTH``; the rest has black's style already."""
    if not any(len(line) > WIDTH for line in text.splitlines()):
        return text
    return "".join(_lines(text))


def _lines(text: str) -> Iterator[str]:
    inside = False
    for line in text.splitlines(keepends=True):
        quotes = line.count('"""')
        if (
            len(line) <= WIDTH + 1
            or inside
            or quotes
            or line.lstrip().startswith("#")
            or line.rstrip().endswith(
                _OPEN
            )  # long names: what is in the brackets has lines of its own
        ):
            yield line
        else:
            indent = len(line) - len(line.lstrip(" "))
            for part in _short(line.strip(), WIDTH - indent):
                yield f"{' ' * indent}{part}\n"
        inside ^= quotes % 2 == 1


@lru_cache(maxsize=1 << 12)
def _short(code: str, width: int) -> tuple[str, ...]:
    """Format a statement, a decorator, the head of a statement, or an element of a list that has its own line."""
    if code.endswith(","):
        begin, end = "_(", ")"
        if _ENTRY.match(code):
            begin, end = "{", "}"
        elif _PARAMETER.match(code):
            begin, end = "def _(", "): ..."
        lines = _black(f"{begin}\n    {code}\n{end}\n", width + 4).splitlines()
        return tuple(line[4:] for line in lines[1:-1])
    if code.endswith(":"):
        head = code.removeprefix("el")
        lines = _black(f"{head}\n    pass\n", width - len(code) + len(head)).splitlines()
        return (code[: len(code) - len(head)] + lines[0], *lines[1:-1])
    if code.startswith("@"):
        return tuple(_black(f"{code}\ndef _(): ...\n", width).splitlines()[:-1])
    return tuple(_black(code, width).splitlines())


def _black(text: str, width: int) -> str:
    # Imported here, because a run that changes nothing needs no black.
    import black
    from black.mode import TargetVersion
    from black.parsing import InvalidInput

    try:
        mode = black.Mode(line_length=width, target_versions={TargetVersion.PY311})
        return black.format_str(text, mode=mode)
    except InvalidInput as error:
        raise ValueError(str(error)) from None


CACHE_FOLDER = ".krammar_cache"


# Files.


@dataclass(slots=True)
class Outcome:
    """The paths that a run has written, not changed, and removed. On a check, it only would have.

    ``kept`` are those that it would have removed if nobody had changed them.
    """

    written: list[Path] = field(default_factory=list)
    unchanged: list[Path] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)

    @property
    def drift(self) -> bool:
        """Whether a file differs from the definitions."""
        return bool(self.written or self.removed)


@dataclass(frozen=True, slots=True)
class Belongings:
    """Which files belong to a source. All paths are below the output folder.

    ``owner`` identifies the source and the backend, as in stamps. ``files`` are all files of this run, with their
    packages, and ``gone`` those of packages that the source once had. ``others`` are the files of other sources.
    """

    owner: str
    files: Mapping[Path, str]
    gone: Mapping[Path, str]
    others: Set[Path]

    def mark(self, path: Path) -> str:
        return stamps.source_mark(self.owner, self.files[path], path)


def write(
    out: Path,
    belongings: Belongings,
    rendered: Mapping[Path, str],
    *,
    check: bool = False,
    force: bool = False,
    format_whole: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Format and write the files that differ, then remove files of earlier runs.

    Everything is formatted before the first file is written, and everything is on the disk before the first file is
    replaced.

    Args:
        out: the folder of the output.
        belongings: all files of this run. Those that are not in ``rendered`` need no writing.
        rendered: texts by path below ``out``.
        check: write nothing.
        force: replace files that krammar did not write.
        format_whole: format whole Python files, not only lines that are too long.
        progress: called with the number of characters of ``rendered`` that were processed.

    Raises:
        SourceError: krammar did not write a file that would be replaced, and ``force`` is False.
    """
    current = sorted(out / path for path in belongings.files if path not in rendered)
    outcome = Outcome(unchanged=list(current))
    pending: list[tuple[Path, str, str]] = []
    for path, text in sorted(rendered.items()):
        target = out / path
        digest = stamps.digest(text)
        if stamps.is_current(target, digest, text, belongings.mark(path)):
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
        formatted_text = _format(path, text, whole=format_whole)
        stamped = stamps.stamped(formatted_text, digest, belongings.mark(path))
        if progress is not None:
            progress(len(text))
        if stamps.read(target) == stamped:
            outcome.unchanged.append(target)
        else:
            final.append((target, stamped))
    outcome.written = [target for target, _ in final]
    for target in sorted(set(_stale(out, belongings))):
        (outcome.removed if stamps.is_intact(target) else outcome.kept).append(target)
    if not check:
        # Empty files have no header, so krammar recognises them by their names.
        empty = {path.name for path in current if not path.stat().st_size}
        empty |= {path.name for path, text in rendered.items() if not text}
        replace_files({target: text.encode("utf-8") for target, text in final})
        for target in outcome.removed:
            target.unlink()
        folders = {target.parent for target in outcome.removed}
        # Inner folders first.
        for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
            _remove_empty(folder, out, empty)
        sync_all(folders)
    return outcome


def _stale(out: Path, belongings: Belongings) -> Iterator[Path]:
    """Find the files that earlier runs generated from this source, and that this run does not generate."""
    excluded = belongings.others | set(belongings.files)
    packages = set(belongings.files.values())
    found = [(path, package) for package in packages for path in _files(out, out / package)]
    for path, package in [*found, *belongings.gone.items()]:
        target = out / path
        mark = stamps.source_mark(belongings.owner, package, path)
        if path not in excluded and target.is_file() and stamps.is_from(target, mark):
            yield target


def _files(out: Path, folder: Path) -> Iterator[Path]:
    """The files in a folder, by their paths below ``out``.

    Definitions are never in hidden folders, so neither is output.
    """
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        for name in files:
            path = Path(place, name)
            if not path.is_symlink() and path.is_file():
                yield path.relative_to(out)


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
    """Remove a folder of removed files if it contains only Python's cache and empty generated files.

    The folders around it are removed too if they contain only Python's cache.

    Args:
        empty: the names of these empty files, such as ``py.typed``.
    """
    while folder != out and folder.is_dir():
        caches: list[Path] = []
        files: list[Path] = []
        for path in folder.iterdir():
            if path.is_symlink():
                return
            if path.name == "__pycache__" and path.is_dir():
                caches.append(path)
                files += path.iterdir()
            elif path.name in empty and path.is_file() and path.stat().st_size == 0:
                files.append(path)
            else:
                return
        if any(path.suffix != ".pyc" for path in files if path.parent != folder):
            return
        for path in files:
            path.unlink()
        for cache in caches:
            cache.rmdir()
        folder.rmdir()
        folder, empty = folder.parent, set()


def replace_files(files: Mapping[Path, bytes], *, durable: bool = True) -> None:
    """Replace files, and create their folders. Each file has the old or the new content, also after a power cut.

    All new contents are on the disk before the first file is replaced. That is faster than one file after the other,
    and a full disk changes no file.

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
