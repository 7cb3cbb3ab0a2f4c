"""Notes in the output folder about what earlier runs generated, and from which sources.

Each note is about one package. It has two uses: a package whose inputs and files have not changed need not be rendered
again, and krammar knows which source a file comes from. They are a cache, in a folder that git ignores: without them
everything is rendered, and less is removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from krammar.compiler import stamps
from krammar.compiler.front.source import SourceError
from krammar.compiler.write import CACHE_FOLDER, replace_file


@dataclass(frozen=True, slots=True)
class Note:
    """What a run generated for a package.

    ``source`` is the path of the source from the output folder. ``inputs`` is the digest of all inputs, and ``outputs``
    has the digests of the files by their paths below the output folder.
    """

    source: str
    owner: str
    package: str
    inputs: str
    outputs: dict[str, str]

    @property
    def paths(self) -> list[Path]:
        return [Path(path) for path in self.outputs]


class Notes:
    """The notes in an output folder, as one source sees them.

    Args:
        owner: identifies the source and the backend, as in stamps.
    """

    def __init__(self, out: Path, source: Path, owner: str) -> None:
        self._out = out
        self._owner = owner
        self._source = source.resolve()
        try:
            place = os.path.relpath(self._source, out.resolve())
        except ValueError:  # another drive of Windows
            place = str(self._source)
        self._place = Path(place).as_posix()

    def known(self, package: str) -> Note | None:
        """The note of this source about a package."""
        note = _read(self._path(package))
        return note if note is not None and self._is_own(note) else None

    def gone(self, packages: Collection[str]) -> dict[Path, str]:
        """The files of packages that this source once had, and the package of each.

        Args:
            packages: the packages that it has.
        """
        return {
            path: note.package
            for note in self._all()
            if self._is_own(note) and note.package not in packages
            for path in note.paths
        }

    def others(self) -> set[Path]:
        """The files that other sources have generated, if these still exist."""
        return {path for _, note in self._others() for path in note.paths}

    def check(self, files: Collection[Path]) -> None:
        """Raise SourceError if another source generates one of ``files``, unless one source contains the other."""
        for source, note in self._rivals():
            taken = sorted(path for path in note.paths if path in files)
            if taken:
                more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
                raise SourceError(
                    f"{self._out / taken[0]}{more} would be replaced, but krammar generated the file from "
                    f"{source}, so nothing was written. Choose another folder with --out, or replace it with "
                    "--force"
                )

    def write(self, package: str, inputs: str, paths: Sequence[Path]) -> None:
        """Note the current files of a package."""
        self._store(Note(self._place, self._owner, package, inputs, self.digests(paths)))

    def _store(self, note: Note) -> None:
        data = {name: getattr(note, name) for name in Note.__slots__}
        # After a power cut, a damaged or old note only means that the package is rendered again.
        target = self._path(note.package, note)
        replace_file(target.parent / ".gitignore", b"*\n", durable=False)
        replace_file(target, json.dumps(data).encode(), durable=False)

    def forget(self, packages: Collection[str], taken: Collection[Path]) -> None:
        """Remove the notes about packages that this source no longer has, and those of other sources about its files.

        Args:
            packages: the packages that it has.
            taken: its files.
        """
        names = {path.as_posix() for path in taken}
        old = [n for n in self._all() if self._is_own(n) and n.package not in packages]
        rivals = [note for _, note in self._rivals() if names & note.outputs.keys()]
        for note in old + rivals:
            self._path(note.package, note).unlink(missing_ok=True)
        for source, note in self._others():
            # Its package is gone. What it generated otherwise stays its own.
            if not self._is_related(source) and names & note.outputs.keys():
                left = {path: each for path, each in note.outputs.items() if path not in names}
                self._store(replace(note, inputs="", outputs=left))

    def digests(self, paths: Sequence[Path]) -> dict[str, str]:
        """The digests of the current files at ``paths`` below the output folder."""
        found = {}
        for path in paths:
            text = stamps.read(self._out / path)
            found[path.as_posix()] = "" if text is None else stamps.digest(text)
        return found

    def _is_own(self, note: Note) -> bool:
        return (note.source, note.owner) == (self._place, self._owner)

    def _all(self) -> Iterator[Note]:
        for path in sorted((self._out / CACHE_FOLDER).glob("*.json")):
            note = _read(path)
            if note is not None:
                yield note

    def _others(self) -> Iterator[tuple[Path, Note]]:
        """The notes of other sources that still exist."""
        for note in self._all():
            source = (self._out / note.source).resolve()
            if source != self._source and source.exists():
                yield source, note

    def _rivals(self) -> Iterator[tuple[Path, Note]]:
        """The same, without packages that are gone, and sources that contain this one or are contained in it."""
        for source, note in self._others():
            place = source if source.is_file() else source / note.package
            if place.exists() and not self._is_related(source):
                yield source, note

    def _is_related(self, source: Path) -> bool:
        """Whether one of two sources contains the other."""
        return source in self._source.parents or self._source in source.parents

    def _path(self, package: str, note: Note | None = None) -> Path:
        owner, source = (note.owner, note.source) if note else (self._owner, self._place)
        parts = [*owner.split(" "), *Path(package).parts, stamps.digest(source)]
        return self._out / CACHE_FOLDER / f"{'.'.join(parts)}.json"


def _read(path: Path) -> Note | None:
    """Read a note. None if it does not exist, or another version of krammar wrote it."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict) or data.keys() != set(Note.__slots__):
        return None
    return Note(**data)
