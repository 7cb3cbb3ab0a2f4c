"""Splits long work into slices, so that the broker serves other requests in between.

A handler whose work grows with its request is a generator. It yields wherever other requests can
run, and returns its response. Work that fits into one slice is answered at once, without a task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from krammar.util.worker import WorkerThread

A = TypeVar("A")
T = TypeVar("T")

# Work that can pause at each yield. Other requests run there, so objects that were looked up before
# may be gone afterwards. Yielding True ends the slice, before a step that is long by itself.
# Yielding InThread returns the result of its function, or raises its error.
Steps = Generator["bool | InThread | None", Any, T]

# The length of a slice in seconds. Steps are not interrupted, so they must be short.
SLICE_SECONDS = 0.02


class InThread(NamedTuple):
    """A function that would block the event loop. It runs in another thread."""

    function: Callable[[], Any]


class Progress(NamedTuple):
    """The state after a slice. ``result`` is valid if ``done``. ``job`` must run before the next slice."""

    done: bool
    result: Any = None
    job: InThread | None = None


def advance(
    steps: Steps[Any], resume: Callable[[], Any] | None = None, now: float | None = None
) -> Progress:
    """Run steps for one slice.

    Args:
        resume: passes the result of a job to the steps
        now: ``time.monotonic()``, if the caller knows it
    """
    until = (time.monotonic() if now is None else now) + SLICE_SECONDS
    try:
        step = next(steps) if resume is None else resume()
        # An error that it passed refers to this frame through the frames of its traceback, and to
        # the request. Without a reference from here, no circle keeps them until the next garbage
        # collection.
        resume = None
        while True:
            if step:
                return Progress(False, job=step if isinstance(step, InThread) else None)
            if time.monotonic() >= until:
                return Progress(False)
            step = next(steps)
    except StopIteration as end:
        return Progress(True, end.value)


class Slices:
    """Runs steps that need more than one slice.

    Each turn of the event loop runs one slice of one request, so many long requests block the loop
    no more than one does.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # first come, first served
        self.count = 0  # of slices so far
        self.worker = WorkerThread()

    async def run_from_start(self, steps: Steps[T]) -> T:
        """Run steps, with the first slice at once."""
        progress = advance(steps)
        if progress.done:
            return cast(T, progress.result)
        return await self.run(steps, progress.job)

    async def run(self, steps: Steps[T], job: InThread | None = None) -> T:
        """Run the rest of steps after their first slice, which ended with ``job``."""
        try:
            while True:
                resume = None if job is None else await self._done(steps, job)
                async with self._turn:
                    await asyncio.sleep(0)
                    self.count += 1
                    progress = advance(steps, resume)
                resume = None  # as in advance
                job = progress.job
                if progress.done:
                    return cast(T, progress.result)
        finally:
            steps.close()

    async def _done(self, steps: Steps[Any], job: InThread) -> Callable[[], Any]:
        """Run a job. Returns a function that passes its result or its error to the steps."""
        try:
            return partial(steps.send, await self.worker.run(job.function))
        except Exception as error:
            return partial(steps.throw, error)


def one_by_one(function: Callable[[A], T], items: Iterable[A]) -> Steps[list[T]]:
    """Return the result of a function for each item, in steps."""
    results = []
    for item in items:
        results.append(function(item))
        yield None
    return results


def finish(steps: Steps[T]) -> T:
    """Run steps to the end without pausing."""
    try:
        step = next(steps)
        while True:
            step = steps.send(step.function()) if isinstance(step, InThread) else next(steps)
    except StopIteration as end:
        return cast(T, end.value)
