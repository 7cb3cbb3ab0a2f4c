"""The samples of docs/journal.md work."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import krammar.journal
from krammar.broker import Broker
from krammar.client import Client
from tests.journal.conftest import generate

PAGE = Path(__file__).parents[2] / "docs" / "journal.md"


def blocks(language: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(name="no_shop")
def fixture_no_shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another package of the name that the page has may be imported, and stays so after the test."""

    def modules() -> list[str]:
        return [name for name in sys.modules if name.split(".")[0] == "shop"]

    for name in modules():
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in modules():
        del sys.modules[name]


@pytest.mark.usefixtures("no_shop")
def test_all_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (definitions,) = blocks("krm")
    monkeypatch.syspath_prepend(generate(tmp_path, "shop", definitions))
    importlib.invalidate_caches()
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    own, publish, together, read, again, drop, topics = blocks("python")
    alone: dict[str, Any] = {}
    exec(compile(own, "own", "exec", dont_inherit=True), alone)
    assert "Click(page='/', uuid=UUID('" in capsys.readouterr().out
    alone["clicks"].close()
    for block in (publish, together, read, again, drop):
        exec(block, names)
    printed = capsys.readouterr().out
    assert printed.count("customer='ada'") == 1
    assert printed.count("customer='grace'") == 3
    # Both customers may be in one journal.
    assert names["total"] in (6, 9)
    assert names["Checkpoint"].decode(names["stored"]).read_through[names["name"]] > 0
    assert names["states"] == names["checkpoint"].states
    names["journals"].close()
    with Broker.start() as broker:
        Client(broker.bootstrap_servers).admin.create_topic("orders", partitions=1)
        exec(topics.replace("localhost:9092", broker.bootstrap_servers), {})
    assert capsys.readouterr().out.count("customer='ada'") == 1


def test_every_name_of_gazette_has_one_here() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.split("| Gazette | krammar.journal |\n|---|---|\n")[1].split("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in table.strip().splitlines()]
    missing = []
    for _, ours in rows:
        owner: Any = krammar.journal
        for name in re.findall(r"`([\w.]+)[^`]*`", ours):
            found: Any = krammar.journal
            for part in name.split("."):
                # Methods that follow a class are its own.
                found = getattr(found, part, None) or getattr(owner, part, None)
            if isinstance(found, type):
                owner = found
            if found is None and name not in _ELSEWHERE and name not in _fields(owner):
                missing.append(name)
    assert len(rows) == 38 and missing == []


_ELSEWHERE = {"None", "str", "uuid.UUID", "io.EOF", "validate", "to_csv", "from_csv"}


def _fields(owner: Any) -> set[str]:
    return {*getattr(owner, "__slots__", ()), *getattr(owner, "_fields", ())}
