"""The search: random protocols, each through every way. Hypothesis shrinks what fails to the smallest definition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, Phase, Verbosity, given, note, seed, settings

from tests.random_definitions.model import Protocol
from tests.random_definitions.package_strategies import protocols
from tests.random_definitions.packages import compiled
from tests.random_definitions.protocols import try_everything

Progress = Callable[[Protocol], None]


def search(place: Path, count: int, number: int, progress: Progress | None = None) -> None:
    """Try ``count`` protocols.

    The first failure is shrunk, and raised with the smallest definition, the value and the seed.

    Args:
        place: a folder for definitions and generated packages.
        number: the seed. The same seed gives the same protocols.
        progress: called after each protocol.
    """

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(protocols())
    def run(protocol: Protocol) -> None:
        try:
            attempt(place, protocol)
        except Exception:
            note(
                f"repeat with: python -m tests.random_definitions --protocols {count} --seed {number}"
            )
            raise
        if progress is not None:
            progress(protocol)

    run()


def attempt(place: Path, protocol: Protocol) -> None:
    """Try one protocol. Its values depend only on its definitions, so that they survive shrinking."""
    with compiled(protocol, place) as built:
        try_everything(protocol, built, Random(protocol.text))
