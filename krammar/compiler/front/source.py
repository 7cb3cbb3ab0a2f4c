"""Finds the definition files of each protocol and those that they use, and compiles them to checked IR."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path

from krammar.compiler import ir
from krammar.compiler.front.checks import check
from krammar.compiler.front.parser import parse_file
from krammar.compiler.front.resolver import resolve_files
from krammar.compiler.front.syntax import (
    ArrayNode,
    EnumNode,
    FieldNode,
    NamedNode,
    StructNode,
    SyntaxFile,
    TypeNode,
    UseNode,
    Word,
    definition_name,
)
from krammar.util.diagnostics import Diagnostics, Position, did_you_mean

# Definitions of other packages: `use kafka_wire: ErrorCode`.
#
# The definitions that a package uses become part of it, together with the definitions that they need. So
# generated code is complete without the other package.

Definition = StructNode | EnumNode


@dataclass(frozen=True, slots=True)
class PackageFiles:
    """The parsed files of a folder."""

    folder: Path
    files: tuple[SyntaxFile, ...]

    @property
    def definitions(self) -> dict[str, Definition]:
        """The definitions of all files, by name."""
        return {node.name.text: node for file in self.files for node in file.definitions}

    @property
    def uses(self) -> Iterator[UseNode]:
        for file in self.files:
            yield from file.uses


@dataclass(slots=True)
class Uses:
    """Collects the definitions that ``package`` uses.

    ``find`` returns the package with a name as seen from a folder, or the names of all packages there.
    """

    package: PackageFiles
    find: Callable[[Path, str], PackageFiles | Sequence[str]]
    diagnostics: Diagnostics
    _found: dict[Path, dict[str, Definition]] = field(default_factory=dict)
    _unread: set[str] = field(default_factory=set)

    def files(self) -> list[SyntaxFile]:
        """Return a file with the used definitions of each package. Its path is the package's folder."""
        self._follow(self.package, None, [self.package.folder])
        files = []
        for folder, definitions in self._found.items():
            files.append(SyntaxFile(folder, tuple(definitions.values()), used=True))
        if self._unread:
            files.append(SyntaxFile(self.package.folder, (), frozenset(self._unread), used=True))
        return files

    def _follow(self, package: PackageFiles, wanted: set[str] | None, trail: list[Path]) -> None:
        """Add the definitions that the uses of ``package`` name: all of them, or only those in ``wanted``."""
        for use in package.uses:
            names = [name for name in use.names if wanted is None or name.text in wanted]
            if not names:
                continue
            other = self.find(package.folder, use.package.text)
            if not isinstance(other, PackageFiles):
                known = ", ".join(other)
                self._unread |= {name.text for name in names}
                self.diagnostics.add(
                    "E209",
                    f'no package has the name "{use.package.text}"',
                    use.package.position,
                    did_you_mean(use.package.text, other)
                    or f"a package is a folder next to this one, or one of krammar's: {known}",
                )
                continue
            if other.folder in trail:
                circle = [each.name for each in [*trail[trail.index(other.folder) :], other.folder]]
                self._unread |= {name.text for name in names}
                self.diagnostics.add(
                    "E211",
                    f"packages use each other: {' → '.join(circle)}",
                    use.package.position,
                    "move the common definitions to a package of their own",
                )
                continue
            self._add(other, names, [*trail, other.folder])

    def _add(self, package: PackageFiles, names: Sequence[Word], trail: list[Path]) -> None:
        """Add definitions of a package, and what they need."""
        definitions = package.definitions
        elsewhere = {name.text for use in package.uses for name in use.names}
        unread = frozenset[str]().union(*(file.unread for file in package.files))
        outside: set[str] = set()
        for word in names:
            if word.text in definitions or word.text in elsewhere:
                outside |= self._closure(package, word, elsewhere)
            elif word.text in unread:
                self._unread.add(word.text)
            else:
                self._unread.add(word.text)
                self.diagnostics.add(
                    "E210",
                    f'the package {package.folder.name} has no definition "{word.text}"',
                    word.position,
                    did_you_mean(word.text, definitions),
                )
        self._unread |= unread
        if outside:
            self._follow(package, outside, trail)

    def _closure(self, package: PackageFiles, word: Word, elsewhere: set[str]) -> set[str]:
        """Add a definition and all that it needs. Return the needed names that the package itself uses."""
        definitions = package.definitions
        own = self.package.definitions
        added = self._found.setdefault(package.folder, {})
        waiting, outside = [word.text], set()
        while waiting:
            name = waiting.pop()
            if name in elsewhere:
                outside.add(name)
            if name not in definitions or name in added:
                continue
            if name in own:
                self._taken(package, word, name, own[name].name.position)
                continue
            added[name] = definitions[name]
            waiting += _needs(definitions[name])
        # The order of the package: a response follows its request.
        self._found[package.folder] = {
            name: node for name, node in definitions.items() if name in added
        }
        return outside

    def _taken(self, package: PackageFiles, word: Word, name: str, other: Position) -> None:
        """Report that the package itself defines ``name``, which ``word`` is or needs."""
        message = f'"{name}" is already defined at {other.path.name}:{other.line}'
        if name != word.text:
            message = f'"{word.text}" of {package.folder.name} needs "{name}", but {message}'
        self.diagnostics.add("E201", message, word.position, "rename your definition")


def _needs(node: Definition) -> Iterator[str]:
    """The names that a definition needs: of its types, and of the other message of a request."""
    if isinstance(node, EnumNode):
        return
    name = node.name.text
    if name.endswith("Request"):
        yield name.removesuffix("Request") + "Response"
    if name.endswith("Response") and not node.modifiers:
        yield name.removesuffix("Response") + "Request"
    yield from _types(node.fields)


def _types(fields: Sequence[FieldNode]) -> Iterator[str]:
    for item in fields:
        type_: TypeNode | None = item.type
        while isinstance(type_, ArrayNode):
            type_ = type_.element
        if isinstance(type_, NamedNode):
            yield definition_name(type_.word.text)
        yield from _types(item.fields)


# Folders and files.


class SourceError(Exception):
    """The source, the output folder or an option cannot be used. It is misuse, not a diagnostic."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The definition files of a folder. ``package`` is its path below the source; "" is the source itself."""

    package: str
    files: tuple[Path, ...]


# Names in the source become part of generated code and of file names, so only these are allowed.
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
# A line that begins a definition. Files without a suffix are recognised by it.
_DEFINITION = re.compile(rb"^[A-Za-z]\w* (?:=>|u?int\d+(?: camelcase)? \()", re.MULTILINE)

# Kafka's standard headers, for protocols with requests that define no headers of their own.
HEADERS = Path(__file__).with_name("kafka_headers.krm")


def _shipped() -> Path:
    inside = Path(str(resources.files("krammar"))) / "definitions"
    return inside if inside.is_dir() else inside.parent.parent / "definitions"


# The definitions that krammar comes with, in the wheel or in the repository.
SHIPPED = _shipped()


def _wants_headers(files: Sequence[SyntaxFile]) -> bool:
    """Whether the files contain requests, and define neither of the headers."""
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


def folders(source: Path, *, all_files: bool = False) -> list[Folder]:
    """Find the folders below ``source`` that contain definition files, in a fixed order.

    Definition files are named ``*.krm``. In a folder without them, files without a suffix are read too, as
    in franz-go, if they contain a definition.

    Args:
        source: a folder, or a single definition file.
        all_files: read every file, except hidden files and ``*.md``.

    Raises:
        SourceError: no definition file was found, or a name contains unusual characters.
    """
    if source.is_file():
        _check_name(source, source.name)
        return [Folder("", (source,))]
    if not source.is_dir():
        raise SourceError(f"{source} is not a file or folder")
    found = []
    others: list[Path] = []
    for folder in sorted([source, *(p for p in source.rglob("*") if p.is_dir())]):
        inside = folder.relative_to(source)
        if any(part.startswith(".") for part in inside.parts):
            continue
        visible = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
        files = definition_files(visible, all_files=all_files)
        others += [path for path in visible if path.suffix.lower() != ".md"]
        if files:
            for path in files:
                _check_name(path, *inside.parts, path.name)
            found.append(Folder("" if inside == Path() else inside.as_posix(), tuple(files)))
    if not found:
        hint = ""
        if others:
            hint = (
                f", only other files such as {others[0].name!r} (give the path of a single file, or "
                "read all files with --all-files)"
            )
        raise SourceError(f"{source} contains no definition files (*.krm){hint}")
    return found


def definition_files(visible: Sequence[Path], *, all_files: bool = False) -> list[Path]:
    """Return the definition files among the files of a folder."""
    if all_files:
        return [path for path in visible if path.suffix.lower() != ".md"]
    named = [path for path in visible if path.suffix == ".krm"]
    return named or [
        path for path in visible if not path.suffix and _DEFINITION.search(path.read_bytes())
    ]


def plain_name(name: str) -> str:
    """Replace characters other than letters, digits, ``_``, ``.`` and ``-`` by ``_``."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def _check_name(path: Path, *parts: str) -> None:
    for part in parts:
        if not _PLAIN.fullmatch(part):
            raise SourceError(
                f"{str(path)!r}: the name {part!r} would become part of generated code (rename it; "
                "letters, digits, `_`, `-` and `.` are allowed)"
            )


def _read(paths: Sequence[Path]) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in paths}


def _parse(texts: Mapping[Path, bytes], diagnostics: Diagnostics) -> list[SyntaxFile]:
    return [parse_file(path, data, diagnostics) for path, data in texts.items()]


class _Packages:
    """Finds and parses the packages that other packages use. ``paths`` are their files."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.paths: list[Path] = []
        self._diagnostics = diagnostics
        self._parsed: dict[Path, PackageFiles] = {}

    def find(self, folder: Path, name: str) -> PackageFiles | list[str]:
        """Return the package ``name``: a folder next to ``folder``, or one of krammar's.

        If there is none, return the names of all.
        """
        beside = folder.parent if folder.name else folder.resolve().parent
        for place in (beside / name, SHIPPED / name):
            files = _files_of(place)
            if not files:
                continue
            if place not in self._parsed:
                self._parsed[place] = PackageFiles(place, tuple(map(self._file, files)))
                self.paths += files
            return self._parsed[place]
        places = [*SHIPPED.iterdir(), *beside.iterdir()]
        return sorted({place.name for place in places if place != folder and _files_of(place)})

    def _file(self, path: Path) -> SyntaxFile:
        stat = path.stat()
        file, diagnostics = _parse_once(path, stat.st_mtime_ns, stat.st_size)
        self._diagnostics.merge(diagnostics)
        return file


# A language server compiles after each change, and the packages that others use rarely change.
@lru_cache(maxsize=1000)
def _parse_once(path: Path, modified: int, size: int) -> tuple[SyntaxFile, Diagnostics]:
    diagnostics = Diagnostics()
    return parse_file(path, path.read_bytes(), diagnostics), diagnostics


def _files_of(folder: Path) -> list[Path]:
    """The definition files of a package, without a look into files of other kinds next to it."""
    return sorted(folder.glob("*.krm"))


def compile_folder(folder: Folder, diagnostics: Diagnostics) -> ir.Protocol:
    """Parse, resolve and check one folder. The IR is complete only if no errors were added."""
    return compile_texts(folder.package, _read(folder.files), diagnostics)


def compile_texts(
    package: str,
    texts: Mapping[Path, bytes],
    diagnostics: Diagnostics,
    folder: Path | None = None,
) -> ir.Protocol:
    """Compile the contents of the definition files of a folder, as ``compile_folder`` does.

    Args:
        folder: the folder that other packages are next to. None: the folder of the files.
    """
    before = len(diagnostics.found)
    place = folder or next(iter(texts)).parent
    return compile_files(package, _parse(texts, diagnostics), place, diagnostics, before)


def compile_files(
    package: str,
    files: Sequence[SyntaxFile],
    folder: Path,
    diagnostics: Diagnostics,
    before: int = 0,
) -> ir.Protocol:
    """Resolve and check the parsed files of one folder.

    Args:
        folder: the folder that other packages are next to.
        diagnostics: contains the diagnostics of parsing these files.
        before: how many of ``diagnostics`` are about other folders.
    """
    packages = _Packages(diagnostics)
    files = [*files, *Uses(PackageFiles(folder, tuple(files)), packages.find, diagnostics).files()]
    if _wants_headers(files):
        headers = parse_file(HEADERS, HEADERS.read_bytes(), diagnostics)
        files.append(replace(headers, used=True))
    protocol = resolve_files(package, files, diagnostics, before)
    protocol = replace(protocol, used=tuple(packages.paths))
    if all(diagnostic.is_style for diagnostic in diagnostics.found[before:]):
        check(protocol, diagnostics)
    return protocol


def compile_source(
    source: Path, diagnostics: Diagnostics, *, all_files: bool = False
) -> Sequence[ir.Protocol]:
    """Compile all protocols below ``source``. Errors and warnings are added to ``diagnostics``."""
    return [compile_folder(folder, diagnostics) for folder in folders(source, all_files=all_files)]
