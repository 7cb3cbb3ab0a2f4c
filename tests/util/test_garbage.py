"""Garbage collection of servers, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

_HEAD = """
import gc, weakref
from krammar.util import server_memory

class Cycle:
    def __init__(self):
        self.me = self

now = 1000.0
server_memory.monotonic = lambda: now
server_memory.exempt_all()
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", _HEAD + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_objects_that_survive_a_full_collection_are_exempt_from_the_next() -> None:
    code = "kept = [[] for _ in range(100_000)]\ngc.collect()\nprint(len(gc.get_objects()) < 1000)"
    assert run(code) == "True"


def test_cycles_that_were_exempt_are_freed_after_a_while() -> None:
    code = """
cycle = Cycle()
seen = weakref.ref(cycle)
gc.collect()
del cycle
gc.collect()
print(seen() is None, end=" ")
now += 601
gc.collect()
print(seen() is None)
"""
    assert run(code) == "False True"


def test_many_live_objects_cause_few_full_collections() -> None:
    code = """
count = 0
def note(phase, info):
    global count
    count += phase == "start" and info["generation"] == 2
gc.callbacks.append(note)
kept = [[] for _ in range(115_000)]
print(count)
"""
    assert run(code) == "0"
