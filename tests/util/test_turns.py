"""Turns of an event loop: budgets, slices of long work, and other threads."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from krammar.util import turns
from krammar.util.turns import (
    Budget,
    InThread,
    Slices,
    Steps,
    WorkerThread,
    finish,
    in_thread,
    one_by_one,
)


class Client:
    """Counts its turns, and waits for more."""

    def __init__(self, budget: Budget, name: str, order: list[str], *, known: bool = True) -> None:
        self.budget, self.name, self.order, self.known = budget, name, order, known
        self.left = 3

    def go_on(self) -> None:
        served = 0
        while self.left:
            if not self.budget.grant(served, turns.monotonic()):
                self.budget.wait(self, known=self.known)
                return
            served += 1
            self.left -= 1
            self.order.append(self.name)


def test_a_turn_has_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget(1.0)
    now = 0.0
    monkeypatch.setattr(turns, "monotonic", lambda: now)

    async def serve() -> list[bool]:
        nonlocal now
        found = [budget.grant(0, now)]
        now = 0.9
        found.append(budget.grant(0, now))
        now = 1.0
        found.append(budget.grant(0, now))  # the same turn
        await asyncio.sleep(0)
        found.append(budget.grant(0, now))
        return found

    assert asyncio.run(serve()) == [True, True, False, True]


def test_clients_take_turns_and_strangers_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three requests fit into a turn."""
    order: list[str] = []
    now = 0.0

    def clock() -> float:
        return now

    class Slow(list[str]):
        def append(self, name: str) -> None:
            nonlocal now
            now += budget.seconds * 0.4
            super().append(name)

    monkeypatch.setattr(turns, "monotonic", clock)
    order = Slow()
    budget = Budget()

    async def serve() -> None:
        names = [("s1", False), ("s2", False), ("a", True), ("b", True)]
        clients = [Client(budget, name, order, known=known) for name, known in names]
        for each in clients:
            budget.wait(each, known=each.known)
        while any(each.left for each in clients):
            now_before = len(order)
            await asyncio.sleep(0)
            assert len(order) - now_before <= 3

    asyncio.run(serve())
    # The first stranger of a turn is served in any case.
    assert "".join(order) == "s1abs2abs1abs2s1s2"


def test_a_client_alone_is_not_interrupted() -> None:
    order: list[str] = []

    async def serve() -> None:
        Client(Budget(), "a", order).go_on()

    asyncio.run(serve())
    assert order == ["a"] * 3


def test_coroutines_wait_for_a_turn_with_time() -> None:
    """With no time, one goes on in each turn, in the order of arrival."""
    order: list[int] = []

    async def work(budget: Budget, number: int) -> None:
        await budget.turn()
        order.append(number)

    async def run() -> tuple[bool, bool, bool, int]:
        budget = Budget(0)
        first, second = budget.has_time(), budget.has_time()
        tasks = [asyncio.create_task(work(budget, number)) for number in range(5)]
        turn = 0
        seen = []
        while len(order) < 5:
            await asyncio.sleep(0)
            turn += 1
            seen.append(len(order))
        assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) == 1
        await asyncio.gather(*tasks)
        await asyncio.sleep(0)
        return first, second, budget.has_time(), budget.postponed

    assert asyncio.run(run()) == (True, False, True, 5)
    assert order == [0, 1, 2, 3, 4]


def test_nobody_is_called_after_forget() -> None:
    called: list[str] = []

    class Caller:
        def __init__(self, name: str) -> None:
            self.name = name

        def go_on(self) -> None:
            called.append(self.name)

    async def run() -> None:
        budget = Budget()
        gone, there = Caller("gone"), Caller("there")
        for each in (gone, there):
            budget.wait(each)
        budget.forget(gone)
        while not called:
            await asyncio.sleep(0)

    asyncio.run(run())
    assert called == ["there"]


def steps_of(seen: list[int], number: int) -> Steps[str]:
    for each in range(number):
        seen.append(each)
        yield None
    return "done"


def test_a_slice_lasts_as_long_as_the_budget() -> None:
    seen: list[int] = []
    budget = Budget(0)
    steps = steps_of(seen, 3)
    for number in (1, 2, 3):
        assert not budget.advance(steps).done
        assert len(seen) == number
    assert budget.advance(steps) == (True, "done", None)
    budget.seconds = 60
    assert budget.advance(steps_of(seen, 1_000)).done


def test_a_step_can_end_the_slice_or_ask_for_a_thread() -> None:
    def steps() -> Steps[object]:
        yield True
        found = yield InThread(lambda: threading.current_thread().name)
        try:
            yield InThread(lambda: 1 // 0)
        except ZeroDivisionError as error:
            return found, str(error)

    budget, of = Budget(60), steps()
    assert budget.advance(of) == (False, None, None)
    progress = budget.advance(of)
    assert not progress.done and progress.job is not None

    async def run() -> object:
        slices = Slices()
        try:
            return await slices.run_from_start(steps())
        finally:
            slices.worker.close()
            assert slices.worker.count == 2

    assert asyncio.run(run()) == ("krammar-worker", "integer division or modulo by zero")
    # ``finish`` calls the functions itself, and raises their errors.
    with pytest.raises(ZeroDivisionError):
        finish(steps())


def test_one_slice_of_one_request_runs_per_turn() -> None:
    order: list[str] = []

    def steps(name: str) -> Steps[None]:
        for _ in range(3):
            order.append(name)
            yield None

    async def run() -> int:
        slices = Slices()
        slices.budget.seconds = 0
        await asyncio.gather(*(slices.run_from_start(steps(name)) for name in "ab"))
        return slices.count

    assert asyncio.run(run()) == 6
    assert order == ["a", "b"] * 3


def test_one_by_one() -> None:
    assert finish(one_by_one(str, (1, 2, 3))) == ["1", "2", "3"]


def test_functions_run_at_once_in_threads() -> None:
    async def run() -> list[int]:
        together = threading.Barrier(2)
        return await asyncio.gather(*(in_thread(together.wait, 10) for _ in range(2)))

    assert sorted(asyncio.run(run())) == [0, 1]


def test_functions_of_one_worker_run_one_after_another() -> None:
    async def run() -> tuple[list[str], int]:
        worker = WorkerThread()
        jobs = (in_thread("{}{}".format, each, "!", worker=worker) for each in range(3))
        found = await asyncio.gather(*jobs)
        worker.close()
        return found, worker.count

    assert asyncio.run(run()) == (["0!", "1!", "2!"], 3)


def test_results_in_order_from_one_thread() -> None:
    async def run() -> list[tuple[int, str]]:
        worker = WorkerThread()
        jobs = (
            worker.run(lambda each=each: (each, threading.current_thread().name))
            for each in range(20)
        )  # type: ignore[misc]
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
