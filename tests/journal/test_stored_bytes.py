"""Intents and checkpoints in files: kills, power cuts, and disks that fail, at each call that changes them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from krammar.journal import Checkpoint, store_bytes
from tests.broker.faulty_disk import Disk
from tests.broker.power import KILLED, MODELS, Power, State

OLD = Checkpoint({"x": 1}).encode()
NEW = Checkpoint({"x": 2}).encode()
NAME = "checkpoint"


def test_power_cuts_and_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[State] = []
    with monkeypatch.context() as patch:
        power = Power(tmp_path / "data", patch)
        path = tmp_path / "data" / NAME
        store_bytes(path, OLD)
        power.before = lambda: states.extend(map(power.state, (*MODELS, KILLED)))
        store_bytes(path, NEW)
        after = [power.state(model) for model in (*MODELS, KILLED)]
        power.close()
    assert len(states) > 10
    assert {state[NAME] for state in states} == {OLD, NEW}
    assert {state[NAME] for state in after} == {NEW}
    assert Checkpoint.decode(NEW).read_through == {"x": 2}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=os.strerror)
@pytest.mark.parametrize("call", ["open", "pwrite", "fsync", "replace"])
def test_a_disk_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    path = tmp_path / NAME
    store_bytes(path, OLD)
    with disk.failing(call, f"{NAME}.*", error), pytest.raises(OSError, match=NAME) as caught:
        store_bytes(path, NEW)
    assert caught.value.errno == error
    assert path.read_bytes() == OLD and os.listdir(tmp_path) == [NAME]
    store_bytes(path, NEW)
    assert path.read_bytes() == NEW


def test_a_folder_that_cannot_be_forced_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known which content a power cut leaves."""
    power = Power(tmp_path / "data", monkeypatch)
    path = tmp_path / "data" / NAME
    store_bytes(path, OLD)
    with power.failing("fsync", "[.]"), pytest.raises(OSError, match="data"):
        store_bytes(path, NEW)
    assert {power.state(model)[NAME] for model in (*MODELS, KILLED)} == {OLD, NEW}
    power.close()
