"""How often a rule fires."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Annotated, Any

from krammar.faults.declared import Check, declared
from krammar.faults.errors import FaultError

_COUNT = Check(
    lambda number: number is None or number >= 1,
    "{name} must be a whole number from 1, not {value}",
)
_SHARE = Check(lambda share: 0 <= share <= 1, "{name} must be from 0 to 1, not {value}")


@dataclass(slots=True)
class Limits:
    """How often a rule fires. The fields are the keys of a file.

    Args:
        times: at most so often.
        nth: on this match only, counted from 1.
        every: on every match of this number.
        probability: of firing on a match; the same ``seed`` gives the same choices.
        between: two moments, in seconds since the rule was made, or as datetimes.
        after: a rule that has to fire before.

    Raises:
        FaultError: a value does not fit, or limits contradict each other.
    """

    times: Annotated[int | None, _COUNT] = None
    nth: Annotated[int | None, _COUNT] = None
    every: Annotated[int, _COUNT] = 1
    probability: Annotated[float, _SHARE] = 1.0
    seed: int = 0
    between: Iterable[float | datetime] | None = None
    after: Any = None
    random: Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name, values in declared(Limits).items():
            values.check(name, getattr(self, name), name)
        if self.nth is not None and self.times not in (None, 1):
            self._contradict(f"fires once, so it cannot fire {self.times} times")
        if self.nth is not None and self.nth % self.every:
            self._contradict(f"and every({self.every}) select different matches")
        if self.between is not None:
            _check_moments(*self.between)
        self.random = Random(self.seed)

    def _contradict(self, why: str) -> None:
        raise FaultError(f"nth({self.nth}) {why}", hint="leave one of them out", code="F501")

    def _span(self, since_made: float, today: float) -> tuple[float, float, float]:
        """Return the time now, and the two moments, by the same clock."""
        start, end = self.between or (float("-inf"), float("inf"))
        if isinstance(start, datetime) and isinstance(end, datetime):
            return today, start.timestamp(), end.timestamp()
        return since_made, start, end  # type: ignore[return-value]

    def waits(self, since_made: float, today: float) -> bool:
        """Return whether matches do not count yet, or no longer. Times are in seconds."""
        if self.after is not None and not self.after.fired:
            return True
        now, start, end = self._span(since_made, today)
        return not start <= now < end

    def fires(self, matched: int, fired: int) -> bool:
        """Return whether the rule fires on a match, after ``fired`` times. ``matched`` counts it too."""
        if self.nth not in (None, matched) or matched % self.every:
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
        now, _, end = self._span(since_made, today)
        return now >= end


def _check_moments(*moments: Any) -> None:
    if len(moments) != 2:
        raise FaultError(f"between needs two moments, not {len(moments)}")
    start, end = moments
    if not any(
        isinstance(start, kind) and isinstance(end, kind) for kind in (datetime, (int, float))
    ):
        raise FaultError(
            f"{start} and {end} are not two moments",
            hint="write two numbers of seconds, or two dates with times",
        )
    if start >= end:
        raise FaultError(f"{end} is not after {start}", word=str(end))
