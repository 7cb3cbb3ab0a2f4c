"""``python -m tests.attack``: attack every server of krammar, and print what each attack costs.

Exits with 1 if an attack exceeds a limit. Without options, all servers are attacked in all four builds; the newest
version of each API is enough for servers other than ``plain``. Old versions with the layouts of the next one are left
out. An attack that exceeds a limit is repeated on two new
servers, and the median counts: other programs on the machine also lengthen turns, because they share its caches.
An error counts at once.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import kafka_wire

from tests.attack import kafka, pages, wafka
from tests.attack.generate import served
from tests.attack.measure import (
    MEGABYTE,
    MEMORY,
    STOP,
    TURN,
    WAIT,
    Attack,
    Cost,
    Other,
    measure,
    stop_during,
)
from tests.attack.servers import BUILDS, KAFKA, KINDS, Build, Running

ALL = [*kafka.ATTACKS, *pages.ATTACKS, *wafka.ATTACKS]
# One request that keeps a server busy for more seconds can also delay a stop.
LONG = 1.0
# The most expensive rows of each server that are printed.
WORST = 8


def attacks(kind: str, names: Sequence[str], *, newest: bool) -> Iterator[Attack]:
    """Yield the attacks on a kind of server whose names contain one of ``names``."""
    for kinds, attack in ALL:
        if kind in kinds and (not names or any(each in attack.name.lower() for each in names)):
            yield attack
    if kind not in KAFKA:
        return
    for key, version in served(newest=newest or kind != "plain"):
        api = kafka_wire.request_class(key).__name__.removesuffix("Request").lower()
        if not names or any(each in api for each in names):
            yield from kafka.requests_of(key, version)


class Target:
    """A server with all that attacks need, and another client of it."""

    def __init__(self, kind: str, build: Build, folder: Path) -> None:
        with ExitStack() as stack:
            self.server = stack.enter_context(Running(kind, build, folder)).server
            kafka.fill(self.server)
            self._other = stack.enter_context(Other(self.server))
            self._other.asks_again()
            self._idle = self.server.process.memory("VmRSS")
            self._opened = stack.pop_all()

    def attack(self, attack: Attack) -> Cost:
        """Attack it, and measure the cost."""
        return measure(self.server, attack, self._other, self._idle)

    @property
    def is_full(self) -> bool:
        """Whether attacks have left much in its memory."""
        return self.server.process.memory("VmRSS") - self._idle > MEMORY / 2

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()


def run(kind: str, build: Build, chosen: Iterator[Attack], *, stops: bool) -> Iterator[Cost]:
    """Attack a server with all of ``chosen``, then stop new ones during each that can delay a stop."""
    long: list[Attack] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        target: Target | None = None
        for attack in chosen:
            if target is None:
                target = stack.enter_context(Target(kind, build, Path(name)))
            cost = target.attack(attack)
            if cost.over() and not cost.error:
                cost = repeated(kind, build, cost)
            yield cost
            if cost.used > LONG or any(attack is each for _, each in ALL):
                long.append(attack)
            if cost.error or target.is_full:
                # What attacks have left must not count as what the next ones need.
                stack.close()
                target = None
    # Its own folder: a server that begins with all that attacks have left needs long.
    with tempfile.TemporaryDirectory() as name:
        for attack in long if stops else ():
            with Running(kind, build, Path(name)) as running:
                kafka.fill(running.server)
                wall, used = stop_during(running.server, attack)
            cost = Cost(Attack(f"SIGTERM: {attack.name}", attack.run), used=used)
            if wall > STOP:
                cost.error = f"ended after {wall:.1f} s ({used:.1f} s of processor time)"
            yield cost


def repeated(kind: str, build: Build, cost: Cost) -> Cost:
    """Return the median of what an attack has cost, and what it costs two new servers."""
    costs = [cost, *(alone(kind, build, cost.attack) for _ in range(2))]
    parts = ", ".join(f"{each.part:.0%}" for each in costs)
    over = ", ".join(cost.over())
    print(f"repeated: {cost.attack.name}: {over}; of the limits: {parts}", file=sys.stderr)
    return sorted(costs, key=lambda each: (bool(each.error), each.part))[1]


def alone(kind: str, build: Build, attack: Attack) -> Cost:
    """Measure an attack on a server that has seen no other."""
    with tempfile.TemporaryDirectory() as name, Target(kind, build, Path(name)) as target:
        return target.attack(attack)


def row(kind: str, cost: Cost) -> str:
    """A line of the table."""
    over = ", ".join(cost.over())
    return (
        f"| {kind} | {cost.attack.name} | {cost.sent / 1000:,.0f} kB | {cost.turn * 1000:.0f} ms"
        f" | {cost.wait * 1000:.0f} ms | {cost.memory / MEGABYTE:.0f} MB"
        f" | {f'**{over}**' if over else ''} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("names", nargs="*", help="only attacks and APIs whose names contain one")
    parser.add_argument("--server", action="append", choices=KINDS, help="only these servers")
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], help="only this event loop")
    parser.add_argument("--build", choices=["pure", "engine"], help="only this build")
    parser.add_argument("--newest", action="store_true", help="only the newest version of APIs")
    parser.add_argument("--no-stops", action="store_true", help="without SIGTERM")
    parser.add_argument("--all", action="store_true", help="print all attacks, not only the worst")
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65536)), hard))
    names = [name.lower() for name in given.names]
    over = 0
    print(
        f"Limits: a turn {TURN * 1000:.0f} ms, another client's request {WAIT * 1000:.0f} ms, memory"
        f" {MEMORY / MEGABYTE:.0f} MB above idle ({kafka.PER_CONNECTION // 1024} kB for each of many connections),"
        f" SIGTERM {STOP:.0f} s."
    )
    for build in BUILDS:
        if given.loop not in (None, build.loop):
            continue
        if given.build is not None and (given.build == "engine") != build.engine:
            continue
        print(f"\n## {build}\n", flush=True)
        print(
            "| Server | Attack | Sent | Longest turn | Another client waits | Memory | Over |\n"
            "|---|---|--:|--:|--:|--:|---|"
        )
        for kind in given.server or KINDS:
            found: list[Cost] = []
            chosen = attacks(kind, names, newest=given.newest)
            for cost in run(kind, build, chosen, stops=not given.no_stops):
                found.append(cost)
                over += bool(cost.over())
                if cost.over() or given.all:
                    print(row(kind, cost), flush=True)
            if not given.all:
                worst = sorted(found, key=lambda each: each.part, reverse=True)
                for cost in [each for each in worst if not each.over()][:WORST]:
                    print(row(kind, cost), flush=True)
            print(f"| {kind} | {len(found)} attacks | | | | | |", flush=True)
    print(f"\n{over} attacks exceed a limit")
    if over:
        sys.exit(1)


if __name__ == "__main__":
    main()
