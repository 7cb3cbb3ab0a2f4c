"""``python -m tests.attack.process FILE LOOP ARGUMENT ...``: runs krammar, and writes its longest turn to a file.

A timer fires each millisecond, and reads the processor time of the event loop's thread. Between two of its calls, the
thread can use more than that millisecond only in one turn. So this measures asyncio's loop and uvloop's in the same
way, and neither the machine's load nor other threads count.
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
        if loop == "uvloop" and "uvloop" not in type(running).__module__:
            print("this server runs on asyncio's loop in any case", flush=True)
        last = time.thread_time()

        def beat() -> None:
            nonlocal last
            now = time.thread_time()
            if now - last > SECONDS.unpack(shared[:])[0]:
                shared[:] = SECONDS.pack(now - last)
            last = now
            running.call_later(BEAT, beat)

        beat()
        return await work

    run = asyncio.Runner.run

    def runs(self: asyncio.Runner, work: Any, **options: Any) -> Any:
        return run(self, measured(work), **options)

    from krammar.cli import main as krammar

    with patch.object(asyncio.Runner, "run", runs):
        krammar(arguments, prog_name="krammar")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
