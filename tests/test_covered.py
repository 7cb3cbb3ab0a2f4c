"""The table of `make coverage`."""

from __future__ import annotations

from tests.covered import table


def test_table() -> None:
    def file(lines: int, ran: int, branches: int, taken: int) -> dict[str, object]:
        return {
            "summary": {
                "num_statements": lines,
                "covered_lines": ran,
                "num_branches": branches,
                "covered_branches": taken,
                "percent_covered": 0.5,
            }
        }

    files = {
        "krammar/wire/a.py": file(1000, 900, 100, 50),
        "krammar/wire/batches/b.py": file(100, 100, 0, 0),
        "krammar/py.py": file(0, 0, 0, 0),
    }
    assert list(table(files)) == [
        "package        lines  branches  covered",
        "krammar            0         0    0.0 %",
        "krammar/wire   1,100       100   87.5 %",
        "total          1,100       100   87.5 %",
    ]
