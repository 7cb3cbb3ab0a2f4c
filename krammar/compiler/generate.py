"""Runs a backend: renders the packages whose inputs have changed, and writes their files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from krammar.compiler import ir
from krammar.compiler.backends import load_backend
from krammar.compiler.backends.interface import Source
from krammar.compiler.front.source import Folder, SourceError, plain_name
from krammar.compiler.notes import Notes
from krammar.compiler.write import Belongings, Outcome, write

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
