"""Warnings about many things of the same kind: the first ones, and the number of the others."""

from __future__ import annotations

from collections.abc import Callable


class FewWarnings:
    """Passes on the first warnings, and counts the others.

    A folder of a stranger can give reason for millions of them.
    """

    def __init__(self, warn: Callable[[str], None], most: int = 20) -> None:
        self._warn = warn
        self._left = most
        self._others = 0

    def __call__(self, text: str) -> None:
        if self._left:
            self._left -= 1
            self._warn(text)
        else:
            self._others += 1

    def end(self, where: object) -> None:
        """Report how many warnings about ``where`` were not passed on, if any."""
        if self._others:
            self._warn(f"{where}: {self._others} more warnings like the last one")
        self._others = 0
