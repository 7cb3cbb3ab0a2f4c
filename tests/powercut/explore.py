"""Runs a check on each state that a power cut can leave."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from krammar.util import boot
from tests.powercut.disk import State, states
from tests.powercut.recorder import Op

Check = Callable[[Path, State], Iterator[str]]


@dataclass
class Outcome:
    """How many states were checked, and what is wrong with some of them."""

    states: int = 0
    failures: list[str] = field(default_factory=list)


def explore(ops: Sequence[Op], root: Path, check: Check, *, every: int = 1) -> Outcome:
    """Check each state, or about one of ``every`` states, in a folder in memory."""
    outcome = Outcome()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    for state in states(ops, str(root), every=every):
        folder = Path(tempfile.mkdtemp(prefix="krammar-power-", dir=memory))
        try:
            state.write(str(root), folder)
            outcome.states += 1
            outcome.failures += [
                f"after operation {state.after} ({state.model}): {problem}"
                for problem in _problems(check, folder, state)
            ]
        finally:
            shutil.rmtree(folder)
    return outcome


def _problems(check: Check, folder: Path, state: State) -> list[str]:
    found = []
    try:
        with _restarted():
            found.extend(check(folder, state))
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")
    return found


@contextmanager
def _restarted() -> Iterator[None]:
    """Let the machine have another run within the block, and log nothing."""
    run, current, logs = uuid4(), boot._boot, logging.root.manager.disable
    boot._boot = lambda: run  # type: ignore[assignment]
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        boot._boot = current
        logging.disable(logs)
