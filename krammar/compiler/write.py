"""Formats rendered files, and writes those that differ.

Files that an earlier run wrote and that are no longer rendered are removed. Files that krammar did not write
are neither replaced nor removed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from krammar.compiler import stamps
from krammar.compiler.front.source import SourceError

# A run that changes nothing imports neither.
if TYPE_CHECKING:
    import multiprocessing
    from multiprocessing.connection import Connection

CACHE_FOLDER = ".krammar_cache"
_BLACK_LINE_LENGTH = 100


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
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Format and write the files that differ, then remove files of earlier runs.

    Everything is formatted before the first file is written.

    Args:
        out: the folder of the output.
        owner: the source, as in the stamps of its files.
        rendered: texts by path below ``out``.
        current: other files of this run, which need no writing; paths include ``out``.
        check: write nothing.
        force: replace files that krammar did not write.
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
    formatted = _formatted([(str(path), text) for path, text, _ in pending], progress)
    final: list[tuple[Path, str]] = []
    for (path, _, digest), text in zip(pending, formatted, strict=True):
        target = out / path
        stamped = stamps.stamped(text, digest)
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
        for target, text in final:
            replace_file(target, text.encode("utf-8"))
        for target in outcome.removed:
            target.unlink()
            _remove_empty(target.parent, out, empty)
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


def _format(named: tuple[str, str]) -> str:
    """Format a Python file with black. Other files are unchanged."""
    path, text = named
    if not path.endswith(".py") or not text:
        return text
    import black
    from black.mode import TargetVersion
    from black.parsing import InvalidInput

    mode = black.Mode(
        line_length=_BLACK_LINE_LENGTH,
        target_versions={TargetVersion.PY311},
        magic_trailing_comma=False,
    )
    try:
        return black.format_str(text, mode=mode)
    except (InvalidInput, ValueError) as error:
        raise SourceError(f"the template of {path} rendered invalid Python: {error}") from None


def _formatted(files: list[tuple[str, str]], progress: Callable[[int], None] | None) -> list[str]:
    """Format files in parallel. black takes most of the time of a run without cache."""
    results = [""] * len(files)

    def done(index: int, text: str) -> None:
        results[index] = text
        if progress is not None:
            progress(len(files[index][1]))

    if len(files) < 8:
        for index, file in enumerate(files):
            done(index, _format(file))
        return results
    from multiprocessing.connection import (
        wait,
    )  # only here: a run that changes nothing does without it

    errors: dict[int, Exception] = {}
    # Begin with the longest file, so that no worker is left alone with it at the end.
    waiting = sorted(range(len(files)), key=lambda index: len(files[index][1]))
    with _workers(min(os.cpu_count() or 1, 8)) as idle:
        busy: dict[Connection, int] = {}
        while waiting or busy:
            while waiting and idle:
                worker = idle.pop()
                busy[worker] = waiting.pop()
                with suppress(OSError):  # a worker that was killed gives no answer either
                    worker.send(files[busy[worker]])
            ready = wait(list(busy))
            for worker in [each for each in busy if each in ready]:
                try:
                    answer = worker.recv()
                except (EOFError, OSError):
                    name = files[busy[worker]][0]
                    raise SourceError(
                        f"the process that formatted {name} was killed, and nothing was written. "
                        "Run the command again; if it fails again, check the free memory"
                    ) from None
                index = busy.pop(worker)
                idle.append(worker)
                if isinstance(answer, Exception):
                    errors[index] = answer
                else:
                    done(index, answer)
    if errors:  # report the same error, in whatever order the workers finish
        raise errors[min(errors)]
    return results


@contextmanager
def _workers(count: int) -> Iterator[list[Connection]]:
    """Start processes that format the files sent to them.

    An executor is no choice: if Ctrl-C ends its workers in the middle of an answer, it waits for the rest of the
    answer forever.
    """
    import multiprocessing

    processes: list[multiprocessing.Process] = []
    connections: list[Connection] = []
    try:
        with _interrupt_held():
            for _ in range(count):
                here, there = multiprocessing.Pipe()
                connections.append(here)
                process = multiprocessing.Process(target=_work, args=(here, there), daemon=True)
                process.start()
                processes.append(process)
                there.close()
        yield list(connections)
    except BaseException:
        for process in processes:
            process.kill()
        raise
    finally:
        for connection in connections:
            connection.close()  # which ends an idle worker
        for process in processes:
            process.join()


def _work(here: Connection, there: Connection) -> None:
    """Format files until the other end of the connection is closed."""
    here.close()  # or this process would keep its own connection open
    # A terminal sends Ctrl-C to all processes. It ends a worker without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with suppress(EOFError), there:
        while True:
            file = there.recv()
            try:
                answer: str | Exception = _format(file)
            except Exception as error:
                answer = error
            there.send(answer)


@contextmanager
def _interrupt_held() -> Iterator[None]:
    """Delay Ctrl-C, so that it neither strikes a worker that does not expect it yet, nor loses a worker."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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


def replace_file(target: Path, data: bytes) -> None:
    """Write a file atomically, and create its folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
