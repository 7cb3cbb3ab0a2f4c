"""Timers that are due together: they share a budget per turn of the event loop."""

from __future__ import annotations

import asyncio

from krammar.broker.timers import Timer, Timers
from krammar.util.turns import Budget


def test_timers_that_take_long_run_in_several_turns() -> None:
    async def run() -> tuple[list[int], list[int]]:
        loop = asyncio.get_running_loop()
        timers = Timers(loop, lambda: 0, Budget(0))
        order: list[int] = []
        turns: list[int] = []
        turn = 0
        done = asyncio.Event()

        def count() -> None:
            nonlocal turn
            turn += 1
            if not done.is_set():
                loop.call_soon(count)

        def work(number: int) -> None:
            order.append(number)
            turns.append(turn)
            if number == 1:
                cancelled.cancel()
            if number == 4:
                done.set()

        given: list[Timer] = [timers.call_later(0, work, number) for number in range(5)]
        cancelled = given[2]
        loop.call_soon(count)
        await done.wait()
        return order, turns

    order, turns = asyncio.run(run())
    assert order == [0, 1, 3, 4]
    assert len(set(turns)) == 4
