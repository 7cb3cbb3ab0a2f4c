"""Counters and histograms, and Prometheus' text format (version 0.0.4).

The package prometheus-client has the same parts, and more: a registry of the whole process, locks around each
number, and a server with threads. A broker needs none of these, because one event loop owns its numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Lines between two pauses of ``text``.
_PAUSE_LINES = 200
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

# The values of a series' labels, in the order of the metric's labels.
Values = tuple[str, ...]


class Sample(NamedTuple):
    """One line: the name with its suffix, the labels, and the number."""

    name: str
    labels: dict[str, str]
    value: float


class Metric:
    """A name with numbers: one for each combination of its labels' values.

    ``kind``   counter, gauge or histogram
    ``about``  one sentence, for the help line and the documentation
    """

    kind: str

    def __init__(self, name: str, about: str, *labels: str) -> None:
        self.name = name
        self.about = about
        self.labels = labels

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the samples."""
        return (self.name,)

    def samples(self) -> Iterator[Sample]:
        """Yield the current numbers."""
        raise NotImplementedError

    def sample(self, value: float, values: Values, suffix: str = "", **more: str) -> Sample:
        labels = dict(zip(self.labels, values, strict=True))
        return Sample(self.name + suffix, {**labels, **more}, value)


class Reading(Metric):
    """What a function returns whenever it is called: numbers by the values of the labels, or one number."""

    def __init__(
        self,
        kind: str,
        name: str,
        about: str,
        labels: Values,
        read: Callable[[], float | Mapping[Values, float]],
    ) -> None:
        super().__init__(name, about, *labels)
        self.kind = kind
        self._read = read

    def samples(self) -> Iterator[Sample]:
        found = self._read()
        for values, value in (found if isinstance(found, Mapping) else {(): found}).items():
            yield self.sample(value, values)


class Counter(Metric):
    """Numbers that only grow."""

    kind = "counter"

    def __init__(self, name: str, about: str, *labels: str) -> None:
        super().__init__(name, about, *labels)
        self.series: defaultdict[Values, int] = defaultdict(int)

    def samples(self) -> Iterator[Sample]:
        for values, value in list(self.series.items()):
            yield self.sample(value, values)


class Histogram(Metric):
    """Counts of observations up to each of some bounds."""

    kind = "histogram"

    def __init__(self, name: str, about: str, *labels: str, bounds: tuple[float, ...]) -> None:
        super().__init__(name, about, *labels)
        self._bounds = bounds
        # Per series: the counts between the bounds, then the sum.
        self._series: dict[Values, list[float]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}_{each}" for each in ("bucket", "sum", "count"))

    def observe(self, value: float, *values: str) -> None:
        """Add one observation."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = [0] * (len(self._bounds) + 2)
        series[bisect_left(self._bounds, value)] += 1
        series[-1] += value

    def samples(self) -> Iterator[Sample]:
        for values, (*counts, total) in list(self._series.items()):
            sums = list(accumulate(counts))
            for bound, count in zip([*map(repr, self._bounds), "+Inf"], sums, strict=True):
                yield self.sample(count, values, "_bucket", le=bound)
            yield self.sample(total, values, "_sum")
            yield self.sample(sums[-1], values, "_count")


def text(metrics: Iterable[Metric]) -> Generator[None, None, str]:
    """Write all numbers in steps, so that a caller can pause in between. Returns the text."""
    lines = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {metric.about}\n# TYPE {metric.name} {metric.kind}\n")
        for name, labels, value in metric.samples():
            shown = ",".join(f'{key}="{each.translate(_ESCAPES)}"' for key, each in labels.items())
            lines.append(f"{name}{{{shown}}} {value}\n" if shown else f"{name} {value}\n")
            if len(lines) % _PAUSE_LINES == 0:
                yield
    return "".join(lines)
