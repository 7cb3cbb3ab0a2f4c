"""Random changes: `krammar diff` reports a change of bytes if, and only if, a peer of the other side misreads them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, seed, settings

from krammar.compiler.compatibility import WIRE, compare
from krammar.util.diagnostics import Diagnostics
from tests.random_definitions.changes import Change, broken_bytes, changes
from tests.random_definitions.packages import Refused, check, removed, write_definitions

# They forbid what later definitions could do, so no bytes of these ones show them.
OF_THE_FUTURE = {"B106", "B107"}


@pytest.mark.parametrize(
    ("count", "number"),
    [(30, 1), *(pytest.param(400, number, marks=pytest.mark.search) for number in range(2, 6))],
)
def test_random_changes(count: int, number: int, tmp_path: Path) -> None:
    tried: Counter[bool] = Counter()

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(changes())
    def run(change: Change) -> None:
        tried[compare_with_bytes(change, tmp_path)] += 1

    run()
    assert tried[True] and tried[False]


def compare_with_bytes(change: Change, place: Path) -> bool:
    """Compare the verdict of `krammar diff` with bytes. Return whether peers misread each other."""
    with removed(place / "old") as one, removed(place / "new") as two:
        _, old = check(write_definitions(change.old, one))
        try:
            _, new = check(write_definitions(change.new, two))
        except Refused:
            assume(False)
        diagnostics = Diagnostics()
        compare(old, new, diagnostics)
    codes = {each.code for each in diagnostics.found if each.code.startswith(WIRE)}
    broken = broken_bytes(change, Random(change.new.text), samples=25)
    if not codes:
        assert not broken, f"krammar diff accepts the change, but {broken}"
    if codes - OF_THE_FUTURE:
        assert broken, f"no bytes show what krammar diff reports: {diagnostics.found}"
    return bool(broken)
