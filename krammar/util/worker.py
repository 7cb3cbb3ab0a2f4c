"""A thread for work that would block the event loop: checking and compressing large batches."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class WorkerThread:
    """Runs functions one after another in one thread, which bounds their memory.

    The thread starts with the first function. It is a daemon, because the process must not wait for a function at
    its end.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.count = 0  # of functions so far

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
            # An error refers to this frame, and through its frames to the function's data. In a circle with the future,
            # all of that would stay in the memory until the next garbage collection.
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
