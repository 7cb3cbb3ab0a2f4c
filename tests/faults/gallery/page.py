"""The gallery's tables in docs/faults.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from tests.faults.gallery.clients import CLIENTS
from tests.faults.gallery.situations import SITUATIONS

PAGE = Path(__file__).parents[3] / "docs" / "faults.md"
_BEGIN, _END = "<!-- gallery -->\n", "<!-- end of the gallery -->"


def table_of(rows: Mapping[str, Sequence[str]]) -> str:
    """The rules of each situation, and what each client did."""
    names = [f"{client.name} {version(client.name)}" for client in CLIENTS]
    lines = ["| Situation | Rule |", "|---|---|"]
    lines += [f"| {each.title} | `{each.rules}` |" for each in SITUATIONS]
    lines += ["", f"| Situation | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    lines += [
        f"| {title} | {' | '.join(cell[0].upper() + cell[1:] for cell in cells)} |"
        for title, cells in rows.items()
    ]
    return "\n".join(lines) + "\n"


def with_table(page: str, table: str) -> str:
    """Return the page with its table replaced."""
    before, _, rest = page.partition(_BEGIN)
    return before + _BEGIN + table + _END + rest.partition(_END)[2]


def rows_of(page: str) -> dict[str, list[str]]:
    """What the page says, by the title of the situation."""
    table = page.partition(_BEGIN)[2].partition(_END)[0].partition("\n\n")[2]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {title: cells for title, *cells in rows}
