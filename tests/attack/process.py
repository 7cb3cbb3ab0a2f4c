"""``python -m tests.attack.process FILE LOOP ARGUMENT ...``: runs krammar, and writes its longest turn to a file.

Times are processor time of the event loop's thread, so neither the machine's load nor other threads count. On
asyncio, a turn lasts from one call of the selector to the next one. uvloop has none to watch: there a timer fires
each millisecond, and what the thread uses between two of its calls is one turn, or two if the timer is not due yet in
the first.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

SECONDS = struct.Struct("d")
BEAT = 0.001


def main(file: Path, loop: str, arguments: list[str]) -> None:
    if loop == "asyncio":
        sys.modules["uvloop"] = None  # type: ignore[assignment]  # importing it raises ImportError
    with file.open("r+b") as opened:
        shared = mmap.mmap(opened.fileno(), SECONDS.size)

    async def measured(work: Any) -> Any:
        running = asyncio.get_running_loop()
        is_uvloop = "uvloop" in type(running).__module__
        if loop == "uvloop" and not is_uvloop:
            print("this server runs on asyncio's loop in any case", flush=True)
        last = time.thread_time()

        def turn_ends() -> None:
            nonlocal last
            now = time.thread_time()
            if now - last > SECONDS.unpack(shared[:])[0]:
                shared[:] = SECONDS.pack(now - last)
            last = now

        def beat() -> None:
            turn_ends()
            running.call_later(BEAT, beat)

        if is_uvloop:
            beat()
            return await work

        selector = running._selector  # type: ignore[attr-defined]
        select = selector.select

        def select_between_turns(timeout: float | None = None) -> Any:
            nonlocal last
            turn_ends()
            events = select(timeout)
            last = time.thread_time()
            return events

        selector.select = select_between_turns
        return await work

    run = asyncio.Runner.run

    def runs(self: asyncio.Runner, work: Any, **options: Any) -> Any:
        return run(self, measured(work), **options)

    from krammar.cli import main as krammar

    with patch.object(asyncio.Runner, "run", runs):
        krammar(arguments, prog_name="krammar")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
