"""Runs a backend: renders the packages that have changed since the notes of the last run, and writes their files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from krammar.compiler import ir, stamps
from krammar.compiler.backends import load_backend
from krammar.compiler.backends.interface import Source
from krammar.compiler.front.source import Folder, SourceError, plain_name
from krammar.compiler.write import CACHE_FOLDER, Belongings, Outcome, replace_file, write

# Notes in the output folder: what earlier runs generated, and from which sources.
#
# Each note is about one package. It has two uses: a package whose inputs and files have not changed need not be
# rendered again, and krammar knows which source a file comes from. They are a cache, in a folder that git ignores:
# without them everything is rendered, and less is removed.


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


# Runs.

_COMPILER_FILES = {".py", ".lark", ".krm"}


@dataclass(slots=True)
class Rendered:
    """The result of rendering.

    ``texts`` are by path below the output folder. ``files`` are all files of the run, with their packages, also those
    that need no rendering. ``inputs`` has the digest of the inputs of each package that was rendered.
    """

    texts: dict[Path, str] = field(default_factory=dict)
    files: dict[Path, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)

    def add(self, package: str, texts: Mapping[Path, str]) -> None:
        self.texts |= texts
        self.files |= dict.fromkeys(texts, package)

    @property
    def size(self) -> int:
        """The number of characters in all texts."""
        return sum(map(len, self.texts.values()))


class Generator:
    """Renders and writes the packages of the protocols below ``source`` to ``out``."""

    def __init__(
        self,
        source: Path,
        out: Path,
        backend: str = "python",
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.out = out
        self.backend = load_backend(backend)(options)
        self.name = plain_name(source.resolve().name)
        # Two backends can write to one folder, and each removes only its own files.
        owner = self.name if backend == "python" else f"{self.name} {backend}"
        self._owner = owner
        self._notes = Notes(out, source, owner)
        self._inputs = hashlib.sha256(f"{backend} {sorted((options or {}).items())}".encode())
        compiler = Path(__file__).parent
        files = sorted(path for path in compiler.rglob("*") if path.suffix in _COMPILER_FILES)
        for path in (*self.backend.inputs(), *files):
            _add(self._inputs, path)

    def render(self, folders: Sequence[Folder], protocols: Sequence[ir.Protocol]) -> Rendered:
        """Render the packages whose inputs or files have changed since the last run.

        Raises:
            SourceError: two packages have a file with the same path, or a template fails.
        """
        rendered = Rendered()
        owners: dict[Path, str] = {}
        for folder, protocol in zip(folders, protocols, strict=True):
            package = protocol.package
            inputs = self._digest(folder, protocol)
            paths = self._up_to_date(package, inputs)
            if paths is not None:
                rendered.files |= dict.fromkeys(paths, package)
            else:
                texts = self.package(protocol)
                paths = list(texts)
                rendered.add(package, texts)
                rendered.inputs[package] = inputs
            self._check_places(package, paths, owners)
        return rendered

    def package(self, protocol: ir.Protocol) -> dict[Path, str]:
        """Render all files of a package, without formatting, by path."""
        folder = Path(protocol.package)
        return {
            folder / file.path: file.text for file in self.backend.render(self._source(protocol))
        }

    def overview(self, protocols: Sequence[ir.Protocol]) -> dict[Path, str]:
        """Render the files above several packages, without formatting, by path."""
        files = self.backend.overview([self._source(protocol) for protocol in protocols])
        return {file.path: file.text for file in files}

    def _source(self, protocol: ir.Protocol) -> Source:
        return Source(protocol, self.name)

    def write(
        self,
        rendered: Rendered,
        *,
        check: bool = False,
        force: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Outcome:
        """Write the files that differ, as ``krammar.compiler.write`` describes.

        A cache in a folder that git ignores stores the digests of inputs and files, so that the next run can
        skip rendering.
        """
        if not force:
            self._notes.check(rendered.files)
        packages = set(rendered.files.values())
        belongings = Belongings(
            self._owner, rendered.files, self._notes.gone(packages), self._notes.others()
        )
        outcome = write(
            self.out,
            belongings,
            rendered.texts,
            check=check,
            force=force,
            format_whole=self.backend.format_whole,
            progress=progress,
        )
        if not check:
            self._notes.forget(packages, rendered.files)
            for package, inputs in rendered.inputs.items():
                paths = [path for path, owner in rendered.files.items() if owner == package]
                self._notes.write(package, inputs, paths)
        return outcome

    def _digest(self, folder: Folder, protocol: ir.Protocol) -> str:
        """The digest of everything that the output of a folder depends on."""
        digest = self._inputs.copy()
        digest.update(f"{self.name}/{folder.package}".encode())
        for path in (*folder.files, *protocol.used):
            _add(digest, path)
        return digest.hexdigest()[:16]

    def _up_to_date(self, package: str, inputs: str) -> list[Path] | None:
        """The files of a package, or None if they or their inputs have changed since the last run."""
        note = self._notes.known(package)
        if note is None or note.inputs != inputs:
            return None
        return note.paths if self._notes.digests(note.paths) == note.outputs else None

    def _check_places(self, package: str, paths: Sequence[Path], owners: dict[Path, str]) -> None:
        """Raise SourceError if two packages would write the same path.

        It happens if a folder has the name of a module next to it, or of a folder inside packages.
        """
        name = "/".join(part for part in (self.name, package) if part)
        for path in paths:
            places = [path]
            if path.suffix == ".py" and path.name != "__init__.py":
                places.append(path.with_suffix("") / "__init__.py")
            for place in places:
                if owners.setdefault(place, name) != name:
                    raise SourceError(
                        f"{self.out / place}: both {owners[place]} and {name} would be written to this "
                        "path (rename the folder, or the definition file with the same name)"
                    )


def _add(digest: hashlib._Hash, path: Path) -> None:
    data = path.read_bytes()
    digest.update(f"\n{path.name} {len(data)}\n".encode() + data)
