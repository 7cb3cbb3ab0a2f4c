"""A package in both builds: one compiled, and a copy of it under another name that is not."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from krammar.wire import native
from krammar.wire.layout import Array, Layout, Nested, Type, Versioned
from tests.generated.strategies import Maker

DEFINITIONS = Path(__file__).with_name("protocol.krm")
COMPILED, PURE = "rich_wire", "rich_pure"


class Builds(NamedTuple):
    """The two packages, and the folder that both lie in."""

    compiled: ModuleType
    pure: ModuleType
    folder: Path

    @property
    def extension(self) -> Any:
        """The extension module behind the definition file."""
        return native._PACKAGES[COMPILED].loaded["protocol"]


def krammar(
    *arguments: str, folder: Path, code: int = 0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line in ``folder``, and return its output."""
    found = subprocess.run(
        [sys.executable, "-m", "krammar", *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert found.returncode == code, found.stdout + found.stderr
    return found


def generate(folder: Path) -> Path:
    """The package of ``protocol.krm`` in ``folder``, where nothing is compiled yet."""
    source = folder / "definitions" / COMPILED
    source.mkdir(parents=True)
    shutil.copy(DEFINITIONS, source)
    krammar("gen", "definitions", "-o", "out", folder=folder)
    return folder / "out" / COMPILED


def compile_both(folder: Path) -> Builds:
    """Generate, copy, compile and import."""
    package = generate(folder)
    shutil.copytree(package, package.with_name(PURE))
    krammar("compile", str(package), "-j", "2", folder=folder)
    sys.path.insert(0, str(package.parent))
    try:
        builds = Builds(importlib.import_module(COMPILED), importlib.import_module(PURE), folder)
        for build in (builds.compiled, builds.pure):
            build.EverythingRequest  # noqa: B018 (loads the module)
    finally:
        sys.path.remove(str(package.parent))
    return builds


class Values(Maker):
    """Makes values of structs with a version field of their own too: as plain dictionaries."""

    def value(self, type_: Type, depth: int) -> Any:
        if not isinstance(type_, Versioned):
            return super().value(type_, depth)
        version = self.rng.randrange(3)
        plain: dict[str, Any] = {"version": version}
        if version > 0:
            plain["text"] = self.rng.choice(("", "stamp", "é"))
        if version > 1:
            plain["extra"] = self.rng.choice((-1, 7))
        return plain


def build(package: ModuleType, layout: Layout, plain: dict[str, Any]) -> Any:
    """The object of generated classes whose plain form is ``plain``."""
    arguments = {
        item.name: _build(package, item.type, plain[item.name])
        for item in (*layout.fields, *layout.tags)
    }
    value = attrgetter(layout.name)(package)(**arguments)
    if "unknown_tags" in plain:
        value.unknown_tags = dict(plain["unknown_tags"])
    return value


def _build(package: ModuleType, type_: Type, plain: Any) -> Any:
    if plain is None:
        return None
    if isinstance(type_, Array):
        return [_build(package, type_.element, element) for element in plain]
    if isinstance(type_, Nested):
        return build(package, type_.layout, plain)
    if isinstance(type_, Versioned):
        return getattr(package, type_.name)(**plain)
    return plain
