"""The generated package ``forms_wire``, with every form of the language, and values of its messages."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

from click.testing import CliRunner

from krammar.cli import main
from krammar.wire.layout import Array, Layout, Nested, Scalar, Type, VarInteger, Versioned
from tests.generated.catalogue import Message
from tests.generated.strategies import STYLES, Maker
from tests.generated.values import Plain

DEFINITIONS = Path(__file__).with_suffix(".krm")
PACKAGE = "forms_wire"
NAMES = (
    "EverythingRequest",
    "EverythingResponse",
    "FormsRequest",
    "FormsResponse",
    "Pair",
    "Stamped",
    "Open",
    "Framed",
)


def load(folder: Path) -> ModuleType:
    """Generate the package in ``folder``, once for this process, and import it."""
    if PACKAGE not in sys.modules:
        source = folder / "definitions" / PACKAGE
        source.mkdir(parents=True)
        (source / DEFINITIONS.name).write_bytes(DEFINITIONS.read_bytes())
        result = CliRunner().invoke(main, ["gen", str(source.parent), "-o", str(folder)])
        assert result.exit_code == 0, result.output
        # It stays there: modules of codecs and tables are imported on first use.
        sys.path.append(str(folder))
    return importlib.import_module(PACKAGE)


def message(package: ModuleType, name: str) -> Message:
    """A class with all versions that values are made for."""
    cls = getattr(package, name)
    return Message(package, cls, tuple(range(cls.min_version, cls.max_version + 1)))


def plains(of: Message, version: int, number: int = 20) -> list[Plain]:
    """One value of each style and more random ones; the same in every run."""
    rng = Random(f"{of} {version}")
    styles = (*STYLES[of.name == "Stamped" :], *("random",) * number)
    return [_Values(rng, style).message(of, version) for style in styles]


class _Values(Maker):
    """Makes values of the forms that Kafka does not have, too."""

    def value(self, type_: Type, depth: int) -> Any:
        if isinstance(type_, Versioned):
            version = self.rng.randrange(3)
            plain: Plain = {"version": version}
            if version > 0:
                plain["text"] = self.rng.choice(("", "stamp", "é"))
            if version > 1:
                plain["extra"] = self.rng.choice((-1, 7))
            return plain
        if isinstance(type_, VarInteger) and type_.name in ("uvarint", "uvarlong"):
            most = (1 << (32 if type_.name == "uvarint" else 64)) - 1
            return self.rng.choice((0, 1, 127, 128, 16383, 16384, most - 1, most))
        if isinstance(type_, Scalar) and type_.code in "BQ":
            most = (1 << 8 * type_.width) - 1
            return self.rng.choice((0, 1, 7, most // 2, most // 2 + 1, most))
        if isinstance(type_, Scalar) and type_.code == "f":
            return self.rng.choice((0.0, -0.0, 0.5, -1.5, 2.0**-149, float("inf")))
        return super().value(type_, depth)


def build(package: ModuleType, layout: Layout, plain: Plain) -> Any:
    """The object of generated classes whose plain form is ``plain``."""
    cls: Any = package
    for part in layout.name.split("."):
        cls = getattr(cls, part)
    value = cls(
        **{f.name: _build(package, f.type, plain[f.name]) for f in (*layout.fields, *layout.tags)}
    )
    return value.with_unknown_tags(plain.get("unknown_tags"))


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
