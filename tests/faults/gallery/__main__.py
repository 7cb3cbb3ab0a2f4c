"""Run the gallery and write its table into docs/faults.md."""

from __future__ import annotations

from tests.faults.gallery.clients import CLIENTS
from tests.faults.gallery.page import PAGE, table_of, with_table
from tests.faults.gallery.situations import SITUATIONS

if __name__ == "__main__":
    rows = {}
    for situation in SITUATIONS:
        rows[situation.title] = [situation.run(client) for client in CLIENTS]
        print(situation.title, *rows[situation.title], sep="\n  ", flush=True)
    PAGE.write_text(with_table(PAGE.read_text("utf-8"), table_of(rows)), "utf-8")
