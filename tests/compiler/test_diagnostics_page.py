"""docs/diagnostics.md has every code of the compiler, and matches the tests."""

from __future__ import annotations

import re
from pathlib import Path

from krammar.compiler.front.codes import CODES
from tests.compiler.diagnostics_page import CHANGES, PAGE, page

COMPILER = Path(__file__).parents[2] / "krammar" / "compiler"


def test_every_code_is_listed() -> None:
    used = {
        code
        for path in COMPILER.rglob("*.py")
        if path.name != "codes.py"
        for code in re.findall(r'"([EWB]\d{3})"', path.read_text())
    }

    assert used == set(CODES)


def test_the_page_is_current() -> None:
    assert (
        PAGE.read_text() == page().rstrip() + "\n"
    ), "run: python -m tests.compiler.diagnostics_page"


def test_each_change_shows_its_code() -> None:
    text = PAGE.read_text()

    for code in CHANGES:
        section = text.split(f"### {code}\n")[1].split("\n### ")[0]
        assert f"error {code}:" in section
