"""Definitions of other packages: ``use kafka_wire: ErrorCode``.

The definitions that a package uses become part of it, together with the definitions that they need. So
generated code is complete without the other package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
