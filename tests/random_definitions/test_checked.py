"""Packages of random definitions pass the checks of users' projects, and Wireshark shows their frames."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, given, seed, settings

from krammar.cli import main
from krammar.wire.layout import Layout
from tests.compiler.tshark import Conversation, Different, compare, needs_tshark, write_pcap
from tests.compiler.tshark import frames as shown_frames
from tests.random_definitions import reference
from tests.random_definitions.headers import field_of, header_value, header_versions, headers_of
from tests.random_definitions.model import Package, Protocol, Struct
from tests.random_definitions.package_strategies import protocols
from tests.random_definitions.packages import Compiled, compiled, render, write, write_definitions
from tests.random_definitions.values import Values

FEW, MANY = 3, 60


def drawn(count: int, number: int) -> list[Protocol]:
    """Random protocols, the same for the same seed."""
    found: list[Protocol] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(protocols())
    def draw(protocol: Protocol) -> None:
        found.append(protocol)

    draw()
    return sorted(found, key=lambda protocol: len(protocol.text))[-count:]


def run(*command: str, folder: Path) -> None:
    """Run a checker, which must find nothing."""
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.search)])
def test_type_checkers_and_linters(count: int, tmp_path: Path) -> None:
    packages = [f"project{number}" for number in range(count)]
    for name, protocol in zip(packages, drawn(count, count), strict=True):
        source = write_definitions(protocol, tmp_path / "definitions" / name)
        result = CliRunner().invoke(main, ["gen", str(source), "-o", str(tmp_path / "src" / name)])
        assert result.exit_code == 0, result.output
        (tmp_path / "src" / name / "__init__.py").write_text("")
    run("mypy", "--strict", "--config-file=", *packages, folder=tmp_path / "src")
    rules = "B008,E4,E7,E9,F,I"
    run("ruff", "check", "--isolated", "--no-cache", f"--select={rules}", folder=tmp_path / "src")
    if count == MANY and shutil.which("node") is not None:
        config = {"typeCheckingMode": "strict", "include": packages, "pythonVersion": "3.11"}
        (tmp_path / "src" / "pyrightconfig.json").write_text(json.dumps(config))
        run("pyright", "--pythonpath", sys.executable, folder=tmp_path / "src")


@needs_tshark
@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.search)])
def test_wireshark(count: int, tmp_path: Path) -> None:
    shown = 0
    for protocol in drawn(count, count + 1):
        with compiled(protocol, tmp_path) as built:
            for package in protocol.packages:
                shown += in_wireshark(package, built, tmp_path / "wireshark", Random(protocol.text))
    assert shown > count


def in_wireshark(package: Package, built: Compiled, place: Path, rng: Random) -> int:
    """Compare what tshark shows of each message in each version. Return the number of messages."""
    talk, expected = Conversation(), list[list[tuple[Layout, bytes]]]()
    for by_client, data, layouts in _frames(package, built, rng):
        talk.frame(data, by_client=by_client)
        expected.append([(layout, data) for layout in layouts])
    files = render(built.ir(package), "wireshark")
    write(files, place)
    script = next(place / path for path in files if path.suffix == ".lua")
    name = script.stem
    found = shown_frames(script, write_pcap(place / "a.pcap", [talk]), name) if expected else []
    assert len(found) == len(expected)
    for parts, frame in zip(expected, found, strict=True):
        items = [item for item in frame.children if item.name == name] or [frame]
        assert len(items) == len(parts), [item.label for item in items]
        at = 0
        for (layout, data), item in zip(parts, items, strict=True):
            value, at = layout.read_from(data, at)
            try:
                assert item.label == f"{layout.name} v{layout.version}"
                compare(layout, value, item.children, layout.name)
            except Different as error:
                raise AssertionError(f"{error}\n{data!r}\n{package.files}") from error
    return len(expected)


def _frames(
    package: Package, built: Compiled, rng: Random
) -> Iterator[tuple[bool, bytes, list[Layout]]]:
    """The frames of a conversation: who sends each, its bytes, and the layouts of header and body."""
    headers, values, module = headers_of(package), Values(rng), built.module(package)

    def frame(header: Struct, version: int, message: Struct, of: int, key: int) -> bytes | None:
        numbers = {"key": key, "version": of, "id": number % 100}
        try:
            head = reference.encode(
                header, version, header_value(header, version, numbers, "client")
            )
        except reference.Invalid:
            return None  # the header has a default that this version cannot encode
        return head + reference.encode(message, of, values.message(message, of))

    def layouts(*of: tuple[Struct, int]) -> list[Layout]:
        return [module.layout(getattr(module, each.name), version) for each, version in of]

    number = 0
    for message, response in package.messages:
        assert message.highest is not None
        for version in range(message.lowest, message.highest + 1):
            number += 1
            before, after = header_versions(message, version, headers)
            if message.role != "push":
                data = frame(headers.request, before, message, version, message.key)
                if data is not None:
                    yield True, data, layouts((headers.request, before), (message, version))
                if data is None or response is None:
                    continue
            body = response or message
            key = message.key if message.response_key is None else message.response_key
            data = frame(headers.response, after, body, version, key)
            if data is not None and (message.role == "push" or field_of(headers.response, "id")):
                yield False, data, layouts((headers.response, after), (body, version))
