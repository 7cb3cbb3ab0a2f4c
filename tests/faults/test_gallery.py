"""The gallery: each client does what docs/faults.md says, and the page's samples run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka_wire
import pytest

from krammar.faults import Faults
from krammar.faults.file import read_rules
from tests import samples
from tests.faults.gallery.clients import CLIENTS, Client
from tests.faults.gallery.page import PAGE, rows_of
from tests.faults.gallery.situations import SITUATIONS, Situation

ROWS = rows_of(PAGE.read_text("utf-8"))


def cases() -> Iterator[Any]:
    for situation in SITUATIONS:
        for client in CLIENTS:
            name = f"{situation.play.__name__}-{client.name}"
            # That `poll` never returns takes a quarter of a minute to find out.
            slow = name == "corrupt-kafka-python"
            yield pytest.param(situation, client, id=name, marks=[pytest.mark.sweep] * slow)


@pytest.mark.parametrize(("situation", "client"), cases())
def test_a_client_does_what_the_page_says(situation: Situation, client: Client) -> None:
    cell = ROWS[situation.title][CLIENTS.index(client)]
    did = situation.run(client)
    assert did[0].upper() + did[1:] == cell


def test_the_page_has_all_situations_and_no_others() -> None:
    assert list(ROWS) == [situation.title for situation in SITUATIONS]


@pytest.mark.parametrize("sample", samples.blocks("docs/faults.md"))
def test_samples_run_as_pasted(sample: str, tmp_path: Path) -> None:
    samples.run_python(tmp_path, sample)


def test_the_files_of_the_page_have_no_mistakes(tmp_path: Path) -> None:
    for number, text in enumerate(samples.blocks("docs/faults.md", "toml")):
        path = tmp_path / f"{number}.toml"
        path.write_text(text)
        read_rules(Faults(kafka_wire, sees=("principal", "clock")), path)
