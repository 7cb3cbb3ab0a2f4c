"""Other notations: what `krammar export` and `krammar show` write, `krammar import` reads with the same bytes.

A form that a notation does not have is an error, which names the struct or the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from click.testing import CliRunner

from krammar.cli import main
from krammar.inspect.notation import show
from tests.random_definitions.model import Package, Protocol, Struct, struct_in
from tests.random_definitions.names import normal
from tests.random_definitions.packages import Compiled, generated
from tests.random_definitions.reference import same
from tests.random_definitions.strategies import FORMS
from tests.random_definitions.ways import cases, expect

# Kafka's schemas have neither of these.
JSON_FORMS = frozenset(FORMS) - {
    "packages",
    "headers",
    "moved headers",
    "one way",
    "pushes",
    "response keys",
    "newer versions",
    "varints",
    "varint arrays",
    "nested arrays",
    "lengths",
    "reserved",
    "hostile names",
    "docs",
    "unsigned",
    "float32",
    "prefixes",
    "flags",
}
# The notation of Kafka's guide has no defaults and no lengths.
GUIDE_FORMS = JSON_FORMS - {"defaults", "versioned", "tags"} | {
    "varints",
    "varint arrays",
    "one way",
    "response keys",
}


def through_json(package: Package, built: Compiled, place: Path) -> tuple[Path, str]:
    """Export a package as Kafka's schemas, and import them. Return the new definitions, and what was printed."""
    printed = run("export", "--kafka-json", "--skip", built.definitions, "-o", place / "schemas")
    schemas = place / "schemas" / package.name
    if not schemas.is_dir():
        return place, printed
    return place / "again", printed + run("import", schemas, "-o", place / "again" / package.name)


def through_guide(package: Package, built: Compiled, place: Path) -> tuple[Path, str]:
    """Print a package as Kafka's guide, and import it. Return the new definitions, and what was printed."""
    place.mkdir(parents=True, exist_ok=True)
    guide = place / "guide.txt"
    guide.write_text("\n\n".join(show(built.module(package).__name__)), encoding="utf-8")
    return place / "again", run("import", guide, "-o", place / "again" / package.name)


def run(*arguments: Any) -> str:
    """Run krammar, and return its output. An error has a text, and is no exception."""
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    expect(
        result.exception is None or isinstance(result.exception, SystemExit),
        "an exception",
        arguments,
        result.exception,
    )
    return result.output


def compare_notations(
    protocol: Protocol,
    built: Compiled,
    way: Callable[[Package, Compiled, Path], tuple[Path, str]],
    place: Path,
) -> int:
    """Compare the bytes of the definitions that come back. Return how many values were compared."""
    (package,) = protocol.packages
    again, printed = way(package, built, place)
    if not again.is_dir() or not any(again.rglob("*.krm")):
        expect(_named(package, printed), "an error without a name of the definitions", printed)
        return 0
    compared = 0
    with generated(again, place / "out") as other:
        module = other.modules[package.name]
        for case in cases(package, built.module(package), Random(protocol.text), 2):
            cls = getattr(module, case.kind.name, None)
            if cls is None:
                expect(case.kind.name in printed, "lost without an error", case.kind.name, printed)
                continue
            if case.kind.highest is None and case.version > cls.max_version:
                expect(case.kind.name in printed, "a version is lost without a warning", printed)
                continue
            layout = module.layout(cls, case.version)
            found = layout.read(case.data)
            expected = case.layout.read(case.data)
            expect(
                same(_values(found), _values(expected)),
                f"{case.kind.name} v{case.version}",
                case.data,
                found,
                expected,
                printed,
            )
            written = layout.write(found)
            expect(written == case.data, "other bytes", case.kind.name, written, case.data)
            compared += 1
    return compared


def _values(value: Any) -> Any:
    """The values without the names of fields, which differ: ``TopicID`` comes back as ``TopicId``."""
    if isinstance(value, dict):
        return [_values(each) for each in value.values()]
    return [_values(each) for each in value] if isinstance(value, list) else value


def _named(package: Package, printed: str) -> bool:
    # The guide spells the field `TopicId` as `topic_id`.
    text = normal(printed)
    return any(normal(name) in text for struct in package.structs for name in _names(struct))


def _names(struct: Struct) -> Iterator[str]:
    if struct.name:
        yield struct.name
    for item in struct.fields:
        yield item.name
        inner = struct_in(item.type)
        if inner is not None:
            yield from _names(inner)
