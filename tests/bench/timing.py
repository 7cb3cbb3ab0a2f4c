"""Timing several contenders so that a noisy machine disturbs the ratios little.

Every round times each contender once, one after the other, so that what slows the machine for a while
slows all of them. A round's ratios are of timings that lie milliseconds apart; what is reported is
their median over many rounds.
"""

from __future__ import annotations

import timeit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any

OURS = "krammar"


@dataclass(frozen=True)
class Statement:
    """What one contender does, as source, and the names it uses. Source and not a function, so that
    a message of a microsecond is not measured with the call of a wrapper."""

    source: str
    names: Mapping[str, Any]

    def timer(self) -> timeit.Timer:
        # timeit turns garbage collection off; users have it on, and it costs each library according
        # to the number of objects that it makes.
        # Processor time, so that what other processes get of a shared machine is not counted.
        return timeit.Timer(
            self.source, "import gc; gc.enable()", timer=process_time, globals=dict(self.names)
        )


@dataclass(frozen=True)
class Timing:
    """Seconds (of processor time) of each contender, one a round, in the same order of rounds."""

    rounds: Mapping[str, Sequence[float]]

    def seconds(self, name: str) -> float:
        return median(self.rounds[name])

    def ratio(self, name: str) -> float:
        """How many times as long as we ``name`` takes: above 1, we are faster."""
        return median(
            theirs / ours for theirs, ours in zip(self.rounds[name], self.rounds[OURS], strict=True)
        )


def measure(statements: Mapping[str, Statement], *, rounds: int, slice_: float) -> Timing:
    """Time all ``statements`` in turn, ``rounds`` times, at least ``slice_`` seconds each time."""
    timers = {name: statement.timer() for name, statement in statements.items()}
    numbers = {name: _number(timer, slice_) for name, timer in timers.items()}
    names = list(timers)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        start = turn % len(names)  # no contender always runs after the same other one
        for name in names[start:] + names[:start]:
            taken[name].append(timers[name].timeit(numbers[name]) / numbers[name])
    return Timing(taken)


def _number(timer: timeit.Timer, slice_: float) -> int:
    """How many executions take ``slice_`` seconds. The timings on the way there warm up caches."""
    number = 1
    while (seconds := timer.timeit(number)) < slice_:
        number = max(number + 1, int(number * min(10.0, 1.2 * slice_ / max(seconds, 1e-9))))
    return number
