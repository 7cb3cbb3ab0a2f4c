"""How often a rule fires."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from krammar.faults.errors import FaultError


class Counted(Protocol):
    """A rule that another one waits for."""

    fired: int


@dataclass(slots=True)
class Limits:
    """How often a rule fires. Times are in seconds since the rule was made, or since 1970 where
    ``absolute``."""

    times: int | None = None
    nth: int | None = None
    every: int = 1
    probability: float = 1.0
    random: Random = field(default_factory=lambda: Random(0))
    between: tuple[float, float] | None = None
    absolute: bool = False
    after: Counted | None = None

    def check(self) -> None:
        """Raise FaultError if limits contradict each other."""
        hint = "leave one of them out"
        if self.nth is not None and self.times not in (None, 1):
            raise FaultError(
                f"nth({self.nth}) fires once, so it cannot fire {self.times} times",
                hint=hint,
                code="F501",
            )
        if self.nth is not None and self.nth % self.every:
            raise FaultError(
                f"nth({self.nth}) and every({self.every}) select different matches",
                hint=hint,
                code="F501",
            )

    def waits(self, since_made: float, today: float) -> bool:
        """Return whether matches do not count yet, or no longer. Times are in seconds."""
        if self.after is not None and not self.after.fired:
            return True
        if self.between is None:
            return False
        time = today if self.absolute else since_made
        return not self.between[0] <= time < self.between[1]

    def fires(self, matched: int, fired: int) -> bool:
        """Return whether the rule fires on a match, after ``fired`` times. ``matched`` counts it too."""
        if self.nth is not None and matched != self.nth:
            return False
        if matched % self.every:
            return False
        if self.probability < 1 and self.random.random() >= self.probability:
            return False
        return self.times is None or fired < self.times

    def is_spent(self, matched: int, fired: int, since_made: float, today: float) -> bool:
        """Return whether the rule can never fire again."""
        if self.times is not None and fired >= self.times:
            return True
        if self.nth is not None and matched >= self.nth:
            return True
        time = today if self.absolute else since_made
        return self.between is not None and time >= self.between[1]


def at_least_one(what: str, number: int) -> None:
    """Raise FaultError for a value below 1, or of another type."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise FaultError(f"{what} must be a whole number from 1, not {number}", word=str(number))
