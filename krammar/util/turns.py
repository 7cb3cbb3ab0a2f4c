"""Turns of an event loop: how long work may block the loop, and where longer work continues.

A turn is one pass of the loop over everything that is ready. Whatever takes long in a turn delays
all connections, so each kind of work has a ``Budget``, in seconds. There are three ways to keep it:

- Many small pieces of work, such as requests, timers that are due, or frames that a tap shows,
  share one budget per turn. Each asks ``has_time``. If there is none, it asks for a call in a later
  turn (``wait``), or awaits one (``turn``).
- Work that grows with a request is a generator, ``Steps``, which yields wherever others can run.
  ``advance`` runs it for one slice, which is as long as the budget. ``Slices`` runs its other
  slices, one slice of one request per turn.
- Work that cannot pause runs in another thread (``in_thread``): any number at once, or one after
  another in a ``WorkerThread``, which bounds their memory. Steps yield such work as ``InThread``.

Nothing is interrupted: a request, a timer or a step can exceed its budget, so each must be short.

``seconds`` of a budget can be changed at any time. With 0, a slice is one step, and of those that
wait for a turn, one is called in each.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from krammar.util.clock import monotonic

A = TypeVar("A")
T = TypeVar("T")

# Work that can pause at each yield. Others run there, so objects that were looked up before may be
# gone afterwards. Yielding True ends the slice, before a step that is long by itself. Yielding
# InThread returns the result of its function, or raises its error.
Steps = Generator["bool | InThread | None", Any, T]


class InThread(NamedTuple):
    """A function that would block the event loop. It runs in another thread."""

    function: Callable[[], Any]


class Progress(NamedTuple):
    """The state after a slice.

    ``result`` is valid if ``done``. ``job`` must run before the next slice.
    """

    done: bool
    result: Any = None
    job: InThread | None = None


class Waiting(Protocol):
    """Work that waits for a turn with time."""

    def go_on(self) -> None: ...


class Budget:
    """The seconds of one kind of work: per turn of the event loop, and per slice.

    Those that wait are called in the order of arrival. Strangers, such as clients that have not
    logged in, come after the others. While some wait, each calls ``grant`` before every request, so
    that it handles one at a time.

    Args:
        seconds: the last piece of work of a turn can exceed them, because it is not interrupted.

    Attributes:
        until: the end of the budget of this turn, in ``time.monotonic()``; 0 while some wait, which
            ``grant`` must be asked for
        postponed: pieces of work so far that had to wait
    """

    def __init__(self, seconds: float = 0.02) -> None:
        self.seconds = seconds
        self.until = 0.0
        self.postponed = 0
        self._until = 0.0
        self._next: asyncio.Handle | None = None  # begins the next turn
        self._known: dict[Waiting, None] = {}
        self._strangers: dict[Waiting, None] = {}

    def has_time(self) -> bool:
        """Return whether this turn has time for another piece of work."""
        now = monotonic()
        return now < self.until or self.grant(0, now)

    def grant(self, served: int, now: float) -> bool:
        """Return whether somebody may handle a request now, after ``served`` others in a row.

        Before ``until``, it may in any case.
        """
        if now >= self._until:
            # The next turn is only scheduled here: once per budget, not once per request.
            if self._next is not None:
                return False
            self._open(now)
        return not served or not (self._known or self._strangers)

    def wait(self, waiting: Waiting, *, known: bool = True) -> None:
        """Call ``go_on`` in one of the next turns. ``known`` clients have logged in."""
        (self._known if known else self._strangers)[waiting] = None
        self.postponed += 1
        self.until = 0.0
        if self._next is None:
            self._open(monotonic())

    def forget(self, waiting: Waiting) -> None:
        """Do not call ``go_on``, if that is still to come."""
        self._known.pop(waiting, None)
        self._strangers.pop(waiting, None)

    async def turn(self, *, known: bool = True) -> None:
        """Wait for a turn that has time. Arguments are as for ``wait``."""
        turn = _Turn()
        self.wait(turn, known=known)
        await turn.begins

    def advance(
        self,
        steps: Steps[Any],
        resume: Callable[[], Any] | None = None,
        now: float | None = None,
    ) -> Progress:
        """Run steps for one slice.

        Args:
            resume: passes the result of a job to the steps.
            now: ``time.monotonic()``, if the caller knows it.
        """
        until = (monotonic() if now is None else now) + self.seconds
        try:
            step = next(steps) if resume is None else resume()
            # An error that it passed refers to this frame through the frames of its traceback, and
            # to the request. Without a reference from here, no circle keeps them until the next
            # garbage collection.
            resume = None
            while True:
                if step:
                    return Progress(False, job=step if isinstance(step, InThread) else None)
                if monotonic() >= until:
                    return Progress(False)
                step = next(steps)
        except StopIteration as end:
            return Progress(True, end.value)

    def _open(self, now: float) -> None:
        self._until = now + self.seconds
        self.until = 0.0 if self._known or self._strangers else self._until
        self._next = asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._next = None
        if not (self._known or self._strangers):
            return
        self._open(monotonic())
        # At least one per turn, and a stranger if there are any, however many others wait.
        self._call_first(self._strangers or self._known)
        while monotonic() < self._until:
            queue = self._known or self._strangers
            if not queue:
                return
            self._call_first(queue)

    def _call_first(self, queue: dict[Waiting, None]) -> None:
        waiting = next(iter(queue))
        del queue[waiting]
        waiting.go_on()


class _Turn:
    """Resumes a coroutine."""

    def __init__(self) -> None:
        self.begins: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def go_on(self) -> None:
        if not self.begins.done():
            self.begins.set_result(None)


class Slices:
    """Runs steps that need more than one slice.

    Each turn of the event loop runs one slice of one request, so many long requests block the loop
    no more than one does.

    Attributes:
        budget: the length of a slice
        count: slices so far
        worker: runs the functions that steps yield
    """

    def __init__(self) -> None:
        self.budget = Budget()
        self.count = 0
        self.worker = WorkerThread()
        self._turn = asyncio.Lock()  # first come, first served

    async def run_from_start(self, steps: Steps[T]) -> T:
        """Run steps, with the first slice at once."""
        progress = self.budget.advance(steps)
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
                    progress = self.budget.advance(steps, resume)
                resume = None  # as in advance
                job = progress.job
                if progress.done:
                    return cast(T, progress.result)
        finally:
            steps.close()

    async def _done(self, steps: Steps[Any], job: InThread) -> Callable[[], Any]:
        """Run a job. Returns a function that passes its result or its error to the steps."""
        try:
            return partial(steps.send, await in_thread(job.function, worker=self.worker))
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


async def in_thread(
    function: Callable[..., T], *args: object, worker: WorkerThread | None = None
) -> T:
    """Return the result of a function that runs in another thread, or raise its error.

    Args:
        worker: runs it after the functions that it was given before. By default, several functions
            run at once, and the end of the event loop waits for them.
    """
    if worker is not None:
        return await worker.run(partial(function, *args) if args else function)
    return await asyncio.get_running_loop().run_in_executor(None, partial(function, *args))


_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class WorkerThread:
    """Runs functions one after another in one thread, which bounds their memory.

    The thread starts with the first function. It is a daemon, because the process must not wait for
    a function at its end.

    Attributes:
        count: functions so far
    """

    def __init__(self) -> None:
        self.count = 0
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, function: Callable[[], T]) -> T:
        """Return the result of a function, or raise its error."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="krammar-worker", daemon=True)
            self._thread.start()
        self.count += 1
        self._jobs.put((function, loop, done))
        try:
            return await done
        finally:
            # An error refers to this frame, and through its frames to the function's data. In a
            # circle with the future, all of that would stay in the memory until the next garbage
            # collection.
            del done

    def close(self) -> None:
        """End the thread after the current function."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread = None

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            function, loop, done = job
            if done.cancelled():
                continue
            result, error = None, None
            try:
                result = function()
            except BaseException as raised:
                error = raised
            # The loop is closed when the broker has stopped meanwhile.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, done, result, error)
            # Waiting for the next job must not hold the memory of this one.
            del job, function, done, result, error


def _settle(done: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
