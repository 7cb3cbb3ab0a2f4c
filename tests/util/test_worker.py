"""The thread for work that would block the event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from krammar.util.worker import WorkerThread


def test_results_in_order_from_one_thread() -> None:
    async def run() -> list[tuple[int, str]]:
        worker = WorkerThread()
        jobs = (worker.run(lambda each=each: (each, threading.current_thread().name)) for each in range(20))  # type: ignore[misc]
        found = await asyncio.gather(*jobs)
        worker.close()
        return found

    assert asyncio.run(run()) == [(each, "krammar-worker") for each in range(20)]


def test_an_error_is_raised_and_freed() -> None:
    """Without a garbage collection: what the function had, which can be a large batch, goes with the error."""

    class Batch:
        pass

    batches: list[weakref.ref[Batch]] = []

    def fail() -> None:
        batch = Batch()
        batches.append(weakref.ref(batch))
        raise ValueError("too large")

    async def run() -> None:
        worker = WorkerThread()
        with pytest.raises(ValueError, match="too large"):
            await worker.run(fail)
        assert await worker.run(lambda: 1) == 1
        worker.close()

    gc.disable()
    try:
        asyncio.run(run())
        assert batches[0]() is None
    finally:
        gc.enable()


def test_a_cancelled_function_is_not_called() -> None:
    entered, release = threading.Event(), threading.Event()
    called: list[str] = []

    def block() -> None:
        entered.set()
        release.wait()

    async def run() -> None:
        worker = WorkerThread()
        first = asyncio.ensure_future(worker.run(block))
        second = asyncio.ensure_future(worker.run(lambda: called.append("second")))
        await asyncio.to_thread(entered.wait)
        second.cancel()
        await asyncio.sleep(0)
        release.set()
        await first
        await worker.run(lambda: called.append("third"))
        worker.close()

    asyncio.run(run())
    assert called == ["third"]


def test_an_event_loop_that_ends_before_the_function() -> None:
    entered, release = threading.Event(), threading.Event()
    worker = WorkerThread()

    def block() -> None:
        entered.set()
        release.wait()

    async def leave() -> None:
        task = asyncio.ensure_future(worker.run(block))
        await asyncio.to_thread(entered.wait)
        task.cancel()

    asyncio.run(leave())
    release.set()
    # The thread has survived, and serves the next loop.
    assert asyncio.run(worker.run(lambda: 2)) == 2
    worker.close()


def test_the_thread_ends() -> None:
    async def run() -> threading.Thread:
        worker = WorkerThread()
        thread = await worker.run(threading.current_thread)
        worker.close()
        return thread

    thread = asyncio.run(run())
    thread.join()
    assert not thread.is_alive()
