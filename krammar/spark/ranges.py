"""Splits ranges of offsets into as many tasks as the options request."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, Protocol, TypeVar


class OffsetRange(Protocol):
    """A dataclass with offsets from ``begin`` up to, not including, ``end``."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...


R = TypeVar("R", bound=OffsetRange)


def split(tasks: Sequence[R], at_least: int | None, at_most: int | None) -> Iterator[R]:
    """Split tasks as Spark's Kafka connector does, and keep their order.

    For ``at_least``, each task is split into its rounded share of that number. Tasks that are too small to
    be split are counted first, and the others share the rest.

    Args:
        at_least: the approximate number of tasks, if there are as many offsets.
        at_most: the most offsets in a task; applied first.
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


def _count(task: OffsetRange) -> int:
    return task.end - task.begin


def _share(count: int, total: int, parts: int) -> int:
    """Return how many of ``parts`` belong to ``count`` of ``total`` offsets, at least one."""
    return max((2 * count * parts + total) // (2 * total), 1)


def _cut(task: R, parts: int) -> Iterator[R]:
    """Split a task into parts that differ by at most one offset, smaller ones first; omit empty parts."""
    size, larger = divmod(_count(task), parts)
    marks = [task.begin + size * n + max(0, n - parts + larger) for n in range(parts + 1)]
    for begin, end in pairwise(marks):
        if begin < end:
            yield replace(task, begin=begin, end=end)


def combine(tasks: Sequence[R], at_least: int, place: Callable[[R], Hashable]) -> list[list[R]]:
    """Return tasks in groups of about ``at_least`` offsets.

    A task with fewer offsets shares a group with other such tasks of the same ``place``. Tasks that are
    large enough have a group of their own.
    """
    groups: list[list[R]] = []
    # The groups that are not full, with the number of their offsets.
    open_groups: dict[Hashable, tuple[list[R], int]] = {}
    for task in tasks:
        count = _count(task)
        if count >= at_least:
            groups.append([task])
            continue
        where = place(task)
        if where in open_groups:
            group, before = open_groups[where]
            group.append(task)
            count += before
        else:
            group = [task]
            groups.append(group)
        if count < at_least:
            open_groups[where] = group, count
        else:
            open_groups.pop(where, None)
    return groups
