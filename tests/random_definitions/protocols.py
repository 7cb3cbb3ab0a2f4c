"""What works on a whole protocol: other backends, and the notations that definitions are exported to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from random import Random
from types import ModuleType

from jsonschema import Draft202012Validator

from krammar.compiler.formatter import format_source
from krammar.inspect.messages import inspect_bytes, show_layout
from tests.random_definitions.frames import frames
from tests.random_definitions.model import Package, Protocol
from tests.random_definitions.packages import Compiled, render
from tests.random_definitions.ways import VALUE_WAYS, Case, cases, expect


def try_everything(protocol: Protocol, built: Compiled, rng: Random, each: int = 1) -> None:
    """Send values of all structs and versions through every way.

    Args:
        each: how many values of each struct and version.
    """
    for package in protocol.packages:
        module = built.module(package)
        tried = list(cases(package, module, rng, each))
        for case in tried:
            for way in VALUE_WAYS:
                try:
                    way(case)
                except Exception as error:
                    raise AssertionError(
                        f"{way.__name__}: {case.kind.name} v{case.version} of {package.name}: {error}\n{case.value}"
                    ) from error
        frames(package, module, rng)
        backends(package, built, tried, rng)
        inspected(module, tried)
    formatted(protocol)


def formatted(protocol: Protocol) -> None:
    """`krammar fmt` changes nothing."""
    for package in protocol.packages:
        for text in package.files.values():
            expect(format_source(text) == text, "fmt", format_source(text), text)


def backends(package: Package, built: Compiled, tried: Iterable[Case], rng: Random) -> None:
    """The other backends run, and JSON Schema validates what ``to_dict`` returns."""
    for name in ("docs", "wireshark"):
        render(built.ir(package), name)
    validators = {}
    for text in render(built.ir(package), "json-schema").values():
        schema = json.loads(text)
        if rng.random() < 0.1:  # one in ten, because checking a schema takes long
            Draft202012Validator.check_schema(schema)
        validators[schema["title"]] = Draft202012Validator(schema)
    for case in tried:
        found = case.message.to_dict()
        errors = list(validators[case.kind.name].iter_errors(found))
        expect(not errors, "JSON Schema", found, errors[:1])


def inspected(module: ModuleType, tried: Iterable[Case]) -> None:
    """`krammar inspect` shows all bytes."""
    for case in tried:
        lines, error = inspect_bytes(module.__name__, case.kind.name, case.version, case.data)
        expect(error is None, "inspect", error)
        expect(f"{len(case.data)} of {len(case.data)} bytes" in lines[0], "inspect", lines[0])
        show_layout(module.__name__, case.kind.name, case.version)
