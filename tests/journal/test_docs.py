"""docs/journal.md does what it says."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from krammar.broker import Broker
from krammar.client import Client
from tests.journal.conftest import generate

PAGE = Path(__file__).parents[2] / "docs" / "journal.md"


def blocks(language: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_all_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (definitions,) = blocks("krm")
    monkeypatch.syspath_prepend(generate(tmp_path, "journal_docs", definitions))
    importlib.invalidate_caches()
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"Order": importlib.import_module("journal_docs").Order}
    publish, together, read, again, topics = blocks("python")
    for block in (publish, together, read, again):
        exec(block, names)
    printed = capsys.readouterr().out
    assert printed.count("customer='ada'") == 1
    assert printed.count("customer='grace'") == 3
    # Both customers may be in one journal.
    assert names["total"] in (6, 9)
    assert names["Checkpoint"].decode(names["stored"]).read_through[names["name"]] > 0
    names["journals"].close()
    with Broker.start() as broker:
        Client(broker.bootstrap_servers).admin.create_topic("orders", partitions=1)
        exec(topics.replace("localhost:9092", broker.bootstrap_servers), names)
    assert capsys.readouterr().out.count("customer='ada'") == 1
