"""Collects what is wrong with settings, so that a user learns everything at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Problems:
    """The errors that were found."""

    def __init__(self) -> None:
        self.found: list[Exception] = []

    @contextmanager
    def collect(self, name: str = "") -> Iterator[None]:
        """Add a ValueError or a TypeError that the block raises.

        Args:
            name: the setting, which precedes the message.
        """
        try:
            yield
        except (ValueError, TypeError) as error:
            self.found.append(ValueError(f"{name}: {error}") if name else error)

    def check(self) -> None:
        """Raise the error that was found; several ones as one ValueError with a line for each."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise ValueError("\n".join(map(str, self.found)))
