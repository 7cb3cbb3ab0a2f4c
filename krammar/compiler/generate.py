"""Runs a backend: renders the packages whose inputs have changed, and writes their files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from krammar.compiler import ir, stamps
from krammar.compiler.backends import load_backend
from krammar.compiler.backends.interface import Source
from krammar.compiler.front.source import Folder, SourceError, plain_name
from krammar.compiler.write import CACHE_FOLDER, Outcome, replace_file, write

_COMPILER_FILES = {".py", ".lark", ".krm"}


@dataclass(slots=True)
class Rendered:
    """The result of rendering.

    ``texts`` are by path below the output folder. ``current`` are files that need no rendering. ``packages``
    has the digest of the inputs, and the paths, of each package that was rendered.
    """

    texts: dict[Path, str] = field(default_factory=dict)
    current: list[Path] = field(default_factory=list)
    packages: dict[str, tuple[str, list[Path]]] = field(default_factory=dict)

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
        self.owner = self.name if backend == "python" else f"{self.name} {backend}"
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
            inputs = self._digest(folder, protocol)
            paths = self._up_to_date(protocol.package, inputs)
            if paths is not None:
                rendered.current += [self.out / path for path in paths]
            else:
                texts = self.package(protocol)
                paths = list(texts)
                rendered.texts |= texts
                rendered.packages[protocol.package] = inputs, paths
            self._check_places(protocol.package, paths, owners)
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
        return Source(protocol, self.name, self.owner)

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
        outcome = write(
            self.out,
            self.owner,
            rendered.texts,
            rendered.current,
            check=check,
            force=force,
            format_whole=self.backend.format_whole,
            progress=progress,
        )
        if not check:
            for package, (inputs, paths) in rendered.packages.items():
                note = self._note_path(package)
                # After a power cut, a damaged or old note only means that the package is rendered again.
                replace_file(note.parent / ".gitignore", b"*\n", durable=False)
                note_data = json.dumps(self._note(inputs, paths)).encode()
                replace_file(note, note_data, durable=False)
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
        try:
            known = json.loads(self._note_path(package).read_bytes())
        except (OSError, ValueError):
            return None
        if known["inputs"] != inputs:
            return None
        paths = [Path(path) for path in known["outputs"]]
        return paths if self._note(inputs, paths) == known else None

    def _note_path(self, package: str) -> Path:
        name = ".".join(
            part for part in (self.owner.replace(" ", "."), *Path(package).parts) if part
        )
        return self.out / CACHE_FOLDER / f"{name}.json"

    def _note(self, inputs: str, paths: Sequence[Path]) -> dict[str, object]:
        """The digests of a package's inputs and of its current files."""
        outputs = {}
        for path in paths:
            text = stamps.read(self.out / path)
            outputs[path.as_posix()] = "" if text is None else stamps.digest(text)
        return {"inputs": inputs, "outputs": outputs}

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
