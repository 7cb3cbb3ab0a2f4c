"""``python -m tests.attack [NAME ...]``: send the most expensive requests of every served API, and print what they cost.

NAMEs choose the APIs whose names contain one of them. ``--newest`` only sends the newest version of each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import kafka_wire

from tests.attack.generate import Case, cases, served
from tests.attack.measure import run

# In seconds.
LIMIT = 0.1


def main() -> None:
    newest = "--newest" in sys.argv
    names = [name.lower() for name in sys.argv[1:] if not name.startswith("--")]

    def chosen() -> list[tuple[int, int]]:
        return [
            (key, version)
            for key, version in served(newest=newest)
            if not names
            or any(name in kafka_wire.request_class(key).__name__.lower() for name in names)
        ]

    def all_cases() -> Iterator[Case]:
        for key, version in chosen():
            yield from cases(key, version)

    print("| Request | Sent | Longest turn | |\n|---|--:|--:|---|")
    over = 0
    for result in run(all_cases()):
        is_over = result.turn > LIMIT
        over += is_over
        if is_over or names:
            mark = "**over the limit**" if is_over else ""
            print(
                f"| {result.case.name} | {result.sent / 1000:,.0f} kB | {result.turn * 1000:.0f} ms | {mark} |",
                flush=True,
            )
    print(f"\n{over} requests took longer than {LIMIT * 1000:.0f} ms in one turn")
    if over:
        sys.exit(1)


if __name__ == "__main__":
    main()
