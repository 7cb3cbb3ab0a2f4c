"""Ranges of offsets, cut so that there are as many tasks as the options ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, Protocol, TypeVar


class Range(Protocol):
    """A dataclass with offsets from ``begin`` to before ``end``."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...


R = TypeVar("R", bound=Range)


def split(tasks: Sequence[R], at_least: int | None, at_most: int | None) -> Iterator[R]:
    """Tasks with ``at_most`` offsets each, and then about as many as ``at_least`` if there are so many
    offsets, in order. These are the parts that Spark's own Kafka connector makes.

    Each task is cut into its share of ``at_least``, rounded. What is too small to be cut is set aside
    first, so that the others share what is left.
    """
    if at_most is not None:
        tasks = [part for task in tasks for part in _cut(task, -(-_count(task) // at_most))]
    if at_least is None or len(tasks) >= at_least:
        return iter(tasks)
    counts = [_count(task) for task in tasks]
    total = sum(counts)
    small = [count for count in counts if _share(count, total, at_least) == 1]
    left, rest = max(at_least - len(small), 1), total - sum(small)
    return (
        part
        for task, count in zip(tasks, counts, strict=True)
        for part in _cut(
            task, 1 if _share(count, total, at_least) == 1 else _share(count, rest, left)
        )
    )


def _count(task: Range) -> int:
    return task.end - task.begin


def _share(count: int, total: int, parts: int) -> int:
    """Of all parts, for ``count`` of ``total``: at least one."""
    return max((2 * count * parts + total) // (2 * total), 1)


def _cut(task: R, parts: int) -> Iterator[R]:
    """Parts that differ by one offset at most, the smaller ones first; empty ones are left out."""
    size, larger = divmod(_count(task), parts)
    marks = [task.begin + size * n + max(0, n - parts + larger) for n in range(parts + 1)]
    for begin, end in pairwise(marks):
        if begin < end:
            yield replace(task, begin=begin, end=end)
