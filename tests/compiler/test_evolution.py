"""What `krammar diff` reports for about a hundred changes, and the bytes that show whether it is right."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from krammar.cli import main
from krammar.wire.errors import EncodeError, WireError
from tests.compiler.conftest import write_files
from tests.compiler.evolution import CHANGES, NO_SCHEMA, Change
from tests.compiler.evolution_bytes import BYTES, NEW, OLD

DOCS = Path(__file__).parents[2] / "docs"
BY_NAME = {change.name: change for change in CHANGES}

# Values of all fields. Most do not fit the fields that several changes call A and B.
VALUES = {
    "name": ["a"],
    "count": [1],
    "size": [2],
    "owner": ["b", None],
    "parts": [[{"id": 1}, {"id": 2, "label": "c"}]],
    "place": [{"city": "d"}, None],
    "marks": [[1, 2], None],
    "code": [3],
    "note": ["e", None],
    "low": [1],
    "high": [7],
    "home": [{"city": "f", "zip": 6}, {"zip": 6}],
    "rows": [[{"width": 1}, {}]],
    "late": [1],
    "a": [1, "g", None, [1], [{"b": 1}], [{"c": 1}], {"b": 1}],
    "b": [1],
}


class Packages:
    """The generated packages of all definitions."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def add(self, text: str) -> str:
        return self._names.setdefault(text, f"p{len(self._names)}")

    def generate(self, folder: Path) -> None:
        for text, name in self._names.items():
            write_files(folder / "definitions" / "changed_things" / name, text)
        out = str(folder / "generated")
        result = CliRunner().invoke(main, ["gen", str(folder / "definitions"), "-o", out])
        assert result.exit_code == 0, result.output

    def request(self, text: str) -> Any:
        """The class of the request in a text."""
        module = importlib.import_module(f"changed_things.{self._names[text]}")
        return module.request_class(8 if "key 8" in text else 7)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Packages]:
    found = Packages()
    for change in CHANGES:
        found.add(change.old)
        found.add(change.new)
    for bytes_ in BYTES.values():
        for text in {bytes_.writer, bytes_.reader} - {OLD, NEW}:
            found.add(text)
    folder = tmp_path_factory.mktemp("evolution")
    found.generate(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "generated")
        importlib.invalidate_caches()
        yield found


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_diff(change: Change, tmp_path: Path) -> None:
    old = write_files(tmp_path / "old", change.old)
    new = write_files(tmp_path / "new", change.new)
    output = CliRunner().invoke(main, ["diff", str(old), str(new), "--format", "json"]).output

    assert " ".join(sorted({each["code"] for each in json.loads(output or "[]")})) == change.codes


def test_each_difference_has_its_bytes() -> None:
    assert len(BY_NAME) == len(CHANGES)
    assert {change.name for change in CHANGES if change.differs} == BYTES.keys()


def test_the_pages_have_the_numbers() -> None:
    differ = [change for change in CHANGES if change.differs]
    accepted = sum(change.breaks_peers for change in differ)
    judged = sum(change.kafka != NO_SCHEMA for change in CHANGES)
    ci, testing = (" ".join((DOCS / name).read_text().split()) for name in ("ci.md", "testing.md"))

    assert f"for {len(CHANGES)} changes" in ci
    assert (
        f"Of {judged} that Kafka's schemas can express, the two agree on {judged - len(differ)}"
        in ci
    )
    assert f"refuses {len(differ) - accepted} of the others" in ci
    assert f"accepts {accepted} that" in ci
    assert f"about {len(CHANGES)} changes" in testing
    assert f"The two differ on {len(differ)}." in testing


@pytest.mark.parametrize("name", BYTES)
def test_bytes(name: str, packages: Packages) -> None:
    change, item = BY_NAME[name], BYTES[name]
    texts = {OLD: change.old, NEW: change.new}
    writer, reader = (
        packages.request(texts.get(side, side)) for side in (item.writer, item.reader)
    )
    data = writer.from_dict(dict(item.value)).encode(item.version)

    assert data.hex(" ") == item.hex
    if isinstance(item.read, str):
        assert change.breaks_peers
        with pytest.raises(WireError) as caught:
            reader.decode(data, item.version)
        assert item.read in str(caught.value)
        return
    read = reader.decode(data, item.version).to_dict()
    expected = item.value if item.read is None else item.read
    assert expected.keys() & read.keys()
    assert alike(dict(expected), read)
    assert (expected != item.value) if change.breaks_peers else alike(dict(item.value), read)


def test_changes_that_break_nobody(packages: Packages) -> None:
    """Old and new definitions read and write the same bytes, value by value, in all versions of both."""
    for change in CHANGES:
        if change.breaks_peers:
            continue
        old, new = packages.request(change.old), packages.request(change.new)
        seen = 0
        for version in range(
            max(old.min_version, new.min_version), min(old.max_version, new.max_version) + 1
        ):
            for writer, reader in ((old, new), (new, old)):
                for value, data in encoded(writer, version):
                    assert alike(value.to_dict(), reader.decode(data, version).to_dict()), (
                        change.name,
                        version,
                        value,
                    )
                    seen += 1
        assert seen, change.name


def encoded(writer: Any, version: int) -> Iterator[tuple[Any, bytes]]:
    """Values that the version can carry, each with its bytes."""
    yield writer(), writer().encode(version)
    for key, options in VALUES.items():
        for option in options if key in writer().to_dict() else ():
            try:
                value = writer.from_dict({key: option})
                data = value.encode(version)
            except (EncodeError, TypeError):
                continue
            if writer.decode(data, version) == value:  # not an ignorable value
                yield value, data


def alike(one: Any, other: Any) -> bool:
    """Whether two plain values are equal, apart from fields that only one side has."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(alike(one[key], other[key]) for key in one.keys() & other.keys())
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return all(map(alike, one, other))
    return bool(one == other)
