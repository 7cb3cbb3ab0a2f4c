"""The programs that are run, with the check of each."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.powercut import brokers, journals, packages, share_groups, sink
from tests.powercut.explore import Check, Outcome, explore
from tests.powercut.recorder import Op, record

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Run:
    """A program: a module and its arguments after the folder.

    ``every``  one of how many states is checked in ``make test``
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    every: int

    def record(self, folder: Path, work: Path) -> Sequence[Op]:
        """Run the program in an empty folder. ``work`` is for files that are not recorded."""
        arguments = [text.replace("WORK", str(work)) for text in self.arguments]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", self.module, str(folder), *arguments]
        return record(command, folder, work / "trace", os.environ | {"PYTHONPATH": path})

    def check(self, work: Path) -> Check:
        """The function that yields what is wrong with a state."""
        if self.module.endswith("journals"):
            return partial(journals.problems, fsync=self.arguments[0] != "plain")
        if self.module.endswith("sink"):
            return sink.problems
        if self.module.endswith("packages"):
            return partial(packages.problems, definitions=work / "definitions")
        if self.module.endswith("share_groups"):
            return partial(share_groups.problems, fsync=self.arguments[0])
        return partial(brokers.problems, fsync=self.arguments[0])

    def explore(self, folder: Path, *, every: int = 1) -> Outcome:
        """Run the program, and check one of ``every`` states that power cuts can leave."""
        data, work = folder / "data", folder / "work"
        for each in (data, work):
            each.mkdir()
        return explore(self.record(data, work), data, self.check(work), every=every)


RUNS = [
    Run("journals with fsync", "tests.powercut.journals", ("fsync",), 8),
    Run("journals without fsync", "tests.powercut.journals", ("plain",), 16),
    Run("Spark's sink for journals", "tests.powercut.sink", (), 4),
    Run("krammar gen", "tests.powercut.packages", ("WORK/definitions",), 200),
    Run("broker, --fsync always", "tests.powercut.brokers", ("always",), 500),
    Run("broker, --fsync interval", "tests.powercut.brokers", ("interval",), 1000),
    Run("broker, --fsync never", "tests.powercut.brokers", ("never",), 1000),
    Run("share group, --fsync always", "tests.powercut.share_groups", ("always",), 60),
    Run("share group, --fsync interval", "tests.powercut.share_groups", ("interval",), 100),
    Run("share group, --fsync never", "tests.powercut.share_groups", ("never",), 100),
]
