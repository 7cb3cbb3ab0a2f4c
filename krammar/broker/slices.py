"""Splits long work into slices, so that the broker serves other requests in between.

A handler whose work grows with its request is a generator. It yields wherever other requests can run, and returns
its response. Work that fits into one slice is answered at once, without a task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple, TypeVar, cast

A = TypeVar("A")
T = TypeVar("T")

# Work that can pause at each yield. Other requests run there, so objects that were looked up before may be
# gone afterwards. Yielding True ends the slice, before a step that is long by itself.
Steps = Generator[bool | None, None, T]

# The length of a slice in seconds. Steps are not interrupted, so they must be short.
SLICE_SECONDS = 0.02


class Progress(NamedTuple):
    """The state after a slice. ``result`` is valid if ``done``."""

    done: bool
    result: Any = None


def advance(steps: Steps[Any]) -> Progress:
    """Run steps for one slice."""
    until = time.monotonic() + SLICE_SECONDS
    try:
        while True:
            if next(steps) or time.monotonic() >= until:
                return Progress(False)
    except StopIteration as end:
        return Progress(True, end.value)


class Slices:
    """Runs steps that need more than one slice.

    Each turn of the event loop runs one slice of one request, so many long requests block the loop no more than
    one does.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # first come, first served
        self.count = 0  # of slices so far

    async def run_from_start(self, steps: Steps[T]) -> T:
        """Run steps, with the first slice at once."""
        progress = advance(steps)
        return cast(T, progress.result) if progress.done else await self.run(steps)

    async def run(self, steps: Steps[T]) -> T:
        """Run the rest of steps after their first slice."""
        try:
            while True:
                async with self._turn:
                    await asyncio.sleep(0)
                    self.count += 1
                    progress = advance(steps)
                if progress.done:
                    return cast(T, progress.result)
        finally:
            steps.close()


def one_by_one(function: Callable[[A], T], items: Iterable[A]) -> Steps[list[T]]:
    """Return the result of a function for each item, in steps."""
    results = []
    for item in items:
        results.append(function(item))
        yield None
    return results


def finish(steps: Steps[T]) -> T:
    """Run steps to the end without pausing."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)
