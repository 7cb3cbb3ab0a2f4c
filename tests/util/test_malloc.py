"""Freed memory stays with the process while it works, and goes back to the system when it is quiet."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio
from pathlib import Path
from krammar.util.malloc import RetainedMemory

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


def test_memory_is_reused_and_returned() -> None:
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        pytest.skip("the C library is not glibc")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    faults, *trimmed = done.stdout.split()
    # 1,600 blocks of 256 pages each.
    assert int(faults) < 10_000
    assert trimmed == ["trimmed"]
