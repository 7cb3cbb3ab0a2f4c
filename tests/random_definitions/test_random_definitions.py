"""Random protocols: all that `krammar check --strict` accepts is right, in every version, through every way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.random_definitions.search import search


@pytest.mark.parametrize(
    ("count", "seed"),
    [(30, 1), *(pytest.param(250, seed, marks=pytest.mark.search) for seed in range(2, 10))],
)
def test_random_protocols(count: int, seed: int, tmp_path: Path) -> None:
    tried: list[str] = []
    search(tmp_path, count, seed, lambda protocol: tried.append(protocol.text))

    assert len(tried) >= count
