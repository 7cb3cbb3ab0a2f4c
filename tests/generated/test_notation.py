"""From text to definitions to text: the notation of protocol guides, for every message-version of kafka_wire."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import kafka_wire
import pytest

from krammar.compiler import ir, layout
from krammar.compiler.front.source import compile_source
from krammar.compiler.generate import Generator
from krammar.compiler.guide import Answers, import_guides
from krammar.inspect.notation import show
from krammar.util.diagnostics import Diagnostics
from tests.compiler.support import structs
from tests.generated.catalogue import by_name

DEFINITIONS = Path(__file__).parents[2] / "definitions"

Again = Callable[[str, str], ModuleType]


@pytest.fixture
def again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Again]:
    """Imports a text, generates a package from the definitions without formatting, and imports the package."""

    def run(text: str, name: str) -> ModuleType:
        source = definitions(text, tmp_path / name)
        (protocol,) = compile_source(source, Diagnostics())
        for path, content in Generator(source, tmp_path, "python").package(protocol).items():
            target = tmp_path / "generated" / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    monkeypatch.syspath_prepend(tmp_path / "generated")
    return run


def definitions(text: str, folder: Path) -> Path:
    folder.mkdir()
    guide = folder.with_suffix(".txt")
    guide.write_text(text)
    diagnostics = Diagnostics()
    result = import_guides([guide], Answers(), diagnostics)
    assert result is not None, diagnostics.sorted()
    for name, content in result.files.items():
        (folder / name).write_text(content)
    return folder


def bytes_of(struct: ir.Struct, version: int) -> str:
    """What the layout says about bytes. Names of nested structs are not in the notation."""
    key = layout.build_layout(struct, version).key
    # Records are always nullable in the notation.
    key = re.sub(r"(?<=unaligned_records:bytes/uvarint)(?=[,)|])", "?", key)
    return re.sub(r"[\w.]+(?=\()", "", key)


def test_the_definitions_of_a_text_have_the_same_bytes_in_all_versions(tmp_path: Path) -> None:
    text = "\n\n".join(show("kafka_wire"))
    made = structs(definitions(text, tmp_path / "made"))
    real = structs(DEFINITIONS / "kafka_wire")

    assert made.keys() == real.keys() == by_name().keys()
    compared = 0
    for name, message in by_name().items():
        facts = [
            (each.min_version, each.max_version, each.version_field)
            for each in (made[name], real[name])
        ]
        assert facts[0] == facts[1], name
        for version in message.versions:
            assert bytes_of(made[name], version) == bytes_of(real[name], version), (name, version)
            compared += 1
    assert compared == 875


def test_headings_supply_the_api_keys(tmp_path: Path) -> None:
    text = "\n\n".join(show("kafka_wire"))
    (protocol,) = compile_source(definitions(text, tmp_path / "made"), Diagnostics())

    keys = {request.struct.name: request.key for request in protocol.requests}
    assert keys == {name: m.key for name, m in by_name().items() if name.endswith("Request")}


def test_a_text_comes_back(again: Again) -> None:
    text = "\n\n".join(show("kafka_wire", "FetchRequest"))
    text += "\n\n" + "\n\n".join(show("kafka_wire", "FetchResponse"))
    package = again(text, "made_fetch")

    assert list(show("made_fetch", "FetchRequest")) == list(show("kafka_wire", "FetchRequest"))
    assert list(show("made_fetch", "FetchResponse")) == list(show("kafka_wire", "FetchResponse"))
    data = kafka_wire.FetchRequest(rack_id="a", session_id=5).encode(12)
    assert package.FetchRequest.decode(data, 12).encode(12) == data


def test_the_text_of_every_message_version_comes_back(again: Again) -> None:
    texts = list(show("kafka_wire"))
    again("\n\n".join(texts), "made_kafka")

    assert len([text for text in texts if " API (Key: " not in text]) == 875
    for one, other in zip(show("made_kafka"), texts, strict=True):
        assert one == other
