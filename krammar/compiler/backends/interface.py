"""The interface of backends: their input, a ``Source``, and their output, ``File``s. See docs/backends.md."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from krammar.compiler import ir, stamps
from krammar.compiler.front.source import SourceError
from krammar.compiler.layout_table import LayoutTable, layout_table


@dataclass(frozen=True)
class Source:
    """A protocol without errors, as the input of a backend.

    ``label`` is the name of the folder of definitions, reduced to letters, digits, ``_``, ``.`` and ``-``.
    """

    protocol: ir.Protocol
    label: str

    @property
    def title(self) -> str:
        """The name of the protocol for readers."""
        return self.protocol.package or self.label

    @cached_property
    def layouts(self) -> dict[str, LayoutTable]:
        """The layouts of each struct that can be encoded alone, by the struct's name."""
        return {
            struct.name: layout_table(struct)
            for file in self.protocol.files
            for struct in file.structs
            if struct.encoding
        }

    @cached_property
    def modules(self) -> dict[str, str]:
        """The module of each struct, anonymous ones included, by the struct's name."""
        return {
            struct.name: file.module
            for file in self.protocol.files
            for named in file.structs
            for struct in ir.walk(named)
        }

    @cached_property
    def requests(self) -> dict[str, ir.Request]:
        """The request that each request or response belongs to, or the push, by the message's name."""
        found = {}
        for request in (*self.protocol.requests, *self.protocol.pushes):
            found[request.struct.name] = request
            if request.response is not None:
                found[request.response.name] = request
        return found

    def header(self, *inside: str) -> dict[str, str]:
        """Return the lines ``generated`` and ``stamp`` for the begin of a file, and its ``place``.

        Args:
            inside: the name of the definition file, if the file is generated from a single one.
        """
        return stamps.header(self.label, self.protocol.package, *inside)


@dataclass(frozen=True, slots=True)
class File:
    """A rendered file. ``path`` is below the folder of its package."""

    path: Path
    text: str


class Backend(ABC):
    """Renders the files of a protocol. ``OPTIONS`` are the accepted options with their descriptions."""

    OPTIONS: ClassVar[Mapping[str, str]] = {}
    # Whether black formats whole Python files, or only lines that are too long for its style.
    format_whole = True

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        """Store the options.

        Raises:
            SourceError: an option is not in ``OPTIONS``.
        """
        self.options = dict(options or {})
        for name in self.options.keys() - self.OPTIONS.keys():
            known = ", ".join(self.OPTIONS) or "none"
            raise SourceError(f"the backend has no option {name!r} (options: {known})")

    def inputs(self) -> Iterable[Path]:
        """Return the files that the output depends on, in addition to the definitions and the compiler."""
        return [Path(inspect.getfile(type(self)))]

    @abstractmethod
    def render(self, source: Source) -> Iterable[File]:
        """Yield the files of a protocol.

        A file must contain the two lines of ``source.header()`` in its first 500 bytes, or be empty. krammar
        formats Python files afterwards.
        """

    def overview(self, sources: Sequence[Source]) -> Iterable[File]:
        """Return files about several packages, by their paths below the output folder."""
        return ()
