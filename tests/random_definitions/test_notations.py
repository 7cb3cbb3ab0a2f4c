"""Random protocols through Kafka's JSON schemas and Kafka's guide, and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.random_definitions.model import Protocol
from tests.random_definitions.notations import (
    GUIDE_FORMS,
    JSON_FORMS,
    compare_notations,
    through_guide,
    through_json,
)
from tests.random_definitions.package_strategies import protocols
from tests.random_definitions.packages import compiled, removed

FEW, MANY = 6, 200


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.search)])
@pytest.mark.parametrize(
    ("way", "forms"),
    [(through_json, JSON_FORMS), (through_guide, GUIDE_FORMS)],
    ids=["Kafka's schemas", "Kafka's guide"],
)
def test_notations(
    way: Callable[..., tuple[Path, str]], forms: frozenset[str], count: int, tmp_path: Path
) -> None:
    compared = 0

    @seed(count)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(protocols(forms))
    def run(protocol: Protocol) -> None:
        nonlocal compared
        with compiled(protocol, tmp_path) as built, removed(tmp_path / "other") as place:
            compared += compare_notations(protocol, built, way, place)

    run()
    assert compared > count
