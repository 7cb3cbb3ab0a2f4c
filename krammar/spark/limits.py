"""The limits of micro-batches: ``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger`` and ``maxTriggerDelay``."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, TypeVar

from krammar.spark.errors import OptionError
from krammar.spark.options import Options
from krammar.spark.undocumented import PYSPARK

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

HAS_LIMITS = PYSPARK >= (4, 2)

K = TypeVar("K", bound=Hashable)


def check_limits(options: Options) -> None:
    """Check the options for limits.

    Raises:
        OptionError: an option needs a newer PySpark, or options contradict each other.
    """
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if options.given(name) and not HAS_LIMITS:
            raise OptionError(name, "needs PySpark 4.2 or later")
    if options.given("maxTriggerDelay") and not options.given("minOffsetsPerTrigger"):
        raise OptionError("maxTriggerDelay", "has no meaning without minOffsetsPerTrigger")
    most, least = options["maxOffsetsPerTrigger"], options["minOffsetsPerTrigger"]
    if most is not None and least is not None and least > most:
        raise OptionError(
            "minOffsetsPerTrigger", f"{least} is more than maxOffsetsPerTrigger={most}"
        )


def default_limit(options: Options) -> ReadLimit:
    """Return the limit that tells Spark, from PySpark 4.2 on, whether a query has limits."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

    # No limit expresses both options. Readers take their values from the options anyway.
    if options.given("maxOffsetsPerTrigger"):
        return ReadMaxRows(options["maxOffsetsPerTrigger"])
    if options.given("minOffsetsPerTrigger"):
        return ReadMinRows(options["minOffsetsPerTrigger"])
    return ReadAllAvailable()


class TriggerLimits:
    """Applies the limits to the micro-batches of one run of a query."""

    def __init__(self, options: Options) -> None:
        self._most: int | None = options["maxOffsetsPerTrigger"]
        self._least: int | None = options["minOffsetsPerTrigger"]
        self._delay: float = options["maxTriggerDelay"] / 1000
        self._last_trigger: float | None = None

    def waits(self, total: int) -> bool:
        """Return whether a micro-batch with this many offsets is too small yet. The first one never is."""
        if self._least is None:
            return False
        now = time.monotonic()
        waiting = self._last_trigger is not None and now - self._last_trigger < self._delay
        if waiting and total < self._least:
            return True
        self._last_trigger = now
        return False

    def shares(self, sizes: Mapping[K, int]) -> dict[K, int]:
        """Return how many offsets of each partition a micro-batch has at most; without a limit, none is named.

        They are proportional to the sizes, which are positive, but at least one.
        """
        if self._most is None:
            return {}
        total = sum(sizes.values())
        return {at: min(size, max(1, self._most * size // total)) for at, size in sizes.items()}
