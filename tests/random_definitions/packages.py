"""Compiles a random protocol in this process, and imports its packages.

The files are those of `krammar gen`, but without the formatting of long lines, which takes most of its time.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from krammar.compiler import ir
from krammar.compiler.backends import load_backend
from krammar.compiler.backends.interface import Backend, Source
from krammar.compiler.front import source as sources
from krammar.util.diagnostics import Diagnostics, format_text
from krammar.wire import elements, reflection, tables
from tests.random_definitions.model import Package, Protocol

_NUMBERS = itertools.count(1)


class Refused(AssertionError):
    """`krammar check --strict` does not accept a definition that the generator calls valid."""


@dataclass
class Compiled:
    """A protocol on disk: its definitions, and the IR and the module of each package."""

    definitions: Path
    out: Path
    folders: list[sources.Folder]
    protocols: list[ir.Protocol]
    modules: dict[str, ModuleType]

    def module(self, package: Package) -> ModuleType:
        """The generated package."""
        return self.modules[package.name]

    def ir(self, package: Package) -> ir.Protocol:
        """The intermediate representation of a package."""
        return next(each for each in self.protocols if each.package == package.name)


def write_definitions(protocol: Protocol, folder: Path) -> Path:
    """Write the definitions, a folder for each package."""
    for package in protocol.packages:
        (folder / package.name).mkdir(parents=True)
        for name, text in package.files.items():
            (folder / package.name / name).write_text(text, encoding="utf-8")
    return folder


def check(definitions: Path) -> tuple[list[sources.Folder], list[ir.Protocol]]:
    """Compile definitions. Any diagnostic, style included, raises Refused."""
    diagnostics = Diagnostics()
    folders = sources.folders(definitions)
    protocols = [sources.compile_folder(folder, diagnostics) for folder in folders]
    if diagnostics.found:
        raise Refused(format_text(diagnostics.sorted()))
    return folders, protocols


@contextmanager
def removed(folder: Path) -> Iterator[Path]:
    """A folder that is removed at the end of the context."""
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def compiled(protocol: Protocol, place: Path) -> Iterator[Compiled]:
    """Compile a protocol below ``place``, and import it until the end of the context."""
    with removed(place / f"protocol_{next(_NUMBERS)}") as folder:
        definitions = write_definitions(protocol, folder / "definitions")
        with generated(definitions, folder / "out") as built:
            yield built


@contextmanager
def generated(definitions: Path, out: Path) -> Iterator[Compiled]:
    """Compile definitions to ``out``, and import the packages until the end of the context."""
    root = f"random_{next(_NUMBERS)}"
    folders, protocols = check(definitions)
    try:
        for each in protocols:
            write(render(each), out / root)
        sys.path.insert(0, str(out))
        importlib.invalidate_caches()
        modules = {
            each.package: importlib.import_module(f"{root}.{each.package}") for each in protocols
        }
        yield Compiled(definitions, out / root, folders, protocols, modules)
    finally:
        if str(out) in sys.path:
            sys.path.remove(str(out))
        for name in [name for name in sys.modules if name == root or name.startswith(f"{root}.")]:
            del sys.modules[name]
        forget(root)


@cache
def backend(name: str) -> Backend:
    """A backend. It parses its templates once."""
    return load_backend(name)(None)


def render(protocol: ir.Protocol, name: str = "python") -> dict[Path, str]:
    """The files of a backend for a package, by path."""
    return {
        Path(protocol.package, file.path): file.text
        for file in backend(name).render(Source(protocol, "definitions"))
    }


def write(files: Mapping[Path, str], out: Path) -> None:
    """Write files below a folder."""
    for path, text in files.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(text, encoding="utf-8")


def forget(root: str) -> None:
    """Drop what krammar remembers of the classes of a package, so that thousands fit into memory."""
    for module in (reflection, elements):
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
    for cls in [cls for cls in tables._TABLES if cls.__module__.startswith(f"{root}.")]:
        del tables._TABLES[cls]
    gc.collect(1)
