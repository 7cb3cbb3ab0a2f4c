"""After a power cut or a kill at any call, the broker starts on every possible state of the disk, and keeps the promises
of its settings."""

from __future__ import annotations

import copy
import hashlib
import shutil
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import pytest

from tests.broker.disk_job import Job, started
from tests.broker.power import KILLED, MODELS, Power, State, materialize


@dataclass
class Cut:
    """A state, and what must be there after it."""

    model: str
    call: int
    state: State
    job: Job


class Cuts:
    """Collects a state before each call that changes or forces names, and each state only once."""

    def __init__(self, power: Power, job: Job, fsync: str, models: Sequence[str]) -> None:
        self.found: list[Cut] = []
        self._models = models
        self._power = power
        self._job = job
        self._fsync = fsync
        self._flushed = self._model()
        self._known: set[bytes] = set()
        self._calls = 0
        self._lock = Lock()

    def _model(self) -> Job:
        model = copy.copy(self._job)
        model.values = {topic: dict(values) for topic, values in self._job.values.items()}
        for name in (
            "commits",
            "starts",
            "topics",
            "setting",
            "iterations",
            "levels",
            "producer_ids",
        ):
            setattr(model, name, copy.copy(getattr(self._job, name)))
        return model

    def flushed(self) -> None:
        """Note that the broker has flushed its logs."""
        self._flushed = self._model()
        if self._fsync == "never":
            log = self._job.broker.logs.get("t", 0)
            assert log is not None
            values = self._flushed.values
            values["other"] = {}
            values["t"] = {
                at: each for at, each in values["t"].items() if at < log.durability.recovery_point
            }

    def take(self) -> None:
        with self._lock:  # threads flush and remove files
            self._take()

    def _take(self) -> None:
        self._calls += 1
        before, promised = self._model(), self._model()
        taken: list[tuple[bytes, Cut]] = []
        if self._fsync != "always" and self._models != [KILLED]:
            promised.values = self._flushed.values
            promised.commits |= self._flushed.commits | self._job.attempted
            if self._fsync == "never":
                promised.commits.add(-1)  # a commit is a record too
        for model in self._models:
            state = self._power.state(model)
            key = hashlib.sha256(repr(sorted(state.items())).encode()).digest()
            taken.append((key, Cut(model, self._calls, state, promised)))
        # A thread that removes files does not wait for the job, which may have gone on: then the promise is too old.
        if self._model() != before:
            return
        for key, cut in taken:
            if key not in self._known:
                self._known.add(key)
                self.found.append(cut)
        # If another thread than the job's takes the states, they can contain a record that came after the promise.
        promised.number = self._job.number


def cuts(
    folder: Path, fsync: str, models: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> list[Cut]:
    """Run the job, and return the states of all power cuts or kills in it."""
    with monkeypatch.context() as patch:
        power = Power(folder, patch)
        with started(folder, fsync) as (broker, client):
            job = Job(broker, client)
            job.begin()
            broker.call(broker.logs.flush)
            found = Cuts(power, job, fsync, models)
            found.flushed()
            job.flushed = found.flushed
            power.before = found.take
            job.work()
            power.before = lambda: None
            assert job.errors == []
        power.close()
    return found.found


def check(each: Cut, folder: Path, fsync: str) -> None:
    materialize(each.state, folder)
    with started(folder, fsync) as (broker, client):
        each.job.check(broker, client)
        here = Job(broker, client)
        assert here.produce("t") and here.produce("other")
        assert here.errors == []
    shutil.rmtree(folder)


def run(
    tmp_path: Path,
    fsync: str,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    models: Sequence[str] = MODELS,
) -> None:
    found = cuts(tmp_path / "data", fsync, models, monkeypatch)
    assert len(found) > (20 if models == [KILLED] else 100)
    step = max(len(found) // most, 1)
    problems = []
    for number, each in enumerate(found[::step]):
        try:
            check(each, tmp_path / f"{number}", fsync)
        except Exception as error:  # of the check, or of the start
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{last.name}: {last.line}"
            problems.append(
                f"{each.model}, call {each.call}: {type(error).__name__}: {error} {where}"
            )
    print(f"{fsync}: {len(found)} states, {len(found[::step])} started")
    assert not problems, f"{len(problems)} of {len(found[::step])}:\n" + "\n".join(problems)


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_some_power_cuts(fsync: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, fsync, monkeypatch, 40)


@pytest.mark.parametrize("fsync", ["always", "interval", "never", "off"])
def test_some_kills(fsync: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, fsync, monkeypatch, 20, [KILLED])


@pytest.mark.sweep
@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_all_power_cuts(fsync: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, fsync, monkeypatch, 1_000_000)
