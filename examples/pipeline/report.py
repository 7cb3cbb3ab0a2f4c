"""Prints the demo's stages with their times, lines and tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Report:
    """Prints the demo's progress, and measures the time of each stage, in seconds."""

    def __init__(self) -> None:
        self.times: list[tuple[str, float]] = []
        self._began = time.monotonic()

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        print(f"\n{len(self.times) + 1}. {title}", flush=True)
        began = time.monotonic()
        yield
        self.times.append((title, time.monotonic() - began))

    @property
    def seconds(self) -> float:
        """The time since the demo began."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        print(f"   {text}", flush=True)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table: numbers right-aligned with commas, all other cells left-aligned."""
        cells = [[_text(cell) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
        right = [all(isinstance(row[at], int | float) for row in rows) for at in range(len(head))]

        def line(texts: Sequence[str]) -> str:
            parts = (
                text.rjust(width) if number else text.ljust(width)
                for text, width, number in zip(texts, widths, right, strict=True)
            )
            return "  ".join(parts).rstrip()

        lines = [line(head), "  ".join("-" * width for width in widths), *map(line, cells)]
        print("\n" + "\n".join(f"     {each}" for each in lines) + "\n", flush=True)


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
