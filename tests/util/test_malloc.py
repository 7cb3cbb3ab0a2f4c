"""Freed memory stays with the process while it works, and goes back to the system when it is quiet."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio
from pathlib import Path
from krammar.util.server_memory import RetainedMemory

def faults():
    return int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[7])

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def work(rounds):
    for _ in range(rounds):
        del (blocks := [b"x" * (1 << 20) for _ in range(16)])[:]

async def main():
    work(1)
    before = faults()
    work(100)
    print(faults() - before)
    memory = resident()
    RetainedMemory().trim_when_quiet()
    work(1000)
    for _ in range(80):
        await asyncio.sleep(0.1)
        if resident() < memory - (8 << 20):
            print("trimmed")
            break

RetainedMemory()
asyncio.run(main())
"""

WAITING = """
import asyncio, selectors, threading
from krammar.util.server_memory import RetainedMemory

timeouts = set()

class Selector(selectors.DefaultSelector):
    def select(self, timeout=None):
        timeouts.add(timeout)
        return super().select(timeout)

async def main():
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    RetainedMemory().trim_when_quiet()
    threading.Timer(1.5, loop.call_soon_threadsafe, [done.set]).start()
    await done.wait()

asyncio.SelectorEventLoop(Selector()).run_until_complete(main())
print(*timeouts)
"""


def run(program: str) -> list[str]:
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        pytest.skip("the C library is not glibc")
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()


def test_memory_is_reused_and_returned() -> None:
    faults, *trimmed = run(PROGRAM)
    # 1,600 blocks of 256 pages each.
    assert int(faults) < 10_000
    assert trimmed == ["trimmed"]


def test_the_event_loop_has_no_timer() -> None:
    assert set(run(WAITING)) == {"None", "0"}  # None: until something happens
